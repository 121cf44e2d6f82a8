//! `trimtab bench uncore`: what far memory, crowded caches and shared lines cost, and which index of hardware shows it.
//!
//! Rounds of all cases in both ways, each round in another random order that follows from the seed, so that whatever else happens
//! strikes all. A run is one sample. [`cases`] says what is run, [`window`] runs and counts it, `trimtab_core::index_validation` says what
//! an index is worth, [`page`] and [`chart`] show it.

mod cases;
mod chart;
mod lines;
mod page;
mod window;

use super::record::Recorder;
use super::series::{self, Came, Ended, Outlet, Rounds, Series};
use crate::args::UncoreArgs;
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::world::World;
use anyhow::{Context, Result, anyhow};
use cases::{Case, PROGRAM, Plan, Scope};
use lines::{End, Line, Named, ResultLine, RunLine, Start, WorthLine};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimtab_core::counts::Rung;
use trimtab_core::index_validation::{Contrast, Worth, worth};
use trimtab_core::penalty::Index;
use trimtab_linux::perf::{self, Choice, Standing};
use window::{Measured, Ran, Window};

/// How long a window lasts, in seconds. Chosen: some tenthousand of the dearest accesses, and a measurement of ten minutes.
const WINDOW: f64 = 0.1;
const QUICK_WINDOW: f64 = 0.04;
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
    let scope =
        Scope { quick: args.quick, only: &args.only, threads: args.threads.map(|most| most as usize) };
    let plan = cases::plan(&situation.machine, &situation.taken.allowed, scope);
    if args.list {
        print(&listing(&plan)).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    if plan.cases.is_empty() {
        return Err(failed(anyhow!("there is nothing to measure here: {}", plan.left_out.join("; "))));
    }
    let mut bench = Bench::prepare(world, args, &situation, plan).map_err(failed)?;
    let interrupt = Interrupt::listen().map_err(failed)?;
    series::measure(&mut bench, &interrupt)
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
    let lacks = match standing.rung {
        Rung::Nothing => "no index can be counted here, only times are measured",
        Rung::HintFaults | Rung::Residency => {
            "hardware counts nothing here: of the indices only the share of far memory is known"
        }
        _ => "some indices cannot be counted here",
    };
    Some(format!("{lacks}{first} (trimtab counters says more)"))
}

struct Bench {
    folder: PathBuf,
    cases: Vec<Case>,
    rounds: Rounds,
    standing: Standing,
    start: Start,
    outlet: Outlet,
    window: Window,
    contrasts: Vec<Contrast>,
    uncounted: usize,
}

impl Bench {
    fn prepare(world: &World, args: &UncoreArgs, situation: &Situation, plan: Plan) -> Result<Self> {
        let (_, folder) = series::programs(args.programs.as_deref(), &[PROGRAM])?;
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref())?;
        let head = series::head("uncore", situation);
        let standing = perf::look(&world.proc(), &world.sys(), &Choice::Auto, None);
        if let Some(said) = counting_said(&standing) {
            say::warning(Volume::Normal, &said);
        }
        let names = |recipe: &perf::Recipe| {
            recipe.events.iter().map(|(role, event)| format!("{}={}", role.word(), event)).collect()
        };
        let start = Start {
            head,
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            rung: standing.rung,
            events: standing.groups.iter().map(names).collect(),
            left_out: plan.left_out,
            cases: plan.cases.iter().map(Named::of).collect(),
        };
        let seconds = if args.quick { QUICK_WINDOW } else { WINDOW };
        let window = Window::new(seconds, &standing, &world.proc(), &world.sys());
        let contrasts = vec![Contrast::default(); plan.cases.len()];
        let both = |case: &Case| case.ways.each_ref().map(|setup| format!("{case} {}", setup.way));
        let names: Vec<String> = plan.cases.iter().flat_map(both).collect();
        let rounds = Rounds::of(&names, args.repeats, args.seed);
        Ok(Self {
            folder,
            cases: plan.cases,
            rounds,
            standing,
            start,
            outlet,
            window,
            contrasts,
            uncounted: 0,
        })
    }
}

impl Series for Bench {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn blamed(&self, at: usize) -> String {
        self.cases.get(at / 2).map(ToString::to_string).unwrap_or_default()
    }

    fn begin(&mut self) -> Result<()> {
        self.outlet.recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, interrupt: &Interrupt) -> Result<Came> {
        let (Some(case), Some(contrast)) = (self.cases.get(at / 2), self.contrasts.get_mut(at / 2)) else {
            return Ok(Came::Well);
        };
        let setup = &case.ways[at % 2];
        let ran = self.window.run(setup, &self.folder, &self.standing, interrupt);
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
        match &ran {
            Ran::Stopped => return Ok(Came::Stopped),
            Ran::Well(Measured { reading, reports, uncounted }) => {
                (line.reading, line.reports) = (Some(reading), reports);
                let whole = uncounted.is_none() && reading.counts.len() >= self.standing.groups.len();
                self.uncounted += usize::from(!whole);
                let side = if at.is_multiple_of(2) { &mut contrast.first } else { &mut contrast.second };
                side.push(reading.clone());
            }
            Ran::Badly { error, stderr } => {
                (line.error, line.stderr) = (Some(error.as_str()), stderr.as_str());
            }
        }
        self.outlet.recorder.write(&Line::Run(Box::new(line)))?;
        Ok(match ran {
            Ran::Badly { error, stderr } => Came::Badly { error, stderr },
            _ => Came::Well,
        })
    }

    fn finish(&mut self, Ended { complete, runs, failed }: Ended) -> Result<()> {
        let end = End { complete, runs, failed, uncounted: self.uncounted };
        let found = evaluate(&self.start.cases, &self.contrasts);
        let start = &self.start;
        let shown = self.outlet.show(|| page::page(start, &found, end), || chart::picture(start, &found));
        record(&mut self.outlet.recorder, &found, end).and(shown)
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
