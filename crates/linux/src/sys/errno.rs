//! The error of the system call that just failed.

use rustix::io::Errno;

/// Returns the C library's error number of this thread. To be called directly after a failed call,
/// before any other code runs.
pub(super) fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
