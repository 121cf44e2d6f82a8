//! Paired comparison: the ratio of two programs' times from runs that were made in turn.
//!
//! Unit: ratios. Problem: other programs come and go while runs are compared, and change the times
//! of both programs by more than the programs differ. Idea: a run of one program is compared with
//! the run of the other in the same turn, which had about the same company. Each pair gives a
//! ratio; the estimate is the middle of all averages of two ratios (Hodges and Lehmann), and its
//! interval follows from the exact distribution of Wilcoxon's signed ranks.
//!
//! Properties: the n-th sample of one side belongs to the n-th of the other; more samples of the
//! longer side are not used. Logarithms make a ratio and its inverse equal: exchanging the sides
//! inverts the result. Fewer than [`SAMPLES_MIN`] pairs have no interval; with five it reaches from
//! the lowest ratio to the highest, and holds the true one in 93.75 % of all cases.
//!
//! Source: F. Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1945; J.
//! L. Hodges and E. L. Lehmann, "Estimates of Location Based on Rank Tests", 1963.

use super::{Better, Estimate, Interval, SAMPLES_MIN, middle};

/// Probability of each tail of an interval.
const TAIL: f64 = 0.025;

/// Returns the ratio of the samples of the same turn, with its interval; `None` without a pair, or
/// unless all samples are finite and positive.
pub fn ratio_of_pairs(above: &[f64], below: &[f64]) -> Option<Estimate> {
    let logs = log_ratios(above, below)?;
    let mut averages: Vec<f64> = Vec::with_capacity(logs.len() * (logs.len() + 1) / 2);
    for (at, one) in logs.iter().enumerate() {
        averages.extend(logs[at..].iter().map(|other| f64::midpoint(*one, *other)));
    }
    averages.sort_by(f64::total_cmp);
    let interval = (logs.len() >= SAMPLES_MIN).then(|| {
        let skipped = averages_outside(logs.len());
        Interval { low: averages[skipped].exp(), high: averages[averages.len() - 1 - skipped].exp() }
    });
    Some(Estimate { median: middle(&averages).exp(), interval })
}

/// Returns the probability that the candidate wins its pairs as clearly, or more so, if both
/// programs are the same: Wilcoxon's signed ranks in their exact distribution. Ties count against
/// the candidate. 1 without a pair.
pub fn signed_rank_chance(better: Better, baseline: &[f64], candidate: &[f64]) -> f64 {
    let Some(mut gains) = log_ratios(baseline, candidate) else { return 1.0 };
    if better == Better::More {
        gains.iter_mut().for_each(|gain| *gain = -*gain);
    }
    // Of equal sizes the gains get the lower ranks.
    gains.sort_by(|one, other| one.abs().total_cmp(&other.abs()).then((*one <= 0.0).cmp(&(*other <= 0.0))));
    let won: usize = gains.iter().zip(1..).filter(|(gain, _)| **gain > 0.0).map(|(_, rank)| rank).sum();
    let ways = sums_of_ranks(gains.len());
    ways[won..].iter().sum()
}

/// Returns the logarithms of the ratios of all pairs; `None` without a pair.
fn log_ratios(above: &[f64], below: &[f64]) -> Option<Vec<f64>> {
    let pairs = above.iter().zip(below);
    let logs: Vec<f64> = pairs.map(|(above, below)| (above / below).ln()).collect();
    let valid = logs.iter().all(|log| log.is_finite()) && !logs.is_empty();
    valid.then_some(logs)
}

/// Returns how many of the sorted averages lie outside of the interval on either side.
fn averages_outside(pairs: usize) -> usize {
    let mut below = 0.0;
    let tail = sums_of_ranks(pairs).into_iter().take_while(|chance| {
        below += chance;
        below <= TAIL
    });
    // If P(W < k) is at most the tail, the k-th average of either side bounds the interval.
    tail.count().saturating_sub(1)
}

/// Returns the probability of each sum of the ranks of won pairs, if each pair is won or lost by
/// chance.
fn sums_of_ranks(pairs: usize) -> Vec<f64> {
    let mut chances = vec![0.0; pairs * (pairs + 1) / 2 + 1];
    chances[0] = 1.0;
    let mut largest = 0;
    for rank in 1..=pairs {
        largest += rank;
        for sum in (0..=largest).rev() {
            let won = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = f64::midpoint(chances[sum], won);
        }
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::*;
    use proptest::prelude::*;

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(0.001..1000.0_f64, SAMPLES_MIN..20)
    }

    /// Critical values of tables: the largest sum of ranks with a probability of at most 2.5 %.
    #[test]
    fn interval_ends_are_those_of_the_published_tables() {
        // Number of pairs, and critical value of Wilcoxon's two-sided test at 5 %.
        for (pairs, critical) in [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (25, 89)] {
            assert_eq!(averages_outside(pairs), critical, "{pairs} pairs");
        }
        assert_eq!(averages_outside(5), 0);
    }

    #[test]
    fn chances_are_those_of_counting_all_signs() {
        // Six pairs: each of the 64 signs is as likely.
        let sizes = [0.1_f64, 0.2, 0.3, 0.4, 0.5, 0.6];
        let gains = |signs: u32| {
            let gain = |at: usize| if signs >> at & 1 == 1 { sizes[at] } else { -sizes[at] };
            (0..6).map(gain).collect::<Vec<f64>>()
        };
        let sum = |signs: u32| (0..6).filter(|at| signs >> at & 1 == 1).map(|at| at + 1).sum::<u32>();
        for signs in 0..64 {
            let baseline: Vec<f64> = gains(signs).iter().map(|gain| gain.exp()).collect();
            let counted = (0..64).filter(|&other| sum(other) >= sum(signs)).count() as f64 / 64.0;
            let found = signed_rank_chance(Better::Less, &baseline, &[1.0; 6]);
            assert!((found - counted).abs() < 1e-12, "{signs:b}: {found} and not {counted}");
            let turned = signed_rank_chance(Better::More, &[1.0; 6], &baseline);
            assert!((turned - counted).abs() < 1e-12);
        }
        assert_eq!(signed_rank_chance(Better::Less, &[1.0; 6], &[1.0; 6]), 1.0, "ties are no gain");
        assert_eq!(signed_rank_chance(Better::Less, &[], &[1.0]), 1.0);
    }

    /// The load of others changes the times of both programs by factors of up to four, and these
    /// differ by a tenth only.
    #[test]
    fn pairs_see_a_difference_that_the_load_of_others_hides() {
        let mut random = Random(3);
        let mut load = || 1.0 + 3.0 * (random.below(1000) as f64 / 1000.0);
        let loads: Vec<f64> = (0..12).map(|_| load()).collect();
        let slow: Vec<f64> = loads.iter().map(|load| 1.1 * load).collect();
        let Interval { low, high } = ratio_of_pairs(&slow, &loads).unwrap().interval.unwrap();
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9, "{low} {high}");
        let apart = super::super::ratio_of_medians(&slow, &loads, 1).unwrap().interval.unwrap();
        assert!(apart.low < 1.0 && apart.high > 1.2, "{apart:?}");
    }

    /// Ratios of a distribution with the middle 2.
    #[test]
    fn intervals_hold_the_true_ratio_as_often_as_they_say() {
        let mut random = Random(11);
        let mut noise = || (random.below(1 << 20) as f64 / f64::from(1 << 20) - 0.5).exp();
        for (count, least) in [(5, 0.91), (9, 0.93), (15, 0.93)] {
            let mut held = 0;
            for _ in 0..1000 {
                let above: Vec<f64> = (0..count).map(|_| 2.0 * noise()).collect();
                let below: Vec<f64> = (0..count).map(|_| noise()).collect();
                let Interval { low, high } = ratio_of_pairs(&above, &below).unwrap().interval.unwrap();
                held += u32::from(low <= 2.0 && 2.0 <= high);
            }
            let share = f64::from(held) / 1000.0;
            assert!(share >= least, "{count} pairs: {share}");
        }
    }

    proptest! {
        #[test]
        fn a_ratio_lies_within_those_of_the_pairs_and_inverts_with_the_sides(
            above in samples(), below in samples(),
        ) {
            let ratios: Vec<f64> = above.iter().zip(&below).map(|(above, below)| above / below).collect();
            let low = ratios.iter().copied().fold(f64::INFINITY, f64::min) * (1.0 - 1e-9);
            let high = ratios.iter().copied().fold(0.0, f64::max) * (1.0 + 1e-9);
            let found = ratio_of_pairs(&above, &below).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(low <= interval.low && interval.low <= found.median);
            prop_assert!(found.median <= interval.high && interval.high <= high);
            let turned = ratio_of_pairs(&below, &above).unwrap();
            prop_assert!((found.median * turned.median - 1.0).abs() < 1e-9);
            prop_assert!((interval.low * turned.interval.unwrap().high - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn values_that_are_no_times_give_no_ratio() {
        assert_eq!(ratio_of_pairs(&[1.0], &[]), None);
        assert_eq!(ratio_of_pairs(&[1.0], &[0.0]), None);
        assert_eq!(ratio_of_pairs(&[f64::NAN], &[1.0]), None);
        assert_eq!(ratio_of_pairs(&[4.0, 4.0], &[2.0]).unwrap(), Estimate { median: 2.0, interval: None });
    }
}
