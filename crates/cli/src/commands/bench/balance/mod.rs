//! `trimtab bench balance`: equal threads on too few cores, balanced and waiting in every way there is.
//!
//! Rounds of all cells, each round in another random order, so that whatever else happens strikes all; the order follows from
//! the seed. A run is one sample. The benchmark and all it starts are confined to one CPU of each core that it may use: cells are
//! compared on equal cores, and what trimtab would choose is not the question here. Every run is recorded at once; a record
//! can be gone on with. [`scenarios`] says what is run, `trimtab_core::ideal_ratio` what it is worth.

mod lines;
mod page;
mod rival;
mod scenarios;

use super::programs::{self, Ran};
use super::series::{self, Came, Ended, Outlet, Rounds, Series};
use crate::args::{BenchBalanceArgs, Cli};
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::commands::progress;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use clap::CommandFactory;
use lines::{Before, CellLine, End, Line, RunLine, Start, key, read_run};
use rival::Running;
use scenarios::{Cell, HOG, OPENMP, Scope, THREADS, cells};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ideal_ratio::{Judged, Ratios, Run};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{Comparison, Estimate};
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
/// [`exit::FAILED`] when the programs are not there, one of them failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchBalanceArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let place = Place::find(world).map_err(failed)?;
    let scope = Scope { cores: place.cpus.len(), quick: args.quick, only: &args.only, balances: balances() };
    let cells = cells(scope);
    if cells.is_empty() {
        return Err(failed(anyhow!(
            "no case is named like {}: trimtab bench balance --list shows all",
            args.only.join(" or ")
        )));
    }
    if args.list {
        let names: Vec<String> = cells.iter().map(ToString::to_string).collect();
        print(&names.join("\n")).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    let left_out = scenarios::cells(Scope { balances: true, ..scope }).len() - cells.len();
    if left_out > 0 {
        say::warning(
            Volume::Normal,
            &format!("this trimtab has no run --balance: the {left_out} cases that need it are left out"),
        );
    }
    let interrupt = Interrupt::listen().map_err(failed)?;
    let mut bench = Bench::prepare(args, place, cells, &interrupt).map_err(failed)?;
    series::measure(&mut bench, &interrupt)
}

/// Whether this trimtab's `run` can balance.
fn balances() -> bool {
    let command = Cli::command();
    let run = command.find_subcommand("run");
    run.is_some_and(|run| run.get_arguments().any(|argument| argument.get_long() == Some("balance")))
}

/// Where it is measured.
struct Place {
    /// One CPU of each core that may be used.
    cpus: CpuSet,
    situation: Situation,
}

impl Place {
    fn find(world: &World) -> Result<Self> {
        let situation = Situation::live(world, false)?;
        Ok(Self { cpus: series::one_of_each_core(&situation), situation })
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
    outlet: Outlet,
    ratios: Vec<Ratios>,
    clean: usize,
}

impl<'a> Bench<'a> {
    fn prepare(
        args: &'a BenchBalanceArgs,
        place: Place,
        cells: Vec<Cell>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (trimtab, folder) = series::programs(args.programs.as_deref(), &[THREADS, OPENMP, HOG])?;
        let last = place.cpus.iter().last().context("there is no CPU to measure on")?;
        affinity::set(None, &place.cpus)
            .with_context(|| format!("cannot confine the benchmark to CPUs {}", place.cpus))?;
        let before = match (&args.json, args.resume) {
            (Some(file), true) if file.as_os_str() == "-" => {
                bail!("--resume needs a file with --json, and - is none")
            }
            (Some(file), true) => Some(Before::read(file)?),
            _ => None,
        };
        let mut start = Start {
            head: series::head("balance", &place.situation),
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
        let outlet = match &args.json {
            Some(file) if before.is_some() => Outlet::resume(file, None)?,
            file => Outlet::open(file.as_deref(), None)?,
        };
        let before = before.map(|before| before.reports).unwrap_or_default();
        let ratios = vec![Ratios::default(); cells.len()];
        let rounds = Rounds::of(&cells, args.repeats, args.seed);
        Ok(Self { args, trimtab, folder, last, cells, rounds, start, before, outlet, ratios, clean: 0 })
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
        let page = page::page(&self.start, &measured, end);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Series for Bench<'_> {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&mut self) -> Result<()> {
        self.outlet.recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, interrupt: &Interrupt) -> Result<Came> {
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
        self.outlet.recorder.write(&Line::Run(Box::new(RunLine {
            cell: cell.to_string(),
            round,
            rivals,
            ratio: run.as_ref().and_then(Run::ratio),
            noise: run.as_ref().and_then(Run::noise),
            clean: run.as_ref().is_some_and(Run::is_clean),
            command: lines::words(&words),
            report: report.as_ref(),
            error: error.as_deref(),
            stderr: &stderr,
        })))?;
        Ok(error.map_or(Came::Well, |error| Came::Badly { error, stderr }))
    }

    fn round_is_over(&mut self, so_far: Ended) -> Result<()> {
        self.write_table(self.end(so_far))
    }

    fn finish(&mut self, ended: Ended) -> Result<()> {
        let end = self.end(ended);
        let tabled = self.write_table(end);
        let measured = evaluate(&self.cells, &self.ratios, self.args.seed);
        let shown = self.outlet.show(|| page::page(&self.start, &measured, end), String::new);
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
        let recorder = &mut self.outlet.recorder;
        let recorded = results.chain([Line::End(end)]).try_for_each(|line| recorder.write(&line));
        recorded.and(tabled).and(shown)
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
