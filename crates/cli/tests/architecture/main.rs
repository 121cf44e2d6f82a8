//! Tests of the walls in ARCHITECTURE.md that the sources can show: the crates that each crate
//! uses, the places of unsafe code, the names that pure crates must not contain, and modules that
//! use each other in a circle. Beside them, the examples of the documentation and the recipes of
//! CONTRIBUTING.md.
//!
//! The page itself lists what is allowed: the tests read its tables, so that it cannot differ from
//! the code.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod circles;
mod examples;
mod recipes;
mod source;
mod walls;
mod weight;

/// Reports that a test cannot run here.
#[allow(clippy::print_stderr, reason = "the summary of tests counts these lines")]
fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}
