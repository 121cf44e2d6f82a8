//! `trimtab ps`: who holds what, and who is on cores that others hold.

use crate::args::PsArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::situation::location;
use crate::surroundings::Surroundings;
use crate::table::{Align, Table};
use crate::world::World;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::Taken;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{Machine, Marks, draw};
use trimtab_linux::ledger::{Hold, LedgerView, Level, Mode, ProcessTable, Standing};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::survey::Pin;
use trimtab_linux::users::Users;

/// The version of the JSON.
pub const SCHEMA: &str = "trimtab.ps/1";

/// What is said of the holds.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    schema: &'static str,
    /// The lock file; absent when nobody has made a ledger yet.
    ledger: Option<String>,
    pub(crate) holds: Vec<Row>,
    /// CPUs held by nobody who can be named.
    pub(crate) unknown: CpuSet,
    /// Runs that wait in line for cores of the machine.
    waiting: u64,
    violators: Vec<Violator>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) cpus: CpuSet,
    /// 0 for a hold of the machine, 1 for one inside such a hold, and so on.
    pub(crate) level: u8,
    mode: &'static str,
    pub(crate) user: String,
    uid: u32,
    pub(crate) pid: u32,
    standing: &'static str,
    age_s: u64,
    /// Mean busy share of its CPUs in thousandths, where it was sampled.
    load_permille: Option<u16>,
    pub(crate) command: String,
}

/// A task bound to cores that somebody else's run holds.
#[derive(Debug, Serialize)]
struct Violator {
    pid: u32,
    user: String,
    command: String,
    /// The held CPUs it may run on.
    cpus: CpuSet,
}

/// Shows.
///
/// # Errors
/// [`exit::FAILED`] when the ledger cannot be read.
pub fn run(world: &World, args: &PsArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn show(world: &World, args: &PsArgs) -> Result<()> {
    let (machine, _) = Which::Live.load(world)?;
    let view = LedgerView::open(&location(world)?).context("cannot look at the ledger")?;
    let seen = Surroundings::look(world, crate::args::SurveyMode::Full, &machine, &machine.cpus());
    let users = Users::read(&world.root.join("etc/passwd")).unwrap_or_default();
    let document = gather(world, &machine, view.as_ref(), &seen, &users)?;
    if args.json {
        return Ok(print(&serde_json::to_string_pretty(&document)?)?);
    }
    let mut text = words(&document, view.as_ref());
    if args.map {
        let held = document.holds.iter().fold(document.unknown.clone(), |sum, row| sum.union(&row.cpus));
        let taken = Taken { held, busy: seen.busy, pinned: seen.pinned, ..Taken::nothing(machine.cpus()) };
        let marks = Marks::around(&machine, &taken);
        text = format!("{text}\n{}", draw::grid(&machine, &marks, crate::commands::topo::width()));
    }
    Ok(print(&text)?)
}

/// Who holds what, and who is in the way.
pub(crate) fn gather(
    world: &World,
    machine: &Machine,
    view: Option<&LedgerView>,
    seen: &Surroundings,
    users: &Users,
) -> Result<Document> {
    let mut document = Document {
        schema: SCHEMA,
        ledger: None,
        holds: Vec::new(),
        unknown: CpuSet::new(),
        waiting: 0,
        violators: Vec::new(),
    };
    let Some(view) = view else { return Ok(document) };
    document.ledger = Some(view.path().display().to_string());
    let all = machine.cpus();
    document.waiting = view.waiting(Level::MACHINE, &all).context("cannot read the queue")?;
    let processes = ProcessTable::at(&world.proc());
    let mut holds: Vec<Hold> = Vec::new();
    for level in (0..).map_while(Level::new) {
        let holders = view.holders(level, &all).context("cannot read the holders")?;
        if holders.known.is_empty() && holders.unknown.is_empty() {
            break; // a hold inside another needs that other
        }
        document.unknown = document.unknown.union(&holders.unknown);
        holds.extend(holders.known);
    }
    document.holds = holds.iter().map(|hold| row(hold, &processes, world.now(), seen, users)).collect();
    let outer: Vec<&Hold> = holds.iter().filter(|hold| hold.level == Level::MACHINE).collect();
    document.violators = violators(&world.proc(), &outer, seen, users);
    Ok(document)
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

fn words(document: &Document, view: Option<&LedgerView>) -> String {
    let mut text = String::new();
    if document.holds.is_empty() && document.unknown.is_empty() {
        text.push_str("no run holds any core\n");
    } else {
        let mut table = Table::new(&[
            ("CPUS", Align::Left),
            ("USER", Align::Left),
            ("PID", Align::Right),
            ("AGE", Align::Right),
            ("LOAD", Align::Right),
            ("HOLD", Align::Left),
            ("COMMAND", Align::Left),
        ]);
        for row in &document.holds {
            let inside = "  ".repeat(usize::from(row.level));
            let mode = if row.standing == "running" {
                row.mode.to_owned()
            } else {
                format!("{} ({})", row.mode, row.standing)
            };
            table.row([
                format!("{inside}{}", row.cpus),
                row.user.clone(),
                row.pid.to_string(),
                age(row.age_s),
                row.load_permille.map_or_else(|| "-".to_owned(), |load| format!("{}%", load / 10)),
                mode,
                row.command.clone(),
            ]);
        }
        if !document.unknown.is_empty() {
            let dash = || "-".to_owned();
            let cells = [
                document.unknown.to_string(),
                dash(),
                dash(),
                dash(),
                dash(),
                "exclusive".to_owned(),
                "(unknown)".to_owned(),
            ];
            table.row(cells);
        }
        text.push_str(&table.to_string());
    }
    if document.waiting > 0 {
        text.push_str(&format!("{} waiting for cores\n", document.waiting));
    }
    for Violator { pid, user, command, cpus } in &document.violators {
        text.push_str(&format!(
            "warning: {command} (pid {pid}, {user}) is bound to CPUs {cpus}, which a run above holds\n"
        ));
    }
    if let Some(error) = view.and_then(LedgerView::names_missing) {
        text.push_str(&format!("note: nobody can be named: {error}\n"));
    }
    text
}

/// `42s`, `3m10s`, `2h05m`, `3d04h`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}
