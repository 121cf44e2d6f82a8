//! The libgomp that a program's function is linked to, and the addresses of its functions.

use super::Routine;
use crate::budget::Wanted;
use crate::budget::callers;
use crate::linked::{self, Linked};
use crate::objects;
use crate::omp::Queries;
use libc::c_void;
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use trimtab_core::budget::count_use::CountUse;
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

/// A libgomp as the functions of one object see it. Leaked: calls may be inside at any time.
pub(super) struct Library {
    /// Address range of the object that calls this libgomp.
    callers: Range<usize>,
    functions: [usize; NAMES.len()],
    pub(super) queries: Queries,
    /// Use that the callers make of the number of threads which they request.
    count: CountUse,
    /// Address range of the runtime itself.
    pub(super) own: Range<usize>,
    /// Whether the shim places this runtime's teams: LLVM's family reports to the tool instead.
    pub(super) is_gnu: bool,
    /// Whether the runtime or its callers have been unloaded.
    gone: AtomicBool,
    next: *mut Library,
}

static LIBRARIES: AtomicPtr<Library> = AtomicPtr::new(null_mut());

/// Drops unloaded objects: another object may be loaded at the same address.
pub(crate) fn forget() {
    for library in known().filter(|library| !library.gone.load(Relaxed)) {
        if !linked::is_loaded(&library.callers, library.functions[0]) {
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
    let Linked { callers, function } = linked::of(address, NAMES[0])?;
    Some(publish(Library::gather(function, callers)))
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
        let callers_start = callers.start;
        let mut library = Self {
            callers,
            functions: [0; NAMES.len()],
            queries: Queries::NONE,
            count: callers::count_use_at(callers_start),
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
            if !library.queries.has_thread_number() {
                library.queries = Queries::of(object);
                // The object that numbers the threads is the runtime itself.
                library.own = object.range();
                library.is_gnu = library.queries.are_whole() && object.defines(c"__kmpc_fork_call").is_none();
            }
            match library.queries.has_thread_number()
                && library.functions.iter().all(|&function| function != 0)
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

    /// Describes the team that the calling thread is about to open with this number of threads, 0
    /// for none.
    pub(super) fn wanted(&self, threads: u32) -> Wanted {
        self.queries.wanted(threads).of_library(self.count)
    }
}

/// Returns the position of the calling thread in the teams of the runtimes known so far; `None`
/// outside all teams.
pub(crate) fn inside() -> Option<Inside> {
    known().filter(|library| !library.gone.load(Relaxed)).find_map(|library| library.queries.inside())
}
