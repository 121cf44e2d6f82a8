//! The `trimtab` program: commands, and the words and tables they print. Every number shown is computed elsewhere.

#![forbid(unsafe_code)]

pub mod args;
mod aside;
pub mod audit;
pub mod commands;
pub mod escapes;
pub mod exit;
pub mod gather;
pub mod holds;
pub mod kept;
pub mod leftovers;
pub mod machine;
pub mod meetings;
pub mod metrics;
pub mod narrate;
pub mod output;
pub mod profile;
pub mod recorder;
pub mod reserve;
pub mod say;
pub mod serve;
mod service;
pub mod site;
pub mod situation;
#[cfg(test)]
mod skip;
pub mod surroundings;
pub mod table;
pub mod tagged;
pub mod traces;
pub mod vms;
pub mod watched;
pub mod watching;
pub mod world;
pub mod wrapper;

#[cfg(test)]
#[path = "../tests/program/runs.rs"]
mod runs;
