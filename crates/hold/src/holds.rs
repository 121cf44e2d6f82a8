//! Holds of cores and their violations: read once, printed by `ps` and shown by `top`.

use crate::budget_report::LiveBudget;
use crate::escapes::{Escaped, escaped};
use crate::facts::granted;
use crate::foreign_load::Surroundings;
use crate::membership::{is_part, stat_number};
use crate::queue::{Line, positions};
use crate::site_facts::LedgerPosition;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::place::{ExclusiveGrant, NodeMemory};
use trimtab_core::queue::QueueRules;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::process_env::World;
use trimtab_linux::ledger::{Hold, LedgerError, LedgerView, Level, Mode, ProcessTable, Standing};
use trimtab_linux::process::Pid;
use trimtab_linux::survey::Pin;
use trimtab_linux::users::Users;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.ps/1";
/// Place of the process group in a process's line `stat`, after the name.
const GROUP_FIELD: usize = 2;

/// All holds.
#[derive(Debug, Serialize)]
pub struct Holds {
    schema: &'static str,
    /// The lock file; absent before the first ledger is made.
    ledger: Option<String>,
    /// All holds; a hold inside another one follows it.
    pub holds: Vec<HoldRow>,
    /// CPUs held by processes that cannot be named.
    pub unknown: CpuSet,
    /// Processes that lock these CPUs, as far as this user may see it.
    pub unknown_pids: BTreeSet<u32>,
    /// CPUs that other managers of this machine granted exclusively.
    pub granted: Vec<ExclusiveGrant>,
    /// Number of runs that wait in line for cores of the machine.
    pub waiting: u64,
    /// These runs, in the order of the line. Of a long queue, the foremost.
    pub queue: Vec<QueueRow>,
    /// Foreign tasks that are bound to held cores.
    pub violators: Vec<Violator>,
    /// Processes of runs that may run on CPUs which their run does not hold.
    pub escaped: Vec<Escaped>,
}

/// One hold.
#[derive(Clone, Debug, Serialize)]
pub struct HoldRow {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// 0 for a hold of the machine, 1 for one inside such a hold, and so on.
    pub level: u8,
    /// Exclusive or shared.
    pub mode: &'static str,
    /// Name of its user.
    pub user: String,
    /// Number of its user.
    pub uid: u32,
    /// The process that holds.
    pub pid: u32,
    /// State of that process.
    pub standing: &'static str,
    /// Age in seconds.
    pub age_s: u64,
    /// Mean busy share of its CPUs in thousandths, if load was sampled.
    pub load_permille: Option<u16>,
    /// Its command.
    pub command: String,
    /// Number of the hold, which `resize` and `release` take.
    pub hold: String,
    /// Whether a keeper keeps the hold for this process.
    pub delegated: bool,
    /// Memory of the hold, by node, whether its programs use it already or not.
    pub memory: Vec<NodeMemory>,
    /// Budget of its run; `None` without one, or if it is another user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<LiveBudget>,
}

/// A run in the queue.
#[derive(Clone, Debug, Serialize)]
pub struct QueueRow {
    /// Position, from 1; `None` while it is stopped, and so passed over.
    pub position: Option<usize>,
    /// Name of its user; `None` if the run says nothing about itself, as for the fields below.
    pub user: Option<String>,
    /// Number of its user.
    pub uid: Option<u32>,
    /// The process that waits.
    pub pid: Option<u32>,
    /// State of that process.
    pub standing: Option<&'static str>,
    /// Number of cores that it wants; `None` also if its request is not a plain number.
    pub cores: Option<u32>,
    /// CPUs on which it may run.
    pub cpus: Option<CpuSet>,
    /// Priority that it asked for.
    pub priority: i32,
    /// Time in seconds for which it has waited.
    pub age_s: Option<u64>,
    /// Its command.
    pub command: Option<String>,
}

/// A task bound to cores that another run holds.
#[derive(Debug, Serialize)]
pub struct Violator {
    /// Process number.
    pub pid: u32,
    /// Name of its user.
    pub user: String,
    /// Its name.
    pub command: String,
    /// The held CPUs that it and the others may use.
    pub cpus: CpuSet,
    /// Further processes of its process group that are bound to CPUs of other runs.
    pub others: usize,
}

/// Reads the holds. `seen` is the other load of the machine; without a view there is no ledger, so
/// no holds.
///
/// # Errors
/// The ledger cannot be read.
pub fn gather(
    world: &World,
    machine: &Machine,
    view: Option<&LedgerView>,
    seen: &Surroundings,
    users: &Users,
    rules: QueueRules,
) -> Result<Holds> {
    let mut found = Holds {
        schema: SCHEMA,
        ledger: None,
        holds: Vec::new(),
        unknown: CpuSet::new(),
        unknown_pids: BTreeSet::new(),
        granted: granted(world, machine, &machine.cpus()).grants,
        waiting: 0,
        queue: Vec::new(),
        violators: Vec::new(),
        escaped: Vec::new(),
    };
    let Some(view) = view else { return Ok(found) };
    found.ledger = Some(view.path().display().to_string());
    let all = machine.cpus();
    found.waiting = view.waiting(Level::MACHINE, &all).context("cannot read the queue")?;
    let processes = ProcessTable::at(&world.proc());
    let stand = LedgerPosition { level: Level::MACHINE, within: all.clone() };
    let line = Line { world, machine, stand: &stand, rules };
    found.queue = queue(&line, view, &processes, users).context("cannot read the queue")?;
    let mut holds: Vec<Hold> = Vec::new();
    for level in (0..).map_while(Level::new) {
        let holders = view.holders(level, &all).context("cannot read the holders")?;
        if holders.known.is_empty() && holders.unknown.is_empty() {
            break; // a hold inside another needs that other
        }
        if !holders.unknown.is_empty() {
            found.unknown_pids.extend(view.lockers(level, &holders.unknown).unwrap_or_default());
        }
        found.unknown = found.unknown.union(&holders.unknown);
        holds.extend(holders.known);
    }
    found.holds = holds.iter().map(|hold| row(hold, &processes, world, seen, users)).collect();
    for (row, hold) in found.holds.iter_mut().zip(&holds) {
        // A process that began a run inside of its hold has the budget of that run.
        let inner = |other: &Hold| other.holder.pid == hold.holder.pid && other.level > hold.level;
        if processes.standing(&hold.holder) == Standing::Running && !holds.iter().any(inner) {
            row.budget = LiveBudget::of_run(&world.proc(), Pid(hold.holder.pid));
        }
    }
    found.violators = violators(&world.proc(), view, &holds, seen, users);
    found.escaped = escaped(&world.proc(), &holds, &all, users);
    Ok(found)
}

fn row(hold: &Hold, processes: &ProcessTable, world: &World, seen: &Surroundings, users: &Users) -> HoldRow {
    let holder = &hold.holder;
    let loads: Vec<u32> =
        hold.cpus.iter().filter_map(|cpu| seen.busy.get(&cpu)).map(|&load| u32::from(load)).collect();
    let count = u32::try_from(loads.len()).unwrap_or(u32::MAX);
    let load = loads.iter().sum::<u32>().checked_div(count).and_then(|load| u16::try_from(load).ok());
    HoldRow {
        cpus: hold.cpus.clone(),
        level: hold.level.depth(),
        mode: match hold.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        },
        user: users.name(holder.uid),
        uid: holder.uid,
        pid: holder.pid,
        standing: standing_word(processes.standing(holder)),
        age_s: world.now().saturating_sub(holder.since).as_secs(),
        load_permille: load,
        command: holder.label.clone(),
        hold: hold.id.name(),
        delegated: holder.delegated,
        memory: holder.memory.iter().map(|(&node, &bytes)| NodeMemory { node, bytes }).collect(),
        budget: None,
    }
}

fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Running => "running",
        Standing::Outlived => "ended, its children hold on",
        Standing::Impostor { .. } => "not who it says it is",
        Standing::OtherNamespace => "in a container",
        Standing::Hidden => "hidden",
    }
}

/// Returns the runs in the queue of the machine, in the order of the line.
fn queue(
    line: &Line<'_>,
    view: &LedgerView,
    processes: &ProcessTable,
    users: &Users,
) -> Result<Vec<QueueRow>, LedgerError> {
    let runs = view.queue(line.stand.level, &line.stand.within, processes)?;
    let now = line.world.now();
    let order = positions(&runs, &line.occupancy(view)?, &line.rules, now);
    let row = |(index, position): (usize, Option<usize>)| {
        let run = &runs[index];
        let claim = run.claim.as_ref();
        let holder = claim.map(|claim| &claim.holder);
        let standing = run.standing.map(standing_word);
        QueueRow {
            position,
            user: holder.map(|holder| users.name(holder.uid)),
            uid: holder.map(|holder| holder.uid),
            pid: holder.map(|holder| holder.pid),
            standing: if run.stopped { Some("stopped") } else { standing },
            cores: claim.and_then(|claim| claim.cores),
            cpus: claim.and_then(|claim| claim.demand.as_ref()).map(|demand| demand.cpus.clone()),
            priority: claim.map_or(0, |claim| claim.priority),
            age_s: holder.map(|holder| now.saturating_sub(holder.since).as_secs()),
            command: holder.map(|holder| holder.label.clone()),
        }
    };
    Ok(order.into_iter().map(row).collect())
}

/// Returns the tasks that are bound to CPUs of a run which they are not part of, one per process
/// group.
fn violators(
    proc: &Path,
    view: &LedgerView,
    holds: &[Hold],
    seen: &Surroundings,
    users: &Users,
) -> Vec<Violator> {
    let outer = |hold: &&Hold| hold.level == Level::MACHINE && hold.mode == Mode::Exclusive;
    let outer: Vec<&Hold> = holds.iter().filter(outer).collect();
    let mut judged: BTreeSet<u32> = BTreeSet::new();
    let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
    let mut violators: Vec<Violator> = Vec::new();
    for Pin { pid, uid, comm, cpus, .. } in &seen.pins {
        let on = outer.iter().filter(|hold| hold.cpus.intersects(cpus));
        let foreign: Vec<_> = on.filter(|hold| !is_part(proc, view, *pid, hold, holds)).collect();
        // CPUs of holds that the task is part of do not count; a task may be part of several holds.
        let on = foreign.iter().fold(CpuSet::new(), |sum, hold| sum.union(&hold.cpus.intersection(cpus)));
        if on.is_empty() || !judged.insert(pid.0) {
            continue;
        }
        let first =
            groups.entry(stat_number(proc, *pid, GROUP_FIELD).unwrap_or(pid.0)).or_insert(violators.len());
        match violators.get_mut(*first) {
            Some(first) => {
                first.others += 1;
                first.cpus = first.cpus.union(&on);
            }
            None => violators.push(Violator {
                pid: pid.0,
                user: users.name(*uid),
                command: comm.clone(),
                cpus: on,
                others: 0,
            }),
        }
    }
    violators
}
