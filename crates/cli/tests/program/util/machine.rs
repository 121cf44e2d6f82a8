//! The machine under the tests, and its users.

use rustix::process::geteuid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Parses a list of CPUs as the kernel writes it.
pub(crate) fn cpus(list: &str) -> BTreeSet<u32> {
    let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{list:?} is no list of CPUs"));
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .flat_map(|range| match range.split_once('-') {
            Some((first, last)) => number(first)..=number(last),
            None => number(range)..=number(range),
        })
        .collect()
}

/// Returns the masks of a process's threads.
pub(crate) fn masks(pid: u32) -> Vec<BTreeSet<u32>> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mask = |folder: &Path| {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(cpus(list))
    };
    tasks.flatten().filter_map(|task| mask(&task.path())).collect()
}

/// Returns whether a process has other threads than the initial one, each bound to one CPU.
/// Policies that bind threads leave an initial thread free that only waits.
pub(crate) fn workers_are_bound(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let mut workers = tids.filter(|tid| *tid != pid).map(|tid| mask_of(pid, tid).len()).peekable();
    workers.peek().is_some() && workers.all(|cpus| cpus == 1)
}

/// Returns the mask of a thread; empty if it has ended.
pub(crate) fn mask_of(pid: u32, tid: u32) -> BTreeSet<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(BTreeSet::new, cpus)
}

/// Confines this test, and all processes it starts, to one CPU of each of `count` cores, whatever
/// the machine. Returns the CPUs, ascending, or `None` if there are not enough cores.
pub(crate) fn confined(count: usize) -> Option<Vec<u32>> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = BTreeSet::new();
    let mut chosen = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        if cores.insert(fs::read_to_string(topology).unwrap_or_else(|_| cpu.to_string())) {
            chosen.push(cpu);
        }
    }
    chosen.truncate(count);
    if chosen.len() < count {
        return None;
    }
    let mut mask = CpuSet::new();
    chosen.iter().for_each(|&cpu| mask.set(cpu));
    sched_setaffinity(None, &mask).unwrap();
    Some(chosen.iter().map(|&cpu| u32::try_from(cpu).unwrap()).collect())
}

/// As [`confined`], for the many tests that are about two CPUs.
pub(crate) fn two() -> Option<[u32; 2]> {
    confined(2).map(|cpus| [cpus[0], cpus[1]])
}

/// Returns numbers of ordinary users, if the test may act as them.
pub(crate) fn two_users() -> Option<[u32; 2]> {
    geteuid().is_root().then_some([65_534, 1])
}
