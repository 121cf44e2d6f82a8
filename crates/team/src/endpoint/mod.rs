//! Endpoint: what one rank keeps, and does, to work with the others of one team.
//!
//! **Idea.** Every algorithm is written once, as an `async fn` over [`Endpoint::reach`]. A blocking call polls it once, and its waits wait; a call
//! that was started polls it now and then, and its waits return. Calls of one rank are carried out in the order in which they were made.
//!
//! **Properties.** The counts of tickets and barriers are the same on all ranks whenever all have made the same calls, as every
//! algorithm is chosen by what all ranks know alike.

mod barriers;
mod shown;

use crate::algorithm_table::{Algorithm, CallClass, Flat, Table};
use crate::barrier::Barrier;
use crate::cache_groups::Groups;
use crate::call::Kind;
use crate::cma::BufferLocation;
use crate::flag::{Flag, Ticket, reached};
use crate::shared_layout::{Area, Cause, Posted, SLOTS};
use crate::wait::{Faults, Patience, linger, wake};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Ranks of a team that live, have left or have died: asked seldom, in waits.
pub trait Company {
    /// A rank of this team whose thread or process ended without leaving.
    fn dead(&self) -> Option<u32>;
    /// Whether a rank has left.
    fn left(&self, rank: u32) -> bool;
    /// Whether a rank has left or ended.
    fn gone(&self, rank: u32) -> bool;
}

/// One rank's end of a team, made of tickets, waits, routes and buffers.
pub struct Endpoint {
    /// Flags and stages.
    pub area: Area,
    /// This rank.
    pub rank: u32,
    /// More ranks than processors.
    pub crowded: bool,
    /// All ranks are threads of this process, and no other has the memory.
    pub(crate) private: bool,
    /// What this rank said of the call under way.
    said: Cell<Posted>,
    pub(crate) tickets: Tickets,
    pub(crate) waits: Waits,
    pub(crate) routes: Routes,
    pub(crate) buffers: Buffers,
}

/// Counts that are the same on all ranks whenever all have made the same calls.
pub(crate) struct Tickets {
    /// The last ticket taken.
    ticket: Cell<Ticket>,
    /// The last barrier.
    barriers: Cell<Ticket>,
    /// How many of them were central.
    centrals: Cell<Ticket>,
    /// Blocks of the segment's heap that are given out.
    pub(crate) blocks: Cell<u32>,
    /// By rank: up to which ticket it is known to have done with this rank's slots.
    seen: Vec<Cell<Ticket>>,
}

/// How waits go, and what ends them before their flag.
pub(crate) struct Waits {
    /// Whether waits wait, or return to be polled again.
    blocking: Cell<bool>,
    polls: Cell<u32>,
    pub(crate) patience: Patience,
    pub(crate) deadline: Cell<Option<Duration>>,
    /// The number of the call that waits, since when, and when faults were looked for last.
    vain: Cell<Option<(u64, Instant, Instant)>>,
    pub(crate) company: Rc<dyn Company>,
    /// Says that a wait is to end.
    pub(crate) interrupt: Cell<Option<fn() -> bool>>,
    /// By rank: what it said when that was last looked at, to see whether it stays.
    heard: RefCell<Vec<Posted>>,
}

/// Barriers and algorithms in force, of the table that was installed.
pub(crate) struct Routes {
    pub(crate) barrier_by: Cell<Barrier>,
    /// Whether ranks meet at a centre amid calls, too: where they share processors.
    pub(crate) central: Cell<bool>,
    /// Ranks that share a cache.
    pub(crate) groups: RefCell<Rc<Groups>>,
    ways: RefCell<Flat>,
    /// The barrier was measured, and is not just the usual one.
    pub(crate) kept_barrier: Cell<bool>,
}

/// Buffers of other ranks, and how they are reached.
pub(crate) struct Buffers {
    /// The memory is this process's alone, and was given to no other: [`crate::in_process`].
    pub(crate) direct: Cell<bool>,
    /// Ranks read each other's memory through the kernel: [`crate::cma`].
    pub(crate) pull: Cell<bool>,
    /// The processes whose memory that is; `None` where they cannot be read.
    pub(crate) peers: RefCell<Option<Rc<crate::cma::Peers>>>,
    /// Room for what was read of others and is to be combined.
    pub(crate) scratch: RefCell<Vec<u64>>,
    /// By rank: the address of what is folded.
    pub(crate) sources: RefCell<Vec<*const u8>>,
    /// By rank: where its input lies, of the call under way.
    pub(crate) residents: RefCell<Vec<BufferLocation>>,
    /// Where the segment's heap is in this process, and its size.
    heap: (usize, usize),
}

/// In place of a rank: the wait needs all ranks.
pub const ANYBODY: u32 = u32::MAX;
/// Polls in vain between two looks for faults.
const FAULT_POLLS: u32 = 64;

const NOTHING: Posted = Posted { number: 0, signature: 0, root: 0, what: 0, count: 0 };

impl Endpoint {
    /// A rank's endpoint in a new shared layout.
    pub fn new(
        area: Area,
        rank: u32,
        crowded: bool,
        private: bool,
        patience: Patience,
        company: Rc<dyn Company>,
        heap: (*mut u8, usize),
    ) -> Self {
        let ranks = area.ranks() as usize;
        Self {
            area,
            rank,
            crowded,
            private,
            said: Cell::new(NOTHING),
            tickets: Tickets {
                ticket: Cell::new(0),
                barriers: Cell::new(0),
                centrals: Cell::new(0),
                blocks: Cell::new(0),
                seen: (0..ranks).map(|_| Cell::new(0)).collect(),
            },
            waits: Waits {
                blocking: Cell::new(true),
                polls: Cell::new(0),
                patience,
                deadline: Cell::new(None),
                vain: Cell::new(None),
                company,
                interrupt: Cell::new(None),
                heard: RefCell::new(vec![NOTHING; ranks]),
            },
            routes: Routes {
                barrier_by: Cell::new(Table::usual(crowded).barrier),
                central: Cell::new(crowded && Table::usual(crowded).barrier == Barrier::Central),
                groups: RefCell::default(),
                ways: RefCell::new(Flat::new(Table::usual(crowded))),
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

    /// How many ranks there are.
    #[inline(always)]
    pub fn ranks(&self) -> u32 {
        self.area.ranks()
    }

    /// Calls are broken off when they have waited in vain for so long, from the first wait on that went past its spinning.
    pub fn set_deadline(&self, deadline: Option<Duration>) {
        self.waits.deadline.set(deadline);
    }

    /// Waits are broken off when this says so; it is asked every few milliseconds.
    pub fn set_interrupt(&self, interrupt: Option<fn() -> bool>) {
        self.waits.interrupt.set(interrupt);
    }

    /// Whether waits wait, or return to be polled again. Answers what was before.
    pub fn block(&self, block: bool) -> bool {
        self.waits.blocking.replace(block)
    }

    /// Whether waits wait now.
    pub(crate) fn blocks_now(&self) -> bool {
        self.waits.blocking.get()
    }

    /// Where in the heap an address is, plus one; zero if it is not there.
    #[inline]
    pub(crate) fn offset_of<T>(&self, address: *const T) -> u64 {
        let offset = (address as usize).wrapping_sub(self.buffers.heap.0);
        if offset < self.buffers.heap.1 { offset as u64 + 1 } else { 0 }
    }

    /// Where the heap begins in this process.
    pub(crate) fn heap(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.buffers.heap.0)
    }

    /// What a rank says is in the heap, as an address here. It is another's word, so it is looked at; that of a thread of this process is an
    /// address, and as good as its pointer.
    pub(crate) fn resident(&self, told: u64, bytes: usize) -> Result<*mut u8> {
        if self.buffers.direct.get() {
            return Ok(std::ptr::with_exposed_provenance_mut(told as usize));
        }
        let offset = usize::try_from(told.wrapping_sub(1)).unwrap_or(usize::MAX);
        if offset.checked_add(bytes).is_none_or(|end| end > self.buffers.heap.1) {
            return Err(Error::Refused("a rank told of a buffer outside of the segment".to_owned()));
        }
        Ok(std::ptr::with_exposed_provenance_mut(self.buffers.heap.0 + offset))
    }

    /// From now on calls go these ways. All ranks must install the same table between the same calls.
    pub fn install(&self, table: Table) {
        self.routes.barrier_by.set(table.barrier);
        self.routes.central.set(self.crowded && table.barrier == Barrier::Central);
        self.routes.groups.replace(Rc::new(Groups::new(&table.groups, self.ranks())));
        self.routes.ways.replace(Flat::new(table));
    }

    /// The table in force.
    pub fn table(&self) -> Table {
        self.routes.ways.borrow().table().clone()
    }

    /// Lets calls of one place in the table go another way for now, `None` for the usual. All ranks do so at the same call.
    pub(crate) fn divert(&self, place: usize, way: Option<Algorithm>) -> Option<Algorithm> {
        self.routes.ways.borrow_mut().divert(place, way)
    }

    /// The way of a call of so many bytes.
    pub(crate) fn way(&self, kind: Kind, bytes: usize) -> Algorithm {
        // What the call is else, it said when it began.
        let manner = CallClass::of(self.said.get().what);
        self.routes.ways.borrow().way(manner, kind, bytes, self.area.cell_bytes(), self.crowded)
    }

    /// Begins an operation: says so to who may wonder, and fails where the team is given up.
    #[inline(always)]
    pub fn begin(&self, signature: u32, what: u64, count: u64, root: u32) -> Result<u32> {
        let number = self.said.get().number + 1;
        // So that who left a call out is found out at the next, even if that is the same.
        let signature = signature ^ number as u32;
        let said = Posted { number, signature, root, what, count };
        if self.area.lines(0).alarm.heard().is_some() {
            return Err(self.alarmed(&said));
        }
        self.said.set(said);
        self.area.lines(self.rank).intent.say(said);
        Ok(signature)
    }

    /// What to say of an alarm, to who calls `ours`.
    #[cold]
    fn alarmed(&self, ours: &Posted) -> Error {
        // What its finder said before it.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        // Another's word: a rank that there is not is nobody.
        match self.area.lines(0).alarm.heard().filter(|(_, rank)| *rank < self.ranks()) {
            Some((Cause::Died, rank)) => Error::PeerDied(rank),
            Some((Cause::Left, rank)) => Error::PeerLeft(rank),
            Some((Cause::Mismatch, rank)) => self.found(rank, ours),
            Some((Cause::Timeout, rank)) => Error::Revoked(rank),
            None => Error::Revoked(self.rank),
        }
    }

    /// What to say of an alarm amid a call.
    #[cold]
    pub(crate) fn alarmed_now(&self) -> Error {
        self.alarmed(&self.said.get())
    }

    /// Gives the team up, for all; what was first counts.
    #[cold]
    pub fn give_up(&self, cause: Cause, rank: u32) {
        self.area.lines(0).alarm.raise(cause, rank);
    }

    /// The next ticket.
    #[inline(always)]
    pub fn next_ticket(&self) -> Ticket {
        let ticket = self.tickets.ticket.get().wrapping_add(1);
        self.tickets.ticket.set(ticket);
        ticket
    }

    /// Raises a flag and wakes who sleeps on it.
    #[inline(always)]
    pub fn raise(&self, flag: &Flag, ticket: Ticket, signature: u32) {
        if flag.raise(ticket, signature) {
            wake(flag, self.private);
        }
    }

    /// Adds one to a flag that several raise.
    #[inline(always)]
    pub fn count(&self, flag: &Flag) -> Ticket {
        flag.add()
    }

    /// Waits for a flag of a rank's; answers its word.
    #[inline(always)]
    pub fn reach<'a>(&'a self, flag: &'a Flag, wanted: Ticket, of: u32) -> Reach<'a> {
        Reach { station: self, flag, wanted, of }
    }

    #[inline(always)]
    fn wait(&self, flag: &Flag, wanted: Ticket, of: u32) -> Result<u64> {
        let mut left = self.waits.patience.spins();
        while left > 0 {
            std::hint::spin_loop();
            let word = flag.look();
            if reached(word as Ticket, wanted) {
                return Ok(word);
            }
            left -= 1;
        }
        linger(flag, wanted, &self.waits.patience, self.private, &Waiting { station: self, flag, wanted, of })
    }

    /// Waits until this rank's slot of a ticket is free again.
    #[inline(always)]
    pub async fn vacant(&self, ticket: Ticket) -> Result<()> {
        #[cfg(trimtab_model)]
        if crate::sync::model::broken(crate::sync::model::Broken::NotVacant) {
            return Ok(());
        }
        let wanted = ticket.wrapping_sub(SLOTS as u32);
        // Tickets begin at 1: in the first turn nothing was there.
        for (rank, seen) in (0..).zip(&self.tickets.seen) {
            if !reached(seen.get(), wanted) && rank != self.rank {
                let word = self.reach(&self.area.lines(rank).done, wanted, rank).await?;
                seen.set(word as Ticket);
            }
        }
        Ok(())
    }

    /// Says that this rank has done with others' slots of all tickets so far.
    #[inline(always)]
    pub fn done(&self) {
        self.raise(&self.area.lines(self.rank).done, self.tickets.ticket.get(), 0);
    }

    /// Raises this rank's slot of a ticket.
    #[inline(always)]
    pub fn put(&self, ticket: Ticket, signature: u32) {
        self.raise(self.area.slot(self.rank, ticket), ticket, signature);
    }

    /// Waits for a rank's slot of a ticket, and sees whether it does the same.
    #[inline(always)]
    pub async fn take(&self, rank: u32, ticket: Ticket, signature: u32) -> Result<()> {
        self.take_lagging(rank, ticket, signature, 1).await
    }

    /// The same where a rank raises a slot before it has done with the `lag` tickets up to it.
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

    /// What to say when a rank does something else.
    #[cold]
    pub(crate) fn differs(&self, rank: u32) -> Error {
        let (theirs, ours) = (self.area.lines(rank).intent.heard(), self.said.get());
        self.area.lines(self.rank).finding.say(rank, theirs, ours);
        self.give_up(Cause::Mismatch, self.rank);
        crate::call::mismatch(rank, &theirs, &ours)
    }

    /// Who does something else, where the flag that says so is not one rank's alone: by what ranks say that they do.
    #[cold]
    pub(crate) fn who_differs(&self) -> u32 {
        let ours = self.said.get();
        let said = |rank: &u32| self.area.lines(*rank).intent.heard();
        let others = || (0..self.ranks()).filter(|rank| *rank != self.rank);
        let here = others().find(|rank| {
            let theirs = said(rank);
            theirs.number == ours.number && theirs.signature != ours.signature
        });
        // Who left a call out, or made one more, is elsewhere.
        let elsewhere = || others().find(|rank| said(rank).number != ours.number);
        here.or_else(elsewhere).unwrap_or((self.rank + 1) % self.ranks())
    }

    /// What another rank found, or this one before, as this one sees it.
    #[cold]
    fn found(&self, finder: u32, ours: &Posted) -> Error {
        // Another's words.
        let heard = self.area.lines(finder).finding.heard().filter(|(of, ..)| *of < self.ranks());
        let Some((of, theirs, finders)) = heard else { return Error::Revoked(finder) };
        if finder == self.rank {
            return crate::call::mismatch(of, &theirs, &finders);
        }
        if of == self.rank {
            return crate::call::mismatch(finder, &finders, ours);
        }
        if ours.number != finders.number {
            // This rank has come elsewhere: what the two did is then all that is known.
            return crate::call::mismatch_of_others((of, &theirs), (finder, &finders), ours);
        }
        // One of the two called something else than this rank.
        let (rank, theirs) =
            if ours.signature == finders.signature { (of, theirs) } else { (finder, finders) };
        crate::call::mismatch(rank, &theirs, ours)
    }

    /// Whether a wait is in vain, of a call that has waited so long.
    fn fault(&self, flag: &Flag, wanted: Ticket, of: u32, waited: Duration) -> Option<Error> {
        if self.area.lines(0).alarm.heard().is_some() {
            // Others may have been through with this call before one left or failed in the next. In this order: what came before the alarm counts.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            return if flag.is(wanted) { None } else { Some(self.alarmed(&self.said.get())) };
        }
        // Who ended or left may have raised the flag before: looked at in this order, what was raised counts.
        let (dead, needed) =
            (self.waits.company.dead(), if of == ANYBODY { 0..self.ranks() } else { of..of + 1 });
        let left = needed.into_iter().find(|rank| self.waits.company.left(*rank));
        if flag.is(wanted) {
            return None;
        }
        if let Some(rank) = dead {
            self.give_up(Cause::Died, rank);
            return Some(self.alarmed(&self.said.get()));
        }
        if let Some(rank) = left {
            self.give_up(Cause::Left, rank);
            return Some(self.alarmed(&self.said.get()));
        }
        let ours = self.said.get();
        let mut heard = self.waits.heard.borrow_mut();
        for (rank, before) in (0..self.ranks()).zip(heard.iter_mut()) {
            let theirs = self.area.lines(rank).intent.heard();
            let stays = std::mem::replace(before, theirs) == theirs;
            // Who lost its processor while it said so stays at half of the next call.
            let whole = crate::call::is_whole(&theirs);
            if stays && whole && theirs.number == ours.number && theirs.signature != ours.signature {
                return Some(self.differs(rank));
            }
        }
        let deadline = self.waits.deadline.get()?;
        if waited < deadline {
            return None;
        }
        self.give_up(Cause::Timeout, self.rank);
        Some(Error::Timeout(deadline))
    }
}

struct Waiting<'a> {
    station: &'a Endpoint,
    flag: &'a Flag,
    wanted: Ticket,
    of: u32,
}

impl Faults for Waiting<'_> {
    fn looked(&self, now: Instant) -> Instant {
        let number = self.station.said.get().number;
        match self.station.waits.vain.get() {
            Some((call, _, looked)) if call == number => looked,
            _ => {
                self.station.waits.vain.set(Some((number, now, now)));
                now
            }
        }
    }

    fn look(&self, now: Instant) -> Option<Error> {
        let number = self.station.said.get().number;
        let begin = self.station.waits.vain.get().map_or(now, |(_, begin, _)| begin);
        self.station.waits.vain.set(Some((number, begin, now)));
        let waited = now.saturating_duration_since(begin);
        let fault = self.station.fault(self.flag, self.wanted, self.of, waited);
        if fault.is_none() && self.station.waits.interrupt.get().is_some_and(|asked| asked()) {
            self.station.give_up(Cause::Timeout, self.station.rank);
            return Some(Error::Interrupted);
        }
        fault
    }
}

/// A wait for a flag.
pub struct Reach<'a> {
    station: &'a Endpoint,
    flag: &'a Flag,
    wanted: Ticket,
    of: u32,
}

impl Future for Reach<'_> {
    type Output = Result<u64>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let word = self.flag.look();
        if reached(word as Ticket, self.wanted) {
            return Poll::Ready(Ok(word));
        }
        if self.station.waits.blocking.get() {
            return Poll::Ready(self.station.wait(self.flag, self.wanted, self.of));
        }
        self.station.polled(self.flag, self.wanted, self.of)
    }
}

impl Endpoint {
    /// A wait that returns to be polled again, unless it is in vain.
    #[cold]
    fn polled(&self, flag: &Flag, wanted: Ticket, of: u32) -> Poll<Result<u64>> {
        self.waits.polls.set(self.waits.polls.get().wrapping_add(1));
        if !self.waits.polls.get().is_multiple_of(FAULT_POLLS) {
            return Poll::Pending;
        }
        // Deadlines of started operations are their waiter's.
        match self.fault(flag, wanted, of, Duration::ZERO) {
            Some(fault) => Poll::Ready(Err(fault)),
            None => Poll::Pending,
        }
    }
}

/// Carries out what does not return to be polled again.
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
