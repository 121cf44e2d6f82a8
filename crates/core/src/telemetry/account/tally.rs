//! How much was done, in a handful of numbers: what one line of status has room for.
//!
//! An [`Account`](super::Account) keeps one, and who needs no more than this keeps one alone: it costs nothing to speak of.

use crate::balance::{Finding, Outcome, Settled};
use crate::drive::Step;
use crate::observe::Metric;
use serde::Serialize;

/// How much was done while watching.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Tally {
    /// Looks.
    pub looks: u64,
    /// Moves and releases that were carried out.
    pub applied: u64,
    /// Those that the kernel or the host refused.
    pub refused: u64,
    /// Those whose thread had ended.
    pub vanished: u64,
    /// Threads that were seen, ended ones included.
    pub threads: u64,
    /// Living threads at the last look.
    pub alive: u64,
    /// The speeds of the slowest and the fastest at the last look in which any had one.
    pub speeds: Option<(f64, f64)>,
    /// What the policy thought last.
    pub findings: Vec<Finding>,
}

impl Tally {
    /// Counts a step, in which speed is measured like this. Whether the policy came to think something else.
    pub fn take(&mut self, step: &Step<'_>, metric: Metric) -> bool {
        self.looks += 1;
        self.alive = step.seen.threads.len() as u64;
        let speeds = step.seen.threads.iter().filter_map(|thread| thread.speed(metric));
        let extremes = speeds.fold(None, |extremes: Option<(f64, f64)>, speed| {
            Some(extremes.map_or((speed, speed), |(low, high)| (low.min(speed), high.max(speed))))
        });
        self.speeds = extremes.or(self.speeds);
        let settled = step.outcomes.iter().chain(&step.sample.settled);
        settled.for_each(|outcome| self.settle(outcome));
        // News are also sent of threads that are known, but a number is never used again, and numbers ascend.
        let newest = step.sample.news.iter().map(|info| u64::from(info.id.0) + 1).max();
        self.threads = self.threads.max(newest.unwrap_or(0));
        let changed = !step.turn.findings.is_empty() && step.turn.findings != self.findings;
        if changed {
            self.findings.clone_from(&step.turn.findings);
        }
        changed
    }

    fn settle(&mut self, outcome: &Outcome) {
        match outcome.end {
            Settled::Applied => self.applied += 1,
            Settled::Refused(_) => self.refused += 1,
            Settled::Vanished => self.vanished += 1,
            // Its end comes later.
            Settled::Pending => {}
        }
    }
}
