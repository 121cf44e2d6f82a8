//! Endpoint: the state and the operations by which one rank works with the others of one team.
//!
//! **Idea.** Every algorithm is written once, as an `async fn` over [`Endpoint::reach`]. A blocking
//! call polls it once, and its waits block. A started call polls it repeatedly, and its waits
//! return. Calls of one rank are carried out in the order in which they were made.
//!
//! **Properties.** The counts of tickets and barriers are the same on all ranks whenever all have
//! made the same calls, because every algorithm is chosen by data that all ranks share.

mod barriers;
mod checked;
mod differences;
mod placement;
mod roots;
mod shown;

pub use checked::{HANG_REPORT_AFTER, POISON};
pub use placement::{PERIOD, PERIOD_READ};

use crate::algorithm_table::{Algorithm, AlgorithmTable, CallClass, Flat};
use crate::barrier::Barrier;
use crate::cache_groups::Groups;
use crate::call::{Kind, Posted, signature};
use crate::call_log::mix;
use crate::cma::BufferLocation;
use crate::flag::{Flag, Ticket, reached};
use crate::liveness::{RANKS_PER_CHECK, ranks_per_check};
use crate::shared_layout::{Area, Cause, SLOT_COUNT};
use crate::wait::{Faults, Patience, SLEEP_MAX, linger, wake};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Function that waits call at intervals: see [`Rank::set_progress`](crate::Rank::set_progress).
pub(crate) type Hook = Rc<dyn Fn() -> bool>;

/// State of a team's ranks: alive, left or dead. Read rarely, in waits.
pub trait PeerLiveness {
    /// Returns a rank of this team that ended, as thread or process, without leaving.
    fn dead(&self) -> Option<u32>;
    /// Returns whether a rank has left.
    fn left(&self, rank: u32) -> bool;
    /// Returns whether a rank has left or ended.
    fn gone(&self, rank: u32) -> bool;
}

/// One rank's endpoint in a team: tickets, waits, routes and buffers.
pub struct Endpoint {
    /// Flags and stages.
    pub area: Area,
    /// Number of this rank.
    pub rank: u32,
    /// Whether there are more ranks than CPUs: see the module `placement`.
    crowded: Cell<bool>,
    placement: placement::Placement,
    /// Whether all ranks are threads of this process and no other process has the memory.
    pub(crate) private: bool,
    /// Posted description of the call under way.
    posted: Cell<Posted>,
    /// Whether calls are checked: see the module `checked`.
    checked: Cell<bool>,
    /// Number of the last call that was reported because it hangs.
    hang_reported: Cell<u64>,
    pub(crate) tickets: Tickets,
    pub(crate) waits: Waits,
    pub(crate) routes: Routes,
    pub(crate) buffers: Buffers,
}

/// Counts that are the same on all ranks whenever all have made the same calls.
pub(crate) struct Tickets {
    /// Last ticket taken.
    ticket: Cell<Ticket>,
    /// Number of the last barrier.
    barriers: Cell<Ticket>,
    /// Number of barriers that were central.
    centrals: Cell<Ticket>,
    /// Number of allocated blocks of the segment's heap.
    pub(crate) blocks: Cell<u32>,
    /// Hash of all calls begun.
    past: Cell<u32>,
    /// Number of changes of the heap, and their hash.
    heap_changes: Cell<(u64, u32)>,
    /// By rank: the ticket up to which the rank is known to have finished with this rank's slots.
    seen: Vec<Cell<Ticket>>,
    /// Rounds of the last call that this rank has still to count: see [`crate::varied`].
    pub(crate) owed: Cell<Option<OwedRounds>>,
}

/// The gather that ended at this rank before its root had come. The root's row tells the number of
/// its rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwedRounds {
    /// The root.
    pub(crate) root: u32,
    /// The ticket of the rows.
    pub(crate) begin: Ticket,
    /// The call's signature.
    pub(crate) signature: u32,
}

/// Mode of waits, and the conditions that end them before their flag is raised.
pub(crate) struct Waits {
    /// Whether waits block, or return to be polled again.
    blocking: Cell<bool>,
    polls: Cell<u32>,
    pub(crate) patience: Patience,
    pub(crate) deadline: Cell<Option<Duration>>,
    /// Number of the call that waits, when its waiting began, and when faults were last checked.
    waiting_call: Cell<Option<(u64, Instant, Instant)>>,
    pub(crate) liveness: Rc<dyn PeerLiveness>,
    /// Returns true if a wait is to be given up.
    pub(crate) interrupt: Cell<Option<fn() -> bool>>,
    /// Called by waits at intervals. Returns whether it wants to be called again before a sleep.
    pub(crate) progress: RefCell<Option<Hook>>,
    /// By rank: the description that was last read there, to see whether it stays the same.
    last_seen: RefCell<Vec<Posted>>,
    /// Number of checks of the other ranks' calls.
    checks: Cell<u32>,
}

/// Barriers and algorithms in force, from the installed table.
pub(crate) struct Routes {
    pub(crate) barrier_by: Cell<Barrier>,
    /// Whether ranks also synchronise at a central barrier within calls: if they share CPUs.
    pub(crate) central: Cell<bool>,
    /// Groups of ranks that share a cache.
    pub(crate) groups: RefCell<Rc<Groups>>,
    ways: RefCell<Flat>,
    /// Whether the barrier was measured, and is not just the usual one.
    pub(crate) kept_barrier: Cell<bool>,
}

/// Buffers of other ranks, and how they are reached.
pub(crate) struct Buffers {
    /// Whether the memory belongs to this process alone, and was passed to no other
    /// ([`crate::in_process`]).
    pub(crate) direct: Cell<bool>,
    /// Whether ranks read each other's memory through the kernel ([`crate::cma`]).
    pub(crate) pull: Cell<bool>,
    /// Processes with readable memory; `None` if it cannot be read.
    pub(crate) peers: RefCell<Option<Rc<crate::cma::Peers>>>,
    /// Scratch memory for data read from other ranks before it is combined.
    pub(crate) scratch: RefCell<Vec<u64>>,
    /// By rank: address of the data to combine.
    pub(crate) sources: RefCell<Vec<*const u8>>,
    /// By rank: location of its input in the call under way.
    pub(crate) residents: RefCell<Vec<BufferLocation>>,
    /// Address of the segment's heap in this process, and its size in bytes.
    heap: (usize, usize),
}

/// The blocks in the segment's heap at the time when a call was made. Calls may begin later than
/// they are made, and blocks are allocated in the order in which calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlocksView {
    /// Whether buffers may be read in place.
    pub any: bool,
    /// Hash of all changes of the heap.
    past: u32,
}

/// Sentinel in place of a rank: the wait is for all ranks.
pub const ALL_RANKS: u32 = u32::MAX;
/// Unsuccessful polls between two checks for faults.
const FAULT_POLLS: u32 = 64;

const NOTHING: Posted = Posted { number: 0, signature: 0, root: 0, what: 0, count: 0, past: 0, blocks: 0 };

impl Endpoint {
    /// Returns a rank's endpoint in a new shared layout.
    pub fn new(
        area: Area,
        rank: u32,
        crowded: bool,
        private: bool,
        patience: Patience,
        liveness: Rc<dyn PeerLiveness>,
        heap: (*mut u8, usize),
    ) -> Self {
        let ranks = area.ranks() as usize;
        Self {
            area,
            rank,
            crowded: Cell::new(crowded),
            placement: placement::Placement::new(),
            private,
            posted: Cell::new(NOTHING),
            checked: Cell::new(false),
            hang_reported: Cell::new(0),
            tickets: Tickets {
                ticket: Cell::new(0),
                barriers: Cell::new(0),
                centrals: Cell::new(0),
                blocks: Cell::new(0),
                past: Cell::new(0),
                heap_changes: Cell::new((0, 0)),
                seen: (0..ranks).map(|_| Cell::new(0)).collect(),
                owed: Cell::new(None),
            },
            waits: Waits {
                blocking: Cell::new(true),
                polls: Cell::new(0),
                patience,
                deadline: Cell::new(None),
                waiting_call: Cell::new(None),
                liveness,
                interrupt: Cell::new(None),
                progress: RefCell::new(None),
                last_seen: RefCell::new(vec![NOTHING; ranks]),
                checks: Cell::new(0),
            },
            routes: Routes {
                barrier_by: Cell::new(AlgorithmTable::usual(crowded).barrier),
                central: Cell::new(crowded && AlgorithmTable::usual(crowded).barrier == Barrier::Central),
                groups: RefCell::default(),
                ways: RefCell::new(Flat::new(AlgorithmTable::usual(crowded))),
                kept_barrier: Cell::new(false),
            },
            buffers: Buffers {
                direct: Cell::new(false),
                pull: Cell::new(false),
                peers: RefCell::default(),
                scratch: RefCell::default(),
                sources: RefCell::new(vec![std::ptr::null(); ranks]),
                residents: RefCell::new(vec![BufferLocation::Nowhere; ranks]),
                heap: (heap.0.expose_provenance(), heap.1),
            },
        }
    }

    /// Returns the number of ranks.
    #[inline(always)]
    pub fn ranks(&self) -> u32 {
        self.area.ranks()
    }

    /// Returns whether there are more ranks than CPUs for them.
    #[inline(always)]
    pub fn crowded(&self) -> bool {
        self.crowded.get()
    }

    /// Sets how long a call may wait before it is given up, counted from its first wait that
    /// outlasted its spinning.
    pub fn set_deadline(&self, deadline: Option<Duration>) {
        self.waits.deadline.set(deadline);
    }

    /// Sets a function that ends waits by returning true. It is called every few milliseconds.
    pub fn set_interrupt(&self, interrupt: Option<fn() -> bool>) {
        self.waits.interrupt.set(interrupt);
    }

    /// Sets a function that waits call at intervals.
    pub(crate) fn set_progress(&self, hook: Option<Hook>) {
        self.waits.patience.hook(hook.is_some(), self.crowded());
        self.waits.progress.replace(hook);
    }

    /// Sets whether waits block, or return to be polled again. Returns the previous value.
    pub fn block(&self, block: bool) -> bool {
        self.waits.blocking.replace(block)
    }

    /// Returns whether waits block now.
    pub(crate) fn blocks_now(&self) -> bool {
        self.waits.blocking.get()
    }

    /// Returns an address's offset in the heap, plus one; zero if the address is not in the heap.
    #[inline]
    pub(crate) fn offset_of<T>(&self, address: *const T) -> u64 {
        let offset = (address as usize).wrapping_sub(self.buffers.heap.0);
        if offset < self.buffers.heap.1 { offset as u64 + 1 } else { 0 }
    }

    /// Returns the address of the heap in this process.
    pub(crate) fn heap(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.buffers.heap.0)
    }

    /// Converts a rank's posted heap location to an address in this process. The value comes from
    /// another rank and is therefore checked. From a thread of this process it is an address, as
    /// trustworthy as the thread's pointer.
    pub(crate) fn resident(&self, told: u64, bytes: usize) -> Result<*mut u8> {
        if self.buffers.direct.get() {
            return Ok(std::ptr::with_exposed_provenance_mut(told as usize));
        }
        let offset = usize::try_from(told.wrapping_sub(1)).unwrap_or(usize::MAX);
        if offset.checked_add(bytes).is_none_or(|end| end > self.buffers.heap.1) {
            return Err(Error::Refused("a rank posted a buffer outside of the segment".to_owned()));
        }
        Ok(std::ptr::with_exposed_provenance_mut(self.buffers.heap.0 + offset))
    }

    /// Installs a table of algorithms. All ranks must install the same table between the same
    /// calls.
    pub fn install(&self, table: AlgorithmTable) {
        self.routes.barrier_by.set(table.barrier);
        self.routes.central.set(self.crowded() && table.barrier == Barrier::Central);
        self.routes.groups.replace(Rc::new(Groups::new(&table.groups, self.ranks())));
        self.routes.ways.replace(Flat::new(table));
    }

    /// Returns the table in force.
    pub fn table(&self) -> AlgorithmTable {
        self.routes.ways.borrow().table().clone()
    }

    /// Sets another algorithm for the calls of one entry of the table for now, `None` for the
    /// usual. All ranks do so at the same call. Returns the previous entry.
    pub(crate) fn divert(&self, place: usize, way: Option<Algorithm>) -> Option<Algorithm> {
        self.routes.ways.borrow_mut().divert(place, way)
    }

    /// Returns the algorithm of a call of `bytes` bytes.
    pub(crate) fn way(&self, kind: Kind, bytes: usize) -> Algorithm {
        // The other properties of the call were posted when it began.
        let manner = CallClass::of(self.posted.get().what);
        self.routes.ways.borrow().way(manner, kind, bytes, self.area.cell_bytes(), self.crowded())
    }

    /// Begins an operation: posts its description for ranks that may wait for it. Fails if the team
    /// is given up. `hash` is the [`signature`] of the description.
    #[inline(always)]
    pub fn begin(&self, hash: u32, what: u64, count: u64, root: u32, blocks: BlocksView) -> Result<u32> {
        let (number, past, blocks) = (self.posted.get().number + 1, self.tickets.past.get(), blocks.past);
        // A rank that left a call out, or made another one, is then found at the next call, even if
        // that call is the same. Ranks with other blocks would wait for each other's tickets.
        let signature = hash ^ past ^ blocks ^ number as u32;
        let posted = Posted { number, signature, root, what, count, past, blocks };
        if self.area.lines(0).alarm.current().is_some() {
            return Err(self.alarmed(&posted));
        }
        self.posted.set(posted);
        self.follow_masks_at(number);
        self.tickets.past.set(mix(past, hash));
        let lines = self.area.lines(self.rank);
        lines.intent.post(posted);
        lines.calls.add(number, what, count, root, hash);
        Ok(signature)
    }

    /// Records a change of the heap, which all ranks make in the same order among their calls.
    pub(crate) fn note_heap(&self, what: u64, count: u64) {
        let (number, past) = self.tickets.heap_changes.get();
        let (number, hash) = (number + 1, signature(what, count, 0));
        self.tickets.heap_changes.set((number, mix(past, hash)));
        self.area.lines(self.rank).blocks.add(number, what, count, 0, hash);
    }

    /// Returns the state of the heap for a call that is made now. No buffer is in the segment
    /// unless a block of it was allocated or all ranks are threads that see each other's memory.
    #[inline(always)]
    pub fn blocks_view(&self) -> BlocksView {
        let any = self.tickets.blocks.get() > 0 || self.buffers.direct.get();
        BlocksView { any, past: self.tickets.heap_changes.get().1 }
    }

    /// Returns the error of an alarm, for a rank that calls `ours`.
    #[cold]
    fn alarmed(&self, ours: &Posted) -> Error {
        // Orders the read of the finding, which its finder wrote before the alarm.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        // The rank number comes from another rank; one outside of the team is ignored.
        match self.area.lines(0).alarm.current().filter(|(_, rank)| *rank < self.ranks()) {
            Some((Cause::Died, rank)) => Error::PeerDied(rank),
            Some((Cause::Left, rank)) => Error::PeerLeft(rank),
            Some((Cause::Mismatch, rank)) => self.found(rank, ours),
            Some((Cause::Timeout, rank)) => Error::Revoked(rank),
            None => Error::Revoked(self.rank),
        }
    }

    /// Returns the error of an alarm within a call.
    #[cold]
    pub(crate) fn alarmed_now(&self) -> Error {
        self.alarmed(&self.posted.get())
    }

    /// Gives the team up for all ranks. The first cause counts.
    #[cold]
    pub fn give_up(&self, cause: Cause, rank: u32) {
        let first = !self.area.lines(0).alarm.is_raised();
        self.area.lines(0).alarm.raise(cause, rank);
        if first && self.checked.get() {
            self.report_end(cause, rank);
        }
    }

    /// Takes the next ticket.
    #[inline(always)]
    pub fn next_ticket(&self) -> Ticket {
        let ticket = self.tickets.ticket.get().wrapping_add(1);
        self.tickets.ticket.set(ticket);
        ticket
    }

    /// Returns the last ticket taken.
    pub(crate) fn last_ticket(&self) -> Ticket {
        self.tickets.ticket.get()
    }

    /// Counts tickets of rounds in which this rank has no part.
    pub(crate) fn skip_tickets(&self, count: Ticket) {
        self.tickets.ticket.set(self.tickets.ticket.get().wrapping_add(count));
    }

    /// Begins to count the time of waits anew, as at the begin of a call.
    pub(crate) fn forget_waiting(&self) {
        self.waits.waiting_call.set(None);
    }

    /// Counts the wait until now as one of the call that begins next, for its deadline and report.
    pub(crate) fn waited_for_next(&self) {
        if let Some((number, since, checked)) = self.waits.waiting_call.get() {
            self.waits.waiting_call.set(Some((number + 1, since, checked)));
        }
    }

    /// Returns the description of the call under way.
    pub(crate) fn posted_now(&self) -> Posted {
        self.posted.get()
    }

    /// Raises a flag and wakes the threads that sleep on it.
    #[inline(always)]
    pub fn raise(&self, flag: &Flag, ticket: Ticket, signature: u32) {
        if flag.raise(ticket, signature) {
            wake(flag, self.private);
        }
    }

    /// Adds one to a flag that several ranks raise.
    #[inline(always)]
    pub fn count(&self, flag: &Flag) -> Ticket {
        flag.add()
    }

    /// Waits for a flag of rank `of`; yields the flag's word.
    #[inline(always)]
    pub fn reach<'a>(&'a self, flag: &'a Flag, wanted: Ticket, of: u32) -> Reach<'a> {
        Reach { endpoint: self, flag, wanted, of }
    }

    #[inline(always)]
    fn wait(&self, flag: &Flag, wanted: Ticket, of: u32) -> Result<u64> {
        if let Some(word) = self.spin(flag, wanted, of) {
            return Ok(word);
        }
        self.linger(flag, wanted, of)
    }

    /// Waits beyond the first spins, and shows the other ranks for which rank this one waits.
    #[cold]
    fn linger(&self, flag: &Flag, wanted: Ticket, of: u32) -> Result<u64> {
        let intent = &self.area.lines(self.rank).intent;
        intent.post_wait(Some(of));
        self.note_cpu_by_any_means();
        let hook = self.waits.progress.borrow().clone();
        let faults = Waiting { endpoint: self, flag, wanted, of, hook };
        let outcome = linger(flag, wanted, &self.waits.patience, self.private, &faults);
        intent.post_wait(None);
        // The rank may have been woken on another CPU.
        self.note_cpu_by_any_means();
        outcome
    }

    /// Waits until this rank's slot of a ticket is free again.
    #[inline(always)]
    pub async fn vacant(&self, ticket: Ticket) -> Result<()> {
        #[cfg(trimtab_model)]
        if crate::sync::model::broken(crate::sync::model::Broken::NotVacant) {
            return Ok(());
        }
        let wanted = ticket.wrapping_sub(SLOT_COUNT as u32);
        // Tickets begin at 1: in the first turn all slots are free.
        for (rank, seen) in (0..).zip(&self.tickets.seen) {
            if !reached(seen.get(), wanted) && rank != self.rank {
                let word = self.reach(&self.area.lines(rank).done, wanted, rank).await?;
                seen.set(word as Ticket);
            }
        }
        Ok(())
    }

    /// Announces that this rank has finished with the other ranks' slots of all tickets so far.
    #[inline(always)]
    pub fn done(&self) {
        self.raise(&self.area.lines(self.rank).done, self.tickets.ticket.get(), 0);
    }

    /// Raises this rank's slot of a ticket.
    #[inline(always)]
    pub fn put(&self, ticket: Ticket, signature: u32) {
        self.raise(self.area.slot(self.rank, ticket), ticket, signature);
    }

    /// Waits for a rank's slot of a ticket, and checks that the rank makes the same call.
    #[inline(always)]
    pub async fn take(&self, rank: u32, ticket: Ticket, signature: u32) -> Result<()> {
        self.take_lagging(rank, ticket, signature, 1).await
    }

    /// As [`Self::take`], for a rank that raises a slot before it has finished with the `lag`
    /// tickets up to it.
    #[inline(always)]
    pub async fn take_lagging(&self, rank: u32, ticket: Ticket, signature: u32, lag: u32) -> Result<()> {
        let word = self.reach(self.area.slot(rank, ticket), ticket, rank).await?;
        let (done, seen) = (ticket.wrapping_sub(lag), &self.tickets.seen[rank as usize]);
        if reached(done, seen.get()) {
            seen.set(done);
        }
        if (word >> 32) as u32 != signature {
            return Err(self.differs(rank));
        }
        Ok(())
    }

    /// Returns an error if the wait cannot end; `waited` is how long the call has waited.
    fn fault(&self, flag: &Flag, wanted: Ticket, of: u32, waited: Duration) -> Option<Error> {
        if self.area.lines(0).alarm.current().is_some() {
            // Other ranks may have completed this call before one left or failed in the next. With
            // this order of reads, a flag raised before the alarm counts.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            return if flag.is(wanted) { None } else { Some(self.alarmed(&self.posted.get())) };
        }
        // A rank that ended or left may have raised the flag before. With this order of reads, the
        // raised flag counts.
        let (dead, needed) =
            (self.waits.liveness.dead(), if of == ALL_RANKS { 0..self.ranks() } else { of..of + 1 });
        let left = needed.into_iter().find(|rank| self.waits.liveness.left(*rank));
        if flag.is(wanted) {
            return None;
        }
        if let Some(rank) = dead {
            self.give_up(Cause::Died, rank);
            return Some(self.alarmed(&self.posted.get()));
        }
        if let Some(rank) = left {
            self.give_up(Cause::Left, rank);
            return Some(self.alarmed(&self.posted.get()));
        }
        if let Some(rank) = self.other_call() {
            return Some(self.differs(rank));
        }
        let deadline = self.waits.deadline.get()?;
        if waited < deadline {
            return None;
        }
        self.give_up(Cause::Timeout, self.rank);
        Some(Error::Timeout(deadline))
    }

    /// Returns a rank that makes another call, or made one before. In a large team each check
    /// examines some of the ranks, and each rank begins with another one.
    fn other_call(&self) -> Option<u32> {
        let ours = self.posted.get();
        let (ranks, checks) = (self.ranks(), self.waits.checks.get());
        self.waits.checks.set(checks.wrapping_add(1));
        let many = ranks_per_check(ranks as usize) as u32;
        let begin = self.rank.wrapping_add(checks.wrapping_mul(many));
        let mut heard = self.waits.last_seen.borrow_mut();
        for rank in (0..many).map(|at| begin.wrapping_add(at) % ranks) {
            let before = &mut heard[rank as usize];
            let theirs = self.area.lines(rank).intent.current();
            let stays = std::mem::replace(before, theirs) == theirs;
            // A rank that was preempted while it posted a call shows half of the next call until it
            // runs again.
            let whole = crate::call::is_whole(&theirs);
            let differs = theirs.number == ours.number && theirs.signature != ours.signature;
            // Ranks that differed in an earlier call may wait for each other in different calls.
            if stays && whole && (differs || self.logged_difference(rank).is_some()) {
                return Some(rank);
            }
        }
        None
    }
}

struct Waiting<'a> {
    endpoint: &'a Endpoint,
    flag: &'a Flag,
    wanted: Ticket,
    of: u32,
    hook: Option<Hook>,
}

impl Faults for Waiting<'_> {
    fn hooked(&self) -> bool {
        self.hook.is_some()
    }

    fn progress(&self) -> bool {
        // Borrowed while the hook runs: a call of this team by the hook is then refused, as that of
        // an operator.
        let _between = self.endpoint.buffers.sources.try_borrow_mut();
        self.hook.as_ref().is_some_and(|hook| hook())
    }

    fn interval(&self) -> Duration {
        let many = self.endpoint.ranks().div_ceil(RANKS_PER_CHECK as u32);
        SLEEP_MAX / 2 * many
    }

    fn last_checked(&self, now: Instant) -> Instant {
        let number = self.endpoint.posted.get().number;
        match self.endpoint.waits.waiting_call.get() {
            Some((call, _, checked)) if call == number => checked,
            _ => {
                self.endpoint.waits.waiting_call.set(Some((number, now, now)));
                now
            }
        }
    }

    fn check(&self, now: Instant) -> Option<Error> {
        let number = self.endpoint.posted.get().number;
        let begin = self.endpoint.waits.waiting_call.get().map_or(now, |(_, begin, _)| begin);
        self.endpoint.waits.waiting_call.set(Some((number, begin, now)));
        let waited = now.saturating_duration_since(begin);
        if self.endpoint.checked.get() {
            self.endpoint.report_hang(waited);
        }
        let fault = self.endpoint.fault(self.flag, self.wanted, self.of, waited);
        if fault.is_none() && self.endpoint.waits.interrupt.get().is_some_and(|asked| asked()) {
            self.endpoint.give_up(Cause::Timeout, self.endpoint.rank);
            return Some(Error::Interrupted);
        }
        fault
    }
}

/// A wait for a flag.
pub struct Reach<'a> {
    endpoint: &'a Endpoint,
    flag: &'a Flag,
    wanted: Ticket,
    of: u32,
}

impl Future for Reach<'_> {
    type Output = Result<u64>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let word = self.flag.load();
        if reached(word as Ticket, self.wanted) {
            return Poll::Ready(Ok(word));
        }
        if self.endpoint.waits.blocking.get() {
            return Poll::Ready(self.endpoint.wait(self.flag, self.wanted, self.of));
        }
        self.endpoint.polled(self.flag, self.wanted, self.of)
    }
}

impl Endpoint {
    /// Returns from a wait to be polled again, unless there is a fault.
    #[cold]
    fn polled(&self, flag: &Flag, wanted: Ticket, of: u32) -> Poll<Result<u64>> {
        self.waits.polls.set(self.waits.polls.get().wrapping_add(1));
        if !self.waits.polls.get().is_multiple_of(FAULT_POLLS) {
            return Poll::Pending;
        }
        // The deadline of a started operation is checked by the rank that waits for it.
        match self.fault(flag, wanted, of, Duration::ZERO) {
            Some(fault) => Poll::Ready(Err(fault)),
            None => Poll::Pending,
        }
    }
}

/// Carries out work that does not return to be polled again.
#[inline(always)]
pub fn now<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = std::pin::pin!(work);
    let mut context = Context::from_waker(std::task::Waker::noop());
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            return result;
        }
    }
}
