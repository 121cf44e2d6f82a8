//! Facts and request of a launch, read once, as values for the decision.
//!
//! `run`, `plan` and commands that predict a run share this code. The request comes first, since it
//! is cheap and refuses contradictions; then the facts; then the holds of others, for a run under
//! the ledger's lock ([`reserve`](crate::reserve)) and for other commands without it
//! ([`look_at_ledger`]); last, on the CPUs of the plan, the measurements that the decision asks for
//! ([`settle`]).

use crate::args::{PlaceArgs, RunArgs, SurveyMode, report_to};
use crate::foreign_load::Surroundings;
use crate::monitor::Asked;
use crate::site_facts::{LedgerPosition, Situation, location, private_ledger};
use crate::tuning_store::{Conditions, Kept, Store};
use crate::world::World;
use anyhow::anyhow;
use std::ffi::OsString;
use thiserror::Error;
use trimtab_core::handoff::Report;
use trimtab_core::place::waiting::Yield;
use trimtab_core::place::{FULL_BELOW_PERCENT, NearDevice, local_rank};
use trimtab_core::queue::QueueRules;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{DeviceName, known_devices};
use trimtab_front::date::date;
use trimtab_launch::facts::{Answers, BuildFacts, LedgerFacts, Load, Parent};
use trimtab_launch::request::takes_tuning;
use trimtab_launch::{
    LaunchFacts, LaunchPlan, LaunchRequest, Options, Refusal, Role, Sources, Tuning, decide,
};
use trimtab_linux::calibrate::{YieldKind, yield_share};
use trimtab_linux::devices;
use trimtab_linux::launch::{picture, preload_library};
use trimtab_linux::ledger::{Ledger, LedgerView, ProcessTable};
use trimtab_linux::limits::parent_mask;
use trimtab_linux::process::{self, Pid};
use trimtab_linux::program::{Program, build};
use trimtab_linux::survey::{free_memory, used_memory};
use trimtab_linux::sys::version;

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
    situation: Situation,
    program: Option<&Program>,
) -> Result<Gathered, GatherError> {
    let options = options(world, args, &situation)?;
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
fn options(world: &World, args: &RunArgs, situation: &Situation) -> Result<Options, GatherError> {
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
        cpus: cpus(place, situation)?,
        near: place.near.as_ref().map(|name| near(world, name, situation)).transpose()?,
        strategy: place.strategy,
        smt: place.smt,
        kind: place.kind.clone(),
        mem: place.mem.clone(),
        mem_size: place.mem_size,
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

/// Returns the named CPUs.
fn cpus(place: &PlaceArgs, situation: &Situation) -> Result<Option<CpuSet>, GatherError> {
    let named = place.cpus.as_ref().map(|names| names.on(&situation.machine)).transpose();
    Ok(named.map_err(|error| Refusal::Request(format!("--cpus {error}")))?)
}

/// Finds a device: in the model of the machine, or, on this machine, in the kernel's files.
fn near(world: &World, name: &DeviceName, situation: &Situation) -> Result<NearDevice, GatherError> {
    let machine = &situation.machine;
    let refused = |cause: String| {
        let known = known_devices(machine);
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Refusal::Request(format!("--near {name}: {cause} (devices in the model: {known})"))
    };
    let cpus = match (name.near(machine), situation.live) {
        (Some(cpus), _) => cpus,
        (None, false) => return Err(refused("that machine has no such device".to_owned()).into()),
        (None, true) => devices::near(&world.sys(), name)
            .map_err(|error| refused(error.to_string()))?
            .intersection(&machine.cpus()),
    };
    Ok(NearDevice { name: name.to_string(), cpus })
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

/// Reads the facts, except the holds of others and the measurements that the decision asks for. For
/// another machine than this one, only the machine is read. `ledger` is the ledger, if it is open.
pub fn facts(
    world: &World,
    situation: &Situation,
    program: Option<&Program>,
    command: &[OsString],
    survey: Option<SurveyMode>,
    ledger: Option<&Ledger>,
) -> LaunchFacts {
    let machine = &situation.machine;
    let look = |mode| Surroundings::look(world, mode, machine, &situation.taken.allowed, ledger);
    let seen = survey.map(look);
    let load =
        seen.map(|Surroundings { busy, pinned, notes, .. }| Load { busy, pinned, notes, ..Load::default() });
    LaunchFacts {
        bounds: situation.taken.clone(),
        limited: situation.limited.clone(),
        load: load.unwrap_or_default(),
        ledger: LedgerFacts { within: machine.cpus(), ..LedgerFacts::default() },
        program: program.map(|program| program.facts(command, world.raw("PATH"))),
        parent: if survey.is_some() { parent(world) } else { Parent::default() },
        library: preload_library(),
        glibc: version::glibc(),
        pid: std::process::id(),
        meetings: None,
        build: BuildFacts::default(),
        answers: Answers::default(),
        machine: machine.clone(),
    }
}

/// Reads the free memory of the nodes, if it matters: the request names an amount, or there are
/// several nodes, and the memory in use could fill one of them.
pub fn look_at_memory(world: &World, request: &LaunchRequest, mode: SurveyMode, facts: &mut LaunchFacts) {
    let nodes = facts.machine.nodes();
    let sized = request.place.memory.size.is_some();
    let full_from = |bytes: u64| bytes / 100 * u64::from(100 - FULL_BELOW_PERCENT);
    let smallest = nodes.iter().filter_map(|node| node.bytes).filter(|&bytes| bytes > 0).min();
    let may_be_full = || smallest.is_some_and(|bytes| used_memory() >= full_from(bytes));
    if !sized && (nodes.len() < 2 || mode == SurveyMode::None || !may_be_full()) {
        return;
    }
    match free_memory(&world.sys(), nodes.iter().map(|node| node.os)) {
        Ok(free) => facts.load.memory = free,
        Err(error) => facts.load.notes.push(format!("the free memory of nodes is not known: {error}")),
    }
}

/// Reads what the build tools of the launch know of jobservers, if it is to have one.
pub fn build_facts(world: &World, request: &LaunchRequest, program: Option<&Program>) -> BuildFacts {
    request.jobserver.map(|_| build::facts(program, world.raw("PATH"))).unwrap_or_default()
}

/// Returns the parent of a rank; nothing is read for other processes.
fn parent(world: &World) -> Parent {
    let Some(rank) = local_rank(&|name| world.text(name)).filter(|rank| rank.of.is_some_and(|of| of > 1))
    else {
        return Parent::default();
    };
    let identity = || {
        let parent = process::stat(&world.proc(), Pid::own()).ok()?.parent;
        let start = process::stat(&world.proc(), parent).ok()?.start;
        Some(format!("{parent} {}", start.0))
    };
    Parent {
        mask: parent_mask(&world.proc(), Pid::own()).ok().flatten(),
        identity: if rank.job.is_none() { identity() } else { None },
    }
}

/// Reads the holds of others, without the lock that would keep them unchanged. Returns whether
/// there is a ledger.
pub fn look_at_ledger(world: &World, request: &LaunchRequest, facts: &mut LaunchFacts) -> bool {
    let seen = location(world).and_then(|location| LedgerView::open(&location));
    let view = match seen {
        Ok(Some(view)) => view,
        Ok(None) => return false,
        Err(error) => {
            facts.ledger.fault = Some(error.to_string());
            return true;
        }
    };
    let stand = LedgerPosition::find(world, &view, &facts.machine);
    let uid = rustix::process::getuid().as_raw();
    let group = Role::of(request, facts).shared().filter(|_| request.ranks.is_none()).map(|(_, job)| {
        view.find_group(stand.level, &stand.within, job, uid, &ProcessTable::at(&world.proc()))
    });
    let seen = group.transpose().and_then(|group| Ok((group, view.map(stand.level, &stand.within)?)));
    match seen {
        Ok((group, map)) => {
            let (held, allotment) = (map.held(), group.flatten());
            let private = private_ledger(world, &view.path());
            facts.ledger = LedgerFacts { within: stand.within, held, allotment, fault: None, private };
        }
        Err(error) => facts.ledger.fault = Some(error.to_string()),
    }
    true
}

/// Returns the warning about a priority that the site's rules do not grant.
pub fn priority_beyond(asked: Option<i32>, rules: &QueueRules) -> Option<String> {
    let most = rules.priority_max;
    let beyond = asked.filter(|asked| *asked > most && !rustix::process::getuid().is_root())?;
    Some(format!(
        "priority {beyond} counts as {most}: the site's rules (max-priority in site.toml) grant no more"
    ))
}

/// Decides, answers the open questions of the decision by measurement, and decides again.
///
/// # Errors
/// The decision refuses.
pub fn settle(request: &LaunchRequest, facts: &mut LaunchFacts) -> Result<LaunchPlan, Refusal> {
    let plan = decide(request, facts)?;
    if !plan.questions.any() {
        return Ok(plan);
    }
    let cpus = plan.placement.mask.clone();
    facts.answers = Answers {
        yields: plan.questions.yields.then(|| measured_yield(&cpus)),
        picture: plan.questions.picture.then(|| picture(&cpus)),
        cpus,
    };
    decide(request, facts)
}

/// Measures the effect of `sched_yield` on these CPUs.
pub fn measured_yield(cpus: &CpuSet) -> Yield {
    match yield_share(cpus) {
        None => Yield::Unknown,
        Some(YieldKind::Posix) => Yield::Posix,
        Some(YieldKind::Weak { share }) => Yield::Weak { share },
    }
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
