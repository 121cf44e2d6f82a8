//! Lines of a record of `bench misses`.

use super::super::harness::{Head, SeriesEnd};
use super::counting::MissCounts;
use serde::Serialize;

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum MissesLine<'a> {
    Start(&'a MissesStart),
    Run(MissesRunLine<'a>),
    Result(MissesResultLine<'a>),
    End(SeriesEnd),
}

/// First line of a record.
#[derive(Debug, Serialize)]
pub(super) struct MissesStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) rounds: u32,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// Source of the counts, in words.
    pub(super) counted_by: String,
    /// Reason why hardware does not count, or why cases are left out.
    pub(super) left_out: Vec<String>,
}

/// One run of a kernel.
#[derive(Debug, Serialize)]
pub(super) struct MissesRunLine<'a> {
    pub(super) kernel: &'a str,
    pub(super) class: &'a str,
    pub(super) per_core: u32,
    pub(super) threads: u32,
    pub(super) round: u32,
    /// Null for a failed run.
    #[serde(flatten)]
    pub(super) counts: Option<MissCounts>,
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// All runs of a kernel with one number of threads.
#[derive(Debug, Serialize)]
pub(super) struct MissesResultLine<'a> {
    pub(super) kernel: &'a str,
    pub(super) class: &'a str,
    pub(super) per_core: u32,
    pub(super) threads: u32,
    pub(super) samples: usize,
    /// Median of the misses per 1,000 instructions.
    pub(super) misses_per_kilo: f64,
}
