//! Mask of a forked child: the plan's mask, not its parent thread's slot.
//!
//! A child is an independent program and runs inside the mask. It inherits the mask of the thread
//! that forked. If that mask is a slot, all of the child would run there. So the child's mask is
//! widened again in two cases: the thread that forked was pinned here, or it was the initial thread
//! with the mask of slot 0, which is where an OpenMP runtime puts it. A thread with any other mask,
//! or with a mask set by the program, was placed by the program, and so is its child.
//!
//! `wide` handles programs that are started in other ways.

use crate::plan::{self, AppliedPlan};
use crate::{nest, slots, wide};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Whether this process is the planned process, or was until it forked.
static PLANNED: AtomicBool = AtomicBool::new(false);
/// The initial thread as `pthread_self` names it; the same before and after a fork.
static INITIAL: AtomicUsize = AtomicUsize::new(0);

/// Starts to watch for forks in the planned process. Called on the initial thread.
pub(crate) fn watch(plan: &AppliedPlan) {
    if plan.governs_this_process() {
        INITIAL.store(this_thread(), Relaxed);
        PLANNED.store(true, Relaxed);
        // SAFETY: the handler lives as long as the process, the library being `nodelete`, and does
        // only what a handler may do: system calls and its own static state. Failure means only
        // that children are not widened.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Runs in every child, on its only thread. Keeps `errno`, since `fork` reports through it.
extern "C" fn forked() {
    if !PLANNED.load(Relaxed) {
        return; // a grandchild
    }
    // SAFETY: the location is valid in the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    nest::forget_in_child();
    if let Some(plan) = plan::to_undo().filter(|plan| wide::is_on_its_slot(plan)) {
        plan.mask().confine_this_thread();
    }
    PLANNED.store(false, Relaxed);
    slots::unsettle();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns whether the calling thread is the initial thread of the planned process.
pub(crate) fn is_initial_thread() -> bool {
    PLANNED.load(Relaxed) && this_thread() == INITIAL.load(Relaxed)
}

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}
