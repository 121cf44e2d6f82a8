//! A rank: the handle with which a thread works in its team. `calls` has its collectives, `pending`
//! the calls that it starts and waits for later.
//!
//! **Unit.** A [`Rank`] belongs to one thread. [`Rank::mine`], [`Rank::loose`], [`Rank::strict`]
//! and [`Rank::with`] give its collectives in a mode of synchronisation.
//!
//! **Properties.** Calls are carried out in the order in which they were made; started calls come
//! before later blocking ones. A call that fails gives the team up for all its ranks. Dropping a
//! rank leaves the team, and ranks that still wait for it get an error. A forked child's copy of a
//! handle refuses to do anything.

mod calls;
mod in_place;
mod pending;
mod varied;

pub use calls::Calls;
pub use pending::PendingCall;

use crate::call::{ALLOC_WHAT, CollectiveCall, FREE_WHAT, Kind, Sync, check};
use crate::endpoint::{Endpoint, now};
use crate::meter::Meter;
use crate::race_detector::RaceDetector;
use crate::reduce::Element;
use crate::segment::arena::Arena;
use crate::segment::seat::TakenSeat;
use crate::shared::Shared;
use crate::team::Whole;
use crate::tune::lazy::Lazy;
use crate::{Error, Result};
use pending::Started;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Incremented in each forked child, so that a handle can check whether it belongs to this process.
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
    /// Reports the calls that the program makes.
    pub(crate) observers: Option<&'static Observers>,
    /// Measures algorithms in the program's calls.
    pub(crate) lazy: Option<Rc<Lazy>>,
    /// CPUs that the team's ranks may use, all together.
    pub(crate) mask: [u64; 16],
    /// Measurements that this team itself made beforehand.
    pub(crate) evidence: RefCell<Vec<crate::tune::Cell>>,
    /// Seats of its ranks, if this team is the remainder of a larger one.
    pub(crate) seats: Option<Vec<u32>>,
}

/// Receivers of a rank's calls: a measuring shim, and a race detector.
#[derive(Debug)]
pub(crate) struct Observers {
    meter: Option<Meter>,
    detector: Option<RaceDetector>,
}

impl Observers {
    /// Returns those in this process, if there are any.
    pub(crate) fn of_process() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Observers>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let (meter, detector) = (Meter::of_process(), RaceDetector::of_process());
            (meter.is_some() || detector.is_some()).then_some(Observers { meter, detector })
        });
        found.as_ref()
    }
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
            // child could not be distinguished.
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
            observers: None,
            lazy: None,
            mask: [0; 16],
            evidence: RefCell::default(),
            seats: None,
        })
    }

    /// Returns this rank's number, from 0 to [`Self::ranks`] - 1. [`Rank`] has an example.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.endpoint.rank
    }

    /// Returns the number of ranks of the team. [`Rank`] has an example.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.endpoint.ranks()
    }

    /// Returns the last calls of all ranks, and their last changes of the heap, as text: to find
    /// the cause of a hang, or the calls of its ranks. Waits for no rank, and works after an error.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// rank.barrier()?;
    /// let report = rank.report();
    /// for line in ["rank 0", "rank 1", "barrier"] {
    ///     assert!(report.contains(line), "{report}");
    /// }
    /// # rank.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn report(&self) -> String {
        self.endpoint.report()
    }

    /// Returns the text of an error of this rank's. If calls are checked
    /// ([`crate::Options::check`]) and the error ended the team, the text includes
    /// [`Self::report`]. The packages for C and Python give this text.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use trimtab_team::{Error, Options, Team};
    ///
    /// let team = Team::new(Options { check: true, ..Options::new(1) })?;
    /// let rank = team.join(None)?;
    /// rank.barrier()?;
    /// let words = rank.describe_error(&Error::Timeout(Duration::from_secs(1)));
    /// assert!(words.contains("within 1s") && words.contains("rank 0"), "{words}");
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    pub fn describe_error(&self, error: &Error) -> String {
        let ends = matches!(
            error,
            Error::Mismatch { .. }
                | Error::Timeout(_)
                | Error::Revoked(_)
                | Error::PeerDied(_)
                | Error::PeerLeft(_)
        );
        if ends && self.endpoint.is_checked() && self.ours().is_ok() {
            format!("{error}\n{}", self.report().trim_end())
        } else {
            error.to_string()
        }
    }

    /// Returns whether there are more ranks than CPUs for them, by the masks of all ranks and the
    /// quota. If so, no rank spins ([`crate::wait`]). Masks that change later count from the 1088th
    /// call at the latest ([`crate::endpoint::PERIOD`]). [`Self::install`] has an example.
    pub fn crowded(&self) -> bool {
        self.endpoint.crowded()
    }

    /// Returns whether ranks that are processes read each other's memory in long calls
    /// ([`crate::cma`]).
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options { pull: false, ..Options::new(1) })?;
    /// assert!(!team.join(None)?.pulls());
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    pub fn pulls(&self) -> bool {
        self.endpoint.buffers.pull.get()
    }

    /// Sets how long a call may wait before the call and the team are given up
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

    /// Sets a function that this rank calls while it waits for other ranks, so that another library
    /// of the process (MPI, UCX, an event loop) makes progress; `None` for none. Parts and
    /// remainders of the team that are made later inherit it.
    ///
    /// A wait calls it for the first time after 20 to 30 microseconds, then in growing intervals of
    /// up to 100 microseconds, and at least every 200 microseconds while the rank would sleep.
    /// Waits that end earlier do not call it and cost no more than without it. The function returns
    /// whether it has work under way: then the rank yields and calls it again instead of sleeping.
    /// It must not wait for other ranks of the team, and its calls of the team are refused. While
    /// ranks join or regroup it is not called.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::rc::Rc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static SENT: AtomicBool = AtomicBool::new(false);
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// if rank.rank() == 0 {
    ///     // What rank 1 waits for is only sent by rank 0's hook.
    ///     rank.set_progress(Some(Rc::new(|| {
    ///         SENT.store(true, Ordering::Release);
    ///         false
    ///     })));
    /// } else {
    ///     while !SENT.load(Ordering::Acquire) {
    ///         std::thread::yield_now();
    ///     }
    /// }
    /// rank.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_progress(&self, hook: Option<Rc<dyn Fn() -> bool>>) {
        self.endpoint.set_progress(hook);
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

    /// Runs `work`, which waits for all ranks, and reports it to the observers.
    #[inline(always)]
    fn counted(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.observers {
            None => work(),
            Some(observers) => self.observed(observers, work),
        }
    }

    #[cold]
    #[inline(never)]
    fn observed(&self, observers: &Observers, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let begin = observers.meter.map(|meter| (meter, Meter::now()));
        let observed = observers.detector.map(|detector| detector.call(self.address()));
        let outcome = work();
        drop(observed);
        if let Some((meter, begin)) = begin.filter(|_| outcome.is_ok()) {
            meter.report(begin, self.rank() == 0);
        }
        outcome
    }

    /// Returns the race detector of this process, if there is one.
    fn detector(&self) -> Option<RaceDetector> {
        self.observers.and_then(|observers| observers.detector)
    }

    /// Returns an address that stands for the team in this process.
    fn address(&self) -> *const u8 {
        self.endpoint.area.address()
    }

    fn watched_barrier(&self, lazy: &Lazy) -> Result<()> {
        // SAFETY: a barrier has no buffers.
        now(unsafe {
            lazy.carry_out(&self.endpoint, &CollectiveCall::BARRIER, self.endpoint.blocks_view(), true)
        })
    }

    /// Ends a sequence of loose calls: each rank may use its buffers in the segment again. It waits
    /// for all ranks, as [`Self::barrier`] does. [`Self::loose`] has an example.
    ///
    /// # Errors
    /// As [every call](Calls#errors).
    pub fn fence(&self) -> Result<()> {
        self.barrier()
    }

    /// Returns collectives after which the rank may use its own buffers again ([`Sync::MINE`], as
    /// in MPI). The usual mode: each call of [`Calls`] has an example.
    #[inline]
    pub fn mine(&self) -> Calls<'_> {
        self.with(Sync::MINE)
    }

    /// Returns collectives that wait only for the data ([`Sync::LOOSE`]). A rank may use its
    /// buffers in the segment again after [`Self::fence`].
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut value = [if rank.rank() == 0 { 7 } else { 0 }];
    /// rank.loose().broadcast(&mut value, 0)?; // Rank 0 may return before rank 1 has come.
    /// assert_eq!(value, [7]);
    /// rank.fence()?;
    /// # Ok(())
    /// # });
    /// ```
    #[inline]
    pub fn loose(&self) -> Calls<'_> {
        self.with(Sync::LOOSE)
    }

    /// Returns collectives before and after which all ranks wait for all ([`Sync::STRICT`]): all
    /// work that a rank did before the call is done when the call of any other rank returns.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static COME: AtomicU32 = AtomicU32::new(0);
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// COME.fetch_add(1, Ordering::Relaxed);
    /// let mut value = [rank.rank() + 5];
    /// rank.strict().broadcast(&mut value, 0)?;
    /// assert_eq!((value, COME.load(Ordering::Relaxed)), ([5], 2));
    /// # Ok(())
    /// # });
    /// ```
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

    /// Makes several calls with one barrier before the first and one after the last. The calls in
    /// between are loose.
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
    /// their calls. No rank waits, unless calls are checked ([`crate::Options::check`]): then
    /// different sizes are an error before any rank has the memory. The memory is zero at first,
    /// and later contains the data of earlier blocks.
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
    /// addressed; `Forked`; if calls are checked, as [every call](Calls#errors).
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Shared<T>> {
        self.ours()?;
        let too_large = || Error::Argument(format!("{count} elements are too many"));
        let block = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(128));
        let block = block.ok_or_else(too_large)?;
        let all = block.checked_mul(self.ranks() as usize).ok_or_else(too_large)?;
        let offset = self.arena.borrow_mut().alloc(all, 4096)?;
        self.endpoint.tickets.blocks.set(self.endpoint.tickets.blocks.get() + 1);
        self.endpoint.note_heap(ALLOC_WHAT, (count * size_of::<T>()) as u64);
        if self.endpoint.is_checked() {
            // Before any rank has the address: blocks of different sizes would overlap.
            self.barrier()?;
        }
        Ok(Shared::new(Rc::clone(&self.endpoint), offset, block, count))
    }

    /// Frees a block. All ranks must free the same blocks in the same order, after a barrier beyond
    /// which no rank uses the block. If calls are checked, its memory is filled with
    /// [`POISON`](crate::endpoint::POISON). [`Self::alloc`] has an example.
    ///
    /// # Errors
    /// `Argument` if nothing of this team was allocated there; if calls are checked, as
    /// [every call](Calls#errors).
    pub fn free<T: Element>(&self, block: Shared<T>) -> Result<()> {
        self.arena.borrow_mut().free(block.offset())?;
        self.endpoint.tickets.blocks.set(self.endpoint.tickets.blocks.get().saturating_sub(1));
        self.endpoint.note_heap(FREE_WHAT, block.offset() as u64);
        if self.endpoint.is_checked() {
            self.barrier()?;
            // SAFETY: the block is in the segment, which the endpoint keeps; all ranks have freed
            // it.
            unsafe { self.endpoint.poison_block(block.own().cast(), block.len() * size_of::<T>()) };
        }
        Ok(())
    }

    /// Checks that the handle belongs to this process and that everything that was started is over.
    #[inline(always)]
    pub(crate) fn ready(&self) -> Result<()> {
        self.ours()?;
        self.between_calls()?;
        if self.queue.borrow().is_empty() { Ok(()) } else { self.drain() }
    }

    /// The sources are borrowed while elements are combined and while a hook runs: then the caller
    /// is a function of the program's own.
    #[inline(always)]
    fn between_calls(&self) -> Result<()> {
        if self.endpoint.buffers.sources.try_borrow_mut().is_ok() {
            return Ok(());
        }
        Err(Error::Argument("an operator or a progress hook cannot call the team that calls it".to_owned()))
    }

    /// Gives the team up for all its ranks: the call in which they wait fails, or else their next
    /// call. For a rank that finds by itself that it cannot continue, also in an operator of its
    /// own.
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
    /// buffers of started calls are freed. A rank without started calls keeps its team:
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// rank.abandon();
    /// rank.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn abandon(&self) {
        if self.ours().is_ok() && !self.queue.borrow().is_empty() {
            self.endpoint.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Gives the team up for all ranks. For a rank that cannot continue and whose position in the
    /// call is unknown. The other ranks get the information that it has left.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Error;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// if rank.rank() == 0 {
    ///     rank.resign();
    /// } else {
    ///     assert_eq!(rank.barrier(), Err(Error::PeerLeft(0)));
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn resign(&self) {
        if self.ours().is_ok() {
            self.endpoint.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Carries out a call with addresses as buffers. For types and operators that are known only at
    /// run time, and for operators of the program's own ([`crate::reduce::Kernel::own`]).
    ///
    /// # Safety
    /// The buffers are valid for the lengths of [`Kind::shape`]. During the call nothing else
    /// writes the output or the input. Inputs and outputs begin at the same address or do not
    /// overlap; in place, a gather's, an allgather's and a scatter's smaller buffer is this rank's
    /// block of the larger one.
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
    /// // SAFETY: `value` has the length of the call, and is used by it alone.
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
