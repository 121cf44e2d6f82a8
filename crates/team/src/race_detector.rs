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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// Names of the runtime's functions.
const NAMES: [&std::ffi::CStr; 6] = [
    c"__tsan_release",
    c"__tsan_acquire",
    c"AnnotateIgnoreReadsBegin",
    c"AnnotateIgnoreWritesBegin",
    c"AnnotateIgnoreReadsEnd",
    c"AnnotateIgnoreWritesEnd",
];

/// Addresses of these functions, once they were searched. Atomic, because the detector would report
/// the accesses to any other kind of cell.
static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
static SEARCHED: AtomicBool = AtomicBool::new(false);

impl RaceDetector {
    /// Returns the detector in this process, if there is one.
    pub(crate) fn of_process() -> Option<Self> {
        if !SEARCHED.load(Ordering::Acquire) {
            // Threads that search at the same time find the same.
            for (found, name) in FOUND.iter().zip(NAMES) {
                // SAFETY: the name is a C string.
                let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
                found.store(address.expose_provenance(), Ordering::Relaxed);
            }
            SEARCHED.store(true, Ordering::Release);
        }
        let address = |at: usize| {
            let address = FOUND[at].load(Ordering::Relaxed);
            (address != 0).then(|| std::ptr::with_exposed_provenance::<c_void>(address))
        };
        // SAFETY: not null, and of this type in ThreadSanitizer's interface, which is stable.
        let order = |at| address(at).map(|found| unsafe { std::mem::transmute::<_, OrderFn>(found) });
        // SAFETY: as above.
        let ignore = |at| address(at).map(|found| unsafe { std::mem::transmute::<_, IgnoreFn>(found) });
        Some(Self {
            release: order(0)?,
            acquire: order(1)?,
            ignore: [[ignore(2)?, ignore(3)?], [ignore(4)?, ignore(5)?]],
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
