//! Lines of a record of `bench nodes`.

use super::super::harness::Head;
use super::matrix::{NodesCase, NodesKind, NodesProgram, NodesWay};
use serde::Serialize;
use trimtab_core::stats::{Comparison, Estimate};

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum NodesLine<'a> {
    Start(&'a NodesStart),
    Run(NodesRunLine<'a>),
    Result(NodesResultLine<'a>),
    End(&'a NodesEnd),
}

/// First line of a record.
#[derive(Debug, Serialize)]
pub(super) struct NodesStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// `kernel.numa_balancing`; null if the kernel has no such setting.
    pub(super) numa_balancing: Option<String>,
    /// Cases that this machine does not support.
    pub(super) left_out: Vec<String>,
}

/// One run of a case in a variant.
#[derive(Debug, Serialize)]
pub(super) struct NodesRunLine<'a> {
    case: String,
    way: NodesWay,
    round: u32,
    programs: &'a [NodesProgram],
    /// Measured value; null for a failed run.
    value: Option<f64>,
    error: Option<&'a str>,
    stderr: &'a str,
}

impl<'a> NodesRunLine<'a> {
    pub(super) fn new(
        case: &'a NodesCase,
        way: NodesWay,
        round: u32,
        came: Result<f64, (&'a str, &'a str)>,
    ) -> Self {
        let (error, stderr) = came.err().map_or((None, ""), |(error, stderr)| (Some(error), stderr));
        let (case, programs) = (case.to_string(), case.programs.as_slice());
        Self { case, way, round, programs, value: came.ok(), error, stderr }
    }
}

/// Evaluation of all runs of a case in a variant.
#[derive(Debug, Serialize)]
pub(super) struct NodesResultLine<'a> {
    pub(super) case: String,
    pub(super) kind: NodesKind,
    pub(super) unit: &'static str,
    pub(super) way: NodesWay,
    pub(super) samples: &'a [f64],
    pub(super) estimate: Option<Estimate>,
    /// Null for Linux alone, and for bound programs.
    pub(super) against_linux: Option<Comparison>,
}

/// Last line of a record.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct NodesEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
}
