//! `trimtab sim SCENARIO.toml`: runs of scenarios, and their results.
//!
//! All files are read and all outputs are opened before the first run. Runs are carried out by
//! `pool`, recorded by `traces`, and shown by `tables` and `chart`.

use super::{RunPosition, chart, is_stdout, pool, tables, traces};
use crate::args::ScenarioArgs;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use trimtab_core::drive::Go;
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::{print, progress};
use trimtab_sim::outcome::Outcome;
use trimtab_sim::reader::MOST_TEXT;
use trimtab_sim::scenario;
use trimtab_sim::scenario::file::{File, series};

/// Schema version of a run's JSON.
const SCHEMA: &str = "trimtab.sim/1";

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] if a scenario cannot be read, or an output cannot be written.
pub(super) fn run(args: &ScenarioArgs) -> Result<u8, Exit> {
    simulate(args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// A run as a JSON line.
#[derive(Serialize)]
struct ScenarioLine<'a> {
    schema: &'static str,
    scenario: &'a str,
    run: usize,
    set: BTreeMap<&'a str, &'a str>,
    seed: u64,
    policy: Option<&'static str>,
    outcome: &'a Outcome,
}

/// Result of a run.
struct FinishedRun {
    name: String,
    seed: u64,
    policy: Option<&'static str>,
    outcome: Outcome,
}

/// Returns whether a chart or a trace goes to standard output, instead of the table.
fn taken(args: &ScenarioArgs) -> Result<bool> {
    let is = |path: Option<&Path>| path.is_some_and(is_stdout);
    let all = [
        ("--svg -", is(args.svg.as_deref())),
        ("--trace -", is(args.trace.as_deref())),
        ("--json", args.json),
    ];
    let on: Vec<&str> = all.into_iter().filter(|(_, on)| *on).map(|(option, _)| option).collect();
    match on[..] {
        [one, other, ..] => {
            bail!("{one} and {other} would both be written to standard output: give one of them a file")
        }
        [one] => Ok(one != "--json"),
        [] => Ok(false),
    }
}

fn simulate(args: &ScenarioArgs) -> Result<u8> {
    let taken = taken(args)?;
    if args.files.iter().filter(|file| is_stdout(file)).count() > 1 {
        bail!("standard input is given twice, but can be read only once");
    }
    let files: Arc<Vec<File>> =
        Arc::new(args.files.iter().map(|file| open(file, args)).collect::<Result<_>>()?);
    let cells: Vec<RunPosition> = (0..files.len())
        .flat_map(|file| (0..files[file].len()).map(move |run| RunPosition { file, run }))
        .collect();
    let traces =
        args.trace.as_deref().map(|path| traces::Traces::open(path, &args.files, &files)).transpose()?;
    let picture = args.svg.as_deref().map(|path| chart::Picture::open(path, &files)).transpose()?;
    let interrupt = Interrupt::listen()?;
    let bar = progress::bar(cells.len());
    let (count, work_files, work_cells) = (cells.len(), Arc::clone(&files), cells.clone());
    let work = move |at: usize| one(&work_files, work_cells[at], traces.as_ref());
    let mut outcomes: Vec<Option<Outcome>> = vec![None; count];
    let mut trouble = Ok(());
    let complete =
        pool::in_order(count, pool::jobs(args.jobs), &interrupt, work, |at, done: Result<FinishedRun>| {
            bar.inc(1);
            let told = done.and_then(|done| {
                if args.json {
                    let line = line(&files, cells[at], &done);
                    bar.suspend(|| print(&line))?;
                }
                outcomes[at] = Some(done.outcome);
                Ok(())
            });
            trouble = told;
            trouble.is_ok()
        });
    bar.finish_and_clear();
    trouble?;
    let mut next = outcomes.iter();
    let by_file: Vec<Vec<Option<&Outcome>>> =
        files.iter().map(|file| next.by_ref().take(file.len()).map(Option::as_ref).collect()).collect();
    if !args.json && !taken {
        print(&tables::all(&args.files, &files, &by_file))?;
    }
    if let Some(picture) = picture {
        let lines = |(file, outcomes): (&File, &Vec<Option<&Outcome>>)| {
            let values: Vec<Option<f64>> =
                outcomes.iter().map(|outcome| outcome.and_then(|outcome| args.value.of(outcome))).collect();
            series(file, &values)
        };
        let lines: Vec<_> = files.iter().zip(&by_file).map(lines).collect();
        picture.write(&chart::picture(&files, &lines, args.value))?;
    }
    if let Some(signal) = interrupt.came() {
        return Ok(exit::by_signal(signal));
    }
    if !complete {
        bail!("the simulation ended early");
    }
    Ok(exit::DONE)
}

/// Runs one cell, and records it if requested.
fn one(files: &[File], cell: RunPosition, traces: Option<&traces::Traces>) -> Result<FinishedRun> {
    let scenario = files[cell.file].scenario(cell.run)?;
    let policy = scenario.policy.as_ref().map(|(kind, _)| kind.word());
    let (name, seed) = (scenario.name.clone(), scenario.seed);
    let outcome = match traces {
        Some(traces) => traces.run(scenario, cell)?,
        None => scenario::run(&scenario, &mut |_| {}, &mut |_| Go::On),
    };
    Ok(FinishedRun { name, seed, policy, outcome })
}

fn line(files: &[File], cell: RunPosition, done: &FinishedRun) -> String {
    let file = &files[cell.file];
    let places = file.places(cell.run);
    let set =
        file.axes().iter().zip(places).map(|(axis, place)| (axis.key.as_str(), axis.values[place].as_str()));
    let line = ScenarioLine {
        schema: SCHEMA,
        scenario: &done.name,
        run: cell.run + 1,
        set: set.collect(),
        seed: done.seed,
        policy: done.policy,
        outcome: &done.outcome,
    };
    serde_json::to_string(&line).unwrap_or_default()
}

/// Reads a scenario file, and applies the keys set by options. Machine files that it names are
/// searched beside it.
pub(super) fn open(path: &Path, args: &ScenarioArgs) -> Result<File> {
    let stdin = path.as_os_str() == "-";
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let text = if stdin { limited(&mut std::io::stdin().lock(), &name) } else { text(path) }?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut machines = |machine: &str| text_of(&folder.join(machine));
    let mut set = args.set.clone();
    set.extend(args.seed.map(|seed| format!("seed={seed}")));
    Ok(File::open(&name, &text, &set, &mut machines)?)
}

fn text_of(path: &Path) -> Result<String, String> {
    text(path).map_err(|error| format!("{error:#}"))
}

fn text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
    if meta.is_dir() {
        bail!("cannot read {name}: it is a folder");
    }
    let mut file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    limited(&mut file, &name)
}

/// Reads at most one byte more than the reader accepts, so that the reader can report a text that
/// is too long.
fn limited(from: &mut dyn Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST_TEXT as u64 + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{name} is not text"))
}
