//! `trimtab bench oversub`: more threads than cores, as an instrument.
//!
//! What is measured is data of `trimtab_core::study`: cells, samples, and what they come to. [`mod@matrix`] decides which cases there are, [`programs`] knows how
//! each is started, [`running`] runs one or two at once and stops what takes too long, [`report`] and [`chart`] show it.
//!
//! A case is run beside its baseline (alone, a thread for each core, as Linux and the runtime have it by themselves): a baseline serves the case
//! that follows it and the next one, so that no case is further from its baseline than one other run. Cases with the same program and runtime
//! follow each other; rounds, groups and cases within groups are in random orders that follow from the seed. Every run is recorded at once; what
//! is in a record is not run again when it is gone on with.

mod chart;
mod matrix;
mod programs;
mod records;
mod report;
mod running;
#[cfg(test)]
mod tests;

use super::harness::{self, Came, Ended, Outlet, Recorder, Rounds, Series};
use crate::args::{Class, OversubArgs, OversubCellArgs, Program};
use crate::usable::Usable;
use anyhow::{Context, Result, anyhow, bail};
use matrix::{Job, Plan, Step, plan};
use programs::Tools;
use records::{End, Line, SampleLine, SharingLine};
use running::{Ending, Ran, Timed};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trimtab_core::place::waiting::{WaitPolicy, Yield};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::shuffled;
use trimtab_core::study::{self, About, Cell, Grip, Pair, Runtime, Sample, Status, Study, Summary};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_linux::sys::affinity;

/// A baseline that takes longer hangs, in seconds.
const HANG: f64 = 600.0;
/// The same where all of it is to take ten minutes.
const QUICK_HANG: f64 = 30.0;
/// However quick its baseline, a case may take so long, in seconds: starting takes a part of it.
const MOST_MIN: f64 = 2.0;
/// A baseline serves so many cases.
const SERVES: u32 = 2;
/// Yielding is measured up to so often, until nobody disturbs it.
const TRIES: u32 = 10;
/// A baseline that fails so often will fail again.
const FAILURES_MAX: u32 = 2;

/// Starts a program so that it ends with who started it: also when that is killed, nothing goes on and disturbs what is measured next.
///
/// # Errors
/// It cannot be started, or not on these CPUs.
pub(super) fn cell(args: &OversubCellArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let start = || -> Result<std::convert::Infallible> {
        let program = args.words.first().context("no program is named")?;
        affinity::set(None, &args.cpus).with_context(|| format!("cannot run on CPUs {}", args.cpus))?;
        set_parent_process_death_signal(Some(Signal::TERM)).context("cannot ask to end with the parent")?;
        let error = Command::new(program).args(args.words.iter().skip(1)).exec();
        Err(anyhow!("cannot start {}: {error}", program.display()))
    };
    match start() {
        Err(error) => Err(failed(error)),
    }
}

/// Measures, and shows.
///
/// # Errors
/// There is nothing to run, a run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &OversubArgs) -> Result<u8> {
    if let Some(file) = &args.from {
        show_again(file, args)?;
        return Ok(exit::DONE);
    }
    let usable = Usable::live(world, false)?;
    let cpus = harness::one_of_each_core(&usable);
    if cpus.is_empty() {
        bail!("there is no CPU to measure on");
    }
    let tools = Tools::find(args, sibling::find(TRIMTAB)?)?;
    let plan = plan(args, &tools, &cpus);
    if args.list {
        return harness::list(listing(&plan, &tools), &plan.left_out);
    }
    if plan.steps.is_empty() {
        bail!("there is nothing to measure: {}", plan.left_out.join("; "));
    }
    harness::measure(|_| Bench::prepare(args, &usable, cpus, tools, plan))
}

/// Cases with their commands.
fn listing(plan: &Plan, tools: &Tools) -> Vec<String> {
    let line = |job: &Job| {
        let start = tools.start(job.program, plan.class, &job.cell, &job.cpus, None);
        let set =
            start.variables.iter().filter_map(|(name, value)| Some(format!("{name}={} ", value.as_ref()?)));
        format!("{}: {}{}", job.cell, set.collect::<String>(), harness::words(&start.words).join(" "))
    };
    plan.steps.iter().flat_map(|step| &step.jobs).map(line).collect()
}

/// Shows a record again.
fn show_again(file: &Path, args: &OversubArgs) -> Result<()> {
    let study = read(file, "show")?;
    let mut outlet = Outlet::open(None, args.svg.as_deref(), false)?;
    let seed = study.about.seed;
    let summaries = study::cells(&study.samples, seed);
    let pairs = study::pairs(&study.samples, seed);
    outlet.show(
        || report::page(&study.about, &study.samples, &summaries, &pairs, None),
        || chart::picture(&study.about, &summaries),
    )
}

fn read(file: &Path, to: &str) -> Result<Study> {
    let cannot = || format!("cannot {to} {}", file.display());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    study::read(&text).with_context(cannot)
}

/// A baseline that was run.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    seconds: f64,
    wall: f64,
    /// Cases that may still be set beside it.
    serves: u32,
}

struct Bench<'a> {
    args: &'a OversubArgs,
    tools: Tools,
    plan: Plan,
    cpus: CpuSet,
    about: About,
    rounds: Rounds,
    samples: Vec<Sample>,
    /// Rounds and cells that need not be run again.
    known: BTreeSet<(u32, String)>,
    baselines: BTreeMap<(Program, Runtime), Baseline>,
    /// How often baselines failed.
    lost: BTreeMap<(Program, Runtime), u32>,
    ends: Option<Instant>,
    out_of_time: usize,
}

impl<'a> Bench<'a> {
    fn prepare(
        args: &'a OversubArgs,
        usable: &Usable,
        cpus: CpuSet,
        tools: Tools,
        plan: Plan,
    ) -> Result<(Self, Outlet)> {
        // From now on: what is measured before the first case counts too.
        let ends = plan.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        let before = harness::resumed(args.json.as_deref(), args.resume)?
            .map(|file| Ok::<_, anyhow::Error>((file, read(file, "go on with")?)))
            .transpose()?;
        let head = harness::head("oversub", usable);
        let mut about = About {
            bench: head.bench,
            trimtab: head.trimtab,
            machine: head.machine,
            summary: head.summary,
            kernel: head.kernel,
            cpus: cpus.to_string(),
            cores: u32::try_from(cpus.len()).unwrap_or(u32::MAX),
            yields: measured_yield(&cpus),
            rounds: plan.rounds,
            seed: args.seed,
            limit: args.limit,
            rate: None,
            programs: tools.folder.display().to_string(),
            left_out: plan.left_out.clone(),
        };
        if let Some((file, study)) = &before {
            if let Some(why) = differs(&study.about, &about) {
                bail!("cannot go on with {}: {why}", file.display());
            }
            about.rate = study.about.rate;
        }
        let timed = plan.steps.iter().flat_map(|step| &step.jobs).any(|job| job.program.is_timed());
        if timed && about.rate.is_none() {
            about.rate = Some(calibrate(&tools)?);
        }
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), before.is_some())?;
        let samples = before.map(|(_, study)| study.samples).unwrap_or_default();
        let is_known = |sample: &&Sample| sample.beside.is_some() && sample.status != Status::Failed;
        let known =
            samples.iter().filter(is_known).map(|sample| (sample.round, sample.cell.to_string())).collect();
        let rounds = Rounds::of(&plan.steps, plan.rounds, args.seed);
        let bench = Self {
            args,
            tools,
            plan,
            cpus,
            about,
            rounds,
            samples,
            known,
            baselines: BTreeMap::new(),
            lost: BTreeMap::new(),
            ends,
            out_of_time: 0,
        };
        Ok((bench, outlet))
    }

    fn timed(&self, job: &Job, most: f64) -> Timed {
        Timed {
            start: self.tools.start(job.program, self.plan.class, &job.cell, &job.cpus, self.about.rate),
            most,
        }
    }

    /// How the program of a job is run as its own baseline.
    fn baseline_of(&self, job: &Job) -> Job {
        let cores = self.about.cores;
        let cell = Cell {
            threads: cores,
            cores,
            per_core: 1,
            grip: Grip::Floating,
            wait: WaitPolicy::Keep,
            company: None,
            ..job.cell.clone()
        };
        Job { program: job.program, cell, cpus: self.cpus.clone() }
    }

    /// Runs a baseline, records it, and keeps it for the next cases. `None` when a signal came; else why there is none.
    fn run_baseline(
        &mut self,
        job: &Job,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<Option<Result<(), String>>> {
        let job = self.baseline_of(job);
        let key = (job.program, job.cell.runtime);
        let hang = if self.args.quick { QUICK_HANG } else { HANG };
        let timed = self.timed(&job, hang);
        let Some(together) = running::run(std::slice::from_ref(&timed), &self.cpus, interrupt) else {
            return Ok(None);
        };
        let mut ran = together.ran.into_iter();
        let Some(ran) = ran.next() else { return Ok(None) };
        let mut sample = sample(&job, self.plan.class, round, &ran, None);
        // Longer than anything may take is no bound of anything.
        if sample.status == Status::Slower {
            (sample.status, sample.seconds) = (Status::Failed, None);
            sample.error = Some(format!("it hung for {hang} s"));
        }
        (sample.balance, sample.foreign) = (together.balance, together.foreign);
        record(recorder, &sample, &timed, &ran)?;
        let came = match (sample.seconds, &sample.error) {
            (Some(seconds), None) => {
                self.baselines.insert(key, Baseline { seconds, wall: sample.wall, serves: SERVES });
                Ok(())
            }
            (_, error) => {
                *self.lost.entry(key).or_default() += 1;
                Err(format!(
                    "its baseline: {}; {}",
                    error.as_deref().unwrap_or("no time"),
                    progress::quoted(&ran.stderr)
                ))
            }
        };
        self.samples.push(sample);
        Ok(Some(came))
    }

    fn end(&self, Ended { complete, runs, failed }: Ended) -> End {
        let out_of_time = self.out_of_time;
        End { complete: complete && out_of_time == 0, runs: runs - out_of_time, failed, out_of_time }
    }
}

fn record(recorder: &mut Recorder, sample: &Sample, timed: &Timed, ran: &Ran) -> Result<()> {
    let command = harness::words(&timed.start.words);
    recorder.write(&Line::Sample(SampleLine { sample, command, stderr: &ran.stderr }))
}

/// A sample of a run, without what is known of all that ran together.
fn sample(job: &Job, class: Class, round: u32, ran: &Ran, beside: Option<Baseline>) -> Sample {
    let (status, seconds, error) = match &ran.ending {
        Ending::Well(said) => match programs::read(job.program, &job.cell, said) {
            Ok(seconds) => (Status::Done, Some(seconds), None),
            Err(error) => (Status::Failed, None, Some(error)),
        },
        // So many times as long from start to end: the part that is timed is taken to be slower alike.
        Ending::Slower => {
            (Status::Slower, beside.map(|beside| beside.seconds * ran.wall / beside.wall), None)
        }
        Ending::Badly(error) => (Status::Failed, None, Some(error.clone())),
    };
    Sample {
        cell: job.cell.clone(),
        round,
        status,
        seconds,
        beside: beside.map(|beside| beside.seconds),
        wall: ran.wall,
        user: ran.cpu.map(|(user, _)| user),
        system: ran.cpu.map(|(_, system)| system),
        balance: None,
        interval: job.program.interval_of(
            class,
            job.cell.runtime,
            beside.map(|beside| beside.seconds).or(seconds),
        ),
        foreign: None,
        error,
    }
}

impl Series for Bench<'_> {
    type Findings<'f>
        = (Vec<Summary>, Vec<Pair>)
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Groups in a random order, and cases in a random order within them.
    fn order(&self, round: u32) -> Vec<usize> {
        order(&self.plan.steps, self.rounds.seed, round)
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&Line::Start(&self.about))
    }

    fn one(&mut self, at: usize, round: u32, recorder: &mut Recorder, interrupt: &Interrupt) -> Result<Came> {
        let Some(step) = self.plan.steps.get(at).cloned() else { return Ok(Came::Well) };
        if step.jobs.iter().all(|job| self.known.contains(&(round, job.cell.to_string()))) {
            return Ok(Came::Well);
        }
        if self.ends.is_some_and(|ends| Instant::now() >= ends) {
            self.out_of_time += 1;
            return Ok(Came::Well);
        }
        let group: BTreeSet<(Program, Runtime)> = step.group().into_iter().collect();
        // Said when it happened.
        if group.iter().any(|key| self.lost.get(key).is_some_and(|times| *times >= FAILURES_MAX)) {
            return Ok(Came::Well);
        }
        // What was run between would be further away than one other case.
        self.baselines.retain(|key, baseline| group.contains(key) && baseline.serves > 0);
        for job in &step.jobs {
            if !self.baselines.contains_key(&(job.program, job.cell.runtime)) {
                match self.run_baseline(job, round, recorder, interrupt)? {
                    None => return Ok(Came::Stopped),
                    Some(Err(error)) => return Ok(Came::Badly { error, stderr: String::new() }),
                    Some(Ok(())) => {}
                }
            }
        }
        let beside: Vec<Option<Baseline>> = step
            .jobs
            .iter()
            .map(|job| self.baselines.get(&(job.program, job.cell.runtime)).copied())
            .collect();
        // One that meets itself uses its baseline once.
        for baseline in self.baselines.values_mut() {
            baseline.serves -= 1;
        }
        let most =
            |beside: &Option<Baseline>| (self.args.limit * beside.map_or(HANG, |one| one.wall)).max(MOST_MIN);
        let timed: Vec<Timed> =
            step.jobs.iter().zip(&beside).map(|(job, beside)| self.timed(job, most(beside))).collect();
        let Some(together) = running::run(&timed, &self.cpus, interrupt) else { return Ok(Came::Stopped) };
        let mut came = Came::Well;
        for (((job, timed), beside), ran) in step.jobs.iter().zip(&timed).zip(beside).zip(&together.ran) {
            let mut sample = sample(job, self.plan.class, round, ran, beside);
            (sample.balance, sample.foreign) = (together.balance, together.foreign);
            record(recorder, &sample, timed, ran)?;
            if let Some(error) = &sample.error {
                came = Came::Badly { error: error.clone(), stderr: ran.stderr.clone() };
            }
            self.samples.push(sample);
        }
        Ok(came)
    }

    fn evaluate(&self) -> (Vec<Summary>, Vec<Pair>) {
        let seed = self.args.seed;
        (study::cells(&self.samples, seed), study::pairs(&self.samples, seed))
    }

    fn report(&self, (summaries, pairs): &(Vec<Summary>, Vec<Pair>), ended: Ended) -> String {
        report::page(&self.about, &self.samples, summaries, pairs, Some(self.end(ended)))
    }

    fn chart(&self, (summaries, _): &(Vec<Summary>, Vec<Pair>)) -> String {
        chart::picture(&self.about, summaries)
    }

    fn conclude(
        &self,
        (summaries, pairs): &(Vec<Summary>, Vec<Pair>),
        ended: Ended,
        recorder: &mut Recorder,
    ) -> Result<()> {
        summaries.iter().try_for_each(|one| recorder.write(&Line::Cell(one)))?;
        pairs.iter().try_for_each(|one| recorder.write(&Line::Pair(one)))?;
        for one in study::sharing(pairs, self.args.seed) {
            let name = |pair: &Pair| pair.first.to_string();
            let (shared, partitioned) = (name(one.shared), name(one.partitioned));
            recorder.write(&Line::Sharing(SharingLine { shared, partitioned, gain: one.gain.as_ref() }))?;
        }
        recorder.write(&Line::End(self.end(ended)))
    }
}

/// The order of a round.
fn order(steps: &[Step], seed: u64, round: u32) -> Vec<usize> {
    let seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
    let mut groups: BTreeMap<Vec<(Program, Runtime)>, Vec<usize>> = BTreeMap::new();
    for at in shuffled(steps.len(), seed) {
        groups.entry(steps.get(at).map(Step::group).unwrap_or_default()).or_default().push(at);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    shuffled(groups.len(), seed.wrapping_add(1))
        .into_iter()
        .flat_map(|at| groups.get(at).cloned().unwrap_or_default())
        .collect()
}

/// What `sched_yield` does here. Others may disturb a trial, which then says nothing.
fn measured_yield(cpus: &CpuSet) -> Yield {
    let mut tries = (0..TRIES).map(|_| trimtab_cli::gather::measured_yield(cpus));
    tries.find(|came| *came != Yield::Unknown).unwrap_or_default()
}

/// Why samples of then and of now would not be comparable.
fn differs(then: &About, now: &About) -> Option<String> {
    harness::difference(&[
        ("machine", &then.summary, &now.summary),
        ("kernel", &then.kernel, &now.kernel),
        ("set of CPUs", &then.cpus, &now.cpus),
        ("trimtab", &then.trimtab, &now.trimtab),
        ("--limit", &then.limit, &now.limit),
        ("seed", &then.seed, &now.seed),
    ])
}

/// Steps of work a second on this machine.
fn calibrate(tools: &Tools) -> Result<u64> {
    let program = tools.calibrator();
    let output = Command::new(&program)
        .arg("--calibrate")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    report["rate"].as_u64().filter(|rate| *rate > 0).with_context(|| {
        format!(
            "{} --calibrate does not say a rate; {}",
            program.display(),
            progress::quoted(&String::from_utf8_lossy(&output.stderr))
        )
    })
}
