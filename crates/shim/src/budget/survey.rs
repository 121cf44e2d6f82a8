//! Examination of the other processes of the hold, and the share of this one.
//!
//! The kernel, not the page, is the source for whether a process lives, which CPUs it may use and
//! how much CPU time it used. So a process that was stopped or that waits lends its cores,
//! independent of the contents of its slot, and a slot that names a process outside the hold does
//! not count.

use super::page::{self, Slot};
use super::{COMPUTING, EQUAL_PART, NEXT, SHARE, WANTED_BEFORE, WANTS, process};
use crate::ticks::{monotonic_ns, now};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::*};
use trimtab_core::budget::page::{Owner, SLOTS, State, slot};
use trimtab_core::budget::share::{demand, share};
use trimtab_core::budget::track::Track;

/// Shortest time between two examinations, in ticks (see [`crate::ticks::now`]): about
/// [`EXAMINE_NS_MIN`](trimtab_core::budget::track::EXAMINE_NS_MIN).
pub(super) const INTERVAL_TICKS: u64 = if cfg!(target_arch = "x86_64") { 2_500_000 } else { 1_000_000 };
/// An examination may take this part of the time.
const COST_PART: u64 = 100;

/// Whether a thread examines. No thread waits for it.
static EXAMINING: AtomicBool = AtomicBool::new(false);
static MEMORY: Memory = Memory(UnsafeCell::new(Seen::new()));

/// Last observation of the other processes of the hold.
struct Memory(UnsafeCell<Seen>);

// SAFETY: used only by the thread that set `EXAMINING`, and in a forked child's only thread.
unsafe impl Sync for Memory {}

struct Seen {
    processes: [Known; SLOTS],
    demands: [u16; SLOTS],
    /// Position of the process that is identified again next.
    turn: usize,
}

impl Seen {
    const fn new() -> Self {
        Self { processes: [Known::NOTHING; SLOTS], demands: [0; SLOTS], turn: 0 }
    }
}

/// Last observation of the owner of a slot.
#[derive(Clone, Copy)]
struct Known {
    owner: u64,
    /// Whether it is that process, and one of the hold.
    counts: bool,
    track: Track,
}

impl Known {
    const NOTHING: Self = Self { owner: 0, counts: false, track: Track::NOTHING };

    /// Returns the process's demand.
    fn look(&mut self, slot: &Slot, cores: u32, at_ns: u64, anew: bool) -> u32 {
        let word = slot[slot::OWNER].load(Relaxed);
        let Some(owner) = Owner::read(word) else { return 0 };
        let state = State::read(slot[slot::STATE].load(Relaxed));
        if self.owner != word {
            *self = Self { owner: word, counts: false, track: Track::new(state.teams) };
        }
        if self.track.is_new() || anew {
            self.counts = process::is(owner) && process::is_confined_to(owner.pid, page::hold());
        }
        if !self.counts {
            self.track.pass(at_ns);
            return 0;
        }
        let Some(cpu_ns) = process::cpu_time(owner.pid) else {
            self.counts = false;
            return 0;
        };
        demand(&self.track.observe(state, cpu_ns, at_ns, || process::is_ready(owner.pid)), cores)
    }
}

/// Examines the page and computes the share of this process.
#[cold]
pub(super) fn examine() {
    if EXAMINING.swap(true, Acquire) {
        return;
    }
    let begin = now();
    crate::errno::kept(|| {
        page::keep_slot();
        // SAFETY: this thread set `EXAMINING`.
        let seen = unsafe { &mut *MEMORY.0.get() };
        let (own, equal) = shares(seen);
        SHARE.store(own, Relaxed);
        EQUAL_PART.store(equal, Relaxed);
    });
    WANTED_BEFORE.store(WANTS.swap(COMPUTING.load(Relaxed), Relaxed), Relaxed);
    let end = now();
    let pause = end.saturating_sub(begin).saturating_mul(COST_PART).max(INTERVAL_TICKS);
    NEXT.store(end.saturating_add(pause), Relaxed);
    EXAMINING.store(false, Release);
}

/// Returns the share of this process, and its equal part of the cores.
fn shares(seen: &mut Seen) -> (u32, u32) {
    let (cores, end, mine) = (page::cores(), page::slot_end(), page::position());
    let at_ns = monotonic_ns();
    seen.turn = if seen.turn + 1 < end { seen.turn + 1 } else { 0 };
    let Seen { processes, demands, turn } = seen;
    let mut members = 0;
    for (at, (known, to)) in processes.iter_mut().zip(demands.iter_mut()).enumerate().take(end) {
        let other = page::slot_at(at).filter(|_| mine != Some(at));
        let demand = other.map_or(0, |slot| known.look(slot, cores, at_ns, at == *turn));
        members += u32::from(other.is_some() && known.counts);
        *to = demand as u16;
    }
    // Without a slot, this process comes last.
    let split = mine.unwrap_or(end).min(end);
    let demands = demands.get(..end).unwrap_or_default();
    let (before, after) = demands.split_at(split.min(demands.len()));
    // Computed as if this process wanted all cores, so that a larger team than before need not wait
    // for the next examination. A team gets no more than it wants, so that the rest stays lent.
    let share = share(cores, threads(before), cores, threads(after));
    (share, (cores / (members + 1)).max(1))
}

fn threads(demands: &[u16]) -> impl Iterator<Item = u32> + Clone {
    demands.iter().map(|&demand| u32::from(demand))
}

/// Drops all observations. Called in a forked child, on its only thread.
pub(super) fn forget() {
    EXAMINING.store(false, Release);
}
