//! What came of a simulated run.

mod value;

pub use value::{UnknownValue, Value};

use serde::Serialize;
use trimtab_core::balance::Settled;
use trimtab_core::drive::Step;
use trimtab_core::time::{Moment, Span};

/// A run, summed up.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// When it was over: the last program that can end had ended, or the scenario's end, also where no program can.
    pub ended: Moment,
    /// Whether all programs that can end did.
    pub complete: bool,
    /// The programs, in the order in which they were added, arrivals after those of the scenario.
    pub programs: Vec<ProgramOutcome>,
    /// Lowest over highest time that any CPU which may be used was busy: 1 is even.
    pub balance: Option<f64>,
    /// Share of the CPUs' time in which they were busy; `None` of a run that took no time, as of `throughput`.
    pub busy: Option<f64>,
    /// Programs that ended by themselves, a second.
    pub throughput: Option<f64>,
    /// Looks of the policy.
    pub looks: u64,
    /// CPU time that its looks took.
    pub looking: Span,
    /// Moves that the policy asked for and that were done.
    pub moved: u64,
    /// Moves that were refused, or came too late.
    pub refused: u64,
    /// How often a thread ran on another CPU than before, whoever moved it.
    pub migrations: u64,
    /// How often a thread was put on a CPU.
    pub switches: u64,
    /// Events that the simulator worked off.
    pub events: u64,
}

/// What became of a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramOutcome {
    /// What it is called.
    pub name: String,
    /// When it started.
    pub start: Moment,
    /// Whether it ends by itself, as a hog does not.
    pub ends: bool,
    /// Whether an event ended it before it had ended by itself.
    pub stopped: bool,
    /// How long it took until it ended or was ended; `None` if neither.
    pub makespan: Option<Span>,
    /// Time over the ideal's: all work of all threads at the most that the machine can do ([`Model::capacity`](crate::model::Model::capacity));
    /// never less than 1. `None` without an end of its own.
    pub ratio: Option<f64>,
    /// How many threads it had.
    pub threads: u32,
    /// Work done, on an idle reference core.
    pub work: Span,
    /// Time on CPUs, waiting for others by polling included.
    pub run: Span,
    /// Time ready without a CPU.
    pub wait: Span,
    /// Lines fetched from memory, of the own node and of others.
    pub local: f64,
    /// See `local`.
    pub remote: f64,
}

/// What a policy did in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) looks: u64,
    pub(crate) moved: u64,
    pub(crate) refused: u64,
}

impl Tally {
    /// Takes a step in.
    pub(crate) fn take(&mut self, step: &Step<'_>) {
        self.looks += 1;
        for outcome in step.outcomes.iter().chain(&step.sample.settled) {
            match outcome.end {
                Settled::Applied => self.moved += 1,
                Settled::Refused(_) | Settled::Vanished => self.refused += 1,
                Settled::Pending => {}
            }
        }
    }
}
