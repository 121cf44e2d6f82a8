//! Barriers of the C library, and yields: counted if a reader of the counts exists, and passed on.

use crate::meter::{self, Lead};
use crate::real;
use libc::{c_int, c_void};
use trimtab_core::place::runtimes::Runtime;

/// Waits at a barrier of POSIX threads. The thread that the barrier singles out counts the
/// interval.
///
/// # Safety
/// As `pthread_barrier_wait(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    let work = || unsafe { real::pthread_barrier_wait(barrier) };
    let leads = |answer: &c_int, end| match *answer == libc::PTHREAD_BARRIER_SERIAL_THREAD {
        true => Lead::of_barrier(barrier.addr(), end),
        false => Lead::No,
    };
    meter::count_barrier(|| Runtime::Pthread, work, leads)
}

/// Yields the CPU.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C-unwind" fn sched_yield() -> c_int {
    if meter::is_on() {
        meter::count_yield();
    }
    real::sched_yield()
}
