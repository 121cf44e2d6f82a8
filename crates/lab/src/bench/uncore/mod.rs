//! `trimtab bench uncore`: cost of far memory, crowded caches and shared lines, and the hardware
//! indices that show it.
//!
//! Each round runs all cases in both variants, in another random order that follows from the seed,
//! so that other load on the machine affects all cases. A run is one sample. [`mod@matrix`] defines
//! the runs, [`window`] runs and counts them, `trimtab_core::index_validation` evaluates the
//! indices, [`report`] and [`chart`] show the results.

mod chart;
mod matrix;
mod records;
mod report;
mod window;

use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::UncoreArgs;
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
pub(super) use matrix::PROGRAM;
use matrix::{Setup, UncoreCase, UncorePlan, UncoreScope};
use records::{
    CaseNames, IndexQualityLine, UncoreEnd, UncoreLine, UncoreResultLine, UncoreRunLine, UncoreStart,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trimtab_core::counts::Rung;
use trimtab_core::index_validation::{Contrast, IndexQuality, worth};
use trimtab_core::penalty::Index;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::print;
use trimtab_front::process_env::World;
use trimtab_linux::perf::{self, Choice, Standing};
use window::{Window, WindowMeasurement, WindowRun};

/// Length of a window, in seconds. Chosen: some ten thousand of the most expensive accesses, and a
/// measurement of ten minutes.
const WINDOW_S: f64 = 0.1;
const QUICK_WINDOW_S: f64 = 0.04;

/// Runs the benchmark and shows the results.
///
/// # Errors
/// The program is missing, a run of it failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &UncoreArgs) -> Result<u8> {
    if let Some(file) = &args.from {
        return again(args, file);
    }
    let usable = Usable::live(world, false)?;
    let scope =
        UncoreScope { quick: args.quick, only: &args.only, threads: args.threads.map(|most| most as usize) };
    let plan = matrix::plan(&usable.machine, &usable.allowed, scope);
    if args.list {
        return harness::list(listing(&plan), &plan.left_out);
    }
    if plan.cases.is_empty() {
        bail!("there is nothing to measure here: {}", plan.left_out.join("; "));
    }
    harness::measure(|_| UncoreBench::prepare(world, args, &usable, plan))
}

/// Shows a stored record.
fn again(args: &UncoreArgs, file: &Path) -> Result<u8> {
    let before = records::UncoreRecord::read(file)?;
    let found = evaluate(&before.start.cases, &before.contrasts);
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::picture(&before.start, &found))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&report::page(&before.start, &found, before.end))?;
    Ok(exit::DONE)
}

/// Returns the cases with their commands.
fn listing(plan: &UncorePlan) -> Vec<String> {
    let line = |case: &UncoreCase, setup: &Setup| {
        let folder = Path::new("");
        let words = |command: &[OsString]| harness::words(command).join(" ");
        let rival = setup.rival.as_ref().map(|rival| format!("; beside {}", words(&rival.command(folder))));
        let command = words(&setup.command(folder, WINDOW_S, 1));
        format!("{case}/{}: {command}{}", setup.way, rival.unwrap_or_default())
    };
    plan.cases.iter().flat_map(|case| case.ways.iter().map(move |setup| line(case, setup))).collect()
}

/// Returns a note on missing hardware counters, if some index needs them.
fn counting_said(standing: &Standing) -> Option<String> {
    if standing.rung == Rung::Exact {
        return None;
    }
    let first = standing.missing.first().map(|missing| format!(": {}", missing.why)).unwrap_or_default();
    let lacks = match standing.rung {
        Rung::Nothing => "no index can be counted here; only times are measured",
        Rung::HintFaults | Rung::Residency => {
            "no hardware counter works here; the only index is the share of far memory"
        }
        _ => "some indices cannot be counted here",
    };
    Some(format!("{lacks}{first} (see trimtab counters)"))
}

struct UncoreBench {
    folder: PathBuf,
    cases: Vec<UncoreCase>,
    rounds: Rounds,
    standing: Standing,
    start: UncoreStart,
    window: Window,
    contrasts: Vec<Contrast>,
    uncounted: usize,
}

impl UncoreBench {
    fn prepare(
        world: &World,
        args: &UncoreArgs,
        usable: &Usable,
        plan: UncorePlan,
    ) -> Result<(Self, Outlet)> {
        let (_, folder) = harness::programs(args.programs.as_deref(), &[PROGRAM])?;
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), false)?;
        let head = harness::head("uncore", usable);
        let standing = perf::look(&world.proc(), &world.sys(), &Choice::Auto, None);
        if let Some(said) = counting_said(&standing) {
            diagnostics::warning(Volume::Normal, &said);
        }
        let names = |recipe: &perf::Recipe| {
            recipe.events.iter().map(|(role, event)| format!("{}={}", role.word(), event)).collect()
        };
        let start = UncoreStart {
            head,
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            rung: standing.rung,
            events: standing.groups.iter().map(names).collect(),
            left_out: plan.left_out,
            cases: plan.cases.iter().map(CaseNames::of).collect(),
        };
        let seconds = if args.quick { QUICK_WINDOW_S } else { WINDOW_S };
        let window = Window::new(seconds, &standing, &world.proc(), &world.sys());
        let contrasts = vec![Contrast::default(); plan.cases.len()];
        let both = |case: &UncoreCase| case.ways.each_ref().map(|setup| format!("{case} {}", setup.way));
        let names: Vec<String> = plan.cases.iter().flat_map(both).collect();
        let rounds = Rounds::of(&names, args.repeats, args.seed);
        let (cases, uncounted) = (plan.cases, 0);
        Ok((Self { folder, cases, rounds, standing, start, window, contrasts, uncounted }, outlet))
    }

    fn end(&self, SeriesEnd { complete, runs, failed }: SeriesEnd) -> UncoreEnd {
        UncoreEnd { complete, runs, failed, uncounted: self.uncounted }
    }
}

impl Benchmark for UncoreBench {
    type Findings<'f>
        = UncoreFindings<'f>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn blamed(&self, at: usize) -> String {
        self.cases.get(at / 2).map(ToString::to_string).unwrap_or_default()
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&UncoreLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let (Some(case), Some(contrast)) = (self.cases.get(at / 2), self.contrasts.get_mut(at / 2)) else {
            return Ok(RunOutcome::Well);
        };
        let setup = &case.ways[at % 2];
        let ran = self.window.run(setup, &self.folder, &self.standing, interrupt);
        let name = case.to_string();
        let mut line = UncoreRunLine {
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
            WindowRun::Stopped => return Ok(RunOutcome::Stopped),
            WindowRun::Well(WindowMeasurement { reading, reports, uncounted }) => {
                (line.reading, line.reports) = (Some(reading), reports);
                let whole = uncounted.is_none() && reading.counts.len() >= self.standing.groups.len();
                self.uncounted += usize::from(!whole);
                let side = if at.is_multiple_of(2) { &mut contrast.first } else { &mut contrast.second };
                side.push(reading.clone());
            }
            WindowRun::Badly { error, stderr } => {
                (line.error, line.stderr) = (Some(error.as_str()), stderr.as_str());
            }
        }
        recorder.write(&UncoreLine::Run(Box::new(line)))?;
        Ok(match ran {
            WindowRun::Badly { error, stderr } => RunOutcome::Badly { error, stderr },
            _ => RunOutcome::Well,
        })
    }

    fn evaluate(&self) -> UncoreFindings<'_> {
        evaluate(&self.start.cases, &self.contrasts)
    }

    fn report(&self, found: &UncoreFindings<'_>, ended: SeriesEnd) -> String {
        report::page(&self.start, found, self.end(ended))
    }

    fn chart(&self, found: &UncoreFindings<'_>) -> String {
        chart::picture(&self.start, found)
    }

    fn conclude(&self, found: &UncoreFindings<'_>, ended: SeriesEnd, recorder: &mut Recorder) -> Result<()> {
        for (case, contrast) in &found.cases {
            let indices = Index::ALL.map(|index| (index.word(), contrast.index(index)));
            recorder.write(&UncoreLine::Result(UncoreResultLine {
                case: &case.case,
                ways: &case.ways,
                time: contrast.time(),
                indices: indices.into_iter().collect(),
            }))?;
        }
        for (experiment, all) in &found.worth {
            for &(index, worth) in all {
                recorder.write(&UncoreLine::Worth(IndexQualityLine {
                    experiment: *experiment,
                    index,
                    worth,
                }))?;
            }
        }
        recorder.write(&UncoreLine::End(self.end(ended)))
    }
}

/// Validation of each index over some cases.
type IndexQualities = Vec<(Index, IndexQuality)>;

/// Findings of the measurement.
struct UncoreFindings<'a> {
    cases: Vec<(&'a CaseNames, &'a Contrast)>,
    /// Over all cases first, then for each experiment.
    worth: Vec<(Option<&'a str>, IndexQualities)>,
}

fn evaluate<'a>(cases: &'a [CaseNames], contrasts: &'a [Contrast]) -> UncoreFindings<'a> {
    let cases: Vec<(&CaseNames, &Contrast)> = cases.iter().zip(contrasts).collect();
    let of = |experiment: Option<&str>| -> IndexQualities {
        let chosen = || {
            let wanted = |case: &CaseNames| experiment.is_none_or(|experiment| case.experiment == experiment);
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
    UncoreFindings { cases, worth }
}
