//! `trimtab bench balance`: equal threads on too few cores, under every balancer and wait mode.
//!
//! Each round runs all cells in another random order, so that other load on the machine affects all
//! cells; the order follows from the seed. A run is one sample. The benchmark and its programs are
//! confined to one CPU of each core that it may use: cells are compared on equal cores, and
//! trimtab's choice of cores is not tested here. Every run is recorded at once, and a record can be
//! continued. [`mod@matrix`] defines the runs, `trimtab_core::ideal_ratio` evaluates them.

mod matrix;
mod records;
mod report;
mod rival;

use super::harness::programs::{self, ProgramOutcome};
use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::BenchBalanceArgs;
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
use matrix::{BalanceCell, BalanceScope, HOG, OPENMP, THREADS, cells};
use records::{
    BalanceCellLine, BalanceEnd, BalanceLine, BalanceRecord, BalanceRunLine, BalanceStart, key, read_run,
};
use rival::RunningCompetitor;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ideal_ratio::{Judged, MeasuredRun, Ratios};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{Comparison, Estimate};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_linux::sys::affinity;

/// A cell with the evaluation of its runs.
#[derive(Debug)]
struct BalanceResult<'a> {
    cell: &'a BalanceCell,
    ratios: &'a Ratios,
    estimate: Option<Estimate>,
    spread: Option<f64>,
    against: Option<Comparison>,
    goals: Vec<Judged>,
}

/// Runs the benchmark and shows the results.
///
/// # Errors
/// The programs are missing, one of them failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchBalanceArgs) -> Result<u8> {
    let place = BalancePlace::find(world)?;
    let cells = cells(BalanceScope { cores: place.cpus.len(), quick: args.quick, only: &args.only });
    if cells.is_empty() {
        return Err(harness::no_such_case("balance", &args.only));
    }
    if args.list {
        return harness::list(cells.iter().map(ToString::to_string), &[]);
    }
    harness::measure(|interrupt| BalanceBench::prepare(args, place, cells, interrupt))
}

/// The measured machine and CPUs.
struct BalancePlace {
    /// One CPU of each core that may be used.
    cpus: CpuSet,
    usable: Usable,
}

impl BalancePlace {
    fn find(world: &World) -> Result<Self> {
        let usable = Usable::live(world, false)?;
        Ok(Self { cpus: harness::one_of_each_core(&usable), usable })
    }
}

struct BalanceBench<'a> {
    args: &'a BenchBalanceArgs,
    trimtab: PathBuf,
    folder: PathBuf,
    last: OsCpu,
    cells: Vec<BalanceCell>,
    rounds: Rounds,
    start: BalanceStart,
    /// Reports of the record that is continued, by round and cell.
    before: BTreeMap<(u32, String), serde_json::Value>,
    ratios: Vec<Ratios>,
    clean: usize,
}

impl<'a> BalanceBench<'a> {
    fn prepare(
        args: &'a BenchBalanceArgs,
        place: BalancePlace,
        cells: Vec<BalanceCell>,
        interrupt: &Interrupt,
    ) -> Result<(Self, Outlet)> {
        let (trimtab, folder) = harness::programs(args.programs.as_deref(), &[THREADS, OPENMP, HOG])?;
        let last = place.cpus.iter().last().context("there is no CPU to measure on")?;
        affinity::set(None, &place.cpus)
            .with_context(|| format!("cannot confine the benchmark to CPUs {}", place.cpus))?;
        let before =
            harness::resumed(args.json.as_deref(), args.resume)?.map(BalanceRecord::read).transpose()?;
        let mut start = BalanceStart {
            head: harness::head("balance", &place.usable),
            cpus: place.cpus.to_string(),
            cores: place.cpus.len(),
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            rate: 0,
            programs: folder.display().to_string(),
        };
        // The work is equal in all rounds, including those of a continued record.
        start.rate = match &before {
            Some(before) => {
                if let Some(why) = before.differs(&start) {
                    bail!("cannot continue {}: {why}", args.json.clone().unwrap_or_default().display());
                }
                before.start.rate
            }
            None => calibrate(&folder, interrupt)?,
        };
        if let Some(file) = &args.table {
            // A path that cannot be written fails now, not after the first round.
            std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
        }
        let outlet = Outlet::open(args.json.as_deref(), None, before.is_some())?;
        let before = before.map(|before| before.reports).unwrap_or_default();
        let ratios = vec![Ratios::default(); cells.len()];
        let rounds = Rounds::of(&cells, args.repeats, args.seed);
        Ok((Self { args, trimtab, folder, last, cells, rounds, start, before, ratios, clean: 0 }, outlet))
    }

    fn take(&mut self, at: usize, run: &MeasuredRun) {
        self.clean += usize::from(run.is_clean());
        if let Some(ratios) = self.ratios.get_mut(at) {
            ratios.add(run);
        }
    }

    fn end(&self, SeriesEnd { complete, runs, failed }: SeriesEnd) -> BalanceEnd {
        BalanceEnd { complete, runs, failed, clean: self.clean }
    }

    fn write_table(&self, end: BalanceEnd) -> Result<()> {
        let Some(file) = &self.args.table else { return Ok(()) };
        let measured = evaluate(&self.cells, &self.ratios, self.args.seed);
        let page = report::page(&self.start, &measured, end);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Benchmark for BalanceBench<'_> {
    type Findings<'f>
        = Vec<BalanceResult<'f>>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&BalanceLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some(cell) = self.cells.get(at).cloned() else { return Ok(RunOutcome::Well) };
        let (cores, rivals) = (self.start.cores, cell.rivals());
        if let Some(run) =
            self.before.get(&key(round, &cell)).and_then(|report| read_run(report, cores, rivals))
        {
            self.take(at, &run);
            return Ok(RunOutcome::Well);
        }
        let rival =
            cell.rival(&self.folder, self.last).map(|words| RunningCompetitor::start(&words)).transpose()?;
        let words = cell.command(
            &self.trimtab,
            &self.folder,
            cores,
            self.start.rate,
            rival.as_ref().map(RunningCompetitor::pid),
        );
        let ran = programs::run(&words, &cell.variables(), &|report| cell.fault(report), interrupt);
        drop(rival);
        let (report, error, stderr) = match ran {
            ProgramOutcome::Stopped => return Ok(RunOutcome::Stopped),
            ProgramOutcome::Well { report, stderr } => (Some(report), None, stderr),
            ProgramOutcome::Badly { error, stderr } => (None, Some(error), stderr),
        };
        let run = report.as_ref().and_then(|report| read_run(report, cores, rivals));
        if let Some(run) = &run {
            self.take(at, run);
        }
        recorder.write(&BalanceLine::Run(Box::new(BalanceRunLine {
            cell: cell.to_string(),
            round,
            rivals,
            ratio: run.as_ref().and_then(MeasuredRun::ratio),
            noise: run.as_ref().and_then(MeasuredRun::noise),
            clean: run.as_ref().is_some_and(MeasuredRun::is_clean),
            command: harness::words(&words),
            report: report.as_ref(),
            error: error.as_deref(),
            stderr: &stderr,
        })))?;
        Ok(error.map_or(RunOutcome::Well, |error| RunOutcome::Badly { error, stderr }))
    }

    fn round_is_over(&self, so_far: SeriesEnd) -> Result<()> {
        self.write_table(self.end(so_far))
    }

    fn evaluate(&self) -> Vec<BalanceResult<'_>> {
        evaluate(&self.cells, &self.ratios, self.args.seed)
    }

    fn report(&self, measured: &Vec<BalanceResult<'_>>, ended: SeriesEnd) -> String {
        report::page(&self.start, measured, self.end(ended))
    }

    fn conclude(
        &self,
        measured: &Vec<BalanceResult<'_>>,
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        let results = measured.iter().map(|item| {
            BalanceLine::Result(BalanceCellLine {
                cell: item.cell.to_string(),
                clean: &item.ratios.clean,
                noisy: &item.ratios.noisy,
                estimate: item.estimate,
                spread: item.spread,
                against_kernel: item.against,
                goals: item.goals.clone(),
            })
        });
        results.chain([BalanceLine::End(self.end(ended))]).try_for_each(|line| recorder.write(&line))
    }
}

/// Evaluates the runs so far.
fn evaluate<'h>(cells: &'h [BalanceCell], ratios: &'h [Ratios], seed: u64) -> Vec<BalanceResult<'h>> {
    let both: Vec<(&BalanceCell, &Ratios)> = cells.iter().zip(ratios).collect();
    let find = |wanted: &dyn Fn(&BalanceCell) -> bool| {
        both.iter().find(|(cell, _)| wanted(cell)).map(|(_, ratios)| *ratios)
    };
    let measure = |&(cell, ratios): &(&'h BalanceCell, &'h Ratios)| {
        let kernel = find(&|other| other.is_baseline_of(cell));
        let spinning = find(&|other| other.is_spinning_of(cell));
        BalanceResult {
            cell,
            ratios,
            estimate: ratios.estimate(seed),
            spread: ratios.spread(),
            against: kernel
                .filter(|_| !cell.is_baseline_of(cell))
                .and_then(|kernel| ratios.against(kernel, seed)),
            goals: cell.goals.iter().map(|&goal| ratios.judge(goal, kernel, spinning)).collect(),
        }
    };
    both.iter().map(measure).collect()
}

/// Measures the steps of work per second on this machine.
fn calibrate(folder: &std::path::Path, interrupt: &Interrupt) -> Result<u64> {
    let words: [std::ffi::OsString; 2] = [folder.join(THREADS).into(), "--calibrate".into()];
    // The calibration computes nothing, so its report verifies nothing.
    let output = std::process::Command::new(&words[0])
        .args(&words[1..])
        .output()
        .with_context(|| format!("cannot start {}", folder.join(THREADS).display()))?;
    if interrupt.came().is_some() {
        bail!("stopped before anything was measured");
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    report["rate"].as_u64().filter(|rate| *rate > 0).with_context(|| {
        format!(
            "{THREADS} --calibrate reports no rate; {}",
            progress::quoted(&String::from_utf8_lossy(&output.stderr))
        )
    })
}
