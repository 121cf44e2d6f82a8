//! Lines of a record of the study. `trimtab_core::study` reads them back.

use serde::Serialize;
use trimtab_core::stats::Estimate;
use trimtab_core::study::{About, Pair, Sample, Summary};

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum OversubLine<'a> {
    Start(&'a About),
    Sample(SampleLine<'a>),
    Cell(&'a Summary),
    Pair(&'a Pair),
    Sharing(SharingLine<'a>),
    End(OversubEnd),
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct SampleLine<'a> {
    #[serde(flatten)]
    pub(super) sample: &'a Sample,
    pub(super) command: Vec<String>,
    /// Standard error of the run.
    pub(super) stderr: &'a str,
}

/// Comparison of a pair that shares cores with the same pair on halves of the cores.
#[derive(Debug, Serialize)]
pub(super) struct SharingLine<'a> {
    /// Cell of the first program, with shared cores.
    pub(super) shared: String,
    /// Cell of the first program, with half of the cores.
    pub(super) partitioned: String,
    /// Throughput with shared cores over throughput with halves.
    pub(super) gain: Option<&'a Estimate>,
}

/// Last line of a record.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct OversubEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    /// Cases that were run, or were in the record.
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// Cases that were not run because the time was over.
    pub(super) out_of_time: usize,
}
