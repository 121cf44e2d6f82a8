//! The lines of a record of the study. What is read back is `trimtab_core::study`'s.

use serde::Serialize;
use trimtab_core::stats::Estimate;
use trimtab_core::study::{About, Pair, Sample, Summary};

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a About),
    Sample(SampleLine<'a>),
    Cell(&'a Summary),
    Pair(&'a Pair),
    Sharing(SharingLine<'a>),
    End(End),
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct SampleLine<'a> {
    #[serde(flatten)]
    pub(super) sample: &'a Sample,
    pub(super) command: Vec<String>,
    /// What it said beside its report.
    pub(super) stderr: &'a str,
}

/// A pair, sharing and partitioned.
#[derive(Debug, Serialize)]
pub(super) struct SharingLine<'a> {
    /// The first program's cell, sharing.
    pub(super) shared: String,
    /// And with half of the cores.
    pub(super) partitioned: String,
    /// Throughput of the former over the latter's.
    pub(super) gain: Option<&'a Estimate>,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct End {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    /// Cases that were run, or known already.
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// Cases that were not run, since the time was over.
    pub(super) out_of_time: usize,
}
