//! `brm`, `brm-paper`, `serial`: threads that stall on memory move between nodes until all stall least.
//!
//! Unit: an [`Index`](crate::penalty::Index) of what threads suffer beyond their private caches. Problem: on a machine of several
//! nodes the same thread runs up to half slower in the wrong place, and no rule says which place is right: remote memory, a crowded
//! cache or controller, and data shared across sockets pull in different directions. Idea: do not model, try. One number tells how
//! much all suffer; threads go where that number is lowest. Targets are units (a node, or each last cache of it), never single CPUs:
//! within a unit the kernel balances as before.
//!
//! - `brm-paper` ([`Paper`]): the published rule, each gap as it is. Each candidate remembers how much all suffered while it was in each unit,
//!   becomes readier to leave with each look at which it was better elsewhere, and draws.
//! - `brm` ([`bias`]): the same with its gaps closed: bounded, aged memory, one mover at a time in a unit, and each move on trial.
//! - `serial` ([`serial`](mod@serial)): no memory at all: one move or exchange at a time anywhere, on trial.
//!
//! Source: Rao, Wang, Zhou, Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore Systems", HPCA 2013.

mod bias;
mod engine;
mod fence;
mod fetch;
mod guard;
mod herd;
mod judge;
mod ledger;
mod paper;
mod serial;
mod settings;
#[cfg(test)]
mod testing;
mod trial;
mod units;
mod way;

pub(super) use paper::Paper;
pub use settings::{Candidates, PenaltySettings, UnknownCandidates};

use super::{Policy, Settings};
use crate::topology::Machine;
use bias::Bias;
use engine::Engine;
use serial::Climb;

/// `brm` for a machine.
pub(super) fn brm(machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    Box::new(Engine::new(machine, settings, Bias::default()))
}

/// `serial` for a machine.
pub(super) fn serial(machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    Box::new(Engine::new(machine, settings, Climb::default()))
}
