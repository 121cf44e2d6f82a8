//! A rank: the handle with which a thread works in its team.
//!
//! **Unit.** A [`Rank`] belongs to one thread. [`Rank::mine`], [`Rank::loose`], [`Rank::strict`]
//! and [`Rank::with`] give its collectives in a mode of synchronisation.
//!
//! **Properties.** Calls are carried out in the order in which they were made; started calls come
//! before later blocking ones. A call that fails gives the team up for all its ranks. Dropping a
//! rank leaves the team, and ranks that still wait for it get an error. A forked child's copy of a
//! handle refuses to do anything.

use crate::call::{ALLOC_WHAT, CollectiveCall, FREE_WHAT, Kind, Sync, check};
use crate::endpoint::{Endpoint, now};
use crate::meter::Meter;
use crate::reduce::{Element, Kernel, Operator};
use crate::segment::arena::Arena;
use crate::segment::seat::TakenSeat;
use crate::shared::Shared;
use crate::team::Whole;
use crate::tune::lazy::Lazy;
use crate::{Error, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// Incremented in each forked child, so that a handle can tell whether it belongs to this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Handle of one thread in its team.
///
/// [`Team::join`](crate::Team::join) makes it, and dropping it leaves the team. It belongs to the
/// thread that joined: it can neither be sent to nor shared with another thread.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// assert!(rank.rank() < rank.ranks());
/// rank.barrier()?; // Waits for the other rank.
/// drop(rank);      // Leaves the team.
/// # Ok(())
/// # });
/// ```
pub struct Rank {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) arena: RefCell<Arena>,
    queue: RefCell<VecDeque<Started>>,
    generation: u32,
    born: u32,
    /// The seat, which is left when dropped; `None` in sub-teams.
    pub(crate) seat: Option<(TakenSeat, Whole)>,
    /// Reports the calls that the program makes to a measuring shim.
    pub(crate) meter: Option<Meter>,
    /// Tries algorithms out in the program's calls.
    pub(crate) lazy: Option<Rc<Lazy>>,
    /// CPUs that the team's ranks may use, all together.
    pub(crate) mask: [u64; 16],
    /// Measurements that this team itself made beforehand.
    pub(crate) evidence: RefCell<Vec<crate::tune::Cell>>,
    /// Seats of its ranks, if this team is the remainder of a larger one.
    pub(crate) seats: Option<Vec<u32>>,
}

type CallFuture = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A call under way.
struct Started {
    work: CallFuture,
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rank {} of {}", self.rank(), self.ranks())
    }
}

impl Rank {
    pub(crate) fn new(endpoint: Rc<Endpoint>, seat: Option<(TakenSeat, Whole)>, heap: usize) -> Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler only adds to an atomic number. Without it the handles of a forked
            // child could not be told apart.
            unsafe {
                libc::pthread_atfork(None, None, Some(forked));
            }
        });
        Ok(Self {
            endpoint,
            arena: RefCell::new(Arena::new(heap)),
            queue: RefCell::default(),
            generation: GENERATION.load(Ordering::Relaxed),
            born: std::process::id(),
            seat,
            meter: None,
            lazy: None,
            mask: [0; 16],
            evidence: RefCell::default(),
            seats: None,
        })
    }

    /// Returns this rank's number, from 0 to [`Self::ranks`] - 1.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.endpoint.rank
    }

    /// Returns the number of ranks of the team.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.endpoint.ranks()
    }

    /// Returns the last calls of all ranks, and their last changes of the heap, as text: to find
    /// out why a team hangs or what its ranks called. Waits for no rank, and works after an error.
    pub fn report(&self) -> String {
        self.endpoint.report()
    }

    /// Returns whether there are more ranks than CPUs for them. If so, all ranks wait by sleeping.
    pub fn crowded(&self) -> bool {
        self.endpoint.crowded
    }

    /// Returns whether ranks read each other's memory in long calls ([`crate::cma`]).
    pub fn pulls(&self) -> bool {
        self.endpoint.buffers.pull.get()
    }

    /// Sets how long a call may wait before it is broken off, and the team with it
    /// ([`crate::Options::deadline`]); `None` for no limit.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    /// use trimtab_team::Error;
    ///
    /// static OVER: AtomicBool = AtomicBool::new(false);
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// rank.set_deadline(Some(Duration::from_millis(20)));
    /// if rank.rank() == 0 {
    ///     // The other rank makes no such call.
    ///     assert!(matches!(rank.barrier(), Err(Error::Timeout(_))));
    ///     OVER.store(true, Ordering::Release);
    /// }
    /// while !OVER.load(Ordering::Acquire) {
    ///     std::thread::yield_now();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_deadline(&self, deadline: Option<std::time::Duration>) {
        self.endpoint.set_deadline(deadline);
    }

    #[inline(always)]
    pub(crate) fn ours(&self) -> Result<()> {
        if GENERATION.load(Ordering::Relaxed) == self.generation {
            Ok(())
        } else {
            Err(Error::Forked(self.born))
        }
    }

    /// Waits until all ranks have reached the barrier. Data that a rank wrote before its barrier is
    /// visible to all ranks after theirs.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static COME: AtomicU32 = AtomicU32::new(0);
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// COME.fetch_add(1, Ordering::Relaxed);
    /// rank.barrier()?;
    /// assert_eq!(COME.load(Ordering::Relaxed), 3);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [every call](Calls#errors).
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        self.ready()?;
        self.counted(|| match &self.lazy {
            Some(lazy) => self.watched_barrier(lazy),
            None => now(self.endpoint.barrier_call(self.endpoint.blocks_view())),
        })
    }

    /// Runs `work`, which waits for all ranks, and reports it to the meter.
    #[inline(always)]
    fn counted(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let begin = self.meter.map(|_| Meter::now());
        let outcome = work();
        if let (Some(meter), Some(begin), Ok(())) = (self.meter, begin, &outcome) {
            meter.report(begin, self.rank() == 0);
        }
        outcome
    }

    fn watched_barrier(&self, lazy: &Lazy) -> Result<()> {
        // SAFETY: a barrier has no buffers.
        now(unsafe {
            lazy.carry_out(&self.endpoint, &CollectiveCall::BARRIER, self.endpoint.blocks_view(), true)
        })
    }

    /// Ends a sequence of loose calls: each rank may use its buffers in the segment again. It waits
    /// for all ranks, as [`Self::barrier`] does.
    ///
    /// # Errors
    /// As [every call](Calls#errors).
    pub fn fence(&self) -> Result<()> {
        self.barrier()
    }

    /// Returns collectives after which the rank may use its own buffers again ([`Sync::MINE`], as
    /// in MPI). The usual mode.
    #[inline]
    pub fn mine(&self) -> Calls<'_> {
        self.with(Sync::MINE)
    }

    /// Returns collectives that wait only for the data ([`Sync::LOOSE`]). A rank may use its
    /// buffers in the segment again after [`Self::fence`].
    #[inline]
    pub fn loose(&self) -> Calls<'_> {
        self.with(Sync::LOOSE)
    }

    /// Returns collectives before and after which all ranks wait for all ([`Sync::STRICT`]).
    #[inline]
    pub fn strict(&self) -> Calls<'_> {
        self.with(Sync::STRICT)
    }

    /// Returns collectives in any of the nine modes.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{Sync, When};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// // Data moves when all ranks have come; each rank returns when it has its own.
    /// let sync = Sync { enter: When::All, leave: When::Mine };
    /// let mut numbers = [0_u32; 2];
    /// rank.with(sync).allgather(&[rank.rank()], &mut numbers)?;
    /// assert_eq!(numbers, [0, 1]);
    /// # Ok(())
    /// # });
    /// ```
    #[inline]
    pub fn with(&self, sync: Sync) -> Calls<'_> {
        Calls { rank: self, sync }
    }

    /// Makes several calls with one barrier before all of them and one after. The calls in between
    /// are loose.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let (mut sum, mut largest) = ([1.0], [f64::from(rank.rank())]);
    /// rank.batch(|calls| {
    ///     calls.allreduce_in_place(&mut sum, Operator::Sum)?;
    ///     calls.allreduce_in_place(&mut largest, Operator::Max)
    /// })?;
    /// assert_eq!((sum, largest), ([2.0], [1.0]));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// The first of the barriers and of `calls` that fails: as [every call](Calls#errors).
    pub fn batch<T>(&self, calls: impl FnOnce(Calls<'_>) -> Result<T>) -> Result<T> {
        self.barrier()?;
        let outcome = calls(self.loose())?;
        self.barrier()?;
        Ok(outcome)
    }

    /// Allocates a block of `count` elements for each rank in the segment, where other ranks can
    /// reach it without a copy. All ranks must allocate the same blocks in the same order among
    /// their calls; no rank waits. The memory is zero at first, and later holds whatever earlier
    /// blocks left in it.
    ///
    /// A block takes `count` elements in bytes, rounded up to 128; the blocks of all ranks together
    /// are rounded up to 4096 bytes of the heap ([`crate::Options::heap`]).
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let block = rank.alloc::<u32>(4)?;
    /// block.store(0, &[rank.rank() + 10])?; // Into this rank's own block.
    /// rank.barrier()?;
    /// let mut theirs = [0];
    /// block.load(1 - rank.rank(), 0, &mut theirs)?;
    /// assert_eq!(theirs, [11 - rank.rank()]);
    /// rank.barrier()?; // Both have read.
    /// rank.free(block)?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `NoMemory` if the heap has no room for it; `Argument` for more elements than can be
    /// addressed; `Forked`.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Shared<T>> {
        self.ours()?;
        let too_large = || Error::Argument(format!("{count} elements are too many"));
        let block = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(128));
        let block = block.ok_or_else(too_large)?;
        let all = block.checked_mul(self.ranks() as usize).ok_or_else(too_large)?;
        let offset = self.arena.borrow_mut().alloc(all, 4096)?;
        self.endpoint.tickets.blocks.set(self.endpoint.tickets.blocks.get() + 1);
        self.endpoint.note_heap(ALLOC_WHAT, (count * size_of::<T>()) as u64);
        Ok(Shared::new(Rc::clone(&self.endpoint), offset, block, count))
    }

    /// Frees a block. All ranks must free the same blocks in the same order, after a barrier beyond
    /// which no rank uses the block. [`Self::alloc`] has an example.
    ///
    /// # Errors
    /// `Argument` if nothing of this team was allocated there.
    pub fn free<T: Element>(&self, block: Shared<T>) -> Result<()> {
        self.arena.borrow_mut().free(block.offset())?;
        self.endpoint.tickets.blocks.set(self.endpoint.tickets.blocks.get().saturating_sub(1));
        self.endpoint.note_heap(FREE_WHAT, block.offset() as u64);
        Ok(())
    }

    /// Checks that the handle belongs to this process and that everything that was started is over.
    #[inline(always)]
    pub(crate) fn ready(&self) -> Result<()> {
        self.ours()?;
        self.between_calls()?;
        if self.queue.borrow().is_empty() { Ok(()) } else { self.drain() }
    }

    /// The sources are borrowed while elements are combined: then the caller is an operator of the
    /// program's own.
    #[inline(always)]
    fn between_calls(&self) -> Result<()> {
        if self.endpoint.buffers.sources.try_borrow_mut().is_ok() {
            return Ok(());
        }
        Err(Error::Argument("an operator cannot call the team that it combines for".to_owned()))
    }

    #[cold]
    fn drain(&self) -> Result<()> {
        self.advance(true);
        Ok(())
    }

    /// Carries on the started calls; to their end, if it may wait.
    fn advance(&self, wait: bool) {
        let before = self.endpoint.block(wait);
        let mut context = Context::from_waker(Waker::noop());
        let mut queue = self.queue.borrow_mut();
        while let Some(first) = queue.front_mut() {
            match first.work.as_mut().poll(&mut context) {
                Poll::Pending if wait => {}
                Poll::Pending => break,
                Poll::Ready(result) => {
                    *first.outcome.borrow_mut() = Some(result);
                    queue.pop_front();
                }
            }
        }
        self.endpoint.block(before);
    }

    /// Ends all started calls without carrying them out.
    pub(crate) fn give_up_started(&self) {
        for started in self.queue.borrow_mut().drain(..) {
            *started.outcome.borrow_mut() = Some(Err(Error::Revoked(self.rank())));
        }
    }

    /// Gives the team up for all its ranks: the call in which they wait fails, or else their next
    /// call. For a rank that finds by itself that it cannot go on, also in an operator of its own.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// if rank.rank() == 0 {
    ///     rank.give_up();
    /// } else {
    ///     assert!(rank.barrier().is_err());
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn give_up(&self) {
        if self.ours().is_ok() {
            self.endpoint.give_up(crate::shared_layout::Cause::Mismatch, self.rank());
        }
    }

    /// Gives up the started calls, and the team if there were any. For a rank that leaves when the
    /// buffers of started calls are gone.
    pub fn abandon(&self) {
        if self.ours().is_ok() && !self.queue.borrow().is_empty() {
            self.endpoint.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Gives the team up for all ranks. For a rank that cannot go on and cannot say how far it has
    /// come. The other ranks are told that it has left.
    pub fn resign(&self) {
        if self.ours().is_ok() {
            self.endpoint.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Carries out a call with addresses as buffers. For types and operators that are known only at
    /// run time, and for operators of the program's own ([`Kernel::own`]).
    ///
    /// # Safety
    /// The buffers are valid for the lengths that [`Kind::shape`] says. During the call nothing
    /// else writes the output or the input. Inputs and outputs are the same buffer or do not
    /// overlap.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{CollectiveCall, Kernel, Kind, Operator, Sync, Type};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut value = [rank.rank() + 1];
    /// let call = CollectiveCall {
    ///     kind: Kind::Allreduce,
    ///     elements: Type::U32,
    ///     operator: Some(Operator::Sum),
    ///     kernel: Some(Kernel::of(Type::U32, Operator::Sum)?),
    ///     count: value.len(),
    ///     root: 0,
    ///     input: value.as_ptr().cast(),
    ///     output: value.as_mut_ptr().cast(),
    ///     sync: Sync::MINE,
    /// };
    /// // SAFETY: `value` is as long as the call says, and is used by it alone.
    /// unsafe { rank.call(&call)? };
    /// assert_eq!(value, [3]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [every call](Calls#errors).
    #[inline]
    pub unsafe fn call(&self, call: &CollectiveCall) -> Result<()> {
        self.ready()?;
        check(call, self.ranks())?;
        self.counted(|| match &self.lazy {
            // SAFETY: the caller's promise.
            Some(lazy) if call.bytes() > crate::flag::INLINE_BYTES || call.kind == Kind::Barrier => unsafe {
                self.watched_call(lazy, call)
            },
            // SAFETY: the caller's promise.
            _ => now(unsafe { self.endpoint.carry_out(call, self.endpoint.blocks_view()) }),
        })
    }

    /// # Safety
    /// As [`Self::call`].
    unsafe fn watched_call(&self, lazy: &Lazy, call: &CollectiveCall) -> Result<()> {
        // SAFETY: the caller's promise.
        now(unsafe { lazy.carry_out(&self.endpoint, call, self.endpoint.blocks_view(), true) })
    }

    /// Starts a call, which goes on while this rank tests it, waits for it or makes other calls.
    ///
    /// # Safety
    /// As [`Self::call`], until it is over or the rank is dropped.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{CollectiveCall, Kind, Type};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut value = [if rank.rank() == 0 { 7 } else { 0_u32 }];
    /// let call = CollectiveCall {
    ///     kind: Kind::Broadcast,
    ///     elements: Type::U32,
    ///     count: value.len(),
    ///     input: value.as_ptr().cast(),
    ///     output: value.as_mut_ptr().cast(),
    ///     ..CollectiveCall::BARRIER
    /// };
    /// // SAFETY: nothing else uses `value` before the call is over.
    /// let pending = unsafe { rank.start(call)? };
    /// while !rank.test(&pending)? {
    ///     // Other work has its place here; `rank.wait(&pending)` waits.
    /// }
    /// assert_eq!(value, [7]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Argument` or `Forked`; what goes wrong later is the result of [`Self::test`] or
    /// [`Self::wait`].
    pub unsafe fn start(&self, call: CollectiveCall) -> Result<PendingCall> {
        // SAFETY: the caller's promise.
        unsafe { self.start_with(call, ()) }
    }

    unsafe fn start_with<B: 'static>(&self, call: CollectiveCall, buffers: B) -> Result<PendingCall> {
        self.ours()?;
        self.between_calls()?;
        check(&call, self.ranks())?;
        let (endpoint, lazy) = (Rc::clone(&self.endpoint), self.lazy.clone());
        let outcome = Rc::new(RefCell::new(None));
        // Read now and not when the call's turn comes: blocks are allocated in the order of calls.
        let blocks = endpoint.blocks_view();
        let work = Box::pin(async move {
            // The buffers live as long as the work that uses them.
            let _buffers = buffers;
            match lazy {
                // SAFETY: the caller's promise.
                Some(lazy) => unsafe { lazy.carry_out(&endpoint, &call, blocks, false) }.await,
                // SAFETY: as above.
                None => unsafe { endpoint.carry_out(&call, blocks) }.await,
            }
        });
        self.queue.borrow_mut().push_back(Started { work, outcome: Rc::clone(&outcome) });
        self.advance(false);
        Ok(PendingCall { outcome })
    }

    /// Returns whether a started call is over, without waiting. All started calls make some
    /// progress. [`Self::start`] has an example.
    ///
    /// # Errors
    /// The call's own: as [every call](Calls#errors).
    pub fn test(&self, request: &PendingCall) -> Result<bool> {
        self.ours()?;
        self.advance(false);
        match &*request.outcome.borrow() {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Waits for a started call. [`Self::start`] has an example.
    ///
    /// # Errors
    /// The call's own: as [every call](Calls#errors); `Argument` for the request of another rank.
    pub fn wait(&self, request: &PendingCall) -> Result<()> {
        self.ours()?;
        self.counted(|| {
            while request.outcome.borrow().is_none() {
                if self.queue.borrow().is_empty() {
                    return Err(Error::Argument("the request is of another rank's handle".to_owned()));
                }
                self.advance(true);
            }
            request.outcome.borrow().clone().unwrap_or(Ok(()))
        })
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.ours().is_err() {
            return;
        }
        if !self.queue.borrow().is_empty() && !std::thread::panicking() {
            // Other ranks depend on the calls that were started.
            self.advance(true);
        }
    }
}

/// Started call, to be handed to [`Rank::test`] and [`Rank::wait`]. Its copies are of the same
/// call.
#[derive(Debug, Clone)]
pub struct PendingCall {
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

/// Collectives of a rank, in one mode of synchronisation.
///
/// # Shapes
///
/// `n` is the number of ranks; lengths are in elements. All ranks must give the same `count`, type,
/// operator, root and mode. The result is in the order of ranks.
///
/// | call | input | output |
/// |---|---|---|
/// | [`broadcast`](Self::broadcast) | `count`, at the root | `count` (the same buffer) |
/// | [`reduce`](Self::reduce) | `count` | `count` at the root, else 0 |
/// | [`allreduce`](Self::allreduce), [`scan`](Self::scan) | `count` | `count` |
/// | [`reduce_scatter`](Self::reduce_scatter) | `n * count` | `count` |
/// | [`gather`](Self::gather) | `count` | `n * count` at the root, else 0 |
/// | [`allgather`](Self::allgather) | `count` | `n * count` |
/// | [`scatter`](Self::scatter) | `n * count` at the root, else 0 | `count` |
/// | [`alltoall`](Self::alltoall) | `n * count` | `n * count` |
///
/// # Errors
/// A call that could not be the same at all ranks fails before any data moves, at this rank alone:
///
/// - [`Error::Argument`]: a buffer of another length than the table's, a root outside of the team,
///   an operator that the type does not have (`And`, `Or` and `Xor` are for integers), or a call
///   from within an operator of this team.
/// - [`Error::Forked`]: the handle was copied by fork.
///
/// Later failures give the team up. Every rank gets the same one, in the call in which it waits or
/// in its next: [`Error::PeerDied`], [`Error::PeerLeft`], [`Error::Mismatch`], [`Error::Timeout`],
/// [`Error::Interrupted`] or [`Error::Revoked`]. Ranks that are left can go on with
/// [`Rank::shrink`].
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    rank: &'a Rank,
    sync: Sync,
}

/// Returns the error for a buffer that is not as long as a call needs.
fn short(kind: Kind, what: &str, has: usize, needs: usize) -> Error {
    Error::Argument(format!("{} needs {needs} elements of {what}, not {has}", kind.name()))
}

impl Calls<'_> {
    fn prepare<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        root: u32,
        operator: Option<Operator>,
        input: &[T],
        output: &mut [T],
    ) -> Result<CollectiveCall> {
        let (gives, gets) = kind.shape(self.rank.ranks(), count, root == self.rank.rank());
        if kind != Kind::Broadcast && input.len() != gives {
            return Err(short(kind, "input", input.len(), gives));
        }
        if output.len() != gets {
            return Err(short(kind, "output", output.len(), gets));
        }
        let kernel = operator.map(|operator| Kernel::of(T::TYPE, operator)).transpose()?;
        Ok(CollectiveCall {
            kind,
            elements: T::TYPE,
            operator,
            kernel,
            count,
            root,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            sync: self.sync,
        })
    }

    #[inline]
    fn go<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        root: u32,
        operator: Option<Operator>,
        input: &[T],
        output: &mut [T],
    ) -> Result<()> {
        let call = self.prepare(kind, count, root, operator, input, output)?;
        // SAFETY: the lengths were checked, and the slices are borrowed for the call.
        unsafe { self.rank.call(&call) }
    }

    /// Copies the root's elements to all ranks. All buffers have the same length.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut buffer = if rank.rank() == 1 { [5, 6] } else { [0, 0_i32] };
    /// rank.mine().broadcast(&mut buffer, 1)?;
    /// assert_eq!(buffer, [5, 6]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        let mut call = self.prepare(Kind::Broadcast, buffer.len(), root, None, &[], buffer)?;
        call.input = call.output;
        // SAFETY: the buffer is borrowed for the call, as input or as output.
        unsafe { self.rank.call(&call) }
    }

    /// Combines all ranks' elements at the root. `output` is as long as `input` at the root, and
    /// empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let (input, root) = ([rank.rank(), 1], 2);
    /// let mut output = vec![0; if rank.rank() == root { input.len() } else { 0 }];
    /// rank.mine().reduce(&input, &mut output, Operator::Sum, root)?;
    /// if rank.rank() == root {
    ///     assert_eq!(output, [3, 3]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
        root: u32,
    ) -> Result<()> {
        self.go(Kind::Reduce, input.len(), root, Some(operator), input, output)
    }

    /// Combines all ranks' elements at all ranks. `output` is as long as `input`. All ranks get the
    /// same bits.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0; 2];
    /// rank.mine().allreduce(&[rank.rank(), 4], &mut output, Operator::Max)?;
    /// assert_eq!(output, [2, 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Allreduce, input.len(), 0, Some(operator), input, output)
    }

    /// Combines all ranks' elements at all ranks, in place.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut sums = [f64::from(rank.rank()), 1.0];
    /// rank.mine().allreduce_in_place(&mut sums, Operator::Sum)?;
    /// assert_eq!(sums, [3.0, 3.0]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn allreduce_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        let call = CollectiveCall {
            kind: Kind::Allreduce,
            elements: T::TYPE,
            operator: Some(operator),
            kernel: Some(Kernel::of(T::TYPE, operator)?),
            count: buffer.len(),
            root: 0,
            input: buffer.as_ptr().cast(),
            output: buffer.as_mut_ptr().cast(),
            sync: self.sync,
        };
        // SAFETY: the buffer is borrowed for the call, and may be both.
        unsafe { self.rank.call(&call) }
    }

    /// Combines all ranks' blocks; each rank gets the block of its number of the result. `input` is
    /// as long as the outputs of all ranks together.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut output = [0];
    /// rank.mine().reduce_scatter(&[10, 20], &mut output, Operator::Sum)?;
    /// assert_eq!(output, [if rank.rank() == 0 { 20 } else { 40 }]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
    ) -> Result<()> {
        self.go(Kind::ReduceScatter, output.len(), 0, Some(operator), input, output)
    }

    /// Collects a block of each rank at the root, in the order of ranks. `output` has a block for
    /// each rank at the root, and is empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = vec![0; if rank.rank() == 0 { 3 } else { 0 }];
    /// rank.mine().gather(&[rank.rank() * 2], &mut output, 0)?;
    /// if rank.rank() == 0 {
    ///     assert_eq!(output, [0, 2, 4]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Gather, input.len(), root, None, input, output)
    }

    /// Collects a block of each rank at all ranks, in the order of ranks.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0; 3];
    /// rank.mine().allgather(&[rank.rank() * 2], &mut output)?;
    /// assert_eq!(output, [0, 2, 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.go(Kind::Allgather, input.len(), 0, None, input, output)
    }

    /// Sends a block of the root's to each rank: block 0 to rank 0, and so on. `input` has a block
    /// for each rank at the root, and is empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let input: &[u32] = if rank.rank() == 0 { &[7, 8, 9] } else { &[] };
    /// let mut output = [0];
    /// rank.mine().scatter(input, &mut output, 0)?;
    /// assert_eq!(output, [7 + rank.rank()]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Scatter, output.len(), root, None, input, output)
    }

    /// Sends a block of each rank to each rank: block `j` of rank `i` becomes block `i` of rank
    /// `j`. Both buffers have a block for each rank.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let (i, mut output) = (rank.rank(), [0; 2]);
    /// rank.mine().alltoall(&[10 * i, 10 * i + 1], &mut output)?;
    /// assert_eq!(output, [i, 10 + i]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let ranks = self.rank.ranks() as usize;
        if !input.len().is_multiple_of(ranks) {
            return Err(short(Kind::Alltoall, "input", input.len(), input.len().next_multiple_of(ranks)));
        }
        self.go(Kind::Alltoall, input.len() / ranks, 0, None, input, output)
    }

    /// Combines the elements of ranks 0 to this one, this one included. `output` is as long as
    /// `input`.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0];
    /// rank.mine().scan(&[rank.rank() + 1], &mut output, Operator::Sum)?;
    /// assert_eq!(output, [[1], [3], [6]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scan<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Scan, input.len(), 0, Some(operator), input, output)
    }
}
