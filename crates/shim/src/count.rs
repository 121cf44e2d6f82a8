//! How many CPUs the program is told there are.
//!
//! Programs ask in order to size thread pools. An affinity mask answers most of them; these calls ignore masks and
//! report the machine. Here they report the plan's mask, in the planned process and in its children, which live in
//! the same mask. Not the calling thread's mask: a thread on a slot would be told "one", and size its pool by that.
//!
//! "Online" and "configured" differ. The first is a number of threads worth starting: the CPUs in the mask, or those that a
//! CPU quota pays for where that is fewer. Threads beyond a quota only use it up sooner: all of them then stand still for
//! the rest of each period, whoever holds a lock among them. The second
//! is used as a bound for CPU *numbers*: `libnuma` takes it for the last CPU there is and drops what lies above,
//! programs walk an affinity mask up to it, and some size arrays by it that they index with `sched_getcpu`. In a plan
//! of CPUs 8-11 the answer "4" would lead the first two astray and the third out of bounds. So it is the last CPU of
//! the mask plus one: the same for a plan that starts at CPU 0, never above what the machine would say, never below a
//! CPU number that a thread of the plan can see.

use crate::plan;
use libc::c_int;

/// Threads that have a CPU in the plan's mask, and time on it.
pub(crate) fn usable() -> Option<c_int> {
    plan::current().map(|plan| clamp(plan.threads()))
}

/// One more than the last CPU number of the plan's mask.
pub(crate) fn numbered() -> Option<c_int> {
    plan::current().map(|plan| clamp(plan.mask().end()))
}

fn clamp(cpus: usize) -> c_int {
    c_int::try_from(cpus).unwrap_or(c_int::MAX)
}
