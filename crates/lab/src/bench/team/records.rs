//! The lines of a record of `bench team`.

use super::super::harness::{Ended, Head};
use super::goals::Judged;
use super::matrix::Cell;
use super::samples::Batch;
use serde::Serialize;
use trimtab_core::stats::Estimate;

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a Start),
    Run(RunLine<'a>),
    Result(ResultLine<'a>),
    Goal(&'a Judged),
    End(Ended),
}

/// What is measured, where, and how.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Start {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) pinned: bool,
    /// Whether this program was built for debugging: its teams are then slower than they are.
    pub(super) unoptimised: bool,
    /// CPUs that ranks may use.
    pub(super) cpus: usize,
    /// Teams first, then peers.
    pub(super) columns: Vec<String>,
    /// What cannot be run here.
    pub(super) left_out: Vec<String>,
}

/// One run of a program.
#[derive(Debug, Serialize)]
pub(super) struct RunLine<'a> {
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) column: String,
    pub(super) round: u32,
    pub(super) command: Vec<String>,
    pub(super) batches: &'a [Batch],
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// All runs of a cell by one who was measured.
#[derive(Debug, Serialize)]
pub(super) struct ResultLine<'a> {
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) column: String,
    /// Medians of runs, in microseconds a call.
    pub(super) clean: &'a [f64],
    pub(super) noisy: &'a [f64],
    /// Of the clean ones, or of the noisy ones where there are no others.
    pub(super) us: Option<Estimate>,
    pub(super) least_us: Option<f64>,
    /// CPU time of all ranks.
    pub(super) cpu_us: Option<f64>,
    /// The quickest peer in this cell, and the time beside it; null for peers.
    pub(super) best_peer: Option<String>,
    pub(super) ratio: Option<Estimate>,
}
