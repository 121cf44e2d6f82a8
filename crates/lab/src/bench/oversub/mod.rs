//! `trimtab bench oversub`: programs with more threads than cores.
//!
//! Cells, samples and their evaluation are data of `trimtab_core::study`. [`mod@matrix`] defines
//! the cases, [`programs`] starts them, [`running`] runs one or two at once and stops runs that
//! take too long, [`report`] and [`chart`] show the results.
//!
//! A case runs after its baseline (alone, one thread for each core, floating, with the runtime's
//! own wait policy). A baseline serves the case that follows it and the next one, so that at most
//! one other run separates a case from its baseline. Cases with the same program and runtime follow
//! each other; rounds, groups and cases within groups are in random orders that follow from the
//! seed. Every run is recorded at once; a continued record's runs are not repeated.

mod chart;
mod matrix;
mod programs;
mod records;
mod reference;
mod report;
mod running;
#[cfg(test)]
mod tests;

use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::{Class, OversubArgs, OversubCellArgs, Program};
use crate::usable::Usable;
use anyhow::{Context, Result, anyhow, bail};
use matrix::{OversubJob, OversubPlan, OversubStep, class, kernels, plan};
use programs::OversubTools;
use records::{OversubEnd, OversubLine, SampleLine, SharingLine};
use running::{ProgramRun, RunEnding, TimedStart};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trimtab_core::place::waiting::{WaitPolicy, Yield};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::shuffled;
use trimtab_core::study::{
    self, About, Pair, Runtime, Sample, Status, Study, StudyCell, Summary, ThreadBinding,
};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_linux::sys::affinity;

/// Longest run of a baseline, in seconds; a longer one counts as hung.
const HANG_S: f64 = 600.0;
/// Longest run of a baseline in a measurement that takes ten minutes in total, in seconds.
const QUICK_HANG_S: f64 = 30.0;
/// Smallest time limit of a case, in seconds, even for a fast baseline: starting the program takes
/// part of it.
const CASE_LIMIT_MIN_S: f64 = 2.0;
/// Cases that a baseline serves.
const CASES_PER_BASELINE: u32 = 2;
/// Trials of `sched_yield` at most, until one is undisturbed.
const YIELD_TRIALS_MAX: u32 = 10;
/// Failures after which a baseline is not tried again.
const FAILURES_MAX: u32 = 2;

/// Starts a program that ends with its parent: even if the parent is killed, no process continues
/// and disturbs the next measurement.
///
/// # Errors
/// The program cannot be started, or not on these CPUs.
pub(super) fn cell(args: &OversubCellArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let start = || -> Result<std::convert::Infallible> {
        let program = args.words.first().context("no program is given")?;
        affinity::set(None, &args.cpus).with_context(|| format!("cannot run on CPUs {}", args.cpus))?;
        set_parent_process_death_signal(Some(Signal::TERM))
            .context("cannot request a signal at the end of the parent")?;
        let error = Command::new(program).args(args.words.iter().skip(1)).exec();
        Err(anyhow!("cannot start {}: {error}", program.display()))
    };
    match start() {
        Err(error) => Err(failed(error)),
    }
}

/// Runs the benchmark and shows the results.
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
    let tools = OversubTools::find(args, class(args), &kernels(args), sibling::find(TRIMTAB)?)?;
    let plan = plan(args, &tools, &cpus);
    if args.list {
        return harness::list(listing(&plan, &tools), &plan.left_out);
    }
    if plan.steps.is_empty() {
        bail!("there is nothing to measure: {}", plan.left_out.join("; "));
    }
    harness::measure(|_| OversubBench::prepare(args, &usable, cpus, tools, plan))
}

/// Returns the cases with their commands.
fn listing(plan: &OversubPlan, tools: &OversubTools) -> Vec<String> {
    let line = |job: &OversubJob| {
        let start = tools.start(job.program, plan.class, &job.cell, &job.cpus, None);
        let set =
            start.variables.iter().filter_map(|(name, value)| Some(format!("{name}={} ", value.as_ref()?)));
        format!("{}: {}{}", job.cell, set.collect::<String>(), harness::words(&start.words).join(" "))
    };
    plan.steps.iter().flat_map(|step| &step.jobs).map(line).collect()
}

/// Shows a stored record.
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
    let text = super::harness::read_text(file).with_context(cannot)?;
    study::read(&text).with_context(cannot)
}

/// Times of a baseline that was run.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    seconds: f64,
    wall: f64,
    /// Cases that this baseline may still serve.
    serves: u32,
}

struct OversubBench<'a> {
    args: &'a OversubArgs,
    tools: OversubTools,
    plan: OversubPlan,
    cpus: CpuSet,
    about: About,
    rounds: Rounds,
    samples: Vec<Sample>,
    /// Rounds and cells that need not be run again.
    known: BTreeSet<(u32, String)>,
    baselines: BTreeMap<(Program, Runtime), Baseline>,
    /// Number of failures of each baseline.
    lost: BTreeMap<(Program, Runtime), u32>,
    ends: Option<Instant>,
    out_of_time: usize,
}

impl<'a> OversubBench<'a> {
    fn prepare(
        args: &'a OversubArgs,
        usable: &Usable,
        cpus: CpuSet,
        tools: OversubTools,
        plan: OversubPlan,
    ) -> Result<(Self, Outlet)> {
        // The time limit starts now, so that it covers measurements before the first case.
        let ends = plan.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        let before = harness::resumed(args.json.as_deref(), args.resume)?
            .map(|file| Ok::<_, anyhow::Error>((file, read(file, "continue")?)))
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
                bail!("cannot continue {}: {why}", file.display());
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

    fn timed(&self, job: &OversubJob, most: f64) -> TimedStart {
        TimedStart {
            start: self.tools.start(job.program, self.plan.class, &job.cell, &job.cpus, self.about.rate),
            most,
        }
    }

    /// Returns the job that is the baseline of a job.
    fn baseline_of(&self, job: &OversubJob) -> OversubJob {
        let cores = self.about.cores;
        let cell = StudyCell {
            threads: cores,
            cores,
            per_core: 1,
            grip: ThreadBinding::Floating,
            wait: WaitPolicy::Keep,
            schedule: None,
            company: None,
            ..job.cell.clone()
        };
        OversubJob { program: job.program, cell, cpus: self.cpus.clone() }
    }

    /// Runs a baseline, records it, and keeps it for the next cases. Returns `None` after a signal,
    /// and otherwise the error if there is no baseline.
    fn run_baseline(
        &mut self,
        job: &OversubJob,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<Option<Result<(), String>>> {
        let job = self.baseline_of(job);
        let key = (job.program, job.cell.runtime);
        let hang = if self.args.quick { QUICK_HANG_S } else { HANG_S };
        let timed = self.timed(&job, hang);
        let Some(together) = running::run(std::slice::from_ref(&timed), &self.cpus, interrupt) else {
            return Ok(None);
        };
        let mut ran = together.ran.into_iter();
        let Some(ran) = ran.next() else { return Ok(None) };
        let mut sample = sample(&job, self.plan.class, round, &ran, None);
        // A baseline that reaches the hang limit is a failure, not a lower bound.
        if sample.status == Status::Slower {
            (sample.status, sample.seconds) = (Status::Failed, None);
            sample.error = Some(format!("it did not end within {hang} s"));
        }
        (sample.balance, sample.foreign) = (together.balance, together.foreign);
        record(recorder, &sample, &timed, &ran)?;
        let came = match (sample.seconds, &sample.error) {
            (Some(seconds), None) => {
                self.baselines
                    .insert(key, Baseline { seconds, wall: sample.wall, serves: CASES_PER_BASELINE });
                Ok(())
            }
            (_, error) => {
                *self.lost.entry(key).or_default() += 1;
                Err(format!(
                    "its baseline: {}; {}",
                    error.as_deref().unwrap_or("no time reported"),
                    progress::quoted(&ran.stderr)
                ))
            }
        };
        self.samples.push(sample);
        Ok(Some(came))
    }

    fn end(&self, SeriesEnd { complete, runs, failed }: SeriesEnd) -> OversubEnd {
        let out_of_time = self.out_of_time;
        OversubEnd { complete: complete && out_of_time == 0, runs: runs - out_of_time, failed, out_of_time }
    }
}

fn record(recorder: &mut Recorder, sample: &Sample, timed: &TimedStart, ran: &ProgramRun) -> Result<()> {
    let command = harness::words(&timed.start.words);
    recorder.write(&OversubLine::Sample(SampleLine { sample, command, stderr: &ran.stderr }))
}

/// Returns the sample of a run, without the values common to all programs that ran together.
fn sample(job: &OversubJob, class: Class, round: u32, ran: &ProgramRun, beside: Option<Baseline>) -> Sample {
    let (status, seconds, error) = match &ran.ending {
        RunEnding::Well(_) if !job.program.reports() => (Status::Done, Some(ran.wall), None),
        RunEnding::Well(said) => match programs::read(job.program, &job.cell, said) {
            Ok(seconds) => (Status::Done, Some(seconds), None),
            Err(error) => (Status::Failed, None, Some(error)),
        },
        // The timed part of the program is taken to be slower by the same factor as the run from
        // start to end.
        RunEnding::Slower => {
            (Status::Slower, beside.map(|beside| beside.seconds * ran.wall / beside.wall), None)
        }
        RunEnding::Badly(error) => (Status::Failed, None, Some(error.clone())),
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

impl Benchmark for OversubBench<'_> {
    type Findings<'f>
        = (Vec<Summary>, Vec<Pair>)
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Groups are in a random order, and so are cases within a group.
    fn order(&self, round: u32) -> Vec<usize> {
        order(&self.plan.steps, self.rounds.seed, round)
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&OversubLine::Start(&self.about))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some(step) = self.plan.steps.get(at).cloned() else { return Ok(RunOutcome::Well) };
        if step.jobs.iter().all(|job| self.known.contains(&(round, job.cell.to_string()))) {
            return Ok(RunOutcome::Well);
        }
        if self.ends.is_some_and(|ends| Instant::now() >= ends) {
            self.out_of_time += 1;
            return Ok(RunOutcome::Well);
        }
        let group: BTreeSet<(Program, Runtime)> = step.group().into_iter().collect();
        // The failure was reported when it happened.
        if group.iter().any(|key| self.lost.get(key).is_some_and(|times| *times >= FAILURES_MAX)) {
            return Ok(RunOutcome::Well);
        }
        // Baselines of other groups would be separated from their cases by more than one run.
        self.baselines.retain(|key, baseline| group.contains(key) && baseline.serves > 0);
        for job in &step.jobs {
            if !self.baselines.contains_key(&(job.program, job.cell.runtime)) {
                match self.run_baseline(job, round, recorder, interrupt)? {
                    None => return Ok(RunOutcome::Stopped),
                    Some(Err(error)) => return Ok(RunOutcome::Badly { error, stderr: String::new() }),
                    Some(Ok(())) => {}
                }
            }
        }
        let beside: Vec<Option<Baseline>> = step
            .jobs
            .iter()
            .map(|job| self.baselines.get(&(job.program, job.cell.runtime)).copied())
            .collect();
        // A pair of one program with itself uses its baseline once.
        for baseline in self.baselines.values_mut() {
            baseline.serves -= 1;
        }
        let most = |beside: &Option<Baseline>| {
            (self.args.limit * beside.map_or(HANG_S, |one| one.wall)).max(CASE_LIMIT_MIN_S)
        };
        let timed: Vec<TimedStart> =
            step.jobs.iter().zip(&beside).map(|(job, beside)| self.timed(job, most(beside))).collect();
        let Some(together) = running::run(&timed, &self.cpus, interrupt) else {
            return Ok(RunOutcome::Stopped);
        };
        let mut came = RunOutcome::Well;
        for (((job, timed), beside), ran) in step.jobs.iter().zip(&timed).zip(beside).zip(&together.ran) {
            let mut sample = sample(job, self.plan.class, round, ran, beside);
            (sample.balance, sample.foreign) = (together.balance, together.foreign);
            record(recorder, &sample, timed, ran)?;
            if let Some(error) = &sample.error {
                came = RunOutcome::Badly { error: error.clone(), stderr: ran.stderr.clone() };
            }
            self.samples.push(sample);
        }
        Ok(came)
    }

    fn evaluate(&self) -> (Vec<Summary>, Vec<Pair>) {
        let seed = self.args.seed;
        (study::cells(&self.samples, seed), study::pairs(&self.samples, seed))
    }

    fn report(&self, (summaries, pairs): &(Vec<Summary>, Vec<Pair>), ended: SeriesEnd) -> String {
        report::page(&self.about, &self.samples, summaries, pairs, Some(self.end(ended)))
    }

    fn chart(&self, (summaries, _): &(Vec<Summary>, Vec<Pair>)) -> String {
        chart::picture(&self.about, summaries)
    }

    fn conclude(
        &self,
        (summaries, pairs): &(Vec<Summary>, Vec<Pair>),
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        summaries.iter().try_for_each(|one| recorder.write(&OversubLine::Cell(one)))?;
        pairs.iter().try_for_each(|one| recorder.write(&OversubLine::Pair(one)))?;
        for one in study::sharing(pairs, self.args.seed) {
            let name = |pair: &Pair| pair.first.to_string();
            let (shared, partitioned) = (name(one.shared), name(one.partitioned));
            recorder.write(&OversubLine::Sharing(SharingLine {
                shared,
                partitioned,
                gain: one.gain.as_ref(),
            }))?;
        }
        recorder.write(&OversubLine::End(self.end(ended)))
    }
}

/// Returns the order of a round.
fn order(steps: &[OversubStep], seed: u64, round: u32) -> Vec<usize> {
    let seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
    let mut groups: BTreeMap<Vec<(Program, Runtime)>, Vec<usize>> = BTreeMap::new();
    for at in shuffled(steps.len(), seed) {
        groups.entry(steps.get(at).map(OversubStep::group).unwrap_or_default()).or_default().push(at);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    shuffled(groups.len(), seed.wrapping_add(1))
        .into_iter()
        .flat_map(|at| groups.get(at).cloned().unwrap_or_default())
        .collect()
}

/// Measures the effect of `sched_yield` on this machine. A trial disturbed by other load gives no
/// result.
fn measured_yield(cpus: &CpuSet) -> Yield {
    let mut tries = (0..YIELD_TRIALS_MAX).map(|_| trimtab_hold::facts::measured_yield(cpus));
    tries.find(|came| *came != Yield::Unknown).unwrap_or_default()
}

/// Returns why recorded samples and new ones are not comparable, or `None`.
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

/// Measures the steps of work per second on this machine.
fn calibrate(tools: &OversubTools) -> Result<u64> {
    let program = tools.calibrator();
    let output = Command::new(&program)
        .arg("--calibrate")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    report["rate"].as_u64().filter(|rate| *rate > 0).with_context(|| {
        format!(
            "{} --calibrate reports no rate; {}",
            program.display(),
            progress::quoted(&String::from_utf8_lossy(&output.stderr))
        )
    })
}
