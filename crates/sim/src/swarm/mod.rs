//! Swarm: scenarios drawn at random and run under all checkers; failing ones are shrunk.
//!
//! Problem: the author of a test does not think of every scenario, such as a CPU that goes offline
//! while two exchanges are half done. Idea: machines, kernels, programs, policies and faults are
//! drawn from a seed, in large numbers. Each run has a phase with every possible fault, and a phase
//! in which nothing changes any more and the balance must settle. A [`Draft`] is such a scenario
//! before it is built, so that it can be taken apart again: [`shrink()`] leaves out the parts that
//! are not needed to break the same invariant.
//!
//! Properties: draft number i of a seed does not depend on the drawing program, the order or the
//! number of threads; neither do its violations, nor its shrunk form.

pub mod draft;
mod draw;
mod shrink;

pub use draft::{Draft, DraftMachine};
pub use draw::{Size, draw};
pub use shrink::{Shrunk, shrink};

use crate::checkers::{Violation, check};

/// Result of one draft.
#[derive(Clone, PartialEq, Debug)]
pub struct DraftRun {
    /// Events that the simulator processed.
    pub events: u64,
    /// Violations.
    pub violations: Vec<Violation>,
}

/// Runs a draft under all checkers.
pub fn run(draft: &Draft) -> DraftRun {
    let (outcome, violations) = check(&draft.scenario());
    DraftRun { events: outcome.events, violations }
}

#[cfg(test)]
mod tests;
