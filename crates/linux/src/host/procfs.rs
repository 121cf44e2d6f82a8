//! Files of the kernel that are read repeatedly: opened once, read from their start each time.
//!
//! Measured: a thread's `schedstat` costs 0.9 us through a kept descriptor and 5.5 us when opened
//! for each reading. A kept descriptor also distinguishes a thread from a later one with the same
//! number: reading fails when *its* thread has ended.

use crate::process::Pid;
use crate::text::ReadError;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximal number of kept descriptors, whatever the limit of this process. Chosen: twice the
/// threads of the largest machines, and a megabyte or two of kernel memory.
const KEPT_MAX: usize = 16_384;

/// First and largest size of the buffer of [`read_all`], in bytes: `/proc/stat` of 8,192 CPUs takes
/// less than a megabyte.
const READ_ALL_BYTES: usize = 16 << 10;
const READ_ALL_BYTES_MAX: usize = 16 << 20;

/// Opens a file for reading, without ever waiting.
pub(super) fn open(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
}

/// Opens a folder for looking up names in it.
pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads a short file from its start; text beyond the buffer is cut.
pub(super) fn read_start(file: impl AsFd, buffer: &mut [u8]) -> Result<&[u8], Errno> {
    loop {
        match rustix::io::pread(&file, &mut *buffer, 0) {
            Ok(read) => return Ok(&buffer[..read]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Reads a whole file, which the kernel generates in one piece, from its start. The buffer grows
/// until it has room.
pub(super) fn read_all(file: impl AsFd, buffer: &mut Vec<u8>) -> Result<&[u8], Errno> {
    loop {
        if buffer.len() < READ_ALL_BYTES {
            buffer.resize(READ_ALL_BYTES, 0);
        }
        let read = read_start(&file, buffer)?.len();
        if read < buffer.len() {
            return Ok(&buffer[..read]);
        }
        if read >= READ_ALL_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        buffer.resize(2 * read, 0);
    }
}

/// The process file system that a host reads.
#[derive(Debug)]
pub struct Procfs {
    path: PathBuf,
    folder: OwnedFd,
    shares_numbers: bool,
}

impl Procfs {
    /// Opens the process file system that is mounted at `path`.
    ///
    /// # Errors
    /// [`ReadError`]: the folder does not exist or may not be opened.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let folder = open_folder(path).map_err(|errno| ReadError::io(path, errno))?;
        let own = std::fs::read_link(path.join("self")).ok();
        let shares_numbers = own.is_some_and(|own| own.as_os_str() == Pid::own().to_string().as_str());
        Ok(Self { path: path.to_owned(), folder, shares_numbers })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder that contains procfs and `sys`.
    pub fn root(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Returns the opened folder, for looking up names in it.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Returns whether its process numbers mean the same processes to system calls of this process.
    pub fn shares_numbers(&self) -> bool {
        self.shares_numbers
    }
}

/// Budget of descriptors that may be kept for threads. Copies share one budget.
#[derive(Clone, Debug)]
pub struct DescriptorBudget(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    most: usize,
    used: usize,
}

impl DescriptorBudget {
    /// Makes a budget of half of the limit of this process, so that all its other work finds room;
    /// at most `most`.
    pub fn of_this_process(most: Option<usize>) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let half = limit.map_or(KEPT_MAX, |limit| usize::try_from(limit / 2).unwrap_or(KEPT_MAX));
        let most = half.min(KEPT_MAX).min(most.unwrap_or(KEPT_MAX));
        Self(Arc::new(Mutex::new(Kept { most, used: 0 })))
    }

    /// A panic elsewhere leaves two numbers that are still correct.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether one more descriptor may be kept; if so, counts it.
    pub(super) fn take(&self) -> bool {
        let mut kept = self.kept();
        let free = kept.used < kept.most;
        kept.used += usize::from(free);
        free
    }

    /// The same as [`Self::take`] while at most half of all are kept: a descriptor that only saves
    /// work must leave room for one that is needed.
    pub(super) fn take_spare(&self) -> bool {
        let spare = {
            let kept = self.kept();
            kept.used < kept.most / 2
        };
        spare && self.take()
    }

    /// Counts a descriptor that saves many others, also beyond the limit.
    pub(super) fn count(&self) {
        self.kept().used += 1;
    }

    /// Counts a kept descriptor as closed.
    pub(super) fn give_back(&self) {
        let mut kept = self.kept();
        kept.used = kept.used.saturating_sub(1);
    }

    /// Returns the number of kept descriptors.
    pub fn used(&self) -> usize {
        self.kept().used
    }

    /// Makes the number kept now the limit, since the process has no more descriptors.
    pub(super) fn stop_here(&self) {
        let mut kept = self.kept();
        kept.most = kept.used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_returns_the_whole_file_from_its_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut buffer = Vec::new();
        for length in [0, 1, READ_ALL_BYTES - 1, READ_ALL_BYTES, 3 * READ_ALL_BYTES, 5] {
            std::fs::write(file.path(), vec![b'x'; length]).unwrap();
            let open = open(rustix::fs::CWD, file.path().to_str().unwrap()).unwrap();
            for _ in 0..2 {
                assert_eq!(read_all(&open, &mut buffer).unwrap().len(), length);
            }
        }
        let endless = open(rustix::fs::CWD, "/dev/zero").unwrap();
        assert_eq!(read_all(&endless, &mut buffer), Err(Errno::FBIG));
    }
}
