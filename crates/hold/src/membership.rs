//! Whether a process is part of a hold: started by its holder, in possession of its locks, or by
//! its own claim.

use std::path::Path;
use trimtab_launch::request::HOLD;
use trimtab_linux::ledger::{Hold, Holder, LedgerView};
use trimtab_linux::process::{self, Pid};

/// Beginning of the label of a hold for a control group, before the group's folder.
pub(crate) const CGROUP_LABEL: &str = "cgroup ";

/// Returns whether a process belongs to the run that holds: it was started by the holder, it has
/// inherited the hold, or its environment names the hold or one inside it. A daemon keeps at least
/// one of these when its parents are gone. The environment is only the process's own claim; a
/// process with a wrong claim hides from this list and from nothing else.
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
    hold_named(proc, pid).is_some_and(named)
}

/// Returns the depth and the number of the hold that a process's environment names, if it can be
/// read.
fn hold_named(proc: &Path, pid: Pid) -> Option<(u8, u64)> {
    let environment = std::fs::read(proc.join(pid.0.to_string()).join("environ")).ok()?;
    let value = environment.split(|&byte| byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(HOLD.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    })?;
    let words: Vec<&str> = value.split(' ').collect();
    let [depth, _, id] = words[..] else { return None };
    Some((depth.parse().ok()?, id.parse().ok()?))
}

/// Returns whether a process is the holder or was started by it, as far as the parents still live.
pub(crate) fn descends(proc: &Path, pid: Pid, holder: &Holder) -> bool {
    let mut at = pid;
    // Process trees are shallow; the bound only guards against an inconsistent /proc.
    for _ in 0..1_000 {
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

    #[test]
    fn a_process_of_a_container_is_known_by_its_number_there() {
        let folder = tempfile::tempdir().unwrap();
        let process = |pid: u32, parent: u32, start: u64, numbers: &str| {
            let entry = folder.path().join(pid.to_string());
            std::fs::create_dir(&entry).unwrap();
            let mut fields = vec!["0".to_owned(); 50];
            fields[0] = "S".to_owned();
            fields[1] = parent.to_string();
            fields[19] = start.to_string();
            std::fs::write(entry.join("stat"), format!("{pid} (a) b) {}", fields.join(" "))).unwrap();
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
