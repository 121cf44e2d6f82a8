//! Programs outside of all holds that want to compute on the CPUs of a hold which yields to them.
//!
//! Unit: a thread that is on a CPU or ready for one, and may run on CPUs of the hold. A program
//! that is part of any hold does not count: its run waits in the queue if it wants more.

use crate::escapes::{carried, processes, seen};
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::escapes::{Held, belongs};
use trimtab_core::resize::cores_of;
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::ledger::{Hold, ProcessTable};
use trimtab_linux::process::{self, Pid, Stat, State, Tid};
use trimtab_linux::sys::affinity;

/// Threads of programs outside of all holds that want to compute on CPUs of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outsiders {
    /// Those of users to whom the hold yields.
    pub(crate) yielded_to: usize,
    /// Those among them for which there is no core outside of holds.
    pub(crate) competing: usize,
}

impl Outsiders {
    /// Counts them. `holds` are all holds of the machine, `hold` among them.
    pub(crate) fn look(proc: &Path, machine: &Machine, hold: &Hold, holds: &[Hold], to: &YieldTo) -> Self {
        if *to == YieldTo::Runs {
            return Self::default();
        }
        let all = processes(proc);
        let parents: BTreeMap<u32, u32> = all.iter().map(|stat| (stat.id, stat.parent.0)).collect();
        let table = ProcessTable::at(proc);
        let held: Vec<Held> = holds.iter().map(|hold| seen(hold, &table)).collect();
        let (mut everybody, mut yielded_to) = (0, 0);
        for stat in all.iter().filter(|stat| Pid(stat.id) != Pid::own()) {
            let pid = Pid(stat.id);
            let threads = wanting(proc, stat, &hold.cpus);
            if threads == 0 || belongs(&held, &parents, stat.id, || carried(proc, pid)).is_some() {
                continue;
            }
            everybody += threads;
            if process::status(proc, pid).is_ok_and(|status| to.includes(status.uid)) {
                yielded_to += threads;
            }
        }
        let held = holds.iter().fold(CpuSet::new(), |sum, hold| sum.union(&hold.cpus));
        let outside = cores_of(machine, &machine.cpus().difference(&held)).len();
        Self { yielded_to, competing: yielded_to.min(everybody.saturating_sub(outside)) }
    }
}

/// Returns the threads of a process that want to compute and may do so on some of these CPUs.
fn wanting(proc: &Path, stat: &Stat, cpus: &CpuSet) -> usize {
    let pid = Pid(stat.id);
    let may = |tid: Tid| affinity::get(Some(tid)).is_ok_and(|mask| mask.intersects(cpus));
    if stat.threads <= 1 {
        return usize::from(stat.state == State::Running && may(pid.main_thread()));
    }
    let threads = process::threads(proc, pid).unwrap_or_default();
    let wants = |tid: &Tid| {
        process::thread_stat(proc, pid, *tid).is_ok_and(|stat| stat.state == State::Running) && may(*tid)
    };
    threads.iter().filter(|tid| wants(tid)).count()
}
