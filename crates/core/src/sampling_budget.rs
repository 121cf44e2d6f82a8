//! A share of one core that looking may cost, kept by looking less often.
//!
//! Unit: CPU time over elapsed time. Problem: what a round costs depends on how many threads there are and what is asked of the machine,
//! and a daemon that serves everybody must not become the load itself. Idea: no round before the cost of those before it has been paid off
//! at the agreed share. A debt that a single dear round leaves is bounded, so that one hiccup does not silence the loop.

use crate::time::{Moment, Span};

/// A debt is never worth more than this much waiting. Chosen: programs change within seconds.
const WAIT_MAX: Span = Span::from_ms(5_000);
/// How much of the share told is the newest round's.
const NEWEST: f64 = 0.1;

/// Keeps a share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    budget: f64,
    paid: Moment,
    last: Option<Moment>,
    share: Option<f64>,
    slowed: u64,
}

impl Pace {
    /// For this share of one core, above zero.
    pub fn new(budget: f64) -> Self {
        Self { budget, paid: Moment(0), last: None, share: None, slowed: 0 }
    }

    /// A round began and cost so much; the next is wanted then. When it should be.
    pub fn next(&mut self, began: Moment, cost: Span, wanted: Moment) -> Moment {
        if let Some(span) = self.last.map(|last| began.since(last)).filter(|span| *span > Span::ZERO) {
            let now = cost.seconds() / span.seconds();
            self.share = Some(self.share.map_or(now, |share| share + NEWEST * (now - share)));
        }
        self.last = Some(began);
        let worth = cost.times(1.0 / self.budget);
        self.paid = (self.paid.max(began) + worth).min(began + WAIT_MAX);
        if self.paid > wanted {
            self.slowed += 1;
        }
        self.paid.max(wanted)
    }

    /// The share that rounds took lately.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// The share that they may take.
    pub fn budget(&self) -> f64 {
        self.budget
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
        let mut pace = Pace::new(0.01);
        let mut at = Moment(1_000_000_000);
        for _ in 0..100 {
            at = pace.next(at, Span::from_us(50), at + Span::from_ms(10));
        }
        assert_eq!((at, pace.slowed()), (Moment(2_000_000_000), 0));
        assert!((pace.share().unwrap() - 0.005).abs() < 1e-9);
        let begin = at;
        for _ in 0..100 {
            at = pace.next(at, Span::from_us(500), at + Span::from_ms(10));
        }
        assert_eq!((at.since(begin), pace.slowed()), (Span::from_ms(5_000), 100));
        // One hiccup of a second is not paid for with minutes.
        assert_eq!(pace.next(at, Span::from_ms(1_000), at), at + WAIT_MAX);
    }

    proptest! {
        /// Whatever rounds cost, as long as none is worth more than the longest wait, the share is kept.
        #[test]
        fn the_share_is_kept(costs in prop::collection::vec(0u64..50_000_000, 1..200), wanted in 0u64..100_000_000) {
            let mut pace = Pace::new(0.01);
            let (mut at, mut sum) = (Moment(0), 0.0);
            for cost in costs {
                at = pace.next(at, Span(cost), at + Span(wanted));
                sum += Span(cost).seconds();
                prop_assert!(sum <= 0.01 * at.since(Moment(0)).seconds() + 1e-6);
            }
        }
    }
}
