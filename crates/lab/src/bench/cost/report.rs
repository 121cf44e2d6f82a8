//! The tables: looks, the budget, and what is slowed.

use super::super::harness::{Ended, Head};
use super::matrix::Cell;
use super::records::{Counters, ResultLine, Start};
use std::fmt::Write as _;
use trimtab_core::stats::{Estimate, Interval};
use trimtab_front::table::{Align, Table};

/// The whole page.
pub(super) fn page(start: &Start, found: &[(Cell, ResultLine)], ended: Ended) -> String {
    let (Start { repeats, seed, budget, events, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let mut text = format!(
        "{summary}; Linux {kernel}\n{repeats} rounds in random order; medians with 95 % bootstrap intervals, seed {seed}\n"
    );
    let counted = match start.counters {
        Counters::Hardware => format!("counted: {} ({})", start.rung, events.join(", ")),
        Counters::Software => format!(
            "counted: events of the kernel's own ({}), since hardware counts nothing here: no goal of counting is judged",
            events.join(", ")
        ),
        Counters::None => "counted: nothing".to_owned(),
    };
    let _ = writeln!(text, "{counted}");
    if start.halved {
        text.push_str(
            "threads have one place here, where brm and serial would rest: they were told of two nodes\n",
        );
    }
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: short windows, few cases; not for conclusions\n");
    }
    let of = |part: fn(&Cell) -> bool| found.iter().filter(move |(cell, _)| part(cell)).collect::<Vec<_>>();
    let looks = of(|cell| matches!(cell, Cell::Looks { .. }));
    let budgets = of(|cell| matches!(cell, Cell::Budget { .. }));
    let slowed = of(|cell| matches!(cell, Cell::Slowing { .. }));
    if !looks.is_empty() {
        let _ = write!(
            text,
            "\nLooking every 10 ms: CPU time of the looking process, per cent of one core (goal with hardware's counters: below 0.5 for 100 threads)\n\n{}",
            tolls(&looks, ("OF 100 THREADS", "share_of_100"))
        );
    }
    if !budgets.is_empty() {
        let _ = write!(
            text,
            "\nThe budget of {} % of a core, kept by looking less often (goal: at most a twentieth more is taken)\n\n{}",
            100.0 * budget,
            tolls(&budgets, ("SHARE", "share"))
        );
    }
    if !slowed.is_empty() {
        let _ = write!(
            text,
            "\nHow much longer a turn takes, paired; one thread on each core (CPUs {}), looks every 10 ms (goal: counting below +1 %)\n\n{}",
            start.cpus,
            slowings(&slowed)
        );
    }
    let Ended { complete, runs, failed } = ended;
    let _ = writeln!(text, "\n{runs} runs");
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}

fn estimate_of(result: &ResultLine, name: &str) -> Option<Estimate> {
    result.figures.get(name)?.estimate
}

/// A median with its interval, as per cent.
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

fn plain(result: &ResultLine, name: &str, scale: f64, digits: usize) -> String {
    estimate_of(result, name)
        .map_or_else(|| "-".to_owned(), |Estimate { median, .. }| format!("{:.digits$}", median * scale))
}

fn met(result: &ResultLine) -> String {
    match result.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not judged",
    }
    .to_owned()
}

fn tolls(results: &[&(Cell, ResultLine)], (title, name): (&'static str, &str)) -> Table {
    let mut table = Table::new(&[
        ("POLICY", Align::Left),
        ("THREADS", Align::Left),
        (title, Align::Left),
        ("EVERY, ms", Align::Right),
        ("SEEN", Align::Right),
        ("COUNTED", Align::Right),
        ("GOAL", Align::Left),
    ]);
    for (cell, result) in results {
        let (kind, threads) = match cell {
            Cell::Looks { kind, counted, state, threads } => {
                (kind, format!("{threads} {state}{}", if *counted { ", counted" } else { "" }))
            }
            Cell::Budget { kind, counted, threads } => {
                (kind, format!("{threads} working{}", if *counted { ", counted" } else { "" }))
            }
            Cell::Slowing { .. } => continue,
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

fn slowings(results: &[&(Cell, ResultLine)]) -> Table {
    let mut table = Table::new(&[
        ("PROGRAM", Align::Left),
        ("LOOKED AT", Align::Left),
        ("AND COUNTED", Align::Left),
        ("COUNTING ALONE", Align::Left),
        ("GOAL", Align::Left),
    ]);
    for (cell, result) in results {
        let Cell::Slowing { work } = cell else { continue };
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
