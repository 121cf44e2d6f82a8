//! The live Linux machine: everything trimtab reads from it and does to it.
//!
//! All raw system calls stand in [`sys`], one per wrapper, the only place here where unsafe code may stand. Everything
//! above it takes slices, owned descriptors and the core's id types, and returns typed errors that say what was
//! attempted on what. No function here chooses anything: it reads, or it carries out.

#![warn(missing_docs)]

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
