//! Speedups: how much faster or slower a variant is than another, from a few runs of both.
//!
//! Unit: ratios of times, before over after: 2 is twice as fast. Runs of the same turn are
//! compared, because other programs affect both of them ([`crate::stats::paired`]). Properties:
//! fewer than five turns have no such interval. The extremes of all runs are taken, widened by a
//! margin. A baseline that was stopped gives a lower bound only.

use super::GAIN_LEAST;
use super::entrant::Entrant;
use crate::stats::median;
use crate::stats::paired::ratio_of_pairs;
use serde::Serialize;
use std::fmt;

/// Ratio of the ends of an interval above which it is not printed as numbers.
const RANGE_SHOWN_MAX: f64 = 4.0;
/// Margins of extremes, by the lower number of runs: one, two, and more.
const MARGINS: [f64; 3] = [1.35, 1.20, 1.08];

/// A measured ratio of times: above 1 is faster.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Speedup {
    /// Careful end.
    pub low: f64,
    /// Middle ratio of the turns; for few runs that of the medians, and for a baseline that was
    /// stopped a lower bound.
    pub likely: f64,
    /// Favourable end; `None` if the baseline was stopped before its end.
    pub high: Option<f64>,
}

impl Speedup {
    /// Returns whether even the careful end is a gain.
    pub fn is_sure(&self) -> bool {
        self.low >= 1.0 + GAIN_LEAST
    }

    /// Returns whether even the favourable end is a loss.
    pub fn is_loss(&self) -> bool {
        self.high.is_some_and(|high| high <= 1.0 - GAIN_LEAST)
    }
}

/// Formats the speedup in words. An interval that is too wide for a decision is not printed.
impl fmt::Display for Speedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, likely, high } = *self;
        let Some(high) = high else {
            return match () {
                () if low > 1.0 => write!(f, "at least {} times faster", factor(low)),
                () => f.write_str("not known: the run to compare with was stopped before its end"),
            };
        };
        if high > RANGE_SHOWN_MAX * low {
            return match () {
                () if low > 1.0 => write!(f, "at least {} times faster", factor(low)),
                () if high < 1.0 => write!(f, "at least {} times slower", factor(1.0 / high)),
                () => f.write_str("not known: too few runs, or too much noise"),
            };
        }
        if self.is_sure() {
            write!(f, "{} times faster ({} to {})", factor(likely), factor(low), factor(high))
        } else if self.is_loss() {
            let (likely, low, high) = (1.0 / likely, 1.0 / high, 1.0 / low);
            write!(f, "{} times slower ({} to {})", factor(likely), factor(low), factor(high))
        } else {
            write!(f, "no certain difference ({} to {} times as fast)", factor(low), factor(high))
        }
    }
}

/// Formats a factor with three digits at most.
fn factor(factor: f64) -> String {
    match factor {
        100.0.. => format!("{factor:.0}"),
        10.0.. => format!("{factor:.1}"),
        _ => format!("{factor:.2}"),
    }
}

/// Ends of a ratio of times, and the ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub low: f64,
    pub likely: f64,
    pub high: f64,
}

/// Returns the ratio of two variants with its interval: from runs of the same turn, or for fewer
/// runs that of the medians, from the extremes.
pub(super) fn ratio(above: &[f64], below: &[f64]) -> Option<Ratio> {
    let estimate = ratio_of_pairs(above, below)?;
    if let Some(interval) = estimate.interval {
        return Some(Ratio { low: interval.low, likely: estimate.median, high: interval.high });
    }
    let margin = MARGINS[above.len().min(below.len()).clamp(1, MARGINS.len()) - 1];
    let lowest = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    Some(Ratio {
        low: lowest(above) / highest(below) / margin,
        likely: median(above)? / median(below)?,
        high: highest(above) / lowest(below) * margin,
    })
}

/// Returns the speedup of a variant over a baseline; `None` without runs that count.
pub fn speedup(baseline: &Entrant, variant: &Entrant) -> Option<Speedup> {
    if baseline.rejected.is_some() || variant.rejected.is_some() || variant.seconds.is_empty() {
        return None;
    }
    if let Some(stopped) = baseline.stopped.filter(|_| baseline.seconds.is_empty()) {
        // A baseline that was stopped takes longer than that.
        let slowest = variant.seconds.iter().copied().fold(0.0, f64::max);
        let margin = MARGINS[variant.seconds.len().clamp(1, MARGINS.len()) - 1];
        let low = stopped / (slowest * margin);
        return (low.is_finite() && low > 0.0).then_some(Speedup {
            low,
            likely: stopped / slowest,
            high: None,
        });
    }
    let found = ratio(&baseline.times(), &variant.times())?;
    // The time of a run that was stopped is a lower bound, so the upper end is not known.
    let high = if baseline.stopped.is_some() { None } else { Some(found.high) };
    Some(Speedup { low: found.low, likely: found.likely, high })
}
