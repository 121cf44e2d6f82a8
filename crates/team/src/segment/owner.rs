//! Owner process of a rank, as the kernel reports it.
//!
//! **Problem.** A rank that reads a peer's memory needs the identity of the peer's process. Any
//! process of the team may have written the process number in the segment, and could so redirect a
//! rank's reads to that rank's own memory, or to a third rank's.
//!
//! **Idea.** Until the ranks have agreed, each has a lock of one byte far behind the segment's end
//! (`F_SETLK`). Such a lock belongs to a process, and the kernel returns the owner to any process
//! (`F_GETLK`), by the number that the owner has in the caller's namespace. The call does not
//! return the caller itself: a process has a list of its own ranks.
//!
//! **Properties.** A process that closes any descriptor of the segment loses its locks; the only
//! effect is that the owner is unknown.
use super::memfd::Mapping;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Offset of the lock bytes, far from those of holds ([`super::hold`]).
const BASE: libc::off_t = 1 << 20;

/// Ranks of this process: process, segment (device and number), rank.
static OWN: Mutex<Vec<(u32, Segment, u32)>> = Mutex::new(Vec::new());

/// Identity of a segment, independent of its mapping.
type Segment = (u64, u64);

fn segment(mapping: &Mapping) -> Option<Segment> {
    let about = rustix::fs::fstat(mapping.fd()).ok()?;
    Some((about.st_dev, about.st_ino))
}

fn byte(rank: u32, kind: libc::c_int) -> libc::flock {
    // SAFETY: plain numbers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = BASE + libc::off_t::from(rank);
    lock.l_len = 1;
    lock
}

/// The claim, until dropped, that a rank belongs to this process. Other processes can query it.
#[derive(Debug)]
pub struct RankClaim {
    mapping: Arc<Mapping>,
    entry: (u32, Segment, u32),
}

impl RankClaim {
    /// Claims a rank for this process; `None` if that is not possible.
    pub fn stake(mapping: &Arc<Mapping>, rank: u32) -> Option<Self> {
        let entry = (std::process::id(), segment(mapping)?, rank);
        let lock = byte(rank, libc::F_WRLCK);
        // SAFETY: the call reads the lock that it is given.
        if unsafe { libc::fcntl(mapping.fd().as_raw_fd(), libc::F_SETLK, &raw const lock) } < 0 {
            return None;
        }
        OWN.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Some(Self { mapping: Arc::clone(mapping), entry })
    }

    /// Returns the process of a rank, as long as it claims the rank; `None` if that is unknown.
    pub fn owner(mapping: &Mapping, rank: u32) -> Option<u32> {
        let mut lock = byte(rank, libc::F_WRLCK);
        // SAFETY: the call writes to the lock that it is given.
        if unsafe { libc::fcntl(mapping.fd().as_raw_fd(), libc::F_GETLK, &raw mut lock) } < 0 {
            return None;
        }
        if lock.l_type != libc::F_UNLCK as libc::c_short {
            // A process of another namespace has no number here, and a lock of another kind has no
            // owner.
            return u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0);
        }
        let own = (std::process::id(), segment(mapping)?, rank);
        OWN.lock().unwrap_or_else(PoisonError::into_inner).contains(&own).then_some(own.0)
    }
}

impl Drop for RankClaim {
    fn drop(&mut self) {
        // A forked child has a copy of the list, and no locks.
        OWN.lock().unwrap_or_else(PoisonError::into_inner).retain(|entry| *entry != self.entry);
        if std::process::id() == self.entry.0 {
            let lock = byte(self.entry.2, libc::F_UNLCK);
            // SAFETY: the call reads the lock that it is given.
            unsafe { libc::fcntl(self.mapping.fd().as_raw_fd(), libc::F_SETLK, &raw const lock) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_claims_a_rank_owns_it() {
        let mapping = Arc::new(Mapping::create(4096).unwrap());
        let other = Arc::new(Mapping::create(4096).unwrap());
        assert_eq!(RankClaim::owner(&mapping, 1), None);
        let claim = RankClaim::stake(&mapping, 1).unwrap();
        let own = std::process::id();
        assert_eq!(RankClaim::owner(&mapping, 1), Some(own));
        assert_eq!([RankClaim::owner(&mapping, 0), RankClaim::owner(&other, 1)], [None, None]);
        // SAFETY: the child makes system calls, and ends: the list is not read, since the kernel
        // answers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = RankClaim::owner(&mapping, 1) == Some(own) && RankClaim::stake(&mapping, 1).is_none();
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 1;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        drop(claim);
        assert_eq!(RankClaim::owner(&mapping, 1), None);
    }
}
