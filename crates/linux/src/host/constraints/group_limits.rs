//! Limits that the machine and the administrator set for control groups: CPUs online, cpuset,
//! quota, loaded scheduler.
//!
//! Processes of many control groups share the files that limit them: these groups count as one.

use crate::host::procfs;
use crate::limits::cgroup::Groups;
use crate::process::{Pid, Tid};
use crate::text;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Period of the readings that have to open files: groups, the loaded scheduler. Chosen:
/// administrators change these by hand, and a reading costs some 50 us.
const SLOW_READ_PERIOD: Span = Span::from_ms(1_000);
/// Maximal number of groups with separate limits; processes in further groups are treated as
/// unlimited. Chosen.
const GROUPS_MAX: usize = 256;
/// Maximal number of groups with files to look up again at one time. Chosen: some 50 us each.
const FORGOTTEN_PER_ROUND: usize = 16;
/// Size of the buffer for lists of CPUs, in bytes. Enough to read the longest list in one piece:
/// 8,192 CPUs, every other one.
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
        match procfs::read_start(self.file.as_ref()?, buffer) {
            Ok(text) => Some(text),
            Err(_) => {
                // The group was removed, or the file was made again.
                self.file = None;
                None
            }
        }
    }
}

fn open(path: &Path) -> Option<OwnedFd> {
    procfs::open(rustix::fs::CWD, path.to_str()?).ok()
}

/// Id of the limits of a process. Many control groups share the files that limit them; they are one
/// group here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::host) struct GroupId(u32);

/// Limits of the processes of one or more control groups.
#[derive(Debug, Default)]
struct LimitGroup {
    cpuset: Option<Kept>,
    throttle: Option<PathBuf>,
    /// The CPUs that the kernel lets them use; `None` if they cannot be read.
    active: Option<CpuSet>,
}

/// A counter of the time for which a quota kept threads off the CPUs.
#[derive(Debug)]
struct Throttle {
    file: Kept,
    last: Option<Span>,
}

/// A group after a change of its CPUs, with its former CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::host) struct Changed {
    pub(in crate::host) group: GroupId,
    pub(in crate::host) before: CpuSet,
}

/// The present limits.
#[derive(Debug)]
pub(in crate::host) struct GroupLimits {
    root: PathBuf,
    given: CpuSet,
    online: Kept,
    /// Texts of processes' `cgroup` files, with the group to which each led.
    known: BTreeMap<Vec<u8>, GroupId>,
    /// The last text that was dropped; the next round continues after it.
    forgotten: Option<Vec<u8>>,
    groups: BTreeMap<GroupId, LimitGroup>,
    throttles: BTreeMap<PathBuf, Throttle>,
    /// Growth of all counters together since each was first read.
    throttled: Span,
    read_at: Option<Moment>,
    usable: CpuSet,
    scheduler: Option<String>,
    buffer: Vec<u8>,
}

impl GroupLimits {
    /// Makes limits. `root` contains `proc` and `sys`; `given` are the CPUs that the caller wants
    /// used.
    pub(in crate::host) fn new(root: &Path, given: &CpuSet) -> Self {
        Self {
            root: root.to_owned(),
            given: given.clone(),
            online: Kept::at(root.join("sys/devices/system/cpu/online")),
            known: BTreeMap::new(),
            forgotten: None,
            groups: BTreeMap::from([(GroupId::default(), LimitGroup::default())]),
            throttles: BTreeMap::new(),
            throttled: Span::ZERO,
            read_at: None,
            usable: given.clone(),
            scheduler: None,
            buffer: vec![0; LIST_BYTES],
        }
    }

    /// Returns the CPUs that threads may be moved to, for all programs together.
    pub(in crate::host) fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// Returns the CPUs that threads of this group may be moved to.
    pub(in crate::host) fn usable_in(&self, group: GroupId) -> CpuSet {
        self.active(group).map_or_else(|| self.given.clone(), |active| self.wanted(active))
    }

    /// Returns the CPUs that the kernel lets this group use; `None` if they cannot be read.
    pub(in crate::host) fn active(&self, group: GroupId) -> Option<&CpuSet> {
        self.groups.get(&group)?.active.as_ref()
    }

    /// Reads the CPUs that the kernel lets this group use at this moment; values read before stay
    /// unchanged.
    pub(in crate::host) fn granted(&mut self, group: GroupId) -> Option<CpuSet> {
        let buffer = &mut self.buffer;
        let mut list = |kept: &mut Kept| -> Option<CpuSet> { text::list(kept.read(buffer)?) };
        let online = list(&mut self.online);
        granted(online.as_ref(), self.groups.get_mut(&group)?.cpuset.as_mut().and_then(&mut list))
    }

    /// Returns the name of the loaded scheduler.
    pub(in crate::host) fn scheduler(&self) -> Option<&str> {
        self.scheduler.as_deref()
    }

    /// Returns the CPUs among these that the caller wants used; all of them if there are none.
    fn wanted(&self, active: &CpuSet) -> CpuSet {
        let both = self.given.intersection(active);
        if both.is_empty() { active.clone() } else { both }
    }

    /// Returns whether it is time to read the slowly changing data: groups, quotas, the loaded
    /// scheduler.
    pub(in crate::host) fn is_due(&mut self, now: Moment) -> bool {
        if self.read_at.is_some_and(|read_at| now.since(read_at) < SLOW_READ_PERIOD) {
            return false;
        }
        self.read_at = Some(now);
        true
    }

    /// Reads the loaded scheduler; returns whether it changed.
    pub(in crate::host) fn read_scheduler(&mut self) -> bool {
        let scheduler = self.loaded_scheduler();
        let changed = scheduler != self.scheduler;
        self.scheduler = scheduler;
        changed
    }

    /// Drops the stored files of groups, some at a time: a quota may be set and removed at any
    /// time, in any enclosing group, and a group may get a cpuset of its own.
    pub(in crate::host) fn forget_groups(&mut self) {
        let from = self.forgotten.take().map_or(Unbounded, Excluded);
        let some: Vec<Vec<u8>> = self
            .known
            .range((from, Unbounded))
            .take(FORGOTTEN_PER_ROUND)
            .map(|(text, _)| text.clone())
            .collect();
        for text in &some {
            self.known.remove(text);
        }
        self.forgotten = some.into_iter().nth(FORGOTTEN_PER_ROUND - 1);
    }

    /// Returns the group of a process; `None` when it cannot be determined.
    pub(in crate::host) fn group_of(&mut self, pid: Pid) -> Option<GroupId> {
        self.group_at(&pid.to_string())
    }

    /// Returns the group of one thread of a process.
    pub(in crate::host) fn group_of_thread(&mut self, pid: Pid, tid: Tid) -> Option<GroupId> {
        self.group_at(&format!("{pid}/task/{tid}"))
    }

    /// Returns the group of the process or thread that this folder of procfs shows.
    fn group_at(&mut self, process: &str) -> Option<GroupId> {
        let text = text::read(&self.root.join("proc").join(process).join("cgroup")).ok()?;
        if let Some(group) = self.known.get(&text) {
            return Some(*group);
        }
        let found = Groups::of(&self.root, process);
        let (cpuset, throttle) = (found.cpuset_file(), found.throttle_file());
        let same = |group: &LimitGroup| {
            group.cpuset.as_ref().map(|kept| &kept.path) == cpuset.as_ref() && group.throttle == throttle
        };
        let full = self.groups.len() >= GROUPS_MAX;
        let id = match self.groups.iter_mut().find(|(_, group)| same(group)) {
            Some((id, group)) => {
                // Made again under the same name, it is another file.
                if let Some(kept) = group.cpuset.as_mut().filter(|kept| kept.file.is_none()) {
                    kept.file = open(&kept.path);
                }
                *id
            }
            None if full => return None,
            None => {
                let id = GroupId(self.groups.keys().next_back().map_or(0, |last| last.0.wrapping_add(1)));
                let cpuset = cpuset.map(Kept::at);
                self.groups.insert(id, LimitGroup { cpuset, throttle: throttle.clone(), active: None });
                id
            }
        };
        if let Some(path) = throttle {
            let open = |path: &PathBuf| Throttle { file: Kept::at(path.clone()), last: None };
            self.throttles.entry(path).or_insert_with_key(open);
        }
        self.known.insert(text, id);
        Some(id)
    }

    /// Removes groups without members.
    pub(in crate::host) fn keep_groups(&mut self, used: &BTreeSet<GroupId>) {
        self.groups.retain(|id, _| used.contains(id) || *id == GroupId::default());
        let groups = &self.groups;
        self.throttles.retain(|path, _| groups.values().any(|group| group.throttle.as_ref() == Some(path)));
        self.known.retain(|_, id| groups.contains_key(id));
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

    /// Reads the lists of CPUs; returns the groups for which the CPUs allowed by the kernel changed
    /// since the last call. Programs are in the groups `used`: the CPUs that these groups allow
    /// together are usable.
    pub(in crate::host) fn read_lists(&mut self, used: &BTreeSet<GroupId>) -> Vec<Changed> {
        let buffer = &mut self.buffer;
        let mut list = |kept: &mut Kept| -> Option<CpuSet> { text::list(kept.read(buffer)?) };
        let online = list(&mut self.online);
        let mut changed = Vec::new();
        for (id, group) in &mut self.groups {
            let cpuset = group.cpuset.as_mut().and_then(&mut list);
            let Some(active) = granted(online.as_ref(), cpuset) else { continue };
            if group.active.as_ref() != Some(&active)
                && let Some(before) = group.active.replace(active)
            {
                changed.push(Changed { group: *id, before });
            }
        }
        let everybodys = used.iter().filter_map(|id| self.groups.get(id)?.active.as_ref());
        let together = everybodys.fold(CpuSet::new(), |all, active| all.union(active));
        if !together.is_empty() {
            self.usable = self.wanted(&together);
        }
        changed
    }

    /// Returns the time for which quotas have kept the programs off their CPUs during the watch;
    /// `None` without a quota.
    pub(in crate::host) fn throttled(&mut self) -> Option<Span> {
        let mut counted = false;
        for throttle in self.throttles.values_mut() {
            let Some(now) = throttle.file.read(&mut self.buffer).and_then(throttled) else { continue };
            let more = throttle.last.replace(now).map_or(Span::ZERO, |last| now.less(last));
            self.throttled = self.throttled + more;
            counted = true;
        }
        counted.then_some(self.throttled)
    }
}

/// Returns the CPUs of a cpuset that are online.
fn granted(online: Option<&CpuSet>, cpuset: Option<CpuSet>) -> Option<CpuSet> {
    let cpuset = cpuset.filter(|set| !set.is_empty());
    let active = match (online, cpuset) {
        (Some(online), Some(cpuset)) => Some(online.intersection(&cpuset)),
        (one, other) => one.cloned().or(other),
    };
    // Between a change of one file and a change of the other the set may be empty for a moment.
    active.filter(|active| !active.is_empty())
}

/// Parses `cpu.stat`: `throttled_usec` of version 2, `throttled_time` in nanoseconds of version 1.
fn throttled(text: &[u8]) -> Option<Span> {
    let number = |name: &[u8]| text::field(text, name).and_then(text::number::<u64>);
    number(b"throttled_usec ").map(Span::from_us).or_else(|| number(b"throttled_time ").map(Span))
}

/// Returns the mask that the kernel makes of `mask` when `active` are the CPUs it allows: cut to
/// them, and all of them if nothing is left.
pub(in crate::host) fn cut(mask: &CpuSet, active: Option<&CpuSet>) -> CpuSet {
    let Some(active) = active else { return mask.clone() };
    let both = mask.intersection(active);
    if both.is_empty() { active.clone() } else { both }
}

/// Returns whether the kernel may have made the mask `now` from the expected one, when `active` are
/// the CPUs it allows.
pub(in crate::host) fn is_cut(now: &CpuSet, expected: &CpuSet, active: Option<&CpuSet>) -> bool {
    now == expected || *now == cut(expected, active)
}

/// Returns whether a call failed because the task does not exist.
pub(in crate::host) fn is_gone(errno: Errno) -> bool {
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
        let mut limits = GroupLimits::new(root.path(), &set("0-3"));
        let used = BTreeSet::from([GroupId::default()]);
        let read = |limits: &mut GroupLimits| !limits.read_lists(&used).is_empty();
        assert!(!read(&mut limits), "nothing to compare with");
        assert!(!read(&mut limits));
        assert_eq!(limits.usable(), &set("0-3"));
        fs::write(cpu.join("online"), "0-2,4-7\n").unwrap();
        assert!(read(&mut limits));
        assert_eq!(limits.usable(), &set("0-2"));
        fs::write(cpu.join("online"), "6-7\n").unwrap();
        assert!(read(&mut limits));
        assert_eq!(limits.usable(), &set("6-7"), "what the caller gave is all gone");
        fs::write(cpu.join("online"), "rubbish").unwrap();
        assert!(!read(&mut limits));
        assert_eq!(limits.usable(), &set("6-7"));
    }

    #[test]
    fn a_loaded_scheduler_has_a_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/sched_ext");
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("state"), "disabled\n").unwrap();
        fs::write(folder.join("root/ops"), "lavd\x1b\n").unwrap();
        let mut limits = GroupLimits::new(root.path(), &set("0"));
        assert!(limits.is_due(Moment(0)) && !limits.read_scheduler());
        assert!(!limits.is_due(Moment(1)), "not every time");
        assert!(limits.is_due(Moment(2_000_000_000)));
        fs::write(folder.join("state"), "enabled\n").unwrap();
        assert!(limits.read_scheduler());
        assert_eq!(limits.scheduler(), Some("lavd\\x1b"));
        fs::write(folder.join("state"), "disabled\n").unwrap();
        assert!(limits.read_scheduler());
        assert_eq!(limits.scheduler(), None);
    }

    #[test]
    fn each_group_has_its_own_bounds_and_all_together_are_usable() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-7\n");
        write("proc/self/mountinfo", "30 20 0:26 / /groups rw - cgroup2 cgroup2 rw\n");
        for (pid, name, cpus) in [(1, "one", "0-1"), (2, "two", "4-5"), (3, "two/below", "")] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::/{name}\n"));
            write(&format!("groups/{name}/cpuset.cpus.effective"), &format!("{cpus}\n"));
            write(&format!("groups/{name}/cpu.max"), "50000 100000\n");
            write(&format!("groups/{name}/cpu.stat"), "throttled_usec 1000\n");
        }
        let mut limits = GroupLimits::new(root.path(), &set("0-4"));
        let groups: Vec<GroupId> = [1, 2].map(|pid| limits.group_of(Pid(pid)).unwrap()).to_vec();
        assert_ne!(groups[0], groups[1]);
        let used: BTreeSet<GroupId> = groups.iter().copied().collect();
        assert_eq!(limits.read_lists(&used), [], "seen for the first time");
        assert_eq!(limits.usable(), &set("0-1,4"));
        assert_eq!(limits.active(groups[1]), Some(&set("4-5")));
        assert_eq!([limits.usable_in(groups[0]), limits.usable_in(groups[1])], [set("0-1"), set("4")]);
        write("groups/one/cpuset.cpus.effective", "1\n");
        assert_eq!(
            limits.read_lists(&used),
            [Changed { group: groups[0], before: set("0-1") }],
            "only that one"
        );
        // Time off the CPUs adds up, from the beginning of the watch.
        assert_eq!(limits.throttled(), Some(Span::ZERO));
        write("groups/one/cpu.stat", "throttled_usec 1300\n");
        write("groups/two/cpu.stat", "throttled_usec 1040\n");
        assert_eq!(limits.throttled(), Some(Span::from_us(340)));
        limits.keep_groups(&BTreeSet::from([groups[0]]));
        assert_eq!(limits.throttled(), Some(Span::from_us(340)), "what was counted stays");
        assert_eq!(limits.group_of(Pid(9)), None);
    }

    #[test]
    fn the_kernel_cuts_masks_and_never_to_nothing() {
        let active = set("0-1");
        assert_eq!(cut(&set("1-3"), Some(&active)), set("1"));
        assert_eq!(cut(&set("2-3"), Some(&active)), active);
        assert_eq!(cut(&set("2-3"), None), set("2-3"));
        assert!(
            is_cut(&set("0-1"), &set("2"), Some(&active)) && !is_cut(&set("0"), &set("2"), Some(&active))
        );
    }

    #[test]
    fn throttling_is_read_of_both_kinds_of_group() {
        assert_eq!(throttled(b"usage_usec 5\nthrottled_usec 7\n"), Some(Span(7_000)));
        assert_eq!(throttled(b"nr_periods 5\nthrottled_time 7\n"), Some(Span(7)));
        assert_eq!(throttled(b"usage_usec 5\n"), None);
    }
}
