//! Budget of a hold: real OpenMP programs, several processes, and what befalls them.
//!
//! The test plays the launcher: it makes the page and holds it. Programs are told that the hold has
//! more cores than this machine, so that the sizes are those of the policy and not of the machine.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod common;

#[path = "budget/blas.rs"]
mod blas;
#[path = "budget/hold.rs"]
mod hold;
#[path = "budget/processes.rs"]
mod processes;
#[path = "budget/runtimes.rs"]
mod runtimes;
