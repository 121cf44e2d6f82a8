//! Who holds which cores, and who is in the way: read once, told by `ps` and shown by `top`.

use crate::surroundings::Surroundings;
use crate::world::World;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::ledger::{Hold, LedgerView, Level, Mode, ProcessTable, Standing};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::survey::Pin;
use trimtab_linux::users::Users;

/// The version of the JSON.
pub const SCHEMA: &str = "trimtab.ps/1";

/// All that is known of the holds.
#[derive(Debug, Serialize)]
pub struct Holds {
    schema: &'static str,
    /// The lock file; absent when nobody has made a ledger yet.
    ledger: Option<String>,
    /// Each, those inside others after them.
    pub holds: Vec<Row>,
    /// CPUs held by nobody who can be named.
    pub unknown: CpuSet,
    /// Runs that wait in line for cores of the machine.
    pub waiting: u64,
    /// Tasks of others on held cores.
    pub violators: Vec<Violator>,
}

/// One hold.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The CPUs.
    pub cpus: CpuSet,
    /// 0 for a hold of the machine, 1 for one inside such a hold, and so on.
    pub level: u8,
    /// Exclusive or shared.
    pub mode: &'static str,
    /// Whose it is, by name.
    pub user: String,
    /// The same by number.
    pub uid: u32,
    /// The process that holds.
    pub pid: u32,
    /// What became of that process.
    pub standing: &'static str,
    /// How long it has held them, in seconds.
    pub age_s: u64,
    /// Mean busy share of its CPUs in thousandths, where it was sampled.
    pub load_permille: Option<u16>,
    /// What it runs.
    pub command: String,
}

/// A task bound to cores that somebody else's run holds.
#[derive(Debug, Serialize)]
pub struct Violator {
    /// The process.
    pub pid: u32,
    /// Whose it is.
    pub user: String,
    /// What it is called.
    pub command: String,
    /// The held CPUs it may run on.
    pub cpus: CpuSet,
}

/// Reads them. `seen` is what else runs; without a view nobody has ever held anything.
///
/// # Errors
/// The ledger cannot be read.
pub fn gather(
    world: &World,
    machine: &Machine,
    view: Option<&LedgerView>,
    seen: &Surroundings,
    users: &Users,
) -> Result<Holds> {
    let mut found = Holds {
        schema: SCHEMA,
        ledger: None,
        holds: Vec::new(),
        unknown: CpuSet::new(),
        waiting: 0,
        violators: Vec::new(),
    };
    let Some(view) = view else { return Ok(found) };
    found.ledger = Some(view.path().display().to_string());
    let all = machine.cpus();
    found.waiting = view.waiting(Level::MACHINE, &all).context("cannot read the queue")?;
    let processes = ProcessTable::at(&world.proc());
    let mut holds: Vec<Hold> = Vec::new();
    for level in (0..).map_while(Level::new) {
        let holders = view.holders(level, &all).context("cannot read the holders")?;
        if holders.known.is_empty() && holders.unknown.is_empty() {
            break; // a hold inside another needs that other
        }
        found.unknown = found.unknown.union(&holders.unknown);
        holds.extend(holders.known);
    }
    found.holds = holds.iter().map(|hold| row(hold, &processes, world.now(), seen, users)).collect();
    let outer: Vec<&Hold> = holds.iter().filter(|hold| hold.level == Level::MACHINE).collect();
    found.violators = violators(&world.proc(), &outer, seen, users);
    Ok(found)
}

fn row(hold: &Hold, processes: &ProcessTable, now: Duration, seen: &Surroundings, users: &Users) -> Row {
    let holder = &hold.holder;
    let loads: Vec<u32> =
        hold.cpus.iter().filter_map(|cpu| seen.busy.get(&cpu)).map(|&load| u32::from(load)).collect();
    let count = u32::try_from(loads.len()).unwrap_or(u32::MAX);
    let load = loads.iter().sum::<u32>().checked_div(count).and_then(|load| u16::try_from(load).ok());
    Row {
        cpus: hold.cpus.clone(),
        level: hold.level.depth(),
        mode: match hold.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        },
        user: users.name(holder.uid),
        uid: holder.uid,
        pid: holder.pid,
        standing: match processes.standing(holder) {
            Standing::Running => "running",
            Standing::Outlived => "ended, its children hold on",
            Standing::Impostor { .. } => "not who it says it is",
            Standing::OtherNamespace => "in a container",
            Standing::Hidden => "hidden",
        },
        age_s: now.saturating_sub(holder.since).as_secs(),
        load_permille: load,
        command: holder.label.clone(),
    }
}

/// Tasks bound to CPUs that a run holds alone, and not started by that run.
fn violators(proc: &Path, holds: &[&Hold], seen: &Surroundings, users: &Users) -> Vec<Violator> {
    let mut said: BTreeSet<u32> = BTreeSet::new();
    let mut violators = Vec::new();
    for Pin { pid, uid, comm, cpus, .. } in &seen.pins {
        let others = holds.iter().filter(|hold| hold.mode == Mode::Exclusive && hold.cpus.intersects(cpus));
        let foreign: Vec<_> = others.filter(|hold| !descends(proc, *pid, hold.holder.pid)).collect();
        // A holder's own processes hold no other run's CPUs; a task in several holds at once is in nobody's.
        let on = foreign.iter().fold(CpuSet::new(), |sum, hold| sum.union(&hold.cpus.intersection(cpus)));
        if !on.is_empty() && said.insert(pid.0) {
            violators.push(Violator { pid: pid.0, user: users.name(*uid), command: comm.clone(), cpus: on });
        }
    }
    violators
}

/// Whether a process is `ancestor` or was started by it, as far as parents still live.
fn descends(proc: &Path, pid: Pid, ancestor: u32) -> bool {
    let mut at = pid;
    // Process trees are shallow; the bound only guards against a /proc that lies.
    for _ in 0..1_000 {
        if at.0 == ancestor {
            return true;
        }
        match process::stat(proc, at) {
            Ok(stat) if stat.parent.0 > 1 => at = stat.parent,
            _ => return false,
        }
    }
    false
}
