//! Teams and the threads in them.
//!
//! Unit: one CPU mask for each thread. Problem: runtimes hand the threads of their pools to any
//! team, so a thread must be placed whenever it joins one; but a region may last a microsecond, and
//! a system call takes as long. Idea: the shim stores for each thread the mask that it was given
//! last, and does nothing if this is the right mask.
//!
//! The data of a team exists during the call, or the runtime's event, that opened it. The thread
//! that opened it keeps its place inside, as thread 0 of an inner team does by the maps' own rule.
//! Outside all regions the thread that opens them, the *root*, belongs to the program and must not
//! stay on one CPU: threads, programs and further runtimes that it starts would inherit that, and
//! they would count one CPU. Restoring the mask costs two system calls a region. So a root's mask
//! is restored at once after a region that was not one of a rapid series. Within a series it
//! *lingers*, and its mask is widened before any event that could reveal it ([`relax`]): a call
//! that reads its mask, another runtime, a program started. New threads and forked children never
//! inherit it ([`birth`](crate::birth), [`fork`](crate::fork)).
//!
//! A member's record of its team is left as it is when the region ends: tasks still run in the
//! runtime's closing barrier.

use super::order::{NestSeat, Seats};
use super::report;
use super::state::{is_active, order, state};
use crate::cpus::Cpus;
use crate::plan;
use crate::ticks::now;
use libc::{c_void, pthread_key_t};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use trimtab_core::handoff::Roots;
use trimtab_core::ids::{Id, OsCpu};
use trimtab_core::place::nesting::LEVELS_MAX;
use trimtab_core::place::runtimes::Runtime;

/// Longest distance of the ends of two regions in a rapid series, in ticks of [`now`]. 0.2 ms, a
/// hundred times the cost of changing the mask twice (two system calls of about 1.3 µs on the
/// development machine). Time stamp counters tick 2 to 4 million times a millisecond; the limit
/// need not be exact.
const SERIES_TICKS_MAX: u64 = if cfg!(target_arch = "x86_64") { 500_000 } else { 200_000 };

/// The mask that a thread was given last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bound(usize);

impl Bound {
    /// No mask by this library.
    const NO: Self = Self(0);
    /// A mask by this library, followed by an unknown one: never the right mask, and to be
    /// restored.
    const DOUBTFUL: Self = Self(1);

    /// One CPU: odd and above 1. A room is identified by its address, which is even.
    fn cpu(cpu: OsCpu) -> Self {
        Self(cpu.index() * 2 + 3)
    }

    fn as_cpu(self) -> Option<OsCpu> {
        (self.0 % 2 == 1 && self != Self::DOUBTFUL).then(|| OsCpu::from_index((self.0 - 3) / 2))
    }

    fn room(mask: &'static Cpus) -> Self {
        Self(std::ptr::from_ref(mask).addr())
    }
}

/// State of a thread.
struct NestThread {
    bound: Cell<Bound>,
    /// The team that the thread is in; `None` outside all teams. `index` is its number there.
    around: Cell<Option<Around>>,
    index: Cell<u32>,
    /// While the thread is about to create the members of a team: that team, and the next member's
    /// number.
    bearing: Cell<*const NestTeam>,
    next: Cell<u32>,
    /// Address range of the members' start routines: the runtime's own code.
    members: Cell<(usize, usize)>,
    /// The thread's number among the roots, plus one.
    root: Cell<usize>,
    /// For a root: its mask outside all regions, and the end of its last region.
    wide: Cell<*mut Cpus>,
    ended: Cell<u64>,
}

thread_local! {
    static THREAD: NestThread = const {
        NestThread {
            bound: Cell::new(Bound::NO),
            around: Cell::new(None),
            index: Cell::new(0),
            bearing: Cell::new(null()),
            next: Cell::new(0),
            members: Cell::new((0, 0)),
            root: Cell::new(0),
            wide: Cell::new(null_mut()),
            ended: Cell::new(0),
        }
    };
}

/// A thread's copy of the data of its team. It is a copy, since the team's record ends with the
/// region, while its threads may continue: in the runtime's pool, and in their work at their end.
#[derive(Clone, Copy)]
struct Around {
    /// The seats of all teams of the innermost listed level; `None`: left alone. This team's begin
    /// at `first`.
    seats: Option<&'static Seats>,
    first: usize,
    /// Counted from 0.
    level: usize,
    /// The root that opened the outermost team.
    root: Option<usize>,
    is_listed: bool,
    floats: bool,
}

impl Around {
    /// Returns whether a member has one CPU: a seat of its own, or the seat of the thread that
    /// opened the team, which is the member itself.
    fn has_cpu(&self, index: u32) -> bool {
        self.is_listed || (index == 0 && !self.floats)
    }

    /// Returns the number of a member's seat among those of its level.
    fn seat_number(&self, index: u32) -> usize {
        if self.is_listed { self.first.saturating_add(index as usize) } else { self.first }
    }

    /// Returns the mask and seat of a member; `None` if this library does not place it.
    fn place(&self, index: u32) -> Option<(Bound, &'static NestSeat)> {
        let seat = self.seats?.seats().get(self.seat_number(index))?;
        Some(if self.has_cpu(index) {
            (Bound::cpu(seat.cpu), seat)
        } else {
            (Bound::room(seat.room()), seat)
        })
    }
}

/// Team from the moment it is opened. Members read the first fields when they join, next to the
/// other data they read: few cache lines that one thread writes and the others fetch.
#[repr(C)]
pub(crate) struct NestTeam {
    here: Around,
    /// Whether the runtime may move threads by itself.
    verify: bool,
    /// One more than the last member that was created in its place, as all before it were.
    born: AtomicU32,
    /// The team of the thread that opens this one, and that thread's number there.
    outer: Option<Around>,
    outer_index: u32,
}

/// Opens a team on the calling thread. `requested` is the most threads it can have.
///
/// The team must not move until [`NestTeam::close`].
pub(crate) fn open(requested: u32, runtime: Runtime) -> NestTeam {
    report::count_region(runtime);
    THREAD.with(|thread| {
        let outer = thread.around.get();
        let level = outer.map_or(0, |around| around.level + 1);
        let alone = Around { seats: None, first: 0, level, root: None, is_listed: false, floats: false };
        let here = plan::guarded(|| find_seats(outer, thread, level, requested).filter(|_| is_active()));
        NestTeam {
            here: here.unwrap_or(Around { root: outer.and_then(|around| around.root), ..alone }),
            verify: runtime.row().rebinds && HAS_PLACES.load(Relaxed),
            born: AtomicU32::new(0),
            outer,
            outer_index: thread.index.get(),
        }
    })
}

/// Returns the places for a team that the calling thread opens at this level; `None`: left alone.
fn find_seats(outer: Option<Around>, thread: &NestThread, level: usize, requested: u32) -> Option<Around> {
    // Threads in a team belong to their root.
    let root = match outer {
        Some(around) => around.root,
        None => root(thread),
    };
    let part = order()?.part(root?)?;
    let here = Around { seats: None, first: 0, level, root, is_listed: false, floats: false };
    // A team inside a team that was left alone has no master's seat to start from.
    let first = match &outer {
        Some(around) => around.seats.map(|_| around.seat_number(thread.index.get()))?,
        None => 0,
    };
    let Some(declared) = part.declared(level) else {
        let around = outer?;
        return Some(Around {
            seats: around.seats,
            first,
            floats: !around.has_cpu(thread.index.get()),
            ..here
        });
    };
    // Sizes of the enclosing teams, as far as levels are listed, and its own.
    let mut sizes = [0; LEVELS_MAX];
    let around = outer.and_then(|around| around.seats).map_or(&[][..], Seats::sizes);
    sizes.get_mut(..around.len())?.copy_from_slice(around);
    let size = declared.max(requested);
    *sizes.get_mut(level)? = size;
    let seats = part.seats(sizes.get(..=level)?)?;
    Some(Around { seats: Some(seats), first: first.checked_mul(size as usize)?, is_listed: true, ..here })
}

impl NestTeam {
    /// Announces that the calling thread, on its way into the runtime, will create this team's
    /// other members in order.
    ///
    /// Their start routines are in `members`: any other thread created meanwhile, such as an
    /// allocator's helper, is not a member.
    pub(crate) fn will_bear(&self, members: &Range<usize>) {
        // The outermost team's members come from a pool, which may already have some.
        if self.here.level > 0 && self.here.seats.is_some() {
            THREAD.with(|thread| {
                thread.members.set((members.start, members.end));
                thread.bearing.set(self);
                thread.next.set(1);
            });
        }
    }

    /// Records that the calling thread joins under this number, and moves it to its place.
    pub(crate) fn join(&self, index: u32) {
        THREAD.with(|thread| {
            let born_here = thread.around.get().is_none() && index < self.born.load(Relaxed);
            thread.bearing.set(null());
            thread.around.set(Some(self.here));
            thread.index.set(index);
            let Some((bound, seat)) = self.here.place(index) else {
                // The team is not placed, so the thread must leave the place of an earlier team. An
                // inner team's master keeps its place.
                if (index != 0 || self.here.level == 0) && thread.bound.get() != Bound::NO {
                    widen(thread);
                }
                return;
            };
            if born_here && thread.bound.get() == Bound::NO {
                thread.bound.set(bound);
            }
            let known = thread.bound.get() == bound;
            if (!known || self.verify || seat.seen.is_some()) && is_active() {
                plan::guarded(|| take_place(thread, bound, seat, known));
            }
        });
    }

    /// Ends the team. Called by the thread that opened it.
    pub(crate) fn close(&self) {
        THREAD.with(|thread| {
            thread.bearing.set(null());
            thread.around.set(self.outer);
            thread.index.set(self.outer_index);
            if let Some(outer) = self.outer {
                // The thread kept its place, unless other teams were set meanwhile.
                let place = outer.place(self.outer_index).filter(|(bound, _)| *bound != thread.bound.get());
                if let Some((bound, seat)) = place.filter(|_| is_active()) {
                    plan::guarded(|| take_place(thread, bound, seat, false));
                }
                return;
            }
            if thread.bound.get() == Bound::NO {
                return;
            }
            let now = now();
            let lasted = now.saturating_sub(thread.ended.replace(now));
            if lasted > SERIES_TICKS_MAX {
                widen(thread);
            }
        });
    }
}

/// Moves a thread to its place, unless it is there.
#[cold]
fn take_place(thread: &NestThread, bound: Bound, seat: &'static NestSeat, known: bool) -> Option<()> {
    let mut mask = Cpus::new();
    let wanted = wanted(seat, bound, &mut mask);
    let mut moves = !known;
    if known {
        let mut now = Cpus::new();
        moves = now.read_this_thread() && now != *wanted;
    }
    if moves {
        if thread.bound.get() == Bound::NO
            && thread.root.get() != 0
            && thread.around.get().is_some_and(|around| around.level == 0)
        {
            remember_wide(thread);
        }
        if wanted.confine_this_thread() {
            thread.bound.set(bound);
        }
    }
    if let Some(seen) = seat.seen.as_ref().filter(|_| bound == Bound::cpu(seat.cpu)) {
        report::note(seen, moves, moves && known);
    }
    Some(())
}

/// Returns the mask of a seat.
fn wanted<'a>(seat: &'static NestSeat, bound: Bound, mask: &'a mut Cpus) -> &'a Cpus {
    if bound == Bound::cpu(seat.cpu) {
        mask.insert((seat.cpu, seat.cpu));
        mask
    } else {
        seat.room()
    }
}

/// Copies the CPUs on which a thread has to be created, if the calling thread is creating the
/// members of a team.
pub(crate) fn born_as(routine: *const c_void, cpus: &mut Cpus) -> Option<Birth> {
    THREAD.with(|thread| {
        let (from, to) = thread.members.get();
        if !(from..to).contains(&routine.addr()) {
            return None;
        }
        // SAFETY: set by the team itself, which lives until it is closed, and unset by then.
        let team = unsafe { thread.bearing.get().as_ref() }?;
        let index = thread.next.replace(thread.next.get().saturating_add(1));
        let (bound, seat) = team.here.place(index)?;
        let mut mask = Cpus::new();
        cpus.clone_from(wanted(seat, bound, &mut mask));
        // Before the thread exists, since it reads the value as soon as it runs.
        let in_order = team.born.load(Relaxed).max(1) == index;
        if in_order {
            team.born.store(index + 1, Relaxed);
        }
        Some(Birth { team: in_order.then_some(team), index })
    })
}

/// Member about to be created.
pub(crate) struct Birth {
    /// The team, if all members before this one were created in their places too.
    team: Option<*const NestTeam>,
    index: u32,
}

impl Birth {
    /// Records that the member was not created in its place: it, and those after it, have to be
    /// moved.
    pub(crate) fn failed(self) {
        if let Some(team) = self.team {
            // SAFETY: the team for which this thread is creating members.
            unsafe { &*team }.born.store(self.index, Relaxed);
        }
    }
}

/// Records that the calling thread joins a team without a record in this library.
pub(crate) fn join_unknown() {
    THREAD.with(|thread| {
        thread.around.set(None);
        thread.index.set(0);
        if thread.bound.get() != Bound::NO {
            widen(thread);
        }
    });
}

/// Returns whether this library has narrowed the calling thread's mask and not widened it again.
pub(crate) fn is_narrowed() -> bool {
    THREAD.with(|thread| thread.bound.get() != Bound::NO)
}

/// Restores a root's own mask if it lingers in the place of its last region. Called before any
/// event that could reveal or inherit the narrow mask.
pub(crate) fn relax() {
    THREAD.with(|thread| {
        if thread.around.get().is_none() && thread.bound.get() != Bound::NO {
            widen(thread);
        }
    });
}

/// Gives the calling thread a wide mask permanently, though it may be inside a region. The mask is
/// narrowed again when the thread joins the next team.
///
/// The stored mask of the thread is marked as doubtful and kept: after a `vfork` this runs in the
/// child, on its parent's memory but not on its parent's mask.
pub(crate) fn widen_until_next_team() {
    THREAD.with(|thread| {
        if thread.bound.get() != Bound::NO {
            own_mask(thread, |mask| mask.confine_this_thread());
            thread.bound.set(Bound::DOUBTFUL);
        }
    });
}

/// Drops the parent's state in a forked child, on its only thread.
pub(crate) fn forget_in_child() {
    super::stand_down();
    THREAD.with(|thread| {
        if thread.bound.get() != Bound::NO {
            widen(thread);
        }
        thread.bearing.set(null());
        thread.around.set(None);
    });
}

fn widen(thread: &NestThread) {
    // A mask that the program itself has given the thread meanwhile stays.
    let mut now = Cpus::new();
    if let Some(cpu) = thread.bound.get().as_cpu()
        && now.read_this_thread()
        && !(now.len() == 1 && now.contains(cpu))
    {
        return thread.bound.set(Bound::NO);
    }
    if own_mask(thread, |mask| mask.confine_this_thread()) {
        thread.bound.set(Bound::NO);
    }
}

/// Calls `then` with the thread's mask outside all regions: the mask of a root before its first
/// region, or the plan's mask.
fn own_mask(thread: &NestThread, then: impl FnOnce(&Cpus) -> bool) -> bool {
    // SAFETY: null, or the root's own, freed when it ends.
    match unsafe { thread.wide.get().as_ref() } {
        Some(wide) => then(wide),
        None => plan::to_undo().is_some_and(|plan| then(plan.mask())),
    }
}

/// Stores the mask of a root before it is narrowed.
fn remember_wide(thread: &NestThread) {
    let wide = thread.wide.get();
    let wide = if wide.is_null() { Box::into_raw(Box::new(Cpus::new())) } else { wide };
    // SAFETY: just made, or made here before by this thread.
    if unsafe { &mut *wide }.read_this_thread() {
        thread.wide.set(wide);
    } else {
        // SAFETY: made by a box, and used by no other code from here on.
        drop(unsafe { Box::from_raw(wide) });
        thread.wide.set(null_mut());
    }
}

/// Whether a thread opened regions of its own and has the map, if only one thread may.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Makes the calling thread a root, or returns its number as one. `None` if its teams are not
/// placed.
fn root(thread: &NestThread) -> Option<usize> {
    static ROOTS: AtomicUsize = AtomicUsize::new(0);
    if thread.root.get() == 0 {
        let alone = state()?.roots == Roots::Alone;
        if alone && ALONE.swap(true, AcqRel) {
            report::count_left_alone();
            return None;
        }
        let number = if alone { 0 } else { ROOTS.fetch_add(1, Relaxed) };
        thread.root.set(number + 1);
        call_at_end_of_this_thread();
    }
    thread.root.get().checked_sub(1)
}

/// Key of a thread-specific value, plus one; its destructor runs when a root ends.
static KEY: AtomicU32 = AtomicU32::new(0);

fn call_at_end_of_this_thread() {
    if KEY.load(Acquire) == 0 {
        let mut key: pthread_key_t = 0;
        // SAFETY: `key` is ours to write; the destructor lives as long as the process, the library
        // being `nodelete`.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } != 0 {
            return; // the root keeps the map until the process ends
        }
        if KEY.compare_exchange(0, key.wrapping_add(1), AcqRel, Acquire).is_err() {
            // SAFETY: another thread was faster; no other code has seen this key.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    let key = KEY.load(Acquire).wrapping_sub(1);
    // SAFETY: the key was made and is never deleted; the value is a number, never followed.
    unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
}

/// Runs when a root ends: the next thread that opens a region may have the map.
extern "C" fn ended(_: *mut c_void) {
    THREAD.with(|thread| {
        let wide = thread.wide.replace(null_mut());
        if !wide.is_null() {
            // SAFETY: made by a box on this thread, which is at its end.
            drop(unsafe { Box::from_raw(wide) });
        }
        if thread.root.replace(0) != 0 && state().is_some_and(|state| state.roots == Roots::Alone) {
            ALONE.store(false, Release);
        }
    });
}

/// Stores whether a variable makes the runtime bind threads by itself. Called once, when the
/// library is loaded.
pub(super) fn note_places() {
    let off = |value: &str| ["false", "none", "disabled"].iter().any(|word| value.eq_ignore_ascii_case(word));
    let on = |name: &str| plan::variable(name).is_some_and(|value| !off(value.trim()));
    let bind_is_off = plan::variable("OMP_PROC_BIND").is_some_and(|value| off(value.trim()));
    let places = on("OMP_PLACES") || on("OMP_PROC_BIND") || on("GOMP_CPU_AFFINITY");
    HAS_PLACES.store(on("KMP_AFFINITY") || (places && !bind_is_off), Relaxed);
}

static HAS_PLACES: AtomicBool = AtomicBool::new(false);
