//! Whether a candidate is better than what it is compared with, for good.
//!
//! Unit: none. Problem: with five runs each an interval misses the truth once in sixteen times, and who asks again and again is
//! wrong more often than that. Idea: three conditions at once, of which one looks at the order of the runs alone and so bears any outlier: the rank sum
//! in its exact distribution, at a level that leaves room for asking several times.

use super::Rules;
use crate::stats::{Better, Comparison, Interval, Verdict, compare};

/// Chance alone may order the runs so at most once in so many comparisons.
pub const LUCK: f64 = 1_000.0;
/// Or once in so many, where the whole interval is four times as far from no gain as it has to be.
pub const LUCK_WIDE: f64 = 200.0;

/// What is to be done about a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is better.
    Better,
    /// It is not, or not by enough.
    No,
    /// More runs may tell.
    More,
}

/// Judges runs of a candidate beside those of a baseline.
pub fn judge(rules: &Rules, baseline: &[f64], candidate: &[f64]) -> (Answer, Comparison) {
    let comparison = compare(baseline, candidate, rules.better, rules.seed);
    let answer = match comparison.gain {
        None => Answer::More,
        Some(gain) => match gain.interval {
            None => Answer::More,
            Some(Interval { high, .. }) if high < 1.0 + rules.gain_min => Answer::No,
            Some(Interval { low, .. }) => {
                let level = if low >= 1.0 + 4.0 * rules.gain_min { LUCK_WIDE } else { LUCK };
                let clear = comparison.verdict == Verdict::Better && gain.median >= 1.0 + rules.gain_min;
                let lucky = luck(rules.better, baseline, candidate) * level > 1.0;
                if clear && !lucky { Answer::Better } else { Answer::More }
            }
        },
    };
    (answer, comparison)
}

/// How likely it is that the candidate's runs lie as far on the good side, or farther, where both are the same: Wilcoxon's rank sum. Ties count against the candidate.
pub fn luck(better: Better, baseline: &[f64], candidate: &[f64]) -> f64 {
    let wins = |good: f64, bad: f64| match better {
        Better::Less => good < bad,
        Better::More => good > bad,
    };
    // Pairs of which the candidate's is the better one.
    let won: usize =
        candidate.iter().map(|good| baseline.iter().filter(|bad| wins(*good, **bad)).count()).sum();
    let ways = ways(baseline.len(), candidate.len());
    let all: f64 = ways.iter().sum();
    ways[won..].iter().sum::<f64>() / all
}

/// In how many orders of so many runs each sum of won pairs comes about.
fn ways(baseline: usize, candidate: usize) -> Vec<f64> {
    let most = baseline * candidate;
    // `table[n]` is for n runs of the candidate and as many of the baseline as went before.
    let mut table = vec![vec![0.0; most + 1]; candidate + 1];
    for row in &mut table {
        row[0] = 1.0;
    }
    for below in 1..=baseline {
        for above in 1..=candidate {
            // The best of all is the candidate's, and wins against all of the baseline, or it is the baseline's.
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
    use super::*;

    /// All subsets, one by one.
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
    fn luck_is_that_of_all_orders_counted_one_by_one() {
        for (baseline, candidate) in [(1, 1), (2, 3), (5, 5), (3, 5), (6, 4)] {
            let low: Vec<f64> = (0..baseline).map(|at| 10.0 * at as f64).collect();
            for shift in [-5.0, 5.0, 15.0, 35.0, 95.0] {
                let high: Vec<f64> = (0..candidate).map(|at| 10.0 * at as f64 + shift).collect();
                let won = high.iter().map(|good| low.iter().filter(|bad| good > *bad).count()).sum();
                let found = luck(Better::More, &low, &high);
                assert!(
                    (found - by_hand(baseline, candidate, won)).abs() < 1e-12,
                    "{baseline} {candidate} {shift}"
                );
            }
        }
        assert!((luck(Better::Less, &[2.0; 5], &[1.0; 5]) - 1.0 / 252.0).abs() < 1e-12);
        assert!((luck(Better::Less, &[2.0; 5], &[2.0; 5]) - 1.0).abs() < 1e-12, "ties win nothing");
    }

    #[test]
    fn a_verdict_needs_a_gain_that_is_large_and_certain() {
        let rules =
            Rules { better: Better::Less, gain_min: 0.03, budget: crate::time::Span(0), cap: None, seed: 1 };
        let base = [10.0, 10.1, 9.9, 10.05, 9.95];
        let scaled = |by: f64| base.map(|value| value * by);
        assert_eq!(judge(&rules, &base, &scaled(0.8)).0, Answer::Better);
        assert_eq!(judge(&rules, &base, &scaled(0.995)).0, Answer::No, "certain, and too small");
        assert_eq!(judge(&rules, &base, &scaled(1.2)).0, Answer::No);
        assert_eq!(judge(&rules, &base[..4], &scaled(0.8)[..4]).0, Answer::More);
        // A gain in the medians with an order that chance makes often.
        let mixed = [8.0, 8.1, 8.2, 10.2, 10.3];
        assert_eq!(judge(&rules, &base, &mixed).0, Answer::More);
    }
}
