//! The harness of all benchmarks: rounds of runs, one sample each, with record, report, chart, progress, failures and Ctrl-C.
//!
//! What is run, how one run is measured and what the samples come to is each benchmark's own ([`Series`]). Rounds come one after the other, each in an order that
//! the series gives, so that whatever else happens on the machine strikes all. A run that fails is said once and tried again in later
//! rounds; one that failed too often is left out. Whatever ends it, what is known until then is shown and written.

mod listing;
mod outlet;
pub(super) mod programs;
mod record;
mod resume;
pub(super) mod talk;

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

/// A failure may pass, as when others hold the cores; one that came so often in one place will come again.
const FAILURES_MAX: usize = 2;

/// What a run came to.
#[derive(Debug)]
pub(super) enum Came {
    /// A sample.
    Well,
    /// Nothing: why, and what the program said of it.
    Badly { error: String, stderr: String },
    /// A signal to stop came, and it was stopped.
    Stopped,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Ended {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    /// Runs that were made, or known already.
    pub(super) runs: usize,
    /// How many of them failed.
    pub(super) failed: usize,
}

/// What is run how often, and by which seed.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    /// How often each run is made.
    pub(super) times: u32,
    /// What the order of rounds follows from.
    pub(super) seed: u64,
    /// The names of a round's runs.
    pub(super) names: Vec<String>,
}

impl Rounds {
    /// Runs of these.
    pub(super) fn of(runs: &[impl ToString], times: u32, seed: u64) -> Self {
        Self { times, seed, names: runs.iter().map(ToString::to_string).collect() }
    }

    /// The name of a run.
    pub(super) fn name(&self, at: usize) -> String {
        self.names.get(at).cloned().unwrap_or_default()
    }
}

/// A benchmark: its runs as data, its own way to measure one, and what its samples come to.
pub(super) trait Series {
    /// What the samples come to.
    type Findings<'a>
    where
        Self: 'a;

    /// What a round consists of.
    fn rounds(&self) -> &Rounds;

    /// The order of a round: by the seed, another one each.
    fn order(&self, round: u32) -> Vec<usize> {
        let Rounds { seed, names, .. } = self.rounds();
        shuffled(names.len(), seed.wrapping_mul(1_000_003).wrapping_add(u64::from(round)))
    }

    /// What a failure of this run is counted for: more than one run may fail for one reason.
    fn blamed(&self, at: usize) -> String {
        self.rounds().name(at)
    }

    /// Records what will be measured.
    ///
    /// # Errors
    /// The record cannot be written.
    fn begin(&self, recorder: &mut Recorder) -> Result<()>;

    /// Makes a run, and records it.
    ///
    /// # Errors
    /// The record cannot be written, or nothing can be run any more.
    fn one(&mut self, at: usize, round: u32, recorder: &mut Recorder, interrupt: &Interrupt) -> Result<Came>;

    /// A round is over, or all of them are.
    ///
    /// # Errors
    /// What was to be written cannot be.
    fn round_is_over(&self, _so_far: Ended) -> Result<()> {
        Ok(())
    }

    /// What the samples so far come to.
    fn evaluate(&self) -> Self::Findings<'_>;

    /// The findings as text.
    fn report(&self, findings: &Self::Findings<'_>, ended: Ended) -> String;

    /// The findings as a picture; empty for a series that has none.
    fn chart(&self, _findings: &Self::Findings<'_>) -> String {
        String::new()
    }

    /// Records the findings and the end.
    ///
    /// # Errors
    /// The record cannot be written.
    fn conclude(&self, findings: &Self::Findings<'_>, ended: Ended, recorder: &mut Recorder) -> Result<()>;
}

/// Prepares a series, runs everything, as long as no signal comes, and shows it. The exit status.
///
/// # Errors
/// It cannot be prepared, a run failed or a file cannot be written.
pub(super) fn measure<S: Series>(prepare: impl FnOnce(&Interrupt) -> Result<(S, Outlet)>) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let (mut series, mut outlet) = prepare(&interrupt)?;
    let mut so_far = Ended::default();
    let mut failures = BTreeMap::new();
    let measured = rounds(&mut series, &mut outlet.recorder, &interrupt, &mut so_far, &mut failures);
    so_far.complete = measured.is_ok() && interrupt.came().is_none();
    let shown = finish(&series, &mut outlet, so_far);
    measured.and(shown)?;
    if !failures.is_empty() {
        let names: Vec<String> = failures.into_keys().collect();
        return Err(anyhow!("not everything could be measured: {} failed, see above", names.join(", ")));
    }
    // As a shell says it of what a signal ended.
    Ok(interrupt.came().map_or(exit::DONE, exit::by_signal))
}

/// Writes and shows what is known: each is tried, whatever comes of the others.
fn finish<S: Series>(series: &S, outlet: &mut Outlet, ended: Ended) -> Result<()> {
    let tabled = series.round_is_over(ended);
    let findings = series.evaluate();
    let shown = outlet.show(|| series.report(&findings, ended), || series.chart(&findings));
    let recorded = series.conclude(&findings, ended, &mut outlet.recorder);
    recorded.and(tabled).and(shown)
}

fn rounds(
    series: &mut impl Series,
    recorder: &mut Recorder,
    interrupt: &Interrupt,
    so_far: &mut Ended,
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
                if !matches!(came, Ok(Came::Stopped)) {
                    so_far.runs += 1;
                }
                match came {
                    Ok(Came::Well) => {}
                    Ok(Came::Stopped) => return Ok(()),
                    Ok(Came::Badly { error, stderr }) => {
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

/// What every record begins with. The machine's warnings are told.
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

/// One CPU of each core that may be used.
pub(super) fn one_of_each_core(usable: &Usable) -> CpuSet {
    let (machine, allowed) = (&usable.machine, &usable.allowed);
    let first = |cpus: CpuSet| cpus.intersection(allowed).iter().next();
    machine.cores().iter().filter_map(|core| first(machine.cpus_of(&core.pus))).collect()
}

/// The `trimtab` that is measured, and the folder with the programs.
///
/// # Errors
/// They are not there.
pub(super) fn programs(named: Option<&Path>, wanted: &[&str]) -> Result<(PathBuf, PathBuf)> {
    let trimtab = sibling::find(TRIMTAB)?;
    let folder = programs::folder(named, &own()?, wanted)?;
    Ok((trimtab, folder))
}

/// This program's own file: cells that it measures itself are processes of it.
///
/// # Errors
/// The kernel does not name it.
pub(super) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own path is unknown")
}
