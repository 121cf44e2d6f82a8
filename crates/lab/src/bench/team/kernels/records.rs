//! The lines of a record of kernels.

use super::super::super::harness::{Ended, Head};
use super::matrix::Cell;
use super::samples::Repetition;
use serde::Serialize;
use trimtab_core::stats::Estimate;

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a Start),
    Run(RunLine<'a>),
    Result(ResultLine),
    Comparison(Comparison),
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
    pub(super) repetitions: &'a [Repetition],
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// All runs of a cell by one who was measured.
#[derive(Debug, Serialize)]
pub(super) struct ResultLine {
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) column: String,
    /// Medians of runs, in seconds.
    pub(super) clean: Vec<f64>,
    pub(super) noisy: Vec<f64>,
    /// Of the clean ones, or of the noisy ones where there are no others.
    pub(super) seconds: Option<Estimate>,
    pub(super) least_seconds: Option<f64>,
    /// CPU time of all ranks.
    pub(super) cpu_seconds: Option<f64>,
    /// The part of the time that ranks spent in the library.
    pub(super) communication: Option<f64>,
    /// The quickest peer in this cell, and the time beside it; null for peers.
    pub(super) best_peer: Option<String>,
    pub(super) ratio: Option<Estimate>,
}

/// One kind of team beside another.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) above: String,
    pub(super) below: String,
    /// Of times: below 1, the first is quicker.
    pub(super) ratio: Estimate,
}
