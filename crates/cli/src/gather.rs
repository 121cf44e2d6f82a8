//! Request of a launch, from the command line and what is kept, as a value for the decision.
//!
//! `run`, `plan` and commands that predict a run share this code. The request comes first, since it
//! is cheap and refuses contradictions; then the [facts](trimtab_hold::facts) and the cores.

use crate::args::{RunArgs, report_to};
use crate::monitor::Asked;
use crate::tuning_store::{Conditions, Kept, Store};
use crate::world::World;
use anyhow::anyhow;
use std::ffi::OsString;
use thiserror::Error;
use trimtab_core::handoff::Report;
use trimtab_front::date::date;
use trimtab_hold::facts::{facts, look_at_ledger, look_at_memory, look_for_libraries};
use trimtab_hold::site_facts::Situation;
use trimtab_launch::facts::BuildFacts;
use trimtab_launch::request::takes_tuning;
use trimtab_launch::{LaunchPlan, LaunchRequest, Options, Refusal, Sources, Tuning, decide};
use trimtab_linux::program::{Program, build};

/// Why a launch cannot be decided.
#[derive(Debug, Error)]
pub enum GatherError {
    /// The decision refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Something cannot be read.
    #[error(transparent)]
    Unread(#[from] anyhow::Error),
}

/// The request of a launch, and the facts it was made with.
#[derive(Debug)]
pub struct Gathered {
    /// The request.
    pub request: LaunchRequest,
    /// The machine, and the limits of this process.
    pub situation: Situation,
    /// The monitoring while the program runs.
    pub watch: Option<Asked>,
}

/// Makes the request from options, rules, tuning and environment.
///
/// # Errors
/// Contradictions, or files that cannot be read.
pub fn request(
    world: &World,
    args: &RunArgs,
    mut situation: Situation,
    program: Option<&Program>,
) -> Result<Gathered, GatherError> {
    let options = options(world, args, &mut situation)?;
    let tuning = program.filter(|_| takes_tuning(&options, world.environment()));
    let tuning = tuning.and_then(|program| tuning_for(world, args, program));
    let sources = Sources {
        options,
        site: situation.policy.site.clone(),
        rule: program.and_then(|program| situation.policy.of(&program.path)),
        tuning,
        environment: world.environment().clone(),
        command: words(&args.command),
    };
    let request = LaunchRequest::merge(sources)?;
    let mut only = args.run.clone();
    only.watch.balance = request.balance;
    let watch = Asked::by(&only)?;
    Ok(Gathered { request, situation, watch })
}

/// Returns the options as typed.
fn options(world: &World, args: &RunArgs, situation: &mut Situation) -> Result<Options, GatherError> {
    let (place, run) = (&args.place, &args.run);
    let observed = [
        ("--trace", run.watch.trace.is_some()),
        ("--metrics", run.watch.metrics.is_some()),
        ("--preempt", run.preempt.is_some()),
        ("--report", run.report.is_some()),
        ("trimtab profile", run.profile.is_some()),
    ];
    let options = Options {
        cores: place.cores,
        cpus: place.cpus.as_ref().map(|names| situation.cpus(names)).transpose()?,
        near: place.near.as_ref().map(|name| situation.near(world, name)).transpose()?,
        strategy: place.strategy,
        smt: place.smt,
        kind: place.kind.clone(),
        mem: place.mem.clone(),
        mem_size: place.mem_size,
        visible_devices: place.visible_devices,
        thp: place.thp,
        nest: place.nest.clone(),
        nest_roots: run.nest_roots,
        share: place.share,
        or_fewer: place.or_fewer,
        strict: place.strict,
        threads: run.threads,
        fit: run.fit,
        jobserver: run.jobserver,
        slice: run.slice,
        preempt: run.preempt,
        spin: run.spin,
        grow: run.grow,
        yield_to: run.yield_to.clone(),
        wait_policy: run.wait_policy,
        pin: run.pin,
        env: run.env,
        balance: run.watch.balance,
        observed: observed.iter().find(|(_, given)| *given).map(|(option, _)| *option),
        report: report(args)?,
        ranks: run.ranks,
        as_rank: run.as_rank,
        no_tuning: run.no_tuning,
        quiet: run.quiet,
    };
    Ok(options.filled(&run.set).map_err(Refusal::Request)?)
}

/// Returns where the shim writes its report: it writes text, and takes the name of the file as
/// text.
fn report(args: &RunArgs) -> Result<Report, GatherError> {
    let Some(to) = args.run.report.as_ref().map(report_to) else { return Ok(Report::No) };
    match to.file.filter(|_| !to.json) {
        Some(path) if path.to_str().is_none() => {
            let text = format!("--report={}: the name must be text in UTF-8", path.display());
            Err(Refusal::Request(text).into())
        }
        // The program may change its directory before it ends.
        Some(path) => Ok(Report::File(std::path::absolute(&path).unwrap_or(path))),
        None => Ok(Report::Stderr),
    }
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the tuning that is stored for a program; an error if one is stored and cannot be used.
fn tuning_for(world: &World, args: &RunArgs, program: &Program) -> Option<Result<Tuning, String>> {
    let store = Store::of(world).filter(Store::any)?;
    let met = Conditions::of(&program.path, &args.command, &args.place, 0).ok()?;
    let name = met.name();
    let why = match store.read(&name) {
        Ok(None) => return None,
        Ok(Some(kept)) => match kept.conditions.differs(&met) {
            None => return Some(Ok(tuning(&kept))),
            Some(why) => why.to_owned(),
        },
        Err(error) => format!("{error:#}"),
    };
    Some(Err(format!(
        "the tuning {name} is not applied: {why} (trimtab tune makes a new one, trimtab tune remove {name} removes it)"
    )))
}

/// Converts a stored tuning for the request.
fn tuning(kept: &Kept) -> Tuning {
    let Kept { gain, when, higher, metric, conditions, setting, .. } = kept;
    let gained = match (metric == "time", higher) {
        (true, _) => format!("{gain:.2} times as fast"),
        (false, true) => format!("{gain:.2} times as much"),
        (false, false) => format!("{gain:.2} times as good"),
    };
    let day = date(*when);
    Tuning {
        name: conditions.name(),
        setting: setting.clone(),
        cores: conditions.cores,
        found_on: day.split(' ').next().unwrap_or(&day).to_owned(),
        gained,
    }
}

/// Reads what the build tools of the launch know of jobservers, if it is to have one.
pub fn build_facts(world: &World, request: &LaunchRequest, program: Option<&Program>) -> BuildFacts {
    request.jobserver.map(|_| build::facts(program, world.raw("PATH"))).unwrap_or_default()
}

/// Returns the plan of a run that would start now with these options and no program, for commands
/// that need its cores.
///
/// # Errors
/// It would be refused, or something cannot be read.
pub fn plan_now(world: &World, args: &RunArgs) -> Result<LaunchPlan, GatherError> {
    let situation = Situation::live(world, !args.place.no_rules)?;
    let Gathered { request, situation, .. } = request(world, args, situation, None)?;
    let mut facts = facts(world, &situation, None, &args.command, Some(args.place.survey), None);
    look_at_memory(world, &request, args.place.survey, &mut facts);
    look_for_libraries(&request, &mut facts);
    look_at_ledger(world, &request, &mut facts);
    Ok(decide(&request, &facts)?)
}

impl From<GatherError> for crate::exit::Exit {
    /// Exit of `run` for this trouble.
    fn from(trouble: GatherError) -> Self {
        let status = match &trouble {
            GatherError::Refused(refusal) if refusal.passes() => crate::exit::NO_CORES,
            _ => crate::exit::RUN_FAILED,
        };
        Self::new(status, trouble_cause(trouble))
    }
}

/// Returns the cause without another layer of words.
pub fn trouble_cause(trouble: GatherError) -> anyhow::Error {
    match trouble {
        GatherError::Refused(refusal) => anyhow!(refusal),
        GatherError::Unread(error) => error,
    }
}
