//! Whether a process is part of a hold: started by its holder, in possession of its locks, or by a
//! claim in its environment or in that of a process from which it descends.

use std::path::Path;
use trimtab_core::hold_claim::HoldClaim;
use trimtab_linux::ledger::{Hold, Holder, LedgerView};
use trimtab_linux::process::{self, Pid};

/// Beginning of the label of a hold for a control group, before the group's folder.
pub(crate) const CGROUP_LABEL: &str = "cgroup ";
/// Most processes from which one descends.
const DEEPEST: usize = 1_000;
/// Place of the session in a process's line `stat`, after the name.
const SESSION_FIELD: usize = 3;

/// Returns whether a process belongs to the run that holds: it was started by the holder, it has
/// inherited the hold, or its environment names the hold or one inside it, or that of a process
/// from which it descends does. A daemon keeps at least one of these when its parents are gone. A
/// process that closes all descriptors and writes its title over its environment, as Ray's workers
/// do, has the claim of its parent. The environment is only the processes' own claim; a process
/// with a wrong claim hides from this list and from nothing else.
pub(crate) fn is_part(proc: &Path, view: &LedgerView, pid: Pid, hold: &Hold, all: &[Hold]) -> bool {
    if descends(proc, pid, &hold.holder) {
        return true;
    }
    if view.held_by(pid.0, hold.level, &hold.cpus).is_ok_and(|held| !held.is_empty()) {
        return true;
    }
    let named = |(depth, id): (u8, u64)| {
        let is_it = |other: &&Hold| other.level.depth() == depth && other.id.number() == id;
        all.iter().find(is_it).is_some_and(|other| other.id == hold.id || other.cpus.is_subset(&hold.cpus))
    };
    origins(proc, pid).into_iter().any(|pid| hold_named(proc, pid).is_some_and(named))
}

/// Returns a process and those from which it descends, as far as they live: its parents, and the
/// process that began its session, with its parents. A session cannot be joined, so all its
/// processes descend from the first one, also those whose parents have ended.
fn origins(proc: &Path, pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(at) = next.pop() {
        // Process trees are shallow; the bound only guards against an inconsistent /proc.
        if at.0 <= 1 || found.contains(&at) || found.len() == DEEPEST {
            continue;
        }
        let Ok(stat) = process::stat(proc, at) else { continue };
        found.push(at);
        next.extend(session(proc, at));
        next.push(stat.parent);
    }
    found
}

/// Returns the process that began the session of a process; it may have ended.
fn session(proc: &Path, pid: Pid) -> Option<Pid> {
    stat_number(proc, pid, SESSION_FIELD).map(Pid)
}

/// Returns a number of a process's line `stat`, by its place after the name.
pub(crate) fn stat_number(proc: &Path, pid: Pid, place: usize) -> Option<u32> {
    let stat = std::fs::read(proc.join(pid.0.to_string()).join("stat")).ok()?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_whitespace().nth(place)?.parse().ok()
}

/// Returns the depth and the number of the hold that a process's environment names, if it can be
/// read.
fn hold_named(proc: &Path, pid: Pid) -> Option<(u8, u64)> {
    let environment = std::fs::read(proc.join(pid.0.to_string()).join("environ")).ok()?;
    let claim = HoldClaim::in_environment(&environment)?;
    Some((claim.depth, claim.hold?))
}

/// Returns whether a process is the holder or was started by it, as far as the parents still live.
pub(crate) fn descends(proc: &Path, pid: Pid, holder: &Holder) -> bool {
    let mut at = pid;
    // As in `origins`.
    for _ in 0..DEEPEST {
        let Ok(stat) = process::stat(proc, at) else { return at.0 == holder.pid };
        if stat.start.0 == holder.start_ticks && numbers(proc, at).contains(&holder.pid) {
            return true;
        }
        if stat.parent.0 <= 1 {
            return false;
        }
        at = stat.parent;
    }
    false
}

/// Returns a process's numbers: here, and inside the containers around it. A holder wrote down the
/// one inside its own container; a plug-in on the machine wrote down the one of the machine.
fn numbers(proc: &Path, pid: Pid) -> Vec<u32> {
    let status = std::fs::read_to_string(proc.join(pid.0.to_string()).join("status")).unwrap_or_default();
    let listed = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // Kernels before 4.1 do not show them.
    let listed = listed.map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect());
    listed.unwrap_or_else(|| vec![pid.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Makes the entry of a process in a folder.
    fn process(proc: &Path, pid: u32, [parent, session]: [u32; 2], start: u64) -> std::path::PathBuf {
        let entry = proc.join(pid.to_string());
        std::fs::create_dir(&entry).unwrap();
        let mut fields = vec!["0".to_owned(); 50];
        fields[0] = "S".to_owned();
        fields[1] = parent.to_string();
        fields[3] = session.to_string();
        fields[19] = start.to_string();
        std::fs::write(entry.join("stat"), format!("{pid} (a) b) {}", fields.join(" "))).unwrap();
        entry
    }

    #[test]
    fn a_process_descends_from_its_parents_and_from_its_session() {
        let folder = tempfile::tempdir().unwrap();
        for (pid, parent, session) in [
            (10, 1, 10),
            (20, 10, 20), // the shell of a run
            (21, 20, 20), // a daemon's parent, which is a session of its own, and has a title
            (22, 21, 22),
            (23, 22, 22), // its parent has ended
            (24, 1, 22),
            (25, 1, 9),   // the first of its session has ended
            (30, 31, 30), // a loop, which no kernel has
            (31, 30, 31),
        ] {
            process(folder.path(), pid, [parent, session], 70);
        }
        let of = |pid| {
            let mut found = origins(folder.path(), Pid(pid));
            found.sort_unstable();
            found.into_iter().map(|pid| pid.0).collect::<Vec<_>>()
        };
        assert_eq!(of(23), [10, 20, 21, 22, 23]);
        assert_eq!(of(24), [10, 20, 21, 22, 24]);
        assert_eq!((of(25), of(10), of(99)), (vec![25], vec![10], vec![]));
        assert_eq!(of(30), [30, 31]);
    }

    #[test]
    fn a_process_of_a_container_is_known_by_its_number_there() {
        let folder = tempfile::tempdir().unwrap();
        let process = |pid: u32, parent: u32, start: u64, numbers: &str| {
            let entry = process(folder.path(), pid, [parent, 0], start);
            std::fs::write(entry.join("status"), format!("Name:\ta\n{numbers}\nUid:\t0\n")).unwrap();
        };
        process(900, 1, 70, "NSpid:\t900\t1");
        process(901, 900, 71, "NSpid:\t901\t7");
        process(902, 901, 72, "NSpid:\t902\t8");
        process(7, 1, 30, "NSpid:\t7");
        process(8, 1, 71, "Threads:\t1");
        let holder = |pid, start_ticks| Holder {
            pid,
            start_ticks,
            uid: 0,
            pid_namespace: 5,
            job: 0,
            since: Duration::ZERO,
            label: String::new(),
            delegated: false,
            memory: std::collections::BTreeMap::new(),
        };
        let of = |pid, holder: &Holder| descends(folder.path(), Pid(pid), holder);
        let inside = holder(7, 71);
        assert!(of(901, &inside) && of(902, &inside), "the holder, and what it started");
        assert!(of(902, &holder(901, 71)), "the same holder, by its number on the machine");
        // Its own number is another process here, which is not the holder; nor is the container's
        // first process.
        assert!(!of(7, &inside) && !of(900, &inside));
        assert!(of(7, &holder(7, 30)) && of(8, &holder(8, 71)) && !of(8, &inside));
        assert!(!of(4, &inside), "it has ended");
    }
}
