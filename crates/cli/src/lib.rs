//! The `trimtab` program: commands, and the text and tables that they print. Every number shown is
//! computed elsewhere.

#![forbid(unsafe_code)]

pub mod args;
pub mod budget_text;
pub mod commands;
pub mod escapes;
pub mod foreign_load;
pub mod gather;
pub mod holds;
pub mod monitor;
pub mod narrate;
pub mod profile;
pub mod queue;
pub mod reserve;
pub mod run_report;
pub mod site;
pub mod site_facts;
#[cfg(test)]
#[path = "../../agent/src/skip.rs"]
mod skip;
pub mod sync_text;
pub mod traces;
pub mod tuning_store;

pub use trimtab_front::{diagnostics as say, exit, machine, process_env as world, table};

#[cfg(test)]
#[path = "../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;
