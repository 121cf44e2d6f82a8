//! Monitoring by resctrl: what groups of tasks take of each last-level cache, and of memory's
//! bandwidth.
//!
//! Intel's RDT and AMD's PQoS count, for each cache, the bytes that a monitoring group occupies in
//! it, and the bytes that it read from memory of the own node and of all nodes. Groups are folders
//! of `/sys/fs/resctrl`, made by the machine's owner, by libvirt or by Kubernetes. This module
//! reads them, and makes none: there are few (some hundred on large machines), and tasks that are
//! in a group of another owner must stay there.

use crate::text;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most groups that are read: more than any processor has.
const GROUPS_MAX: usize = 1_024;

/// Counts of one cache for one group, since the machine started; `None` where hardware or kernel do
/// not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheMonitor {
    /// Bytes of the cache that the group occupies now.
    pub occupied: Option<u64>,
    /// Bytes from memory of the cache's own node.
    pub local: Option<u64>,
    /// Bytes from memory of all nodes.
    pub total: Option<u64>,
}

/// A group, and its counts by the number of the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorGroup {
    /// Name: `/` for the tasks in no other group, else the path below the mount point.
    pub name: String,
    /// Counts by cache.
    pub caches: BTreeMap<u32, CacheMonitor>,
}

/// Reads groups below a mount point of resctrl, at most this many; empty if there is none, or
/// nothing is counted. Each count is a question to the hardware, so groups beyond are not read.
pub fn groups(mount: &Path, most: usize) -> Vec<MonitorGroup> {
    let mut folders = vec![(String::from("/"), mount.to_owned())];
    for (name, folder) in subfolders(mount) {
        if !matches!(name.as_str(), "info" | "mon_data" | "mon_groups") {
            folders.push((name, folder));
        }
    }
    let monitored: Vec<(String, PathBuf)> = folders
        .iter()
        .flat_map(|(name, folder)| {
            let below = subfolders(&folder.join("mon_groups"));
            // With `mon_groups`, since a control group may have the name of a monitoring group.
            let prefix = if name == "/" { String::new() } else { format!("{name}/") };
            below.into_iter().map(move |(of, folder)| (format!("{prefix}mon_groups/{of}"), folder))
        })
        .collect();
    let group = |(name, folder): (String, PathBuf)| MonitorGroup { name, caches: caches(&folder) };
    let all = folders.into_iter().chain(monitored).take(most.min(GROUPS_MAX)).map(group);
    all.filter(|group| !group.caches.is_empty()).collect()
}

/// Reads the counts of a group: `mon_data/mon_L3_00/mbm_local_bytes`.
fn caches(group: &Path) -> BTreeMap<u32, CacheMonitor> {
    let of_cache = |(name, folder): (String, PathBuf)| {
        let number = name.strip_prefix("mon_L3_")?.parse().ok()?;
        let read = |file: &str| count(&text::read(&folder.join(file)).ok()?);
        let monitor = CacheMonitor {
            occupied: read("llc_occupancy"),
            local: read("mbm_local_bytes"),
            total: read("mbm_total_bytes"),
        };
        (monitor != CacheMonitor::default()).then_some((number, monitor))
    };
    subfolders(&group.join("mon_data")).into_iter().filter_map(of_cache).collect()
}

/// Parses a count; the kernel writes `Unavailable`, `Unassigned` or `Error` if there is none.
fn count(text: &[u8]) -> Option<u64> {
    text::words(text).next().and_then(text::number)
}

fn subfolders(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut all: Vec<(String, PathBuf)> = folders
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .take(GROUPS_MAX)
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes a mount point as the kernel's document shows it (Documentation/filesystems/resctrl).
    fn mount(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn groups_of_control_and_monitoring_are_read_with_all_caches() {
        let root = mount(&[
            ("info/L3_MON/num_rmids", "143\n"),
            ("mon_data/mon_L3_00/llc_occupancy", "16234000\n"),
            ("mon_data/mon_L3_00/mbm_local_bytes", "700\n"),
            ("mon_data/mon_L3_00/mbm_total_bytes", "1000\n"),
            ("mon_data/mon_L3_01/llc_occupancy", "14789000\n"),
            ("mon_data/mon_L3_01/mbm_total_bytes", "Unavailable\n"),
            ("mon_data/mon_L3_02/llc_occupancy", "Error\n"),
            ("mon_groups/p0/mon_data/mon_L3_00/mbm_total_bytes", "4\n"),
            ("mon_groups/vm1/mon_data/mon_L3_00/mbm_total_bytes", "5\n"),
            ("p0/schemata", "L3:0=f\n"),
            ("p0/mon_data/mon_L3_00/llc_occupancy", "1\n"),
            ("p0/mon_groups/job/mon_data/mon_L3_00/llc_occupancy", "2\n"),
            ("p1/mon_data/mon_PERF_PKG_00/core_energy", "9\n"),
        ]);
        let all = groups(root.path(), GROUPS_MAX);
        let names: Vec<&str> = all.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/", "p0", "mon_groups/p0", "mon_groups/vm1", "p0/mon_groups/job"]);
        let whole = &all[0].caches;
        assert_eq!(whole.keys().copied().collect::<Vec<_>>(), [0, 1], "a cache without a count is left out");
        let near = CacheMonitor { occupied: Some(16_234_000), local: Some(700), total: Some(1_000) };
        assert_eq!((whole[&0], whole[&1].total), (near, None));
        assert_eq!(groups(root.path(), 2), all[..2]);
        assert_eq!(all[4].caches[&0].occupied, Some(2));
    }

    #[test]
    fn a_machine_without_it_has_no_groups() {
        assert!(groups(Path::new("/nowhere"), 9).is_empty());
        let root = mount(&[("tasks", "1\n")]);
        assert!(groups(root.path(), 9).is_empty());
    }
}
