//! Shared library of the front ends: process environment, messages, exit statuses, tables, charts,
//! and parsers of values on the command line. It makes no decision and no measurement.
//!
//! # Example
//!
//! ```
//! use trimtab_front::args::time::interval;
//! use trimtab_front::exit::{self, Exit};
//! use trimtab_front::table::{Align, Table};
//!
//! // A value of the command line; an error names its fault.
//! assert_eq!(interval("100ms")?.seconds(), 0.1);
//! let error = interval("often").map_err(|why| Exit::new(exit::FAILED, anyhow::anyhow!(why)));
//! assert_eq!(error.unwrap_err().status, 2);
//!
//! // Results as a table.
//! let mut table = Table::new(&[("PROGRAM", Align::Left), ("CORES", Align::Right)]);
//! table.row(["solver".to_owned(), "16".to_owned()]);
//! assert_eq!(table.to_string(), "PROGRAM  CORES\nsolver      16\n");
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`process_env::World`] is the environment of the process, read once at the start.
//! 2. [`diagnostics`] writes messages to standard error, [`print()`] results to standard output;
//!    [`exit`] has the statuses.
//! 3. [`args`] has the forms of values on the command line: times, words of a list, numbers.
//! 4. [`units`], [`table`], [`chart`], [`date`], [`progress`] and [`status_line`] format the
//!    output.

#![forbid(unsafe_code)]

pub mod args;
pub mod chart;
pub mod date;
pub mod diagnostics;
pub mod exit;
pub mod interrupt;
pub mod machine;
pub mod process_env;
pub mod progress;
pub mod sibling;
pub mod status_line;
pub mod stdout;
pub mod study;

pub mod table;
pub mod units;

pub use stdout::print;
