//! The lines of the record of `bench nested`.

use super::super::harness::Head;
use super::matrix::{Case, Figure, Variant};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use trimtab_core::stats::{Better, Comparison};

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Record<'a> {
    /// What is measured, where, and how.
    Start(&'a Start),
    /// One run of a program.
    Run(Run<'a>),
    /// One figure of one case, over all rounds.
    Result(Outcome<'a>),
    /// Nothing follows.
    End(&'a End),
}

/// How it ended.
#[derive(Debug, Serialize)]
pub(super) struct End {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// Runs at whose start other programs wanted CPUs.
    pub(super) disturbed: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Start {
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
pub(super) struct Run<'a> {
    program: &'static str,
    outer: u32,
    inner: u32,
    variant: Variant,
    round: u32,
    /// How many other tasks wanted a CPU just before; null when that cannot be read.
    others: Option<u32>,
    command: Vec<String>,
    /// What the program printed; null when it failed.
    report: Option<&'a Value>,
    error: Option<&'a str>,
    /// What it said beside its report: trimtab's warnings, for example.
    stderr: &'a str,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        case: Case,
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
pub(super) struct Outcome<'a> {
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

impl<'a> Outcome<'a> {
    pub(super) fn new(
        case: Case,
        figure: &'a Figure,
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
