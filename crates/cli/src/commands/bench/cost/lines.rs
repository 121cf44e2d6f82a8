//! The lines of a record of `bench cost`.

use super::super::record::Head;
use super::cells::{Cell, Way};
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::counts::Rung;
use trimtab_core::sampling_overhead::Toll;
use trimtab_core::stats::Estimate;

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a Start),
    Run(Box<RunLine<'a>>),
    Result(ResultLine),
    End(End),
}

/// What is counted while it is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Counters {
    /// Hardware's.
    Hardware,
    /// The kernel's own, in their place: the path of reading is the same, the hardware's part of it is missing.
    Software,
    /// Nothing may be counted.
    None,
}

/// What is measured, where, and how.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Start {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// The time between two looks that is wanted, and what they may cost.
    pub(super) tick_ns: u64,
    pub(super) budget: f64,
    pub(super) counters: Counters,
    pub(super) rung: Rung,
    pub(super) events: Vec<String>,
    /// Whether the machine was taken for two nodes, since it has only one place for threads.
    pub(super) halved: bool,
    /// The CPUs of the slowed programs, one of each core.
    pub(super) cpus: String,
    /// What this machine cannot show, in words.
    pub(super) left_out: Vec<String>,
}

/// Nanoseconds that a turn took, window by window, in each way.
pub(super) type Windows = BTreeMap<Way, Vec<f64>>;

/// One run of a cell.
#[derive(Debug, Serialize)]
pub(super) struct RunLine<'a> {
    pub(super) cell: String,
    #[serde(flatten)]
    pub(super) what: &'a Cell,
    pub(super) round: u32,
    /// What looks cost; null for a slowed program, and when it failed.
    pub(super) toll: Option<Toll>,
    /// What windows of a slowed program took; null otherwise.
    pub(super) windows: Option<&'a Windows>,
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// All runs of a cell.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ResultLine {
    pub(super) cell: String,
    /// Numbers by name, with their samples, a sample a run.
    pub(super) figures: BTreeMap<&'static str, Figure>,
    /// Whether the goal of this cell was met; null where there is none, or where the samples do not say.
    pub(super) met: Option<bool>,
}

/// A number, run by run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) samples: Vec<f64>,
    pub(super) estimate: Option<Estimate>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct End {
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
}
