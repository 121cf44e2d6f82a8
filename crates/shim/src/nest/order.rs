//! Order: one setting of nested teams, as the launcher or the program gave it, and the maps made
//! for it.
//!
//! The thread that opens a team of new sizes makes the map, before the team exists; members only
//! read. The maps are a list that grows at its head: readers walk it without a lock.

use super::state::NestState;
use crate::cpus::Cpus;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::nesting::{Nest, Resolved, Teams, Tree};
use trimtab_core::set::CpuSet;

/// Bound of the seats kept for one text, about 100 bytes each. If a program's teams have more
/// combinations of sizes, the further ones are not placed.
const SEATS_MAX: usize = 1 << 18;

/// Teams to be placed, and the maps made for them so far.
pub(super) struct NestOrder {
    /// The teams as the user wrote them.
    nest: Nest,
    /// One part for all roots, or one for each.
    parts: Vec<RootPart>,
}

/// Cores of a root, and the maps made for its teams so far.
pub(super) struct RootPart {
    teams: Teams,
    reports: bool,
    maps: AtomicPtr<Seats>,
    /// Number of seats. Held while a map is made, so that teams opened at the same time share it.
    making: Mutex<usize>,
}

/// Map as the shim uses it: one seat for each thread of its innermost level.
pub(super) struct Seats {
    sizes: Vec<u32>,
    seats: Vec<NestSeat>,
    next: *mut Seats,
}

// SAFETY: `next` is written before the list's head is published and never after; the pointed-to map
// is never freed.
unsafe impl Sync for Seats {}

/// Place of one thread, with its statistics.
pub(super) struct NestSeat {
    pub(super) cpu: OsCpu,
    /// CPUs for the team that the thread opens at an unlisted level.
    room: CpuSet,
    mask: AtomicPtr<Cpus>,
    /// Present if there will be a report.
    pub(super) seen: Option<Box<SeatCounts>>,
}

/// Reported numbers of a seat.
#[derive(Default)]
pub(super) struct SeatCounts {
    /// Times a thread joined its team here.
    pub(super) entered: AtomicU64,
    /// System calls that moved it here.
    pub(super) bound: AtomicU64,
    /// Times its mask had changed although the thread had been moved here: another program or
    /// library did it.
    pub(super) lost: AtomicU64,
    /// The mask of the last thread and the CPU it was on, after it had joined.
    pub(super) last: Mutex<Option<(Cpus, u32)>>,
}

impl NestOrder {
    pub(super) fn new(state: &NestState, nest: &Nest) -> Self {
        let (trees, wide) = match state.roots {
            Roots::Part(count) => (state.tree.parts(count), None),
            Roots::Alone | Roots::Share => (vec![state.tree.clone()], state.wide.as_ref()),
        };
        let part = |tree: Tree| RootPart {
            teams: Teams::new(tree, wide, nest),
            reports: state.report != Report::No,
            maps: AtomicPtr::new(null_mut()),
            making: Mutex::new(0),
        };
        Self { nest: nest.clone(), parts: trees.into_iter().map(part).collect() }
    }

    pub(super) fn nest(&self) -> &Nest {
        &self.nest
    }

    pub(super) fn parts(&self) -> &[RootPart] {
        &self.parts
    }

    /// Returns the part of a root, counted from 0.
    pub(super) fn part(&self, root: usize) -> Option<&RootPart> {
        self.parts.get(root.checked_rem(self.parts.len())?)
    }
}

impl RootPart {
    /// Returns the declared number of threads of a team at this level, counted from 0.
    pub(super) fn declared(&self, level: usize) -> Option<u32> {
        self.resolved().levels().get(level).map(|(threads, _)| *threads)
    }

    pub(super) fn resolved(&self) -> &Resolved {
        self.teams.resolved()
    }

    pub(super) fn cores(&self) -> usize {
        self.teams.tree().cores()
    }

    /// Returns the seats of the innermost level for these team sizes. `None` beyond [`SEATS_MAX`],
    /// or without a map.
    pub(super) fn seats(&'static self, sizes: &[u32]) -> Option<&'static Seats> {
        let find = || self.all().find(|seats| seats.sizes == sizes);
        if let Some(found) = find() {
            return Some(found);
        }
        let mut count = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find() {
            return Some(found);
        }
        let wanted = sizes.iter().fold(1usize, |all, &size| all.saturating_mul(size as usize));
        if count.saturating_add(wanted) > SEATS_MAX {
            return None;
        }
        let map = self.teams.map(sizes)?;
        let seats = map.levels().last()?.iter().map(|place| NestSeat {
            cpu: place.cpu,
            room: place.room(self.teams.tree()),
            mask: AtomicPtr::new(null_mut()),
            seen: self.reports.then(Box::default),
        });
        let next = self.maps.load(Acquire);
        let made = Box::leak(Box::new(Seats { sizes: sizes.to_vec(), seats: seats.collect(), next }));
        self.maps.store(made, Release);
        *count += wanted;
        Some(made)
    }

    /// Yields every map, newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Seats> {
        // SAFETY: null, or leaked before it was published.
        let follow = |seats: *mut Seats| unsafe { seats.as_ref() };
        std::iter::successors(follow(self.maps.load(Acquire)), move |seats| follow(seats.next))
    }
}

impl Seats {
    pub(super) fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    pub(super) fn seats(&self) -> &[NestSeat] {
        &self.seats
    }
}

impl NestSeat {
    /// Returns the room as a mask, made on the first call.
    pub(super) fn room(&self) -> &'static Cpus {
        let found = self.mask.load(Acquire);
        // SAFETY: null, or leaked below before it was stored.
        if let Some(mask) = unsafe { found.as_ref() } {
            return mask;
        }
        let mut mask = Box::new(Cpus::new());
        mask.become_runs(self.room.ranges().into_iter());
        let made: &'static mut Cpus = Box::leak(mask);
        match self.mask.compare_exchange(null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            // SAFETY: not null, therefore leaked before it was stored.
            Err(other) => unsafe { &*other },
        }
    }
}
