//! Report of the kernels: times of all contestants, teams compared with the best peer, processes
//! with threads, CPU time and communication.

use super::super::super::harness::{Head, SeriesEnd};
use super::super::contest::Contestant;
use super::super::report::{interval, number, or_dash};
use super::KernelsFindings;
use super::matrix::KernelsCell;
use super::records::KernelsStart;
use crate::args::{Class, NasKernel};
use std::fmt::Write as _;
use trimtab_core::stats::Estimate;
use trimtab_front::args::ranks::RankLayout;
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &KernelsStart, found: KernelsFindings<'_>, ended: SeriesEnd) -> String {
    let (KernelsStart { rounds, seed, cpus, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let mut text = format!(
        "{summary}; Linux {kernel}\n{rounds} rounds in random order; medians of runs with 95 % bootstrap intervals, seed {seed}; \
         ranks may use {cpus} CPUs{}\n",
        if start.pinned { ", bound" } else { "" }
    );
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: one round, a small class; not for conclusions\n");
    }
    let mut kernels: Vec<(NasKernel, Class)> =
        found.cells.iter().map(|cell| (cell.kernel, cell.class)).collect();
    kernels.dedup();
    for (kernel, class) in kernels {
        let cells: Vec<KernelsCell> =
            found.cells.iter().copied().filter(|cell| cell.kernel == kernel).collect();
        let times = times(found, &cells);
        if times.is_empty() {
            continue;
        }
        let name = format!("{}, class {}", kernel.word().to_uppercase(), class.word());
        let _ = write!(text, "\n{name}: milliseconds, median (shortest)\n\n{times}");
        let _ = write!(text, "\n{name}: teams compared with the fastest peer\n\n{}", teams(found, &cells));
        let beside = beside_threads(found, &cells);
        if !beside.is_empty() {
            let _ = write!(text, "\n{name}: time of processes / time of threads\n\n{beside}");
        }
        let _ = write!(text, "\n{name}: CPU milliseconds of all ranks\n\n{}", cpu(found, &cells));
        let _ = write!(text, "\n{name}: percentage of time in the library\n\n{}", shares(found, &cells));
    }
    text.push_str(
        "\n~: noisy runs, in which other processes used more than 5 % of the machine. Resident teams, and threads of OpenMP, read exchanged data in\n\
         place: during their arithmetic, not in the library. RATIO: below 1 is faster; resident teams are compared with peers in stream mode\n",
    );
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

fn milliseconds(seconds: f64) -> String {
    number(seconds * 1e3)
}

fn named(cell: KernelsCell) -> [String; 2] {
    [cell.ranks.to_string(), cell.mode.word().to_owned()]
}

const NAMED: [(&str, Align); 2] = [("RANKS", Align::Right), ("MODE", Align::Left)];

/// Formats a table of the contestants for which `shown` has a value, by cells.
fn of_all(
    found: KernelsFindings<'_>,
    cells: &[KernelsCell],
    shown: impl Fn(KernelsCell, &Contestant) -> Option<String>,
) -> Table {
    let contestants: Vec<(&Contestant, String)> = found
        .contestants
        .iter()
        .filter(|contestant| cells.iter().any(|cell| shown(*cell, contestant).is_some()))
        .map(|contestant| (contestant, contestant.to_string()))
        .collect();
    let mut columns = NAMED.to_vec();
    columns.extend(contestants.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for &cell in cells
        .iter()
        .filter(|cell| contestants.iter().any(|(contestant, _)| shown(**cell, contestant).is_some()))
    {
        table.row(
            named(cell)
                .into_iter()
                .chain(contestants.iter().map(|(contestant, _)| or_dash(shown(cell, contestant)))),
        );
    }
    table
}

fn times(found: KernelsFindings<'_>, cells: &[KernelsCell]) -> Table {
    of_all(found, cells, |cell, contestant| {
        let samples = found.of(cell, contestant)?;
        let mark = if samples.is_noisy() { "~" } else { "" };
        Some(format!("{mark}{} ({})", milliseconds(samples.median()?), milliseconds(samples.least()?)))
    })
}

fn beside_threads(found: KernelsFindings<'_>, cells: &[KernelsCell]) -> Table {
    of_all(found, cells, |cell, contestant| {
        let ratio = found.beside_threads(cell, contestant)?;
        let noisy =
            |contestant: &Contestant| found.of(cell, contestant).is_some_and(|samples| samples.is_noisy());
        let mark = if noisy(contestant) || noisy(&Contestant::Team(RankLayout::Threads)) { "~" } else { "" };
        let range = ratio.interval.map(|_| format!(" ({})", interval(Some(ratio))));
        Some(format!("{mark}{}{}", number(ratio.median), range.unwrap_or_default()))
    })
}

fn cpu(found: KernelsFindings<'_>, cells: &[KernelsCell]) -> Table {
    of_all(found, cells, |cell, contestant| Some(milliseconds(found.of(cell, contestant)?.cpu()?)))
}

fn shares(found: KernelsFindings<'_>, cells: &[KernelsCell]) -> Table {
    of_all(found, cells, |cell, contestant| {
        Some(format!("{:.0}", 100.0 * found.of(cell, contestant)?.share()?))
    })
}

fn teams(found: KernelsFindings<'_>, cells: &[KernelsCell]) -> Table {
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
            let (ratio, best) = (found.ratio(cell, contestant), found.best_peer(cell));
            let noisy = samples.is_noisy() || best.is_some_and(|(_, peer)| peer.is_noisy());
            let estimate = samples.estimate(found.seed).map(in_milliseconds);
            let median =
                |estimate: Option<Estimate>| or_dash(estimate.map(|estimate| number(estimate.median)));
            table.row(named(cell).into_iter().chain([
                contestant.to_string(),
                median(estimate),
                interval(estimate),
                or_dash(samples.least().map(milliseconds)),
                median(ratio),
                interval(ratio),
                or_dash(best.map(|(peer, _)| peer.to_string())),
                if noisy { "~".to_owned() } else { String::new() },
            ]));
        }
    }
    table
}

fn in_milliseconds(estimate: Estimate) -> Estimate {
    let interval = estimate.interval.map(|mut interval| {
        interval.low *= 1e3;
        interval.high *= 1e3;
        interval
    });
    Estimate { median: estimate.median * 1e3, interval }
}
