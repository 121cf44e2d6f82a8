//! Scenario of a recorded run: programs, machine and foreign load of a trace or a profile, as far
//! as they show them.
//!
//! Problem: a user asks how a program would run with another policy, with more threads or on
//! another machine, and has only a record of one run. Idea: threads that compute become an SPMD
//! program with the work and the imbalance that were measured; their sleeps become barriers; CPU
//! time of others becomes a hog with that share. A profile counts barriers inside the program, so
//! its intervals are better than those of sleeps. All that was assumed is stated in notes.
//!
//! Properties: a pure function. The machine keeps its nodes, caches, cores and hardware threads,
//! with CPUs numbered in their order; costs of memory are not known from a record, so memory has no
//! effect.

use crate::faults::Faults;
use crate::kernel::{Kernel, UnknownKernel};
use crate::model::Model;
use crate::observer_cost::ObserverCost;
use crate::program::{Body, ProgramSpec, WaitMode};
use crate::scenario::Scenario;
use std::collections::BTreeMap;
use thiserror::Error;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::ids::{OsCpu, ProgramId, ThreadId};
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::{Level, Machine, parse_synthetic};
use trimtab_core::trace::Trace;
use trimtab_core::words::plural;

/// Least part of the work of a program's busiest thread with which a thread counts as computing.
const COMPUTES_MIN: f64 = 0.05;
/// Least number of sleeps of each thread from which sleeps are taken as waits at barriers: a few
/// are those of start and end.
const SLEEPS_MIN: f64 = 4.0;
/// Least CPU time of others, in CPUs, that becomes a program.
const FOREIGN_MIN: f64 = 0.05;
/// Period in which a hog with a share of a CPU works and sleeps.
const FOREIGN_PERIOD: Span = Span::from_ms(10);
/// Spinning before a sleep of threads that `trimtab run` tells to spin for a moment.
const MOMENT: Span = Span::from_us(100);
/// Factor by which the run may take longer than the record before it is ended.
const LONGER_MAX: f64 = 20.0;

/// A scenario, and the assumptions in it.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedRun {
    /// The scenario.
    pub scenario: Scenario,
    /// Assumptions and omissions, one sentence each.
    pub notes: Vec<String>,
}

/// Reason why a record gives no scenario.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RecordedError {
    /// No thread computed between two samples.
    #[error("no thread of the record computed: record a longer run, or with a shorter interval")]
    Idle,
    /// The kernel's name is none.
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
}

/// Counters of a thread at its last reading.
#[derive(Clone, Copy, Default)]
struct ThreadTotal {
    program: Option<ProgramId>,
    begin: Moment,
    /// CPU time and sleeps before watching began.
    before: (Span, u64),
    /// CPU time since then.
    run: Span,
    /// Sleeps since then; `None` if they were not read.
    sleeps: Option<u64>,
}

/// Returns the scenario of a trace, on a kernel with this name. The intervals of `profile`, if
/// there is one, have precedence over the trace's sleeps.
///
/// # Errors
/// [`RecordedError`] if no thread computed, or the kernel is unknown.
pub fn of_trace(
    trace: &Trace,
    profile: Option<&Profile>,
    kernel: &str,
) -> Result<RecordedRun, RecordedError> {
    let mut notes = Vec::new();
    let (model, is_whole) = plain(&trace.header.machine);
    if !is_whole {
        notes.push(
            "The machine is irregular: each of its hardware threads is a core, without nodes and caches."
                .to_owned(),
        );
    }
    let threads = totals(trace);
    let named = named_programs(trace);
    let profiled = profile.and_then(|profile| profiled(&named, &threads, &profile.program));
    let mut programs = Vec::new();
    for (id, name) in named {
        let mut own: Vec<ThreadTotal> =
            threads.values().filter(|thread| thread.program == Some(id)).copied().collect();
        own.sort_by_key(|thread| thread.run);
        let most = own.last().map_or(Span::ZERO, |thread| thread.run);
        let all = own.len();
        own.retain(|thread| thread.run.seconds() > COMPUTES_MIN * most.seconds());
        if own.is_empty() || most == Span::ZERO {
            continue;
        }
        if own.len() < all {
            let idle = plural(all - own.len(), "thread");
            notes.push(format!("{name}: {idle} that hardly computed are left out."));
        }
        programs.push(program(&name, &own, profile.filter(|_| profiled == Some(id)), &mut notes));
    }
    if programs.is_empty() {
        return Err(RecordedError::Idle);
    }
    let usable = usable(&trace.header.machine, &trace.header.usable);
    for program in &mut programs {
        program.mask.clone_from(&usable);
    }
    if let Some(hog) = foreign(trace, &threads, &mut notes) {
        programs.push(hog);
    }
    let lasted = trace.steps.last().map_or(Span::ZERO, |step| step.sample.at.since(Moment(0)));
    let header = &trace.header;
    let policy = (header.policy != Kind::Float).then(|| (header.policy, header.settings.clone()));
    notes.push(
        "Threads meet at barriers only; locks, pipelines and input and output are not in the record."
            .to_owned(),
    );
    let scenario = scenario(name_of(&trace.header.command), model, kernel, (programs, policy, lasted))?;
    Ok(RecordedRun { scenario, notes })
}

/// Returns the scenario of a profile, on a kernel with this name.
///
/// # Errors
/// As [`of_trace`].
pub fn of_profile(profile: &Profile, kernel: &str) -> Result<RecordedRun, RecordedError> {
    let cpu = profile.user.seconds() + profile.system.seconds();
    if profile.workers == 0 || cpu <= 0.0 {
        return Err(RecordedError::Idle);
    }
    let mut notes = Vec::new();
    let cores = profile.cores.max(1);
    let words = format!("core:{cores} pu:{}", profile.cpus.max(1).div_ceil(cores));
    // A word list of positive numbers is always a machine; one core stands for an impossible one.
    let machine = parse_synthetic(&words).or_else(|_| parse_synthetic("core:1"));
    let model = machine.map(Model::plain).map_err(|_| RecordedError::Idle)?;
    notes.push(format!("The machine is {words}: a profile does not name caches and nodes."));
    let total = ThreadTotal { run: Span(scaled(cpu / f64::from(profile.workers))), ..Default::default() };
    let own = vec![total; profile.workers as usize];
    let program = program(&profile.program, &own, Some(profile), &mut notes);
    notes.push("The threads have equal work: a profile has no times of single threads.".to_owned());
    let scenario = scenario(&profile.program, model, kernel, (vec![program], None, profile.wall))?;
    Ok(RecordedRun { scenario, notes })
}

fn scaled(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn name_of(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or(command);
    first.rsplit('/').next().unwrap_or(first)
}

fn scenario(
    name: &str,
    model: Model,
    kernel: &str,
    (programs, policy, lasted): (Vec<ProgramSpec>, Option<(Kind, Settings)>, Span),
) -> Result<Scenario, RecordedError> {
    let kernel = Kernel::preset(kernel, model.machine.pu_count())?;
    let end = Moment(0) + lasted.times(LONGER_MAX) + Span::from_ms(10_000);
    Ok(Scenario {
        name: name.to_owned(),
        model,
        memory: false,
        kernel,
        programs,
        arrivals: Vec::new(),
        policy,
        events: Vec::new(),
        faults: Faults::default(),
        observer_cost: ObserverCost::default(),
        end,
        seed: 1,
    })
}

/// Returns the counters of all threads at their last readings, without those of before the record:
/// a program to which trimtab attached may have run for hours.
fn totals(trace: &Trace) -> BTreeMap<ThreadId, ThreadTotal> {
    let mut threads: BTreeMap<ThreadId, ThreadTotal> = BTreeMap::new();
    for (at, step) in trace.steps.iter().enumerate() {
        for news in &step.sample.news {
            let begin = step.sample.at;
            let thread = threads.entry(news.id).or_insert(ThreadTotal { begin, ..Default::default() });
            thread.program = Some(news.program);
        }
        for read in &step.sample.threads {
            let Some(thread) = threads.get_mut(&read.id) else { continue };
            if at == 0 {
                thread.before = (read.run, read.voluntary.unwrap_or(0));
            }
            let (run, sleeps) = thread.before;
            thread.run = read.run.less(run).max(thread.run);
            thread.sleeps = read.voluntary.map(|all| all.saturating_sub(sleeps)).or(thread.sleeps);
        }
    }
    threads
}

/// Returns the program of a trace of which a profile is: that of its name, which the kernel cuts
/// off, or the one with the most work.
fn profiled(
    named: &BTreeMap<ProgramId, String>,
    threads: &BTreeMap<ThreadId, ThreadTotal>,
    program: &str,
) -> Option<ProgramId> {
    let work = |id: &ProgramId| {
        let own = threads.values().filter(|thread| thread.program == Some(*id));
        own.map(|thread| thread.run).sum::<Span>()
    };
    let is_its = |name: &str| !name.is_empty() && program.starts_with(name);
    let same = named.iter().filter(|(_, name)| is_its(name)).map(|(id, _)| *id).max_by_key(work);
    same.or_else(|| named.keys().copied().max_by_key(work))
}

fn named_programs(trace: &Trace) -> BTreeMap<ProgramId, String> {
    let all = trace.steps.iter().flat_map(|step| &step.sample.programs);
    let mut taken: BTreeMap<String, u32> = BTreeMap::new();
    let mut named = BTreeMap::new();
    for program in all {
        // Names are unique in a scenario.
        let count = taken.entry(program.name.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { program.name.clone() } else { format!("{} {count}", program.name) };
        named.entry(program.id).or_insert(name);
    }
    named
}

/// Returns the program of threads, the least work first.
fn program(
    name: &str,
    own: &[ThreadTotal],
    profile: Option<&Profile>,
    notes: &mut Vec<String>,
) -> ProgramSpec {
    let count = own.len() as f64;
    let mean = own.iter().map(|thread| thread.run.seconds()).sum::<f64>() / count;
    let work = Span(scaled(mean * profile.map_or(1.0, works)).max(1_000));
    let profiled = profile.and_then(|profile| {
        let intervals = profile.intervals.filter(|intervals| intervals.count > 1)?;
        Some((work.times(1.0 / intervals.count as f64), wait_mode(profile).unwrap_or(WaitMode::Sleep)))
    });
    let sleeps: Option<u64> = own.iter().map(|thread| thread.sleeps).sum();
    let slept = sleeps.map(|sleeps| sleeps as f64).filter(|sleeps| *sleeps >= SLEEPS_MIN * count);
    let (interval, wait) = match (profiled, slept) {
        (Some((interval, wait)), _) => (Some(interval), wait),
        (None, Some(sleeps)) if own.len() > 1 => {
            // All but the last one sleep at a barrier.
            let barriers = sleeps / (count - 1.0);
            notes.push(format!(
                "{name}: its threads slept {sleeps:.0} times, which is taken as {barriers:.0} barriers; a profile (trimtab profile --json) counts them."
            ));
            (Some(work.times(1.0 / barriers)), WaitMode::Sleep)
        }
        _ => {
            if own.len() > 1 {
                notes.push(format!(
                    "{name}: no barrier is seen, so its threads meet at the end only, and time in which they polled for each other counts as work; a profile (trimtab profile --json) separates both."
                ));
            }
            (None, WaitMode::Sleep)
        }
    };
    let begin = own.iter().map(|thread| thread.begin).min().unwrap_or(Moment(0));
    let first = Moment(0) + Span::from_ms(1_000);
    let mut spec = ProgramSpec::spmd(name, own.len() as u32, work, wait);
    // Programs of the first look were there when watching began.
    spec.start = if begin < first { Moment(0) } else { begin };
    spec.body = Body::Spmd {
        work,
        interval: interval.map(|interval| interval.max(Span(1_000)).min(work)),
        imbalance: imbalance(own, mean),
        jitter: 0.0,
    };
    spec
}

/// Returns the imbalance of threads, the least work first: the slope of a line through their work.
fn imbalance(own: &[ThreadTotal], mean: f64) -> f64 {
    let count = own.len();
    if count < 2 || mean <= 0.0 {
        return 0.0;
    }
    let place = |at: usize| 2.0 * at as f64 / (count - 1) as f64 - 1.0;
    let along: f64 = own.iter().enumerate().map(|(at, it)| place(at) * (it.run.seconds() / mean - 1.0)).sum();
    let places: f64 = (0..count).map(|at| place(at) * place(at)).sum();
    // Thousandths: a record says no more.
    (1000.0 * along / places).round().clamp(0.0, 990.0) / 1000.0
}

/// Returns the part of the CPU time of a profile's threads that is work: waiting by polling is not.
fn works(profile: &Profile) -> f64 {
    let polls = matches!(wait_mode(profile), Some(WaitMode::Spin | WaitMode::Yield));
    if polls { 1.0 - profile.waiting.unwrap_or(0.0).clamp(0.0, 0.99) } else { 1.0 }
}

/// Returns how the threads of a profile wait; `None` if it does not say.
fn wait_mode(profile: &Profile) -> Option<WaitMode> {
    let words = profile.wait.as_deref()?.to_ascii_lowercase();
    let (spins, sleeps) = (words.contains("spin"), words.contains("sleep"));
    match () {
        () if spins && sleeps => Some(WaitMode::SpinThenSleep(MOMENT)),
        () if spins => Some(WaitMode::Spin),
        () if words.contains("yield") => Some(WaitMode::Yield),
        () if sleeps => Some(WaitMode::Sleep),
        () => None,
    }
}

/// Returns CPU time of others as a program.
fn foreign(
    trace: &Trace,
    threads: &BTreeMap<ThreadId, ThreadTotal>,
    notes: &mut Vec<String>,
) -> Option<ProgramSpec> {
    let mut looks = trace.steps.iter().filter(|step| !step.sample.cpus.is_empty());
    let (first, last) = (looks.next()?, looks.next_back()?);
    let lasted = last.sample.at.since(first.sample.at).seconds();
    let at_first: BTreeMap<OsCpu, Span> = first.sample.cpus.iter().map(|cpu| (cpu.cpu, cpu.busy)).collect();
    let grown =
        |cpu: &trimtab_core::observe::CpuSample| Some(cpu.busy.less(*at_first.get(&cpu.cpu)?).seconds());
    let busy: f64 = last.sample.cpus.iter().filter_map(grown).sum();
    // What the threads had run at the first look was before.
    let before = |id| threads.get(id).map_or(Span::ZERO, |thread: &ThreadTotal| thread.before.0);
    let early: f64 = first.sample.threads.iter().map(|read| read.run.less(before(&read.id)).seconds()).sum();
    let own = threads.values().map(|thread| thread.run.seconds()).sum::<f64>() - early;
    let cpus = (busy - own) / lasted.max(1e-9);
    if lasted <= 0.0 || cpus < FOREIGN_MIN {
        return None;
    }
    let count = cpus.ceil().max(1.0);
    let share = cpus / count;
    notes.push(format!("Others used {cpus:.2} CPUs: a program of another session stands for them."));
    let mut hog = ProgramSpec::hog("others", count as u32);
    if share < 0.95 {
        let works = FOREIGN_PERIOD.times(share);
        hog.body = Body::Hog { duty: Some((works, FOREIGN_PERIOD.less(works))) };
    }
    Some(hog)
}

/// Returns the usable CPUs by their places; `None` if they are all.
fn usable(machine: &Machine, usable: &CpuSet) -> Option<CpuSet> {
    let places: CpuSet = usable.iter().filter_map(|cpu| Some(OsCpu(machine.pu(cpu)?.0))).collect();
    (!places.is_empty() && places.len() < machine.pu_count()).then_some(places)
}

/// Returns a machine of equal cores with the nodes, caches, cores and hardware threads of this one,
/// and whether all of these are kept.
fn plain(machine: &Machine) -> (Model, bool) {
    let nodes = machine.nodes().iter().filter(|node| !node.cores.is_empty()).count().max(1);
    let (caches, cores) = (machine.llcs().len().max(nodes), machine.cores().len().max(1));
    let pus = machine.smt().max(1);
    let is_regular = caches.is_multiple_of(nodes)
        && cores.is_multiple_of(caches)
        && cores * pus == machine.pu_count()
        && machine.outermost(Level::Package).len() <= nodes;
    let words = format!("numa:{nodes} l3:{} core:{} pu:{pus}", caches / nodes, cores / caches);
    let built = is_regular.then(|| parse_synthetic(&words).ok()).flatten();
    let flat = || parse_synthetic(&format!("core:{}", machine.pu_count().max(1)));
    match built {
        Some(built) => (Model::plain(built), true),
        None => (Model::plain(flat().unwrap_or_else(|_| machine.clone())), false),
    }
}

#[cfg(test)]
mod tests;
