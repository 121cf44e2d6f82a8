//! Lines of a record of `bench team`.

use super::super::harness::{Head, SeriesEnd};
use super::goals::JudgedGoal;
use super::matrix::TeamCell;
use super::samples::Batch;
use serde::Serialize;
use trimtab_core::stats::Estimate;

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum TeamLine<'a> {
    Start(&'a TeamStart),
    Run(TeamRunLine<'a>),
    Result(TeamResultLine<'a>),
    Goal(&'a JudgedGoal),
    End(SeriesEnd),
}

/// First line of a record: machine and options.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct TeamStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) pinned: bool,
    /// Whether this program was built without optimisation, which makes its teams slower.
    pub(super) unoptimised: bool,
    /// Number of CPUs that ranks may use.
    pub(super) cpus: usize,
    /// Names of the contestants: teams first, then peers.
    pub(super) columns: Vec<String>,
    /// Contestants and cells that cannot run here.
    pub(super) left_out: Vec<String>,
}

/// One run of a program.
#[derive(Debug, Serialize)]
pub(super) struct TeamRunLine<'a> {
    #[serde(flatten)]
    pub(super) cell: TeamCell,
    pub(super) column: String,
    pub(super) round: u32,
    pub(super) command: Vec<String>,
    pub(super) batches: &'a [Batch],
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// Evaluation of all runs of a cell by one contestant.
#[derive(Debug, Serialize)]
pub(super) struct TeamResultLine<'a> {
    #[serde(flatten)]
    pub(super) cell: TeamCell,
    pub(super) column: String,
    /// Medians of runs, in microseconds per call.
    pub(super) clean: &'a [f64],
    pub(super) noisy: &'a [f64],
    /// Median of the clean runs, or of the noisy ones if there are no clean ones.
    pub(super) us: Option<Estimate>,
    pub(super) least_us: Option<f64>,
    /// CPU time of all ranks.
    pub(super) cpu_us: Option<f64>,
    /// The fastest peer in this cell, and the time over its time; null for peers.
    pub(super) best_peer: Option<String>,
    pub(super) ratio: Option<Estimate>,
}
