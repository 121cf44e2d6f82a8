//! What the machine and the administrator let the programs use, and how that changes while we watch: CPUs online, the cpuset, a
//! quota, a scheduler loaded into the kernel.

use super::files;
use crate::limits::cgroup::Groups;
use crate::process::Pid;
use crate::text;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// How often what needs files opened is looked at: groups, the loaded scheduler. Chosen: it is about what people change
/// by hand, and costs some 50 us.
const SLOW: Span = Span::from_ms(1_000);
/// Longer lists of CPUs are read in one piece too: 8,192 CPUs, every other one.
const LIST_BYTES: usize = 32 << 10;

/// A file that is kept open, if it is there.
#[derive(Debug, Default)]
struct Kept {
    path: PathBuf,
    file: Option<OwnedFd>,
}

impl Kept {
    fn at(path: PathBuf) -> Self {
        let file = open(&path);
        Self { path, file }
    }

    fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        match files::read_start(self.file.as_ref()?, buffer) {
            Ok(text) => Some(text),
            Err(_) => {
                // The group is gone, or the file was remade.
                self.file = None;
                None
            }
        }
    }
}

fn open(path: &Path) -> Option<OwnedFd> {
    files::open(rustix::fs::CWD, path.to_str()?).ok()
}

/// The bounds as they are now.
#[derive(Debug)]
pub(super) struct Bounds {
    root: PathBuf,
    given: CpuSet,
    online: Kept,
    cpuset: Option<Kept>,
    throttle: Option<Kept>,
    groups: Vec<u8>,
    looked: Option<Moment>,
    active: Option<CpuSet>,
    usable: CpuSet,
    scheduler: Option<String>,
    buffer: Vec<u8>,
}

impl Bounds {
    /// `root` holds `proc` and `sys`; `given` are the CPUs that the caller wants used.
    pub(super) fn new(root: &Path, given: &CpuSet) -> Self {
        Self {
            root: root.to_owned(),
            given: given.clone(),
            online: Kept::at(root.join("sys/devices/system/cpu/online")),
            cpuset: None,
            throttle: None,
            groups: Vec::new(),
            looked: None,
            active: None,
            usable: given.clone(),
            scheduler: None,
            buffer: vec![0; LIST_BYTES],
        }
    }

    /// The CPUs that threads may be moved to.
    pub(super) fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// The CPUs that the kernel lets the program use; `None` where that cannot be read.
    pub(super) fn active(&self) -> Option<&CpuSet> {
        self.active.as_ref()
    }

    /// The scheduler that is loaded.
    pub(super) fn scheduler(&self) -> Option<&str> {
        self.scheduler.as_deref()
    }

    /// Looks whether it is time to look at what changes seldom; `member` is a process of the program. Whether the loaded
    /// scheduler changed.
    pub(super) fn look_slowly(&mut self, now: Moment, member: Option<Pid>) -> bool {
        if self.looked.is_some_and(|looked| now.since(looked) < SLOW) {
            return false;
        }
        self.looked = Some(now);
        if let Some(pid) = member {
            self.look_at_groups(pid);
        }
        let scheduler = self.loaded_scheduler();
        let changed = scheduler != self.scheduler;
        self.scheduler = scheduler;
        changed
    }

    /// Looks in which groups a process is, which of them bound it, and whether by a quota.
    pub(super) fn look_at_groups(&mut self, pid: Pid) {
        let process = pid.to_string();
        let Ok(groups) = text::read(&self.root.join("proc").join(&process).join("cgroup")) else { return };
        let lost = self.cpuset.as_ref().is_some_and(|kept| kept.file.is_none());
        if groups != self.groups || lost {
            let found = Groups::of(&self.root, &process);
            self.cpuset = found.cpuset_file().map(Kept::at);
            self.groups = groups;
        }
        // A quota may be set and taken away at any time, in any group above.
        let throttle = Groups::of(&self.root, &process).throttle_file();
        if throttle.as_ref() != self.throttle.as_ref().map(|kept| &kept.path) {
            self.throttle = throttle.map(Kept::at);
        }
    }

    fn loaded_scheduler(&self) -> Option<String> {
        let folder = self.root.join("sys/kernel/sched_ext");
        let state = text::read(&folder.join("state")).ok()?;
        if state.trim_ascii() != b"enabled" {
            return None;
        }
        let name = text::read(&folder.join("root/ops")).unwrap_or_default();
        let name = text::printable(name.trim_ascii());
        Some(if name.is_empty() { "sched_ext".to_owned() } else { name })
    }

    /// Reads the lists of CPUs; whether what the kernel allows changed since the last time, this one not counting as the first.
    pub(super) fn look(&mut self) -> bool {
        let buffer = &mut self.buffer;
        let mut list = |kept: &mut Kept| -> Option<CpuSet> { text::list(kept.read(buffer)?) };
        let online = list(&mut self.online);
        let cpuset = self.cpuset.as_mut().and_then(&mut list).filter(|set| !set.is_empty());
        let active = match (online, cpuset) {
            (Some(online), Some(cpuset)) => Some(online.intersection(&cpuset)),
            (one, other) => one.or(other),
        };
        // Between a change of the one and a change of the other nothing may be left; that passes.
        let Some(active) = active.filter(|active| !active.is_empty()) else { return false };
        if self.active.as_ref() == Some(&active) {
            return false;
        }
        let first = self.active.is_none();
        let both = self.given.intersection(&active);
        self.usable = if both.is_empty() { active.clone() } else { both };
        self.active = Some(active);
        !first
    }

    /// How long a quota has kept the program off its CPUs, if there is one.
    pub(super) fn throttled(&mut self) -> Option<Span> {
        let buffer = &mut self.buffer;
        throttled(self.throttle.as_mut()?.read(buffer)?)
    }
}

/// From `cpu.stat`: `throttled_usec` of version 2, `throttled_time` in nanoseconds of version 1.
fn throttled(text: &[u8]) -> Option<Span> {
    let number = |name: &[u8]| text::field(text, name).and_then(text::number::<u64>);
    number(b"throttled_usec ").map(Span::from_us).or_else(|| number(b"throttled_time ").map(Span))
}

/// Whether a mask is one that the kernel made of the expected one, when `active` are the CPUs it allows: cut to them.
pub(super) fn is_cut(now: &CpuSet, expected: &CpuSet, active: Option<&CpuSet>) -> bool {
    now == expected || active.is_some_and(|active| *now == expected.intersection(active))
}

/// Whether a call failed because the task is not there.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::SRCH | Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn the_usable_cpus_follow_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let cpu = root.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&cpu).unwrap();
        fs::write(cpu.join("online"), "0-7\n").unwrap();
        let mut bounds = Bounds::new(root.path(), &set("0-3"));
        assert!(!bounds.look(), "nothing to compare with");
        assert!(!bounds.look());
        assert_eq!(bounds.usable(), &set("0-3"));
        fs::write(cpu.join("online"), "0-2,4-7\n").unwrap();
        assert!(bounds.look());
        assert_eq!(bounds.usable(), &set("0-2"));
        fs::write(cpu.join("online"), "6-7\n").unwrap();
        assert!(bounds.look());
        assert_eq!(bounds.usable(), &set("6-7"), "what the caller gave is all gone");
        fs::write(cpu.join("online"), "rubbish").unwrap();
        assert!(!bounds.look());
        assert_eq!(bounds.usable(), &set("6-7"));
    }

    #[test]
    fn a_loaded_scheduler_has_a_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/sched_ext");
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("state"), "disabled\n").unwrap();
        fs::write(folder.join("root/ops"), "lavd\x1b\n").unwrap();
        let mut bounds = Bounds::new(root.path(), &set("0"));
        assert!(!bounds.look_slowly(Moment(0), None));
        fs::write(folder.join("state"), "enabled\n").unwrap();
        assert!(!bounds.look_slowly(Moment(1), None), "not every time");
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        assert!(bounds.look_slowly(at(2), None));
        assert_eq!(bounds.scheduler(), Some("lavd\\x1b"));
        fs::write(folder.join("state"), "disabled\n").unwrap();
        assert!(bounds.look_slowly(at(4), None));
        assert_eq!(bounds.scheduler(), None);
    }

    #[test]
    fn throttling_is_read_of_both_kinds_of_group() {
        assert_eq!(throttled(b"usage_usec 5\nthrottled_usec 7\n"), Some(Span(7_000)));
        assert_eq!(throttled(b"nr_periods 5\nthrottled_time 7\n"), Some(Span(7)));
        assert_eq!(throttled(b"usage_usec 5\n"), None);
    }
}
