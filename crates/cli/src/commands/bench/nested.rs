//! `trimtab bench nested`: nested OpenMP teams, bound and unbound.
//!
//! The two ways take turns, round by round, and which goes first changes from round to round: whatever else happens on the
//! machine, and however it warms up, strikes both. A run of a program gives one sample a figure, the median of its own
//! repetitions, because the repetitions of one run share its placement.

use super::cases::{Case, Figure, Variant, cases, command};
use super::programs::{self, Ran};
use super::record::{End, Outcome, Record, Recorder, Run, Start};
use super::{chart, tables};
use crate::args::NestedArgs;
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::commands::progress;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::world::World;
use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use trimtab_core::stats::{Comparison, compare};
use trimtab_core::topology::draw;
use trimtab_linux::survey::{Runnable, runnable};

/// Samples of each figure, in the order of [`crate::args::bench::NestedProgram::figures`].
type Samples = BTreeMap<(Case, Variant), Vec<Vec<f64>>>;

/// One figure of one case, with both ways side by side.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) figure: Figure,
    pub(super) unbound: Vec<f64>,
    pub(super) bound: Vec<f64>,
    pub(super) comparison: Comparison,
}

/// What a whole measurement came to.
#[derive(Debug, Default)]
struct Harvest {
    samples: Samples,
    /// What failed, and how often; it has been said.
    failures: BTreeMap<(Case, Variant), usize>,
    runs: usize,
    /// Runs at whose start other programs wanted CPUs.
    disturbed: usize,
}

/// A failure may pass, as when others hold the cores; one that came so often in one case will come again.
const FAILURES_MAX: usize = 2;

/// Measures, and shows.
///
/// # Errors
/// [`exit::FAILED`] when the programs are not there, one of them failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &NestedArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let mut bench = Bench::prepare(world, args).map_err(failed)?;
    let mut harvest = Harvest::default();
    let measured = bench.measure(&mut harvest);
    // Whatever happened: what is known is written.
    let complete = measured.is_ok() && bench.interrupt.came().is_none();
    let shown = bench.finish(&harvest, complete);
    measured.and(shown).map_err(failed)?;
    if !harvest.failures.is_empty() {
        let words: Vec<String> =
            harvest.failures.keys().map(|(case, way)| format!("{case} {}", way.word())).collect();
        return Err(failed(anyhow!(
            "not everything could be measured: {} failed, see above",
            words.join(", ")
        )));
    }
    // As a shell says it of what a signal ended.
    Ok(bench.interrupt.came().map_or(exit::DONE, |signal| u8::try_from(128 + signal).unwrap_or(exit::FAILED)))
}

struct Bench<'a> {
    args: &'a NestedArgs,
    trimtab: PathBuf,
    folder: PathBuf,
    proc: PathBuf,
    cases: Vec<Case>,
    start: Start,
    interrupt: Interrupt,
    recorder: Recorder,
    /// Opened before anything is measured, like the record.
    picture: Option<(PathBuf, File)>,
}

impl<'a> Bench<'a> {
    fn prepare(world: &World, args: &'a NestedArgs) -> Result<Self> {
        let trimtab = std::env::current_exe().context("cannot find trimtab itself")?;
        let situation = Situation::live(world, true)?;
        let (machine, allowed) = (&situation.machine, &situation.taken.allowed);
        let usable = machine.cores().iter().filter(|core| machine.cpus_of(&core.pus).intersects(allowed));
        let cores = usable.count();
        let cases = cases(args, cores, machine.nodes_of(allowed).len());
        let wanted: Vec<_> = cases.iter().map(|case| case.program.file()).collect();
        let folder = programs::folder(args.programs.as_deref(), &trimtab, &wanted)?;
        for warning in &situation.warnings {
            say::warning(Volume::Normal, warning);
        }
        let of_openmp =
            |name: &&str| ["OMP_", "GOMP_", "KMP_", "LIBOMP_"].iter().any(|head| name.starts_with(head));
        let set = world.names().filter(of_openmp).filter(|name| *name != "OMP_NUM_THREADS");
        let start = Start {
            bench: "nested",
            trimtab: env!("CARGO_PKG_VERSION"),
            machine: machine.name().to_owned(),
            summary: draw::summary(machine),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cores,
            rounds: args.rounds,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            environment: set.filter_map(|name| Some((name.to_owned(), world.text(name)?))).collect(),
        };
        let picture = match &args.svg {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some((path.clone(), file))
            }
            None => None,
        };
        let recorder = Recorder::open(args.json.as_deref())?;
        let proc = world.proc();
        Ok(Self {
            args,
            trimtab,
            folder,
            proc,
            cases,
            start,
            interrupt: Interrupt::listen()?,
            recorder,
            picture,
        })
    }

    /// Runs everything, as long as no signal comes.
    fn measure(&mut self, harvest: &mut Harvest) -> Result<()> {
        self.recorder.write(&Record::Start(&self.start))?;
        let bar = progress::bar(self.cases.len() * Variant::ALL.len() * self.args.rounds as usize);
        let measured = self.rounds(harvest, &bar);
        bar.finish_and_clear();
        measured
    }

    fn rounds(&mut self, harvest: &mut Harvest, bar: &ProgressBar) -> Result<()> {
        for round in 1..=self.args.rounds {
            let mut order = Variant::ALL;
            if round % 2 == 0 {
                order.reverse();
            }
            for &case in &self.cases.clone() {
                for variant in order {
                    bar.set_message(format!("round {round}/{}: {case} {}", self.args.rounds, variant.word()));
                    if !self.one(harvest, case, variant, round, bar)? {
                        return Ok(());
                    }
                    bar.inc(1);
                }
            }
        }
        Ok(())
    }

    /// One run; false when a signal came.
    fn one(
        &mut self,
        harvest: &mut Harvest,
        case: Case,
        variant: Variant,
        round: u32,
        bar: &ProgressBar,
    ) -> Result<bool> {
        if harvest.failures.get(&(case, variant)).is_some_and(|times| *times >= FAILURES_MAX) {
            return Ok(true);
        }
        let program = self.folder.join(case.program.file());
        let words = command(self.args, case, variant, &self.trimtab, &program);
        let others = runnable(&self.proc).ok().map(Runnable::others);
        // The programs ask for their threads themselves; trimtab would take the user's number for a limit of his.
        let variables = [("OMP_NUM_THREADS", None)];
        let ran = programs::run(&words, &variables, &|report| case.fault(report), &self.interrupt);
        if matches!(ran, Ran::Stopped) {
            return Ok(false);
        }
        harvest.runs += 1;
        harvest.disturbed += usize::from(others.is_some_and(|others| others > 0));
        match ran {
            Ran::Stopped => {}
            Ran::Badly { error, stderr } => {
                let run = Run::new(case, variant, round, others, &words, Err(&error), &stderr);
                self.recorder.write(&Record::Run(run))?;
                let failure = format!("{case} {}: {error}; {}", variant.word(), progress::quoted(&stderr));
                let times = harvest.failures.entry((case, variant)).or_default();
                *times += 1;
                if *times == 1 {
                    bar.suspend(|| say::warning(Volume::Normal, &failure));
                }
            }
            Ran::Well { report, stderr } => {
                let run = Run::new(case, variant, round, others, &words, Ok(&report), &stderr);
                self.recorder.write(&Record::Run(run))?;
                let figures = case.program.figures();
                let samples =
                    harvest.samples.entry((case, variant)).or_insert_with(|| vec![Vec::new(); figures.len()]);
                for (figure, samples) in figures.iter().zip(samples) {
                    samples.extend(figure.value(case.program, &report));
                }
            }
        }
        Ok(self.interrupt.came().is_none())
    }

    /// Results into the tables, the picture and the record: each is tried, whatever comes of the others.
    fn finish(&mut self, harvest: &Harvest, complete: bool) -> Result<()> {
        let measured = self.compare(&harvest.samples);
        let Harvest { runs, disturbed, .. } = *harvest;
        let failed = harvest.failures.values().sum();
        let end = End { complete, runs, failed, disturbed };
        let to_stdout = self.args.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
        let printed = if to_stdout { Ok(()) } else { print(&tables::page(&self.start, &measured, &end)) };
        let drawn = self.picture.as_mut().map_or(Ok(()), |(path, file)| {
            let picture = chart::picture(&self.start, &measured);
            file.write_all(picture.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        });
        let recorded = self.record(&measured, &end);
        recorded.and(drawn).and(printed.map_err(Into::into))
    }

    fn record(&mut self, measured: &[Measured], end: &End) -> Result<()> {
        for Measured { case, figure, unbound, bound, comparison } in measured {
            self.recorder.write(&Record::Result(Outcome::new(*case, figure, unbound, bound, *comparison)))?;
        }
        self.recorder.write(&Record::End(end))
    }

    fn compare(&self, samples: &Samples) -> Vec<Measured> {
        let none = Vec::new();
        let mut measured = Vec::new();
        for &case in &self.cases {
            for (at, figure) in case.program.figures().into_iter().enumerate() {
                let of = |variant| {
                    samples.get(&(case, variant)).and_then(|all| all.get(at)).unwrap_or(&none).clone()
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
