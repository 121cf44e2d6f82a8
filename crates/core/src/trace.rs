//! The record of a run: what was read, decided and done, one line a step.
//!
//! Problem: "why did it move that thread?" and "what would another policy have done?" are asked after the run, also after one
//! that was killed. Idea: JSON lines. The first says what was run, on which machine, with which settings and seed; then
//! one line a step with the raw [`Sample`], the [`Turn`] and the [`Outcome`]s; the last says how it ended, and is missing after a
//! crash. Rates are not recorded: [`Observer`](crate::observe::Observer) makes them again, for any metric.
//!
//! Properties: reading back what was written gives equal values; a file that was cut anywhere gives all whole steps before
//! the cut; unknown fields are ignored, an unknown version is refused; every line stands alone.

use crate::balance::{Kind, Outcome, Settings, Turn};
use crate::drive::Step;
use crate::observe::Sample;
use crate::set::CpuSet;
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version this code writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The format's version, [`VERSION`] when written.
    #[serde(rename = "trimtab-trace")]
    pub version: u32,
    /// Which policy ran.
    pub policy: Kind,
    /// With which settings.
    pub settings: Settings,
    /// What was run or attached to, as typed, printable.
    pub command: String,
    /// When, in seconds since 1970; missing in simulated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// The CPUs that could be used at the start.
    pub usable: CpuSet,
    /// The machine.
    pub machine: Machine,
}

/// One round of the loop.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// What was read.
    pub sample: Sample,
    /// What was decided.
    pub turn: Turn,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
}

/// The last line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct End {
    /// Why it ended, in words.
    pub why: String,
    /// The program's exit status as a shell shows it, if it was ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
}

/// A line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first.
    Header(Box<Header>),
    /// A step.
    Step(Box<StepRecord>),
    /// The last.
    End(End),
}

impl Line {
    /// As text, without the line end.
    pub fn encode(&self) -> String {
        // Maps with keys that are no text are the only thing that this could fail at, and there is none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A step as text, without the line end and without copying it.
    pub fn encode_step(step: &Step<'_>) -> String {
        #[derive(Serialize)]
        struct Record<'a> {
            sample: &'a Sample,
            turn: &'a Turn,
            #[serde(skip_serializing_if = "<[Outcome]>::is_empty")]
            outcomes: &'a [Outcome],
        }
        #[derive(Serialize)]
        struct OfStep<'a> {
            step: Record<'a>,
        }
        let record = Record { sample: step.sample, turn: step.turn, outcomes: step.outcomes };
        serde_json::to_string(&OfStep { step: record }).unwrap_or_default()
    }

    /// From text.
    ///
    /// # Errors
    /// [`TraceError`] without a line number.
    pub fn decode(text: &str) -> Result<Self, TraceError> {
        serde_json::from_str(text).map_err(|error| TraceError::Line(error.to_string()))
    }
}

/// Why a text is no trace.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// There is nothing.
    #[error("the trace is empty")]
    Empty,
    /// The first line is something else.
    #[error("this is no trimtab trace: its first line is no header ({0})")]
    Foreign(String),
    /// A newer version.
    #[error("the trace has version {0}, and this trimtab reads version {VERSION}: another trimtab wrote it")]
    Version(u32),
    /// A line that cannot be read.
    #[error("a line cannot be read: {0}")]
    Line(String),
    /// A line in the middle that cannot be read.
    #[error("line {line} cannot be read: {problem}")]
    Damaged {
        /// Which, from 1.
        line: usize,
        /// Why.
        problem: String,
    },
}

/// A whole trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// What was run.
    pub header: Header,
    /// The steps.
    pub steps: Vec<StepRecord>,
    /// How it ended; `None` after a crash.
    pub end: Option<End>,
    /// Whether the last line was cut off.
    pub cut: bool,
}

impl Trace {
    /// Reads a text. A last line that is cut off is left out and said; a damaged one before is an error.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate().peekable();
        let (_, first) = lines.next().ok_or(TraceError::Empty)?;
        let header = header(first)?;
        let mut trace = Self { header, steps: Vec::new(), end: None, cut: false };
        while let Some((at, line)) = lines.next() {
            match Line::decode(line) {
                Ok(Line::Step(step)) => trace.steps.push(*step),
                Ok(Line::End(end)) => trace.end = Some(end),
                Ok(Line::Header(_)) => {
                    let problem = "a second header".to_owned();
                    return Err(TraceError::Damaged { line: at + 1, problem });
                }
                Err(_) if lines.peek().is_none() && !text.ends_with('\n') => trace.cut = true,
                Err(error) => {
                    return Err(TraceError::Damaged { line: at + 1, problem: error.to_string() });
                }
            }
        }
        Ok(trace)
    }
}

/// The first line; the version is looked at before anything else, so that a newer trace is named as such.
fn header(line: &str) -> Result<Header, TraceError> {
    #[derive(Deserialize)]
    struct Version {
        #[serde(rename = "trimtab-trace")]
        version: u32,
    }
    #[derive(Deserialize)]
    struct Head {
        header: Version,
    }
    let short = |error: serde_json::Error| TraceError::Foreign(error.to_string());
    let head: Head = serde_json::from_str(line).map_err(short)?;
    if head.header.version != VERSION {
        return Err(TraceError::Version(head.header.version));
    }
    match Line::decode(line)? {
        Line::Header(header) => Ok(*header),
        _ => Err(TraceError::Foreign("another kind of line".to_owned())),
    }
}

#[cfg(test)]
mod tests;
