//! `trimtab sim SCENARIO.toml --check`: scenarios run under all checkers.

use super::scenario::open;
use crate::args::ScenarioArgs;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use trimtab_front::exit::{self, Exit};
use trimtab_front::print;
use trimtab_sim::checkers::{Violation, check};
use trimtab_sim::scenario::Scenario;

/// Schema version of the JSON.
const SCHEMA: &str = "trimtab.sim.check/1";

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] if a scenario cannot be read.
pub(super) fn run(args: &ScenarioArgs) -> Result<u8, Exit> {
    judge(args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// A run as a JSON line.
#[derive(Serialize)]
struct CheckLine<'a> {
    schema: &'static str,
    scenario: &'a str,
    run: usize,
    events: u64,
    violations: &'a [Violation],
}

fn judge(args: &ScenarioArgs) -> Result<u8> {
    let mut scenarios: Vec<(String, usize, Scenario)> = Vec::new();
    for path in &args.files {
        let file = open(path, args)?;
        for run in 0..file.len() {
            scenarios.push((path.display().to_string(), run + 1, file.scenario(run)?));
        }
    }
    let mut broken = 0;
    for ((file, run, _), (events, violations)) in scenarios.iter().zip(all(args, &scenarios)) {
        broken += usize::from(!violations.is_empty());
        if args.json {
            let line =
                CheckLine { schema: SCHEMA, scenario: file, run: *run, events, violations: &violations };
            print(&format!("{}\n", serde_json::to_string(&line)?))?;
            continue;
        }
        let mut text = file.clone();
        if *run > 1 {
            let _ = write!(text, ", run {run}");
        }
        let _ = match violations.is_empty() {
            true => writeln!(text, ": no invariant is broken ({events} events)"),
            false => writeln!(text, ": an invariant is broken ({events} events)"),
        };
        for violation in &violations {
            let _ = writeln!(text, "  {violation}");
        }
        print(&text)?;
    }
    Ok(if broken > 0 { exit::NO } else { exit::DONE })
}

/// Checks the scenarios on all cores; the results are in the order of the scenarios.
fn all(args: &ScenarioArgs, scenarios: &[(String, usize, Scenario)]) -> Vec<(u64, Vec<Violation>)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, |jobs| jobs as usize).min(scenarios.len());
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![(0, Vec::new()); scenarios.len()]);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((at, (_, _, scenario))) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    scenarios.get(at).map(|scenario| (at, scenario))
                } {
                    let (outcome, violations) = check(scenario);
                    found.lock().unwrap_or_else(PoisonError::into_inner)[at] = (outcome.events, violations);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}
