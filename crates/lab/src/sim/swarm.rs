//! `trimtab sim swarm`: randomly drawn scenarios, run under all checkers on all cores.
//!
//! Workers take the next number until the time or the numbers run out, or a lower number has
//! failed. The reported failure is therefore the first of the seed, for any number of workers.

use crate::args::SwarmArgs;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use trimtab_core::words::plural;
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::{print, progress};
use trimtab_sim::checkers::Violation;
use trimtab_sim::scenario::file::write;
use trimtab_sim::swarm::{DraftRun, Shrunk, Size, draw, run as run_draft, shrink};

/// Schema version of the JSON.
const SCHEMA: &str = "trimtab.sim.swarm/1";

/// Default duration, in seconds.
const SECONDS_DEFAULT: u64 = 60;

/// Searches for faults.
///
/// # Errors
/// [`exit::FAILED`] if a file cannot be written.
pub(super) fn run(args: &SwarmArgs) -> Result<u8, Exit> {
    hunt(args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// First line of the JSON output.
#[derive(Serialize)]
struct SwarmStart {
    schema: &'static str,
    seed: u64,
}

/// Last line of the JSON output.
#[derive(Serialize)]
struct SwarmEnd<'a> {
    schema: &'static str,
    seed: u64,
    runs: u64,
    events: u64,
    /// Whether no signal ended the search early.
    complete: bool,
    failure: Option<Failure<'a>>,
}

/// The first scenario that failed.
#[derive(Serialize)]
struct Failure<'a> {
    number: u64,
    violations: &'a [Violation],
    /// Number of simpler scenarios tried in the reduction.
    tried: usize,
    /// Whether the reduction was finished in time.
    smallest: bool,
    /// Violations of the reduced scenario.
    shrunk: &'a [Violation],
    file: &'a str,
    again: String,
}

/// Time limit of the search.
struct SwarmTime<'t> {
    begin: Instant,
    most: Option<Duration>,
    interrupt: &'t Interrupt,
}

impl SwarmTime<'_> {
    /// Returns whether there is time left.
    fn is_left(&self) -> bool {
        self.interrupt.came().is_none() && self.most.is_none_or(|most| self.begin.elapsed() < most)
    }
}

/// Results of the runs so far.
#[derive(Default)]
struct Tally {
    runs: u64,
    events: u64,
    first: Option<(u64, DraftRun)>,
}

fn hunt(args: &SwarmArgs) -> Result<u8> {
    if !args.out.is_dir() {
        bail!("{}: no such folder; give an existing one with --out", args.out.display());
    }
    let seed = args.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    // Before the first output: a process that has read it may send a signal at once.
    let interrupt = Interrupt::listen()?;
    match args.json {
        true => say_json(&SwarmStart { schema: SCHEMA, seed })?,
        false => print(&format!("seed {seed}\n"))?,
    }
    let size = size(args);
    let seconds = args.seconds.or(args.runs.is_none().then_some(SECONDS_DEFAULT));
    let most = seconds.map(Duration::from_secs);
    let time = SwarmTime { begin: Instant::now(), most, interrupt: &interrupt };
    let tally = work(args, seed, &time);
    let signal = || interrupt.came();
    let Some((number, run)) = tally.first.as_ref() else {
        end(args, seed, &tally, signal().is_none(), None)?;
        return Ok(signal().map_or(exit::DONE, exit::by_signal));
    };
    let shrunk = shrink(&draw(seed, *number, size), &run.violations, &|| time.is_left());
    let (file, again) = keep(args, seed, *number, &shrunk)?;
    let failure = Failure {
        number: *number,
        violations: &run.violations,
        tried: shrunk.tried,
        smallest: shrunk.whole,
        shrunk: &shrunk.violations,
        file: &file,
        again,
    };
    end(args, seed, &tally, signal().is_none(), Some(failure))?;
    Ok(exit::NO)
}

fn size(args: &SwarmArgs) -> Size {
    if args.small { Size::Small } else { Size::Any }
}

/// Runs scenarios until one fails or the time is over.
fn work(args: &SwarmArgs, seed: u64, time: &SwarmTime<'_>) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, |jobs| jobs as usize);
    // The argument parser bounds `first`, so the numbers cannot run out.
    let last = args.runs.map_or(u64::MAX, |runs| args.first.saturating_add(runs));
    let next = AtomicU64::new(args.first);
    let tally = Mutex::new(Tally::default());
    let steps = args.runs.or(time.most.map(|most| most.as_secs())).unwrap_or(SECONDS_DEFAULT);
    let bar = progress::bar(usize::try_from(steps).unwrap_or(usize::MAX));
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let found =
                tally.lock().unwrap_or_else(PoisonError::into_inner).first.as_ref().map(|(at, _)| *at);
            // All numbers below a failed one are run: they were taken before it.
            if number >= last || found.is_some_and(|found| number > found) || !time.is_left() {
                return;
            }
            let run = run_draft(&draw(seed, number, size(args)));
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.runs += 1;
            tally.events += run.events;
            let done = if args.runs.is_some() { tally.runs } else { time.begin.elapsed().as_secs() };
            bar.set_position(done);
            bar.set_message(format!("{} scenarios", tally.runs));
            let lower = tally.first.as_ref().is_none_or(|(at, _)| number < *at);
            if lower && !run.violations.is_empty() {
                tally.first = Some((number, run));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(worker);
        }
    });
    bar.finish_and_clear();
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the reduced scenario; returns its path, and the command that runs it again.
fn keep(args: &SwarmArgs, seed: u64, number: u64, shrunk: &Shrunk) -> Result<(String, String)> {
    let small = if args.small { " --small" } else { "" };
    let found = format!("trimtab sim swarm --seed {seed} --first {number} --runs 1{small}");
    let path: PathBuf = args.out.join(format!("swarm-{seed}-{number}.toml"));
    let again = format!("trimtab sim {} --check", path.display());
    let mut text =
        format!("# Found by {found}\n# Run again with trimtab sim FILE --check. Broken invariants:\n");
    for violation in &shrunk.violations {
        let _ = writeln!(text, "# {violation}");
    }
    text.push_str(&write(&shrunk.draft.scenario())?);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path.display().to_string(), again))
}

fn end(
    args: &SwarmArgs,
    seed: u64,
    tally: &Tally,
    complete: bool,
    failure: Option<Failure<'_>>,
) -> Result<()> {
    let (runs, events) = (tally.runs, tally.events);
    if args.json {
        return say_json(&SwarmEnd { schema: SCHEMA, seed, runs, events, complete, failure });
    }
    let mut text = format!("{}, {}: ", plural(runs, "scenario"), plural(events, "event"));
    match failure {
        None if complete => text.push_str("no invariant was broken\n"),
        None => text.push_str("no invariant was broken until the interruption\n"),
        Some(failure) => {
            let _ = writeln!(text, "number {} breaks an invariant", failure.number);
            for violation in failure.violations {
                let _ = writeln!(text, "  {violation}");
            }
            let runs = plural(failure.tried, "run");
            let _ = match failure.smallest {
                true => writeln!(text, "reduced in {runs}: {}", failure.file),
                false => writeln!(text, "partly reduced in {runs} until the time was over: {}", failure.file),
            };
            for violation in failure.shrunk {
                let _ = writeln!(text, "  {violation}");
            }
            let _ = writeln!(text, "run it again: {}", failure.again);
        }
    }
    print(&text)?;
    Ok(())
}

fn say_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string(value)?))?;
    Ok(())
}
