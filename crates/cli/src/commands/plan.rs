//! `trimtab plan`: what a run would get, and why; nothing is run or reserved.

use crate::args::PlanArgs;
use crate::commands::{print, run};
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::nest::{self, Nesting};
use crate::say::{self, Volume};
use crate::situation::{Situation, Standpoint, location};
use crate::surroundings::Surroundings;
use crate::world::World;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use trimtab_core::place::nesting::{self, Listing, Narrowed, narrow};
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::{PlaceError, Plan, Reason, Request, Taken, format, plan};
use trimtab_core::topology::{Machine, Marks, draw};
use trimtab_linux::ledger::LedgerView;
use trimtab_linux::program::{Program, resolve};

/// The version of the JSON of a plan.
pub const SCHEMA: &str = "trimtab.plan/1";

/// A plan with everything that led to it, so that `trimtab check` can judge it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine it is for.
    pub machine: Which,
    /// What was asked for.
    pub request: Request,
    /// What was allowed and taken.
    pub taken: Taken,
    /// The plan.
    pub plan: Plan,
    /// The reasons in words, in the order of the plan's.
    pub explanation: Vec<String>,
    /// Where the threads of nested teams go, where they were asked for.
    #[serde(default)]
    pub nest: Option<Listing>,
}

/// Plans.
///
/// # Errors
/// [`exit::FAILED`] for options and machines that cannot be used, [`exit::NO`] for a request that cannot be met now.
pub fn run(world: &World, args: &PlanArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let which = Which::of(args.machine.as_deref());
    let (situation, taken, notes) = survey(world, &which, args).map_err(failed)?;
    let program = args.command.first().map(|name| resolve(name, world.raw("PATH")));
    let program = program.transpose().map_err(|error| failed(error.into()))?;
    let (request, _) = situation.request(&args.place, program.as_deref()).map_err(failed)?;
    let nest = nest::asked(world, args.place.nest.as_deref(), args.place.strict, Volume::Normal);
    let nest = nest.map_err(failed)?.map(|asked| asked.nest);
    let request = match &nest {
        Some(nest) => narrow(&situation.machine, &request, &taken, nest),
        None => Ok(Narrowed { request, wide: None }),
    };
    let none = |error: PlaceError| Exit::new(exit::NO, error);
    let Narrowed { request, wide } = request.map_err(none)?;
    let mut plan = plan(&situation.machine, &request, &taken).map_err(none)?;
    let looked = program.as_deref().and_then(|path| Program::look(path, world.raw("PATH")).ok());
    let openmp = looked.as_ref().and_then(run::openmp);
    let free = taken.allowed.difference(&taken.held);
    let nesting = nest.and_then(|nest| Nesting::new(&situation.machine, &free, &plan, wide, &nest));
    let notes = notes.into_iter().map(|text| Reason::Note { text });
    plan.reasons.splice(0..0, situation.limited.iter().cloned().chain(notes).collect::<Vec<_>>());
    let text = match (args.json, args.format) {
        (true, _) => json(which, request, taken, plan, nesting.map(|nesting| nesting.listing(openmp))),
        (_, Some(tool)) => Ok(format(&plan, tool)),
        _ => Ok(words(&situation.machine, &taken, &plan, args) + &nested(nesting.as_ref(), openmp)),
    };
    text.and_then(|text| Ok(print(&text)?)).map_err(failed)?;
    Ok(exit::DONE)
}

/// The machine, what is taken of it, and what to say about how that is known.
fn survey(world: &World, which: &Which, args: &PlanArgs) -> Result<(Situation, Taken, Vec<String>)> {
    if *which != Which::Live {
        let situation = Situation::elsewhere(world, which)?;
        let taken = situation.taken.clone();
        return Ok((
            situation,
            taken,
            vec![format!("planned for {}, as if nothing ran there", args.machine.as_deref().unwrap_or(""))],
        ));
    }
    let situation = Situation::live(world, !args.place.no_rules)?;
    for warning in &situation.warnings {
        say::warning(Volume::Normal, warning);
    }
    let seen = Surroundings::look(world, args.place.survey, &situation.machine, &situation.taken.allowed);
    let mut taken = Taken { busy: seen.busy, pinned: seen.pinned, ..situation.taken.clone() };
    let mut notes = seen.notes;
    match location(world).and_then(|location| LedgerView::open(&location)) {
        Ok(Some(view)) => {
            let stand = Standpoint::find(world, &view, &situation.machine);
            taken.allowed = taken.allowed.intersection(&stand.within);
            taken.held = view.map(stand.level, &stand.within).context("cannot read the ledger")?.held();
        }
        Ok(None) => notes.push("no run holds anything yet".to_owned()),
        Err(error) => say::warning(Volume::Normal, &format!("what others hold is unknown: {error}")),
    }
    Ok((situation, taken, notes))
}

fn json(machine: Which, request: Request, taken: Taken, plan: Plan, nest: Option<Listing>) -> Result<String> {
    let explanation = plan.reasons.iter().map(ToString::to_string).collect();
    let document = Document { schema: SCHEMA.to_owned(), machine, request, taken, plan, explanation, nest };
    Ok(serde_json::to_string_pretty(&document)?)
}

fn words(machine: &Machine, taken: &Taken, plan: &Plan, args: &PlanArgs) -> String {
    let mut lines = vec![run::headline(plan)];
    let slots: Vec<String> = plan.slots.iter().map(|slot| slot.cpu.to_string()).collect();
    lines.push(format!("slots in thread order: {}", slots.join(" ")));
    if plan.hold != plan.mask {
        lines.push(format!("held, but idle: CPUs {}", plan.hold.difference(&plan.mask)));
    }
    lines.push(match plan.memory.policy {
        policy if policy.takes_nodes() => format!("memory: {policy} on node {}", plan.memory.nodes),
        policy => format!("memory: {policy}"),
    });
    lines.push(format!("threads: {}", plan.threads));
    if args.explain {
        lines.push("because:".to_owned());
        lines.extend(plan.reasons.iter().map(|reason| format!("  {reason}")));
    }
    if args.map {
        let marks = Marks::around(machine, taken).with_plan(plan);
        lines.push(String::new());
        lines.push(draw::grid(machine, &marks, crate::commands::topo::width()));
    }
    lines.join("\n")
}

/// The picture of the nested teams, and what there is to know of them.
fn nested(nesting: Option<&Nesting>, openmp: Option<Runtime>) -> String {
    let Some(nesting) = nesting else { return String::new() };
    let mut text = format!("\nnested teams: {}\n", nesting.resolved());
    if let Some(map) = nesting.teams.declared() {
        text +=
            &nesting::draw(nesting.teams.tree(), nesting.resolved(), &map, crate::commands::topo::width());
    }
    for advice in nesting.advice(openmp) {
        text += &format!("warning: {advice}\n");
    }
    text
}
