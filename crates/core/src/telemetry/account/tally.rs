//! Tally of a run: the few numbers that fit in one status line.
//!
//! An [`Account`](super::Account) keeps a tally. A caller that needs no more than this can keep a
//! tally alone, at negligible cost.

use crate::balance::{Finding, Outcome, Refusal, Settled};
use crate::drive::Step;
use crate::observe::Metric;
use serde::Serialize;

/// Counts of samples, decisions and threads.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Tally {
    /// Number of samples.
    pub looks: u64,
    /// Moves and releases that were carried out.
    pub applied: u64,
    /// Moves and releases that the kernel or the host refused.
    pub refused: u64,
    /// Moves and releases that the host withheld, since it only observes.
    #[serde(skip_serializing_if = "is_zero")]
    pub withheld: u64,
    /// Moves and releases of threads that had already ended.
    pub vanished: u64,
    /// Number of threads seen, ended ones included.
    pub threads: u64,
    /// Number of living threads in the last sample.
    pub alive: u64,
    /// Speeds of the slowest and the fastest thread, in the last sample in which any thread had a
    /// speed.
    pub speeds: Option<(f64, f64)>,
    /// Latest findings of the policy.
    pub findings: Vec<Finding>,
}

impl Tally {
    /// Counts a step, with speed measured by `metric`. Returns whether the policy's findings have
    /// changed.
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
        // News are also sent for known threads. But a number is never reused, and numbers ascend,
        // so the highest number counts the threads.
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
            Settled::Refused(Refusal::Observed) => self.withheld += 1,
            Settled::Refused(_) => self.refused += 1,
            Settled::Vanished => self.vanished += 1,
            // The outcome comes in a later sample.
            Settled::Pending => {}
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
