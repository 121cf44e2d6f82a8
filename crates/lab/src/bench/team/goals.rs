//! Goals of the project for the speed of teams, and their judgement.
//!
//! Unit: microseconds, or ratios of medians. Times hold for a machine of two cores; ratios hold on
//! any machine. Only clean runs are judged, and at least [`SAMPLES_MIN`] of them. A goal for many
//! cells is judged on those with enough runs, and states their number.

use super::TeamFindings;
use super::contest::Contestant;
use super::matrix::TeamCell;
use super::samples::TeamSamples;
use crate::args::{Mode, Operation};
use serde::Serialize;
use std::fmt;
use trimtab_core::stats::{self, SAMPLES_MIN};
use trimtab_front::args::ranks::RankLayout;

/// A goal, and whether it was met.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct JudgedGoal {
    #[serde(rename = "who")]
    pub(super) contestant: String,
    pub(super) goal: String,
    /// Measured value; for several cells the worst one.
    pub(super) value: Option<f64>,
    pub(super) bound: f64,
    pub(super) met: Option<bool>,
    /// Number of cells that were judged.
    pub(super) cells: usize,
    /// Cells that missed the goal.
    pub(super) missed: Vec<String>,
}

impl fmt::Display for JudgedGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contestant, goal, bound, cells, missed, .. } = self;
        let bounded = format!("{contestant}: {goal} <= {bound}");
        match (self.met, self.value) {
            (Some(true), Some(value)) => write!(f, "met         {bounded}: {value:.3}")?,
            (Some(false), Some(value)) => write!(f, "MISSED      {bounded}: {value:.3}")?,
            _ => return write!(f, "not judged  {bounded}"),
        }
        if *cells > 1 {
            write!(f, " in the worst of {cells} cells")?;
        }
        if *cells > 1 && !missed.is_empty() {
            let first: Vec<&str> = missed.iter().take(4).map(String::as_str).collect();
            let more = if missed.len() > first.len() { ", ..." } else { "" };
            write!(f, "; missed in {}: {}{more}", missed.len(), first.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the median of the clean runs, if there are enough.
fn median(samples: &TeamSamples) -> Option<f64> {
    (samples.us.clean.len() >= SAMPLES_MIN).then(|| stats::median(&samples.us.clean)).flatten()
}

fn least(samples: &TeamSamples) -> Option<f64> {
    (samples.us.clean.len() >= SAMPLES_MIN).then(|| samples.least()).flatten()
}

/// Returns all goals that apply to the measured cells.
pub(super) fn judge(found: &TeamFindings<'_>) -> Vec<JudgedGoal> {
    let mut all = Vec::new();
    for contestant in found.contestants.iter().filter(|contestant| matches!(contestant, Contestant::Team(_)))
    {
        times(found, contestant, &mut all);
        peers(found, contestant, &mut all);
        loose(found, contestant, &mut all);
    }
    all
}

/// Adds goals for times of single cells.
fn times(found: &TeamFindings<'_>, contestant: &Contestant, all: &mut Vec<JudgedGoal>) {
    use Mode::{Resident, Stream};
    use Operation::{Allreduce, Barrier, Bcast};
    type What = fn(&TeamSamples) -> Option<f64>;
    let goals: [(u32, Operation, usize, Mode, &str, What, f64); 9] = [
        (2, Barrier, 0, Stream, "median", median, 0.12),
        (2, Bcast, 4096, Stream, "median", median, 0.25),
        (2, Allreduce, 8, Stream, "median", median, 0.12),
        (2, Allreduce, 4096, Stream, "median", median, 0.5),
        (2, Allreduce, 1 << 20, Stream, "median", median, 165.0),
        (2, Allreduce, 1 << 20, Resident, "median", median, 55.0),
        (4, Barrier, 0, Stream, "least", least, 17.0),
        (4, Barrier, 0, Stream, "median", median, 50.0),
        (8, Barrier, 0, Stream, "least", least, 35.0),
    ];
    for (ranks, op, bytes, mode, word, what, bound) in goals {
        let cell = TeamCell { ranks, op, bytes, mode };
        let Some(samples) = found.of(cell, contestant) else { continue };
        let value = what(samples);
        let missed = value.filter(|value| *value > bound).map(|_| cell.to_string());
        all.push(JudgedGoal {
            contestant: contestant.to_string(),
            goal: format!("{cell}, {word} us"),
            value,
            bound,
            met: value.map(|value| value <= bound),
            cells: 1,
            missed: missed.into_iter().collect(),
        });
    }
}

/// Judges the worst of several ratios, one per cell.
fn worst(
    contestant: &Contestant,
    goal: String,
    bound: f64,
    ratios: &[(TeamCell, Option<f64>)],
) -> Option<JudgedGoal> {
    if ratios.is_empty() {
        return None;
    }
    let known: Vec<(TeamCell, f64)> =
        ratios.iter().filter_map(|(cell, ratio)| Some((*cell, (*ratio)?))).collect();
    let value = known.iter().map(|(_, ratio)| *ratio).reduce(f64::max);
    let missed = known.iter().filter(|(_, ratio)| *ratio > bound).map(|(cell, _)| cell.to_string()).collect();
    Some(JudgedGoal {
        contestant: contestant.to_string(),
        goal,
        value,
        bound,
        met: value.map(|value| value <= bound),
        cells: known.len(),
        missed,
    })
}

fn ratio(ours: Option<&TeamSamples>, others: Option<&TeamSamples>) -> Option<f64> {
    Some(median(ours?)? / median(others?)?)
}

/// Adds goals for ratios to peers.
fn peers(found: &TeamFindings<'_>, contestant: &Contestant, all: &mut Vec<JudgedGoal>) {
    let against = |peer: &Contestant, wanted: &dyn Fn(&TeamCell) -> bool| -> Vec<(TeamCell, Option<f64>)> {
        let both = |cell: &&TeamCell| {
            wanted(cell) && found.of(**cell, contestant).is_some() && found.of(**cell, peer).is_some()
        };
        let of = |cell: &TeamCell| (*cell, ratio(found.of(*cell, contestant), found.of(*cell, peer)));
        found.cells.iter().filter(both).map(of).collect()
    };
    for peer in found.contestants {
        let Contestant::Peer { name, processes } = peer else { continue };
        let judged = match name.as_str() {
            // A barrier of threads is compared with a barrier of threads.
            "pthread" if *processes == (*contestant != Contestant::Team(RankLayout::Threads)) => worst(
                contestant,
                format!("barrier, ratio to {peer}"),
                1.2,
                &against(peer, &|cell| cell.op == Operation::Barrier),
            ),
            "openmpi" | "mpich" => {
                worst(contestant, format!("ratio to {name}"), 1.0, &against(peer, &|_| true))
            }
            "gloo" => {
                let barriers = against(peer, &|cell| cell.op == Operation::Barrier);
                all.extend(worst(contestant, "barrier, ratio to gloo".to_owned(), 0.01, &barriers));
                let large = against(peer, &|cell| cell.bytes == 1 << 20);
                worst(contestant, "1 MiB, ratio to gloo".to_owned(), 0.2, &large)
            }
            _ => None,
        };
        all.extend(judged);
    }
}

/// Adds goals for loose calls compared with strict ones, from 8 bytes to 64 KiB.
fn loose(found: &TeamFindings<'_>, contestant: &Contestant, all: &mut Vec<JudgedGoal>) {
    let of = |cell: &TeamCell| {
        let strict = TeamCell { mode: Mode::Strict, ..*cell };
        let both = found.of(*cell, contestant).zip(found.of(strict, contestant));
        both.map(|(loose, strict)| (*cell, ratio(Some(loose), Some(strict))))
    };
    let cells =
        found.cells.iter().filter(|cell| cell.mode == Mode::Loose && cell.bytes <= 65536 && cell.ranks > 1);
    let ratios: Vec<(TeamCell, Option<f64>)> = cells.filter_map(of).collect();
    all.extend(worst(contestant, "loose, ratio to strict".to_owned(), 1.0, &ratios));
}
