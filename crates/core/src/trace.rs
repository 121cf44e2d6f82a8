//! Trace of a run: readings, decisions and outcomes, one line per step.
//!
//! Problem: "why did it move that thread?" and "what would another policy have done?" are asked
//! after the run, also after a run that was killed. Idea: JSON lines. The first line holds the
//! command, the machine, the settings and the seed. Then each step has one line with the raw
//! [`Sample`], the [`Turn`] and the [`Outcome`]s. The last line holds the end, and is missing after
//! a crash. Rates are not recorded: [`Observer`](crate::observe::Observer) computes them again, for
//! any metric.
//!
//! Properties: reading a written trace gives equal values. A file that was cut anywhere gives all
//! whole steps before the cut. Unknown fields are ignored, an unknown version is refused. Every
//! line can be read without the others.

use crate::balance::{Kind, Outcome, Settings, Turn};
use crate::drive::Step;
use crate::observe::Sample;
use crate::set::CpuSet;
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the format that this code writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// First line of a trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format; [`VERSION`] when written.
    #[serde(rename = "trimtab-trace")]
    pub version: u32,
    /// Policy that ran.
    pub policy: Kind,
    /// Settings of the policy.
    pub settings: Settings,
    /// Command that was run, or target that was attached to, as typed and printable.
    pub command: String,
    /// Start of the run, in seconds since 1970; missing in simulated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// CPUs that could be used at the start.
    pub usable: CpuSet,
    /// Machine on which the run took place.
    pub machine: Machine,
}

/// Record of one round of the loop.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// Readings of the host.
    pub sample: Sample,
    /// Answer of the policy.
    pub turn: Turn,
    /// Outcome of each decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
}

/// Last line of a trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct End {
    /// Reason of the end, in words.
    pub why: String,
    /// Exit status of the program as a shell shows it, if trimtab started the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
}

/// One line of a trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// First line.
    Header(Box<Header>),
    /// One step.
    Step(Box<StepRecord>),
    /// Last line.
    End(End),
}

impl Line {
    /// Encodes the line as text, without the line end.
    pub fn encode(&self) -> String {
        // Serialising fails only for maps with keys that are not text, and there is none here.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Encodes a step as text, without the line end and without copying the step.
    pub fn encode_step(step: &Step<'_>) -> String {
        #[derive(Serialize)]
        struct StepFields<'a> {
            sample: &'a Sample,
            turn: &'a Turn,
            #[serde(skip_serializing_if = "<[Outcome]>::is_empty")]
            outcomes: &'a [Outcome],
        }
        #[derive(Serialize)]
        struct StepLine<'a> {
            step: StepFields<'a>,
        }
        let record = StepFields { sample: step.sample, turn: step.turn, outcomes: step.outcomes };
        serde_json::to_string(&StepLine { step: record }).unwrap_or_default()
    }

    /// Decodes a line from text.
    ///
    /// # Errors
    /// [`TraceError`] without a line number.
    pub fn decode(text: &str) -> Result<Self, TraceError> {
        serde_json::from_str(text).map_err(|error| TraceError::Line(error.to_string()))
    }
}

/// Reason why a text cannot be read as a trace.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// The text is empty.
    #[error("the trace is empty")]
    Empty,
    /// The first line is not a header.
    #[error("this is not a trimtab trace: its first line is not a header ({0})")]
    Foreign(String),
    /// The trace has a newer version.
    #[error("the trace has version {0}, and this trimtab reads version {VERSION}: another trimtab wrote it")]
    Version(u32),
    /// A line cannot be read.
    #[error("a line cannot be read: {0}")]
    Line(String),
    /// A line before the last cannot be read.
    #[error("line {line} cannot be read: {problem}")]
    Damaged {
        /// Number of the line, from 1.
        line: usize,
        /// Reason.
        problem: String,
    },
}

/// A whole trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Header.
    pub header: Header,
    /// Steps in their order.
    pub steps: Vec<StepRecord>,
    /// Last line; `None` after a crash.
    pub end: Option<End>,
    /// Whether the last line was cut off.
    pub cut: bool,
}

impl Trace {
    /// Reads a text. A last line that is cut off is left out and [`Trace::cut`] is set; a damaged
    /// line before it is an error.
    ///
    /// # Errors
    /// [`TraceError`] if the text is empty or not a trace, has another version, or is damaged
    /// before its last line.
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

/// Reads the first line. The version is checked first, so that the error for a newer trace names
/// the version.
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
