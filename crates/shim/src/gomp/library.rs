//! Which libgomp a program's function is linked to, and where its functions are.

use super::calls::Routine;
use crate::objects::{self, Object};
use libc::{c_int, c_void};
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// The functions that are stood in front of, in the order of [`Library::functions`].
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

/// A libgomp as seen by the functions of one object. Leaked: calls may be inside at any time.
pub(super) struct Library {
    /// The object whose functions call it.
    callers: Range<usize>,
    functions: [usize; NAMES.len()],
    thread_number: usize,
    threads_most: usize,
    /// The object of the runtime itself.
    pub(super) own: Range<usize>,
    /// Whether its teams are ours to place: LLVM's family tells the tool instead.
    pub(super) is_gnu: bool,
    /// Whether it or its callers have been unloaded.
    gone: AtomicBool,
    next: *mut Library,
}

static LIBRARIES: AtomicPtr<Library> = AtomicPtr::new(null_mut());

/// `GOMP_parallel` of the first object that the program started with and that has it; 0 when there is none.
static AT_START: AtomicUsize = AtomicUsize::new(0);

/// Notes what runtime the program starts with. The loader asks these objects first whatever a library opened later says it
/// needs, and binds its other OpenMP calls to them: all of them must end in the same runtime.
pub(crate) fn note_start() {
    let mut behind = Behind::default();
    let first = objects::visit(|object| match behind.runtime_in(object) {
        Some(function) => ControlFlow::Break(function),
        None => ControlFlow::Continue(()),
    });
    AT_START.store(first.unwrap_or(0), Relaxed);
}

/// Which of the objects, as they are visited, lie behind this library: those that `RTLD_NEXT` would ask. One before it may
/// stand in front of these functions too, and count on us to go on behind.
#[derive(Default)]
struct Behind(bool);

impl Behind {
    /// `GOMP_parallel` of an object behind this library.
    fn runtime_in(&mut self, object: &Object<'_>) -> Option<usize> {
        if object.holds(of as *const c_void as usize) {
            self.0 = true;
            return None;
        }
        object.defines(NAMES[0]).filter(|_| self.0)
    }
}

/// Forgets what was learned of objects that have been unloaded: another may lie there soon.
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

/// The libgomp of a function of the program; `None` where there is none at all.
pub(super) fn of(routine: Routine) -> Option<&'static Library> {
    of_address((routine as *const c_void).addr())
}

/// The libgomp that code at this address calls.
pub(super) fn of_address(address: usize) -> Option<&'static Library> {
    let found = known().find(|library| library.callers.contains(&address) && !library.gone.load(Relaxed));
    if found.is_some() {
        return found;
    }
    find(address)
}

#[cold]
fn find(address: usize) -> Option<&'static Library> {
    let mut callers = address..address.saturating_add(1); // code that no object holds is known by itself
    // The first that defines it is who would be called without us.
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
        // The program itself means the first, whatever else has the same name.
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
    /// Every function as it is found from the object with this one on: one that only stands in front of some leaves the
    /// others to who is behind it.
    fn gather(chosen: usize, callers: Range<usize>) -> Self {
        let mut library = Self {
            callers,
            functions: [0; NAMES.len()],
            thread_number: 0,
            threads_most: 0,
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
            if library.thread_number == 0 {
                fill(&mut library.thread_number, c"omp_get_thread_num");
                fill(&mut library.threads_most, c"omp_get_max_threads");
                // Who numbers the threads is the runtime itself.
                library.own = object.range();
                library.is_gnu = library.thread_number != 0
                    && library.threads_most != 0
                    && object.defines(c"__kmpc_fork_call").is_none();
            }
            match library.thread_number != 0 && library.functions.iter().all(|&function| function != 0) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        library
    }

    /// The address of the function `NAMES[at]`, 0 where this libgomp has none.
    pub(super) fn function(&self, at: usize) -> usize {
        self.functions.get(at).copied().unwrap_or(0)
    }

    /// The calling thread's number in its team.
    pub(super) fn thread_number(&self) -> u32 {
        number(self.thread_number)
    }

    /// How many threads a team has at most that is opened without a number.
    pub(super) fn threads_most(&self) -> u32 {
        number(self.threads_most)
    }
}

fn number(function: usize) -> u32 {
    if function == 0 {
        return 0;
    }
    // SAFETY: the address of `omp_get_thread_num` or `omp_get_max_threads`, which take nothing and give an int.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn() -> c_int>(function) };
    u32::try_from(function()).unwrap_or(0)
}
