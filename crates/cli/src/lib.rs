//! The `trimtab` program: commands, and the words and tables they print. Every number shown is computed elsewhere.

#![forbid(unsafe_code)]

pub mod args;
pub mod audit;
pub mod commands;
pub mod escapes;
pub mod guest;
pub mod holds;
pub mod kept;
pub mod launch;
pub mod launchers;
pub mod leftovers;
pub mod meetings;
pub mod metrics;
pub mod nest;
pub mod output;
pub mod profile;
pub mod recorder;
pub mod reserve;
pub mod serve;
mod service;
pub mod site;
pub mod situation;
#[cfg(test)]
mod skip;
pub mod surroundings;
pub mod tagged;
pub mod traces;
pub mod tuned;
pub mod vms;
pub mod watched;
pub mod watching;
pub mod wrapper;

use trimtab_front::spawn as aside;
pub use trimtab_front::{diagnostics as say, exit, machine, own_values, process_env as world, table};

#[cfg(test)]
#[path = "../tests/program/runs.rs"]
mod runs;
