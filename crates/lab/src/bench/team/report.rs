//! Report of `bench team`: times of all contestants, teams compared with the best peer, CPU time,
//! and goals.

use super::super::harness::{Head, SeriesEnd};
use super::TeamFindings;
use super::contest::Contestant;
use super::goals::JudgedGoal;
use super::matrix::TeamCell;
use super::records::TeamStart;
use crate::args::Operation;
use std::fmt::Write as _;
use trimtab_core::stats::Estimate;
use trimtab_front::table::{Align, Table};
use trimtab_front::units;

/// Formats the whole report.
pub(super) fn page(
    start: &TeamStart,
    found: TeamFindings<'_>,
    judged: &[JudgedGoal],
    ended: SeriesEnd,
) -> String {
    let (TeamStart { rounds, seed, cpus, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let mut text = format!(
        "{summary}; Linux {kernel}\n{rounds} rounds in random order; medians of runs with 95 % bootstrap intervals, seed {seed}; \
         ranks may use {cpus} CPUs{}\n",
        if start.pinned { ", bound" } else { "" }
    );
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: one round, few cells; not for conclusions\n");
    }
    if start.unoptimised {
        text.push_str(
            "This trimtab was built without optimisation: the times of teams are not representative\n",
        );
    }
    let mut counts: Vec<u32> = found.cells.iter().map(|cell| cell.ranks).collect();
    counts.dedup();
    for ranks in counts {
        let cells: Vec<TeamCell> = found.cells.iter().copied().filter(|cell| cell.ranks == ranks).collect();
        let times = times(found, &cells);
        if times.is_empty() {
            continue;
        }
        let word = if ranks == 1 { "rank" } else { "ranks" };
        let _ = write!(text, "\n{ranks} {word}: microseconds per call, median (shortest)\n\n{times}");
        let _ = write!(text, "\n{ranks} {word}: teams\n\n{}", teams(found, &cells));
        let _ = write!(
            text,
            "\n{ranks} {word}: CPU microseconds of all ranks per call\n\n{}",
            cpu(found, &cells)
        );
    }
    text.push_str(
        "\n~: noisy runs, in which other processes used more than 5 % of the machine. RATIO: time over that of the fastest peer, below 1 is faster;\n\
         loose and resident calls, which peers do not have, are compared with peers in stream mode\n",
    );
    if !judged.is_empty() {
        text.push_str("\nGoals (times are for a machine of two cores)\n");
        for one in judged {
            let _ = writeln!(text, "  {one}");
        }
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

/// Formats a number with about three significant digits.
pub(super) fn number(value: f64) -> String {
    units::number(value, 2)
}

pub(super) fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

pub(super) fn interval(estimate: Option<Estimate>) -> String {
    let interval = estimate.and_then(|estimate| estimate.interval);
    or_dash(interval.map(|interval| format!("{} to {}", number(interval.low), number(interval.high))))
}

fn named(cell: TeamCell) -> [String; 3] {
    let mode = if cell.op == Operation::Barrier { "" } else { cell.mode.word() };
    [
        cell.op.word().to_owned(),
        if cell.bytes == 0 { String::new() } else { units::size(cell.bytes) },
        mode.to_owned(),
    ]
}

const NAMED: [(&str, Align); 3] = [("OPERATION", Align::Left), ("SIZE", Align::Right), ("MODE", Align::Left)];

/// Formats a table of all contestants that were measured in any of these cells.
fn of_all(
    found: TeamFindings<'_>,
    cells: &[TeamCell],
    shown: impl Fn(TeamCell, &Contestant) -> Option<String>,
) -> Table {
    let contestants: Vec<(&Contestant, String)> = found
        .contestants
        .iter()
        .filter(|contestant| cells.iter().any(|cell| found.of(*cell, contestant).is_some()))
        .map(|contestant| (contestant, contestant.to_string()))
        .collect();
    let mut columns = NAMED.to_vec();
    columns.extend(contestants.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for &cell in cells
        .iter()
        .filter(|cell| contestants.iter().any(|(contestant, _)| found.of(**cell, contestant).is_some()))
    {
        table.row(
            named(cell)
                .into_iter()
                .chain(contestants.iter().map(|(contestant, _)| or_dash(shown(cell, contestant)))),
        );
    }
    table
}

fn times(found: TeamFindings<'_>, cells: &[TeamCell]) -> Table {
    of_all(found, cells, |cell, contestant| {
        let samples = found.of(cell, contestant)?;
        let mark = if samples.is_noisy() { "~" } else { "" };
        Some(format!("{mark}{} ({})", number(samples.median()?), number(samples.least()?)))
    })
}

fn cpu(found: TeamFindings<'_>, cells: &[TeamCell]) -> Table {
    of_all(found, cells, |cell, contestant| Some(number(found.of(cell, contestant)?.cpu()?)))
}

fn teams(found: TeamFindings<'_>, cells: &[TeamCell]) -> Table {
    let mut columns = NAMED.to_vec();
    columns.extend([
        ("TEAM", Align::Left),
        ("MEDIAN", Align::Right),
        ("INTERVAL", Align::Right),
        ("SHORTEST", Align::Right),
        ("RATIO", Align::Right),
        ("INTERVAL", Align::Right),
        ("TO", Align::Left),
        ("", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    for &cell in cells {
        for contestant in
            found.contestants.iter().filter(|contestant| matches!(contestant, Contestant::Team(_)))
        {
            let Some(samples) = found.of(cell, contestant) else { continue };
            let (estimate, ratio) = (samples.estimate(found.seed), found.ratio(cell, contestant));
            let median =
                |estimate: Option<Estimate>| or_dash(estimate.map(|estimate| number(estimate.median)));
            table.row(named(cell).into_iter().chain([
                contestant.to_string(),
                median(estimate),
                interval(estimate),
                or_dash(samples.least().map(number)),
                median(ratio),
                interval(ratio),
                or_dash(found.best_peer(cell).map(|(peer, _)| peer.to_string())),
                if samples.is_noisy() { "~".to_owned() } else { String::new() },
            ]));
        }
    }
    table
}
