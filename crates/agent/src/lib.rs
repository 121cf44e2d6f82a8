//! Long-lived parts of trimtab: the monitor of a run, attach and detach, the service, metrics.
//!
//! The crate stands between `linux`, which reads and changes the machine, and a front end, which
//! has options and a terminal. It takes plain option structs, reports events through a
//! [`narrator::Narrator`], and returns its results as values. It reads no environment and no
//! command line; [`paths::Paths`] says where files are.

#![forbid(unsafe_code)]

pub mod attach;
pub mod detach;
pub mod guest;
pub mod metrics;
pub mod monitor;
pub mod monitored_host;
pub mod narrator;
pub mod output;
pub mod paths;
pub mod recorder;
pub mod restoration;
pub mod service;
pub mod spawn;
pub mod step_sinks;
pub mod sync_report;
pub mod targets;

#[cfg(test)]
mod skip;

#[cfg(test)]
#[path = "../tests/fixtures/recorded_runs.rs"]
mod runs;

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970, for the head of a trace; `None` if the clock is before that.
fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
