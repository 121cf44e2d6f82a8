//! The `trimtab` program: commands, and the text and tables that they print. Other crates compute
//! every number that is shown.
//!
//! # Example
//!
//! The program parses a command line into a value before it carries the command out:
//!
//! ```
//! use std::ffi::OsString;
//! use trimtab_cli::args::{Cli, Command};
//!
//! let line = "trimtab run -c 2xl3 ./app --fast";
//! let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
//! let Command::Run(args) = Cli::read(&words)?.command else { panic!("it is run") };
//! assert_eq!(args.place.cores, Some("2xl3".parse()?));
//! assert_eq!(args.command, ["./app", "--fast"]); // The program and its own options.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`args`] is the one definition of all options, from which parser, help, man pages and
//!    completions are made.
//! 2. [`commands`] has a file for each command; `commands::run` lists the steps of a run.
//! 3. [`gather`] makes the request of a launch, `trimtab_hold` reads its facts and takes its cores,
//!    [`mod@narrate`] prints the reasons of the decision.

#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod gather;
pub mod monitor;
pub mod narrate;
pub mod profile;
pub mod run_report;
#[cfg(test)]
#[path = "../../agent/src/skip.rs"]
mod skip;
pub mod sync_text;
pub mod traces;
pub mod tuning_store;

pub use trimtab_front::{diagnostics as say, exit, machine, process_env as world, table};
