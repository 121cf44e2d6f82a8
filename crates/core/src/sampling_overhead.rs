//! Overhead of sampling: the CPU time that samples take, and how much counting slows the threads that are counted.
//!
//! Unit: CPU time over elapsed time for the first, relative time for the second. Problem: looks are some microseconds each and come at
//! intervals that a policy chooses and a budget stretches; a program's own speed changes by more than counting does from one second to
//! the next. Idea: a stretch from one look to a later one holds whole rounds and nothing else, so that cost over time and time over looks
//! are exact; and slowing is judged by pairs: the same program in windows right beside each other, with and without.
//!
//! Properties: pure; a stretch needs two looks; a goal is judged only where the interval is on one side of it.

use crate::stats::{Estimate, Interval, median};
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};

/// A look, at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// When.
    pub at: Moment,
    /// The CPU time that the looking process had used by then.
    pub worked: Span,
    /// Threads that were looked at.
    pub threads: u32,
    /// Threads of which something was counted.
    pub counted: u32,
}

/// What a stretch of looks cost.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Toll {
    /// Looks.
    pub looks: u32,
    /// How long it was.
    pub span: Span,
    /// CPU time of the looking process in it.
    pub worked: Span,
    /// Threads looked at, on average.
    pub threads: f64,
    /// Threads of which something was counted, on average.
    pub counted: f64,
}

impl Toll {
    /// Of looks in their order; `None` below two, or if no time passed.
    pub fn of(looks: &[Look]) -> Option<Self> {
        let (first, rest) = looks.split_first()?;
        let last = rest.last()?;
        let span = last.at.since(first.at);
        let mean = |of: fn(&Look) -> u32| {
            rest.iter().map(|look| f64::from(of(look))).sum::<f64>() / rest.len() as f64
        };
        (span > Span::ZERO).then(|| Self {
            looks: u32::try_from(rest.len()).unwrap_or(u32::MAX),
            span,
            worked: last.worked.less(first.worked),
            threads: mean(|look| look.threads),
            counted: mean(|look| look.counted),
        })
    }

    /// The share of one core that it took.
    pub fn share(&self) -> f64 {
        self.worked.seconds() / self.span.seconds()
    }

    /// The same for a hundred threads, if cost follows their number; `None` without any.
    pub fn share_of_hundred(&self) -> Option<f64> {
        (self.threads > 0.0).then(|| 100.0 * self.share() / self.threads)
    }

    /// Seconds from look to look.
    pub fn tick(&self) -> f64 {
        self.span.seconds() / f64::from(self.looks.max(1))
    }
}

/// How much longer the second of each pair took than the first: the median of the pairs' relative changes; `None` without pairs, or
/// where a first is not positive.
pub fn slowing(pairs: &[(f64, f64)]) -> Option<f64> {
    let changes: Option<Vec<f64>> =
        pairs.iter().map(|(without, with)| (*without > 0.0).then(|| with / without - 1.0)).collect();
    median(&changes?)
}

/// Whether something is below a bound: `None` where the interval holds the bound, or there is none.
pub fn is_below(estimate: &Estimate, bound: f64) -> Option<bool> {
    match estimate.interval? {
        Interval { high, .. } if high < bound => Some(true),
        Interval { low, .. } if low > bound => Some(false),
        Interval { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(ms: u64, worked_us: u64, counted: u32) -> Look {
        Look { at: Moment(ms * 1_000_000), worked: Span::from_us(worked_us), threads: 200, counted }
    }

    #[test]
    fn a_stretch_is_from_its_first_look_to_its_last() {
        let toll = Toll::of(&[look(1_000, 70, 0), look(1_010, 170, 100), look(1_020, 270, 200)]).unwrap();
        assert_eq!((toll.looks, toll.span, toll.worked), (2, Span::from_ms(20), Span::from_us(200)));
        assert!((toll.share() - 0.01).abs() < 1e-12 && (toll.tick() - 0.01).abs() < 1e-12);
        assert_eq!((toll.threads, toll.counted), (200.0, 150.0));
        assert!((toll.share_of_hundred().unwrap() - 0.005).abs() < 1e-12);
        assert_eq!(Toll::of(&[look(1, 1, 1)]), None);
        assert_eq!(Toll::of(&[look(1, 1, 1), look(1, 2, 1)]), None);
        assert_eq!(Toll::of(&[]), None);
    }

    #[test]
    fn nobody_looked_at_has_no_share_of_a_hundred() {
        let nobody = |ms, worked| Look { threads: 0, ..look(ms, worked, 0) };
        assert_eq!(Toll::of(&[nobody(1, 1), nobody(2, 2)]).unwrap().share_of_hundred(), None);
    }

    #[test]
    fn slowing_is_that_of_the_middle_pair() {
        assert_eq!(slowing(&[(1.0, 1.5), (2.0, 2.0), (4.0, 5.0)]), Some(0.25));
        assert_eq!(slowing(&[]), None);
        assert_eq!(slowing(&[(0.0, 1.0)]), None);
    }

    #[test]
    fn a_goal_is_judged_where_the_interval_is_on_one_side() {
        let estimate = |low, high| Estimate { median: 1.0, interval: Some(Interval { low, high }) };
        assert_eq!(is_below(&estimate(0.5, 1.5), 2.0), Some(true));
        assert_eq!(is_below(&estimate(2.5, 3.5), 2.0), Some(false));
        assert_eq!(is_below(&estimate(1.5, 2.5), 2.0), None);
        assert_eq!(is_below(&Estimate { median: 1.0, interval: None }, 2.0), None);
    }

    proptest! {
        /// What two halves cost is what the whole costs.
        #[test]
        fn stretches_add_up(steps in prop::collection::vec((1u64..50, 0u64..5_000), 3..40)) {
            let mut looks = vec![look(0, 0, 0)];
            let (mut at, mut worked) = (0, 0);
            for (ms, us) in steps {
                (at, worked) = (at + ms, worked + us);
                looks.push(look(at, worked, 1));
            }
            let middle = looks.len() / 2;
            let of = |looks: &[Look]| Toll::of(looks).unwrap();
            let (all, one, other) = (of(&looks), of(&looks[..=middle]), of(&looks[middle..]));
            prop_assert_eq!(one.worked + other.worked, all.worked);
            prop_assert_eq!(one.span + other.span, all.span);
            prop_assert_eq!(one.looks + other.looks, all.looks);
        }
    }
}
