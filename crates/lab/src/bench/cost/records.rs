//! Lines of a record of `bench cost`.

use super::super::harness::{Head, SeriesEnd};
use super::matrix::{CostCell, SlowingVariant};
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::counts::Rung;
use trimtab_core::sampling_overhead::SamplingCost;
use trimtab_core::stats::Estimate;

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum CostLine<'a> {
    Start(&'a CostStart),
    Run(Box<CostRunLine<'a>>),
    Result(&'a CostResult),
    End(SeriesEnd),
}

/// Kind of the events that are counted during a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CountedEvents {
    /// Hardware events.
    Hardware,
    /// Software events of the kernel instead: the path of reading is the same, without the
    /// hardware's part of it.
    Software,
    /// Nothing can be counted.
    None,
}

/// First line of a record: machine, counters and options.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CostStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// Requested time between two samples, and the share of one core that they may use.
    pub(super) tick_ns: u64,
    pub(super) budget: f64,
    pub(super) counters: CountedEvents,
    pub(super) rung: Rung,
    pub(super) events: Vec<String>,
    /// Whether the machine was presented as two nodes, because it has only one place for threads.
    pub(super) halved: bool,
    /// CPUs of the slowed programs, one of each core.
    pub(super) cpus: String,
    /// Limits of the measurement on this machine, as text.
    pub(super) left_out: Vec<String>,
}

/// Nanoseconds of a turn, window by window, for each variant.
pub(super) type Windows = BTreeMap<SlowingVariant, Vec<f64>>;

/// One run of a cell.
#[derive(Debug, Serialize)]
pub(super) struct CostRunLine<'a> {
    pub(super) cell: String,
    #[serde(flatten)]
    pub(super) what: &'a CostCell,
    pub(super) round: u32,
    /// Cost of sampling; null for a slowed program or a failed run.
    #[serde(rename = "toll")]
    pub(super) cost: Option<SamplingCost>,
    /// Times of the windows of a slowed program; null otherwise.
    pub(super) windows: Option<&'a Windows>,
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// Evaluation of all runs of a cell.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CostResult {
    pub(super) cell: String,
    /// Values by name, with one sample per run.
    pub(super) figures: BTreeMap<&'static str, CostFigure>,
    /// Whether the goal of this cell was met; null without a goal, or if the samples do not decide.
    pub(super) met: Option<bool>,
}

/// A value, with one sample per run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CostFigure {
    pub(super) samples: Vec<f64>,
    pub(super) estimate: Option<Estimate>,
}
