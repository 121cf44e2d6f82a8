//! The runtime that code of a program is linked to, and the addresses of its functions.

use crate::budget::callers;
use crate::linked::{self, Linked};
use crate::objects;
use crate::omp::Queries;
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use trimtab_core::budget::count_use::CountUse;
use trimtab_core::budget::share::Inside;

/// Functions of the runtime, in the order of [`Library::functions`]. All but the last are
/// interposed.
pub(super) const NAMES: [&CStr; 8] = [
    c"__kmpc_fork_call",
    c"__kmpc_fork_call_if",
    c"__kmpc_push_num_threads",
    c"__kmpc_push_num_threads_strict",
    c"__kmpc_push_num_threads_list",
    c"__kmpc_push_num_threads_list_strict",
    c"__kmpc_serialized_parallel",
    c"__kmpc_global_thread_num",
];
pub(super) const FORK: usize = 0;
pub(super) const FORK_IF: usize = 1;
pub(super) const PUSH: usize = 2;
pub(super) const PUSH_STRICT: usize = 3;
pub(super) const PUSH_LIST: usize = 4;
pub(super) const PUSH_LIST_STRICT: usize = 5;
pub(super) const SERIAL: usize = 6;
pub(super) const THREAD: usize = 7;

/// A runtime as the functions of one object see it. Leaked: calls may be inside at any time.
pub(super) struct Library {
    /// Address range of the object that calls this runtime.
    callers: Range<usize>,
    functions: [usize; NAMES.len()],
    pub(super) queries: Queries,
    /// Use that the callers make of the number of threads which they request.
    pub(super) count: CountUse,
    /// Address range of the runtime itself.
    pub(super) own: Range<usize>,
    /// Whether the runtime or its callers have been unloaded.
    gone: AtomicBool,
    next: *mut Library,
}

static LIBRARIES: AtomicPtr<Library> = AtomicPtr::new(null_mut());

/// Drops unloaded objects: another object may be loaded at the same address.
pub(crate) fn forget() {
    for library in known().filter(|library| !library.gone.load(Relaxed)) {
        if !linked::is_loaded(&library.callers, library.functions[FORK]) {
            library.gone.store(true, Relaxed);
        }
    }
}

fn known() -> impl Iterator<Item = &'static Library> {
    // SAFETY: null, or leaked before it was published.
    let follow = |at: *mut Library| unsafe { at.as_ref() };
    std::iter::successors(follow(LIBRARIES.load(Acquire)), move |library| follow(library.next))
}

/// Returns the position of the calling thread in the teams of the runtimes known so far; `None`
/// outside all teams.
pub(crate) fn inside() -> Option<Inside> {
    known().filter(|library| !library.gone.load(Relaxed)).find_map(|library| library.queries.inside())
}

/// Returns the runtime that code at this address calls; `None` if there is none at all.
pub(super) fn of(address: usize) -> Option<&'static Library> {
    let found = known().find(|library| library.callers.contains(&address) && !library.gone.load(Relaxed));
    if found.is_some() {
        return found;
    }
    find(address)
}

#[cold]
fn find(address: usize) -> Option<&'static Library> {
    let Linked { callers, function } = linked::of(address, NAMES[FORK])?;
    let made = Box::leak(Box::new(Library::gather(function, callers)));
    let mut head = LIBRARIES.load(Acquire);
    loop {
        made.next = head;
        match LIBRARIES.compare_exchange_weak(head, made, AcqRel, Acquire) {
            Ok(_) => return Some(made),
            Err(other) => head = other,
        }
    }
}

impl Library {
    /// Gathers the functions of the object that defines `chosen`, and those that it has not from
    /// the objects behind it: another tool may interpose some of them only.
    fn gather(chosen: usize, callers: Range<usize>) -> Self {
        let count = callers::count_use_at(callers.start);
        let mut library = Self {
            callers,
            functions: [0; NAMES.len()],
            queries: Queries::NONE,
            count,
            own: 0..0,
            gone: AtomicBool::new(false),
            next: null_mut(),
        };
        let mut reached = false;
        objects::visit(|object| -> ControlFlow<()> {
            reached |= object.holds(chosen);
            if !reached {
                return ControlFlow::Continue(());
            }
            let is_runtime = object.defines(NAMES[FORK]).is_some();
            for (function, name) in library.functions.iter_mut().zip(NAMES) {
                if *function == 0 && is_runtime {
                    *function = object.defines(name).unwrap_or(0);
                }
            }
            if is_runtime && !library.queries.has_thread_number() {
                library.queries = Queries::of(object);
                library.own = object.range();
            }
            match library.queries.has_thread_number() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        library
    }

    /// Returns the address of the function `NAMES[at]`, 0 if this runtime has none.
    pub(super) fn function(&self, at: usize) -> usize {
        self.functions.get(at).copied().unwrap_or(0)
    }
}
