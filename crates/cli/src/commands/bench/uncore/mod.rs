//! `trimtab bench uncore`: what far memory, crowded caches and shared lines cost, and which index of hardware shows it.
//!
//! Rounds of all cases in both ways, each round in another random order that follows from the seed, so that whatever else happens
//! strikes all. A run is one sample. [`cases`] says what is run, [`window`] runs and counts it, `trimtab_core::contrast` says what
//! an index is worth, [`page`] and [`chart`] show it.

mod cases;
mod chart;
mod lines;
mod page;
mod window;

use super::programs;
use super::record::Recorder;
use crate::args::UncoreArgs;
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::commands::progress;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::world::World;
use anyhow::{Context, Result, anyhow};
use cases::{Case, PROGRAM, Plan, Scope};
use indicatif::ProgressBar;
use lines::{End, Line, Named, ResultLine, RunLine, Start, WorthLine};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use trimtab_core::contrast::{Contrast, Worth, worth};
use trimtab_core::counts::Rung;
use trimtab_core::penalty::Index;
use trimtab_core::stats::shuffled;
use trimtab_core::topology::draw;
use trimtab_linux::perf::{self, Choice, Standing};
use window::{Measured, Ran};

/// How long a window lasts, in seconds. Chosen: some tenthousand of the dearest accesses, and a measurement of ten minutes.
const WINDOW: f64 = 0.1;
const QUICK_WINDOW: f64 = 0.04;
/// A failure may pass; one that came so often in one case will come again.
const FAILURES_MAX: usize = 2;

/// What the runs came to so far, case by case.
#[derive(Debug, Default)]
struct Harvest {
    contrasts: Vec<Contrast>,
    failures: BTreeMap<usize, usize>,
    end: End,
}

/// Measures, and shows.
///
/// # Errors
/// [`exit::FAILED`] when the program is not there, a run of it failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &UncoreArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    if let Some(file) = &args.from {
        return again(args, file).map_err(failed);
    }
    let situation = Situation::live(world, false).map_err(failed)?;
    let scope = Scope { quick: args.quick, only: &args.only, threads: args.threads as usize };
    let plan = cases::plan(&situation.machine, &situation.taken.allowed, scope);
    if args.list {
        print(&listing(&plan)).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    if plan.cases.is_empty() {
        return Err(failed(anyhow!("there is nothing to measure here: {}", plan.left_out.join("; "))));
    }
    let mut bench = Bench::prepare(world, args, &situation, plan).map_err(failed)?;
    let mut harvest =
        Harvest { contrasts: vec![Contrast::default(); bench.cases.len()], ..Harvest::default() };
    let measured = bench.measure(&mut harvest);
    harvest.end.complete = measured.is_ok() && bench.interrupt.came().is_none();
    // Whatever happened: what is known is written.
    let shown = bench.finish(&harvest);
    measured.and(shown).map_err(failed)?;
    if !harvest.failures.is_empty() {
        let names: Vec<String> =
            harvest.failures.keys().filter_map(|&at| Some(bench.cases.get(at)?.to_string())).collect();
        return Err(failed(anyhow!(
            "not everything could be measured: {} failed, see above",
            names.join(", ")
        )));
    }
    // As a shell says it of what a signal ended.
    Ok(bench.interrupt.came().map_or(exit::DONE, |signal| u8::try_from(128 + signal).unwrap_or(exit::FAILED)))
}

/// Shows a record again.
fn again(args: &UncoreArgs, file: &Path) -> Result<u8> {
    let before = lines::Before::read(file)?;
    let found = evaluate(&before.start.cases, &before.contrasts);
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::picture(&before.start, &found))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&page::page(&before.start, &found, before.end))?;
    Ok(exit::DONE)
}

/// Cases with their commands, and what is left out.
fn listing(plan: &Plan) -> String {
    let mut text = String::new();
    for case in &plan.cases {
        for setup in &case.ways {
            let words = |words: Vec<std::ffi::OsString>| {
                words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
            };
            let folder = Path::new("");
            let _ = write!(text, "{case}/{}: {}", setup.way, words(setup.command(folder, WINDOW, 1)));
            if let Some(rival) = &setup.rival {
                let _ = write!(text, "; beside {}", words(rival.command(folder)));
            }
            text.push('\n');
        }
    }
    for said in &plan.left_out {
        let _ = writeln!(text, "# {said}");
    }
    text.trim_end().to_owned()
}

/// Why nothing better is counted, if the indices suffer from it.
fn counting_said(standing: &Standing) -> Option<String> {
    if standing.rung == Rung::Exact {
        return None;
    }
    let first = standing.missing.first().map(|missing| format!(": {}", missing.why)).unwrap_or_default();
    let lacks = if standing.groups.is_empty() {
        "no index can be counted here, only times are measured"
    } else {
        "some indices cannot be counted here"
    };
    Some(format!("{lacks}{first} (trimtab counters says more)"))
}

struct Bench<'a> {
    args: &'a UncoreArgs,
    folder: PathBuf,
    cases: Vec<Case>,
    standing: Standing,
    start: Start,
    interrupt: Interrupt,
    recorder: Recorder,
    /// Opened before anything is measured, like the record.
    picture: Option<(PathBuf, File)>,
}

impl<'a> Bench<'a> {
    fn prepare(world: &World, args: &'a UncoreArgs, situation: &Situation, plan: Plan) -> Result<Self> {
        let trimtab = std::env::current_exe().context("cannot find trimtab itself")?;
        let folder = programs::folder(args.programs.as_deref(), &trimtab, &[PROGRAM])?;
        // What cannot be written costs no time.
        let picture = match &args.svg {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some((path.clone(), file))
            }
            None => None,
        };
        let recorder = Recorder::open(args.json.as_deref())?;
        for warning in &situation.warnings {
            say::warning(Volume::Normal, warning);
        }
        let standing = perf::look(&world.proc(), &world.sys(), &Choice::Auto, None);
        if let Some(said) = counting_said(&standing) {
            say::warning(Volume::Normal, &said);
        }
        let names = |recipe: &perf::Recipe| {
            recipe.events.iter().map(|(role, event)| format!("{}={}", role.word(), event)).collect()
        };
        let start = Start {
            bench: "uncore".to_owned(),
            trimtab: env!("CARGO_PKG_VERSION").to_owned(),
            machine: situation.machine.name().to_owned(),
            summary: draw::summary(&situation.machine),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            rung: standing.rung,
            events: standing.groups.iter().map(names).collect(),
            left_out: plan.left_out,
            cases: plan.cases.iter().map(Named::of).collect(),
        };
        let interrupt = Interrupt::listen()?;
        Ok(Self { args, folder, cases: plan.cases, standing, start, interrupt, recorder, picture })
    }

    /// Runs everything, as long as no signal comes.
    fn measure(&mut self, harvest: &mut Harvest) -> Result<()> {
        self.recorder.write(&Line::Start(&self.start))?;
        let bar = progress::bar(2 * self.cases.len() * self.args.repeats as usize);
        let measured = self.rounds(harvest, &bar);
        bar.finish_and_clear();
        measured
    }

    fn rounds(&mut self, harvest: &mut Harvest, bar: &ProgressBar) -> Result<()> {
        for round in 1..=self.args.repeats {
            let seed = self.args.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round));
            for at in shuffled(2 * self.cases.len(), seed) {
                if !self.one(harvest, at / 2, at % 2, round, bar)? {
                    return Ok(());
                }
                bar.inc(1);
            }
        }
        Ok(())
    }

    /// One run; false when a signal came.
    fn one(
        &mut self,
        harvest: &mut Harvest,
        at: usize,
        way: usize,
        round: u32,
        bar: &ProgressBar,
    ) -> Result<bool> {
        let (Some(case), Some(contrast)) = (self.cases.get(at), harvest.contrasts.get_mut(at)) else {
            return Ok(true);
        };
        let Some(setup) = case.ways.get(way) else { return Ok(true) };
        if harvest.failures.get(&at).is_some_and(|times| *times >= FAILURES_MAX) {
            return Ok(true);
        }
        bar.set_message(format!("round {round}/{}: {case} {}", self.args.repeats, setup.way));
        let seconds = if self.args.quick { QUICK_WINDOW } else { WINDOW };
        let ran = window::run(setup, &self.folder, seconds, &self.standing.groups, &self.interrupt);
        let name = case.to_string();
        let mut line = RunLine {
            case: &name,
            way: setup.way,
            round,
            setup,
            reading: None,
            reports: &[],
            error: None,
            stderr: "",
        };
        harvest.end.runs += usize::from(!matches!(ran, Ran::Stopped));
        match &ran {
            Ran::Stopped => return Ok(false),
            Ran::Well(Measured { reading, reports, uncounted }) => {
                (line.reading, line.reports) = (Some(reading), reports);
                let whole = uncounted.is_none() && reading.counts.len() == self.standing.groups.len();
                harvest.end.uncounted += usize::from(!whole);
                let side = if way == 0 { &mut contrast.first } else { &mut contrast.second };
                side.push(reading.clone());
            }
            Ran::Badly { error, stderr } => {
                (line.error, line.stderr) = (Some(error.as_str()), stderr.as_str());
                harvest.end.failed += 1;
                let times = harvest.failures.entry(at).or_default();
                *times += 1;
                if *times == 1 {
                    let failure = format!("{case} {}: {error}; {}", setup.way, progress::quoted(stderr));
                    bar.suspend(|| say::warning(Volume::Normal, &failure));
                }
            }
        }
        self.recorder.write(&Line::Run(Box::new(line)))?;
        Ok(self.interrupt.came().is_none())
    }

    /// Results into the record, the picture and to the user: each is tried, whatever comes of the others.
    fn finish(&mut self, harvest: &Harvest) -> Result<()> {
        let found = evaluate(&self.start.cases, &harvest.contrasts);
        let to_stdout = self.args.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
        let printed = if to_stdout { Ok(()) } else { print(&page::page(&self.start, &found, harvest.end)) };
        let drawn = self.picture.as_mut().map_or(Ok(()), |(path, file)| {
            let picture = chart::picture(&self.start, &found);
            file.write_all(picture.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        });
        let recorded = record(&mut self.recorder, &found, harvest.end);
        recorded.and(drawn).and(printed.map_err(Into::into))
    }
}

fn record(recorder: &mut Recorder, found: &Found<'_>, end: End) -> Result<()> {
    for (case, contrast) in &found.cases {
        let indices = Index::ALL.map(|index| (index.word(), contrast.index(index)));
        recorder.write(&Line::Result(ResultLine {
            case: &case.case,
            ways: &case.ways,
            time: contrast.time(),
            indices: indices.into_iter().collect(),
        }))?;
    }
    for (experiment, all) in &found.worth {
        for (index, worth) in all {
            recorder.write(&Line::Worth(WorthLine {
                experiment: *experiment,
                index: *index,
                worth: *worth,
            }))?;
        }
    }
    recorder.write(&Line::End(end))
}

/// What each index is worth over some cases.
type Worths = Vec<(Index, Worth)>;

/// What is known at the end.
struct Found<'a> {
    cases: Vec<(&'a Named, &'a Contrast)>,
    /// Over all cases first, then experiment by experiment.
    worth: Vec<(Option<&'a str>, Worths)>,
}

fn evaluate<'a>(cases: &'a [Named], contrasts: &'a [Contrast]) -> Found<'a> {
    let cases: Vec<(&Named, &Contrast)> = cases.iter().zip(contrasts).collect();
    let of = |experiment: Option<&str>| -> Worths {
        let chosen = || {
            let wanted = |case: &Named| experiment.is_none_or(|experiment| case.experiment == experiment);
            cases.iter().filter(move |(case, _)| wanted(case)).map(|(_, contrast)| *contrast)
        };
        Index::ALL.into_iter().map(|index| (index, worth(index, chosen()))).collect()
    };
    let mut experiments: Vec<Option<&str>> = vec![None];
    for (case, _) in &cases {
        if !experiments.contains(&Some(case.experiment.as_str())) {
            experiments.push(Some(&case.experiment));
        }
    }
    let worth = experiments.into_iter().map(|experiment| (experiment, of(experiment))).collect();
    Found { cases, worth }
}
