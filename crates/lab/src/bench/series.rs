//! The skeleton of all measurements: rounds of runs, one sample each, with progress, failures and Ctrl-C.
//!
//! What is run and what becomes of it is each benchmark's own ([`Series`]). Rounds come one after the other, each in an order that
//! the series gives, so that whatever else happens on the machine strikes all. A run that fails is said once and tried again in later
//! rounds; one that failed too often is left out. Whatever ends it, what is known until then is shown and written.

use super::programs;
use super::record::{Head, Recorder};
use crate::usable::Usable;
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::shuffled;
use trimtab_core::topology::draw;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::print;
use trimtab_front::progress;
use trimtab_front::sibling::{self, TRIMTAB};

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
#[derive(Clone, Copy, Debug)]
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

/// A measurement.
pub(super) trait Series {
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
    fn begin(&mut self) -> Result<()>;

    /// Makes it, and records it.
    ///
    /// # Errors
    /// The record cannot be written, or nothing can be run any more.
    fn one(&mut self, at: usize, round: u32, interrupt: &Interrupt) -> Result<Came>;

    /// A round is over.
    ///
    /// # Errors
    /// What was to be written cannot be.
    fn round_is_over(&mut self, _so_far: Ended) -> Result<()> {
        Ok(())
    }

    /// Writes and shows what is known: each is tried, whatever comes of the others.
    ///
    /// # Errors
    /// Something of it cannot be written.
    fn finish(&mut self, ended: Ended) -> Result<()>;
}

/// Runs everything, as long as no signal comes, and shows it.
///
/// # Errors
/// [`exit::FAILED`] when a run failed or a file cannot be written.
pub(super) fn measure(series: &mut impl Series, interrupt: &Interrupt) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let mut so_far = Ended { complete: false, runs: 0, failed: 0 };
    let mut failures = BTreeMap::new();
    let measured = rounds(series, interrupt, &mut so_far, &mut failures);
    so_far.complete = measured.is_ok() && interrupt.came().is_none();
    let shown = series.finish(so_far);
    measured.and(shown).map_err(failed)?;
    if !failures.is_empty() {
        let names: Vec<String> = failures.into_keys().collect();
        return Err(failed(anyhow!(
            "not everything could be measured: {} failed, see above",
            names.join(", ")
        )));
    }
    // As a shell says it of what a signal ended.
    Ok(interrupt.came().map_or(exit::DONE, |signal| u8::try_from(128 + signal).unwrap_or(exit::FAILED)))
}

fn rounds(
    series: &mut impl Series,
    interrupt: &Interrupt,
    so_far: &mut Ended,
    failures: &mut BTreeMap<String, usize>,
) -> Result<()> {
    series.begin()?;
    let Rounds { times: rounds, names, .. } = series.rounds().clone();
    let name = |at: usize| names.get(at).map_or("", String::as_str);
    let bar = progress::bar(names.len() * rounds as usize);
    for round in 1..=rounds {
        for at in series.order(round) {
            let blamed = series.blamed(at);
            if failures.get(&blamed).is_none_or(|times| *times < FAILURES_MAX) {
                bar.set_message(format!("round {round}/{rounds}: {}", name(at)));
                let came = series.one(at, round, interrupt);
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

/// Where results go: the record, the picture, and the user unless the record has his place. Opened before anything is measured, so
/// that a path that cannot be written costs no minutes.
pub(super) struct Outlet {
    pub(super) recorder: Recorder,
    picture: Option<(PathBuf, File)>,
    to_stdout: bool,
}

impl Outlet {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn open(json: Option<&Path>, svg: Option<&Path>) -> Result<Self> {
        Ok(Self::of(Recorder::open(json)?, Self::picture(svg)?, json))
    }

    fn picture(svg: Option<&Path>) -> Result<Option<(PathBuf, File)>> {
        let Some(path) = svg else { return Ok(None) };
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some((path.to_owned(), file)))
    }

    /// Goes on with a record.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(super) fn resume(json: &Path, svg: Option<&Path>) -> Result<Self> {
        Ok(Self::of(Recorder::resume(json)?, Self::picture(svg)?, Some(json)))
    }

    fn of(recorder: Recorder, picture: Option<(PathBuf, File)>, json: Option<&Path>) -> Self {
        let to_stdout = json.is_some_and(|file| file.as_os_str() == "-");
        Self { recorder, picture, to_stdout }
    }

    /// Shows the page, and draws.
    ///
    /// # Errors
    /// Either cannot be written; the other is.
    pub(super) fn show(
        &mut self,
        page: impl FnOnce() -> String,
        picture: impl FnOnce() -> String,
    ) -> Result<()> {
        let printed = if self.to_stdout { Ok(()) } else { print(&page()) };
        let drawn = self.picture.as_mut().map_or(Ok(()), |(path, file)| {
            file.write_all(picture().as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        });
        drawn.and(printed.map_err(Into::into))
    }
}
