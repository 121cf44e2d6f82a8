//! Lines of a record of kernels.

use super::super::super::harness::{Head, SeriesEnd};
use super::matrix::KernelsCell;
use super::samples::Repetition;
use serde::Serialize;
use trimtab_core::stats::Estimate;

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum KernelsLine<'a> {
    Start(&'a KernelsStart),
    Run(KernelsRunLine<'a>),
    Result(KernelsResultLine),
    Comparison(KernelsComparison),
    End(SeriesEnd),
}

/// First line of a record: machine and options.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct KernelsStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) pinned: bool,
    /// Number of CPUs that ranks may use.
    pub(super) cpus: usize,
    /// Names of the contestants: teams first, then peers.
    pub(super) columns: Vec<String>,
    /// Contestants and cells that cannot run here.
    pub(super) left_out: Vec<String>,
}

/// One run of a program.
#[derive(Debug, Serialize)]
pub(super) struct KernelsRunLine<'a> {
    #[serde(flatten)]
    pub(super) cell: KernelsCell,
    pub(super) column: String,
    pub(super) round: u32,
    pub(super) command: Vec<String>,
    pub(super) repetitions: &'a [Repetition],
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// Evaluation of all runs of a cell by one contestant.
#[derive(Debug, Serialize)]
pub(super) struct KernelsResultLine {
    #[serde(flatten)]
    pub(super) cell: KernelsCell,
    pub(super) column: String,
    /// Medians of runs, in seconds.
    pub(super) clean: Vec<f64>,
    pub(super) noisy: Vec<f64>,
    /// Median of the clean runs, or of the noisy ones if there are no clean ones.
    pub(super) seconds: Option<Estimate>,
    pub(super) least_seconds: Option<f64>,
    /// CPU time of all ranks.
    pub(super) cpu_seconds: Option<f64>,
    /// Share of the time that ranks spent in the library.
    pub(super) communication: Option<f64>,
    /// The fastest peer in this cell, and the time over its time; null for peers.
    pub(super) best_peer: Option<String>,
    pub(super) ratio: Option<Estimate>,
}

/// Comparison of one kind of team with another.
#[derive(Debug, Serialize)]
pub(super) struct KernelsComparison {
    #[serde(flatten)]
    pub(super) cell: KernelsCell,
    pub(super) above: String,
    pub(super) below: String,
    /// Ratio of times: below 1, the first is faster.
    pub(super) ratio: Estimate,
}
