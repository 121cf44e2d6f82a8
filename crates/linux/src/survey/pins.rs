//! Tasks of others that are bound to some of the machine's CPUs.
//!
//! A task counts when its mask leaves out part of the CPUs asked about and keeps another part. Threads of the kernel
//! are bound by design and are not counted; neither are the asker and its ancestors, whose mask the asker has
//! inherited.
//!
//! Order: youngest process first. Programs that people start come after daemons and threads of the kernel, so when the
//! time runs out it is the latter that were not looked at.

use crate::process::{self, Pid, Stat, State, Status, Tid};
use crate::sys::affinity;
use crate::text::{self, ReadError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;

/// How the mask of a task is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masks {
    /// From its `status` file: right for any `proc`, also a captured one.
    Files,
    /// By `sched_getaffinity`, several times cheaper: right only when `proc` shows the caller's own process-id namespace.
    Kernel,
}

/// A task bound to some CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pin {
    /// Its process, by which holders of the ledger can be told apart.
    pub pid: Pid,
    /// The task.
    pub tid: Tid,
    /// Whose it is (real user id).
    pub uid: u32,
    /// Its short name, printable.
    pub comm: String,
    /// Where it may run.
    pub cpus: CpuSet,
    /// What it is doing.
    pub state: State,
    /// The CPU it last ran on.
    pub last_cpu: Option<OsCpu>,
}

/// What a scan found, and how far it could see.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pins {
    /// The bound tasks, by process and thread.
    pub pins: Vec<Pin>,
    /// Tasks looked at, threads of the kernel included.
    pub seen: usize,
    /// Processes that were listed but not shown to this user.
    pub refused: usize,
    /// Whether the scan was told to stop before its end.
    pub cut: bool,
}

impl Pins {
    /// How many of the machine's tasks ([`Runnable::total`](super::Runnable)) were not shown: those of other users where
    /// `/proc` hides them, those outside the process-id namespace in a container. Nothing for a scan that was cut short.
    /// A handful means nothing, since tasks come and go meanwhile.
    pub fn hidden(&self, total: u32) -> Option<usize> {
        (!self.cut).then(|| usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(self.seen))
    }
}

/// A scan for bound tasks.
#[derive(Clone, Copy, Debug)]
pub struct PinScan<'a> {
    /// The process file system.
    pub proc: &'a Path,
    /// The CPUs asked about: those of the machine that are online and that the asker may use.
    pub cpus: &'a CpuSet,
    /// The asker, not counted, nor its ancestors.
    pub own: Pid,
    /// How masks are asked for.
    pub masks: Masks,
}

impl PinScan<'_> {
    /// Looks at every task there is, as long as `go_on` agrees; it is asked before each and told how many were looked at so
    /// far. Processes that end meanwhile are passed over.
    ///
    /// # Errors
    /// The directory of processes itself cannot be read.
    pub fn run(&self, go_on: impl FnMut(usize) -> bool) -> Result<Pins, ReadError> {
        let dir = open_dir(rustix::fs::CWD, self.proc).map_err(|errno| ReadError::io(self.proc, errno))?;
        let mut processes = Vec::new();
        numbered_entries(dir.as_fd(), &mut processes).map_err(|errno| ReadError::io(self.proc, errno))?;
        processes.sort_unstable_by(|a, b| b.cmp(a));
        let skipped = self.not_foreign();
        let (found, text) = (Pins::default(), Vec::new());
        let mut walk = Walk { scan: self, dir: dir.as_fd(), go_on, found, text, usual: None };
        let mut threads = Vec::new();
        for pid in processes.into_iter().map(Pid) {
            if walk.is_cut() {
                break;
            }
            if let Some(tasks) = skipped.get(&pid) {
                walk.found.seen += tasks;
                continue;
            }
            threads.clear();
            // Any other trouble is a process that ended meanwhile.
            if let Err(Errno::ACCESS | Errno::PERM) = walk.process(pid, &mut threads) {
                walk.found.refused += 1;
            }
        }
        let mut found = walk.found;
        found.pins.sort_unstable_by_key(|pin| (pin.pid, pin.tid));
        Ok(found)
    }

    /// The asker, its ancestors, and, where the kernel lists them at once, its own threads: hundreds on a large machine,
    /// nearly all of them bound. Each with how many tasks it is.
    fn not_foreign(&self) -> BTreeMap<Pid, usize> {
        let mut skipped = BTreeMap::new();
        let mut next = self.own;
        while next.0 != 0 && !skipped.contains_key(&next) {
            let stat = process::stat(self.proc, next);
            skipped.insert(next, stat.as_ref().map_or(1, |stat| stat.threads as usize));
            next = stat.map_or(Pid(0), |stat| stat.parent);
        }
        let parent_of_kernel_threads = Pid(2);
        if process::stat(self.proc, parent_of_kernel_threads).is_ok_and(|stat| stat.kernel_thread) {
            let children = text::read(&self.proc.join("2/task/2/children")).unwrap_or_default();
            let children = text::words(&children).filter_map(text::number).map(Pid);
            skipped.extend(children.chain([parent_of_kernel_threads]).map(|pid| (pid, 1)));
        }
        skipped
    }
}

/// A scan under way.
struct Walk<'a, G> {
    scan: &'a PinScan<'a>,
    dir: BorrowedFd<'a>,
    go_on: G,
    found: Pins,
    /// The file read last; kept for its capacity.
    text: Vec<u8>,
    /// The list that most tasks have, as text, and whether it binds: what most often needs no parsing.
    usual: Option<(Vec<u8>, bool)>,
}

impl<G: FnMut(usize) -> bool> Walk<'_, G> {
    /// Whether the time has run out.
    fn is_cut(&mut self) -> bool {
        self.found.cut = self.found.cut || !(self.go_on)(self.found.seen);
        self.found.cut
    }

    fn process(&mut self, pid: Pid, threads: &mut Vec<u32>) -> Result<(), Errno> {
        let tasks = open_dir(self.dir, format!("{pid}/task").as_str())?;
        numbered_entries(tasks.as_fd(), threads)?;
        threads.sort_unstable();
        for (at, &tid) in threads.iter().enumerate() {
            if at > 0 && self.is_cut() {
                break;
            }
            self.found.seen += 1;
            // A thread that ended meanwhile, or whose files make no sense, is passed over; the next may be fine.
            if let Ok(Some(pin)) = self.task(tasks.as_fd(), pid, Tid(tid)) {
                self.found.pins.push(pin);
            }
        }
        Ok(())
    }

    /// The task, when it is bound, alive and not the kernel's.
    fn task(&mut self, tasks: BorrowedFd<'_>, pid: Pid, tid: Tid) -> Result<Option<Pin>, Errno> {
        let bound = match self.scan.masks {
            Masks::Kernel => self.binds(&affinity::get(Some(tid))?),
            Masks::Files => {
                self.read(tasks, tid, "status")?;
                self.list_binds()
            }
        };
        if !bound {
            return Ok(None);
        }
        self.read(tasks, tid, "stat")?;
        let Ok(stat) = Stat::parse(&self.text) else { return Ok(None) };
        if stat.kernel_thread || stat.state == State::Zombie {
            return Ok(None);
        }
        self.read(tasks, tid, "status")?;
        let Ok(Status { uid, cpus, .. }) = Status::parse(&self.text) else { return Ok(None) };
        let Stat { comm, state, last_cpu, .. } = stat;
        Ok(Some(Pin { pid, tid, uid, comm, cpus, state, last_cpu }))
    }

    fn read(&mut self, tasks: BorrowedFd<'_>, tid: Tid, name: &str) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(tasks, format!("{tid}/{name}").as_str(), flags, Mode::empty())?;
        text::read_into(file, &mut self.text)
    }

    /// Whether the mask keeps some of the CPUs asked about and leaves some out.
    fn binds(&self, mask: &CpuSet) -> bool {
        let asked = self.scan.cpus;
        mask.intersects(asked) && !asked.is_subset(mask)
    }

    /// Whether the list in the status text read last binds. Nearly all tasks have the same list: it is parsed once.
    fn list_binds(&mut self) -> bool {
        let Some(list) = text::field(&self.text, b"Cpus_allowed_list:") else { return false };
        if let Some((usual, binds)) = &self.usual
            && usual == list
        {
            return *binds;
        }
        let binds = text::list(list).is_some_and(|mask| self.binds(&mask));
        self.usual = Some((list.to_vec(), binds));
        binds
    }
}

fn open_dir(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Adds the entries whose name is a number.
fn numbered_entries(dir: BorrowedFd<'_>, numbers: &mut Vec<u32>) -> Result<(), Errno> {
    // Room for some 1,300 entries at 24 bytes each: most directories are read in one call.
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        numbers.extend(text::number::<u32>(entry?.file_name().to_bytes()));
    }
    Ok(())
}
