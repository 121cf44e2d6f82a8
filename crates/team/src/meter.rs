//! Reports of a team's barriers and collectives to a shim that measures this program.
//!
//! Problem: `trimtab profile` counts how often the threads of a program synchronise. A team's calls
//! are inside the program (in a shared library, a static one, a module of Python), where code from
//! outside cannot intercept them. Idea: the shim that measures exports one function to the dynamic
//! loader, which returns where to report; a team reads it once. Without a shim, or if the shim does
//! not count, a call costs two comparisons.
//!
//! A blocking call, and the wait for a started one, are reported; rank 0 of each team counts the
//! intervals.

use std::ffi::c_int;
use std::sync::OnceLock;

/// Reports a barrier or collective of the calling thread: its begin and end, in nanoseconds of the
/// monotonic clock, and whether it counts for all ranks.
type ReportFn = unsafe extern "C-unwind" fn(u64, u64, c_int);

/// Receiver of the reports.
#[derive(Clone, Copy, Debug)]
pub struct Meter(ReportFn);

impl Meter {
    /// Returns the shim's receiver, if the shim counts. Searched once in a process: a shim is
    /// loaded at the process's start.
    pub fn of_process() -> Option<Self> {
        static FOUND: OnceLock<Option<Meter>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            // SAFETY: the name is a C string.
            let asked = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"trimtab_meter".as_ptr()) };
            type Ask = unsafe extern "C-unwind" fn() -> Option<ReportFn>;
            // SAFETY: null is `None`; else it is the shim's function of that name, which is of this
            // type.
            let ask = unsafe { std::mem::transmute::<*mut libc::c_void, Option<Ask>>(asked) }?;
            // SAFETY: it has no preconditions.
            unsafe { ask() }.map(Meter)
        })
    }

    /// Returns the current time of the clock that the shim uses.
    pub fn now() -> u64 {
        nanoseconds_of(libc::CLOCK_MONOTONIC)
    }

    /// Reports a barrier or collective that ends now.
    #[cold]
    pub fn report(self, begin: u64, first: bool) {
        // SAFETY: it has no preconditions.
        unsafe { (self.0)(begin, Self::now(), c_int::from(first)) };
    }
}

/// Returns the time of a clock in nanoseconds.
pub(crate) fn nanoseconds_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: memory of this function.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec)
        .unwrap_or_default()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}
