//! The live Linux machine: everything that trimtab reads from it and does to it.
//!
//! All raw system calls are in [`sys`], one per wrapper; unsafe code is allowed only there.
//! Everything above it takes slices, owned descriptors and the core's id types, and returns typed
//! errors that name the operation and its object. No function here chooses anything: it reads, or
//! it carries out.

#![warn(missing_docs)]

mod boot;
pub mod budget;
pub mod calibrate;
pub mod child;
pub mod host;
pub mod launch;
pub mod ledger;
pub mod limits;
pub mod machine;
pub mod meetings;
pub mod memory;
pub mod perf;
pub mod preemption;
pub mod process;
pub mod program;
#[cfg(test)]
mod skip;
pub mod socket;
pub mod survey;
pub mod sys;
pub mod text;
pub mod users;
pub mod vcpus;
