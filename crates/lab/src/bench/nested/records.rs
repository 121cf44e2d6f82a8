//! Lines of a record of `bench nested`.

use super::super::harness::Head;
use super::matrix::{NestedCase, NestedFigure, Variant};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use trimtab_core::stats::{Better, Comparison};

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum NestedLine<'a> {
    /// Machine, programs and options.
    Start(&'a NestedStart),
    /// One run of a program.
    Run(NestedRun<'a>),
    /// One figure of one case, over all rounds.
    Result(NestedOutcome<'a>),
    /// Last line.
    End(&'a NestedEnd),
}

/// State of the measurement at its end.
#[derive(Debug, Serialize)]
pub(super) struct NestedEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// Runs at whose start other programs wanted CPUs.
    pub(super) disturbed: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct NestedStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) cores: usize,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// The user's own variables that OpenMP runtimes read; both variants see them.
    pub(super) environment: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct NestedRun<'a> {
    program: &'static str,
    outer: u32,
    inner: u32,
    variant: Variant,
    round: u32,
    /// Number of other tasks that wanted a CPU just before the run; null if it cannot be read.
    others: Option<u32>,
    command: Vec<String>,
    /// The report that the program printed; null for a failed run.
    report: Option<&'a Value>,
    error: Option<&'a str>,
    /// Standard error of the run, for example trimtab's warnings.
    stderr: &'a str,
}

impl<'a> NestedRun<'a> {
    pub(super) fn new(
        case: NestedCase,
        variant: Variant,
        round: u32,
        others: Option<u32>,
        words: &[OsString],
        came: Result<&'a Value, &'a str>,
        stderr: &'a str,
    ) -> Self {
        Self {
            program: case.program.file(),
            outer: case.shape.outer,
            inner: case.shape.inner,
            variant,
            round,
            others,
            command: words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            report: came.ok(),
            error: came.err(),
            stderr,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct NestedOutcome<'a> {
    program: &'static str,
    outer: u32,
    inner: u32,
    figure: &'a str,
    unit: &'static str,
    better: Better,
    unbound: &'a [f64],
    bound: &'a [f64],
    comparison: Comparison,
}

impl<'a> NestedOutcome<'a> {
    pub(super) fn new(
        case: NestedCase,
        figure: &'a NestedFigure,
        unbound: &'a [f64],
        bound: &'a [f64],
        comparison: Comparison,
    ) -> Self {
        Self {
            program: case.program.file(),
            outer: case.shape.outer,
            inner: case.shape.inner,
            figure: &figure.name,
            unit: figure.unit,
            better: figure.better,
            unbound,
            bound,
            comparison,
        }
    }
}
