//! `trimtab nproc`: the number of threads that a program should use here, with reasons.

use crate::args::NprocArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::table::{Align, Table};
use crate::world::World;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use trimtab_core::budget::nproc::{BudgetBound, Nproc, NprocFacts, QuotaBound, ThreadBound, nproc};
use trimtab_core::budget::{Handoff, VARIABLE};
use trimtab_core::set::CpuSet;
use trimtab_core::words::plural;
use trimtab_hold::site_facts::{HOLD, LedgerPosition, location};
use trimtab_linux::budget::BudgetPage;
use trimtab_linux::ledger::LedgerView;
use trimtab_linux::limits::Limits;
use trimtab_linux::process::Pid;
use trimtab_linux::sys::affinity;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.nproc/1";

/// Variables of OpenMP that bound the threads of a program; coreutils' nproc reads them too.
const VARIABLES: [&str; 2] = ["OMP_NUM_THREADS", "OMP_THREAD_LIMIT"];

/// The JSON document.
#[derive(Serialize)]
struct NprocJson<'a> {
    schema: &'static str,
    /// Threads to compute with, after `--ignore`.
    threads: u32,
    bounds: &'a [ThreadBound],
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: the limits of this process cannot be read.
pub fn run(world: &World, args: &NprocArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn show(world: &World, args: &NprocArgs) -> Result<()> {
    let left = |threads: u32| threads.saturating_sub(args.ignore).max(1);
    if args.all {
        return Ok(print(&left(installed(&world.root)?).to_string())?);
    }
    let found = nproc(&facts(world)?);
    let threads = left(found.threads);
    if args.json {
        let document = NprocJson { schema: SCHEMA, threads, bounds: &found.bounds };
        return Ok(print(&serde_json::to_string_pretty(&document)?)?);
    }
    let number = threads.to_string();
    Ok(print(&if args.explain { format!("{number}\n{}", explanation(&found, args.ignore)) } else { number })?)
}

/// Returns the number of CPUs that the machine has, switched-off ones included.
fn installed(root: &Path) -> Result<u32> {
    let path = root.join("sys/devices/system/cpu/present");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let cpus: CpuSet = text.trim().parse().with_context(|| format!("{} is not a list", path.display()))?;
    Ok(count(&cpus))
}

fn count(cpus: &CpuSet) -> u32 {
    u32::try_from(cpus.len()).unwrap_or(u32::MAX)
}

/// Reads the facts about this process.
fn facts(world: &World) -> Result<NprocFacts> {
    let mask = affinity::get(None).context("cannot read this process's CPU mask")?;
    let limits = Limits::read(&world.root, Some(&mask)).context("cannot read the limits of this process")?;
    Ok(NprocFacts {
        online: limits.online.as_ref().map(count),
        allowed: count(&limits.allowed),
        limiters: limits.limiters.iter().map(ToString::to_string).collect(),
        held: held(world).map(|held| count(&held.intersection(&limits.allowed))),
        quota: limits.quota.map(|quota| QuotaBound { milli_cpus: quota.milli_cpus, group: quota.group }),
        budget: budget(world),
        variables: VARIABLES.iter().filter_map(|name| Some((*name, number(&world.text(name)?)?))).collect(),
    })
}

/// Returns the CPUs of the hold that encloses this process; `None` outside of holds, and if the
/// ledger cannot be read, because the mask still bounds the process then.
fn held(world: &World) -> Option<CpuSet> {
    world.raw(HOLD)?;
    let view = LedgerView::open(&location(world).ok()?).ok()??;
    let (machine, _) = Which::Live.load(world).ok()?;
    let stand = LedgerPosition::find(world, &view, &machine);
    (stand.within != machine.cpus()).then_some(stand.within)
}

/// Returns the threads that other processes leave of the hold's budget; `None` without a budget.
fn budget(world: &World) -> Option<BudgetBound> {
    let text = world.text(VARIABLE)?;
    BudgetPage::inherited(&world.proc(), &Handoff::read(&text)?)?.bound(&world.proc(), Pid::own())
}

/// Reads the first number of a list of numbers of threads; `None` if it is not above 0.
fn number(text: &str) -> Option<u32> {
    text.split(',').next()?.trim().parse().ok().filter(|&number| number > 0)
}

/// Returns the table of bounds.
fn explanation(found: &Nproc, ignore: u32) -> String {
    let mut table = Table::new(&[("BOUND", Align::Left), ("THREADS", Align::Right), ("REASON", Align::Left)]);
    for bound in &found.bounds {
        table.row(vec![bound.kind.to_string(), bound.threads.to_string(), bound.reason.clone()]);
    }
    let mut text = table.to_string();
    if ignore > 0 {
        text += &format!("\n--ignore leaves out {}", plural(ignore, "thread"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_first_number_of_a_list_counts_and_values_ignored_by_openmp_do_not() {
        assert_eq!(
            (number("4"), number(" 4,2"), number("0"), number("many"), number("")),
            (Some(4), Some(4), None, None, None)
        );
    }
}
