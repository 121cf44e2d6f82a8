//! Parallel regions of OpenMP runtimes, and the barriers in them.
//!
//! - A runtime does not report to its members how long they wait at the end of a region. Each
//!   member stores when it arrives, and the thread that opened the region stores when it ended. A
//!   member reads that time when it joins the next region, or when its thread ends.
//! - Regions of a few microseconds are sampled ([`RegionSampler`]): records in a counted
//!   region have the weight of the regions that it stands for. GNU's members are not told of a
//!   skipped region, so that it costs nothing but one count; a barrier inside it is not recorded,
//!   and ends the skipping.

use super::{BASE, Lead, ThreadRow, count, is_on, mine};
use crate::ticks::monotonic_ns as now;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::*};
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::region_sampling::RegionSampler;
use trimtab_core::sync_stats::{ROWS, bit, joined, region, row};

/// Start of the random numbers that choose regions. Any number serves.
const SEED: u64 = 0x7472_696d;
/// Whether a region was skipped in this process: then a thread may work in one that it does not
/// know of.
static HAS_SKIPPED: AtomicBool = AtomicBool::new(false);

/// Region that a thread works in, as far as the thread was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Within {
    /// None, or one that is skipped.
    NoRegion,
    /// A counted one, of this weight.
    Counted(u32),
    /// One that is skipped.
    Skipped,
}

impl Within {
    /// Returns the weight of a record that is made now; `None` in a skipped region.
    fn weight(self) -> Option<u32> {
        match self {
            Self::Counted(weight) => Some(weight),
            Self::NoRegion if !HAS_SKIPPED.load(Relaxed) => Some(1),
            Self::NoRegion | Self::Skipped => None,
        }
    }
}

thread_local! {
    /// The thread's number in its team, if the runtime reported it.
    static INDEX: Cell<u32> = const { Cell::new(0) };
    /// The region that the thread works in, as its records need it.
    static WITHIN: Cell<Within> = const { Cell::new(Within::NoRegion) };
    /// Weight of the region that the thread joined last.
    static JOINED_WEIGHT: Cell<u32> = const { Cell::new(1) };
    /// Barriers that the thread came to in its region, the region's end included.
    static BARRIERS_REACHED: Cell<u32> = const { Cell::new(0) };
    /// Chooses which of the regions that the thread opens are counted.
    static SAMPLER: RefCell<RegionSampler> = const { RefCell::new(RegionSampler::new(SEED)) };
}

/// Runs `work`, which is a barrier inside a region, and is not counted if the region is not.
pub(crate) fn count_team_barrier<T>(
    by: Runtime,
    work: impl FnOnce() -> T,
    leads: impl FnOnce(&T, u64) -> Lead,
) -> T {
    if !is_on() {
        return work();
    }
    note_barrier();
    match WITHIN.get().weight() {
        Some(weight) => count(weight, || by, work, leads),
        None => work(),
    }
}

/// Makes the next regions of this thread be counted.
pub(super) fn note_barrier() {
    SAMPLER.with(|sampler| {
        if let Ok(mut sampler) = sampler.try_borrow_mut() {
            sampler.note_barrier();
        }
    });
}

/// Parallel region as seen by its members.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    by: Runtime,
    /// The region's number, and the row plus one of the thread that opened it; 0 if it is not
    /// counted.
    joined: u64,
    /// The region, as its members are told.
    within: Within,
    /// Number of the opening thread in the enclosing team, and that team's region.
    outer: (u32, Within),
    /// Barriers that the opening thread had come to in that region.
    barriers_before: u32,
    /// Time at which it was opened.
    opened_ns: u64,
}

impl Region {
    /// Opens a region by the calling thread.
    pub(crate) fn open(by: Runtime) -> Self {
        let mut region = Self {
            by,
            joined: 0,
            within: Within::NoRegion,
            outer: (INDEX.get(), WITHIN.get()),
            barriers_before: BARRIERS_REACHED.get(),
            opened_ns: 0,
        };
        let Some((row, number)) = mine() else { return region };
        let weight = SAMPLER.with(|sampler| sampler.try_borrow_mut().map_or(Some(1), |mut all| all.open()));
        let Some(weight) = weight else {
            if !HAS_SKIPPED.load(Relaxed) {
                HAS_SKIPPED.store(true, Relaxed);
            }
            region.within = Within::Skipped;
            return region;
        };
        region.opened_ns = now();
        row.set(row::LAST_ACTIVE_NS, region.opened_ns);
        row.add(row::REGIONS_OPENED, 1);
        region.joined = joined(row.get(row::REGIONS_OPENED), number as u64);
        region.within = Within::Counted(weight);
        region
    }

    /// Returns whether the region is skipped. Its members need not join it.
    pub(crate) fn is_skipped(&self) -> bool {
        self.within == Within::Skipped
    }

    /// Records that the calling thread joins under this number.
    pub(crate) fn join(&self, index: u32) {
        if self.within == Within::NoRegion {
            return;
        }
        INDEX.set(index);
        WITHIN.set(self.within);
        let Within::Counted(weight) = self.within else { return };
        if index == 0 {
            return;
        }
        let Some((row, _)) = mine() else { return };
        settle(row, None);
        JOINED_WEIGHT.set(weight);
        row.set(row::JOINED_REGION, self.joined);
        row.set(row::RUNTIME_BITS, row.get(row::RUNTIME_BITS) | bit(self.by));
        row.set(row::LAST_ACTIVE_NS, now());
        row.add(row::RECORD_COUNT, 1);
    }

    /// Records that the calling thread has done its part, and waits for the others.
    pub(crate) fn arrive(&self) {
        if self.within != Within::NoRegion {
            barrier_begins();
            // The next region may be a skipped one, which members do not join.
            WITHIN.set(Within::NoRegion);
        }
    }

    /// Records the end of the region. Called by the thread that opened it.
    pub(crate) fn close(&self) {
        if self.within == Within::NoRegion {
            return;
        }
        if BARRIERS_REACHED.replace(self.barriers_before).wrapping_sub(self.barriers_before) > 1 {
            note_barrier();
        }
        if let Some((number, _)) = region(self.joined) {
            self.end(number);
        }
        INDEX.set(self.outer.0);
        WITHIN.set(self.outer.1);
    }

    fn end(&self, number: u64) {
        let Some((row, _)) = mine() else { return };
        let end = now();
        let arrived = row.get(row::ARRIVED_NS);
        if arrived != 0 {
            row.set(row::ARRIVED_NS, 0);
            row.record(self.by, arrived, end, Lead::Own, self.within.weight().unwrap_or(1));
        }
        SAMPLER.with(|sampler| {
            if let Ok(mut sampler) = sampler.try_borrow_mut() {
                sampler.close(end.saturating_sub(self.opened_ns));
            }
        });
        row.set(row::REGION_ENDED_NS, end);
        row.set(row::REGION_CLOSED, number);
    }
}

/// Records a member's wait at the end of its last region. The end of the wait is the one stored by
/// the thread that opened the region, or else the end of the member's thread, if it ends now.
fn settle(row: ThreadRow, ends: Option<u64>) {
    let (arrived, joined) = (row.get(row::ARRIVED_NS), row.get(row::JOINED_REGION));
    row.set(row::ARRIVED_NS, 0);
    let base = BASE.load(Acquire);
    let Some((number, leader)) = region(joined) else { return };
    if arrived == 0 || leader >= ROWS || base.is_null() {
        return;
    }
    let leader = ThreadRow::at(base, leader);
    let told = (leader.get(row::REGION_CLOSED) == number).then(|| leader.get(row::REGION_ENDED_NS));
    // The opening thread may have closed another region since: then the length of the wait is
    // unknown.
    let Some(end) = told.or(ends) else { return };
    let times = u64::from(JOINED_WEIGHT.get());
    let waited = end.saturating_sub(arrived).saturating_mul(times);
    row.add(row::WAITED_NS, waited);
    row.add(row::SPANNED_NS, waited);
    row.add(row::MEETING_COUNT, times);
    if let Some(told) = told {
        // The thread existed until then: from then on its place may be another thread's.
        row.set(row::LAST_ACTIVE_NS, told.max(arrived));
    }
}

/// Records the last wait of a thread that ends.
pub(super) fn thread_ends(row: ThreadRow) {
    // After a skipped region the last wait that is known may be that of an earlier one.
    settle(row, (!HAS_SKIPPED.load(Relaxed)).then(now));
}

/// Records that the calling thread comes to a barrier of its region.
pub(crate) fn barrier_begins() {
    BARRIERS_REACHED.set(BARRIERS_REACHED.get().wrapping_add(1));
    let Some(weight) = WITHIN.get().weight() else { return };
    let Some((row, _)) = mine() else { return };
    let at = now();
    let last = row.get(row::LAST_ACTIVE_NS);
    if INDEX.get() != 0 && last != 0 {
        // The thread worked until this point. The rest is known when the region has ended.
        row.add(row::SPANNED_NS, at.saturating_sub(last).saturating_mul(u64::from(weight)));
        row.set(row::LAST_ACTIVE_NS, at);
    }
    row.set(row::ARRIVED_NS, at);
}

/// Records the end of a barrier of an OpenMP runtime that reports to a tool. `inside`: the barrier
/// is inside its region, and not its end, whose time only the thread that opened the region has.
pub(crate) fn barrier_ends(by: Runtime, inside: bool) {
    let index = INDEX.get();
    if !inside && index != 0 {
        return;
    }
    let Some(weight) = WITHIN.get().weight() else { return };
    let Some((row, _)) = mine() else { return };
    let (arrived, end) = (row.get(row::ARRIVED_NS), now());
    if arrived == 0 {
        return;
    }
    row.set(row::ARRIVED_NS, 0);
    row.record(by, arrived, end, Lead::if_first(index == 0), weight);
}
