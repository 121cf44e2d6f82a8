//! LLVM's OpenMP runtime and its kin (Intel's, AMD's): a tool by the standard's own interface.
//!
//! The runtime looks for `ompt_start_tool` when it starts, and then tells of every team: a thread opens one
//! (`parallel_begin`), a thread joins one (`implicit_task`), it is over (`parallel_end`). The order of events and the
//! numbers are the standard's (OpenMP 5.0, chapter 4); the flags and event numbers used here have not changed since.
//!
//! - OpenMP functions may not be called from a callback, so everything that is needed travels in the words that the
//!   runtime keeps for tools: the team in that of the region. Only to the members, though: libomp tells of a region's end
//!   after it has put the team's record back into its pool, and the word there may be another region's by then. Which of
//!   its regions ends, the thread that opened it knows itself.
//! - Members bind after the runtime has bound them, if it does; a runtime that was told places may move them again
//!   without an event, and then every join looks.
//! - The runtime's helper threads (`target nowait`) look like a team of eight. They are known by who opened it: the
//!   runtime's own code, or no task at all. Leagues (`teams`) are no teams of threads here either.
//! - Where meetings are counted, barriers are told too (`sync_region`). Members are told of the end of a region when the next one
//!   begins; `meter` knows when it was over from who opened it.
//! - One runtime has one tool. Where the user asked for another one, or another stands behind us, it is theirs.
//! - BOLT runs OpenMP threads as user-level threads: what is bound there is another thing. It is left alone.

use crate::meter;
use crate::nest::{self, Team};
use crate::{narrowed, objects, plan, real, wide};
use libc::{c_char, c_int, c_uint, c_void};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use trimtab_core::place::runtimes::Runtime;

/// A word that the runtime keeps for a tool.
type Word = *mut *mut c_void;
type Look = unsafe extern "C-unwind" fn(*const c_char) -> *mut c_void;

const PARALLEL_BEGIN: c_int = 3;
const PARALLEL_END: c_int = 4;
const IMPLICIT_TASK: c_int = 7;
const SYNC_REGION: c_int = 23;

const SCOPE_BEGIN: c_int = 1;
const TASK_INITIAL: c_int = 1;
const PARALLEL_LEAGUE: c_int = 0x4000_0000;

/// The address range of the runtimes that have started us: from `START[n]` to `END[n]`.
static START: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static END: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// What a runtime wants to know of a tool (`ompt_start_tool_result_t`).
#[repr(C)]
pub struct Tool {
    initialize: unsafe extern "C-unwind" fn(Look, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C-unwind" fn(*mut c_void),
    data: u64,
}

/// The runtime keeps the address and may write `data`.
struct Shared(std::cell::UnsafeCell<Tool>);

// SAFETY: this library never reads or writes it after the program has started; runtimes keep what they write to their own
// word, and none of ours means anything.
unsafe impl Sync for Shared {}

static TOOL: Shared = Shared(std::cell::UnsafeCell::new(Tool { initialize, finalize, data: 0 }));

/// Called by a runtime as it starts. Null: no tool.
///
/// A runtime counts the CPUs of the thread it starts on, by system calls, and may bind it by such.
/// That thread may be on its slot, or inside a region of another runtime.
pub(crate) unsafe fn start(version: c_uint, name: *const c_char) -> *mut Tool {
    wide::for_good();
    narrowed::note_set_task(0);
    // SAFETY: the caller's own arguments.
    if let Some(other) = unsafe { real::ompt_start_tool(version, name) } {
        return other;
    }
    if !(nest::is_active() || meter::is_on()) || names_another_tool() || is_on_user_level_threads() {
        return null_mut();
    }
    TOOL.0.get()
}

/// Whether the user asked for a tool that is not this library.
fn names_another_tool() -> bool {
    let ours = |path: &str| path.rsplit('/').next().is_some_and(|file| file.starts_with("libtrimtab_shim"));
    plan::variable("OMP_TOOL_LIBRARIES")
        .is_some_and(|list| list.split(':').any(|path| !path.is_empty() && !ours(path)))
}

fn is_on_user_level_threads() -> bool {
    objects::visit(|object| match object.defines(c"ABT_init").is_some() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .is_some()
}

unsafe extern "C-unwind" fn initialize(look: Look, _: c_int, _: *mut c_void) -> c_int {
    // SAFETY: the runtime's own function, with a C string.
    let set = unsafe { look(c"ompt_set_callback".as_ptr()) };
    if set.is_null() {
        return 0;
    }
    remember_runtime(look as *const c_void as usize);
    type Set = unsafe extern "C-unwind" fn(c_int, *const c_void) -> c_int;
    // SAFETY: what the runtime gives under that name has that type.
    let set = unsafe { std::mem::transmute::<*mut c_void, Set>(set) };
    let events: [(c_int, *const c_void); 3] = [
        (PARALLEL_BEGIN, parallel_begin as *const c_void),
        (PARALLEL_END, parallel_end as *const c_void),
        (IMPLICIT_TASK, implicit_task as *const c_void),
    ];
    for (event, callback) in events {
        // SAFETY: each callback has the type of its event.
        unsafe { set(event, callback) };
    }
    if meter::is_on() {
        // SAFETY: as above.
        unsafe { set(SYNC_REGION, sync_region as *const c_void) };
    }
    1
}

unsafe extern "C-unwind" fn finalize(_: *mut c_void) {}

fn remember_runtime(address: usize) {
    let range = objects::visit(|object| match object.holds(address) {
        true => ControlFlow::Break(object.range()),
        false => ControlFlow::Continue(()),
    });
    let Some(range) = range else { return };
    for (start, end) in START.iter().zip(&END) {
        if start.compare_exchange(0, range.start, AcqRel, Acquire).is_ok() {
            return end.store(range.end, Release);
        }
    }
}

/// Whether a runtime's own code lies there.
fn is_of_runtime(address: usize) -> bool {
    START.iter().zip(&END).any(|(start, end)| (start.load(Acquire)..end.load(Acquire)).contains(&address))
}

/// A region from its beginning to its end. Aligned, so that members fetch no cache line more than they must.
#[repr(C, align(64))]
struct Region {
    /// `None` for one that is the runtime's own business.
    team: Option<Team>,
    meetings: meter::Region,
    /// The one that its thread had opened before, and that is open still.
    below: *mut Self,
}

/// The regions of a thread.
struct Regions {
    /// The last that it has opened, of those that are open.
    open: Cell<*mut Region>,
    /// Room for one, kept from the last that ended: regions of one thread follow each other. Lost when the thread ends.
    room: Cell<*mut Region>,
}

thread_local! {
    static REGIONS: Regions = const { Regions { open: Cell::new(null_mut()), room: Cell::new(null_mut()) } };
}

impl Regions {
    /// Puts a region where it stays until [`give_up`](Self::give_up), on top of those that are open.
    fn push(&self, team: Option<Team>) -> *mut Region {
        let meetings = meter::Region::open(Runtime::Libomp);
        let region = Region { team, meetings, below: self.open.get() };
        let room = self.room.replace(null_mut());
        let place = if room.is_null() {
            Box::into_raw(Box::new(region))
        } else {
            // SAFETY: made by a box, and not in use since it was put aside; regions hold nothing that has to be dropped.
            unsafe { room.write(region) };
            room
        };
        self.open.set(place);
        place
    }

    /// # Safety
    /// The region was made by [`push`](Self::push) on this thread, and nobody follows its address any more.
    unsafe fn give_up(&self, region: *mut Region) {
        let spare = self.room.replace(region);
        if !spare.is_null() {
            // SAFETY: made by a box, and not in use.
            drop(unsafe { Box::from_raw(spare) });
        }
    }
}

unsafe extern "C-unwind" fn parallel_begin(
    task: Word,
    _frame: *const c_void,
    region: Word,
    requested: c_uint,
    flags: c_int,
    code: *const c_void,
) {
    if region.is_null() {
        return;
    }
    if flags & PARALLEL_LEAGUE != 0 {
        // Its end is told with the same flag, and ignored as well. What is in the word may be an earlier region's.
        // SAFETY: the word is the tool's to write.
        return unsafe { region.write(null_mut()) };
    }
    let is_ours = !task.is_null() && !is_of_runtime(code.addr());
    let team = is_ours.then(|| nest::open(requested, Runtime::Libomp));
    let opened = REGIONS.with(|regions| regions.push(team));
    // SAFETY: the word is the tool's to write.
    unsafe { region.write(if is_ours { opened.cast() } else { null_mut() }) };
}

unsafe extern "C-unwind" fn implicit_task(
    end: c_int,
    region: Word,
    _task: Word,
    _threads: c_uint,
    index: c_uint,
    flags: c_int,
) {
    if end != SCOPE_BEGIN {
        return;
    }
    if flags & TASK_INITIAL != 0 {
        // A program's own thread, or one of a league: from the pool, with the record of a team that is gone.
        return nest::join_unknown();
    }
    // SAFETY: null, or the word of a region that is open; in it null, or what lives until the region's end.
    match unsafe { region.as_ref().and_then(|region| region.cast::<Region>().as_ref()) } {
        Some(Region { team: Some(team), meetings, .. }) => {
            team.join(index);
            meetings.join(index);
        }
        _ if index != 0 => nest::join_unknown(),
        _ => {}
    }
}

/// A barrier begins or is over on the calling thread. At the end of one that ends a region there is no region any more.
unsafe extern "C-unwind" fn sync_region(
    kind: c_int,
    end: c_int,
    region: Word,
    _task: Word,
    _code: *const c_void,
) {
    if !is_barrier(kind) {
        return;
    }
    if end == SCOPE_BEGIN {
        return meter::barrier_begins();
    }
    meter::barrier_ends(Runtime::Libomp, !region.is_null());
}

/// Whether all of a team meet there: not where one waits for its tasks, and not in leagues.
fn is_barrier(kind: c_int) -> bool {
    // Barrier, implicit, explicit, of the implementation; since 5.1 implicit at the end of a loop, and of a region.
    matches!(kind, 1..=4 | 8 | 9)
}

unsafe extern "C-unwind" fn parallel_end(region: Word, _task: Word, flags: c_int, _code: *const c_void) {
    if flags & PARALLEL_LEAGUE != 0 {
        return;
    }
    // SAFETY: null, or a word; whose, is not certain (see above), so what is in it is compared and never followed.
    let told: *mut Region = unsafe { region.as_ref() }.map_or(null_mut(), |region| region.cast());
    REGIONS.with(|regions| {
        // SAFETY: every region in the list was made on this thread, and is given up here only.
        let below = |region: *mut Region| unsafe { (*region).below };
        let not_null = |region: *mut Region| (!region.is_null()).then_some(region);
        let mut open = std::iter::successors(not_null(regions.open.get()), |&region| not_null(below(region)));
        // Usually the last; the one that is named, should the runtime have kept the end of one inside it to itself.
        let ends = open.find(|&region| region == told).unwrap_or(regions.open.get());
        loop {
            let last = regions.open.get();
            if last.is_null() {
                return;
            }
            // SAFETY: as above.
            let closed = unsafe { &*last };
            regions.open.set(closed.below);
            if let Some(team) = &closed.team {
                closed.meetings.close();
                team.close();
            }
            // SAFETY: all members have been joined.
            unsafe { regions.give_up(last) };
            if last == ends {
                return;
            }
        }
    });
}
