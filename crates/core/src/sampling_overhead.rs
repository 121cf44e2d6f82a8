//! Overhead of sampling: the CPU time that samples take, and the slowdown of the threads whose
//! counters are read.
//!
//! Unit: CPU time over elapsed time for the first, relative time for the second. Problem: a sample
//! takes some microseconds, and a policy chooses the intervals between samples and a budget
//! stretches them. From one second to the next, a program's own speed changes by more than the
//! effect of counting. Idea: a stretch from one sample to a later one holds whole rounds and
//! nothing else, so CPU time over elapsed time and elapsed time over samples are exact. The
//! slowdown is judged by pairs: the same program in adjacent windows, with counters and without.
//!
//! Properties: the module is pure. A stretch needs two samples. A goal is judged only if the
//! interval is on one side of it.

use crate::stats::{Estimate, Interval, median};
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};

/// Cumulative readings at the end of one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CumulativeSample {
    /// End of the sample.
    pub at: Moment,
    /// CPU time that the sampling process had used by then.
    pub worked: Span,
    /// Threads that were sampled.
    pub threads: u32,
    /// Threads of which at least one counter was read.
    pub counted: u32,
}

/// Cost of a stretch of samples.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SamplingCost {
    /// Number of samples, without the one at which the stretch begins.
    #[serde(rename = "looks")]
    pub samples: u32,
    /// Elapsed time from the first sample to the last.
    pub span: Span,
    /// CPU time of the sampling process in the stretch.
    pub worked: Span,
    /// Mean number of threads in a sample.
    pub threads: f64,
    /// Mean number of threads of which at least one counter was read.
    pub counted: f64,
}

impl SamplingCost {
    /// Sums up samples, given in their order. Returns `None` for fewer than two samples, or if no
    /// time passed.
    pub fn of(samples: &[CumulativeSample]) -> Option<Self> {
        let (first, rest) = samples.split_first()?;
        let last = rest.last()?;
        let span = last.at.since(first.at);
        let mean = |of: fn(&CumulativeSample) -> u32| {
            rest.iter().map(|look| f64::from(of(look))).sum::<f64>() / rest.len() as f64
        };
        (span > Span::ZERO).then(|| Self {
            samples: u32::try_from(rest.len()).unwrap_or(u32::MAX),
            span,
            worked: last.worked.less(first.worked),
            threads: mean(|look| look.threads),
            counted: mean(|look| look.counted),
        })
    }

    /// Returns the share of one core that sampling took.
    pub fn share(&self) -> f64 {
        self.worked.seconds() / self.span.seconds()
    }

    /// Returns [`SamplingCost::share`] scaled to a hundred threads, as if the cost were
    /// proportional to their number; `None` if no thread was sampled.
    pub fn share_of_hundred(&self) -> Option<f64> {
        (self.threads > 0.0).then(|| 100.0 * self.share() / self.threads)
    }

    /// Returns the mean time between samples, in seconds.
    pub fn tick(&self) -> f64 {
        self.span.seconds() / f64::from(self.samples.max(1))
    }
}

/// Returns by which share the second run of a pair took longer than the first: the median of the
/// relative changes. `None` without pairs, or if the first value of a pair is not positive.
pub fn slowing(pairs: &[(f64, f64)]) -> Option<f64> {
    let changes: Option<Vec<f64>> =
        pairs.iter().map(|(without, with)| (*without > 0.0).then(|| with / without - 1.0)).collect();
    median(&changes?)
}

/// Returns whether a quantity is below a bound; `None` if the interval holds the bound or is
/// missing.
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

    fn look(ms: u64, worked_us: u64, counted: u32) -> CumulativeSample {
        CumulativeSample {
            at: Moment(ms * 1_000_000),
            worked: Span::from_us(worked_us),
            threads: 200,
            counted,
        }
    }

    #[test]
    fn a_stretch_is_from_its_first_sample_to_its_last() {
        let cost =
            SamplingCost::of(&[look(1_000, 70, 0), look(1_010, 170, 100), look(1_020, 270, 200)]).unwrap();
        assert_eq!((cost.samples, cost.span, cost.worked), (2, Span::from_ms(20), Span::from_us(200)));
        assert!((cost.share() - 0.01).abs() < 1e-12 && (cost.tick() - 0.01).abs() < 1e-12);
        assert_eq!((cost.threads, cost.counted), (200.0, 150.0));
        assert!((cost.share_of_hundred().unwrap() - 0.005).abs() < 1e-12);
        assert_eq!(SamplingCost::of(&[look(1, 1, 1)]), None);
        assert_eq!(SamplingCost::of(&[look(1, 1, 1), look(1, 2, 1)]), None);
        assert_eq!(SamplingCost::of(&[]), None);
    }

    #[test]
    fn without_sampled_threads_the_share_of_a_hundred_is_missing() {
        let empty = |ms, worked| CumulativeSample { threads: 0, ..look(ms, worked, 0) };
        assert_eq!(SamplingCost::of(&[empty(1, 1), empty(2, 2)]).unwrap().share_of_hundred(), None);
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
        /// The costs of two halves sum to the cost of the whole.
        #[test]
        fn stretches_add_up(steps in prop::collection::vec((1u64..50, 0u64..5_000), 3..40)) {
            let mut looks = vec![look(0, 0, 0)];
            let (mut at, mut worked) = (0, 0);
            for (ms, us) in steps {
                (at, worked) = (at + ms, worked + us);
                looks.push(look(at, worked, 1));
            }
            let middle = looks.len() / 2;
            let of = |samples: &[CumulativeSample]| SamplingCost::of(samples).unwrap();
            let (all, one, other) = (of(&looks), of(&looks[..=middle]), of(&looks[middle..]));
            prop_assert_eq!(one.worked + other.worked, all.worked);
            prop_assert_eq!(one.span + other.span, all.span);
            prop_assert_eq!(one.samples + other.samples, all.samples);
        }
    }
}
