//! Open-file-description byte-range locks.
//!
//! The classic `fcntl` locks belong to a process: they vanish when *any* descriptor of the file is
//! closed, and children do not inherit them. The locks of this module belong to the open file
//! description: they last until the last copy of the descriptor is closed, over exec and in
//! children. Locks of one description never conflict with each other, so a process that wants to
//! see a lock must ask through another description.
//!
//! Checked on Linux 6.18: *asking* works through a read-only descriptor. A write lock needs a
//! descriptor open for writing and a read lock one open for reading, else `EBADF`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Kind of a lock on a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// Shared with other read locks.
    Read,
    /// Exclusive.
    Write,
}

impl LockKind {
    fn code(self) -> libc::c_int {
        match self {
            Self::Read => libc::F_RDLCK,
            Self::Write => libc::F_WRLCK,
        }
    }
}

/// A locked range of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByteLock {
    /// The bytes, end exclusive.
    pub bytes: Range<u64>,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// Locks all of `bytes` for this description, or nothing; returns false if a lock of another
/// description is in the way. Never waits on a local file system.
///
/// # Errors
/// `EBADF` for a descriptor not open for this kind of lock; `ENOLCK` when the kernel has no room;
/// `InvalidInput` for an empty range, which the kernel would read as "to the end of the file".
pub fn try_lock(file: BorrowedFd<'_>, bytes: Range<u64>, kind: LockKind) -> io::Result<bool> {
    let mut request = request(bytes, kind.code())?;
    match fcntl(file, libc::F_OFD_SETLK, &mut request) {
        Ok(()) => Ok(true),
        // Only EAGAIN means a conflict on Linux. EACCES is a refusal by a security module and must
        // not be mistaken for a conflict.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Unlocks every byte within `bytes` that this description has locked, for every copy of the
/// descriptor in every process.
///
/// # Errors
/// `InvalidInput` for an empty range.
pub fn unlock(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<()> {
    let mut request = request(bytes, libc::F_UNLCK)?;
    fcntl(file, libc::F_OFD_SETLK, &mut request)
}

/// Returns one lock of *another* description that touches `bytes`, or `None`. The kernel returns
/// any such lock, not the lowest, and the whole of it, which may reach beyond `bytes`.
///
/// # Errors
/// `InvalidInput` for an empty range.
pub fn conflict(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<Option<ByteLock>> {
    let mut request = request(bytes, libc::F_WRLCK)?;
    fcntl(file, libc::F_OFD_GETLK, &mut request)?;
    let kind = match libc::c_int::from(request.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockKind::Read,
        _ => LockKind::Write,
    };
    let start = u64::try_from(request.l_start).unwrap_or(0);
    let end = match u64::try_from(request.l_len) {
        Ok(0) | Err(_) => END,
        Ok(length) => start.saturating_add(length),
    };
    Ok(Some(ByteLock { bytes: start..end, kind }))
}

/// One past the largest byte that can be locked; the end of locks that reach "to the end of the
/// file".
pub const END: u64 = i64::MAX as u64;

fn request(bytes: Range<u64>, kind: libc::c_int) -> io::Result<libc::flock> {
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    if bytes.is_empty() {
        return Err(refused("an empty range of bytes cannot be locked"));
    }
    let offset =
        |value: u64| i64::try_from(value).map_err(|_| refused("a byte beyond the largest file offset"));
    let (start, length) = (offset(bytes.start)?, offset(bytes.end - bytes.start)?);
    offset(bytes.end)?;
    Ok(libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(|_| refused("an unknown kind of lock"))?,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0, // any other value is EINVAL for locks of this family
    })
}

fn fcntl(file: BorrowedFd<'_>, command: libc::c_int, request: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed and so open for the length of the call; the three commands
    // passed here (F_OFD_SETLK, F_OFD_GETLK) take a pointer to one `struct flock`, which `request`
    // is: initialised in full, exclusively borrowed, read and for GETLK written by the kernel
    // before the call returns, and not kept.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(request)) };
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn two(file: &tempfile::NamedTempFile) -> (File, File) {
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        (open(), open())
    }

    #[test]
    fn a_lock_is_seen_through_another_description_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mine, other) = two(&file);
        assert!(try_lock(mine.as_fd(), 5..9, LockKind::Write).unwrap());
        assert_eq!(conflict(mine.as_fd(), 0..END).unwrap(), None);
        let seen = conflict(other.as_fd(), 7..8).unwrap().unwrap();
        assert_eq!(seen, ByteLock { bytes: 5..9, kind: LockKind::Write });
        assert!(!try_lock(other.as_fd(), 8..12, LockKind::Read).unwrap());
        unlock(mine.as_fd(), 8..9).unwrap();
        assert!(try_lock(other.as_fd(), 8..12, LockKind::Read).unwrap());
        assert_eq!(conflict(mine.as_fd(), 8..9).unwrap().unwrap().kind, LockKind::Read);
    }

    #[test]
    fn a_read_only_descriptor_can_ask_but_not_write_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mine, _) = two(&file);
        let reader = File::open(file.path()).unwrap();
        assert!(try_lock(mine.as_fd(), 1..2, LockKind::Write).unwrap());
        assert!(conflict(reader.as_fd(), 0..4).unwrap().is_some());
        let refused = try_lock(reader.as_fd(), 2..3, LockKind::Write).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn ranges_the_kernel_would_misread_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mine, _) = two(&file);
        for bytes in [3..3, Range { start: 4, end: 3 }, END..END + 1, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            let error = try_lock(mine.as_fd(), bytes.clone(), LockKind::Write).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes:?}");
        }
        assert!(try_lock(mine.as_fd(), END - 1..END, LockKind::Write).unwrap());
    }
}
