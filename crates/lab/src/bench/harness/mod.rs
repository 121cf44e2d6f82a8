//! Harness of all benchmarks: rounds of runs, one sample each, with record, report, chart,
//! progress, failures and Ctrl-C.
//!
//! Each benchmark defines its runs, the measurement of one run, and the evaluation of the samples
//! ([`Benchmark`]). Rounds follow each other, each in an order that the series gives, so that other
//! load on the machine affects all runs. A failing run is reported once and tried again in later
//! rounds; a run that failed too often is left out. When a series ends in any way, the results so
//! far are shown and written.

mod kept;
mod listing;
mod outlet;
pub(super) mod programs;
mod record;
mod resume;
pub(super) mod talk;

pub(crate) use kept::read_text;
pub(super) use listing::{list, no_such_case, words};
pub(super) use outlet::Outlet;
pub(super) use record::{Head, Recorder, SCHEMA};
pub(super) use resume::{difference, resumed};

use crate::usable::Usable;
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::shuffled;
use trimtab_core::topology::draw;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_front::{exit, progress};

/// Failures after which a run is left out. A single failure may be temporary, for example while
/// other programs hold the cores; a run that failed this often will fail again.
const FAILURES_MAX: usize = 2;

/// Result of a run.
#[derive(Debug)]
pub(super) enum RunOutcome {
    /// The run gave a sample.
    Well,
    /// The run failed: the reason, and the program's standard error.
    Badly { error: String, stderr: String },
    /// The run was stopped by a signal.
    Stopped,
}

/// State of a series at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct SeriesEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    /// Runs that were made or taken from the record.
    pub(super) runs: usize,
    /// Number of failed runs.
    pub(super) failed: usize,
}

/// Runs of a round, number of rounds, and seed.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    /// Number of rounds.
    pub(super) times: u32,
    /// Seed of the order of each round.
    pub(super) seed: u64,
    /// Names of the runs of a round.
    pub(super) names: Vec<String>,
}

impl Rounds {
    /// Creates rounds of these runs.
    pub(super) fn of(runs: &[impl ToString], times: u32, seed: u64) -> Self {
        Self { times, seed, names: runs.iter().map(ToString::to_string).collect() }
    }

    /// Returns the name of a run.
    pub(super) fn name(&self, at: usize) -> String {
        self.names.get(at).cloned().unwrap_or_default()
    }
}

/// A benchmark: its runs as data, the measurement of one run, and the evaluation of the samples.
pub(super) trait Benchmark {
    /// Evaluation of the samples.
    type Findings<'a>
    where
        Self: 'a;

    /// Returns the runs of a round.
    fn rounds(&self) -> &Rounds;

    /// Returns the order of a round: another one for each round, by the seed.
    fn order(&self, round: u32) -> Vec<usize> {
        let Rounds { seed, names, .. } = self.rounds();
        shuffled(names.len(), seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round)))
    }

    /// Returns the name under which failures of this run are counted: several runs may fail for one
    /// reason.
    fn blamed(&self, at: usize) -> String {
        self.rounds().name(at)
    }

    /// Records the start of the measurement.
    ///
    /// # Errors
    /// The record cannot be written.
    fn begin(&self, recorder: &mut Recorder) -> Result<()>;

    /// Makes a run, and records it.
    ///
    /// # Errors
    /// The record cannot be written, or nothing can be run any more.
    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome>;

    /// Called after each round, and after the last run.
    ///
    /// # Errors
    /// A file cannot be written.
    fn round_is_over(&self, _so_far: SeriesEnd) -> Result<()> {
        Ok(())
    }

    /// Evaluates the samples so far.
    fn evaluate(&self) -> Self::Findings<'_>;

    /// Formats the findings as text.
    fn report(&self, findings: &Self::Findings<'_>, ended: SeriesEnd) -> String;

    /// Draws the findings as a chart; empty for a series without one.
    fn chart(&self, _findings: &Self::Findings<'_>) -> String {
        String::new()
    }

    /// Records the findings and the end.
    ///
    /// # Errors
    /// The record cannot be written.
    fn conclude(
        &self,
        findings: &Self::Findings<'_>,
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()>;
}

/// Prepares a series, runs it until it is complete or a signal arrives, and shows the results.
/// Returns the exit status.
///
/// # Errors
/// The series cannot be prepared, a run failed, or a file cannot be written.
pub(super) fn measure<S: Benchmark>(prepare: impl FnOnce(&Interrupt) -> Result<(S, Outlet)>) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let (mut series, mut outlet) = prepare(&interrupt)?;
    let mut so_far = SeriesEnd::default();
    let mut failures = BTreeMap::new();
    let measured = rounds(&mut series, &mut outlet.recorder, &interrupt, &mut so_far, &mut failures);
    so_far.complete = measured.is_ok() && interrupt.came().is_none();
    let shown = finish(&series, &mut outlet, so_far);
    measured.and(shown)?;
    if !failures.is_empty() {
        let names: Vec<String> = failures.into_keys().collect();
        return Err(anyhow!("not everything could be measured: {} failed, see above", names.join(", ")));
    }
    // Exit status as a shell reports it for a process that a signal ended.
    Ok(interrupt.came().map_or(exit::DONE, exit::by_signal))
}

/// Writes and shows the results so far. Each step is tried, even if another one fails.
fn finish<S: Benchmark>(series: &S, outlet: &mut Outlet, ended: SeriesEnd) -> Result<()> {
    let tabled = series.round_is_over(ended);
    let findings = series.evaluate();
    let shown = outlet.show(|| series.report(&findings, ended), || series.chart(&findings));
    let recorded = series.conclude(&findings, ended, &mut outlet.recorder);
    recorded.and(tabled).and(shown)
}

fn rounds(
    series: &mut impl Benchmark,
    recorder: &mut Recorder,
    interrupt: &Interrupt,
    so_far: &mut SeriesEnd,
    failures: &mut BTreeMap<String, usize>,
) -> Result<()> {
    series.begin(recorder)?;
    let Rounds { times: rounds, names, .. } = series.rounds().clone();
    let name = |at: usize| names.get(at).map_or("", String::as_str);
    let bar = progress::bar(names.len() * rounds as usize);
    for round in 1..=rounds {
        for at in series.order(round) {
            let blamed = series.blamed(at);
            if failures.get(&blamed).is_none_or(|times| *times < FAILURES_MAX) {
                bar.set_message(format!("round {round}/{rounds}: {}", name(at)));
                let came = series.one(at, round, recorder, interrupt);
                if !matches!(came, Ok(RunOutcome::Stopped)) {
                    so_far.runs += 1;
                }
                match came {
                    Ok(RunOutcome::Well) => {}
                    Ok(RunOutcome::Stopped) => return Ok(()),
                    Ok(RunOutcome::Badly { error, stderr }) => {
                        so_far.failed += 1;
                        let times = failures.entry(blamed).or_default();
                        *times += 1;
                        if *times == 1 {
                            let failure = format!("{}: {error}; {}", name(at), progress::quoted(&stderr));
                            bar.suspend(|| diagnostics::warning(Volume::Normal, &failure));
                        }
                    }
                    Err(error) => {
                        bar.finish_and_clear();
                        return Err(error);
                    }
                }
                if interrupt.came().is_some() {
                    return Ok(());
                }
            }
            bar.inc(1);
        }
        series.round_is_over(*so_far)?;
    }
    Ok(())
}

/// Returns the first fields of every record, and prints the machine's warnings.
pub(super) fn head(bench: &str, usable: &Usable) -> Head {
    for warning in &usable.warnings {
        diagnostics::warning(Volume::Normal, warning);
    }
    Head {
        bench: bench.to_owned(),
        trimtab: env!("CARGO_PKG_VERSION").to_owned(),
        machine: usable.machine.name().to_owned(),
        summary: draw::summary(&usable.machine),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
    }
}

/// Returns one CPU of each core that may be used.
pub(super) fn one_of_each_core(usable: &Usable) -> CpuSet {
    let (machine, allowed) = (&usable.machine, &usable.allowed);
    let first = |cpus: CpuSet| cpus.intersection(allowed).iter().next();
    machine.cores().iter().filter_map(|core| first(machine.cpus_of(&core.pus))).collect()
}

/// Returns the path of the measured `trimtab`, and the folder of the programs.
///
/// # Errors
/// They are missing.
pub(super) fn programs(named: Option<&Path>, wanted: &[&str]) -> Result<(PathBuf, PathBuf)> {
    let trimtab = sibling::find(TRIMTAB)?;
    let folder = programs::folder(named, &own()?, wanted)?;
    Ok((trimtab, folder))
}

/// Returns the path of this program: cells that it measures itself are processes of it.
///
/// # Errors
/// The kernel does not name it.
pub(super) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own path is unknown")
}
