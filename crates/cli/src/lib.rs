//! The `trimtab` program: commands, and the words and tables they print. Every number shown is computed elsewhere.

#![forbid(unsafe_code)]

pub mod args;
pub mod audit;
pub mod commands;
pub mod escapes;
pub mod gather;
pub mod holds;
pub mod kept;
pub mod meetings;
pub mod monitor;
pub mod narrate;
pub mod profile;
pub mod reserve;
pub mod site;
pub mod situation;
#[cfg(test)]
#[path = "../../agent/src/skip.rs"]
mod skip;
pub mod surroundings;
pub mod traces;

pub use trimtab_front::{diagnostics as say, exit, machine, process_env as world, table};

#[cfg(test)]
#[path = "../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;
