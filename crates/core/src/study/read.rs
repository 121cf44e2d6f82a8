//! Reader of study records: JSON lines as `trimtab bench oversub --json` writes them.

use super::Sample;
use crate::place::waiting::Yield;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Schema version of each line.
pub const SCHEMA: &str = "trimtab.bench/1";
/// Name of the benchmark.
const BENCH: &str = "oversub";

/// First line of a record: origin of the samples, and their common parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Name of the benchmark: `oversub`.
    pub bench: String,
    /// Version of trimtab.
    pub trimtab: String,
    /// Name of the machine.
    pub machine: String,
    /// Description of the machine.
    pub summary: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs that programs might use: one of each core.
    pub cpus: String,
    /// Number of these CPUs.
    pub cores: u32,
    /// Behaviour of `sched_yield` in a test before the runs.
    #[serde(rename = "yields")]
    pub yields: Yield,
    /// Number of requested rounds.
    pub rounds: u32,
    /// Seed of orders and intervals.
    pub seed: u64,
    /// Factor over its baseline's time at which a run is stopped.
    pub limit: f64,
    /// Steps of work per second of the programs with chosen intervals; `None` without such
    /// programs.
    pub rate: Option<u64>,
    /// Folder of the programs.
    pub programs: String,
    /// Cases that could not be run there, or were left out to save time.
    pub left_out: Vec<String>,
}

/// A study record.
#[derive(Clone, PartialEq, Debug)]
pub struct Study {
    /// First line: origin of the samples.
    pub about: About,
    /// All runs, in the order they were made.
    pub samples: Vec<Sample>,
}

/// Error of a text that is not a record.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReadError {
    /// A line is not JSON.
    #[error("line {0} is not JSON")]
    Json(usize),
    /// A line has another schema.
    #[error("line {0} is not of schema {SCHEMA}")]
    Schema(usize),
    /// A line lacks a field, or a field has the wrong type.
    #[error("line {0} is not a {1} of trimtab bench oversub: {2}")]
    Line(usize, &'static str, String),
    /// The first line is missing.
    #[error("it does not begin as a record of trimtab bench oversub")]
    Start,
}

/// Reads a record. A last line without a line end was cut off when its writer ended suddenly, and
/// is left out. Results are left out as well, since they follow from samples. A sample that comes
/// twice is kept twice.
///
/// # Errors
/// The text is not a record.
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
            // A run that continues a record writes a new start; the first start is kept.
            Some("start") if about.is_some() => {}
            Some("start") => about = Some(serde_json::from_value(value).map_err(wrong("start"))?),
            _ if about.is_none() => return Err(ReadError::Start),
            Some("sample") => samples.push(serde_json::from_value(value).map_err(wrong("sample"))?),
            _ => {}
        }
    }
    about.map(|about| Study { about, samples }).ok_or(ReadError::Start)
}
