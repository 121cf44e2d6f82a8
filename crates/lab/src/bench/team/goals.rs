//! What trimtab sets itself for teams, and whether it was met.
//!
//! Unit: microseconds, or ratios of medians. Times are those of a machine of two cores; ratios hold anywhere. Judged on clean runs alone, and
//! on none of fewer than [`SAMPLES_MIN`]; a statement about many cells is judged on those that can be, and says how many these are.

use super::Found;
use super::matrix::{Cell, Who};
use super::samples::Samples;
use crate::args::{Mode, Operation};
use serde::Serialize;
use std::fmt;
use trimtab_core::stats::{self, SAMPLES_MIN};
use trimtab_front::args::ranks::RankLayout;

/// A goal, and whether it was met.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Judged {
    pub(super) who: String,
    pub(super) goal: String,
    /// What was measured: the worst, of many cells.
    pub(super) value: Option<f64>,
    pub(super) bound: f64,
    pub(super) met: Option<bool>,
    /// How many cells it rests on.
    pub(super) cells: usize,
    /// Those that miss it.
    pub(super) missed: Vec<String>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, goal, bound, cells, missed, .. } = self;
        let bounded = format!("{who}: {goal} <= {bound}");
        match (self.met, self.value) {
            (Some(true), Some(value)) => write!(f, "met         {bounded}: {value:.3}")?,
            (Some(false), Some(value)) => write!(f, "MISSED      {bounded}: {value:.3}")?,
            _ => return write!(f, "not judged  {bounded}"),
        }
        if *cells > 1 {
            write!(f, " at worst, of {cells} cells")?;
        }
        if *cells > 1 && !missed.is_empty() {
            let first: Vec<&str> = missed.iter().take(4).map(String::as_str).collect();
            let more = if missed.len() > first.len() { ", ..." } else { "" };
            write!(f, "; missed in {}: {}{more}", missed.len(), first.join(", "))?;
        }
        Ok(())
    }
}

/// The median of clean runs enough.
fn median(samples: &Samples) -> Option<f64> {
    (samples.us.clean.len() >= SAMPLES_MIN).then(|| stats::median(&samples.us.clean)).flatten()
}

fn least(samples: &Samples) -> Option<f64> {
    (samples.us.clean.len() >= SAMPLES_MIN).then(|| samples.least()).flatten()
}

/// All goals that concern what was measured.
pub(super) fn judge(found: &Found<'_>) -> Vec<Judged> {
    let mut all = Vec::new();
    for who in found.whos.iter().filter(|who| matches!(who, Who::Team(_))) {
        times(found, who, &mut all);
        peers(found, who, &mut all);
        loose(found, who, &mut all);
    }
    all
}

/// Times of single cells.
fn times(found: &Found<'_>, who: &Who, all: &mut Vec<Judged>) {
    use Mode::{Resident, Stream};
    use Operation::{Allreduce, Barrier, Bcast};
    type What = fn(&Samples) -> Option<f64>;
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
        let cell = Cell { ranks, op, bytes, mode };
        let Some(samples) = found.of(cell, who) else { continue };
        let value = what(samples);
        let missed = value.filter(|value| *value > bound).map(|_| cell.to_string());
        all.push(Judged {
            who: who.to_string(),
            goal: format!("{cell}, {word} us"),
            value,
            bound,
            met: value.map(|value| value <= bound),
            cells: 1,
            missed: missed.into_iter().collect(),
        });
    }
}

/// The worst of ratios, one a cell.
fn worst(who: &Who, goal: String, bound: f64, ratios: &[(Cell, Option<f64>)]) -> Option<Judged> {
    if ratios.is_empty() {
        return None;
    }
    let known: Vec<(Cell, f64)> =
        ratios.iter().filter_map(|(cell, ratio)| Some((*cell, (*ratio)?))).collect();
    let value = known.iter().map(|(_, ratio)| *ratio).reduce(f64::max);
    let missed = known.iter().filter(|(_, ratio)| *ratio > bound).map(|(cell, _)| cell.to_string()).collect();
    Some(Judged {
        who: who.to_string(),
        goal,
        value,
        bound,
        met: value.map(|value| value <= bound),
        cells: known.len(),
        missed,
    })
}

fn ratio(ours: Option<&Samples>, others: Option<&Samples>) -> Option<f64> {
    Some(median(ours?)? / median(others?)?)
}

/// Beside peers.
fn peers(found: &Found<'_>, who: &Who, all: &mut Vec<Judged>) {
    let against = |peer: &Who, wanted: &dyn Fn(&Cell) -> bool| -> Vec<(Cell, Option<f64>)> {
        let both = |cell: &&Cell| {
            wanted(cell) && found.of(**cell, who).is_some() && found.of(**cell, peer).is_some()
        };
        let of = |cell: &Cell| (*cell, ratio(found.of(*cell, who), found.of(*cell, peer)));
        found.cells.iter().filter(both).map(of).collect()
    };
    for peer in found.whos {
        let Who::Peer { name, processes } = peer else { continue };
        let judged = match name.as_str() {
            // A barrier of threads is compared with one of threads.
            "pthread" if *processes == (*who != Who::Team(RankLayout::Threads)) => worst(
                who,
                format!("barrier, ratio to {peer}"),
                1.2,
                &against(peer, &|cell| cell.op == Operation::Barrier),
            ),
            "openmpi" | "mpich" => worst(who, format!("ratio to {name}"), 1.0, &against(peer, &|_| true)),
            "gloo" => {
                let barriers = against(peer, &|cell| cell.op == Operation::Barrier);
                all.extend(worst(who, "barrier, ratio to gloo".to_owned(), 0.01, &barriers));
                let large = against(peer, &|cell| cell.bytes == 1 << 20);
                worst(who, "1 MiB, ratio to gloo".to_owned(), 0.2, &large)
            }
            _ => None,
        };
        all.extend(judged);
    }
}

/// Loose calls beside strict ones, from 8 bytes to 64 KiB.
fn loose(found: &Found<'_>, who: &Who, all: &mut Vec<Judged>) {
    let of = |cell: &Cell| {
        let strict = Cell { mode: Mode::Strict, ..*cell };
        let both = found.of(*cell, who).zip(found.of(strict, who));
        both.map(|(loose, strict)| (*cell, ratio(Some(loose), Some(strict))))
    };
    let cells =
        found.cells.iter().filter(|cell| cell.mode == Mode::Loose && cell.bytes <= 65536 && cell.ranks > 1);
    let ratios: Vec<(Cell, Option<f64>)> = cells.filter_map(of).collect();
    all.extend(worst(who, "loose, ratio to strict".to_owned(), 1.0, &ratios));
}
