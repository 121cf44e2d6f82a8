//! Judge of a candidate: the conditions under which a gain over the baseline is accepted.
//!
//! Unit: none. Problem: with five runs each, an interval misses the truth one time in sixteen, and
//! repeated comparisons are wrong more often than that. Idea: three conditions at once. One of them
//! considers only the order of the runs and is therefore robust against any outlier: the rank sum
//! in its exact distribution, at a level that leaves room for several comparisons.

use super::Rules;
use crate::stats::comparison::rank_sum_chance;
use crate::stats::{Comparison, Verdict, compare};

/// Chance alone may order the runs so at most once in this number of comparisons.
pub const CHANCE_ODDS: f64 = 1_000.0;
/// The same bound if the whole interval is four times as far from "no gain" as it has to be.
pub const CHANCE_ODDS_WIDE: f64 = 200.0;

/// Judges runs of a candidate against those of a baseline. [`Verdict::Unknown`] means that more
/// runs are needed, and a gain below [`Rules::gain_min`] is no difference.
pub fn judge(rules: &Rules, baseline: &[f64], candidate: &[f64]) -> (Verdict, Comparison) {
    let comparison = compare(baseline, candidate, rules.better, rules.seed);
    let Some((gain, interval)) = comparison.gain.and_then(|gain| Some((gain.median, gain.interval?))) else {
        return (Verdict::Unknown, comparison);
    };
    let verdict = if interval.high < 1.0 + rules.gain_min {
        if comparison.verdict == Verdict::Worse { Verdict::Worse } else { Verdict::NoDifference }
    } else {
        let odds = if interval.low >= 1.0 + 4.0 * rules.gain_min { CHANCE_ODDS_WIDE } else { CHANCE_ODDS };
        let clear = comparison.verdict == Verdict::Better && gain >= 1.0 + rules.gain_min;
        let lucky = rank_sum_chance(rules.better, baseline, candidate) * odds > 1.0;
        if clear && !lucky { Verdict::Better } else { Verdict::Unknown }
    };
    (verdict, comparison)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Better;

    #[test]
    fn a_verdict_needs_a_gain_that_is_large_and_certain() {
        let rules =
            Rules { better: Better::Less, gain_min: 0.03, budget: crate::time::Span(0), cap: None, seed: 1 };
        let base = [10.0, 10.1, 9.9, 10.05, 9.95];
        let scaled = |by: f64| base.map(|value| value * by);
        assert_eq!(judge(&rules, &base, &scaled(0.8)).0, Verdict::Better);
        assert_eq!(judge(&rules, &base, &scaled(0.995)).0, Verdict::NoDifference, "certain, and too small");
        assert_eq!(judge(&rules, &base, &scaled(1.2)).0, Verdict::Worse);
        assert_eq!(judge(&rules, &base[..4], &scaled(0.8)[..4]).0, Verdict::Unknown);
        // The medians show a gain, but chance often makes such an order.
        let mixed = [8.0, 8.1, 8.2, 10.2, 10.3];
        assert_eq!(judge(&rules, &base, &mixed).0, Verdict::Unknown);
    }
}
