//! Control groups of holds: partitions of the machine's CPUs, made and given back.
//!
//! [`trimtab_core::enforce`] decides, this module carries out. The group of a hold is a *threaded*
//! child of the control group in which the hold's processes are already. So these processes stay
//! below the memory limit of their group and are found by its manager, and only the cpuset differs.
//! The child is a *remote partition* (Linux 6.7): all groups above it list its CPUs in
//! `cpuset.cpus.exclusive`.
//!
//! No file records the changes: the groups themselves do. A group's name begins with
//! `trimtab.`, it belongs to root, and its list of CPUs says which CPUs its ancestors list for it.
//! A group in which this module switched the controller on has an extended attribute. So everything
//! can be given back by any later process ([`Partitions::give_back_all`]), and is gone after a
//! restart of the machine.
//!
//! Users can make groups in those that their session manager gave them. A group that looks like a
//! hold's and is not root's is left alone. The kernel's file system of groups has no links, and
//! paths with `..` are refused.

mod inside;
mod members;
#[cfg(test)]
mod tests;

pub use inside::{home_cpus, is_enforced, lacks, of_holds, wait_for_cpus, withheld};
pub use members::seen;

use crate::process::{self, Pid};
use crate::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, XattrFlags, flock, getxattr, removexattr, setxattr, statfs};
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use trimtab_core::enforce::{GroupChange, HoldGroup, PartitionKind, Seal, SeenGroup};
use trimtab_core::ids::Id;
use trimtab_core::set::{CpuSet, NodeSet, Set};

/// Type of the file system of control groups of version 2, from the kernel's `linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;
/// Attribute of a group in which this module switched the controller on for the groups below.
const MARK: &str = "user.trimtab.cpuset";
/// Attribute of the group of a hold: its CPUs. The files of its cpuset are gone while the
/// controller is switched off above it, which the owner of that group can do.
const CPUS: &str = "user.trimtab.cpus";
/// File whose lock the process has that enforces holds. Only root can make files in its folder.
pub const LOCK: &str = "/run/trimtab-enforce.lock";
/// The machine's processes. Descriptors of processes are of this process's own namespace too.
const PROC: &str = "/proc";
/// Longest list of CPUs in an attribute: the kernel's limit for one.
const LIST_MAX: usize = 1 << 16;
/// Most groups that are examined in a search.
const GROUPS_MAX: usize = 100_000;
/// Most rounds in which threads are moved out of a group: threads that are born meanwhile need
/// another one.
const ROUNDS_MAX: u32 = 1_000;
/// Longest time of these rounds: a program that forks again and again keeps no other hold waiting.
const ROUNDS_TIME_MAX: Duration = Duration::from_secs(1);
/// Most attempts to remove a group while its last thread ends, and the pause between them.
const REMOVALS_MAX: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// Why control groups cannot be used, or were not changed.
#[derive(Debug, Error)]
pub enum PartitionError {
    /// The folder has no control groups of version 2.
    #[error(
        "{} has no control groups of version 2, and holds can be enforced by them only: boot with systemd.unified_cgroup_hierarchy=1 (and without cgroup v1)",
        path.display()
    )]
    NotUnified {
        /// The folder.
        path: PathBuf,
    },
    /// The controller is not available.
    #[error(
        "the control groups of version 2 here have no controller \"cpuset\": groups of version 1 have it, or the kernel was built without it; boot with cgroup_no_v1=cpuset, or with systemd.unified_cgroup_hierarchy=1"
    )]
    NoController,
    /// The process is in a container.
    #[error(
        "{} is not the first control group of the machine: holds are enforced from the machine itself, not from a container",
        path.display()
    )]
    Inside {
        /// The folder.
        path: PathBuf,
    },
    /// The kernel is too old.
    #[error("this kernel has no cpuset.cpus.exclusive, and holds cannot be enforced: Linux 6.7 has it")]
    TooOld,
    /// Another process enforces holds.
    #[error("another service enforces holds here: trimtab status names it")]
    InUse,
    /// A group of this name was made by another user.
    #[error("{path} was made by user {uid}, and is left alone")]
    NotOurs {
        /// The group.
        path: String,
        /// The user.
        uid: u32,
    },
    /// The kernel did not make a partition.
    #[error("the kernel does not keep other tasks off the CPUs of {path}: {reason}")]
    Broken {
        /// The group.
        path: String,
        /// The kernel's reason.
        reason: String,
    },
    /// Threads stay in the group.
    #[error("threads in {path} do not return to the group above it")]
    Stuck {
        /// The group.
        path: String,
    },
    /// The kernel refused.
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io {
        /// The attempt.
        attempt: String,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The machine's control groups of version 2.
#[derive(Clone, Debug)]
pub struct Partitions {
    root: PathBuf,
    /// File whose lock the one process has that enforces holds.
    lock: PathBuf,
}

impl Partitions {
    /// Opens the hierarchy that is mounted at `root`. Changes nothing.
    ///
    /// # Errors
    /// There is no such hierarchy, it has no cpusets, or this process is in a container.
    pub fn open(root: &Path) -> Result<Self, PartitionError> {
        let path = root.to_owned();
        // The type's width differs between architectures; the number is positive.
        let is_unified = statfs(root).is_ok_and(|found| u64::try_from(found.f_type) == Ok(CGROUP2_MAGIC));
        if !is_unified {
            return Err(PartitionError::NotUnified { path });
        }
        let this = Self { root: path.clone(), lock: LOCK.into() };
        if !this.words("/", "cgroup.controllers").contains("cpuset") {
            return Err(PartitionError::NoController);
        }
        // The first group has no type.
        if root.join("cgroup.type").exists() {
            return Err(PartitionError::Inside { path });
        }
        Ok(this)
    }

    /// Locks the hierarchy against other processes that enforce holds, as long as the file is open.
    /// The file is root's alone: other users could lock one that they can read.
    ///
    /// # Errors
    /// Another process has the lock, or the file cannot be made.
    pub fn lock(&self) -> Result<File, PartitionError> {
        let (flags, path) = (OFlags::NOFOLLOW | OFlags::CLOEXEC, &self.lock);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = options.open(path).map_err(|source| PartitionError::Io {
            attempt: "open".to_owned(),
            path: path.clone(),
            source,
        })?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| PartitionError::InUse)?;
        Ok(file)
    }

    /// Makes sure that the kernel has remote partitions, by a group that is removed at once.
    ///
    /// # Errors
    /// It has none, or no group can be made.
    pub fn probe(&self) -> Result<(), PartitionError> {
        let path = "/trimtab.probe";
        self.switch_on("/")?;
        let folder = self.folder(path);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(self.failed("make", path, error));
            }
            _ => {}
        }
        let has = folder.join("cpuset.cpus.exclusive").exists();
        let removed = fs::remove_dir(&folder).map_err(|source| self.failed("remove", path, source));
        self.switch_off("/");
        removed?;
        if has { Ok(()) } else { Err(PartitionError::TooOld) }
    }

    /// Returns all groups of holds, by a search of the whole hierarchy.
    pub fn find(&self) -> BTreeSet<HoldGroup> {
        self.search().0
    }

    /// Returns the groups of holds, and the groups with the mark, each before those below it.
    fn search(&self) -> (BTreeSet<HoldGroup>, Vec<String>) {
        let (mut found, mut marked) = (BTreeSet::new(), Vec::new());
        let mut next = vec!["/".to_owned()];
        let mut examined = 0;
        while let Some(path) = next.pop() {
            examined += 1;
            if self.has_mark(&path) {
                marked.push(path.clone());
            }
            let entries = fs::read_dir(self.folder(&path)).into_iter().flatten().flatten();
            // `file_type` does not follow links.
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            for name in below.filter_map(|entry| entry.file_name().into_string().ok()) {
                let below = format!("{}/{name}", path.trim_end_matches('/'));
                match HoldGroup::of_path(&below) {
                    Some(group) if self.owner(&below) == Some(0) => {
                        found.insert(group);
                    }
                    _ if examined + next.len() < GROUPS_MAX => next.push(below),
                    _ => {}
                }
            }
        }
        (found, marked)
    }

    /// Reads a group; `None` if it does not exist or is not root's.
    pub fn read(&self, group: &HoldGroup) -> Option<SeenGroup> {
        let path = group.path();
        if !members::is_plain(&path) || self.owner(&path) != Some(0) {
            return None;
        }
        Some(SeenGroup {
            group: group.clone(),
            usable: self.text(&path, "cgroup.type").is_some_and(|text| text == "threaded")
                && self.folder(&path).join("cpuset.cpus").exists(),
            cpus: match self.list(&path, "cpuset.cpus") {
                cpus if cpus.is_empty() => self.noted(&path),
                cpus => cpus,
            },
            mems: self.list(&path, "cpuset.mems"),
            seal: seal_of(&self.text(&path, "cpuset.cpus.partition").unwrap_or_default()),
        })
    }

    /// Returns the threads in a group. The first thread of a process has the number of the process.
    pub(crate) fn threads(&self, group: &HoldGroup) -> Vec<u32> {
        let text = self.text(&group.path(), "cgroup.threads").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Carries out a change of a group. The ledger's part ([`GroupChange::Void`]) is the caller's.
    ///
    /// # Errors
    /// The kernel refuses. The group is then as far as it came, which the next decision sees.
    pub fn apply(&self, change: &GroupChange) -> Result<(), PartitionError> {
        match change {
            GroupChange::GiveBack { group, .. } => self.give_back(group),
            GroupChange::Unseal { group } => self.unseal(group),
            GroupChange::Establish { group, cpus, mems } => self.establish(group, cpus, mems),
            GroupChange::Enter { group, pids } => self.enter(group, pids),
            GroupChange::Seal { group, cpus, kind } => self.seal(group, cpus, *kind),
            GroupChange::Void { .. } => Ok(()),
        }
    }

    /// Gives all groups of holds back, and switches the controller off where this module switched
    /// it on and no other group uses it. Returns the number of groups, and the first failure.
    pub fn give_back_all(&self) -> (usize, Option<PartitionError>) {
        let mut fault = None;
        let mut count = 0;
        for group in self.find() {
            match self.give_back(&group) {
                Ok(()) => count += 1,
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        let marked = self.search().1;
        // The deepest first: a group that gives the controller on cannot lose it.
        for path in marked.iter().rev() {
            self.switch_off(path);
        }
        (count, fault)
    }

    fn establish(&self, group: &HoldGroup, cpus: &CpuSet, mems: &NodeSet) -> Result<(), PartitionError> {
        let path = group.path();
        if !members::is_plain(&path) {
            return Err(self.failed("use", &path, io::ErrorKind::InvalidInput.into()));
        }
        for above in ancestors(&group.home) {
            self.switch_on(&above)?;
        }
        match fs::create_dir(self.folder(&path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(self.failed("make", &path, error));
            }
            _ => {}
        }
        match self.owner(&path) {
            Some(0) => {}
            Some(uid) => return Err(PartitionError::NotOurs { path, uid }),
            None => return Err(self.failed("make", &path, io::ErrorKind::NotFound.into())),
        }
        if self.text(&path, "cgroup.type").is_none_or(|text| text != "threaded") {
            self.write(&path, "cgroup.type", "threaded")?;
        }
        // Before any group above lists them: from this attribute they are taken off the lists.
        setxattr(self.folder(&path), CPUS, cpus.to_string().as_bytes(), XattrFlags::empty())
            .map_err(|error| self.failed("mark", &path, error.into()))?;
        self.write(&path, "cpuset.cpus", &cpus.to_string())?;
        self.write(&path, "cpuset.mems", &listed(mems))
    }

    /// Moves processes into a group. The kernel takes their numbers, and the number of a process
    /// that has ended may be another one's by then.
    fn enter(&self, group: &HoldGroup, pids: &BTreeMap<u32, u64>) -> Result<(), PartitionError> {
        let path = group.path();
        for (&pid, &start) in pids {
            let Some(process) = opened(pid, start) else { continue };
            match self.write(&path, "cgroup.procs", &pid.to_string()) {
                Err(error) if !has_ended(&error) => return Err(error),
                _ => {}
            }
            if !lives(&process) {
                self.expel_other(group, pid, start)?;
            }
        }
        Ok(())
    }

    /// Moves a process out of the group of a hold to the group above it, if it began at another
    /// time than `start`: it has the number of a process that has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn expel_other(&self, group: &HoldGroup, pid: u32, start: u64) -> Result<(), PartitionError> {
        let proc = Path::new(PROC);
        let Ok(other) = process::stat(proc, Pid(pid)) else { return Ok(()) };
        // The kernel shows no processes of a threaded group, so the process is asked for its group.
        let is_inside = members::home(proc, Pid(pid))
            .is_some_and(|(home, inside)| home == group.home && inside == Some(group.hold));
        if other.start.0 == start || !is_inside {
            return Ok(());
        }
        match self.write(&group.home, "cgroup.procs", &pid.to_string()) {
            Err(error) if !has_ended(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes a partition of a group: its CPUs are listed by all groups above it first.
    fn seal(&self, group: &HoldGroup, cpus: &CpuSet, kind: PartitionKind) -> Result<(), PartitionError> {
        let path = group.path();
        let sealed = || {
            for above in ancestors(&group.home).iter().filter(|above| *above != "/") {
                let all = self.list(above, "cpuset.cpus.exclusive").union(cpus);
                self.write(above, "cpuset.cpus.exclusive", &all.to_string())?;
            }
            self.write(&path, "cpuset.cpus.exclusive", &cpus.to_string())?;
            self.write(&path, "cpuset.cpus.partition", kind.word())?;
            let text = self.text(&path, "cpuset.cpus.partition").unwrap_or_default();
            match seal_of(&text) {
                Seal::Closed(made) if made == kind => Ok(()),
                Seal::Broken(reason) => Err(PartitionError::Broken { path: path.clone(), reason }),
                _ => Err(PartitionError::Broken { path: path.clone(), reason: text }),
            }
        };
        // A group that is no partition must not keep its CPUs from other groups' lists.
        sealed().inspect_err(|_| drop(self.unseal(group)))
    }

    /// Ends the partition of a group, and removes its CPUs from the lists of the groups above.
    fn unseal(&self, group: &HoldGroup) -> Result<(), PartitionError> {
        let path = group.path();
        let listed_here = self.noted(&path).union(&self.list(&path, "cpuset.cpus.exclusive"));
        // Without the files, the controller was switched off above, which ended the partition.
        if self.folder(&path).join("cpuset.cpus.partition").exists() {
            self.write(&path, "cpuset.cpus.partition", "member")?;
            self.write(&path, "cpuset.cpus.exclusive", &listed(&CpuSet::new()))?;
        }
        for above in ancestors(&group.home).iter().rev().filter(|above| *above != "/") {
            let all: CpuSet = self.list(above, "cpuset.cpus.exclusive");
            if all.intersects(&listed_here) {
                self.write(above, "cpuset.cpus.exclusive", &listed(&all.difference(&listed_here)))?;
            }
        }
        Ok(())
    }

    fn give_back(&self, group: &HoldGroup) -> Result<(), PartitionError> {
        let path = group.path();
        if self.owner(&path) != Some(0) {
            return Ok(()); // it is gone
        }
        self.unseal(group)?;
        self.empty(group)?;
        let mut attempt = 0;
        loop {
            match fs::remove_dir(self.folder(&path)) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) if attempt == REMOVALS_MAX => return Err(self.failed("remove", &path, error)),
                Err(_) => {}
            }
            attempt += 1;
            std::thread::sleep(REMOVAL_PAUSE);
            self.empty(group)?;
        }
        for above in ancestors(&group.home).iter().rev() {
            self.switch_off(above);
        }
        Ok(())
    }

    /// Moves all threads of a group to the group above it.
    fn empty(&self, group: &HoldGroup) -> Result<(), PartitionError> {
        let (path, begin) = (group.path(), Instant::now());
        for _ in 0..ROUNDS_MAX {
            if begin.elapsed() > ROUNDS_TIME_MAX {
                break;
            }
            let threads = self.text(&path, "cgroup.threads").unwrap_or_default();
            if threads.is_empty() {
                return Ok(());
            }
            for thread in threads.lines() {
                match self.write(&group.home, "cgroup.threads", thread) {
                    Err(error) if !has_ended(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Err(PartitionError::Stuck { path })
    }

    /// Gives the groups below this one cpusets.
    fn switch_on(&self, path: &str) -> Result<(), PartitionError> {
        if self.words(path, "cgroup.subtree_control").contains("cpuset") {
            return Ok(());
        }
        // Before the switch: a mark too many is harmless, a switch without a mark would stay.
        setxattr(self.folder(path), MARK, b"1", XattrFlags::empty())
            .map_err(|error| self.failed("mark", path, error.into()))?;
        self.write(path, "cgroup.subtree_control", "+cpuset")
    }

    /// Takes the groups below this one their cpusets, if this module gave them and none of them
    /// uses its own. Best effort: a group that gives them on keeps them, which the kernel checks.
    fn switch_off(&self, path: &str) {
        if !self.has_mark(path) || self.is_used_below(path) {
            return;
        }
        if self.write(path, "cgroup.subtree_control", "-cpuset").is_ok() {
            let _ = removexattr(self.folder(path), MARK);
        }
    }

    /// Returns whether a group directly below has a setting of its cpuset.
    fn is_used_below(&self, path: &str) -> bool {
        let entries = fs::read_dir(self.folder(path)).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let set = |folder: &Path, name: &str| {
            fs::read_to_string(folder.join(name)).is_ok_and(|text| !text.trim().is_empty())
        };
        let lists = ["cpuset.cpus", "cpuset.mems", "cpuset.cpus.exclusive"];
        below.map(|entry| entry.path()).any(|folder| {
            let partition = fs::read_to_string(folder.join("cpuset.cpus.partition"));
            lists.iter().any(|name| set(&folder, name)) || partition.is_ok_and(|text| text.trim() != "member")
        })
    }

    /// Returns the CPUs that the attribute of a hold's group notes.
    fn noted(&self, path: &str) -> CpuSet {
        let mut value = vec![0_u8; LIST_MAX];
        let length = getxattr(self.folder(path), CPUS, &mut value[..]).unwrap_or(0);
        value.get(..length).and_then(text::list).unwrap_or_default()
    }

    fn has_mark(&self, path: &str) -> bool {
        let mut value = [0_u8; 8];
        getxattr(self.folder(path), MARK, &mut value[..]).is_ok()
    }

    fn folder(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn owner(&self, path: &str) -> Option<u32> {
        fs::symlink_metadata(self.folder(path)).ok().filter(fs::Metadata::is_dir).map(|meta| meta.uid())
    }

    fn text(&self, path: &str, name: &str) -> Option<String> {
        fs::read_to_string(self.folder(path).join(name)).ok().map(|text| text.trim().to_owned())
    }

    fn words(&self, path: &str, name: &str) -> BTreeSet<String> {
        self.text(path, name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    fn list<T: Id>(&self, path: &str, name: &str) -> Set<T> {
        self.text(path, name).and_then(|text| text::list(text.as_bytes())).unwrap_or_default()
    }

    fn write(&self, path: &str, name: &str, value: &str) -> Result<(), PartitionError> {
        let file = self.folder(path).join(name);
        let written = File::options().write(true).open(&file).and_then(|mut open| {
            use std::io::Write;
            open.write_all(value.as_bytes())
        });
        written.map_err(|source| {
            let attempt = format!("write \"{}\" to", value.trim());
            PartitionError::Io { attempt, path: file, source }
        })
    }

    fn failed(&self, attempt: &str, path: &str, source: io::Error) -> PartitionError {
        PartitionError::Io { attempt: attempt.to_owned(), path: self.folder(path), source }
    }
}

/// Returns a descriptor of the process that has this number and began then.
fn opened(pid: u32, start: u64) -> Option<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)?;
    let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
    // Read after it was opened: so both are of the same process.
    let stat = process::stat(Path::new(PROC), Pid(pid)).ok()?;
    (stat.start.0 == start && lives(&process)).then_some(process)
}

/// Returns whether a process has not ended.
fn lives(process: &OwnedFd) -> bool {
    // A descriptor of a process is readable from its end on.
    !matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec::default())), Ok(1..))
}

/// Returns a list as the kernel reads it. An empty text would not be written at all.
fn listed<T: Id + std::fmt::Display>(set: &Set<T>) -> String {
    if set.is_empty() { "\n".to_owned() } else { set.to_string() }
}

/// Returns whether a task was not moved because it has ended.
fn has_ended(error: &PartitionError) -> bool {
    let ended = rustix::io::Errno::SRCH.raw_os_error();
    matches!(error, PartitionError::Io { source, .. } if source.raw_os_error() == Some(ended))
}

/// Reads `cpuset.cpus.partition`: `member`, `root`, `isolated`, or `root invalid (the reason)`.
fn seal_of(text: &str) -> Seal {
    match text.split_once(' ') {
        Some((_, reason)) => {
            let inner = reason.trim_start_matches("invalid").trim();
            Seal::Broken(text::printable(inner.trim_matches(['(', ')']).as_bytes()))
        }
        None => text.parse().map_or(Seal::Open, Seal::Closed),
    }
}

/// Returns a group and those above it, the topmost first.
fn ancestors(path: &str) -> Vec<String> {
    let mut found = vec!["/".to_owned()];
    let mut at = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = format!("{at}/{name}");
        found.push(at.clone());
    }
    found
}
