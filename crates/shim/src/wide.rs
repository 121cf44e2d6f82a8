//! Programs started from a bound thread: they get the mask of the whole run, not the one CPU of that thread.
//!
//! A new program inherits the mask of the thread that starts it, and would live on one CPU for ever. `fork` is seen by its
//! handlers ([`fork`]); an exec, `posix_spawn`, `system` and `popen` are stood in front of here. So is a
//! thread's question for its own mask, which a root that lingers in the place of its last region must answer with its own
//! mask. What the program bound by itself is its business, and is handed on.
//!
//! `execl`, `execlp` and `execle` take any number of arguments. They are entered by a few instructions that widen the
//! thread and then jump to the real function with everything as it was.

use crate::holders::HOLDERS;
use crate::plan::{self, Plan};
use crate::{cpus::Cpus, fork, nest, slots};

/// Widens the calling thread for good, if its mask is our doing: an exec follows, or a runtime starts
/// that counts CPUs by system calls. When the exec fails, a thread of a team is put back by the next
/// team, and a thread on a slot of its own stays in the mask.
///
/// Also runs in the child of a `vfork`, on its parent's memory, and changes nothing there that would be wrong for the
/// parent.
pub(crate) fn for_good() {
    nest::widen_until_next_team();
    if let Some(plan) = plan::to_undo().filter(|plan| is_on_its_slot(plan)) {
        plan.mask().confine_this_thread();
    }
}

/// Does `work`, which starts a program by itself, with a mask that the program may inherit.
pub(crate) fn around<T>(work: impl FnOnce() -> T) -> T {
    nest::relax();
    let mut before = Cpus::new();
    let ours = |plan: &&Plan| nest::is_narrowed() || is_on_its_slot(plan);
    let Some(plan) = plan::to_undo().filter(ours).filter(|_| before.read_this_thread()) else {
        return work();
    };
    plan.mask().confine_this_thread();
    let result = work();
    before.confine_this_thread();
    result
}

/// Whether the calling thread has exactly the mask of the slot that the plan gives it, and not by the
/// program's order.
pub(crate) fn is_on_its_slot(plan: &Plan) -> bool {
    let slot = match slots::of_this_thread() {
        Some(turn) if HOLDERS.is_set(turn) => return false,
        Some(turn) => slots::slot_of(turn, plan.slots()),
        // Where an OpenMP runtime puts the initial thread.
        None if fork::is_initial_thread() => 0,
        None => return false,
    };
    let mut mask = Cpus::new();
    mask.read_this_thread() && plan.is_slot(slot, &mask)
}
