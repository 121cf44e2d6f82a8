//! A race detector in this process, ThreadSanitizer, that is told what a team's calls order.
//!
//! **Problem.** ThreadSanitizer knows the order of memory accesses from the synchronisation that it
//! sees, and it does not see into this library. For threads that exchange data by a team it would
//! report races that are none.
//!
//! **Idea.** Its runtime exports functions for such libraries. At the begin of a call a rank
//! announces that its earlier accesses precede the call, and at the end that it continues after all
//! ranks that have begun a call. In between, the library's own accesses are ignored, because they
//! are ordered by flags. The functions are searched once in a process; without the runtime, a call
//! costs the same comparison as without a meter ([`crate::meter`]).
//!
//! **Limit.** A rank is ordered after all ranks that have called, also in a call that waits for
//! fewer: a race between such ranks is not reported.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// `__tsan_acquire` and `__tsan_release`.
type OrderFn = unsafe extern "C" fn(*mut c_void);
/// `AnnotateIgnoreReadsBegin` and its siblings: with the name of a file and a line.
type IgnoreFn = unsafe extern "C" fn(*const c_char, c_int);

/// The runtime of a race detector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaceDetector {
    release: OrderFn,
    acquire: OrderFn,
    /// Reads and writes: first the begin of each, then the end.
    ignore: [[IgnoreFn; 2]; 2],
}

/// Returns an exported function of the process.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn exported<F: Copy>(name: &std::ffi::CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: not null, and so the function, which is of this type by the caller's promise.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

impl RaceDetector {
    /// Returns the detector in this process, if there is one.
    pub(crate) fn of_process() -> Option<Self> {
        static FOUND: OnceLock<Option<RaceDetector>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            // SAFETY: the types are those of ThreadSanitizer's interface, which is stable.
            unsafe {
                Some(RaceDetector {
                    release: exported(c"__tsan_release")?,
                    acquire: exported(c"__tsan_acquire")?,
                    ignore: [
                        [exported(c"AnnotateIgnoreReadsBegin")?, exported(c"AnnotateIgnoreWritesBegin")?],
                        [exported(c"AnnotateIgnoreReadsEnd")?, exported(c"AnnotateIgnoreWritesEnd")?],
                    ],
                })
            }
        })
    }

    /// Announces that this thread's earlier accesses precede a call of the team at `team`.
    pub(crate) fn release(self, team: *const u8) {
        // SAFETY: an address alone.
        unsafe { (self.release)(team.cast_mut().cast()) };
    }

    /// Announces that this thread's later accesses come after all releases so far.
    pub(crate) fn acquire(self, team: *const u8) {
        // SAFETY: as above.
        unsafe { (self.acquire)(team.cast_mut().cast()) };
    }

    /// Begins a call of the team at `team`, which ends when the value is dropped.
    pub(crate) fn call(self, team: *const u8) -> ObservedCall {
        self.release(team);
        self.each(0);
        ObservedCall { detector: self, team }
    }

    fn each(self, which: usize) {
        for ignore in self.ignore[which] {
            // SAFETY: a file's name that stays, and a line.
            unsafe { ignore(c"trimtab-team".as_ptr(), 0) };
        }
    }
}

/// A call under way.
pub(crate) struct ObservedCall {
    detector: RaceDetector,
    team: *const u8,
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        self.detector.each(1);
        self.detector.acquire(self.team);
    }
}
