//! The masks of a target's threads: noted before a hold, and given back after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;
use trimtab_front::process_env::World;
use trimtab_linux::keeper::{self, Description, Target};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::rebind::{Bound, rebind, threads};
use trimtab_linux::sys::affinity;

/// Returns the processes of a target.
pub(crate) fn processes_of(world: &World, target: &Target) -> BTreeSet<Pid> {
    match target {
        Target::Process { pid, .. } => family(&world.proc(), *pid).into_iter().collect(),
        Target::Cgroup(folder) => keeper::cgroup_processes(folder).into_iter().collect(),
    }
}

/// Notes the state of a target before its threads are bound.
pub(crate) fn describe(world: &World, target: &Target) -> Description {
    let proc = world.proc();
    let all = processes_of(world, target).into_iter().flat_map(|pid| threads(&proc, pid));
    let before: Vec<_> = all.map(|thread| (thread.tid.0, thread.start.0, thread.mask)).collect();
    // The first thread of the first process, or all CPUs.
    let usual = before.first().map(|(_, _, mask)| mask.clone()).unwrap_or_default();
    let cpuset = match target {
        Target::Cgroup(folder) => writable_cpuset(folder),
        Target::Process { .. } => None,
    };
    Description { target: target.clone(), before, usual, cpuset, container: None }
}

/// Returns the file of a control group's CPUs.
fn cpuset_file(folder: &Path) -> PathBuf {
    folder.join("cpuset.cpus")
}

/// Returns the list of CPUs of a control group, if this process may change it.
fn writable_cpuset(folder: &Path) -> Option<String> {
    let path = cpuset_file(folder);
    fs::OpenOptions::new().write(true).open(&path).ok()?;
    fs::read_to_string(&path).ok().map(|text| text.trim().to_owned())
}

/// Writes the list of CPUs of a control group; an empty list is inherited from the group above.
pub(crate) fn write_cpuset(folder: &Path, list: &str) -> std::io::Result<()> {
    fs::write(cpuset_file(folder), format!("{list}\n"))
}

/// Gives the threads of a target the masks that they had before its hold of these CPUs. A thread
/// outside of the hold keeps its mask.
pub fn restore(world: &World, about: &Description, hold: &CpuSet) -> usize {
    let proc = world.proc();
    if let (Target::Cgroup(folder), Some(list)) = (&about.target, &about.cpuset) {
        // The group may be gone, and its processes with it.
        let _ = write_cpuset(folder, list);
    }
    let all = affinity::every().unwrap_or_default();
    let widest = widest_mask();
    let is_whole = |mask: &CpuSet| widest.as_ref().is_none_or(|widest| widest.is_subset(mask));
    let members = || match &about.target {
        Target::Process { pid, start }
            if process::stat(&proc, *pid).is_ok_and(|stat| stat.start == *start) =>
        {
            family(&proc, *pid)
        }
        Target::Process { .. } => Vec::new(),
        Target::Cgroup(folder) => keeper::cgroup_processes(folder),
    };
    let rule = |thread: &Bound| {
        let known =
            about.before.iter().find(|(tid, start, _)| *tid == thread.tid.0 && *start == thread.start.0);
        let before = known.map_or(&about.usual, |(_, _, mask)| mask);
        // A mask of all CPUs is given back as one, so that it follows a cpuset that grows.
        let whole = before.is_empty() || is_whole(before);
        let is_done = if whole { is_whole(&thread.mask) } else { thread.mask == *before };
        let new = if whole { &all } else { before };
        (thread.mask.is_subset(hold) && !is_done).then(|| new.clone())
    };
    // The masks that could not be set belong to threads that end.
    rebind(&proc, &members, &rule).map(|done| done.changed.len()).unwrap_or_default()
}

/// Returns the widest mask that the kernel grants a thread of this process: its cpuset. A thread of
/// its own is asked, so that no other changes its mask.
pub fn widest_mask() -> Option<CpuSet> {
    let ask = || {
        affinity::set(None, &affinity::every().ok()?).ok()?;
        affinity::get(None).ok()
    };
    std::thread::Builder::new().spawn(ask).ok()?.join().ok()?
}

/// Returns a process and all its descendants.
pub fn family(proc: &Path, first: Pid) -> Vec<Pid> {
    let all = process::all(proc).unwrap_or_default();
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for pid in all {
        if let Ok(stat) = process::stat(proc, pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut next = vec![first];
    while let Some(pid) = next.pop() {
        if found.insert(pid) {
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = family(Path::new("/proc"), Pid::own());
        let only = family(Path::new("/proc"), Pid(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.contains(&Pid::own()) && own.contains(&Pid(child.id())));
        assert_eq!(only, [Pid(child.id())]);
    }
}
