//! Shared library of the front ends: process environment, messages, exit statuses, tables, charts,
//! and parsers of values on the command line. It decides nothing and measures nothing.

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

pub use stdout::print;
