//! `trimtab plan`: shows what a run would do and why. Nothing is run or reserved.
//!
//! The plan is decided by the same function as in `trimtab run`, from a request and facts that are
//! gathered in the same way. Only the ledger is read without its lock.

use crate::args::{PlanArgs, PlanFormat, RunArgs};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::gather::{self, GatherError, Gathered, trouble_cause};
use crate::machine::Which;
use crate::narrate::environment_table;
use crate::say::{self, Volume};
use crate::world::World;
use serde::{Deserialize, Serialize};
use trimtab_agent::sync_report::SyncPage;
use trimtab_core::place::nesting::{self, Listing};
use trimtab_core::place::{Action, Plan, Reason, Request, Taken, Variable, format};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{Marks, draw};
use trimtab_core::words::plural;
use trimtab_hold::facts;
use trimtab_hold::site_facts::Situation;
use trimtab_launch::jobserver::JobserverPlan;
use trimtab_launch::plan::RankPart;
use trimtab_launch::reason::Topic;
use trimtab_launch::{EnvMode, LaunchFacts, LaunchPlan, Level, Preload, Refusal, decide, headline};
use trimtab_linux::program::Program;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.plan/2";
/// Earlier schemas that write the placement in the same form.
pub const READ_TOO: [&str; 1] = ["trimtab.plan/1"];

/// Load of a CPU that is imagined to be busy, in thousandths.
const BUSY: u16 = 1000;

/// The plan as JSON.
#[derive(Serialize)]
struct Written<'a> {
    schema: &'static str,
    /// The machine that the plan is for.
    machine: &'a Which,
    /// The command that the plan is for.
    command: Vec<String>,
    #[serde(flatten)]
    launch: &'a LaunchPlan,
    /// The reasons of the placement as text, in order.
    explanation: Vec<String>,
}

/// The part of a written plan that `trimtab check` reads.
#[derive(Debug, Deserialize)]
pub struct PlanDocument {
    /// The machine that the plan is for.
    pub machine: Which,
    /// The request.
    pub request: Request,
    /// The CPUs that were allowed and taken.
    pub taken: Taken,
    /// The placement; for a rank, its part.
    pub plan: Plan,
    /// The placement of the whole allotment, if `plan` is a rank's part of it.
    #[serde(default)]
    pub whole: Option<Plan>,
    /// The placement of threads of nested teams.
    #[serde(default)]
    pub nest: Option<Listing>,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] for options and machines that cannot be used, [`exit::NO`] for a request that
/// cannot be met now.
pub fn run(world: &World, args: &PlanArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let which = Which::of(args.machine.as_deref());
    let planned = planned(world, &which, args).map_err(|trouble| {
        let no = matches!(&trouble, GatherError::Refused(Refusal::Place(_) | Refusal::Strict(_)));
        Exit::new(if no { exit::NO } else { exit::FAILED }, trouble_cause(trouble))
    })?;
    let text = match args.format.or(args.json.then_some(PlanFormat::Json)) {
        Some(PlanFormat::Json) => json(&which, args, &planned.launch).map_err(failed)?,
        Some(PlanFormat::Tool(tool)) => format(&with_announced_threads(&planned.launch), tool),
        _ if planned.launch.env == EnvMode::Print => environment_table(&planned.launch.environment),
        _ => words(&planned, args),
    };
    print(&text).map_err(|error| failed(error.into()))?;
    Ok(exit::DONE)
}

/// A decided launch, and its facts.
struct Planned {
    launch: LaunchPlan,
    facts: LaunchFacts,
    /// A note if the ledger does not exist yet.
    note: Option<&'static str>,
}

/// Gathers the facts and decides.
fn planned(world: &World, which: &Which, args: &PlanArgs) -> Result<Planned, GatherError> {
    let live = *which == Which::Live;
    let (held, busy) = (args.held.clone().unwrap_or_default(), args.busy.clone().unwrap_or_default());
    let mut args =
        RunArgs { place: args.place.clone(), run: args.run.clone(), command: args.command.clone() };
    // A tuning is valid only for the machine on which it was found.
    args.run.no_tuning |= !live;
    let args = &args;
    let program = program(world, args)?;
    let mut situation = if live {
        Situation::live(world, !args.place.no_rules)?
    } else {
        Situation::elsewhere(world, which)?
    };
    if !live {
        let text = format!("planned for {}, assumed idle", which.shown());
        situation.limited.push(Reason::Note { text });
    }
    for warning in &situation.warnings {
        say::warning(Volume::Normal, warning);
    }
    let Gathered { mut request, situation, watch } =
        gather::request(world, args, situation, program.as_ref())?;
    if !live {
        // Granted on this machine.
        request.grant = None;
    }
    // As in a run, which needs no parent that stays for `--env print`.
    let watch = watch.filter(|_| request.env != EnvMode::Print);
    let survey = live.then_some(args.place.survey);
    let mut facts = facts::facts(world, &situation, program.as_ref(), &args.command, survey, None);
    if let Some(survey) = survey {
        facts::look_at_memory(world, &request, survey, &mut facts);
    }
    facts::look_for_libraries(&request, &mut facts);
    facts.build = gather::build_facts(world, &request, program.as_ref());
    let counts = watch.is_some() && (args.run.report.is_some() || args.run.profile.is_some());
    let counting = counts.then(|| SyncPage::create(args.run.env != EnvMode::Set));
    facts.meetings = counting.as_ref().and_then(SyncPage::path);
    let is_new = live && !facts::look_at_ledger(world, &request, &mut facts);
    imagine(&mut facts, &held, &busy)?;
    if let Some(fault) = &facts.ledger.fault {
        say::warning(Volume::Normal, &format!("the holds of other runs are unknown: {fault}"));
    }
    let launch = if live { facts::settle(world, &request, &mut facts)? } else { decide(&request, &facts)? };
    Ok(Planned { launch, facts, note: is_new.then_some("no run holds anything yet") })
}

/// Adds occupied CPUs to the facts that the user imagines.
fn imagine(facts: &mut LaunchFacts, held: &CpuSet, busy: &CpuSet) -> anyhow::Result<()> {
    for (option, cpus, state) in [("--held", held, "held by other runs"), ("--busy", busy, "kept busy")] {
        let foreign = cpus.difference(&facts.machine.cpus());
        if !foreign.is_empty() {
            anyhow::bail!("{option}: the machine has no CPUs {foreign}; it has {}", facts.machine.cpus());
        }
        if !cpus.is_empty() {
            facts.load.notes.push(format!("CPUs {cpus} are assumed to be {state} ({option})"));
        }
    }
    facts.ledger.held = facts.ledger.held.union(held);
    facts.load.busy.extend(busy.iter().map(|cpu| (cpu, BUSY)));
    Ok(())
}

/// Finds the program, if one is named.
fn program(world: &World, args: &RunArgs) -> Result<Option<Program>, GatherError> {
    let Some(name) = args.command.first() else { return Ok(None) };
    Ok(Some(Program::find(name, world.raw("PATH")).map_err(anyhow::Error::from)?))
}

/// Returns the placement with the thread count that is set for runtimes.
fn with_announced_threads(launch: &LaunchPlan) -> Plan {
    Plan { threads: launch.threads.value, ..launch.placement.clone() }
}

fn json(which: &Which, args: &PlanArgs, launch: &LaunchPlan) -> anyhow::Result<String> {
    let written = Written {
        schema: SCHEMA,
        machine: which,
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        explanation: launch.placement.reasons.iter().map(ToString::to_string).collect(),
        launch,
    };
    Ok(serde_json::to_string_pretty(&written)?)
}

fn words(planned: &Planned, args: &PlanArgs) -> String {
    let Planned { launch, facts, note } = planned;
    let plan = &launch.placement;
    let mut lines = vec![headline(plan)];
    let slots: Vec<String> = plan.slots.iter().map(|slot| slot.cpu.to_string()).collect();
    lines.push(format!("slots in thread order: {}", slots.join(" ")));
    if plan.hold != plan.mask {
        lines.push(format!("held but unused: CPUs {}", plan.hold.difference(&plan.mask)));
    }
    lines.push(match plan.memory.policy {
        policy if policy.takes_nodes() => format!("memory: {policy} on node {}", plan.memory.nodes),
        policy => format!("memory: {policy}"),
    });
    lines.push(format!("threads: {}", launch.threads.value));
    lines.extend(
        launch
            .ranks
            .iter()
            .map(|RankPart { rank, mask, threads }| format!("rank {rank}: CPUs {mask}, threads: {threads}")),
    );
    if !args.command.is_empty() {
        lines.extend(of_program(launch));
    }
    if args.explain {
        lines.push("because:".to_owned());
        lines.extend(note.map(|note| format!("  {note}")));
        let notes = launch.reasons.iter().filter(|reason| reason.level <= Level::Note);
        let here = |topic: Topic| topic == Topic::Placement || !args.command.is_empty();
        lines.extend(notes.filter(|note| here(note.topic)).map(|note| match note.level {
            Level::Detail => format!("    {}", note.text),
            _ => format!("  {}", note.text),
        }));
    }
    if args.map {
        let marks = Marks::around(&facts.machine, &launch.taken).with_plan(plan);
        lines.push(String::new());
        lines.push(draw::grid(&facts.machine, &marks, crate::commands::topo::width()));
    }
    lines.join("\n") + &nested(launch)
}

/// Formats variables, monitoring and reasons.
fn of_program(launch: &LaunchPlan) -> Vec<String> {
    let mut lines = vec![format!("waiting: {}", launch.wait.waiting)];
    lines.push(match &launch.preload {
        Preload::Goes { pin } => format!("preload library: loaded, new threads: {pin}"),
        Preload::Stays { why } => format!("preload library: not loaded: {why}"),
    });
    if let Some(watch) = &launch.watch {
        lines.push(format!("while it runs: {}", watch.policy));
    }
    if let Some(ms) = launch.slice.value {
        lines.push(format!("slice: {ms} ms"));
    }
    if let Some(period) = launch.preempt {
        lines.push(format!("preemption: every {period} us while more threads are runnable than CPUs"));
    }
    if let Some(JobserverPlan { tokens, form, variable, left_out, .. }) = &launch.jobserver {
        let without =
            if left_out.is_empty() { String::new() } else { format!(", without {}", left_out.join(" ")) };
        lines.push(format!("jobserver: {} in {variable} ({form}){without}", plural(*tokens, "token")));
    }
    let set = launch.environment.iter().filter_map(|Variable { name, action, .. }| match action {
        Action::Set { value } | Action::Fitted { value, .. } => Some(format!("sets {name}={value}")),
        Action::Removed { value, .. } => Some(format!("removes {name}={value}")),
        Action::Kept { .. } | Action::Unset { .. } => None,
    });
    lines.extend(set.filter(|_| launch.env == EnvMode::Set));
    // Reasons about nested teams are printed beside their picture.
    let told = launch.reasons.iter().filter(|reason| !reason.text.starts_with("nested teams: "));
    lines.extend(told.filter_map(|reason| match reason.level {
        Level::Warning => Some(format!("warning: {}", reason.text)),
        Level::Notice => Some(reason.text.clone()),
        Level::Headline | Level::Note | Level::Detail => None,
    }));
    lines
}

/// Formats the picture of the nested teams, and its notes.
fn nested(launch: &LaunchPlan) -> String {
    let (Some(nesting), Some(listing)) = (&launch.nesting, &launch.nest) else { return String::new() };
    let mut text = format!("\nnested teams: {}\n", nesting.resolved());
    if let Some(map) = nesting.teams.declared() {
        text +=
            &nesting::draw(nesting.teams.tree(), nesting.resolved(), &map, crate::commands::topo::width());
    }
    for advice in &listing.advice {
        text += &format!("warning: {advice}\n");
    }
    text
}

#[cfg(test)]
mod tests;
