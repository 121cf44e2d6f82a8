//! Sampling budget: the share of one CPU that samples may cost, and the sampling rate that follows.
//!
//! Unit: CPU time over elapsed time. Problem: the cost of a sample depends on the number of
//! threads, on the requested counters, and on the machine (an emulated one takes ten times as
//! long), and sampling must not become the load itself. Idea: a [`SamplingBudget`] says how much
//! time must pass for a cost to be paid off. If single rounds count, a [`Pacer`] waits until that
//! time has passed. If the usual cost counts, a [`SmoothedMean`] of the costs is paid off.
//!
//! Terms. A cost is *paid off* when the time passed is so long that the cost is the budget's share
//! of it.
//!
//! Properties: the module is pure. The arithmetic of each policy keeps its own order and rounding,
//! since published figures depend on it.

use crate::time::{Moment, Span};

/// Close samples for a report: switches, migrations and memory of each thread and process.
pub const CLOSE_SAMPLES: SamplingBudget = SamplingBudget::one_in(100);
/// Samples for a report, in the first seconds of a program: a program whose threads keep all CPUs
/// busy and meet often loses several times this share. Chosen.
pub const REPORT_SAMPLES: SamplingBudget = SamplingBudget::share(0.005);
/// Search for new processes of one user.
pub const FINDING_PROCESSES: SamplingBudget = SamplingBudget::one_in(1_000);
/// List of the threads of one user's processes.
pub const LISTING_THREADS: SamplingBudget = SamplingBudget::one_in(20);
/// Opening, switching and reading hardware counters: half of the budget of sampling. Chosen.
pub const READING_COUNTERS: SamplingBudget = SamplingBudget::share(0.005);
/// Slowdown of the counted threads by switching their counters, as a share of their own time.
/// Chosen: too small to be noticed.
pub const SLOWING_COUNTED: SamplingBudget = SamplingBudget::share(0.01);

/// A share of one CPU, above 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SamplingBudget {
    share: f64,
}

impl SamplingBudget {
    /// Creates a budget of this share.
    pub const fn share(share: f64) -> Self {
        Self { share }
    }

    /// Creates a budget of one part in `parts`.
    pub const fn one_in(parts: u32) -> Self {
        Self { share: 1.0 / parts as f64 }
    }

    /// Returns the share.
    pub const fn as_share(self) -> f64 {
        self.share
    }

    /// Returns the time in which a cost is paid off.
    pub fn payoff(self, cost: Span) -> Span {
        cost.times(1.0 / self.share)
    }

    /// Returns how many times over a cost of this share spends the budget.
    pub fn times_spent(self, share: f64) -> f64 {
        share / self.share
    }
}

/// Exponentially smoothed mean: each new value shifts the mean by a part of the difference.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmoothedMean {
    mean: Option<f64>,
    values: u32,
    /// Part of the difference by which a new value shifts the mean, in (0, 1].
    weight: f64,
    /// Whether the first 1 / `weight` values all have the same weight.
    averages_first: bool,
}

impl SmoothedMean {
    /// Creates a mean without values; each value but the first shifts the mean by this part of the
    /// difference.
    pub const fn new(weight: f64) -> Self {
        Self { mean: None, values: 0, weight, averages_first: false }
    }

    /// Uses the plain mean for the first 1 / `weight` values.
    pub const fn averaging_first(self) -> Self {
        Self { averages_first: true, ..self }
    }

    /// Uses this mean until the first value.
    pub const fn beginning_at(self, mean: f64) -> Self {
        Self { mean: Some(mean), ..self }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.values = self.values.saturating_add(1);
        let own = if self.averages_first { 1.0 / f64::from(self.values) } else { 0.0 };
        let weight = own.max(self.weight);
        self.mean = Some(self.mean.map_or(value, |mean| mean + weight * (value - mean)));
    }

    /// Returns the mean; `None` before the first value.
    pub const fn get(&self) -> Option<f64> {
        self.mean
    }
}

/// Longest wait for the debt of a [`Pacer`], so that one slow round does not stop sampling for
/// long. Chosen: programs change within seconds.
const WAIT_MAX: Span = Span::from_ms(5_000);
/// Weight of the newest round in [`Pacer::share`].
const SHARE_WEIGHT: f64 = 0.1;

/// Pacer that keeps a budget round by round: no round begins before the costs of earlier rounds are
/// paid off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pacer {
    budget: SamplingBudget,
    paid: Moment,
    last: Option<Moment>,
    share: SmoothedMean,
    slowed: u64,
}

impl Pacer {
    /// Creates a pacer for this budget.
    pub const fn new(budget: SamplingBudget) -> Self {
        Self { budget, paid: Moment(0), last: None, share: SmoothedMean::new(SHARE_WEIGHT), slowed: 0 }
    }

    /// Takes the start and the cost of a round, and the wanted start of the next. Returns the
    /// moment at which the next round should begin.
    pub fn next(&mut self, began: Moment, cost: Span, wanted: Moment) -> Moment {
        if let Some(span) = self.last.map(|last| began.since(last)).filter(|span| *span > Span::ZERO) {
            self.share.add(cost.seconds() / span.seconds());
        }
        self.last = Some(began);
        self.paid = (self.paid.max(began) + self.budget.payoff(cost)).min(began + WAIT_MAX);
        if self.paid > wanted {
            self.slowed += 1;
        }
        self.paid.max(wanted)
    }

    /// Returns the share of one CPU that recent rounds took.
    pub fn share(&self) -> Option<f64> {
        self.share.get()
    }

    /// Returns the number of rounds that were delayed.
    pub fn slowed(&self) -> u64 {
        self.slowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cheap_rounds_start_on_time_and_expensive_ones_are_delayed() {
        let mut pacer = Pacer::new(SamplingBudget::share(0.01));
        let mut at = Moment(1_000_000_000);
        for _ in 0..100 {
            at = pacer.next(at, Span::from_us(50), at + Span::from_ms(10));
        }
        assert_eq!((at, pacer.slowed()), (Moment(2_000_000_000), 0));
        assert!((pacer.share().unwrap() - 0.005).abs() < 1e-9);
        let begin = at;
        for _ in 0..100 {
            at = pacer.next(at, Span::from_us(500), at + Span::from_ms(10));
        }
        assert_eq!((at.since(begin), pacer.slowed()), (Span::from_ms(5_000), 100));
        // After one round of a second, sampling does not stop for minutes.
        assert_eq!(pacer.next(at, Span::from_ms(1_000), at), at + WAIT_MAX);
    }

    #[test]
    fn a_cost_is_paid_off_when_it_is_the_share_of_the_time() {
        assert_eq!(SamplingBudget::share(0.01).payoff(Span(7)), Span(700));
        assert_eq!(SamplingBudget::one_in(1_000).payoff(Span(7)), Span(7_000));
        assert!((READING_COUNTERS.times_spent(0.01) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_mean_follows_its_values() {
        let mut mean = SmoothedMean::new(0.2);
        assert_eq!(mean.get(), None);
        [10.0, 20.0].into_iter().for_each(|value| mean.add(value));
        assert_eq!(mean.get(), Some(12.0));
        let mut mean = SmoothedMean::new(0.2).averaging_first().beginning_at(1.0);
        assert_eq!(mean.get(), Some(1.0));
        [10.0, 20.0, 30.0].into_iter().for_each(|value| mean.add(value));
        assert!((mean.get().unwrap() - 20.0).abs() < 1e-12, "the mean of three");
        (0..100).for_each(|_| mean.add(5.0));
        assert!((mean.get().unwrap() - 5.0).abs() < 1e-6);
    }

    proptest! {
        /// The share is kept whatever rounds cost, as long as no cost needs more than the longest
        /// wait.
        #[test]
        fn the_share_is_kept(costs in prop::collection::vec(0u64..50_000_000, 1..200), wanted in 0u64..100_000_000) {
            let mut pacer = Pacer::new(SamplingBudget::share(0.01));
            let (mut at, mut sum) = (Moment(0), 0.0);
            for cost in costs {
                at = pacer.next(at, Span(cost), at + Span(wanted));
                sum += Span(cost).seconds();
                prop_assert!(sum <= 0.01 * at.since(Moment(0)).seconds() + 1e-6);
            }
        }
    }
}
