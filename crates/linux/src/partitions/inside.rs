//! Enforced holds as processes meet them: inside of one the CPUs of its home, and the wait until
//! its group follows the ledger; outside the CPUs that they withhold.

use super::members::home;
use super::{LOCK, Partitions};
use crate::limits::cgroup::Groups;
use crate::process::Pid;
use crate::text;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::enforce::{HoldGroup, Seal};
use trimtab_core::set::CpuSet;

/// Place of the control groups below the root of the file system.
const MOUNTED: &str = "sys/fs/cgroup";
/// Pause between two readings of a group.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns the CPUs of the control group around that of a hold, if the process is in one: the CPUs
/// that the hold could get.
pub fn home_cpus(root: &Path, pid: Pid) -> Option<CpuSet> {
    let (home, inside) = home(&root.join("proc"), pid)?;
    inside?;
    effective(root, &home)
}

/// Returns those of the CPUs `wanted` that partitions withhold from this process, which may use
/// `allowed`: it will have them when the partitions end. Empty for a process with a mask of its own
/// or outside of version 2.
pub fn withheld(root: &Path, allowed: &CpuSet, wanted: &CpuSet) -> CpuSet {
    let Some(left) = effective(root, "/") else { return CpuSet::new() };
    let missing = wanted.difference(allowed).difference(&left);
    if missing.is_empty() {
        return missing;
    }
    let groups = Groups::of(root, "self");
    let own = groups.cpuset_cpus().map(|own| own.members.intersection(wanted)).unwrap_or_default();
    // The kernel does not show the mask that a process asked for before partitions narrowed it. A
    // mask that leaves out even CPUs that it could have was meant to be narrow.
    if !own.is_subset(allowed) {
        return CpuSet::new();
    }
    groups.listed_cpus().iter().fold(missing, |missing, listed| missing.intersection(listed))
}

/// Returns the CPUs of all partitions of holds, by a search of the groups that are mounted here.
pub fn of_holds(mounted: &Path) -> CpuSet {
    let Ok(partitions) = Partitions::open(mounted) else { return CpuSet::new() };
    let groups = partitions.find();
    let seen = groups.iter().filter_map(|group| partitions.read(group));
    let sealed = seen.filter(|seen| matches!(seen.seal, Seal::Closed(_)));
    sealed.fold(CpuSet::new(), |all, seen| all.union(&seen.cpus))
}

/// Returns whether a service enforces holds on this machine: whether the file of its lock exists
/// and a process of this namespace has it locked. Other users than root cannot open the file.
pub fn is_enforced(root: &Path) -> bool {
    let Ok(file) = fs::metadata(root.join(LOCK.trim_start_matches('/'))) else { return false };
    let locks = fs::read_to_string(root.join("proc/locks")).unwrap_or_default();
    // The device is not compared: some file systems show another one here. A lock of another file
    // with this number costs a search.
    locks.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK")
            && words.nth(3).and_then(|name| name.rsplit(':').next()?.parse().ok()) == Some(file.ino())
    })
}

/// Returns whether a process is in the group of a hold that has not all of these CPUs yet.
pub fn lacks(root: &Path, pid: Pid, cpus: &CpuSet) -> bool {
    match home(&root.join("proc"), pid) {
        Some((home, Some(hold))) => {
            effective(root, &HoldGroup { home, hold }.path()).is_some_and(|has| !cpus.is_subset(&has))
        }
        _ => false,
    }
}

/// Waits until the group of a hold in which a process is has these CPUs: a service that enforces
/// holds gives them to it once the ledger grants them. Returns at once for a process in no such
/// group.
pub fn wait_for_cpus(root: &Path, pid: Pid, cpus: &CpuSet, most: Duration) {
    let begin = Instant::now();
    while lacks(root, pid, cpus) && begin.elapsed() < most {
        std::thread::sleep(PAUSE);
    }
}

fn effective(root: &Path, group: &str) -> Option<CpuSet> {
    let folder = root.join(MOUNTED).join(group.trim_start_matches('/'));
    text::list(&text::read_piece(&folder.join("cpuset.cpus.effective")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_a_holds_group_knows_its_home_and_waits_for_its_group() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/5/cgroup", "0::/a/trimtab.1f\n");
        write("proc/6/cgroup", "0::/a\n");
        write("sys/fs/cgroup/a/cpuset.cpus.effective", "0,3-5\n");
        write("sys/fs/cgroup/a/trimtab.1f/cpuset.cpus.effective", "1\n");
        assert_eq!(home_cpus(root.path(), Pid(5)), "0,3-5".parse().ok());
        assert_eq!((home_cpus(root.path(), Pid(6)), home_cpus(root.path(), Pid(7))), (None, None));
        let wanted: CpuSet = "1-2".parse().unwrap();
        let hour = Duration::from_secs(3600);
        // Neither has a group of a hold, so that neither waits.
        wait_for_cpus(root.path(), Pid(6), &wanted, hour);
        wait_for_cpus(root.path(), Pid(7), &wanted, hour);
        let folder = root.path().to_owned();
        let service = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            fs::write(folder.join("sys/fs/cgroup/a/trimtab.1f/cpuset.cpus.effective"), "1-2\n").unwrap();
        });
        wait_for_cpus(root.path(), Pid(5), &wanted, hour);
        service.join().unwrap();
        assert_eq!(effective(root.path(), "/a/trimtab.1f"), Some(wanted.clone()));
        // Without a service it ends nevertheless.
        wait_for_cpus(root.path(), Pid(5), &"7".parse().unwrap(), Duration::ZERO);
    }

    #[test]
    fn a_process_outside_misses_the_cpus_of_partitions_only() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let of = |allowed: &str| withheld(root.path(), &set(allowed), &set("0-7")).to_string();
        assert_eq!(of("0-3"), "", "no control groups");
        write("proc/self/cgroup", "0::/a/b\n");
        write("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cpuset.cpus.effective", "0-3,6-7\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(of("0-3,6-7"), "4-5");
        // The mask leaves CPU 7 out, which the group has: so it may leave out others too.
        assert_eq!(of("0-3,6"), "");
        // The group is for six CPUs only, of which a partition has one.
        write("sys/fs/cgroup/a/cpuset.cpus", "0-4,6\n");
        write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-3,6\n");
        assert_eq!(of("0-3,6"), "4");
        assert_eq!(of_holds(&root.path().join("sys/fs/cgroup")), CpuSet::new(), "plain folders");
    }

    #[test]
    fn holds_are_enforced_while_a_process_has_the_lock() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("run")).unwrap();
        std::os::unix::fs::symlink("/proc", root.path().join("proc")).unwrap();
        assert!(!is_enforced(root.path()), "no file");
        let path = root.path().join(LOCK.trim_start_matches('/'));
        let partitions = Partitions { root: root.path().to_owned(), lock: path.clone() };
        let locked = partitions.lock().unwrap();
        assert!(is_enforced(root.path()));
        drop(locked);
        assert!(path.exists() && !is_enforced(root.path()), "a file of a service that has ended");
    }
}
