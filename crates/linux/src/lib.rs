//! The live Linux machine: all reads from it and all changes of it by trimtab.
//!
//! All raw system calls are in [`sys`], one per wrapper; unsafe code is allowed only there.
//! Everything above it takes slices, owned descriptors and the core's id types, and returns typed
//! errors that name the operation and its object. No function here makes a choice: each one reads
//! the machine or carries out a decision.
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//! use trimtab_linux::ledger::{BootId, Ledger, Level, Location, Mode, ProcessTable};
//! use trimtab_linux::limits::Limits;
//!
//! // The CPUs that this process may use: online, in its cpuset and in its mask.
//! let limits = Limits::read(Path::new("/"), None)?;
//!
//! // All of them, reserved in a ledger of its own.
//! let folder = tempfile::tempdir()?;
//! let proc = Path::new("/proc");
//! let ledger = Ledger::open(&Location::named(folder.path(), BootId::read(proc)?))?;
//! let holder = ProcessTable::at(proc).this_process(0, Duration::ZERO, "example")?;
//! let take = || ledger.take(Level::MACHINE, &limits.allowed, Mode::Exclusive, &holder);
//! let held = take()?;
//! assert_eq!(held.cpus(), &limits.allowed);
//! assert!(take().is_err()); // No CPU is held twice.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`machine`] loads the model of this machine, [`limits`] the bounds of this process,
//!    [`survey`] the load of the CPUs, [`program`] the facts of a program's file.
//! 2. [`ledger`] holds the reservations of all runs.
//! 3. [`mod@launch`] carries a plan out: masks, memory policy, environment, exec.
//! 4. [`partitions`] makes control groups of holds, for a service that enforces them.
//! 5. [`host`] observes running programs and moves their threads; [`perf`] counts hardware events.

#![warn(missing_docs)]

mod boot;
pub mod budget;
pub mod calibrate;
pub mod capture;
pub mod child;
pub mod devices;
pub mod host;
pub mod jobserver;
pub mod keeper;
pub mod kept_yield;
pub mod launch;
pub mod ledger;
pub mod limits;
pub mod machine;
pub mod meetings;
pub mod memory;
pub mod partitions;
pub mod perf;
pub mod preemption;
pub mod pressure;
pub mod process;
pub mod program;
pub mod rebind;
pub mod resctrl;
#[cfg(test)]
mod skip;
pub mod socket;
pub mod survey;
pub mod sys;
pub mod task_iterator;
pub mod text;
pub mod users;
pub mod vcpus;
