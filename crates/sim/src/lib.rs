//! Simulated machine: a [`Host`](trimtab_core::drive::Host) that needs no hardware.
//!
//! Problem: policies must be correct on four to sixteen sockets, on thousands of cores and under
//! hostile load, and this must be tested with the shipped policy code itself. Idea: a
//! discrete-event machine of cores, caches, memory nodes and links under a model of the kernel's
//! own scheduler. Programs of threads run on it, compute, wait and miss their caches. The policies
//! of `core` run over it unchanged.
//!
//! Boundaries: the crate reads no clock, no file and no environment variable, and starts no thread.
//! Texts and seeds are arguments. The crate does not use the crate `linux`. Equal scenario and seed
//! give equal runs, to the byte.
//!
//! # Example
//!
//! ```
//! use trimtab_core::drive::Go;
//! use trimtab_sim::scenario::{self, file::File};
//!
//! // Three threads of one second of work each, on two CPUs.
//! let text = r#"
//!     machine = "core:2"
//!     kernel = "linux-6.18"
//!     end = "10 s"
//!
//!     [[program]]
//!     name = "app"
//!     threads = 3
//!     work = "1 s"
//!
//!     [sweep]
//!     policy = ["none", "speed"]
//! "#;
//! let file = File::open("example", text, &[], &mut |path| Err(format!("{path}: not here")))?;
//! for at in 0..file.len() {
//!     let outcome = scenario::run(&file.scenario(at)?, &mut |_| {}, &mut |_| Go::On);
//!     // Three seconds of work take two CPUs a second and a half at least.
//!     let makespan = outcome.programs[0].makespan.expect("the program ended");
//!     assert!(makespan.seconds() >= 1.5);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! - [`model`]: the machine's parameters: speeds, caches, memory, links, costs of a context switch.
//! - [`memory`]: state of caches, nodes and links, which decides how fast a running thread
//!   progresses.
//! - [`program`]: programs: threads, phases, barriers, footprints, ways of waiting.
//! - [`reader`]: reader of files, key by key; its errors name the line and the allowed values.
//! - [`kernel`]: the model of the kernel's scheduler and its constants.
//! - [`world`]: the event loop of threads, CPUs and scheduler.
//! - [`host`]: a world as `core`'s host.
//! - [`progress`]: the interface between the world and a model of memory.
//! - [`scenario`]: a whole run as data, executed by one function; [`outcome`]: its result;
//!   [`faults`]: faults injected during the run.
//! - [`observer_cost`]: the cost and the accuracy of samples.
//! - [`recorded`]: the scenario of a recorded run.
//! - [`measured_cases`]: measurements of real machines, next to runs of the model.
//! - [`published`]: published results, as data; [`figures`]: the model next to them.
//! - [`queue`], [`rng`]: ordered events, pseudo-random numbers.

#![forbid(unsafe_code)]

pub mod checkers;
pub mod faults;
pub mod figures;
pub mod host;
pub mod kernel;
pub mod measured_cases;
pub mod memory;
pub mod model;
pub mod observer_cost;
pub mod outcome;
pub mod program;
pub mod progress;
pub mod published;
pub mod queue;
pub mod reader;
pub mod recorded;
pub mod rng;
pub mod scenario;
mod sched;
pub mod swarm;
pub mod world;
