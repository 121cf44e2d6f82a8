//! `brm`, `brm-paper`, `serial`: NUMA policies that move threads between nodes until all threads
//! stall least on memory.
//!
//! Unit: an [`Index`](crate::penalty::Index) of the stalls of threads beyond their private caches.
//!
//! Problem: on a machine with several nodes, the same thread runs up to half slower in the wrong
//! place, and no rule says which place is right: remote memory, a crowded cache or controller, and
//! data shared across sockets pull in different directions.
//!
//! Idea: try moves instead of modelling. One number measures the stalls of all threads, and threads
//! go where that number is lowest. Targets are units (a node, or each last-level cache of a node),
//! never single CPUs: within a unit the kernel balances as before.
//!
//! - `brm-paper` ([`Paper`]): the published rule with all its gaps. Each candidate stores the index
//!   of all threads while it was in each unit. Its readiness to leave grows with each sample at
//!   which another unit was better, and it leaves by a random draw.
//! - `brm` ([`bias`]): the same rule with its gaps closed: bounded, ageing memory, one mover at a
//!   time per unit, and each move on trial.
//! - `serial` ([`serial`](mod@serial)): no memory: one move or exchange at a time on the whole
//!   machine, on trial.
//!
//! Source: Rao, Wang, Zhou, Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore Systems",
//! HPCA 2013.

mod bias;
mod engine;
mod limits;
mod move_cost;
mod move_evaluation;
mod move_trial;
mod page_migration;
mod paper;
mod proposer;
mod serial;
mod settings;
#[cfg(test)]
mod testing;
mod thread_stats;
mod trial_pins;
mod units;

pub(super) use paper::Paper;
pub use settings::{BiasReading, Candidates, PenaltySettings, UnknownCandidates};

use super::{Policy, Settings};
use crate::topology::Machine;
use bias::Bias;
use engine::Engine;
use serial::HillClimb;

/// Creates `brm` for a machine.
pub(super) fn brm(machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    Box::new(Engine::new(machine, settings, Bias::default()))
}

/// Creates `serial` for a machine.
pub(super) fn serial(machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    Box::new(Engine::new(machine, settings, HillClimb::default()))
}
