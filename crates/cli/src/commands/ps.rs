//! `trimtab ps`: the holders of cores, and programs on cores that other runs hold.

use crate::args::PsArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::table::{Align, Table};
use crate::world::World;
use anyhow::{Context, Result};
use trimtab_core::place::{Taken, listed};
use trimtab_core::topology::{Marks, draw};
use trimtab_hold::escapes::Escaped;
use trimtab_hold::foreign_load::Surroundings;
use trimtab_hold::holds::{Holds, QueueRow, Violator, gather};
use trimtab_hold::site::Policy;
use trimtab_hold::site_facts::location;
use trimtab_linux::ledger::LedgerView;
use trimtab_linux::users::Users;

/// Place of the memory among the columns, if a run holds any.
const MEMORY_AT: usize = 5;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the ledger cannot be read.
pub fn run(world: &World, args: &PsArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn show(world: &World, args: &PsArgs) -> Result<()> {
    let (machine, _) = Which::Live.load(world)?;
    let view = LedgerView::open(&location(world)?).context("cannot read the ledger")?;
    let seen = Surroundings::look(world, crate::args::SurveyMode::Full, &machine, &machine.cpus(), None);
    let users = Users::read(&world.root.join("etc/passwd")).unwrap_or_default();
    let rules = Policy::read(&world.config()).map(|policy| policy.site.queue()).unwrap_or_default();
    let all = gather(world, &machine, view.as_ref(), &seen, &users, rules)?;
    if args.json {
        return Ok(print(&serde_json::to_string_pretty(&all)?)?);
    }
    let mut text = words(&all, view.as_ref());
    if args.map {
        let granted = all.granted.iter().map(|grant| &grant.cpus);
        let held = all.holds.iter().map(|row| &row.cpus).chain(granted);
        let held = held.fold(all.unknown.clone(), |sum, cpus| sum.union(cpus));
        let taken = Taken { held, busy: seen.busy, pinned: seen.pinned, ..Taken::nothing(machine.cpus()) };
        let marks = Marks::around(&machine, &taken);
        text = format!("{text}\n{}", draw::grid(&machine, &marks, crate::commands::topo::width()));
    }
    Ok(print(&text)?)
}

fn words(all: &Holds, view: Option<&LedgerView>) -> String {
    let mut text = String::new();
    if all.holds.is_empty() && all.unknown.is_empty() {
        text.push_str("no run holds any core\n");
    } else {
        text.push_str(&holds_table(all));
    }
    for row in &all.holds {
        if let Some(budget) = &row.budget {
            text.push_str(&format!("budget of pid {}: {}\n", row.pid, budget.phrase()));
        }
    }
    for grant in &all.granted {
        text.push_str(&format!("held too: {grant}\n"));
    }
    if all.waiting > 0 {
        text.push_str(&format!("{} waiting for cores\n", all.waiting));
        text.push_str(&queue_table(&all.queue));
    }
    for Violator { pid, user, command, cpus, others } in &all.violators {
        let bound = match others {
            0 => "is".to_owned(),
            others => format!("and {others} more of its process group are"),
        };
        text.push_str(&format!(
            "warning: {command} (pid {pid}, {user}) {bound} bound to CPUs {cpus}, which a run above holds\n"
        ));
    }
    for Escaped { pid, user, command, cpus, run } in &all.escaped {
        text.push_str(&format!(
            "warning: {command} (pid {pid}, {user}) may run on CPUs {cpus}, which its run (pid {run}) does not hold\n"
        ));
    }
    if let Some(error) = view.and_then(LedgerView::names_missing) {
        text.push_str(&format!("note: the holders cannot be named: {error}\n"));
    }
    text
}

/// Returns the table of the holds.
fn holds_table(all: &Holds) -> String {
    let mut columns = vec![
        ("CPUS", Align::Left),
        ("USER", Align::Left),
        ("PID", Align::Right),
        ("AGE", Align::Right),
        ("LOAD", Align::Right),
        ("HOLD", Align::Left),
        ("COMMAND", Align::Left),
    ];
    let memory = all.holds.iter().any(|row| !row.memory.is_empty());
    if memory {
        columns.insert(MEMORY_AT, ("MEMORY", Align::Left));
    }
    let mut table = Table::new(&columns);
    for row in &all.holds {
        let inside = "  ".repeat(usize::from(row.level));
        let mode = if row.standing == "running" {
            row.mode.to_owned()
        } else {
            format!("{} ({})", row.mode, row.standing)
        };
        let mut cells = vec![
            format!("{inside}{}", row.cpus),
            row.user.clone(),
            row.pid.to_string(),
            age(row.age_s),
            row.load_permille.map_or_else(|| "-".to_owned(), |load| format!("{}%", load / 10)),
            mode,
            row.command.clone(),
        ];
        if memory {
            let held = if row.memory.is_empty() { "-".to_owned() } else { listed(&row.memory) };
            cells.insert(MEMORY_AT, held);
        }
        table.row(cells);
    }
    if !all.unknown.is_empty() {
        let dash = || "-".to_owned();
        let pids: Vec<String> = all.unknown_pids.iter().map(ToString::to_string).collect();
        let mut cells = vec![
            all.unknown.to_string(),
            dash(),
            if pids.is_empty() { dash() } else { pids.join(",") },
            dash(),
            dash(),
            "exclusive".to_owned(),
            "(unknown)".to_owned(),
        ];
        if memory {
            cells.insert(MEMORY_AT, dash());
        }
        table.row(cells);
    }
    table.to_string()
}

/// Returns the table of the runs that wait.
fn queue_table(queue: &[QueueRow]) -> String {
    let mut table = Table::new(&[
        ("LINE", Align::Right),
        ("USER", Align::Left),
        ("PID", Align::Right),
        ("AGE", Align::Right),
        ("CORES", Align::Right),
        ("PRIORITY", Align::Right),
        ("STATE", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in queue {
        let state = match row.standing {
            Some("running") => "waiting",
            Some(other) => other,
            None => "unknown",
        };
        table.row([
            or_dash(row.position.map(|position| position.to_string())),
            or_dash(row.user.clone()),
            or_dash(row.pid.map(|pid| pid.to_string())),
            or_dash(row.age_s.map(age)),
            or_dash(row.cores.map(|cores| cores.to_string())),
            row.priority.to_string(),
            state.to_owned(),
            row.command.clone().unwrap_or_else(|| "(unknown)".to_owned()),
        ]);
    }
    table.to_string()
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
