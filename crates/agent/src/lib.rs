//! Long-lived parts of trimtab: the monitor of a run, attach and detach, the service, metrics.
//!
//! A front end (options, terminal) calls this crate, and this crate calls `linux`, which reads and
//! changes the machine. It takes plain option structs, reports events through a
//! [`narrator::Narrator`], and returns its results as values. It reads no environment and no
//! command line; [`paths::Paths`] contains the locations of files.
//!
//! # Example
//!
//! A front end that ends the balancing of one process:
//!
//! ```
//! use std::path::Path;
//! use trimtab_agent::detach::detach;
//! use trimtab_agent::narrator::{Narrator, Severity};
//! use trimtab_agent::paths::{LEDGER, Paths, SOCKET};
//! use trimtab_linux::process::Pid;
//!
//! /// Shows warnings and worse.
//! #[derive(Debug)]
//! struct Terminal;
//!
//! impl Narrator for Terminal {
//!     fn say(&self, level: Severity, line: &str) {
//!         if matches!(level, Severity::Alert | Severity::Warning) {
//!             eprintln!("{line}");
//!         }
//!     }
//! }
//!
//! // The environment of the front end, with a ledger and a socket of the example's own.
//! let folder = tempfile::tempdir()?;
//! let variable = |name: &str| match name {
//!     LEDGER => Some(folder.path().into()),
//!     SOCKET => Some(folder.path().join("socket").into()),
//!     _ => None,
//! };
//! let paths = Paths::new(Path::new("/"), &variable);
//! let mut events = Vec::new();
//! let any = detach(&paths, Some(Pid(std::process::id())), &Terminal, &mut events)?;
//! // Nothing balances this process.
//! assert!(!any && events.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`monitor`] is the parent of a run that is watched; [`attach`] balances programs that run
//!    already, and [`mod@detach`] ends such balancing from another process.
//! 2. [`service`] balances tagged programs of all users; [`guest`] is the agent that reports to it
//!    from inside a virtual machine.
//! 3. [`monitored_host`] is the live machine with the additions that all of these need.
//!    [`step_sinks`] are the receivers of each sample and its decisions: traces ([`recorder`]),
//!    metrics ([`metrics`]).
//! 4. [`restoration`] gives threads their own masks back after a balancer was killed.

#![forbid(unsafe_code)]

pub mod attach;
pub mod detach;
pub mod guest;
pub mod jobserver;
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
