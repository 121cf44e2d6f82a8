//! Report of `bench cost`: tables of samples, of the budget, and of slowdowns.

use super::super::harness::{Head, SeriesEnd};
use super::matrix::CostCell;
use super::records::{CostResult, CostStart, CountedEvents};
use std::fmt::Write as _;
use trimtab_core::stats::{Estimate, Interval};
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &CostStart, found: &[(CostCell, CostResult)], ended: SeriesEnd) -> String {
    let (CostStart { repeats, seed, budget, events, .. }, Head { summary, kernel, .. }) =
        (start, &start.head);
    let mut text = format!(
        "{summary}; Linux {kernel}\n{repeats} rounds in random order; medians with 95 % bootstrap intervals, seed {seed}\n"
    );
    let counted = match start.counters {
        CountedEvents::Hardware => format!("counted: {} ({})", start.rung, events.join(", ")),
        CountedEvents::Software => format!(
            "counted: kernel software events ({}), because no hardware counter works here: no goal of counting is judged",
            events.join(", ")
        ),
        CountedEvents::None => "counted: nothing".to_owned(),
    };
    let _ = writeln!(text, "{counted}");
    if start.halved {
        text.push_str(
            "threads have only one place here, where brm and serial would rest: the policies were given two nodes\n",
        );
    }
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: short windows, few cases; not for conclusions\n");
    }
    let of =
        |part: fn(&CostCell) -> bool| found.iter().filter(move |(cell, _)| part(cell)).collect::<Vec<_>>();
    let looks = of(|cell| matches!(cell, CostCell::Looks { .. }));
    let budgets = of(|cell| matches!(cell, CostCell::Budget { .. }));
    let slowed = of(|cell| matches!(cell, CostCell::Slowing { .. }));
    if !looks.is_empty() {
        let _ = write!(
            text,
            "\nSampling every 10 ms: CPU time of the sampling process, percentage of one core (goal with hardware counters: below 0.5 for 100 threads)\n\n{}",
            cost_table(&looks, ("OF 100 THREADS", "share_of_100"))
        );
    }
    if !budgets.is_empty() {
        let _ = write!(
            text,
            "\nBudget of {} % of one core, kept by sampling less often (goal: at most a twentieth more is used)\n\n{}",
            100.0 * budget,
            cost_table(&budgets, ("SHARE", "share"))
        );
    }
    if !slowed.is_empty() {
        let _ = write!(
            text,
            "\nSlowdown of a turn, from pairs of windows; one thread on each core (CPUs {}), samples every 10 ms (goal: counting below +1 %)\n\n{}",
            start.cpus,
            slowings(&slowed)
        );
    }
    let SeriesEnd { complete, runs, failed } = ended;
    let _ = writeln!(text, "\n{runs} runs");
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}

fn estimate_of(result: &CostResult, name: &str) -> Option<Estimate> {
    result.figures.get(name)?.estimate
}

/// Formats a median with its interval, in per cent.
fn percent(estimate: Option<Estimate>, sign: bool) -> String {
    let number = |share: f64| {
        let percent = 100.0 * share;
        if sign { format!("{percent:+.2}") } else { format!("{percent:.3}") }
    };
    match estimate {
        None => "-".to_owned(),
        Some(Estimate { median, interval: None }) => format!("{} %", number(median)),
        Some(Estimate { median, interval: Some(Interval { low, high }) }) => {
            format!("{} % [{}, {}]", number(median), number(low), number(high))
        }
    }
}

fn plain(result: &CostResult, name: &str, scale: f64, digits: usize) -> String {
    estimate_of(result, name)
        .map_or_else(|| "-".to_owned(), |Estimate { median, .. }| format!("{:.digits$}", median * scale))
}

fn met(result: &CostResult) -> String {
    match result.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not judged",
    }
    .to_owned()
}

fn cost_table(results: &[&(CostCell, CostResult)], (title, name): (&'static str, &str)) -> Table {
    let mut table = Table::new(&[
        ("POLICY", Align::Left),
        ("THREADS", Align::Left),
        (title, Align::Left),
        ("INTERVAL, ms", Align::Right),
        ("SEEN", Align::Right),
        ("COUNTED", Align::Right),
        ("GOAL", Align::Left),
    ]);
    for (cell, result) in results {
        let (kind, threads) = match cell {
            CostCell::Looks { kind, counted, state, threads } => {
                (kind, format!("{threads} {state}{}", if *counted { ", counted" } else { "" }))
            }
            CostCell::Budget { kind, counted, threads } => {
                (kind, format!("{threads} working{}", if *counted { ", counted" } else { "" }))
            }
            CostCell::Slowing { .. } => continue,
        };
        table.row([
            kind.to_string(),
            threads,
            percent(estimate_of(result, name), false),
            plain(result, "tick_ns", 1e-6, 1),
            plain(result, "threads", 1.0, 0),
            plain(result, "counted", 1.0, 0),
            met(result),
        ]);
    }
    table
}

fn slowings(results: &[&(CostCell, CostResult)]) -> Table {
    let mut table = Table::new(&[
        ("PROGRAM", Align::Left),
        ("SAMPLED", Align::Left),
        ("AND COUNTED", Align::Left),
        ("COUNTING ALONE", Align::Left),
        ("GOAL", Align::Left),
    ]);
    for (cell, result) in results {
        let CostCell::Slowing { work } = cell else { continue };
        let change = |name: &str| percent(estimate_of(result, name), true);
        table.row([
            work.to_string(),
            change("looked"),
            change("looked_and_counted"),
            change("counted"),
            met(result),
        ]);
    }
    table
}
