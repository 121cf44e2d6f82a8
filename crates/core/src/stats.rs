//! Statistics of repeated measurements: medians, intervals, and comparisons of two programs.
//!
//! Unit: that of the samples. Problem: run times are few, skewed, and have outliers on one side, so
//! mean and standard deviation mislead. A difference of two medians may be chance. Idea: the
//! bootstrap. A draw takes as many samples as there are, with replacement; there are thousands of
//! draws. The middle 95 % of the medians of the draws are the confidence interval. For the ratio of
//! two medians, both sides are drawn independently. Two programs differ if the interval of their
//! ratio excludes 1.
//!
//! A sample must be an independent run. Repetitions inside one run share its placement and would
//! make an interval far too narrow: take their median as the run's one sample.
//!
//! Properties: equal samples and an equal seed give equal results, and the order of the samples
//! does not matter. An interval lies within the range of the samples, holds the median, and scales
//! with the samples. Fewer than [`SAMPLES_MIN`] samples have no interval: with five, the interval
//! reaches from the lowest sample to the highest, and holds the true median in 93.75 % of all
//! cases. A result that cannot be computed (no sample, a sample that is not finite, a ratio of
//! values that are not positive) is `None`.
//!
//! Source: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13, the
//! percentile interval.

pub mod comparison;
pub mod correlation;
pub mod paired;

pub use comparison::{Better, Comparison, Verdict, compare};

use serde::Serialize;

/// Samples needed for an interval near 95 %: with four, the interval misses the true median one
/// time in eight.
pub const SAMPLES_MIN: usize = 5;
/// Number of draws; each end of the interval then follows from 50 draws.
const DRAW_COUNT: usize = 2_000;
/// Number of draws below the interval, and number above it: 2.5 % each.
const TAIL_DRAWS: usize = DRAW_COUNT / 40;

/// An interval of values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A median, or a ratio of two medians, with its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Median of the samples.
    pub median: f64,
    /// Confidence interval of the true median, at 95 %; `None` for fewer than [`SAMPLES_MIN`]
    /// samples.
    pub interval: Option<Interval>,
}

/// Returns the middle sample, or the mean of the two middle ones; `None` without samples or if one
/// is not finite.
pub fn median(samples: &[f64]) -> Option<f64> {
    Some(middle(&sorted(samples)?))
}

/// Returns the median with its confidence interval; `None` without samples or if one is not finite.
pub fn estimate(samples: &[f64], seed: u64) -> Option<Estimate> {
    let samples = sorted(samples)?;
    let mut random = Random(seed);
    let mut counts = vec![0; samples.len()];
    let draw = || drawn(&samples, &mut counts, &mut random);
    let interval = (samples.len() >= SAMPLES_MIN).then(|| interval(draw));
    Some(Estimate { median: middle(&samples), interval })
}

/// Returns the ratio of two medians with its confidence interval; `None` unless all samples are
/// finite and positive.
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

/// Returns the numbers below `count` in a pseudo-random order, which depends on the seed only.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random(seed);
    let mut order: Vec<usize> = (0..count).collect();
    // Fisher-Yates shuffle.
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

/// Sorts the samples; `None` if there is none or one is not finite.
fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// Returns the median of samples that are sorted and not empty.
fn middle(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    // Half of the sum would be simpler, but the sum can overflow.
    low + (high - low) / 2.0
}

/// Returns the median of one draw: as many samples, drawn with replacement. The function draws and
/// counts positions, which puts them in order without sorting.
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

/// Returns the middle 95 % of the draws.
fn interval(mut draw: impl FnMut() -> f64) -> Interval {
    let mut draws: Vec<f64> = (0..DRAW_COUNT).map(|_| draw()).collect();
    draws.sort_by(f64::total_cmp);
    Interval { low: draws[TAIL_DRAWS], high: draws[DRAW_COUNT - 1 - TAIL_DRAWS] }
}

/// Pseudo-random numbers, the same for the same seed: `SplitMix64`, Steele, Lea and Flood 2014.
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

    /// Returns a number below a bound: the high half of a product. The bias is below one in 2^40
    /// for any sensible bound.
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
    fn every_order_is_a_permutation_and_all_are_equally_frequent() {
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
    fn a_missing_value_is_not_zero() {
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

    /// Samples of a skewed distribution with a known median: squares of numbers uniform in 0..1,
    /// with the median 1/4.
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

        /// The factor is a power of two, so the product is exact.
        #[test]
        fn results_scale_with_the_samples(samples in samples(), seed: u64) {
            let scaled: Vec<f64> = samples.iter().map(|sample| sample * 8.0).collect();
            let (plain, scaled) = (estimate(&samples, seed).unwrap(), estimate(&scaled, seed).unwrap());
            prop_assert_eq!(plain.median * 8.0, scaled.median);
            let (plain, scaled) = (plain.interval.unwrap(), scaled.interval.unwrap());
            prop_assert_eq!((plain.low * 8.0, plain.high * 8.0), (scaled.low, scaled.high));
        }

        #[test]
        fn a_ratio_is_that_of_the_medians_and_lies_within_the_possible_ratios_of_samples(
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
