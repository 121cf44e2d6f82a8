//! One text of nested teams, and the maps made for it.
//!
//! Maps are made when a team of new sizes is opened, by the thread that opens it and before the team exists; members only
//! read. They are a list that grows at its head: readers walk it without a lock.

use super::state::State;
use crate::cpus::Cpus;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::nesting::{Nest, Resolved, Teams, Tree};
use trimtab_core::set::CpuSet;

/// The most seats kept for one text, about 100 bytes each. A program whose teams have so many combinations of sizes has the
/// further ones left alone.
const SEATS_MAX: usize = 1 << 18;

/// Teams to be placed, and the maps made for them so far.
pub(super) struct Order {
    /// As the user wrote it.
    nest: Nest,
    /// One for all roots, or one for each.
    parts: Vec<Part>,
}

/// The cores of a root, and the maps made for its teams so far.
pub(super) struct Part {
    teams: Teams,
    reports: bool,
    maps: AtomicPtr<Seats>,
    /// How many seats there are. Held while a map is made, so that teams opened at once share it.
    making: Mutex<usize>,
}

/// A map as the guest uses it: one seat for each thread of its innermost level.
pub(super) struct Seats {
    sizes: Vec<u32>,
    seats: Vec<Seat>,
    next: *mut Seats,
}

// SAFETY: `next` is written before the list's head is published and never after; what it points to is never freed.
unsafe impl Sync for Seats {}

/// Where one thread goes, and what became of it.
pub(super) struct Seat {
    pub(super) cpu: OsCpu,
    /// Where the team goes that it opens for an unlisted level.
    room: CpuSet,
    mask: AtomicPtr<Cpus>,
    /// Present when there will be a report.
    pub(super) seen: Option<Box<Seen>>,
}

/// What is reported of a seat.
#[derive(Default)]
pub(super) struct Seen {
    /// Times a thread joined its team here.
    pub(super) entered: AtomicU64,
    /// System calls that moved it here.
    pub(super) bound: AtomicU64,
    /// Times its mask was something else although it had been moved here: another hand.
    pub(super) lost: AtomicU64,
    /// The mask of the last thread and the CPU it was on, once it had joined.
    pub(super) last: Mutex<Option<(Cpus, u32)>>,
}

impl Order {
    pub(super) fn new(state: &State, nest: &Nest) -> Self {
        let (trees, wide) = match state.roots {
            Roots::Part(count) => (state.tree.parts(count), None),
            Roots::Alone | Roots::Share => (vec![state.tree.clone()], state.wide.as_ref()),
        };
        let part = |tree: Tree| Part {
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

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The part of a root, counted from 0.
    pub(super) fn part(&self, root: usize) -> Option<&Part> {
        self.parts.get(root.checked_rem(self.parts.len())?)
    }
}

impl Part {
    /// How many threads a team of this level is declared to have, counted from 0.
    pub(super) fn declared(&self, level: usize) -> Option<u32> {
        self.resolved().levels().get(level).map(|(threads, _)| *threads)
    }

    pub(super) fn resolved(&self) -> &Resolved {
        self.teams.resolved()
    }

    pub(super) fn cores(&self) -> usize {
        self.teams.tree().cores()
    }

    /// The seats of the innermost of levels with these team sizes.
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
        let seats = map.levels().last()?.iter().map(|place| Seat {
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

    /// Every map there is, newest first.
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

    pub(super) fn seats(&self) -> &[Seat] {
        &self.seats
    }
}

impl Seat {
    /// The room as a mask, made when first asked for.
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
