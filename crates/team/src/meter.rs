//! Meetings, told to who measures this program.
//!
//! Problem: `trimtab profile` wants to know how often the threads of a program meet; a team's calls are inside whatever the program is made
//! of (a shared library, a static one, a module of Python), where nobody from outside can step in between. Idea: the guest library that
//! measures shows the loader one function, which answers where meetings are to be told; a team asks for it once. Where there is no
//! guest, or it does not count, a call costs two comparisons.
//!
//! A blocking call, and the wait for a started one, is a meeting; rank 0 of each team counts the intervals.

use std::ffi::c_int;
use std::sync::OnceLock;

/// Tells a meeting of the calling thread: its beginning and end, in nanoseconds of the monotonic clock, and whether it counts for all.
type Met = unsafe extern "C-unwind" fn(u64, u64, c_int);

/// Where meetings are told.
#[derive(Clone, Copy, Debug)]
pub struct Meter(Met);

impl Meter {
    /// The guest's, if it counts. Looked for once in a process: guests are there from its beginning.
    pub fn of_process() -> Option<Self> {
        static FOUND: OnceLock<Option<Meter>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            // SAFETY: the name is a C string.
            let asked = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"trimtab_meter".as_ptr()) };
            type Ask = unsafe extern "C-unwind" fn() -> Option<Met>;
            // SAFETY: null is `None`; else it is the guest library's function of that name, which is of this type.
            let ask = unsafe { std::mem::transmute::<*mut libc::c_void, Option<Ask>>(asked) }?;
            // SAFETY: it has no preconditions.
            unsafe { ask() }.map(Meter)
        })
    }

    /// Now, as the guest's clock has it.
    pub fn now() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: our own memory.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        u64::try_from(time.tv_sec)
            .unwrap_or_default()
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
    }

    /// A meeting that ends now.
    #[cold]
    pub fn met(self, begin: u64, first: bool) {
        // SAFETY: it has no preconditions.
        unsafe { (self.0)(begin, Self::now(), c_int::from(first)) };
    }
}
