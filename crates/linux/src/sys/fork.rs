//! A second process that goes on from here.

use super::errno;
use rustix::io::Errno;

/// Which of the two processes this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The new one.
    Child,
    /// The old one; the new one has this number.
    Parent(u32),
}

/// Makes a second process. Only for a process of one thread: what other threads had locked would stay locked in the child.
///
/// # Errors
/// `EDEADLK` when this process has more threads, or its threads cannot be counted; `EAGAIN` when the user may have no more
/// processes; `ENOMEM`.
pub fn fork() -> Result<Side, Errno> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(0);
    if threads != 1 {
        return Err(Errno::DEADLK);
    }
    // SAFETY: the process has one thread, as just counted and as only that thread could change, so that the child may do
    // whatever this process may; no memory is passed.
    match unsafe { libc::fork() } {
        0 => Ok(Side::Child),
        child => u32::try_from(child).map(Side::Parent).map_err(|_| errno::last()),
    }
}
