//! Where the ranks of a team run: whether they share CPUs, decided again while they work, and
//! whether the awaited rank is on the waiting rank's own CPU.
//!
//! **Problem.** Masks change after ranks have joined: OpenMP binds threads, a program binds itself,
//! a team shrinks. Two ranks that were woken on one CPU spin at each other, although each could
//! have a CPU.
//!
//! **Idea.** At each [`PERIOD`]th call every rank publishes its mask, and [`PERIOD_READ`] calls
//! later all compute from the published masks whether there are more ranks than CPUs. No rank is so
//! many calls ahead of another one, so all read the same masks and change algorithms at the same
//! call. A rank also publishes the CPU on which it runs, which it reads without a system call. A
//! rank that waits for a rank on its own CPU yields at once.
//!
//! **Properties.** A rank publishes its CPU when it waits, so that calls without waits cost no
//! more, and writes the line only when the CPU has changed. A rank that moved since then costs the
//! waiting rank some yields, for a millisecond at most.

use super::{ALL_RANKS, Endpoint};
use crate::algorithm_table::AlgorithmTable;
use crate::barrier::Barrier;
use crate::cpus::{CpuReader, NO_CPU, allowed};
use crate::flag::{Flag, Ticket, reached};
use crate::shared_layout::{Mask, SLOT_COUNT};
use crate::wait::Policy;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Calls between two decisions whether ranks share CPUs.
pub const PERIOD: u64 = 1024;
/// Calls from the publication of the masks to the decision.
pub const PERIOD_READ: u64 = 64;
const _: () = assert!(PERIOD_READ > 2 * SLOT_COUNT as u64 && PERIOD.is_multiple_of(PERIOD_READ));

/// Looks at the flag before the first pause and the check whether the awaited rank is on this CPU:
/// they take as long as most waits of ranks that have a CPU each. A pause takes up to 40 ns, which
/// would delay the moment at which the rank sees the flag.
const LOOKS_FIRST: u32 = 100;
/// Yields to such a rank, which take half of the usual first spin if no thread wants the CPU.
const YIELDS_TO_RANK: u32 = 100;
/// Longest time for them: then another thread has the CPU.
const YIELD_MAX: Duration = Duration::from_millis(1);

/// A rank's state about where it runs.
#[derive(Debug)]
pub(crate) struct Placement {
    reader: CpuReader,
    /// The CPU that was published last.
    shown: Cell<u32>,
    /// Whether masks are read while the team works.
    follows: Cell<bool>,
}

impl Placement {
    pub(crate) fn new() -> Self {
        Self { reader: CpuReader::of_this_thread(), shown: Cell::new(NO_CPU), follows: Cell::new(false) }
    }

    /// Of a rank that any thread of the process may use: the CPU is asked for in long waits alone.
    pub(crate) fn of_process() -> Self {
        Self { reader: CpuReader::of_any_thread(), ..Self::new() }
    }
}

impl Endpoint {
    /// Makes this the endpoint of a rank that any thread of the process may use.
    pub(crate) fn serve_all_threads(&mut self) {
        self.placement = Placement::of_process();
    }

    /// Sets whether this rank follows changes of the ranks' masks. All ranks set the same between
    /// the same calls.
    pub(crate) fn follow_masks(&self, follow: bool) {
        self.placement.follows.set(follow);
    }

    /// Returns whether this rank follows changes of the ranks' masks.
    pub(crate) fn follows_masks(&self) -> bool {
        self.placement.follows.get()
    }

    /// Publishes this rank's mask, or reads those of all ranks, at the begin of calls of some
    /// numbers.
    #[inline(always)]
    pub(super) fn follow_masks_at(&self, number: u64) {
        if number.is_multiple_of(PERIOD_READ) {
            self.reconsider(number);
        }
    }

    /// Publishes the CPU on which this rank runs if it has changed. For moments at which the rank
    /// waits anyway.
    #[inline(always)]
    fn note_cpu(&self) {
        let cpu = self.placement.reader.cpu();
        if cpu != self.placement.shown.get() {
            self.placement.shown.set(cpu);
            self.show_cpu(cpu);
        }
    }

    /// As [`Self::note_cpu`], before and after a long wait: also if the kernel must be asked.
    pub(super) fn note_cpu_by_any_means(&self) {
        match self.placement.reader.cpu() {
            NO_CPU if self.placement.follows.get() => {
                self.show_cpu(self.placement.reader.cpu_by_any_means());
            }
            _ => self.note_cpu(),
        }
    }

    #[cold]
    fn show_cpu(&self, cpu: u32) {
        self.area.lines(self.rank).quota.publish_cpu((cpu != NO_CPU).then_some(cpu));
    }

    #[cold]
    fn reconsider(&self, number: u64) {
        if !self.placement.follows.get() {
            return;
        }
        match number % PERIOD {
            0 => self.area.lines(self.rank).mask.publish(allowed()),
            PERIOD_READ => {
                let mut all = [0_u64; Mask::WORD_COUNT];
                for rank in 0..self.ranks() {
                    let mask = self.area.lines(rank).mask.published();
                    all.iter_mut().zip(mask).for_each(|(all, word)| *all |= word);
                }
                let quotas = (0..self.ranks()).filter_map(|rank| self.area.lines(rank).quota.published());
                let usable = all.iter().map(|word| word.count_ones()).sum::<u32>();
                let usable = usable.min(quotas.min().unwrap_or(u32::MAX));
                self.set_crowded(self.ranks() > usable.max(1));
            }
            _ => {}
        }
    }

    /// Sets whether there are more ranks than CPUs. All ranks set the same in the same call.
    pub(crate) fn set_crowded(&self, crowded: bool) {
        let before = self.crowded.replace(crowded);
        if before == crowded {
            return;
        }
        self.waits.patience.reset(crowded);
        let mut table = self.table();
        // A barrier that was chosen by a measurement stays.
        if !self.routes.kept_barrier.get() && table.barrier == AlgorithmTable::usual(before).barrier {
            table.barrier = AlgorithmTable::usual(crowded).barrier;
        }
        self.routes.barrier_by.set(table.barrier);
        self.routes.central.set(crowded && table.barrier == Barrier::Central);
        self.routes.ways.borrow_mut().set_barrier(table.barrier);
    }

    /// Spins for a flag of rank `of`, and yields meanwhile if that rank is on this CPU.
    #[inline(always)]
    pub(super) fn spin(&self, flag: &Flag, wanted: Ticket, of: u32) -> Option<u64> {
        let spins = self.waits.patience.spins();
        if spins == 0 {
            return None;
        }
        for _ in 0..LOOKS_FIRST {
            let word = flag.load();
            if reached(word as Ticket, wanted) {
                return Some(word);
            }
        }
        self.note_cpu();
        if of != ALL_RANKS
            && self.shares_cpu(of)
            && let Some(word) = self.yield_to(flag, wanted, of)
        {
            return Some(word);
        }
        for _ in 0..spins {
            std::hint::spin_loop();
            let word = flag.load();
            if reached(word as Ticket, wanted) {
                return Some(word);
            }
        }
        None
    }

    /// Returns whether rank `of` was on this thread's CPU when it waited last.
    #[inline(always)]
    fn shares_cpu(&self, of: u32) -> bool {
        match self.area.lines(of).quota.cpu() {
            // Nothing is published in a model, and by ranks without a C library that registers.
            None => false,
            Some(theirs) => theirs == self.placement.reader.cpu_by_any_means(),
        }
    }

    /// Yields to a rank on this CPU.
    #[cold]
    fn yield_to(&self, flag: &Flag, wanted: Ticket, of: u32) -> Option<u64> {
        if self.waits.patience.policy() == Policy::Spin {
            return None;
        }
        let begin = Instant::now();
        for _ in 0..YIELDS_TO_RANK {
            std::thread::yield_now();
            let word = flag.load();
            if reached(word as Ticket, wanted) {
                return Some(word);
            }
            if begin.elapsed() > YIELD_MAX || !self.shares_cpu(of) {
                break;
            }
        }
        None
    }
}
