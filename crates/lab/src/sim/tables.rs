//! Results of scenarios, as tables.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::table::{Align, Table};
use trimtab_sim::outcome::{Outcome, Value};
use trimtab_sim::scenario::file::{Axis, File};

/// Programs of a single run that are shown at most.
const PROGRAMS_MAX: usize = 20;

/// Formats all files, one after the other. Runs without an outcome did not take place.
pub(super) fn all(names: &[PathBuf], files: &[File], outcomes: &[Vec<Option<&Outcome>>]) -> String {
    let mut text = String::new();
    for ((name, file), outcomes) in names.iter().zip(files).zip(outcomes) {
        if !text.is_empty() {
            text.push('\n');
        }
        title(name, file, outcomes, &mut text);
        let _ = write!(text, "{}", runs(file, outcomes));
        if let [Some(outcome)] = outcomes[..] {
            let _ = write!(text, "\n{}", programs(outcome));
            if outcome.programs.len() > PROGRAMS_MAX {
                let _ = writeln!(text, "and {} more", outcome.programs.len() - PROGRAMS_MAX);
            }
        }
    }
    text
}

fn title(name: &Path, file: &File, outcomes: &[Option<&Outcome>], text: &mut String) {
    let done = outcomes.iter().flatten().count();
    let _ = match outcomes.len() {
        1 if done == 1 => writeln!(text, "{}", name.display()),
        all if done == all => {
            let keys: Vec<&str> = file.axes().iter().map(|axis| axis.key.as_str()).collect();
            writeln!(text, "{}: {} over {}", name.display(), plural(all, "run"), keys.join(", "))
        }
        all => writeln!(text, "{}: {done} of {} until the interruption", name.display(), plural(all, "run")),
    };
}

/// Formats a row for each run.
fn runs(file: &File, outcomes: &[Option<&Outcome>]) -> Table {
    let mut columns: Vec<(&str, Align)> =
        file.axes().iter().map(|axis: &Axis| (axis.key.as_str(), Align::Left)).collect();
    columns.extend(
        ["makespan", "ratio", "balance", "busy", "migrations", "moves", "ended", "per second"]
            .map(|name| (name, Align::Right)),
    );
    let mut table = Table::new(&columns);
    let shown: Vec<Vec<String>> = file.axes().iter().map(Axis::shown).collect();
    for (run, outcome) in (0..).zip(outcomes) {
        let Some(outcome) = outcome else { continue };
        let number = |value: Value, digits: usize| match value.of(outcome) {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_owned(),
        };
        let makespan =
            Value::Makespan.of(outcome).map_or_else(|| "-".to_owned(), |value| format!("{value:.3} s"));
        let own = || outcome.programs.iter().filter(|program| program.ends);
        let ended = own().filter(|program| program.makespan.is_some() && !program.stopped).count();
        let labels = shown.iter().zip(file.places(run)).map(|(axis, place)| axis[place].clone());
        let values = [
            makespan,
            number(Value::Ratio, 3),
            number(Value::Balance, 3),
            number(Value::Busy, 3),
            number(Value::Migrations, 0),
            number(Value::Moves, 0),
            format!("{ended}/{}", own().count()),
            number(Value::Throughput, 3),
        ];
        table.row(labels.chain(values));
    }
    table
}

/// Formats a row for each program.
fn programs(outcome: &Outcome) -> Table {
    let mut table = Table::new(&[
        ("program", Align::Left),
        ("threads", Align::Right),
        ("start", Align::Right),
        ("makespan", Align::Right),
        ("ratio", Align::Right),
        ("work", Align::Right),
        ("on CPUs", Align::Right),
        ("waiting for a CPU", Align::Right),
    ]);
    let seconds = |span: Span| format!("{:.3} s", span.seconds());
    for program in outcome.programs.iter().take(PROGRAMS_MAX) {
        let missing = || "-".to_owned();
        table.row([
            program.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
            program.threads.to_string(),
            seconds(program.start.since(Default::default())),
            program.makespan.map_or_else(missing, seconds),
            program.ratio.map_or_else(missing, |ratio| format!("{ratio:.3}")),
            seconds(program.work),
            seconds(program.run),
            seconds(program.wait),
        ]);
    }
    table
}
