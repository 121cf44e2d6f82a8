//! The simulated machine: a [`Host`](trimtab_core::drive::Host) that nobody has to own.
//!
//! Problem: policies must be right on four to sixteen sockets, thousands of cores and hostile load, and must be proved there line
//! for line. Idea: a discrete-event machine of cores, caches, memory nodes and links under a model of the kernel's own scheduler,
//! on which programs of threads run, compute, wait and miss their caches. The policies of `core` run over it unchanged.
//!
//! Walls: it reads no clock, no file, no variable and starts no thread; texts and seeds are arguments; it never sees `linux`.
//! Equal scenario and seed give equal runs, to the byte.
//!
//! - [`model`]: the machine's parameters: speeds, caches, memory, links, what a switch costs.
//! - [`memory`]: caches, nodes and links as state: how fast a running thread progresses.
//! - [`program`]: what runs: threads, phases, barriers, footprints, ways of waiting.
//! - [`reader`]: files read key by key, with errors that teach.
//! - [`kernel`]: which model of the kernel's scheduler, with which constants.
//! - [`world`]: the event loop of threads, CPUs and scheduler.
//! - [`host`]: a world as `core`'s host.
//! - [`progress`]: what the world asks of a model of memory.
//! - [`scenario`]: all of it as data, run by one function; [`outcome`]: what came of it; [`faults`]: what goes wrong meanwhile.
//! - [`observer_cost`]: what looks at threads cost, and how exact they are.
//! - [`measured_cases`]: what was measured on real machines, as runs of the model beside it.
//! - [`published`]: what was published, as data; [`figures`]: the model beside it.
//! - [`queue`], [`rng`]: events in order, numbers that look random.

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
pub mod rng;
pub mod scenario;
mod sched;
pub mod swarm;
pub mod world;
