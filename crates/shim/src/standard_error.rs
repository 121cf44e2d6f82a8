//! Standard error at the exit of a program that may have closed it, or opened something else under
//! its number.
//!
//! A line that the user did not request must not be written to a data file, wait for a reader, or
//! end the program by a signal. The code uses no symbol of a newer C library.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Device and inode of the standard error with which the process was started; `None` if it was
/// closed.
static FIRST: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Stores the identity of the present standard error.
pub(crate) fn remember() {
    let _ = FIRST.set(identity());
}

/// Writes a line, if standard error is still the same and takes the line at once.
pub(crate) fn write(line: &[u8]) {
    if FIRST.get().copied().flatten().is_none_or(|first| identity() != Some(first)) {
        return;
    }
    let mut poll = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, borrowed for the call.
    if unsafe { libc::poll(&mut poll, 1, 0) } != 1 || poll.revents != libc::POLLOUT {
        return;
    }
    // A reader may close its end in between. The signal for that would end the program, which has
    // no fault in it.
    let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: each set is initialised by the call that gets it first, and read only after that; the
    // thread's mask is put back, and the signal taken away only if it was not pending before.
    unsafe {
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::sigemptyset(pending.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        let was_pending = libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1;
        if libc::sigprocmask(libc::SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr()) != 0 {
            return;
        }
        let written = libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        if written < 0 && !was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(pipe.as_ptr(), std::ptr::null_mut(), &now);
        }
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

fn identity() -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: on the 64-bit machines that the library supports, the kernel's structure is the C
    // library's.
    let status = unsafe { libc::syscall(libc::SYS_fstat, libc::STDERR_FILENO, found.as_mut_ptr()) };
    // SAFETY: all zero is a valid value, and the kernel filled it in.
    let found = unsafe { found.assume_init() };
    (status == 0).then_some((found.st_dev, found.st_ino))
}
