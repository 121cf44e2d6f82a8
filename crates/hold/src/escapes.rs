//! Escapes on this machine: processes of runs that may run on CPUs which their run does not hold.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::escapes::{Held, belongs, outside};
use trimtab_core::hold_claim::HoldClaim;
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{Hold, ProcessTable, Standing};
use trimtab_linux::process::{self, Pid, Stat, State};
use trimtab_linux::users::Users;

/// Most bytes of an environment that are read: the kernel's default limit for all words of a new
/// program.
const ENVIRONMENT_MAX: u64 = 2 << 20;

/// A process that may run on CPUs which its run does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Escaped {
    /// Process number.
    pub pid: u32,
    /// Its user.
    pub user: String,
    /// Its name.
    pub command: String,
    /// The CPUs that it may use and its run does not hold.
    pub cpus: CpuSet,
    /// The process that holds the cores of its run.
    pub run: u32,
}

/// Returns all escapes that are visible. `machine` is the CPUs of this machine.
pub fn escaped(proc: &Path, holds: &[Hold], machine: &CpuSet, users: &Users) -> Vec<Escaped> {
    if holds.is_empty() {
        return Vec::new();
    }
    let all = processes(proc);
    let parents: BTreeMap<u32, u32> = all.iter().map(|stat| (stat.id, stat.parent.0)).collect();
    let processes = ProcessTable::at(proc);
    let held: Vec<Held> = holds.iter().map(|hold| seen(hold, &processes)).collect();
    let mut escaped = Vec::new();
    for stat in &all {
        let pid = Pid(stat.id);
        let Some(its) = belongs(&held, &parents, stat.id, || carried(proc, pid)) else { continue };
        let Ok(status) = process::status(proc, pid) else { continue };
        let holds_it = |hold: &Hold| hold.holder.pid == stat.id && hold.id.number() == its.id;
        if holds.iter().any(holds_it) && holds_for_others(proc, pid, its.id, status.uid) {
            continue;
        }
        let cpus = outside(its, &allowed(proc, pid, status.cpus), machine);
        if !cpus.is_empty() {
            let run = holds.iter().find(|hold| hold.id.number() == its.id).map_or(0, |hold| hold.holder.pid);
            let (user, command) = (users.name(status.uid), stat.comm.clone());
            escaped.push(Escaped { pid: pid.0, user, command, cpus, run });
        }
    }
    escaped
}

/// Returns the processes that run a program.
pub(crate) fn processes(proc: &Path) -> Vec<Stat> {
    let all = process::all(proc).unwrap_or_default().into_iter();
    let all = all.filter_map(|pid| process::stat(proc, pid).ok());
    all.filter(|stat| !stat.kernel_thread && !matches!(stat.state, State::Zombie)).collect()
}

/// Returns a hold with its holder, if that process is visible here under this number.
pub(crate) fn seen(hold: &Hold, processes: &ProcessTable) -> Held {
    let there = processes.standing(&hold.holder) == Standing::Running;
    Held { id: hold.id.number(), holder: there.then_some(hold.holder.pid), cpus: hold.cpus.clone() }
}

/// Returns where any thread of a process may run: the union of `main` and the masks of the other
/// threads.
fn allowed(proc: &Path, pid: Pid, main: CpuSet) -> CpuSet {
    let threads = process::threads(proc, pid).unwrap_or_default();
    let masks = threads.into_iter().filter_map(|tid| process::thread_status(proc, pid, tid).ok());
    masks.fold(main, |sum, status| sum.union(&status.cpus))
}

/// Returns whether a holder is a launcher or a server that holds cores for programs which it
/// starts: the program of a run has the hold in its environment. Of a process whose environment
/// cannot be read, that is known for root's daemons.
fn holds_for_others(proc: &Path, pid: Pid, id: u64, uid: u32) -> bool {
    match environment(proc, pid) {
        Some(text) => named(&text) != Some(id),
        None => uid == 0,
    }
}

/// Returns the hold that a process's environment names. Another user's environment cannot be read.
pub(crate) fn carried(proc: &Path, pid: Pid) -> Option<u64> {
    named(&environment(proc, pid)?)
}

fn environment(proc: &Path, pid: Pid) -> Option<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(proc.join(format!("{pid}/environ"))).ok()?;
    let mut text = Vec::new();
    file.take(ENVIRONMENT_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Returns the hold that an environment names.
fn named(text: &[u8]) -> Option<u64> {
    HoldClaim::in_environment(text)?.hold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_whose_environment_does_not_name_its_hold_holds_for_others() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, text) in
            [(5, "A=1\0TRIMTAB_HOLD=0 -1 77\0"), (6, "TRIMTAB_HOLD=0 3 9"), (7, "A=1\0"), (8, "")]
        {
            std::fs::create_dir(proc.path().join(pid.to_string())).unwrap();
            std::fs::write(proc.path().join(format!("{pid}/environ")), text).unwrap();
        }
        let of = |pid, uid| holds_for_others(proc.path(), Pid(pid), 77, uid);
        assert_eq!([5, 6, 7, 8].map(|pid| of(pid, 1000)), [false, true, true, true]);
        assert!(of(9, 0) && !of(9, 1000), "its environment cannot be read");
    }
}
