//! OMPT tool for LLVM's OpenMP runtime and its relatives (Intel's, AMD's), by the standard's
//! interface.
//!
//! The runtime searches for `ompt_start_tool` when it starts, and then reports every team: a thread
//! opens one (`parallel_begin`), a thread joins one (`implicit_task`), it ends (`parallel_end`).
//! The order of events and the numbers are the standard's (OpenMP 5.0, chapter 4); the flags and
//! event numbers used here have not changed since.
//!
//! - OpenMP functions may not be called from a callback, so all data travels in the words that the
//!   runtime keeps for tools: the team in the word of the region. This serves the members only.
//!   libomp reports a region's end after it has put the team's record back into its pool, and the
//!   word there may be another region's by then. The thread that opened the regions keeps its own
//!   list, which identifies the one that ends.
//! - Members bind after the runtime has bound them, if it does. A runtime with places may move the
//!   threads again without an event; then every join checks the mask.
//! - The runtime's helper threads (`target nowait`) have the form of a team of eight. They are
//!   known by the code that opened the team: the runtime's own code, or no task at all. Leagues
//!   (`teams`) are not teams of threads here either.
//! - If barriers are counted, they are reported too (`sync_region`). Members get the end of a
//!   region when the next one begins; `meter` gets its time from the thread that opened it.
//! - A runtime has one tool. If the user requested another tool, or another one is loaded after
//!   this library, the runtime gets that tool.
//! - BOLT runs OpenMP threads as user-level threads, so a mask would bind the wrong object. BOLT's
//!   threads are not placed.

use crate::meter;
use crate::nest::{self, NestTeam};
use crate::{narrowed, objects, plan, real, wide};
use libc::{c_char, c_int, c_uint, c_void};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use trimtab_core::place::runtimes::Runtime;

/// Word that the runtime keeps for a tool.
type Word = *mut *mut c_void;
type LookUp = unsafe extern "C-unwind" fn(*const c_char) -> *mut c_void;

const PARALLEL_BEGIN: c_int = 3;
const PARALLEL_END: c_int = 4;
const IMPLICIT_TASK: c_int = 7;
const SYNC_REGION: c_int = 23;

const SCOPE_BEGIN: c_int = 1;
const TASK_INITIAL: c_int = 1;
const PARALLEL_LEAGUE: c_int = 0x4000_0000;

/// Address ranges of the runtimes that have started this tool: from `START[n]` to `END[n]`.
static START: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static END: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Description of a tool for a runtime (`ompt_start_tool_result_t`).
#[repr(C)]
pub struct Tool {
    initialize: unsafe extern "C-unwind" fn(LookUp, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C-unwind" fn(*mut c_void),
    data: u64,
}

/// Cell around the tool: the runtime keeps the address and may write `data`.
struct ToolCell(std::cell::UnsafeCell<Tool>);

// SAFETY: this library never reads or writes it after the program has started; each runtime writes
// to its own word only, and this tool gives no meaning to its word.
unsafe impl Sync for ToolCell {}

static TOOL: ToolCell = ToolCell(std::cell::UnsafeCell::new(Tool { initialize, finalize, data: 0 }));

/// Returns the tool for a runtime that starts. Null: no tool.
///
/// A runtime counts the CPUs of the thread on which it starts by system calls, and may bind that
/// thread by system calls. The thread may be on its slot, or inside a region of another runtime.
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

/// Returns whether the user requested a tool other than this library.
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

unsafe extern "C-unwind" fn initialize(look_up: LookUp, _: c_int, _: *mut c_void) -> c_int {
    // SAFETY: the runtime's own function, with a C string.
    let set = unsafe { look_up(c"ompt_set_callback".as_ptr()) };
    if set.is_null() {
        return 0;
    }
    remember_runtime(look_up as *const c_void as usize);
    type SetCallback = unsafe extern "C-unwind" fn(c_int, *const c_void) -> c_int;
    // SAFETY: the runtime's function of that name has that type.
    let set = unsafe { std::mem::transmute::<*mut c_void, SetCallback>(set) };
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

/// Returns whether an address lies in a runtime's own code.
fn is_of_runtime(address: usize) -> bool {
    START.iter().zip(&END).any(|(start, end)| (start.load(Acquire)..end.load(Acquire)).contains(&address))
}

/// Region from its beginning to its end. Aligned, so that members fetch no cache line more than
/// they must.
#[repr(C, align(64))]
struct Region {
    /// `None` for a region of the runtime itself.
    team: Option<NestTeam>,
    barriers: meter::Region,
    /// The enclosing region of the same thread that is still open.
    below: *mut Self,
}

/// Regions of a thread.
struct Regions {
    /// The last opened of the regions that are still open.
    open: Cell<*mut Region>,
    /// Memory for one region, kept from the last that ended, since regions of a thread follow each
    /// other. Not freed when the thread ends.
    room: Cell<*mut Region>,
}

thread_local! {
    static REGIONS: Regions = const { Regions { open: Cell::new(null_mut()), room: Cell::new(null_mut()) } };
}

impl Regions {
    /// Puts a region on top of the open ones. It stays there until [`give_up`](Self::give_up).
    fn push(&self, team: Option<NestTeam>) -> *mut Region {
        let barriers = meter::Region::open(Runtime::Libomp);
        let region = Region { team, barriers, below: self.open.get() };
        let room = self.room.replace(null_mut());
        let place = if room.is_null() {
            Box::into_raw(Box::new(region))
        } else {
            // SAFETY: made by a box, and not in use since it was put aside; regions hold nothing
            // that has to be dropped.
            unsafe { room.write(region) };
            room
        };
        self.open.set(place);
        place
    }

    /// # Safety
    /// The region was made by [`push`](Self::push) on this thread, and no code follows its address
    /// any more.
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
        // The runtime reports its end with the same flag, and that is ignored as well. The word may
        // still hold an earlier region.
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
        // The program's own thread, or a thread of a league: from the pool, with the record of a
        // team that has ended.
        return nest::join_unknown();
    }
    // SAFETY: null, or the word of an open region; the word holds null, or a pointer that is valid
    // until the region's end.
    match unsafe { region.as_ref().and_then(|region| region.cast::<Region>().as_ref()) } {
        Some(Region { team: Some(team), barriers, .. }) => {
            team.join(index);
            barriers.join(index);
        }
        _ if index != 0 => nest::join_unknown(),
        _ => {}
    }
}

/// Handles the begin or end of a barrier on the calling thread. At the end of a barrier that ends a
/// region, the region has been freed.
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

/// Returns whether all threads of a team wait there: not if a thread waits for its tasks, and not
/// in leagues.
fn is_barrier(kind: c_int) -> bool {
    // Barrier, implicit, explicit, of the implementation; since 5.1 implicit at the end of a loop,
    // and of a region.
    matches!(kind, 1..=4 | 8 | 9)
}

unsafe extern "C-unwind" fn parallel_end(region: Word, _task: Word, flags: c_int, _code: *const c_void) {
    if flags & PARALLEL_LEAGUE != 0 {
        return;
    }
    // SAFETY: null, or a word. It may belong to another region (see the module's head), so its
    // content is compared and never followed.
    let reported: *mut Region = unsafe { region.as_ref() }.map_or(null_mut(), |region| region.cast());
    REGIONS.with(|regions| {
        // SAFETY: every region in the list was made on this thread, and is given up here only.
        let below = |region: *mut Region| unsafe { (*region).below };
        let not_null = |region: *mut Region| (!region.is_null()).then_some(region);
        let mut open = std::iter::successors(not_null(regions.open.get()), |&region| not_null(below(region)));
        // Usually the last. It is the named one if the runtime did not report the end of a region
        // inside it.
        let ends = open.find(|&region| region == reported).unwrap_or(regions.open.get());
        loop {
            let last = regions.open.get();
            if last.is_null() {
                return;
            }
            // SAFETY: as above.
            let closed = unsafe { &*last };
            regions.open.set(closed.below);
            if let Some(team) = &closed.team {
                closed.barriers.close();
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
