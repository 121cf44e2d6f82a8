//! Comparison of a candidate with a baseline: better, worse, no difference, or unknown.
//!
//! Problem: benchmarks, the tuner, the balancer's trials, the moves between NUMA nodes and the
//! choice of collective algorithms all need this comparison, with evidence of different kinds.
//! Idea: one answer, [`Verdict`], and one rule for each kind of evidence. How large a difference
//! must be to count, and how certain, are constants of the caller.
//!
//! - [`compare`]: repeated independent runs of both. The bootstrap interval of the ratio of medians
//!   must exclude 1.
//! - [`rank_sum_chance`]: the probability that chance orders such runs so. It is robust against any
//!   outlier. Callers that make many comparisons use it in addition.
//! - [`by_factors`]: one figure each, measured in the same way. A difference within the factors
//!   does not count.
//! - [`Sequential`]: a gain with a standard error, tested repeatedly while samples come in.
//!
//! Properties: the module is pure; equal evidence gives equal verdicts; missing evidence gives
//! [`Verdict::Unknown`].
//!
//! Source: F. Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1(6),
//! 1945; P. C. O'Brien and T. R. Fleming, "A Multiple Testing Procedure for Clinical Trials",
//! Biometrics 35, 1979.

use super::{Estimate, Interval, estimate, ratio_of_medians};
use serde::Serialize;

/// Direction in which a figure improves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better, as for a bandwidth.
    More,
    /// Less is better, as for a time.
    Less,
}

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is better than the baseline.
    Better,
    /// The candidate is worse than the baseline.
    Worse,
    /// The samples show no difference: the interval holds 1.
    NoDifference,
    /// There are too few samples, or the ratio cannot be computed.
    Unknown,
}

/// A candidate compared with a baseline.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Median of the baseline.
    pub baseline: Option<Estimate>,
    /// Median of the candidate.
    pub candidate: Option<Estimate>,
    /// Ratio of the candidate to the baseline in the better direction: above 1 the candidate gains,
    /// below 1 it loses.
    pub gain: Option<Estimate>,
    /// Verdict from the interval of [`Comparison::gain`].
    pub verdict: Verdict,
}

/// Compares repeated independent runs by the interval of the ratio of their medians.
pub fn compare(baseline: &[f64], candidate: &[f64], better: Better, seed: u64) -> Comparison {
    let gain = match better {
        Better::More => ratio_of_medians(candidate, baseline, seed),
        Better::Less => ratio_of_medians(baseline, candidate, seed),
    };
    let verdict = match gain.and_then(|gain| gain.interval) {
        None => Verdict::Unknown,
        Some(Interval { low, .. }) if low > 1.0 => Verdict::Better,
        Some(Interval { high, .. }) if high < 1.0 => Verdict::Worse,
        Some(_) => Verdict::NoDifference,
    };
    Comparison { baseline: estimate(baseline, seed), candidate: estimate(candidate, seed), gain, verdict }
}

/// Compares two figures that were measured in the same way. They differ below `baseline * low` and
/// above `baseline * high`; between these bounds they count as equal.
pub fn by_factors(better: Better, baseline: f64, candidate: f64, low: f64, high: f64) -> Verdict {
    let (below, above) = match better {
        Better::More => (Verdict::Worse, Verdict::Better),
        Better::Less => (Verdict::Better, Verdict::Worse),
    };
    if candidate < baseline * low {
        below
    } else if candidate > baseline * high {
        above
    } else {
        Verdict::NoDifference
    }
}

/// A gain that is tested repeatedly while samples come in.
///
/// A test after every sample sees a chance difference sooner or later. Early gains must therefore
/// be larger, by the root of `samples_max` over `samples` (the boundary of O'Brien and Fleming). A
/// gain that could not pass with all samples is given up early.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sequential {
    /// Gain, in any unit; negative for a loss.
    pub gain: f64,
    /// Value that the gain must exceed to count, in the same unit.
    pub gain_min: f64,
    /// Standard error of the gain with the samples so far.
    pub error: f64,
    /// Expected standard error with all samples.
    pub error_final: f64,
    /// Standard errors that the gain must exceed at the end.
    pub errors_believed: f64,
    /// Samples so far.
    pub samples: usize,
    /// Minimal number of samples for a gain.
    pub samples_min: usize,
    /// Minimal number of samples for a loss.
    pub samples_loss_min: usize,
    /// Samples after which the comparison ends.
    pub samples_max: usize,
    /// Whether no more samples come, however few there are.
    pub last: bool,
}

impl Sequential {
    /// Returns the verdict on the samples so far. [`Verdict::Unknown`] means that more samples are
    /// needed; a loss that is not clear counts as no difference.
    pub fn verdict(&self) -> Verdict {
        let Self { gain, gain_min, error, errors_believed, samples, .. } = *self;
        let last = self.last || samples >= self.samples_max;
        let early = (self.samples_max as f64 / samples.max(1) as f64).sqrt().max(1.0);
        // Gain that is needed with all samples.
        let needed = gain_min.max(errors_believed * self.error_final);
        let enough = samples >= self.samples_min || last;
        let lost = samples >= self.samples_loss_min && gain + errors_believed * error < -gain_min;
        if enough && gain > gain_min && gain > errors_believed * early * error {
            Verdict::Better
        } else if lost {
            Verdict::Worse
        } else if last || enough && gain + error < needed {
            // The gain is more than one standard error short: more samples are not expected to
            // bring it.
            Verdict::NoDifference
        } else {
            Verdict::Unknown
        }
    }
}

/// Returns the probability that the candidate's runs lie as far on the good side, or farther, if
/// both programs are the same: Wilcoxon's rank sum in its exact distribution. Ties count against
/// the candidate.
pub fn rank_sum_chance(better: Better, baseline: &[f64], candidate: &[f64]) -> f64 {
    let wins = |good: f64, bad: f64| match better {
        Better::Less => good < bad,
        Better::More => good > bad,
    };
    // Pairs in which the candidate's run is better.
    let won: usize =
        candidate.iter().map(|good| baseline.iter().filter(|bad| wins(*good, **bad)).count()).sum();
    let ways = orders(baseline.len(), candidate.len());
    let all: f64 = ways.iter().sum();
    ways[won..].iter().sum::<f64>() / all
}

/// Returns, for each number of won pairs, in how many orders of the runs it occurs.
fn orders(baseline: usize, candidate: usize) -> Vec<f64> {
    let most = baseline * candidate;
    // `table[n]` is for n runs of the candidate and the runs of the baseline added so far.
    let mut table = vec![vec![0.0; most + 1]; candidate + 1];
    for row in &mut table {
        row[0] = 1.0;
    }
    for below in 1..=baseline {
        for above in 1..=candidate {
            // The best of all runs is either the candidate's, which wins against all runs of the
            // baseline, or the baseline's.
            for sum in (0..=most).rev() {
                let mine = if sum >= below { table[above - 1][sum - below] } else { 0.0 };
                table[above][sum] += mine;
            }
        }
    }
    table.swap_remove(candidate)
}

#[cfg(test)]
mod tests {
    use super::super::{Random, SAMPLES_MIN};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_samples_give_no_verdict() {
        let comparison = compare(&[1.0; 4], &[9.0; 9], Better::More, 1);
        assert_eq!(comparison.verdict, Verdict::Unknown);
        assert_eq!(comparison.gain.map(|gain| gain.median), Some(9.0));
    }

    #[test]
    fn verdicts_follow_the_direction() {
        let (small, large) = ([1.0, 1.1, 1.2, 1.0, 1.1], [2.0, 2.1, 2.0, 2.2, 2.1]);
        for (baseline, candidate, better, verdict) in [
            (small, large, Better::More, Verdict::Better),
            (small, large, Better::Less, Verdict::Worse),
            (large, small, Better::More, Verdict::Worse),
            (large, small, Better::Less, Verdict::Better),
            (small, small, Better::More, Verdict::NoDifference),
        ] {
            assert_eq!(compare(&baseline, &candidate, better, 1).verdict, verdict);
        }
    }

    #[test]
    fn equal_settings_are_rarely_judged_different() {
        let mut random = Random(11);
        let mut draw = || -> Vec<f64> { (0..7).map(|_| 1.0 + random.below(1000) as f64).collect() };
        let wrong = (0..200).filter(|&seed| {
            let verdict = compare(&draw(), &draw(), Better::More, seed).verdict;
            matches!(verdict, Verdict::Better | Verdict::Worse)
        });
        assert!(wrong.count() <= 16, "more than 8 % false alarms");
    }

    /// Counts all subsets one by one.
    fn by_hand(baseline: usize, candidate: usize, won: usize) -> f64 {
        let all = baseline + candidate;
        let (mut hits, mut count) = (0_u32, 0_u32);
        for mask in 0_u32..1 << all {
            if mask.count_ones() as usize != candidate {
                continue;
            }
            count += 1;
            let mine = |at: usize| mask >> at & 1 == 1;
            let pairs: usize =
                (0..all).filter(|at| mine(*at)).map(|at| (0..at).filter(|low| !mine(*low)).count()).sum();
            hits += u32::from(pairs >= won);
        }
        f64::from(hits) / f64::from(count)
    }

    #[test]
    fn chance_is_that_of_all_orders_counted_one_by_one() {
        for (baseline, candidate) in [(1, 1), (2, 3), (5, 5), (3, 5), (6, 4)] {
            let low: Vec<f64> = (0..baseline).map(|at| 10.0 * at as f64).collect();
            for shift in [-5.0, 5.0, 15.0, 35.0, 95.0] {
                let high: Vec<f64> = (0..candidate).map(|at| 10.0 * at as f64 + shift).collect();
                let won = high.iter().map(|good| low.iter().filter(|bad| good > *bad).count()).sum();
                let found = rank_sum_chance(Better::More, &low, &high);
                assert!(
                    (found - by_hand(baseline, candidate, won)).abs() < 1e-12,
                    "{baseline} {candidate} {shift}"
                );
            }
        }
        assert!((rank_sum_chance(Better::Less, &[2.0; 5], &[1.0; 5]) - 1.0 / 252.0).abs() < 1e-12);
        assert!(
            (rank_sum_chance(Better::Less, &[2.0; 5], &[2.0; 5]) - 1.0).abs() < 1e-12,
            "ties win nothing"
        );
    }

    #[test]
    fn figures_within_the_factors_are_equal() {
        let judged = |better, candidate| by_factors(better, 100.0, candidate, 0.98, 1.01);
        assert_eq!(judged(Better::More, 97.0), Verdict::Worse);
        assert_eq!(judged(Better::More, 98.0), Verdict::NoDifference);
        assert_eq!(judged(Better::More, 102.0), Verdict::Better);
        assert_eq!(judged(Better::Less, 97.0), Verdict::Better);
        assert_eq!(judged(Better::Less, 102.0), Verdict::Worse);
        assert_eq!(judged(Better::More, f64::NAN), Verdict::NoDifference);
    }

    #[test]
    fn early_gains_must_be_larger_and_losses_end_it_soon() {
        let seen = |gain: f64, error: f64, samples: usize, last: bool| {
            let sequential = Sequential {
                gain,
                gain_min: 0.03,
                error,
                error_final: error / 2.0,
                errors_believed: 2.0,
                samples,
                samples_min: 4,
                samples_loss_min: 2,
                samples_max: 16,
                last,
            };
            sequential.verdict()
        };
        assert_eq!(seen(0.3, 0.01, 3, false), Verdict::Unknown, "too few");
        assert_eq!(seen(0.3, 0.01, 3, true), Verdict::Better, "no more will come");
        assert_eq!(seen(0.06, 0.02, 4, false), Verdict::Unknown, "two early errors are four");
        assert_eq!(seen(0.06, 0.02, 16, false), Verdict::Better);
        assert_eq!(seen(0.0, 0.01, 4, false), Verdict::NoDifference, "it cannot pass any more");
        assert_eq!(
            (seen(-0.1, 0.01, 1, false), seen(-0.1, 0.01, 2, false)),
            (Verdict::Unknown, Verdict::Worse)
        );
    }

    proptest! {
        // Each case draws thousands of times.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_difference_far_beyond_the_spread_is_found(samples in proptest::collection::vec(0.001..1000.0_f64, SAMPLES_MIN..20), seed: u64) {
            let far: Vec<f64> = samples.iter().map(|sample| sample + 1e7).collect();
            prop_assert_eq!(compare(&samples, &far, Better::More, seed).verdict, Verdict::Better);
            prop_assert_eq!(compare(&samples, &far, Better::Less, seed).verdict, Verdict::Worse);
        }
    }
}
