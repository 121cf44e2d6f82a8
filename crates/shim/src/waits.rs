//! Barriers of the C library, and yields: counted where somebody wants to know, and else passed on.

use crate::meter::{self, Lead};
use crate::real;
use libc::{c_int, c_void};
use trimtab_core::place::runtimes::Runtime;

/// A barrier of POSIX threads. The one thread that it names each time counts the interval.
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
    meter::meet(|| Runtime::Pthread, work, leads)
}

/// Lets others run.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C-unwind" fn sched_yield() -> c_int {
    if meter::is_on() {
        meter::yielded();
    }
    real::sched_yield()
}
