//! A record of the study, read back: JSON lines as `trimtab bench oversub --json` writes them.

use super::Sample;
use crate::place::waiting::Yield;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The version of each line.
pub const SCHEMA: &str = "trimtab.bench/1";
/// Which of the benchmarks it is.
const BENCH: &str = "oversub";

/// What a record begins with: where samples are from, and what they have in common.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Which benchmark: `oversub`.
    pub bench: String,
    /// Version of trimtab.
    pub trimtab: String,
    /// The machine's name.
    pub machine: String,
    /// What it consists of.
    pub summary: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs that programs might use: one of each core.
    pub cpus: String,
    /// How many those are.
    pub cores: u32,
    /// What `sched_yield` did when it was tried first.
    #[serde(rename = "yields")]
    pub yields: Yield,
    /// Rounds that were wanted.
    pub rounds: u32,
    /// Seed of orders and intervals.
    pub seed: u64,
    /// A run that takes so many times its baseline's time is stopped.
    pub limit: f64,
    /// Steps of work a second, of the programs with chosen intervals; `None` without such.
    pub rate: Option<u64>,
    /// Where the programs were.
    pub programs: String,
    /// What could not be run there, or was left out for haste.
    pub left_out: Vec<String>,
}

/// A record.
#[derive(Clone, PartialEq, Debug)]
pub struct Study {
    /// Where it is from.
    pub about: About,
    /// All runs, in the order they were made.
    pub samples: Vec<Sample>,
}

/// Why a text is no record.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReadError {
    /// A line is not JSON.
    #[error("line {0} is not JSON")]
    Json(usize),
    /// A line is of something else.
    #[error("line {0} is not of schema {SCHEMA}")]
    Schema(usize),
    /// A line lacks something, or something in it is of another kind.
    #[error("line {0} is no {1} of trimtab bench oversub: {2}")]
    Line(usize, &'static str, String),
    /// There is no start.
    #[error("it does not begin as a record of trimtab bench oversub")]
    Start,
}

/// Reads a record. A last line without an end was cut off by a sudden end of its writer, and is left out; so are results, which follow from
/// samples. A sample that comes twice is kept twice.
///
/// # Errors
/// It is none.
pub fn read(text: &str) -> Result<Study, ReadError> {
    let mut about: Option<About> = None;
    let mut samples = Vec::new();
    for (at, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
        let number = at + 1;
        let value: Value = serde_json::from_str(line).map_err(|_| ReadError::Json(number))?;
        if value["schema"] != SCHEMA {
            return Err(ReadError::Schema(number));
        }
        let wrong = |what| move |error: serde_json::Error| ReadError::Line(number, what, error.to_string());
        match value["record"].as_str() {
            Some("start") if value["bench"] != BENCH => return Err(ReadError::Start),
            // Whoever goes on with a record begins once more; the first start is kept.
            Some("start") if about.is_some() => {}
            Some("start") => about = Some(serde_json::from_value(value).map_err(wrong("start"))?),
            _ if about.is_none() => return Err(ReadError::Start),
            Some("sample") => samples.push(serde_json::from_value(value).map_err(wrong("sample"))?),
            _ => {}
        }
    }
    about.map(|about| Study { about, samples }).ok_or(ReadError::Start)
}
