//! Hold of a seat (a rank's place in the segment): a lock that a process loses when it executes
//! another program. It is not a hold of the ledger.
//!
//! **Problem.** A process that calls exec has the same number and start time as before, and its
//! pidfd reports nothing; but its memory, and with it the rank, is lost.
//!
//! **Idea.** A lock of a byte of the segment (`F_OFD_SETLK`) belongs to an open file. Here the file
//! was opened for this lock alone and closes on exec, so the kernel releases the lock when the
//! program is replaced, and when its process ends in any way. Others check whether the byte is
//! locked (`F_OFD_GETLK`). That needs no process number, so it works from other namespaces, too.
//!
//! **Properties.** Exec ends all threads of a process but one, which continues under the number of
//! the first. The end of the other threads is detected by that ([`crate::liveness`]), so only first
//! threads have holds, one descriptor for each. A forked child closes its copies: a hold belongs
//! only to its own process. If the segment cannot be opened again (no /proc), there is no hold, and
//! the seat records that.
use super::memfd::Mapping;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// Descriptors that a forked child closes; 0 is none. As many as the teams that one thread has at a
/// time, with a reserve.
static HELD: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// Runs in a child, right after fork, when it has no other thread: uses only operations that are
/// permitted then.
extern "C" fn forked() {
    for held in &HELD {
        let fd = held.swap(0, Ordering::Relaxed);
        if fd != 0 {
            // SAFETY: a copy of a hold's descriptor: its owner sees by the process number that it
            // is closed.
            unsafe { libc::close(fd) };
        }
    }
}

/// The hold of one seat, until dropped.
#[derive(Debug)]
pub struct Hold {
    fd: Option<OwnedFd>,
    pid: u32,
    place: Option<&'static AtomicI32>,
}

fn byte(rank: u32) -> libc::flock {
    // SAFETY: plain numbers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::from(rank);
    lock.l_len = 1;
    lock
}

impl Hold {
    /// Takes a hold of a seat for this process; `None` if that is not possible, or the seat is held
    /// already.
    pub fn take(mapping: &Mapping, rank: u32) -> Option<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler uses atomics and closes descriptors, which a forked child may do.
            unsafe {
                libc::pthread_atfork(None, None, Some(forked));
            }
        });
        let path = format!("/proc/self/fd/{}", mapping.fd().as_raw_fd());
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).ok()?;
        let fd = OwnedFd::from(file);
        let lock = byte(rank);
        // SAFETY: the call reads the lock that it is given.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } < 0 {
            return None;
        }
        let number = fd.as_raw_fd();
        let place = HELD
            .iter()
            .find(|held| held.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok());
        Some(Self { fd: Some(fd), pid: std::process::id(), place })
    }

    /// Returns whether the seat is held. True if that cannot be seen.
    pub fn is_held(mapping: &Mapping, rank: u32) -> bool {
        let mut lock = byte(rank);
        // SAFETY: the call writes to the lock that it is given.
        let asked = unsafe { libc::fcntl(mapping.fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        asked < 0 || lock.l_type != libc::F_UNLCK as libc::c_short
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        if std::process::id() == self.pid {
            place.store(0, Ordering::Relaxed);
        } else if let Some(fd) = self.fd.take() {
            // The descriptor was closed when this process was forked; its number may belong to
            // another file now.
            let _ = fd.into_raw_fd();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    #[test]
    fn a_hold_is_exclusive_and_a_forked_child_has_none() {
        let mapping = Mapping::create(4096).unwrap();
        assert!(!Hold::is_held(&mapping, 1));
        let hold = Hold::take(&mapping, 1).unwrap();
        assert!(Hold::is_held(&mapping, 1) && !Hold::is_held(&mapping, 0));
        assert!(Hold::take(&mapping, 1).is_none());
        // A child that lives on does not keep a hold that its parent has given up.
        let mut pipe = [0; 2];
        // SAFETY: two numbers to fill.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: just made, and not owned elsewhere.
        let [reads, writes] = pipe.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the child makes system calls alone, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; the pipe ends when the parent closes it.
            unsafe {
                libc::close(writes.as_raw_fd());
                libc::read(reads.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
        drop(hold);
        // The child may not have closed its copy yet.
        let begin = std::time::Instant::now();
        while Hold::is_held(&mapping, 1) && begin.elapsed().as_secs() < 20 {}
        let freed = !Hold::is_held(&mapping, 1);
        drop(writes);
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(freed);
    }
}
