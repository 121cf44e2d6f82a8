//! `trimtab bench nested`: nested OpenMP teams, bound and unbound.
//!
//! The two variants alternate in each round, and the first one changes from round to round, so that
//! other load on the machine and its warm-up affect both. A run of a program gives one sample per
//! figure, the median of its own repetitions, because the repetitions of one run share its
//! placement.

mod chart;
mod matrix;
mod published;
mod records;
mod report;

use super::harness::programs::{self, ProgramOutcome};
use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::NestedArgs;
use crate::args::bench::Shape;
use crate::usable::Usable;
use anyhow::Result;
use matrix::{NestedCase, NestedFigure, Variant, cases, command};
use records::{NestedEnd, NestedLine, NestedOutcome, NestedRun, NestedStart};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::stats::{Comparison, compare};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_linux::survey::{Runnable, runnable};

pub(super) use report::verdict;

/// Samples of each figure, in the order of [`crate::args::bench::NestedProgram::figures`].
type NestedSamples = BTreeMap<(NestedCase, Variant), Vec<Vec<f64>>>;

/// One figure of one case, with both variants.
#[derive(Debug)]
struct Measured {
    case: NestedCase,
    figure: NestedFigure,
    unbound: Vec<f64>,
    bound: Vec<f64>,
    comparison: Comparison,
}

/// Runs the benchmark and shows the results.
///
/// # Errors
/// The programs are missing, one of them failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &NestedArgs) -> Result<u8> {
    harness::measure(|_| NestedBench::prepare(world, args))
}

struct NestedBench<'a> {
    args: &'a NestedArgs,
    trimtab: PathBuf,
    folder: PathBuf,
    proc: PathBuf,
    cases: Vec<NestedCase>,
    rounds: Rounds,
    start: NestedStart,
    samples: NestedSamples,
    /// Runs at whose start other programs wanted CPUs.
    disturbed: usize,
}

impl<'a> NestedBench<'a> {
    fn prepare(world: &World, args: &'a NestedArgs) -> Result<(Self, Outlet)> {
        let usable = Usable::live(world, true)?;
        let (machine, allowed) = (&usable.machine, &usable.allowed);
        let allowed_cores =
            machine.cores().iter().filter(|core| machine.cpus_of(&core.pus).intersects(allowed));
        let cores = allowed_cores.count();
        let cases = cases(args, cores, machine.nodes_of(allowed).len());
        let wanted: Vec<_> = cases.iter().map(|case| case.program.file()).collect();
        let (trimtab, folder) = harness::programs(args.programs.as_deref(), &wanted)?;
        let of_openmp =
            |name: &&str| ["OMP_", "GOMP_", "KMP_", "LIBOMP_"].iter().any(|head| name.starts_with(head));
        let set = world.names().filter(of_openmp).filter(|name| *name != "OMP_NUM_THREADS");
        let start = NestedStart {
            head: harness::head("nested", &usable),
            cores,
            rounds: args.rounds,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            environment: set.filter_map(|name| Some((name.to_owned(), world.text(name)?))).collect(),
        };
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), false)?;
        let (proc, samples) = (world.proc(), NestedSamples::new());
        let ways = |case: &NestedCase| Variant::ALL.map(|variant| format!("{case} {}", variant.word()));
        let names: Vec<String> = cases.iter().flat_map(ways).collect();
        let rounds = Rounds::of(&names, args.rounds, args.seed);
        Ok((Self { args, trimtab, folder, proc, cases, rounds, start, samples, disturbed: 0 }, outlet))
    }

    /// Returns a case and its variant.
    fn at(&self, at: usize) -> Option<(NestedCase, Variant)> {
        let ways = Variant::ALL.len();
        Some((*self.cases.get(at / ways)?, *Variant::ALL.get(at % ways)?))
    }

    fn end(&self, SeriesEnd { complete, runs, failed }: SeriesEnd) -> NestedEnd {
        NestedEnd { complete, runs, failed, disturbed: self.disturbed }
    }

    fn compare(&self) -> Vec<Measured> {
        let none = Vec::new();
        let mut measured = Vec::new();
        for &case in &self.cases {
            for (at, figure) in case.program.figures().into_iter().enumerate() {
                let of = |variant| {
                    self.samples.get(&(case, variant)).and_then(|all| all.get(at)).unwrap_or(&none).clone()
                };
                let (unbound, bound) = (of(Variant::Unbound), of(Variant::Bound));
                if unbound.is_empty() && bound.is_empty() {
                    continue;
                }
                let comparison = compare(&unbound, &bound, figure.better, self.args.seed);
                measured.push(Measured { case, figure, unbound, bound, comparison });
            }
        }
        measured
    }
}

impl Benchmark for NestedBench<'_> {
    type Findings<'f>
        = Vec<Measured>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Case by case; the first variant changes from round to round.
    fn order(&self, round: u32) -> Vec<usize> {
        let ways = Variant::ALL.len();
        let turned = |way: usize| if round.is_multiple_of(2) { ways - 1 - way } else { way };
        (0..self.rounds.names.len()).map(|at| at / ways * ways + turned(at % ways)).collect()
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&NestedLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some((case, variant)) = self.at(at) else { return Ok(RunOutcome::Well) };
        let program = self.folder.join(case.program.file());
        let words = command(self.args, case, variant, &self.trimtab, &program);
        let others = runnable(&self.proc).ok().map(Runnable::others);
        // Most programs request their threads themselves, and trimtab would take the user's number
        // for a limit. The multi-zone benchmarks read the variable, and `--nest` sets it.
        let Shape { outer, inner } = case.shape;
        let teams = format!("{outer},{inner}");
        let told = case.program.is_multi_zone() && variant == Variant::Unbound;
        let variables = [("OMP_NUM_THREADS", told.then_some(teams))];
        let ran = programs::run(&words, &variables, &|report| case.fault(report), interrupt);
        if !matches!(ran, ProgramOutcome::Stopped) {
            self.disturbed += usize::from(others.is_some_and(|others| others > 0));
        }
        match ran {
            ProgramOutcome::Stopped => Ok(RunOutcome::Stopped),
            ProgramOutcome::Badly { error, stderr } => {
                let run = NestedRun::new(case, variant, round, others, &words, Err(&error), &stderr);
                recorder.write(&NestedLine::Run(run))?;
                Ok(RunOutcome::Badly { error, stderr })
            }
            ProgramOutcome::Well { report, stderr } => {
                let run = NestedRun::new(case, variant, round, others, &words, Ok(&report), &stderr);
                recorder.write(&NestedLine::Run(run))?;
                let figures = case.program.figures();
                let samples =
                    self.samples.entry((case, variant)).or_insert_with(|| vec![Vec::new(); figures.len()]);
                for (figure, samples) in figures.iter().zip(samples) {
                    samples.extend(figure.value(case.program, &report));
                }
                Ok(RunOutcome::Well)
            }
        }
    }

    fn evaluate(&self) -> Vec<Measured> {
        self.compare()
    }

    fn report(&self, measured: &Vec<Measured>, ended: SeriesEnd) -> String {
        report::page(&self.start, measured, &self.end(ended))
    }

    fn chart(&self, measured: &Vec<Measured>) -> String {
        chart::picture(&self.start, measured)
    }

    fn conclude(&self, measured: &Vec<Measured>, ended: SeriesEnd, recorder: &mut Recorder) -> Result<()> {
        let results = measured.iter().map(|Measured { case, figure, unbound, bound, comparison }| {
            NestedLine::Result(NestedOutcome::new(*case, figure, unbound, bound, *comparison))
        });
        let end = self.end(ended);
        results.chain([NestedLine::End(&end)]).try_for_each(|line| recorder.write(&line))
    }
}
