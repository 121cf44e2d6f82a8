//! A second process that goes on from here.

use super::errno;
use rustix::io::Errno;
use std::time::Duration;

/// Which of the two processes this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The new one.
    Child,
    /// The old one; the new one has this number.
    Parent(u32),
}

/// How often it is looked whether this process has one thread, and how long in between. Chosen: together a second.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Makes a second process. Only for a process of one thread: what other threads had locked would stay locked in the child.
///
/// # Errors
/// `EDEADLK` when this process has more threads, or its threads cannot be counted; `EAGAIN` when the user may have no more
/// processes; `ENOMEM`.
pub fn fork() -> Result<Side, Errno> {
    // A thread that was joined may be listed for a moment longer.
    let alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    let mut attempts = 0;
    while !alone() {
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err(Errno::DEADLK);
        }
        std::thread::sleep(PAUSE);
    }
    // SAFETY: the process has one thread, as just counted and as only that thread could change, so that the child may do
    // whatever this process may; no memory is passed.
    match unsafe { libc::fork() } {
        0 => Ok(Side::Child),
        child => u32::try_from(child).map(Side::Parent).map_err(|_| errno::last()),
    }
}
