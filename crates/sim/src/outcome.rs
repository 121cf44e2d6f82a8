//! Result of a simulated run.

mod value;

pub use value::{UnknownValue, Value};

use serde::Serialize;
use trimtab_core::balance::Settled;
use trimtab_core::drive::Step;
use trimtab_core::time::{Moment, Span};

/// Summary of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Time at which the run was over: the last program that can end had ended, or the scenario's
    /// end (also if no program can end).
    pub ended: Moment,
    /// Whether all programs that can end did.
    pub complete: bool,
    /// Programs in the order in which they were added; arrivals come after those of the scenario.
    pub programs: Vec<ProgramOutcome>,
    /// Lowest busy time of a usable CPU over the highest: 1 is even.
    pub balance: Option<f64>,
    /// Share of the CPUs' time in which they were busy, 0 to 1; `None` for a run that took no time,
    /// as for `throughput`.
    pub busy: Option<f64>,
    /// Programs that ended by themselves, per second.
    pub throughput: Option<f64>,
    /// Samples that the policy took.
    #[serde(rename = "looks")]
    pub samples: u64,
    /// CPU time that the policy's samples took.
    #[serde(rename = "looking")]
    pub sampling_time: Span,
    /// Moves that the policy asked for and that were done.
    pub moved: u64,
    /// Moves that were refused or came too late.
    pub refused: u64,
    /// Number of times that a thread ran on another CPU than before, for any reason.
    pub migrations: u64,
    /// Number of times that a thread was put on a CPU.
    pub switches: u64,
    /// Events that the simulator processed.
    pub events: u64,
}

/// Result of one program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramOutcome {
    /// Name.
    pub name: String,
    /// Start time.
    pub start: Moment,
    /// Whether the program ends by itself; a hog does not.
    pub ends: bool,
    /// Whether an event ended the program before it had ended by itself.
    pub stopped: bool,
    /// Time until the program ended or was ended; `None` if neither.
    pub makespan: Option<Span>,
    /// Time over the ideal time: all work of all threads at the most that the machine can do
    /// ([`Model::capacity`](crate::model::Model::capacity)); never less than 1. `None` if the
    /// program has no end of its own.
    pub ratio: Option<f64>,
    /// Number of threads that the program had.
    pub threads: u32,
    /// Work done, in time on an idle reference core.
    pub work: Span,
    /// Time on CPUs, including the time spent polling for other threads.
    pub run: Span,
    /// Time ready without a CPU.
    pub wait: Span,
    /// Lines fetched from memory of the thread's own node.
    pub local: f64,
    /// Lines fetched from memory of other nodes.
    pub remote: f64,
}

/// Counts of a policy's actions in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) samples: u64,
    pub(crate) moved: u64,
    pub(crate) refused: u64,
}

impl Tally {
    /// Adds a step.
    pub(crate) fn take(&mut self, step: &Step<'_>) {
        self.samples += 1;
        for outcome in step.outcomes.iter().chain(&step.sample.settled) {
            match outcome.end {
                Settled::Applied => self.moved += 1,
                Settled::Refused(_) | Settled::Vanished => self.refused += 1,
                Settled::Pending => {}
            }
        }
    }
}
