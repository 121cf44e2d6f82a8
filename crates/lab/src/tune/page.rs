//! Text output of a tuning.

use super::record::{Ended, TuningStart};
use std::fmt::Write as _;
use std::path::Path;
use trimtab_core::stats::{Better, compare, median};
use trimtab_core::time::Span;
use trimtab_core::tuning::{Choice, End, Series};
use trimtab_core::words::plural;
use trimtab_front::table::{Align, Table};
use trimtab_front::units::series_time;

/// Returns the first line.
pub(super) fn begins(start: &TuningStart, budget: Span) -> String {
    let knobs: Vec<&str> = start.choices.iter().map(|choice| choice.knob.word()).collect();
    format!(
        "tuning {} on {}, start setting: {}; {}; at most {} (Ctrl-C keeps the measurements, --resume continues)",
        start.conditions.program.display(),
        plural(start.conditions.cores as usize, "core"),
        start.from,
        knobs.join(", "),
        series_time(budget)
    )
}

/// Returns the settings that would be tried.
pub(super) fn planned(start: &TuningStart, budget: Span) -> String {
    let mut table = Table::new(&[("KNOB", Align::Left), ("TRIED", Align::Left)]);
    let mut singles = 0;
    for Choice { knob, values } in &start.choices {
        let own = start.from.get(*knob);
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "unchanged".to_owned());
        let others: Vec<String> = values.iter().filter(|value| value.as_deref() != own).map(word).collect();
        singles += others.len();
        table.row([knob.word().to_owned(), others.join(", ")]);
    }
    for left in &start.left_out {
        table.row([left.knob.word().to_owned(), format!("not tried: {}", left.why)]);
    }
    format!(
        "{table}\n{} from the start setting ({}), full grid: {:.0} settings; only changes that help are combined and refined.\n\
         About {} runs, in {} at most.\n",
        plural(singles, "single change"),
        start.from,
        start.grid,
        // Each setting once or twice, the references between them, the neighbours of the best, and
        // the evidence.
        3 * singles + 25,
        series_time(budget)
    )
}

/// Returns the result. `faster` is a setting of the user's variables that is faster for certain.
pub(super) fn ended(start: &TuningStart, ended: &Ended, journal: &Path, faster: Option<&str>) -> String {
    let mut text = String::new();
    let found = &ended.found;
    if found.series.iter().any(|series| series.values.len() > 1) {
        let _ = writeln!(text, "{}", table(start, &found.series));
    }
    let runs = format!("{} in {}", plural(found.runs, "run"), series_time(found.spent));
    let command = start.command.join(" ");
    match (&found.winner, &ended.profile) {
        (Some(winner), Some(kept)) => {
            let percent = |ratio: f64| (ratio - 1.0) * 100.0;
            let _ = writeln!(
                text,
                "{} is better than {}: {:.2} times as {} ({:+.0} %, 95 % confidence {:+.0} to {:+.0} %; {} pairs of runs; {runs}).",
                winner.setting,
                start.from,
                kept.gain,
                if start.metric == "time" { "fast" } else { "good" },
                percent(kept.gain),
                percent(kept.low),
                percent(kept.high),
                winner.before.len()
            );
            for (knob, gain) in &winner.adds {
                let _ = writeln!(text, "  {knob} contributes {:+.0} %", percent(*gain));
            }
            match &ended.kept {
                Some(name) => {
                    let _ = writeln!(
                        text,
                        "Stored as tuning {name}: trimtab run {command} applies it from now on (not with --no-tuning); trimtab tune show {name} prints it."
                    );
                }
                None => {
                    let words = trimtab_launch::options::words(&winner.setting).join(" ");
                    let _ = writeln!(text, "Not stored (--no-store): trimtab run {words} {command}");
                }
            }
        }
        _ => {
            let why = match &found.end {
                End::Nothing | End::Won => format!(
                    "Nothing that the search tried is better than {} by {:.0} % or more, beyond the noise{} ({runs}).{}",
                    start.from,
                    start.gain_min * 100.0,
                    // Another value of a variable may still be better.
                    if faster.is_none() { ": no change" } else { "" },
                    untried(start)
                ),
                End::Spent => {
                    let (tried, all) = single_changes(start, &found.series);
                    let others = if tried < all { ", and nothing is known about the others" } else { "" };
                    format!(
                        "The budget was spent before a result was certain: {tried} of {all} single changes were tried{others} ({runs}). --resume with a larger --budget continues.{}",
                        untried(start)
                    )
                }
                End::Stopped => {
                    format!("Stopped: {runs} stored in {}; --resume continues.", journal.display())
                }
                End::Failed { .. } => return text,
            };
            let _ = writeln!(text, "{why}");
        }
    }
    if let Some(faster) = faster {
        let _ = writeln!(text, "{faster}");
    }
    text
}

/// Returns the knobs that were not tried, with the reasons, as a sentence.
fn untried(start: &TuningStart) -> String {
    let all: Vec<String> =
        start.left_out.iter().map(|left| format!("{} ({})", left.knob, left.why)).collect();
    if all.is_empty() { String::new() } else { format!(" Not tried: {}.", all.join("; ")) }
}

/// Returns the number of single changes of the start that were tried, and the number of all.
fn single_changes(start: &TuningStart, tried: &[Series]) -> (usize, usize) {
    let mut all = Vec::new();
    for choice in &start.choices {
        for value in
            choice.values.iter().map(Option::as_deref).filter(|value| *value != start.from.get(choice.knob))
        {
            let setting = start.from.clone().without(choice.knob);
            all.push(value.map_or(Ok(setting.clone()), |value| setting.with(choice.knob, value)));
        }
    }
    let has_run = |series: &&Series| !series.values.is_empty() || series.slow > 0 || series.failed.is_some();
    let ran: Vec<_> = tried.iter().filter(has_run).map(|series| &series.setting).collect();
    let count = all.iter().flatten().filter(|setting| ran.contains(setting)).count();
    (count, all.len())
}

/// Returns the table of the settings that were tried.
fn table(start: &TuningStart, all: &[Series]) -> String {
    let unit = if start.metric == "time" { "SECONDS" } else { "METRIC" };
    let columns = [
        ("SETTING", Align::Left),
        ("RUNS", Align::Right),
        (unit, Align::Right),
        ("TO START", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let better = if start.higher { Better::More } else { Better::Less };
    let base = all.iter().find(|series| series.setting == start.from);
    for series in all {
        let gain = base.and_then(|base| compare(&base.values, &series.values, better, start.seed).gain);
        let note = match (&series.failed, series.slow) {
            (Some(why), _) => format!("out: {why}"),
            (None, 1..) => format!("{} stopped as too slow", series.slow),
            _ => String::new(),
        };
        table.row([
            series.setting.to_string(),
            series.values.len().to_string(),
            median(&series.values).map_or("-".to_owned(), number),
            gain.map_or("-".to_owned(), |gain| format!("{:+.1} %", (gain.median - 1.0) * 100.0)),
            note,
        ]);
    }
    table.to_string()
}

/// Formats a number with four significant digits.
fn number(value: f64) -> String {
    let places = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9);
    format!("{value:.*}", usize::try_from(places).unwrap_or(0))
}
