//! A process inside the group of an enforced hold: the CPUs of its home, and the wait until its
//! group follows the ledger.

use super::members::home;
use crate::process::Pid;
use crate::text;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::enforce::HoldGroup;
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

/// Waits until the group of a hold in which a process is has these CPUs: a service that enforces
/// holds gives them to it once the ledger grants them. Returns at once for a process in no such
/// group.
pub fn wait_for_cpus(root: &Path, pid: Pid, cpus: &CpuSet, most: Duration) {
    let begin = Instant::now();
    while let Some((home, Some(hold))) = home(&root.join("proc"), pid) {
        let has = effective(root, &HoldGroup { home, hold }.path()).is_none_or(|has| cpus.is_subset(&has));
        if has || begin.elapsed() > most {
            break;
        }
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
    use std::fs;

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
}
