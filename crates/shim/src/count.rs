//! Number of CPUs that the program sees.
//!
//! Programs read the count for two purposes, and one answer must serve both. Some size thread pools
//! by it: an affinity mask answers most of them, but these calls ignore masks and report the
//! machine. Others take it for a bound of CPU *numbers*: `libnuma` drops CPUs above it, and
//! allocators and counters size arrays by it that they index with `sched_getcpu`. jemalloc has
//! arenas for each CPU only if "online" and "configured" are the same number.
//!
//! So "online" and "configured" are one number, the last CPU of the plan's mask plus one, and never
//! more than the C library reports. In a plan that begins at CPU 0, this is the number of its CPUs.
//! In a plan of CPUs 8-11 it is 12: more threads than CPUs, but fewer than under `taskset`, and no
//! CPU beyond the end of an array. The calling thread's mask is not suitable: a thread on a slot
//! would get the answer 1.
//!
//! There is one exception. Under a CPU quota, or with `--threads`, fewer threads are worth starting
//! than the mask has CPUs, and "online" is that smaller number. Threads beyond a quota only use it
//! up sooner, and all of them then stop for the rest of each period, also a thread that holds a
//! lock. "Configured" remains the bound of CPU numbers.
//!
//! The answer is the same in the planned process and in its children that carry the library.

use crate::plan;
use libc::c_long;

/// Returns the number of CPUs online, given the C library's number `machine`.
pub(crate) fn online(machine: impl FnOnce() -> c_long) -> c_long {
    match plan::current().and_then(|plan| plan.fewer_threads()) {
        Some(threads) => clamp(threads),
        None => configured(machine),
    }
}

/// Returns the number of CPUs configured, given the C library's number `machine`.
pub(crate) fn configured(machine: impl FnOnce() -> c_long) -> c_long {
    let machine = machine();
    match plan::current() {
        Some(plan) if machine > 0 => machine.min(clamp(plan.mask().end())),
        _ => machine,
    }
}

fn clamp(cpus: usize) -> c_long {
    c_long::try_from(cpus).unwrap_or(c_long::MAX)
}
