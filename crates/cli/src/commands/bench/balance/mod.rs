//! `trimtab bench balance`: equal threads on too few cores, balanced and waiting in every way there is.
//!
//! Rounds of all cells, each round in another random order, so that whatever else happens strikes all; the order follows from
//! the seed. A run is one sample. The benchmark and all it starts are confined to one CPU of each core that it may use: cells are
//! compared on equal cores, and what trimtab would choose is not the question here. Every run is recorded at once; a record
//! can be gone on with. [`scenarios`] says what is run, `trimtab_core::yardstick` what it is worth.

mod lines;
mod page;
mod rival;
mod scenarios;

use super::programs::{self, Ran};
use super::record::Recorder;
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
use indicatif::ProgressBar;
use lines::{Before, CellLine, End, Line, RunLine, Start, key, read_run};
use rival::Running;
use scenarios::{Cell, HOG, OPENMP, Scope, THREADS, cells};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{Comparison, Estimate, shuffled};
use trimtab_core::topology::draw;
use trimtab_core::yardstick::{Judged, Ratios};
use trimtab_linux::sys::affinity;

/// A failure may pass; one that came so often in one cell will come again.
const FAILURES_MAX: usize = 2;

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

/// What the runs came to so far, cell by cell.
#[derive(Debug, Default)]
struct Harvest {
    ratios: Vec<Ratios>,
    failures: BTreeMap<usize, usize>,
    end: End,
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
    let mut bench = Bench::prepare(args, place, cells).map_err(failed)?;
    if left_out > 0 {
        say::warning(
            Volume::Normal,
            &format!("this trimtab has no run --balance: the {left_out} cases that need it are left out"),
        );
    }
    let mut harvest = Harvest { ratios: vec![Ratios::default(); bench.cells.len()], ..Harvest::default() };
    let measured = bench.measure(&mut harvest);
    harvest.end.complete = measured.is_ok() && bench.interrupt.came().is_none();
    // Whatever happened: what is known is written.
    let shown = bench.finish(&harvest);
    measured.and(shown).map_err(failed)?;
    if !harvest.failures.is_empty() {
        let names: Vec<String> =
            harvest.failures.keys().filter_map(|&at| Some(bench.cells.get(at)?.to_string())).collect();
        return Err(failed(anyhow!(
            "not everything could be measured: {} failed, see above",
            names.join(", ")
        )));
    }
    // As a shell says it of what a signal ended.
    Ok(bench.interrupt.came().map_or(exit::DONE, |signal| u8::try_from(128 + signal).unwrap_or(exit::FAILED)))
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
    machine: String,
    summary: String,
    warnings: Vec<String>,
}

impl Place {
    fn find(world: &World) -> Result<Self> {
        let situation = Situation::live(world, false)?;
        let (machine, allowed) = (&situation.machine, &situation.taken.allowed);
        let first = |cpus: CpuSet| cpus.intersection(allowed).iter().next();
        let cpus: CpuSet =
            machine.cores().iter().filter_map(|core| first(machine.cpus_of(&core.pus))).collect();
        Ok(Self {
            cpus,
            machine: machine.name().to_owned(),
            summary: draw::summary(machine),
            warnings: situation.warnings,
        })
    }
}

struct Bench<'a> {
    args: &'a BenchBalanceArgs,
    trimtab: PathBuf,
    folder: PathBuf,
    last: OsCpu,
    cells: Vec<Cell>,
    start: Start,
    /// What a record that is gone on with holds.
    before: BTreeMap<(u32, String), serde_json::Value>,
    interrupt: Interrupt,
    recorder: Recorder,
}

impl<'a> Bench<'a> {
    fn prepare(args: &'a BenchBalanceArgs, place: Place, cells: Vec<Cell>) -> Result<Self> {
        let trimtab = std::env::current_exe().context("cannot find trimtab itself")?;
        let folder = programs::folder(args.programs.as_deref(), &trimtab, &[THREADS, OPENMP, HOG])?;
        for warning in &place.warnings {
            say::warning(Volume::Normal, warning);
        }
        let last = place.cpus.iter().last().context("there is no CPU to measure on")?;
        affinity::set(None, &place.cpus)
            .with_context(|| format!("cannot confine the benchmark to CPUs {}", place.cpus))?;
        let interrupt = Interrupt::listen()?;
        let before = match (&args.json, args.resume) {
            (Some(file), true) if file.as_os_str() == "-" => {
                bail!("--resume needs a file with --json, and - is none")
            }
            (Some(file), true) => Some(Before::read(file)?),
            _ => None,
        };
        let mut start = Start {
            bench: "balance".to_owned(),
            trimtab: env!("CARGO_PKG_VERSION").to_owned(),
            machine: place.machine,
            summary: place.summary,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
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
            None => calibrate(&folder, &interrupt)?,
        };
        if let Some(file) = &args.table {
            // Found out now, not after the first round.
            std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
        }
        let recorder = match &args.json {
            Some(file) if before.is_some() => Recorder::resume(file)?,
            file => Recorder::open(file.as_deref())?,
        };
        let before = before.map(|before| before.reports).unwrap_or_default();
        Ok(Self { args, trimtab, folder, last, cells, start, before, interrupt, recorder })
    }

    /// Runs everything, as long as no signal comes.
    fn measure(&mut self, harvest: &mut Harvest) -> Result<()> {
        self.recorder.write(&Line::Start(&self.start))?;
        let bar = progress::bar(self.cells.len() * self.args.repeats as usize);
        let measured = self.rounds(harvest, &bar);
        bar.finish_and_clear();
        measured
    }

    fn rounds(&mut self, harvest: &mut Harvest, bar: &ProgressBar) -> Result<()> {
        for round in 1..=self.args.repeats {
            let seed = self.args.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
            for at in shuffled(self.cells.len(), seed) {
                let name = self.cells.get(at).map(ToString::to_string).unwrap_or_default();
                bar.set_message(format!("round {round}/{}: {name}", self.args.repeats));
                if !self.one(harvest, at, round, bar)? {
                    return Ok(());
                }
                bar.inc(1);
            }
            self.write_table(harvest)?;
        }
        Ok(())
    }

    /// One run; false when a signal came.
    fn one(&mut self, harvest: &mut Harvest, at: usize, round: u32, bar: &ProgressBar) -> Result<bool> {
        let (Some(cell), Some(ratios)) = (self.cells.get(at), harvest.ratios.get_mut(at)) else {
            return Ok(true);
        };
        let (cores, rivals) = (self.start.cores, cell.rivals());
        if let Some(run) =
            self.before.get(&key(round, cell)).and_then(|report| read_run(report, cores, rivals))
        {
            harvest.end.runs += 1;
            harvest.end.clean += usize::from(run.is_clean());
            ratios.add(&run);
            return Ok(true);
        }
        if harvest.failures.get(&at).is_some_and(|times| *times >= FAILURES_MAX) {
            return Ok(true);
        }
        let rival = cell.rival(&self.folder, self.last).map(|words| Running::start(&words)).transpose()?;
        let words = cell.command(
            &self.trimtab,
            &self.folder,
            cores,
            self.start.rate,
            rival.as_ref().map(Running::pid),
        );
        let ran = programs::run(&words, &cell.variables(), &|report| cell.fault(report), &self.interrupt);
        drop(rival);
        let (report, error, stderr) = match ran {
            Ran::Stopped => return Ok(false),
            Ran::Well { report, stderr } => (Some(report), None, stderr),
            Ran::Badly { error, stderr } => (None, Some(error), stderr),
        };
        let run = report.as_ref().and_then(|report| read_run(report, cores, rivals));
        harvest.end.runs += 1;
        harvest.end.clean += usize::from(run.as_ref().is_some_and(trimtab_core::yardstick::Run::is_clean));
        if let Some(run) = &run {
            ratios.add(run);
        }
        if let Some(error) = &error {
            harvest.end.failed += 1;
            let times = harvest.failures.entry(at).or_default();
            *times += 1;
            if *times == 1 {
                let failure = format!("{cell}: {error}; {}", progress::quoted(&stderr));
                bar.suspend(|| say::warning(Volume::Normal, &failure));
            }
        }
        self.recorder.write(&Line::Run(Box::new(RunLine {
            cell: cell.to_string(),
            round,
            rivals,
            ratio: run.as_ref().and_then(trimtab_core::yardstick::Run::ratio),
            noise: run.as_ref().and_then(trimtab_core::yardstick::Run::noise),
            clean: run.as_ref().is_some_and(trimtab_core::yardstick::Run::is_clean),
            command: lines::words(&words),
            report: report.as_ref(),
            error: error.as_deref(),
            stderr: &stderr,
        })))?;
        Ok(self.interrupt.came().is_none())
    }

    fn write_table(&self, harvest: &Harvest) -> Result<()> {
        let Some(file) = &self.args.table else { return Ok(()) };
        let measured = evaluate(&self.cells, harvest, self.args.seed);
        let page = page::page(&self.start, &measured, harvest.end);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Results into the record, the table's file and to the user: each is tried, whatever comes of the others.
    fn finish(&mut self, harvest: &Harvest) -> Result<()> {
        let tabled = self.write_table(harvest);
        let measured = evaluate(&self.cells, harvest, self.args.seed);
        let to_stdout = self.args.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
        let printed =
            if to_stdout { Ok(()) } else { print(&page::page(&self.start, &measured, harvest.end)) };
        let results: Vec<Line<'_>> = measured
            .iter()
            .map(|item| {
                Line::Result(CellLine {
                    cell: item.cell.to_string(),
                    clean: &item.ratios.clean,
                    noisy: &item.ratios.noisy,
                    estimate: item.estimate,
                    spread: item.spread,
                    against_kernel: item.against,
                    goals: item.goals.clone(),
                })
            })
            .chain([Line::End(harvest.end)])
            .collect();
        let recorded = results.iter().try_for_each(|line| self.recorder.write(line));
        recorded.and(tabled).and(printed.map_err(Into::into))
    }
}

/// What the runs so far come to.
fn evaluate<'h>(cells: &'h [Cell], harvest: &'h Harvest, seed: u64) -> Vec<Measured<'h>> {
    let both: Vec<(&Cell, &Ratios)> = cells.iter().zip(&harvest.ratios).collect();
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
