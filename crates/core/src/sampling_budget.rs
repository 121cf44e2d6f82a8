//! Sampling budget: what taking samples may cost, as a share of one CPU, and how rarely samples are
//! therefore taken.
//!
//! Unit: CPU time over elapsed time. Problem: what a sample costs depends on how many threads there are,
//! on what is asked of the machine, and on the machine (an emulated one takes ten times as long), and
//! sampling must not become the load itself. Idea: a [`SamplingBudget`] says how much time must pass for
//! a cost to be paid off. Where single rounds count, a [`Pacer`] waits until that time has passed; where
//! the usual cost counts, a [`SmoothedMean`] of the costs is paid off.
//!
//! Terms. *Paid off*: so much time has passed that the cost is the budget's share of it.
//!
//! Properties: pure; the arithmetic of each policy is its own in order and rounding, since published
//! figures depend on it.

use crate::time::{Moment, Span};

/// Close samples for a report: switches, migrations and memory of each thread and process.
pub const CLOSE_SAMPLES: SamplingBudget = SamplingBudget::one_in(100);
/// Looking for new processes of one user.
pub const FINDING_PROCESSES: SamplingBudget = SamplingBudget::one_in(1_000);
/// Listing the threads of one user's processes.
pub const LISTING_THREADS: SamplingBudget = SamplingBudget::one_in(20);
/// Opening, switching and reading hardware counters: half of what sampling may cost. Chosen.
pub const READING_COUNTERS: SamplingBudget = SamplingBudget::share(0.005);
/// What the counted threads may lose to switching their counters, of their own time. Chosen: what is
/// not noticed.
pub const SLOWING_COUNTED: SamplingBudget = SamplingBudget::share(0.01);

/// A share of one CPU, above 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SamplingBudget {
    share: f64,
}

impl SamplingBudget {
    /// A budget of this share.
    pub const fn share(share: f64) -> Self {
        Self { share }
    }

    /// A budget of one part in so many.
    pub const fn one_in(parts: u32) -> Self {
        Self { share: 1.0 / parts as f64 }
    }

    /// The share.
    pub const fn as_share(self) -> f64 {
        self.share
    }

    /// The time in which a cost is paid off.
    pub fn payoff(self, cost: Span) -> Span {
        cost.times(1.0 / self.share)
    }

    /// How many times the budget was spent by something that took this share.
    pub fn times_spent(self, share: f64) -> f64 {
        share / self.share
    }
}

/// A mean that follows its values: each new one shifts it by a part of what it differs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmoothedMean {
    mean: Option<f64>,
    values: u32,
    /// The part by which a new value shifts the mean, in (0, 1].
    weight: f64,
    /// Whether the first values all weigh the same, until there are 1 / `weight` of them.
    averages_first: bool,
}

impl SmoothedMean {
    /// No value; each but the first shifts the mean by this part of what it differs.
    pub const fn new(weight: f64) -> Self {
        Self { mean: None, values: 0, weight, averages_first: false }
    }

    /// With the plain mean of the first values, until there are 1 / `weight` of them.
    pub const fn averaging_first(self) -> Self {
        Self { averages_first: true, ..self }
    }

    /// With this mean until the first value.
    pub const fn beginning_at(self, mean: f64) -> Self {
        Self { mean: Some(mean), ..self }
    }

    /// Takes a value in.
    pub fn add(&mut self, value: f64) {
        self.values = self.values.saturating_add(1);
        let own = if self.averages_first { 1.0 / f64::from(self.values) } else { 0.0 };
        let weight = own.max(self.weight);
        self.mean = Some(self.mean.map_or(value, |mean| mean + weight * (value - mean)));
    }

    /// The mean; `None` before the first value.
    pub const fn get(&self) -> Option<f64> {
        self.mean
    }
}

/// A debt of a [`Pacer`] is never worth more than this much waiting, so that one hiccup does not silence
/// the loop. Chosen: programs change within seconds.
const WAIT_MAX: Span = Span::from_ms(5_000);
/// The part of the share told that is the newest round's.
const SHARE_WEIGHT: f64 = 0.1;

/// Keeps a budget round by round: no round before the cost of those before it has been paid off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pacer {
    budget: SamplingBudget,
    paid: Moment,
    last: Option<Moment>,
    share: SmoothedMean,
    slowed: u64,
}

impl Pacer {
    /// For this budget.
    pub const fn new(budget: SamplingBudget) -> Self {
        Self { budget, paid: Moment(0), last: None, share: SmoothedMean::new(SHARE_WEIGHT), slowed: 0 }
    }

    /// A round began and cost so much; the next is wanted then. When it should be.
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

    /// The share of one CPU that rounds took lately.
    pub fn share(&self) -> Option<f64> {
        self.share.get()
    }

    /// Rounds that came later than was wanted.
    pub fn slowed(&self) -> u64 {
        self.slowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cheap_rounds_come_when_they_are_wanted_and_dear_ones_seldom() {
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
        // One hiccup of a second is not paid for with minutes.
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
        /// Whatever rounds cost, as long as none is worth more than the longest wait, the share is kept.
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
