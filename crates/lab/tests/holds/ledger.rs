//! Independent reading of the ledger and of masks: the kernel's list of locks and `/proc`, by no
//! code of trimtab.

use crate::util::{Sandbox, cpus, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// First byte beyond the locks on CPUs of the machine's level.
const CPUS: u64 = 1 << 20;

/// Number of readings in a row that have to agree. The kernel hands out its list page by page and
/// continues by position: a lock of any process that goes or comes meanwhile hides a line, or shows
/// one twice.
const READINGS: usize = 3;

/// Returns how often each CPU of the machine's level is locked for writing in this sandbox.
pub(crate) fn locked(sandbox: &Sandbox) -> BTreeMap<u32, usize> {
    let mut found = listed(sandbox);
    let mut agreeing = 1;
    while agreeing < READINGS {
        let next = listed(sandbox);
        agreeing = if next == found { agreeing + 1 } else { 1 };
        found = next;
    }
    found
}

fn listed(sandbox: &Sandbox) -> BTreeMap<u32, usize> {
    let boot = text("/proc/sys/kernel/random/boot_id".as_ref()).trim().replace('-', "");
    let file = sandbox.path(&format!("ledger/trimtab-{boot}.locks"));
    let Ok(inode) = fs::metadata(file).map(|meta| meta.ino()) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for line in text("/proc/locks".as_ref()).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "OFDLCK", _, "WRITE", _, place, first, last] = words[..] else { continue };
        if place.rsplit(':').next() != Some(inode.to_string().as_str()) {
            continue;
        }
        let Ok(first) = first.parse::<u64>() else { continue };
        let last = last.parse::<u64>().unwrap_or(u64::MAX);
        for cpu in first..=last.min(CPUS - 1) {
            *found.entry(u32::try_from(cpu).unwrap()).or_default() += 1;
        }
    }
    found
}

/// Returns the CPUs that are locked, and asserts that none is locked twice.
#[track_caller]
pub(crate) fn held(sandbox: &Sandbox) -> BTreeSet<u32> {
    let found = locked(sandbox);
    assert!(found.values().all(|&times| times == 1), "a CPU is granted twice: {found:?}");
    found.into_keys().collect()
}

/// Returns the CPUs on which some thread of a process may run; empty if it has ended.
pub(crate) fn used(pid: u32) -> BTreeSet<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mask = |folder: &Path| {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(cpus(list))
    };
    tasks.filter_map(|task| mask(&task.path())).flatten().collect()
}

/// Returns the processes whose argument 0 is that of a keeper of this target.
pub(crate) fn keepers(of: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = format!("trimtab: keeper of {of}\0");
    pids.filter(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(name.as_bytes()))
    })
    .collect()
}
