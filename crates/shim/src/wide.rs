//! Mask of programs started from a bound thread: the mask of the whole run, not that thread's one
//! CPU.
//!
//! A new program inherits the mask of the thread that starts it, and would stay on one CPU. `fork`
//! is handled by its handlers ([`fork`]); exec, `posix_spawn`, `system` and `popen` are interposed
//! here. So are calls that read a thread's own mask: a root thread that lingers in the place of its
//! last region must get its own mask. A mask that the program set by itself is left to the program,
//! and is inherited.
//!
//! `execl`, `execlp` and `execle` take any number of arguments. They are entered by a few
//! instructions that widen the thread's mask and then jump to the real function with unchanged
//! registers and stack.

use crate::holders::HOLDERS;
use crate::plan::{self, AppliedPlan};
use crate::{cpus::Cpus, fork, nest, slots};

/// Widens the calling thread's mask permanently, if this library narrowed it: an exec follows, or a
/// runtime starts that counts CPUs by system calls. If the exec fails, the next team places a
/// thread of a team again, and a thread on a slot of its own stays in the mask.
///
/// Also runs in the child of a `vfork`, on its parent's memory, and changes nothing there that
/// would be wrong for the parent.
pub(crate) fn for_good() {
    nest::widen_until_next_team();
    if let Some(plan) = plan::to_undo().filter(|plan| is_on_its_slot(plan)) {
        plan.mask().confine_this_thread();
    }
}

/// Runs `work`, which starts a program by itself, with a mask that the program may inherit.
pub(crate) fn around<T>(work: impl FnOnce() -> T) -> T {
    nest::relax();
    let mut before = Cpus::new();
    let ours = |plan: &&AppliedPlan| nest::is_narrowed() || is_on_its_slot(plan);
    let Some(plan) = plan::to_undo().filter(ours).filter(|_| before.read_this_thread()) else {
        return work();
    };
    plan.mask().confine_this_thread();
    let result = work();
    before.confine_this_thread();
    result
}

/// Returns whether the calling thread has exactly the mask of the slot that the plan gives it, and
/// the program did not set this mask.
pub(crate) fn is_on_its_slot(plan: &AppliedPlan) -> bool {
    let slot = match slots::of_this_thread() {
        Some(turn) if HOLDERS.is_set(turn) => return false,
        Some(turn) => slots::slot_of(turn, plan.slots()),
        // An OpenMP runtime puts the initial thread there.
        None if fork::is_initial_thread() => 0,
        None => return false,
    };
    let mut mask = Cpus::new();
    mask.read_this_thread() && plan.is_slot(slot, &mask)
}
