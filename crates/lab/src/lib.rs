//! Commands of the laboratory: benchmarks of the live machine, the field kit, the front end of the
//! simulator, the service, the tuning of programs and teams, advice, the checker of plans, replays,
//! and pages made of records. Other crates compute every number that is shown.
//!
//! # Example
//!
//! A command of the laboratory, as `trimtab-lab` carries it out:
//!
//! ```
//! use clap::Parser;
//! use trimtab_lab::args::{Cli, Command};
//! use trimtab_lab::sim;
//!
//! let Command::Sim(args) = Cli::try_parse_from(["trimtab-lab", "sim", "machines"])?.command else {
//!     panic!("it is sim");
//! };
//! // Prints the machines that can be simulated, and returns the exit status.
//! assert_eq!(sim::run(&args).map_err(|error| error.to_string())?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`args`] has the options of all commands.
//! 2. [`mod@bench`] has a folder for each series of benchmarks, and `bench::harness`, which runs
//!    them.
//! 3. [`sim`], [`mod@advise`], [`mod@check`], [`each`], [`field`], [`replay`], [`report`],
//!    [`serve`], [`top`], [`mod@tune`] and [`tune_team`] are commands; [`mod@hold`] has those that
//!    hold cores for others; [`nri`] is the plug-in for container runtimes, and [`hook`] has the
//!    hooks of engines of virtual machines; [`generate`] writes the man pages and completions of both programs.

#![forbid(unsafe_code)]

pub mod advise;
pub mod args;
pub mod bench;
pub mod check;
pub mod each;
pub mod field;
pub mod generate;
pub mod hold;
pub mod hook;
#[cfg(test)]
mod kept_pictures;
pub mod nri;
pub mod replay;
pub mod report;
#[cfg(test)]
#[path = "../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;
pub mod serve;
pub mod sim;
pub mod top;
pub mod tune;
pub mod tune_team;
mod usable;
