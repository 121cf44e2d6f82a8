//! What a forked child inherits: the plan's mask, not its parent thread's slot.
//!
//! A child is a program of its own and lives inside the mask. It inherits the mask of the one thread that forked, and
//! where that is a slot, all of the child would run there. So the child is widened again: when the thread that forked
//! was pinned here, or was the initial thread with the mask of slot 0, which is where an OpenMP runtime puts it. A
//! thread whose mask is anything else was placed by the program, and so is its child.
//!
//! `vfork` and `posix_spawn` run no handlers, and an exec keeps a mask: programs started from a pinned thread in these
//! ways stay on its slot.

use crate::plan::{self, Plan};
use crate::{cpus::Cpus, slots};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Whether this process is the planned one, or was until it forked.
static PLANNED: AtomicBool = AtomicBool::new(false);
/// The initial thread, as `pthread_self` names it: before and after a fork alike.
static INITIAL: AtomicUsize = AtomicUsize::new(0);

/// Starts to watch for forks, in the planned process. Called on the initial thread.
pub(crate) fn watch(plan: &Plan) {
    if plan.governs_this_process() {
        INITIAL.store(this_thread(), Relaxed);
        PLANNED.store(true, Relaxed);
        // SAFETY: the handler lives as long as the process, the library being `nodelete`, and does only what a
        // handler may: system calls and its own static state. Failure means only that children are not widened.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Runs in every child, on its only thread. Leaves `errno` alone, since `fork` reports through it.
extern "C" fn forked() {
    if !PLANNED.swap(false, Relaxed) {
        return; // a grandchild
    }
    // SAFETY: the location is valid in the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(plan) = plan::current() {
        widen(plan);
    }
    slots::unsettle();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn widen(plan: &Plan) {
    let slot = match slots::of_this_thread() {
        Some(turn) => slots::slot_of(turn, plan.slots()),
        None if this_thread() == INITIAL.load(Relaxed) => 0,
        None => return,
    };
    let mut mask = Cpus::new();
    if mask.read_this_thread() && plan.is_slot(slot, &mask) {
        plan.mask().confine_this_thread();
    }
}

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}
