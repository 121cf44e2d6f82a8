//! The error of the system call that just failed.

use rustix::io::Errno;

/// What the C library kept for this thread; to be asked at once after a failed call, before anything else runs.
pub(super) fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
