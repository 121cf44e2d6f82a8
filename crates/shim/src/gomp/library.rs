//! The libgomp that a program's function is linked to, and the addresses of its functions.

use super::Routine;
use crate::budget::Wanted;
use crate::objects::{self, Object};
use libc::{c_int, c_void};
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use trimtab_core::budget::share::Inside;

/// Interposed functions, in the order of [`Library::functions`].
pub(super) const NAMES: [&CStr; 26] = [
    c"GOMP_parallel",
    c"GOMP_parallel_reductions",
    c"GOMP_parallel_sections",
    c"GOMP_parallel_loop_static",
    c"GOMP_parallel_loop_dynamic",
    c"GOMP_parallel_loop_guided",
    c"GOMP_parallel_loop_nonmonotonic_dynamic",
    c"GOMP_parallel_loop_nonmonotonic_guided",
    c"GOMP_parallel_loop_runtime",
    c"GOMP_parallel_loop_nonmonotonic_runtime",
    c"GOMP_parallel_loop_maybe_nonmonotonic_runtime",
    c"GOMP_parallel_start",
    c"GOMP_parallel_sections_start",
    c"GOMP_parallel_loop_static_start",
    c"GOMP_parallel_loop_dynamic_start",
    c"GOMP_parallel_loop_guided_start",
    c"GOMP_parallel_loop_runtime_start",
    c"GOMP_parallel_end",
    c"GOMP_barrier",
    c"GOMP_barrier_cancel",
    c"GOMP_loop_end",
    c"GOMP_loop_end_cancel",
    c"GOMP_sections_end",
    c"GOMP_sections_end_cancel",
    c"GOMP_single_copy_start",
    c"GOMP_single_copy_end",
];

/// Functions of the runtime that return facts about the calling thread, in the order of
/// [`Library::queries`].
const QUERIES: [&CStr; 8] = [
    c"omp_get_thread_num",
    c"omp_get_max_threads",
    c"omp_get_level",
    c"omp_get_team_size",
    c"omp_get_ancestor_thread_num",
    c"omp_get_dynamic",
    c"omp_get_active_level",
    c"omp_get_max_active_levels",
];
const THREAD_NUM: usize = 0;
const MAX_THREADS: usize = 1;
const LEVEL: usize = 2;
const TEAM_SIZE: usize = 3;
const ANCESTOR: usize = 4;
const DYNAMIC: usize = 5;
const ACTIVE_LEVEL: usize = 6;
const ACTIVE_LEVELS_MAX: usize = 7;

/// A libgomp as the functions of one object see it. Leaked: calls may be inside at any time.
pub(super) struct Library {
    /// Address range of the object that calls this libgomp.
    callers: Range<usize>,
    functions: [usize; NAMES.len()],
    /// Addresses of the functions of [`QUERIES`], 0 for those that it has not.
    queries: [usize; QUERIES.len()],
    /// Address range of the runtime itself.
    pub(super) own: Range<usize>,
    /// Whether the shim places this runtime's teams: LLVM's family reports to the tool instead.
    pub(super) is_gnu: bool,
    /// Whether the runtime or its callers have been unloaded.
    gone: AtomicBool,
    next: *mut Library,
}

static LIBRARIES: AtomicPtr<Library> = AtomicPtr::new(null_mut());

/// `GOMP_parallel` of the first object that the program started with and that defines it; 0 if
/// there is none.
static AT_START: AtomicUsize = AtomicUsize::new(0);

/// Stores the runtime that the program starts with. The loader searches these objects first,
/// whatever libraries a later object names as needed, and binds the other OpenMP calls to them. All
/// OpenMP calls must end in the same runtime.
pub(crate) fn note_start() {
    let mut behind = Behind::default();
    let first = objects::visit(|object| match behind.runtime_in(object) {
        Some(function) => ControlFlow::Break(function),
        None => ControlFlow::Continue(()),
    });
    AT_START.store(first.unwrap_or(0), Relaxed);
}

/// Determines which of the visited objects come after this library: those that `RTLD_NEXT` would
/// search. An object before it may interpose these functions too, and expect this library to call
/// the next one.
#[derive(Default)]
struct Behind(bool);

impl Behind {
    /// Returns `GOMP_parallel` of an object behind this library.
    fn runtime_in(&mut self, object: &Object<'_>) -> Option<usize> {
        if object.holds(of as *const c_void as usize) {
            self.0 = true;
            return None;
        }
        object.defines(NAMES[0]).filter(|_| self.0)
    }
}

/// Drops unloaded objects: another object may be loaded at the same address.
pub(crate) fn forget() {
    for library in known().filter(|library| !library.gone.load(Relaxed)) {
        let is_there = |address: usize, range: Option<&Range<usize>>| {
            objects::visit(|object| {
                match object.holds(address) && range.is_none_or(|range| object.range() == *range) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .is_some()
        };
        if !is_there(library.callers.start, Some(&library.callers)) || !is_there(library.functions[0], None) {
            library.gone.store(true, Relaxed);
        }
    }
}

fn known() -> impl Iterator<Item = &'static Library> {
    // SAFETY: null, or leaked before it was published.
    let follow = |at: *mut Library| unsafe { at.as_ref() };
    std::iter::successors(follow(LIBRARIES.load(Acquire)), move |library| follow(library.next))
}

/// Returns the libgomp of a function of the program; `None` if there is none at all.
pub(super) fn of(routine: Routine) -> Option<&'static Library> {
    of_address((routine as *const c_void).addr())
}

/// Returns the libgomp that code at this address calls.
pub(super) fn of_address(address: usize) -> Option<&'static Library> {
    let found = known().find(|library| library.callers.contains(&address) && !library.gone.load(Relaxed));
    if found.is_some() {
        return found;
    }
    find(address)
}

#[cold]
fn find(address: usize) -> Option<&'static Library> {
    let mut callers = address..address.saturating_add(1); // code outside all objects is stored by its own address
    // The first object that defines the function would be called without this library.
    let mut first: Option<usize> = None;
    let mut linked: Option<usize> = None;
    objects::visit(|object| -> ControlFlow<()> {
        if object.holds(address) {
            callers = object.range();
        }
        ControlFlow::Continue(())
    });
    let mut behind = Behind::default();
    objects::visit(|candidate| -> ControlFlow<()> {
        let Some(function) = behind.runtime_in(candidate) else {
            return ControlFlow::Continue(());
        };
        first.get_or_insert(function);
        let caller_needs = |object: &Object<'_>| {
            object.holds(address)
                && (object.needs(candidate.file())
                    || candidate.soname().is_some_and(|name| object.needs(name)))
        };
        // For the program itself the first is right, even if another object has the same name.
        let needed = objects::visit(|object| match caller_needs(object) && !object.path().is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        if needed.is_some() {
            linked.get_or_insert(function);
        }
        ControlFlow::Continue(())
    });
    let at_start = Some(AT_START.load(Relaxed)).filter(|&function| function != 0);
    let chosen = at_start.or(linked).or(first)?;
    Some(publish(Library::gather(chosen, callers)))
}

fn publish(library: Library) -> &'static Library {
    let made = Box::leak(Box::new(library));
    let mut head = LIBRARIES.load(Acquire);
    loop {
        made.next = head;
        match LIBRARIES.compare_exchange_weak(head, made, AcqRel, Acquire) {
            Ok(_) => return made,
            Err(other) => head = other,
        }
    }
}

impl Library {
    /// Gathers every function, searching from the object with `chosen` onwards. An object that
    /// interposes only some functions leaves the others to the objects behind it.
    fn gather(chosen: usize, callers: Range<usize>) -> Self {
        let mut library = Self {
            callers,
            functions: [0; NAMES.len()],
            queries: [0; QUERIES.len()],
            own: 0..0,
            is_gnu: false,
            gone: AtomicBool::new(false),
            next: null_mut(),
        };
        let mut reached = false;
        objects::visit(|object| -> ControlFlow<()> {
            reached |= object.holds(chosen);
            if !reached {
                return ControlFlow::Continue(());
            }
            let fill = |function: &mut usize, name: &CStr| {
                if *function == 0 {
                    *function = object.defines(name).unwrap_or(0);
                }
            };
            for (function, name) in library.functions.iter_mut().zip(NAMES) {
                fill(function, name);
            }
            if library.queries[THREAD_NUM] == 0 {
                for (query, name) in library.queries.iter_mut().zip(QUERIES) {
                    fill(query, name);
                }
                // The object that numbers the threads is the runtime itself.
                library.own = object.range();
                library.is_gnu = library.queries[THREAD_NUM] != 0
                    && library.queries[MAX_THREADS] != 0
                    && object.defines(c"__kmpc_fork_call").is_none();
            }
            match library.queries[THREAD_NUM] != 0 && library.functions.iter().all(|&function| function != 0)
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        library
    }

    /// Returns the address of the function `NAMES[at]`, 0 if this libgomp has none.
    pub(super) fn function(&self, at: usize) -> usize {
        self.functions.get(at).copied().unwrap_or(0)
    }

    /// Returns the calling thread's number in its team.
    pub(super) fn thread_number(&self) -> u32 {
        number(self.queries[THREAD_NUM])
    }

    /// Returns the most threads that a team opened without a number has.
    pub(super) fn threads_most(&self) -> u32 {
        number(self.queries[MAX_THREADS])
    }

    /// Describes the team that the calling thread is about to open with this number of threads, 0
    /// for none.
    pub(super) fn wanted(&self, threads: u32) -> Wanted {
        let level = number(self.queries[LEVEL]);
        let is_serial =
            level > 0 && number(self.queries[ACTIVE_LEVEL]) >= number(self.queries[ACTIVE_LEVELS_MAX]);
        let wanted = match threads {
            _ if is_serial => 1,
            0 => self.threads_most().max(1),
            threads => threads,
        };
        Wanted {
            threads: wanted,
            numbered: threads != 0,
            dynamic: number(self.queries[DYNAMIC]) != 0,
            inside: (level > 0).then(|| self.position(level)),
        }
    }

    /// Returns the position of the calling thread in its teams.
    fn position(&self, level: u32) -> Inside {
        (1..=level.min(LEVELS_MAX)).fold(Inside::none(), |inside, level| {
            let of = |query: usize| number_of(self.queries[query], level);
            inside.then(of(TEAM_SIZE), of(ANCESTOR))
        })
    }
}

/// Bound of the levels of teams that are examined.
const LEVELS_MAX: u32 = 16;

fn number(function: usize) -> u32 {
    if function == 0 {
        return 0;
    }
    // SAFETY: the address of a query, which takes nothing and gives an int.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn() -> c_int>(function) };
    u32::try_from(function()).unwrap_or(0)
}

/// Does the same for a query about a level.
fn number_of(function: usize, level: u32) -> u32 {
    if function == 0 {
        return 0;
    }
    // SAFETY: the address of `omp_get_team_size` or `omp_get_ancestor_thread_num`, which take a
    // level and give an int.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int) -> c_int>(function) };
    u32::try_from(function(level as c_int)).unwrap_or(0)
}
