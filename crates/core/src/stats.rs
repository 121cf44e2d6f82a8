//! What repeated measurements say: medians, intervals, and whether two programs differ.
//!
//! Unit: the samples' own. Problem: run times are few, skewed and have outliers on one side, so mean and standard deviation
//! mislead; and a difference of two medians may be luck. Idea: the bootstrap. Draw as many samples as there are, with
//! replacement, thousands of times; the middle 95 % of the medians found so are the interval. For the ratio of two medians both
//! sides are drawn independently, and two programs differ when the interval of their ratio leaves 1 out.
//!
//! A sample must be an independent run. Repetitions inside one run share its placement, and would make an interval far
//! too narrow: take their median as the run's one sample.
//!
//! Properties: equal samples and seed give equal results, and the order of the samples does not matter; an interval lies
//! within what samples can make, holds the median, and scales with the samples. Fewer than [`SAMPLES_MIN`] samples have no
//! interval: with five, the interval is from the least to the most, and holds the true median in 93.75 % of all cases.
//! What cannot be computed (no sample, a sample that is no number, a ratio of what is not positive) is `None`.
//!
//! Source: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13, the percentile interval.

pub mod comparison;
pub mod correlation;

pub use comparison::{Better, Comparison, Verdict, compare};

use serde::Serialize;

/// Fewer samples than this cannot carry an interval near 95 %: four miss the true median one time in eight.
pub const SAMPLES_MIN: usize = 5;
/// How often samples are drawn; the ends of the interval then rest on 50 draws each.
const DRAWS: usize = 2_000;
/// How many of the draws lie below the interval, and above it: 2.5 %.
const OUTSIDE: usize = DRAWS / 40;

/// From where to where.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A median, or a ratio of two, and how sure that is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Of the samples.
    pub median: f64,
    /// Where the true one is, with 95 % confidence; `None` for fewer than [`SAMPLES_MIN`] samples.
    pub interval: Option<Interval>,
}

/// The middle sample, or the mean of the two middle ones.
pub fn median(samples: &[f64]) -> Option<f64> {
    Some(middle(&sorted(samples)?))
}

/// The median with its interval.
pub fn estimate(samples: &[f64], seed: u64) -> Option<Estimate> {
    let samples = sorted(samples)?;
    let mut random = Random(seed);
    let mut counts = vec![0; samples.len()];
    let draw = || drawn(&samples, &mut counts, &mut random);
    let interval = (samples.len() >= SAMPLES_MIN).then(|| interval(draw));
    Some(Estimate { median: middle(&samples), interval })
}

/// The ratio of two medians with its interval. All samples have to be positive.
pub fn ratio_of_medians(above: &[f64], below: &[f64], seed: u64) -> Option<Estimate> {
    let (above, below) = (sorted(above)?, sorted(below)?);
    if above[0] <= 0.0 || below[0] <= 0.0 {
        return None;
    }
    let mut random = Random(seed);
    let enough = above.len().min(below.len()) >= SAMPLES_MIN;
    let mut counts = vec![0; above.len().max(below.len())];
    let draw = || {
        let over = drawn(&above, &mut counts[..above.len()], &mut random);
        over / drawn(&below, &mut counts[..below.len()], &mut random)
    };
    let interval = enough.then(|| interval(draw));
    Some(Estimate { median: middle(&above) / middle(&below), interval })
}

/// The numbers below `count` in an order that looks random: the same for the same seed.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random(seed);
    let mut order: Vec<usize> = (0..count).collect();
    // Fisher and Yates.
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

/// The samples in order; `None` when there is none or one is no number.
fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The median of what is in order and not empty.
fn middle(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    // Not half of the sum, which can overflow.
    low + (high - low) / 2.0
}

/// The median of as many samples, drawn with replacement. Positions are drawn and counted, which puts them in order
/// without sorting.
fn drawn(sorted: &[f64], counts: &mut [usize], random: &mut Random) -> f64 {
    counts.fill(0);
    for _ in sorted {
        counts[random.below(sorted.len())] += 1;
    }
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    let mut before = 0;
    let mut pair = [0.0; 2];
    for (&sample, &count) in sorted.iter().zip(&*counts) {
        for (kept, place) in pair.iter_mut().zip([low, high]) {
            if (before..before + count).contains(&place) {
                *kept = sample;
            }
        }
        before += count;
    }
    middle(&pair)
}

/// The middle 95 % of what is drawn.
fn interval(mut draw: impl FnMut() -> f64) -> Interval {
    let mut draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    draws.sort_by(f64::total_cmp);
    Interval { low: draws[OUTSIDE], high: draws[DRAWS - 1 - OUTSIDE] }
}

/// Numbers that look random and are the same for the same seed: `SplitMix64`, Steele, Lea and Flood 2014.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound: the high half of a product, whose bias is below one in 2^40 for any sensible bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.next()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(0.001..1000.0_f64, SAMPLES_MIN..20)
    }

    #[test]
    fn medians_are_those_of_the_textbook() {
        assert_eq!(median(&[3.0, -1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn every_order_is_a_permutation_and_each_comes_as_often() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..6_000 {
            *seen.entry(shuffled(3, seed)).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6, "all permutations of three");
        assert!(seen.values().all(|&times| (850..1150).contains(&times)), "{seen:?}");
        assert_eq!(shuffled(40, 7), shuffled(40, 7));
        assert_eq!((shuffled(0, 1), shuffled(1, 1)), (vec![], vec![0]));
    }

    #[test]
    fn what_is_missing_is_not_zero() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(estimate(&[1.0, f64::INFINITY], 1), None);
        assert_eq!(ratio_of_medians(&[1.0; 9], &[], 1), None);
        assert_eq!(ratio_of_medians(&[1.0; 9], &[0.0; 9], 1), None);
        assert_eq!(ratio_of_medians(&[-1.0, 1.0, 1.0, 1.0, 1.0], &[1.0; 9], 1), None);
        let few = estimate(&[1.0, 2.0, 3.0, 4.0], 1);
        assert_eq!(few, Some(Estimate { median: 2.5, interval: None }));
    }

    #[test]
    fn five_samples_reach_from_the_least_to_the_most() {
        let found = estimate(&[5.0, 1.0, 4.0, 2.0, 3.0], 1).unwrap().interval.unwrap();
        assert_eq!(found, Interval { low: 1.0, high: 5.0 });
    }

    /// Samples of a skewed distribution whose median is known: squares of numbers even in 0..1, of which it is 1/4.
    #[test]
    fn intervals_hold_the_true_median_about_as_often_as_they_say() {
        let mut random = Random(7);
        for (count, least) in [(5, 0.90), (9, 0.90), (15, 0.91)] {
            let holds = (0..200).filter(|&seed| {
                let squares: Vec<f64> =
                    (0..count).map(|_| (random.below(1 << 30) as f64 / f64::from(1 << 30)).powi(2)).collect();
                let Interval { low, high } = estimate(&squares, seed).unwrap().interval.unwrap();
                low <= 0.25 && 0.25 <= high
            });
            let share = holds.count() as f64 / 200.0;
            assert!(share >= least, "{count} samples: {share}");
        }
    }

    proptest! {
        // Each case draws thousands of times.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn half_of_the_samples_lie_on_either_side_of_the_median(samples in samples()) {
            let found = median(&samples).unwrap();
            prop_assert!(2 * samples.iter().filter(|&&sample| sample <= found).count() >= samples.len());
            prop_assert!(2 * samples.iter().filter(|&&sample| sample >= found).count() >= samples.len());
        }

        #[test]
        fn an_interval_holds_the_median_and_lies_within_the_samples(samples in samples(), seed: u64) {
            let Estimate { median, interval } = estimate(&samples, seed).unwrap();
            let Interval { low, high } = interval.unwrap();
            let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let most = samples.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= low && low <= median && median <= high && high <= most);
        }

        #[test]
        fn neither_order_nor_time_of_asking_matters(samples in samples(), seed: u64) {
            let mut turned = samples.clone();
            turned.reverse();
            prop_assert_eq!(estimate(&samples, seed), estimate(&turned, seed));
            prop_assert_eq!(
                ratio_of_medians(&samples, &turned, seed),
                ratio_of_medians(&turned, &samples, seed)
            );
        }

        /// By a power of two, which is exact.
        #[test]
        fn results_scale_with_the_samples(samples in samples(), seed: u64) {
            let scaled: Vec<f64> = samples.iter().map(|sample| sample * 8.0).collect();
            let (plain, scaled) = (estimate(&samples, seed).unwrap(), estimate(&scaled, seed).unwrap());
            prop_assert_eq!(plain.median * 8.0, scaled.median);
            let (plain, scaled) = (plain.interval.unwrap(), scaled.interval.unwrap());
            prop_assert_eq!((plain.low * 8.0, plain.high * 8.0), (scaled.low, scaled.high));
        }

        #[test]
        fn a_ratio_is_that_of_the_medians_and_lies_within_what_samples_can_make(
            above in samples(), below in samples(), seed: u64
        ) {
            let Estimate { median: ratio, interval } = ratio_of_medians(&above, &below, seed).unwrap();
            prop_assert_eq!(ratio, median(&above).unwrap() / median(&below).unwrap());
            let Interval { low, high } = interval.unwrap();
            let least = |samples: &[f64]| samples.iter().copied().fold(f64::INFINITY, f64::min);
            let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
            prop_assert!(least(&above) / most(&below) <= low && low <= high);
            prop_assert!(high <= most(&above) / least(&below));
        }
    }
}
