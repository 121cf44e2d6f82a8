//! Fork of a process that has one thread.

use super::errno;
use rustix::io::Errno;
use std::time::Duration;

/// The side of the fork that this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkSide {
    /// The new process.
    Child,
    /// The old process, with the number of the new one.
    Parent(u32),
}

/// Number of checks for a single thread, and the pause between two. Chosen: together one second.
const CHECKS_MAX: u32 = 200;
const CHECK_PAUSE: Duration = Duration::from_millis(5);

/// Forks the process. Only for a process with one thread: locks that other threads held would stay
/// locked in the child.
///
/// # Errors
/// `EDEADLK` when this process has more threads, or its threads cannot be counted; `EAGAIN` when
/// the user may have no more processes; `ENOMEM`.
pub fn fork() -> Result<ForkSide, Errno> {
    // A thread that was joined may be listed for a moment longer.
    let alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    let mut attempts = 0;
    while !alone() {
        attempts += 1;
        if attempts == CHECKS_MAX {
            return Err(Errno::DEADLK);
        }
        std::thread::sleep(CHECK_PAUSE);
    }
    // SAFETY: the process has one thread, as just counted, and only that thread could change the
    // number. The child may therefore do whatever this process may; no memory is passed.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        child => u32::try_from(child).map(ForkSide::Parent).map_err(|_| errno::last()),
    }
}
