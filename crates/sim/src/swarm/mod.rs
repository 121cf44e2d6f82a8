//! Swarm: scenarios drawn at random, run under all checkers; what fails is made small.
//!
//! Problem: nobody thinks of the scenario in which two half exchanges meet a vanishing CPU. Idea: machines, kernels, programs, policies and
//! faults are drawn from a seed, a lot of them; each run has a phase in which everything goes wrong that may, and one in which nothing changes any more
//! and the balance must come to rest. A [`Draft`] is such a scenario before it is built, so that it can be taken apart again: [`shrink()`] leaves
//! out whatever is not needed for the same law to be broken.
//!
//! Properties: draft number i of a seed is the same whoever draws it, in whatever order and on how many threads of the
//! machine; so is what it violates, and what it shrinks to.

pub mod draft;
mod draw;
mod shrink;

pub use draft::{Draft, Ground};
pub use draw::{Size, draw};
pub use shrink::{Shrunk, shrink};

use crate::checkers::{Violation, check};

/// What came of one draft.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The events that the simulator worked off.
    pub events: u64,
    /// What was violated.
    pub violations: Vec<Violation>,
}

/// Runs a draft under all checkers.
pub fn run(draft: &Draft) -> Run {
    let (outcome, violations) = check(&draft.scenario());
    Run { events: outcome.events, violations }
}

#[cfg(test)]
mod tests;
