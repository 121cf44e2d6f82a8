//! The processes of the machine: listed by the kernel, or known from an earlier list and proven to be
//! all.
//!
//! The kernel's list walks over the numbers of all threads: 0.8 ms for 5,000 threads in 150 processes
//! with caches that other programs have used meanwhile, and 0.3 ms for as many processes without
//! threads. Where threads are many, the processes of an earlier list are examined instead, and newer
//! ones are listed from the first number that was not given then. [`trimtab_core::place::task_count`]
//! has the proof that no process is missing; without it the kernel lists all.

use super::RunnableCount;
use crate::process::{self, Pid};
use crate::sys::signals;
use crate::text::{self, ReadError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::path::Path;
use trimtab_core::place::TaskCount;
use trimtab_core::place::task_count::are_all;

/// Inode number of the first process-id namespace (`PROC_PID_INIT_INO`), which has all tasks that
/// the kernel counts.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Position in `/proc` of a process with number 0 (`TGID_OFFSET` of the kernel's `fs/proc/base.c`). If
/// a kernel has another one, processes are missing, and the proof fails.
const FIRST_POSITION: u64 = 257;
/// Threads for each process from which an earlier list is cheaper. Measured: to count the threads of
/// a process takes as long as to pass over some six threads.
const THREADS_MIN: usize = 8;
/// Processes of an earlier list that may have ended. Chosen: the list is old then.
const GONE_MAX: usize = 64;

/// The processes under a `proc`, listed once for several searches.
#[derive(Debug)]
pub struct Processes {
    pub(super) dir: OwnedFd,
    pub(super) youngest_first: Vec<Pid>,
    /// Number of threads of each process, if they were counted.
    pub(super) counted: BTreeMap<Pid, u32>,
    /// The kernel's threads, once they were read.
    pub(super) kernel: OnceCell<BTreeMap<Pid, usize>>,
}

/// The processes at some moment, as a launch keeps them for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownProcesses {
    /// Number that the kernel had given last, before they were listed.
    pub newest: u32,
    /// The processes, without those of the kernel.
    pub pids: Vec<Pid>,
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
        Ok(Self { dir, youngest_first, counted: BTreeMap::new(), kernel: OnceCell::new() })
    }

    /// Returns the processes, most of which are known; `None` if they cannot be proven to be all, or
    /// if the kernel's list is cheaper. Threads of the kernel are not among them.
    pub fn known(proc: &Path, known: &KnownProcesses, count: &RunnableCount) -> Option<Self> {
        let before = count.tasks().ok()?;
        if !Self::are_threads_many(before, known.pids.len()) || known.pids.is_empty() {
            return None;
        }
        let dir = open_dir(rustix::fs::CWD, proc).ok()?;
        let namespace = rustix::fs::statat(&dir, "self/ns/pid", AtFlags::empty()).ok()?;
        if namespace.st_ino != FIRST_NAMESPACE {
            return None;
        }
        let kernel = kernel_threads(proc);
        // Without the kernel's list of them nothing can be proven.
        if kernel.len() < 2 {
            return None;
        }
        let mut newer = Vec::new();
        rustix::fs::seek(&dir, SeekFrom::Start(FIRST_POSITION + u64::from(known.newest) + 1)).ok()?;
        numbered_entries(dir.as_fd(), &mut newer).ok()?;
        let pids: BTreeSet<Pid> = known.pids.iter().copied().chain(newer.into_iter().map(Pid)).collect();
        let mut this =
            Self { dir, youngest_first: Vec::new(), counted: BTreeMap::new(), kernel: OnceCell::new() };
        let mut gone = 0;
        for pid in pids.into_iter().rev().filter(|pid| !kernel.contains_key(pid)) {
            // The folder of a thread exists too, and shows the threads of its process.
            match this.threads(pid).filter(|_| signals::is_process(pid.0)) {
                Some(threads) => {
                    this.youngest_first.push(pid);
                    this.counted.insert(pid, threads);
                }
                None if gone == GONE_MAX => return None,
                None => gone += 1,
            }
        }
        let threads = this.counted.values().copied().chain(kernel.values().map(|_| 1));
        let all = are_all(before, count.tasks().ok()?, threads);
        all.then(|| Self { kernel: OnceCell::from(kernel), ..this })
    }

    /// Returns what is worth keeping for the next launch: the processes, if they have many threads.
    /// `before` was counted before they were listed.
    pub fn to_keep(&self, proc: &Path, before: TaskCount) -> Option<KnownProcesses> {
        if !Self::are_threads_many(before, self.youngest_first.len()) {
            return None;
        }
        let kernel = self.kernel(proc);
        let users = self.youngest_first.iter().copied().filter(|pid| !kernel.contains_key(pid));
        Some(KnownProcesses { newest: before.newest, pids: users.collect() })
    }

    /// Returns the kernel's threads.
    pub(super) fn kernel(&self, proc: &Path) -> &BTreeMap<Pid, usize> {
        self.kernel.get_or_init(|| kernel_threads(proc))
    }

    /// Returns whether a list of so many processes is cheaper to examine than to make.
    fn are_threads_many(count: TaskCount, processes: usize) -> bool {
        usize::try_from(count.tasks).is_ok_and(|tasks| tasks >= THREADS_MIN * processes)
    }

    /// Returns the number of threads of a process: the kernel counts them as links of their folder.
    /// One call, where listing the folder takes four.
    pub(super) fn threads(&self, pid: Pid) -> Option<u32> {
        if let Some(counted) = self.counted.get(&pid) {
            return Some(*counted);
        }
        let folder = rustix::fs::statat(&self.dir, format!("{pid}/task").as_str(), AtFlags::empty()).ok()?;
        // Two links of any folder, and one for each thread.
        u32::try_from(folder.st_nlink).ok()?.checked_sub(2).filter(|threads| *threads > 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// Returns the processes of users that the kernel lists.
    fn listed() -> BTreeSet<Pid> {
        let proc = Path::new("/proc");
        let kernel = kernel_threads(proc);
        let all = Processes::list(proc).unwrap().youngest_first;
        all.into_iter().filter(|pid| !kernel.contains_key(pid)).collect()
    }

    /// Returns whether processes can be proven to be all here: not inside a container.
    fn has_all() -> bool {
        let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap();
        let all = std::os::unix::fs::MetadataExt::ino(&namespace) == FIRST_NAMESPACE;
        let children = kernel_threads(Path::new("/proc")).len() > 1;
        if !(all && children) {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"SKIPPED: processes of this machine cannot be counted from here\n",
            );
        }
        all && children
    }

    /// A program with so many threads that an earlier list is worthwhile.
    struct Threads(std::process::Child);

    impl Threads {
        fn new() -> Option<Self> {
            let script = "import sys, threading, time\n\
                threading.stack_size(65536)\n\
                for _ in range(int(sys.argv[1])):\n    \
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
                print('ready', flush=True)\ntime.sleep(60)";
            let processes = Processes::list(Path::new("/proc")).unwrap().youngest_first.len();
            let threads = (THREADS_MIN * processes + 500).to_string();
            let mut command = Command::new("python3");
            let mut child =
                command.args(["-c", script, threads.as_str()]).stdout(Stdio::piped()).spawn().ok()?;
            let mut line = [0; 5];
            let ready = std::io::Read::read_exact(child.stdout.as_mut()?, &mut line);
            let this = Self(child);
            ready.ok().map(|()| this)
        }
    }

    impl Drop for Threads {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Retries while other programs start and end, until a proof succeeds.
    fn proven(known: &KnownProcesses) -> Option<BTreeSet<Pid>> {
        let count = RunnableCount::open(Path::new("/proc")).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            let before = listed();
            let found = Processes::known(Path::new("/proc"), known, &count);
            if let Some(found) = found {
                let found: BTreeSet<Pid> = found.youngest_first.into_iter().collect();
                if before == listed() {
                    assert_eq!(found, before, "the kernel's list is the oracle");
                }
                return Some(found);
            }
        }
        None
    }

    #[test]
    fn processes_that_are_known_and_newer_ones_are_those_that_the_kernel_lists() {
        if !has_all() {
            return;
        }
        let threads = Threads::new().expect("python3 and its threads");
        let proc = Path::new("/proc");
        let count = RunnableCount::open(proc).unwrap();
        let before = count.tasks().unwrap();
        let kept = Processes::list(proc).unwrap().to_keep(proc, before).expect("threads are many");
        assert!(kept.pids.contains(&Pid::own()) && !kept.pids.contains(&Pid(2)));
        // One that is made later, and one that has ended.
        let mut later = Command::new("sleep").arg("60").spawn().unwrap();
        let known =
            KnownProcesses { pids: [kept.pids.clone(), vec![Pid(u32::MAX / 2)]].concat(), ..kept.clone() };
        let found = proven(&known).expect("a quiet moment");
        assert!(found.contains(&Pid(later.id())) && found.contains(&Pid(threads.0.id())));
        // The number of a thread in the place of a process counts the process twice, and is no process.
        let thread = process::threads(proc, Pid(threads.0.id())).unwrap().last().unwrap().0;
        let mut hostile = kept.clone();
        hostile.pids.retain(|pid| pid.0 != threads.0.id());
        hostile.pids.extend([Pid(thread), Pid(later.id())]);
        hostile.newest = u32::MAX / 4;
        for _ in 0..200 {
            assert!(Processes::known(proc, &hostile, &count).is_none(), "a process is missing");
        }
        later.kill().unwrap();
        later.wait().unwrap();
    }

    #[test]
    fn the_number_of_a_thread_is_that_of_no_process() {
        let own = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let beside = std::thread::spawn(move || signals::is_process(own())).join().unwrap();
        // The first process may be another user's.
        assert!(!beside && signals::is_process(std::process::id()) && signals::is_process(1));
        assert!(!signals::is_process(0) && !signals::is_process(u32::MAX));
    }

    #[test]
    fn a_list_that_costs_less_than_its_proof_is_made_by_the_kernel() {
        let proc = Path::new("/proc");
        let before = TaskCount { tasks: 7, newest: 1 };
        assert_eq!(Processes::list(proc).unwrap().to_keep(proc, before), None);
        let count = RunnableCount::open(proc).unwrap();
        assert!(Processes::known(proc, &KnownProcesses::default(), &count).is_none());
    }
}
