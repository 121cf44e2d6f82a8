//! A rank: the handle with which a thread works in its team.
//!
//! **Unit.** A [`Rank`] belongs to one thread. [`Rank::mine`], [`Rank::loose`], [`Rank::strict`] and [`Rank::with`] give its collectives in a mode of
//! synchronisation.
//!
//! **Properties.** Calls are carried out in the order in which they were made, those that were started before those that wait. A call that
//! fails gives the team up for all its ranks. Dropping a rank leaves the team; who still waits for it is told so. A forked
//! child's copy of a handle refuses to do anything.

use crate::call::{Call, Kind, Sync, check};
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

/// One more in each forked child, so that a handle knows whose it is.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// See the module.
pub struct Rank {
    pub(crate) station: Rc<Endpoint>,
    pub(crate) arena: RefCell<Arena>,
    queue: RefCell<VecDeque<Started>>,
    generation: u32,
    born: u32,
    /// Leaves when dropped; sub-teams have none.
    pub(crate) seat: Option<(TakenSeat, Whole)>,
    /// Who counts the calls that the program makes.
    pub(crate) meter: Option<Meter>,
    /// Tries ways out in the calls that are made.
    pub(crate) lazy: Option<Rc<Lazy>>,
    /// The processors that its ranks may use, all together.
    pub(crate) mask: [u64; 16],
    /// What was measured beforehand by this team itself.
    pub(crate) evidence: RefCell<Vec<crate::tune::Cell>>,
    /// Which seats its ranks have, where it is what is left of a larger team.
    pub(crate) seats: Option<Vec<u32>>,
}

type Work = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A call under way.
struct Started {
    work: Work,
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rank {} of {}", self.rank(), self.ranks())
    }
}

impl Rank {
    pub(crate) fn new(station: Rc<Endpoint>, seat: Option<(TakenSeat, Whole)>, heap: usize) -> Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler does nothing but add to an atomic number. Without it handles of a child are not told apart.
            unsafe {
                libc::pthread_atfork(None, None, Some(forked));
            }
        });
        Ok(Self {
            station,
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

    /// Its number, from 0.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.station.rank
    }

    /// How many ranks the team has.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.station.ranks()
    }

    /// Whether there are more ranks than processors for them: then all wait by sleeping.
    pub fn crowded(&self) -> bool {
        self.station.crowded
    }

    /// Whether ranks read each other's memory in long calls ([`crate::cma`]).
    pub fn pulls(&self) -> bool {
        self.station.buffers.pull.get()
    }

    /// From now on calls that wait in vain are broken off after so long, and the team with them ([`crate::Options::deadline`]).
    pub fn set_deadline(&self, deadline: Option<std::time::Duration>) {
        self.station.set_deadline(deadline);
    }

    #[inline(always)]
    pub(crate) fn ours(&self) -> Result<()> {
        if GENERATION.load(Ordering::Relaxed) == self.generation {
            Ok(())
        } else {
            Err(Error::Forked(self.born))
        }
    }

    /// Waits until all have come.
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        self.ready()?;
        self.counted(|| match &self.lazy {
            Some(lazy) => self.watched_barrier(lazy),
            None => now(self.station.barrier_call()),
        })
    }

    /// Does `work`, which waits for all, and tells who counts.
    #[inline(always)]
    fn counted(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let begin = self.meter.map(|_| Meter::now());
        let outcome = work();
        if let (Some(meter), Some(begin), Ok(())) = (self.meter, begin, &outcome) {
            meter.met(begin, self.rank() == 0);
        }
        outcome
    }

    fn watched_barrier(&self, lazy: &Lazy) -> Result<()> {
        // SAFETY: a barrier has no buffers.
        now(unsafe { lazy.carry_out(&self.station, &Call::BARRIER, false, true) })
    }

    /// Ends a stretch of loose calls: buffers in the segment are everybody's own again.
    pub fn fence(&self) -> Result<()> {
        self.barrier()
    }

    /// Collectives after which own buffers may be used again. The usual.
    #[inline]
    pub fn mine(&self) -> Calls<'_> {
        self.with(Sync::MINE)
    }

    /// Collectives that wait for no more than the data.
    #[inline]
    pub fn loose(&self) -> Calls<'_> {
        self.with(Sync::LOOSE)
    }

    /// Collectives before and after which all wait for all.
    #[inline]
    pub fn strict(&self) -> Calls<'_> {
        self.with(Sync::STRICT)
    }

    /// Collectives in any of the nine modes.
    #[inline]
    pub fn with(&self, sync: Sync) -> Calls<'_> {
        Calls { rank: self, sync }
    }

    /// Several calls with one synchronisation of all before them and one after: they are loose in between.
    pub fn batch<T>(&self, calls: impl FnOnce(Calls<'_>) -> Result<T>) -> Result<T> {
        self.barrier()?;
        let outcome = calls(self.loose())?;
        self.barrier()?;
        Ok(outcome)
    }

    /// A block of `count` elements for each rank, in the segment, where others can reach it without a copy. All ranks must ask alike,
    /// and in the same order among their calls; nobody waits. It is zero at first, or what was there before.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Shared<T>> {
        self.ours()?;
        let too_large = || Error::Argument(format!("{count} elements are too many"));
        let block = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(128));
        let block = block.ok_or_else(too_large)?;
        let all = block.checked_mul(self.ranks() as usize).ok_or_else(too_large)?;
        let offset = self.arena.borrow_mut().alloc(all, 4096)?;
        self.station.tickets.blocks.set(self.station.tickets.blocks.get() + 1);
        Ok(Shared::new(Rc::clone(&self.station), offset, block, count))
    }

    /// Gives a block back. All ranks must do so alike, after a barrier at which nobody uses it any more.
    pub fn free<T: Element>(&self, block: Shared<T>) -> Result<()> {
        self.arena.borrow_mut().free(block.offset())?;
        self.station.tickets.blocks.set(self.station.tickets.blocks.get().saturating_sub(1));
        Ok(())
    }

    /// Everything that was started is over, and the handle is this process's.
    #[inline(always)]
    pub(crate) fn ready(&self) -> Result<()> {
        self.ours()?;
        self.between_calls()?;
        if self.queue.borrow().is_empty() { Ok(()) } else { self.drain() }
    }

    /// Combining goes on where it is the caller's own operator that calls.
    #[inline(always)]
    fn between_calls(&self) -> Result<()> {
        if self.station.buffers.sources.try_borrow_mut().is_ok() {
            return Ok(());
        }
        Err(Error::Argument("an operator cannot call the team that it combines for".to_owned()))
    }

    #[cold]
    fn drain(&self) -> Result<()> {
        self.advance(true);
        Ok(())
    }

    /// Carries on what was started; to the end, if it may wait.
    fn advance(&self, wait: bool) {
        let before = self.station.block(wait);
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
        self.station.block(before);
    }

    /// Whatever was started is over, undone.
    pub(crate) fn give_up_started(&self) {
        for started in self.queue.borrow_mut().drain(..) {
            *started.outcome.borrow_mut() = Some(Err(Error::Revoked(self.rank())));
        }
    }

    /// Gives the team up, for all its ranks: their next call fails, or the one they wait in. For who finds out by itself that it cannot
    /// go on, also in an operator of its own.
    pub fn give_up(&self) {
        if self.ours().is_ok() {
            self.station.give_up(crate::shared_layout::Cause::Mismatch, self.rank());
        }
    }

    /// Gives up what was started, and the team if anything was: for who leaves when the buffers of started calls are gone.
    pub fn abandon(&self) {
        if self.ours().is_ok() && !self.queue.borrow().is_empty() {
            self.station.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Gives the team up for all: for who cannot go on, and cannot say how far it has come. The others are told that it has left.
    pub fn resign(&self) {
        if self.ours().is_ok() {
            self.station.give_up(crate::shared_layout::Cause::Left, self.rank());
            self.give_up_started();
        }
    }

    /// Carries out a call whose buffers are addresses.
    ///
    /// # Safety
    /// They are valid for what [`Kind::shape`] says, and nobody else writes the output or what is read meanwhile. Inputs and outputs are the
    /// same buffer or do not overlap.
    #[inline]
    pub unsafe fn call(&self, call: &Call) -> Result<()> {
        self.ready()?;
        check(call, self.ranks())?;
        self.counted(|| match &self.lazy {
            // SAFETY: the caller's promise.
            Some(lazy) if call.bytes() > crate::flag::INLINE || call.kind == Kind::Barrier => unsafe {
                self.watched_call(lazy, call)
            },
            // SAFETY: the caller's promise.
            _ => now(unsafe { self.station.carry_out(call, self.station.has_blocks()) }),
        })
    }

    /// # Safety
    /// As [`Self::call`].
    unsafe fn watched_call(&self, lazy: &Lazy, call: &Call) -> Result<()> {
        // SAFETY: the caller's promise.
        now(unsafe { lazy.carry_out(&self.station, call, self.station.has_blocks(), true) })
    }

    /// Starts a call, which goes on while this rank tests it, waits for it or makes other calls.
    ///
    /// # Safety
    /// As [`Self::call`], until it is over or the rank is dropped.
    pub unsafe fn start(&self, call: Call) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.start_with(call, ()) }
    }

    unsafe fn start_with<B: 'static>(&self, call: Call, buffers: B) -> Result<Request> {
        self.ours()?;
        self.between_calls()?;
        check(&call, self.ranks())?;
        let (station, lazy) = (Rc::clone(&self.station), self.lazy.clone());
        let outcome = Rc::new(RefCell::new(None));
        // As it is now, not when the call's turn comes: blocks are asked for in the order of calls.
        let blocks = station.has_blocks();
        let work = Box::pin(async move {
            // They live as long as what uses them.
            let _buffers = buffers;
            match lazy {
                // SAFETY: the caller's promise.
                Some(lazy) => unsafe { lazy.carry_out(&station, &call, blocks, false) }.await,
                // SAFETY: as above.
                None => unsafe { station.carry_out(&call, blocks) }.await,
            }
        });
        self.queue.borrow_mut().push_back(Started { work, outcome: Rc::clone(&outcome) });
        self.advance(false);
        Ok(Request { outcome })
    }

    /// Whether a started call is over; everything that was started goes on a little.
    pub fn test(&self, request: &Request) -> Result<bool> {
        self.ours()?;
        self.advance(false);
        match &*request.outcome.borrow() {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Waits for a started call.
    pub fn wait(&self, request: &Request) -> Result<()> {
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
            // Others count on what was started.
            self.advance(true);
        }
    }
}

/// A call that was started.
#[derive(Debug, Clone)]
pub struct Request {
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

/// The collectives of a rank, in one mode of synchronisation. Lengths are those of blocks: all ranks must give the same.
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    rank: &'a Rank,
    sync: Sync,
}

/// A buffer that is not as long as a call needs.
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
    ) -> Result<Call> {
        let (gives, gets) = kind.shape(self.rank.ranks(), count, root == self.rank.rank());
        if kind != Kind::Broadcast && input.len() != gives {
            return Err(short(kind, "input", input.len(), gives));
        }
        if output.len() != gets {
            return Err(short(kind, "output", output.len(), gets));
        }
        let kernel = operator.map(|operator| Kernel::of(T::TYPE, operator)).transpose()?;
        Ok(Call {
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
        // SAFETY: the lengths were seen to be right, and slices are borrowed for the call.
        unsafe { self.rank.call(&call) }
    }

    /// The root's elements to all.
    #[inline]
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        let mut call = self.prepare(Kind::Broadcast, buffer.len(), root, None, &[], buffer)?;
        call.input = call.output;
        // SAFETY: the buffer is borrowed for the call, as the one or the other.
        unsafe { self.rank.call(&call) }
    }

    /// All ranks' elements, combined, to the root, which alone gives an output.
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
        root: u32,
    ) -> Result<()> {
        self.go(Kind::Reduce, input.len(), root, Some(operator), input, output)
    }

    /// All ranks' elements, combined, to all.
    #[inline]
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Allreduce, input.len(), 0, Some(operator), input, output)
    }

    /// The same in place.
    #[inline]
    pub fn allreduce_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        let call = Call {
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

    /// All ranks' blocks, combined, one block to each.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
    ) -> Result<()> {
        self.go(Kind::ReduceScatter, output.len(), 0, Some(operator), input, output)
    }

    /// A block of each to the root, which alone gives an output.
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Gather, input.len(), root, None, input, output)
    }

    /// A block of each to all.
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.go(Kind::Allgather, input.len(), 0, None, input, output)
    }

    /// A block of the root's to each; it alone gives an input.
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Scatter, output.len(), root, None, input, output)
    }

    /// A block of each to each.
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let ranks = self.rank.ranks() as usize;
        if !input.len().is_multiple_of(ranks) {
            return Err(short(Kind::Alltoall, "input", input.len(), input.len().next_multiple_of(ranks)));
        }
        self.go(Kind::Alltoall, input.len() / ranks, 0, None, input, output)
    }

    /// Of ranks 0 to this one, combined.
    pub fn scan<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Scan, input.len(), 0, Some(operator), input, output)
    }
}
