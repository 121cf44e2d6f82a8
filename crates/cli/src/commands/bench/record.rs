//! The record of a measurement: JSON lines, each written as soon as it is known, so that no end of the program loses any.

use super::cases::{Case, Figure, Variant};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use trimtab_core::stats::{Better, Comparison};

/// The version of each line.
pub(super) const SCHEMA: &str = "trimtab.bench/1";

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

/// What the start of every record begins with: what was measured, by what, where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) bench: String,
    pub(super) trimtab: String,
    pub(super) machine: String,
    pub(super) summary: String,
    pub(super) kernel: String,
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

/// Where the lines go.
pub(super) struct Recorder {
    to: Option<(PathBuf, Box<dyn Write>)>,
}

impl Recorder {
    /// Opens the file before anything is measured, so that a path that cannot be written costs no minutes.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn open(file: Option<&Path>) -> Result<Self> {
        let to = match file {
            None => None,
            Some(file) if file.as_os_str() == "-" => {
                Some((PathBuf::from("standard output"), Box::new(io::stdout()) as Box<dyn Write>))
            }
            Some(file) => {
                let opened =
                    File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
                Some((file.to_owned(), Box::new(opened) as Box<dyn Write>))
            }
        };
        Ok(Self { to })
    }

    /// Opens a record to go on with. What a sudden end left of its last line is cut off.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(super) fn resume(file: &Path) -> Result<Self> {
        let cannot = || format!("cannot go on with {}", file.display());
        let text = std::fs::read(file).with_context(cannot)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let opened = File::options().append(true).open(file).with_context(cannot)?;
        opened.set_len(whole as u64).with_context(cannot)?;
        Ok(Self { to: Some((file.to_owned(), Box::new(opened))) })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write<R: Serialize>(&mut self, record: &R) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a, R> {
            schema: &'static str,
            #[serde(flatten)]
            record: &'a R,
        }
        let Some((name, to)) = &mut self.to else { return Ok(()) };
        let mut line = serde_json::to_string(&Line { schema: SCHEMA, record })?;
        line.push('\n');
        to.write_all(line.as_bytes())
            .and_then(|()| to.flush())
            .with_context(|| format!("cannot write {}", name.display()))
    }
}
