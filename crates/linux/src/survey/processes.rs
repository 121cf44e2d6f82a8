//! The processes of the machine, listed once for several searches.
//!
//! The kernel's list walks over the numbers of all threads: 0.9 ms for 5,000 threads in 150 processes
//! with caches that other programs have used meanwhile, and 0.3 ms for as many processes without
//! threads.
//!
//! Rejected: to examine the processes of an earlier list and those with higher numbers, and to prove
//! by the kernel's count of all tasks that none is missing. It took 0.8 ms instead, and where tasks
//! start and end all the time the proof fails, so that the list is needed besides.

use crate::process::{self, Pid};
use crate::text::{self, ReadError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;

/// The processes under a `proc`.
#[derive(Debug)]
pub struct Processes {
    pub(super) dir: OwnedFd,
    pub(super) youngest_first: Vec<Pid>,
    /// The kernel's threads, once they were read.
    pub(super) kernel: OnceCell<BTreeMap<Pid, usize>>,
}

impl Processes {
    /// Lists the processes.
    ///
    /// # Errors
    /// The directory of processes cannot be read.
    pub fn list(proc: &Path) -> Result<Self, ReadError> {
        let failed = |errno| ReadError::io(proc, errno);
        let dir = open_dir(rustix::fs::CWD, proc).map_err(failed)?;
        let mut numbers = Vec::new();
        numbered_entries(dir.as_fd(), &mut numbers).map_err(failed)?;
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let youngest_first = numbers.into_iter().map(Pid).collect();
        Ok(Self { dir, youngest_first, kernel: OnceCell::new() })
    }

    /// Returns the kernel's threads.
    pub(super) fn kernel(&self, proc: &Path) -> &BTreeMap<Pid, usize> {
        self.kernel.get_or_init(|| kernel_threads(proc))
    }

    /// Returns whether a process has no thread but its main thread: the kernel counts the threads
    /// as links of their folder. One call, where listing the folder takes four.
    pub(super) fn has_one_thread(&self, pid: Pid) -> bool {
        // Two links of any folder, and one for each thread.
        rustix::fs::statat(&self.dir, format!("{pid}/task").as_str(), AtFlags::empty())
            .is_ok_and(|stat| stat.st_nlink == 3)
    }
}

/// Returns the kernel's threads (hundreds on a large machine, nearly all of them bound), if the kernel
/// lists them at once, each with its number of tasks.
fn kernel_threads(proc: &Path) -> BTreeMap<Pid, usize> {
    let mut skipped = BTreeMap::new();
    let parent_of_kernel_threads = Pid(2);
    if process::stat(proc, parent_of_kernel_threads).is_ok_and(|stat| stat.kernel_thread) {
        let children = text::read(&proc.join("2/task/2/children")).unwrap_or_default();
        let children = text::words(&children).filter_map(text::number).map(Pid);
        skipped.extend(children.chain([parent_of_kernel_threads]).map(|pid| (pid, 1)));
    }
    skipped
}

pub(super) fn open_dir(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Adds the entries that have a number as their name, from the position of the directory on.
pub(super) fn numbered_entries(dir: BorrowedFd<'_>, numbers: &mut Vec<u32>) -> Result<(), Errno> {
    // Room for some 1,300 entries at 24 bytes each: most directories are read in one call.
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        numbers.extend(text::number::<u32>(entry?.file_name().to_bytes()));
    }
    Ok(())
}
