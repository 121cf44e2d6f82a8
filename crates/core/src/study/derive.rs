//! Figures derived from samples: slowdowns with their intervals, pairs, and the gain of sharing
//! over partitioning.

use super::{Arrangement, Sample, Status, StudyCell};
use crate::stats::{self, Estimate};
use serde::Serialize;

/// Summary of all samples of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Configuration.
    #[serde(flatten)]
    pub cell: StudyCell,
    /// Number of runs with a time.
    pub samples: usize,
    /// Number of these that were stopped because they took too long.
    pub stopped: usize,
    /// Number of failed runs.
    pub failed: usize,
    /// Median time of the part that the program times.
    pub seconds: Option<Estimate>,
    /// Median of the ratios to the baselines that ran just before.
    pub slowdown: Option<Estimate>,
    /// Whether the median lies among the stopped runs: the slowdown is then larger than the figure.
    pub at_least: bool,
    /// Longest time of the runs that ended over their shortest, less 1, in per cent, without
    /// baselines; `None` for fewer than two.
    pub variation: Option<f64>,
    /// CPU time of all threads in seconds: median of user plus system.
    pub cpu: Option<f64>,
    /// Median of lowest over highest user time of the cores.
    pub balance: Option<f64>,
    /// Seconds between two barriers of all threads at the baseline's speed.
    pub interval: Option<f64>,
}

/// Summarises samples by cell, in the order in which cells first appear.
pub fn cells(samples: &[Sample], seed: u64) -> Vec<Summary> {
    let mut groups: Vec<(&StudyCell, Vec<&Sample>)> = Vec::new();
    for sample in samples {
        match groups.iter_mut().find(|(cell, _)| **cell == sample.cell) {
            Some((_, group)) => group.push(sample),
            None => groups.push((&sample.cell, vec![sample])),
        }
    }
    groups.into_iter().map(|(cell, group)| summary(cell, &group, seed)).collect()
}

fn summary(cell: &StudyCell, group: &[&Sample], seed: u64) -> Summary {
    let timed: Vec<&Sample> = group.iter().copied().filter(|one| one.status != Status::Failed).collect();
    let all = |of: &dyn Fn(&Sample) -> Option<f64>| -> Vec<f64> {
        timed.iter().filter_map(|one| of(one)).collect()
    };
    let ratios = all(&|one| one.slowdown());
    let median = |of: &dyn Fn(&Sample) -> Option<f64>| stats::median(&all(of));
    let slowdown = stats::estimate(&ratios, seed);
    // A stopped run lies above its bound by an unknown amount: the median is known if the values
    // that make it are below all bounds.
    let bounds = timed.iter().filter(|one| one.status == Status::Slower).filter_map(|one| one.slowdown());
    let least = bounds.fold(f64::INFINITY, f64::min);
    let below = ratios.iter().filter(|ratio| **ratio < least).count();
    Summary {
        cell: cell.clone(),
        samples: timed.len(),
        stopped: timed.iter().filter(|one| one.status == Status::Slower).count(),
        failed: group.len() - timed.len(),
        seconds: stats::estimate(&all(&|one| one.seconds), seed),
        slowdown,
        at_least: slowdown.is_some() && below <= ratios.len() / 2,
        variation: variation(group),
        cpu: median(&|one| Some(one.user? + one.system?)),
        balance: median(&|one| one.balance),
        interval: median(&|one| one.interval),
    }
}

/// Returns the variation of the times of the runs that ended. The time of a stopped run is not
/// known. Baselines do not count: they are of the cell with one floating thread per core, which
/// would have many more runs than the cells it is compared with, and so a larger range.
fn variation(group: &[&Sample]) -> Option<f64> {
    let ended = group.iter().filter(|one| one.status == Status::Done && one.beside.is_some());
    let times: Vec<f64> = ended.filter_map(|one| one.seconds).filter(|seconds| *seconds > 0.0).collect();
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = times.iter().copied().fold(0.0, f64::max);
    (times.len() > 1).then(|| 100.0 * (longest / shortest - 1.0))
}

/// Returns the configuration with the smallest slowdown, among those of the same program with the
/// same runtime, alone, on the same cores: a reference for comparisons. Cases with a schedule are
/// another binary, and do not count.
pub fn best<'s>(summaries: &'s [Summary], of: &StudyCell) -> Option<&'s Summary> {
    let known = |one: &&Summary| one.slowdown.is_some() && !one.at_least;
    let alike = |one: &&Summary| {
        let key = |cell: &StudyCell| (cell.program.clone(), cell.class.clone(), cell.runtime, cell.cores);
        one.cell.company.is_none() && one.cell.schedule.is_none() && key(&one.cell) == key(of)
    };
    let median = |one: &Summary| one.slowdown.map_or(f64::INFINITY, |slowdown| slowdown.median);
    summaries.iter().filter(alike).filter(known).min_by(|one, other| median(one).total_cmp(&median(other)))
}

/// Two programs that ran at the same time, in one arrangement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    /// First program.
    pub first: StudyCell,
    /// Second program.
    pub second: StudyCell,
    /// Division of the cores.
    pub arrangement: Arrangement,
    /// Number of rounds in which both have a time.
    pub rounds: usize,
    /// Time of each over that of its baseline: alone, on all cores, one thread per core.
    pub slowdowns: [Option<Estimate>; 2],
    /// Sum of both speeds, relative to the baselines: 1 is the result of running one after the
    /// other.
    pub throughput: Option<Estimate>,
    /// Smaller slowdown over the larger: 1 is fair.
    pub fairness: Option<Estimate>,
    /// Whether either was stopped in a round because it took too long: its slowdown is then larger
    /// than the figure.
    pub at_least: [bool; 2],
    /// Throughput of each round, in order.
    #[serde(skip)]
    throughputs: Vec<f64>,
}

/// Returns all pairs, in the order in which they first appear.
pub fn pairs(samples: &[Sample], seed: u64) -> Vec<Pair> {
    let mut groups: Vec<(&StudyCell, &StudyCell, Vec<[&Sample; 2]>)> = Vec::new();
    let seconds: Vec<&Sample> = samples.iter().filter(|one| place(one) == Some(2)).collect();
    for first in samples.iter().filter(|one| place(one) == Some(1)) {
        let Some(second) =
            seconds.iter().find(|second| second.round == first.round && met(&first.cell, &second.cell))
        else {
            continue;
        };
        match groups.iter_mut().find(|(one, other, _)| **one == first.cell && **other == second.cell) {
            Some((.., group)) => group.push([first, second]),
            None => groups.push((&first.cell, &second.cell, vec![[first, second]])),
        }
    }
    groups.into_iter().filter_map(|(first, second, group)| pair(first, second, &group, seed)).collect()
}

fn place(sample: &Sample) -> Option<u8> {
    sample.cell.company.as_ref().map(|company| company.place)
}

/// Returns whether each is the other's company.
fn met(first: &StudyCell, second: &StudyCell) -> bool {
    let names = |one: &StudyCell, other: &StudyCell| {
        one.company.as_ref().is_some_and(|company| {
            (&company.program, &company.class, company.runtime, company.per_core)
                == (&other.program, &other.class, other.runtime, other.per_core)
        })
    };
    let arrangement = |cell: &StudyCell| cell.company.as_ref().map(|company| company.arrangement);
    let alike =
        (first.grip, first.wait, arrangement(first)) == (second.grip, second.wait, arrangement(second));
    alike && names(first, second) && names(second, first)
}

fn pair(first: &StudyCell, second: &StudyCell, group: &[[&Sample; 2]], seed: u64) -> Option<Pair> {
    let arrangement = first.company.as_ref()?.arrangement;
    let both: Vec<[f64; 2]> =
        group.iter().filter_map(|[one, other]| Some([one.slowdown()?, other.slowdown()?])).collect();
    let each = |of: &dyn Fn(&[f64; 2]) -> f64| -> Vec<f64> { both.iter().map(of).collect() };
    let throughputs = each(&|[one, other]| 1.0 / one + 1.0 / other);
    Some(Pair {
        first: first.clone(),
        second: second.clone(),
        arrangement,
        rounds: both.len(),
        slowdowns: [
            stats::estimate(&each(&|both| both[0]), seed),
            stats::estimate(&each(&|both| both[1]), seed),
        ],
        throughput: stats::estimate(&throughputs, seed),
        fairness: stats::estimate(&each(&|[one, other]| one.min(*other) / one.max(*other)), seed),
        at_least: [0, 1].map(|place: usize| group.iter().any(|both| both[place].status == Status::Slower)),
        throughputs,
    })
}

/// The same pair in both arrangements: sharing all cores, and with half of them each.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sharing<'p> {
    /// The pair with shared cores.
    pub shared: &'p Pair,
    /// The pair with half of the cores each.
    pub partitioned: &'p Pair,
    /// Throughput of sharing over that of partitioning: above 1 sharing gains.
    pub gain: Option<Estimate>,
}

/// Compares sharing with partitioning, for all pairs that ran in both arrangements.
pub fn sharing(pairs: &[Pair], seed: u64) -> Vec<Sharing<'_>> {
    let of = |arrangement| pairs.iter().filter(move |pair| pair.arrangement == arrangement);
    let partner =
        |shared: &Pair| of(Arrangement::Partitioned).find(|other| same_but_arrangement(shared, other));
    let beside = |shared| {
        let partitioned = partner(shared)?;
        let gain = stats::ratio_of_medians(&shared.throughputs, &partitioned.throughputs, seed);
        Some(Sharing { shared, partitioned, gain })
    };
    of(Arrangement::Shared).filter_map(beside).collect()
}

fn same_but_arrangement(one: &Pair, other: &Pair) -> bool {
    let key = |cell: &StudyCell| {
        (cell.program.clone(), cell.class.clone(), cell.runtime, cell.per_core, cell.grip, cell.wait)
    };
    key(&one.first) == key(&other.first) && key(&one.second) == key(&other.second)
}
