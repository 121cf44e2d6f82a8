//! `trimtab bench balance`: equal threads on too few cores, balanced and waiting in every way there is.
//!
//! Rounds of all cells, each round in another random order, so that whatever else happens strikes all; the order follows from
//! the seed. A run is one sample. The benchmark and all it starts are confined to one CPU of each core that it may use: cells are
//! compared on equal cores, and what trimtab would choose is not the question here. Every run is recorded at once; a record
//! can be gone on with. [`mod@matrix`] says what is run, `trimtab_core::ideal_ratio` what it is worth.

mod matrix;
mod records;
mod report;
mod rival;

use super::harness::programs::{self, Ran};
use super::harness::{self, Came, Ended, Outlet, Recorder, Rounds, Series};
use crate::args::BenchBalanceArgs;
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
use matrix::{Cell, HOG, OPENMP, Scope, THREADS, cells};
use records::{Before, CellLine, End, Line, RunLine, Start, key, read_run};
use rival::Running;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ideal_ratio::{Judged, Ratios, Run};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{Comparison, Estimate};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_linux::sys::affinity;

/// A cell with all that its runs came to.
#[derive(Debug)]
struct Measured<'a> {
    cell: &'a Cell,
    ratios: &'a Ratios,
    estimate: Option<Estimate>,
    spread: Option<f64>,
    against: Option<Comparison>,
    goals: Vec<Judged>,
}

/// Measures, and shows.
///
/// # Errors
/// The programs are not there, one of them failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchBalanceArgs) -> Result<u8> {
    let place = Place::find(world)?;
    let cells = cells(Scope { cores: place.cpus.len(), quick: args.quick, only: &args.only });
    if cells.is_empty() {
        return Err(harness::no_such_case("balance", &args.only));
    }
    if args.list {
        return harness::list(cells.iter().map(ToString::to_string), &[]);
    }
    harness::measure(|interrupt| Bench::prepare(args, place, cells, interrupt))
}

/// Where it is measured.
struct Place {
    /// One CPU of each core that may be used.
    cpus: CpuSet,
    usable: Usable,
}

impl Place {
    fn find(world: &World) -> Result<Self> {
        let usable = Usable::live(world, false)?;
        Ok(Self { cpus: harness::one_of_each_core(&usable), usable })
    }
}

struct Bench<'a> {
    args: &'a BenchBalanceArgs,
    trimtab: PathBuf,
    folder: PathBuf,
    last: OsCpu,
    cells: Vec<Cell>,
    rounds: Rounds,
    start: Start,
    /// What a record that is gone on with holds.
    before: BTreeMap<(u32, String), serde_json::Value>,
    ratios: Vec<Ratios>,
    clean: usize,
}

impl<'a> Bench<'a> {
    fn prepare(
        args: &'a BenchBalanceArgs,
        place: Place,
        cells: Vec<Cell>,
        interrupt: &Interrupt,
    ) -> Result<(Self, Outlet)> {
        let (trimtab, folder) = harness::programs(args.programs.as_deref(), &[THREADS, OPENMP, HOG])?;
        let last = place.cpus.iter().last().context("there is no CPU to measure on")?;
        affinity::set(None, &place.cpus)
            .with_context(|| format!("cannot confine the benchmark to CPUs {}", place.cpus))?;
        let before = harness::resumed(args.json.as_deref(), args.resume)?.map(Before::read).transpose()?;
        let mut start = Start {
            head: harness::head("balance", &place.usable),
            cpus: place.cpus.to_string(),
            cores: place.cpus.len(),
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            rate: 0,
            programs: folder.display().to_string(),
        };
        // The same work in all rounds, whoever runs them.
        start.rate = match &before {
            Some(before) => {
                if let Some(why) = before.differs(&start) {
                    bail!("cannot go on with {}: {why}", args.json.clone().unwrap_or_default().display());
                }
                before.start.rate
            }
            None => calibrate(&folder, interrupt)?,
        };
        if let Some(file) = &args.table {
            // Found out now, not after the first round.
            std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
        }
        let outlet = Outlet::open(args.json.as_deref(), None, before.is_some())?;
        let before = before.map(|before| before.reports).unwrap_or_default();
        let ratios = vec![Ratios::default(); cells.len()];
        let rounds = Rounds::of(&cells, args.repeats, args.seed);
        Ok((Self { args, trimtab, folder, last, cells, rounds, start, before, ratios, clean: 0 }, outlet))
    }

    fn take(&mut self, at: usize, run: &Run) {
        self.clean += usize::from(run.is_clean());
        if let Some(ratios) = self.ratios.get_mut(at) {
            ratios.add(run);
        }
    }

    fn end(&self, Ended { complete, runs, failed }: Ended) -> End {
        End { complete, runs, failed, clean: self.clean }
    }

    fn write_table(&self, end: End) -> Result<()> {
        let Some(file) = &self.args.table else { return Ok(()) };
        let measured = evaluate(&self.cells, &self.ratios, self.args.seed);
        let page = report::page(&self.start, &measured, end);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Series for Bench<'_> {
    type Findings<'f>
        = Vec<Measured<'f>>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, recorder: &mut Recorder, interrupt: &Interrupt) -> Result<Came> {
        let Some(cell) = self.cells.get(at).cloned() else { return Ok(Came::Well) };
        let (cores, rivals) = (self.start.cores, cell.rivals());
        if let Some(run) =
            self.before.get(&key(round, &cell)).and_then(|report| read_run(report, cores, rivals))
        {
            self.take(at, &run);
            return Ok(Came::Well);
        }
        let rival = cell.rival(&self.folder, self.last).map(|words| Running::start(&words)).transpose()?;
        let words = cell.command(
            &self.trimtab,
            &self.folder,
            cores,
            self.start.rate,
            rival.as_ref().map(Running::pid),
        );
        let ran = programs::run(&words, &cell.variables(), &|report| cell.fault(report), interrupt);
        drop(rival);
        let (report, error, stderr) = match ran {
            Ran::Stopped => return Ok(Came::Stopped),
            Ran::Well { report, stderr } => (Some(report), None, stderr),
            Ran::Badly { error, stderr } => (None, Some(error), stderr),
        };
        let run = report.as_ref().and_then(|report| read_run(report, cores, rivals));
        if let Some(run) = &run {
            self.take(at, run);
        }
        recorder.write(&Line::Run(Box::new(RunLine {
            cell: cell.to_string(),
            round,
            rivals,
            ratio: run.as_ref().and_then(Run::ratio),
            noise: run.as_ref().and_then(Run::noise),
            clean: run.as_ref().is_some_and(Run::is_clean),
            command: harness::words(&words),
            report: report.as_ref(),
            error: error.as_deref(),
            stderr: &stderr,
        })))?;
        Ok(error.map_or(Came::Well, |error| Came::Badly { error, stderr }))
    }

    fn round_is_over(&self, so_far: Ended) -> Result<()> {
        self.write_table(self.end(so_far))
    }

    fn evaluate(&self) -> Vec<Measured<'_>> {
        evaluate(&self.cells, &self.ratios, self.args.seed)
    }

    fn report(&self, measured: &Vec<Measured<'_>>, ended: Ended) -> String {
        report::page(&self.start, measured, self.end(ended))
    }

    fn conclude(&self, measured: &Vec<Measured<'_>>, ended: Ended, recorder: &mut Recorder) -> Result<()> {
        let results = measured.iter().map(|item| {
            Line::Result(CellLine {
                cell: item.cell.to_string(),
                clean: &item.ratios.clean,
                noisy: &item.ratios.noisy,
                estimate: item.estimate,
                spread: item.spread,
                against_kernel: item.against,
                goals: item.goals.clone(),
            })
        });
        results.chain([Line::End(self.end(ended))]).try_for_each(|line| recorder.write(&line))
    }
}

/// What the runs so far come to.
fn evaluate<'h>(cells: &'h [Cell], ratios: &'h [Ratios], seed: u64) -> Vec<Measured<'h>> {
    let both: Vec<(&Cell, &Ratios)> = cells.iter().zip(ratios).collect();
    let find = |wanted: &dyn Fn(&Cell) -> bool| {
        both.iter().find(|(cell, _)| wanted(cell)).map(|(_, ratios)| *ratios)
    };
    let measure = |&(cell, ratios): &(&'h Cell, &'h Ratios)| {
        let kernel = find(&|other| other.is_baseline_of(cell));
        let spinning = find(&|other| other.is_spinning_of(cell));
        Measured {
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

/// Steps of work a second on this machine.
fn calibrate(folder: &std::path::Path, interrupt: &Interrupt) -> Result<u64> {
    let words: [std::ffi::OsString; 2] = [folder.join(THREADS).into(), "--calibrate".into()];
    // Its report verifies nothing, since there was nothing to compute.
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
            "{THREADS} --calibrate does not say a rate; {}",
            progress::quoted(&String::from_utf8_lossy(&output.stderr))
        )
    })
}
