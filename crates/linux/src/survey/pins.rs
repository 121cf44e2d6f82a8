//! Scan for tasks of others that are bound to some of the machine's CPUs.
//!
//! A task counts when its mask excludes part of the CPUs in question and includes another part.
//! Kernel threads are bound by design and are not counted. Neither are the caller and its
//! ancestors, since the caller has inherited their mask.
//!
//! Order: processes whose main thread is bound first, then the threads of the others; youngest
//! process first. Reading the mask of a main thread is one system call, so a bound process is found
//! even if the time runs out early; a bound thread of an old process may then be missed.

use super::processes::{Processes, numbered_entries, open_dir};
use crate::process::{self, Pid, Stat, State, Status, Tid};
use crate::sys::affinity;
use crate::text::{self, ReadError};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;

/// Method of reading the mask of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masks {
    /// From its `status` file: correct for any `proc`, also a captured one.
    Files,
    /// By `sched_getaffinity`, several times cheaper: correct only when `proc` shows the caller's
    /// own process-id namespace.
    Kernel,
}

/// A task bound to some CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pin {
    /// Its process, by which holders of the ledger can be recognised.
    pub pid: Pid,
    /// The task.
    pub tid: Tid,
    /// Its real user id.
    pub uid: u32,
    /// Its short name, printable.
    pub comm: String,
    /// The CPUs on which it may run.
    pub cpus: CpuSet,
    /// Its state.
    pub state: State,
    /// The CPU on which it last ran.
    pub last_cpu: Option<OsCpu>,
}

/// Result of a scan, with the limits of its view.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pins {
    /// The bound tasks, by process and thread.
    pub pins: Vec<Pin>,
    /// Number of examined tasks, kernel threads included.
    pub seen: usize,
    /// Number of processes that were listed but not shown to this user.
    pub refused: usize,
    /// Whether the scan was stopped before its end.
    pub cut: bool,
}

impl Pins {
    /// Returns how many of the machine's tasks ([`Runnable::total`](super::Runnable)) were not
    /// shown: those of other users if `/proc` hides them, those outside the process-id namespace in
    /// a container. `None` for a scan that was cut short. A handful means nothing, since tasks
    /// start and end meanwhile.
    pub fn hidden(&self, total: u32) -> Option<usize> {
        (!self.cut).then(|| usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(self.seen))
    }
}

/// A scan for bound tasks.
#[derive(Clone, Copy, Debug)]
pub struct PinScan<'a> {
    /// The process file system.
    pub proc: &'a Path,
    /// The CPUs in question: the CPUs of the machine that are online and that the caller may use.
    pub cpus: &'a CpuSet,
    /// The calling process; neither it nor its ancestors are counted.
    pub own: Pid,
    /// Method of reading masks.
    pub masks: Masks,
}

impl PinScan<'_> {
    /// Examines every task, as long as `go_on` agrees; `go_on` is called before each task with the
    /// number of tasks examined so far. Processes that end meanwhile are passed over.
    ///
    /// # Errors
    /// The directory of processes itself cannot be read.
    pub fn run(&self, go_on: impl FnMut(usize) -> bool) -> Result<Pins, ReadError> {
        Ok(self.run_among(&Processes::list(self.proc)?, go_on))
    }

    /// Does the same among processes that were listed before.
    pub fn run_among(&self, processes: &Processes, go_on: impl FnMut(usize) -> bool) -> Pins {
        let (found, text) = (Pins::default(), Vec::new());
        let mut walk = Walk { scan: self, processes, go_on, found, text, usual: None };
        let main_thread_binds = |pid: Pid| match self.masks {
            Masks::Kernel => affinity::get(Some(pid.main_thread())).is_ok_and(|mask| self.binds(&mask)),
            Masks::Files => false,
        };
        let kernel = processes.kernel(self.proc);
        let all = processes.youngest_first.iter().copied();
        let users = all.filter(|pid| walk.is_foreign(*pid, kernel));
        let (mut bound, mut others): (Vec<Pid>, Vec<Pid>) = users.partition(|pid| main_thread_binds(*pid));
        // Where no main thread is bound, which is the rule, the caller's ancestors need not be
        // known.
        let known = (self.masks == Masks::Files || !bound.is_empty()).then(|| self.own_and_ancestors());
        for skipped in known.iter() {
            bound.retain(|pid| walk.is_foreign(*pid, skipped));
            others.retain(|pid| walk.is_foreign(*pid, skipped));
        }
        walk.examine(&bound, &others);
        let mut found = walk.found;
        if known.is_none() && !found.pins.is_empty() {
            let skipped = self.own_and_ancestors();
            found.pins.retain(|pin| !skipped.contains_key(&pin.pid));
        }
        found.pins.sort_unstable_by_key(|pin| (pin.pid, pin.tid));
        found
    }

    /// Returns whether the mask includes some of the CPUs in question and excludes some.
    fn binds(&self, mask: &CpuSet) -> bool {
        mask.intersects(self.cpus) && !self.cpus.is_subset(mask)
    }

    /// Returns the caller and its ancestors, each with its number of tasks.
    fn own_and_ancestors(&self) -> BTreeMap<Pid, usize> {
        let mut skipped = BTreeMap::new();
        let mut next = self.own;
        while next.0 != 0 && !skipped.contains_key(&next) {
            let stat = process::stat(self.proc, next);
            skipped.insert(next, stat.as_ref().map_or(1, |stat| stat.threads as usize));
            next = stat.map_or(Pid(0), |stat| stat.parent);
        }
        skipped
    }
}

/// A scan in progress.
struct Walk<'a, G> {
    scan: &'a PinScan<'a>,
    processes: &'a Processes,
    go_on: G,
    found: Pins,
    /// The file read last; kept for its capacity.
    text: Vec<u8>,
    /// The list of CPUs that most tasks have, as text, and whether it binds. Saves parsing in the
    /// most frequent case.
    usual: Option<(Vec<u8>, bool)>,
}

impl<G: FnMut(usize) -> bool> Walk<'_, G> {
    /// Returns whether a process is not among those that are passed over, whose tasks are counted.
    fn is_foreign(&mut self, pid: Pid, skipped: &BTreeMap<Pid, usize>) -> bool {
        let tasks = skipped.get(&pid);
        self.found.seen += tasks.copied().unwrap_or(0);
        tasks.is_none()
    }

    /// Examines processes with a bound main thread, then the others.
    fn examine(&mut self, bound: &[Pid], others: &[Pid]) {
        let mut threads = Vec::new();
        let known_free = |at: usize| self.scan.masks == Masks::Kernel && at >= bound.len();
        for (at, pid) in bound.iter().chain(others).copied().enumerate() {
            if self.is_cut() {
                break;
            }
            if known_free(at) && self.processes.has_one_thread(pid) {
                self.found.seen += 1;
                continue;
            }
            threads.clear();
            // Any other error means a process that ended meanwhile.
            if let Err(Errno::ACCESS | Errno::PERM) = self.process(pid, &mut threads) {
                self.found.refused += 1;
            }
        }
    }

    /// Returns whether the time has run out.
    fn is_cut(&mut self) -> bool {
        self.found.cut = self.found.cut || !(self.go_on)(self.found.seen);
        self.found.cut
    }

    fn process(&mut self, pid: Pid, threads: &mut Vec<u32>) -> Result<(), Errno> {
        let tasks = open_dir(self.processes.dir.as_fd(), format!("{pid}/task").as_str())?;
        numbered_entries(tasks.as_fd(), threads)?;
        threads.sort_unstable();
        for (at, &tid) in threads.iter().enumerate() {
            if at > 0 && self.is_cut() {
                break;
            }
            self.found.seen += 1;
            // A thread that ended meanwhile, or has malformed files, is passed over; the next
            // thread may be readable.
            if let Ok(Some(pin)) = self.task(tasks.as_fd(), pid, Tid(tid)) {
                self.found.pins.push(pin);
            }
        }
        Ok(())
    }

    /// Returns the task if it is bound, alive and not a kernel thread.
    fn task(&mut self, tasks: BorrowedFd<'_>, pid: Pid, tid: Tid) -> Result<Option<Pin>, Errno> {
        let bound = match self.scan.masks {
            Masks::Kernel => self.scan.binds(&affinity::get(Some(tid))?),
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

    /// Returns whether the list in the last status text binds. Nearly all tasks have the same list,
    /// so it is parsed once.
    fn list_binds(&mut self) -> bool {
        let Some(list) = text::field(&self.text, b"Cpus_allowed_list:") else { return false };
        if let Some((usual, binds)) = &self.usual
            && usual == list
        {
            return *binds;
        }
        let binds = text::list(list).is_some_and(|mask| self.scan.binds(&mask));
        self.usual = Some((list.to_vec(), binds));
        binds
    }
}
