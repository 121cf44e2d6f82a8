//! Fitting of thread counts: a user's count that exceeds the CPUs of a run is lowered before the
//! program reads it.
//!
//! Problem: with more computing threads than CPUs, programs that busy-wait slow down by orders of
//! magnitude (NPB LU-MZ class S with `OMP_NUM_THREADS=2,2` on two CPUs: 6.0 s; with `2,1`: 0.04 s).
//! Idea: the launcher has the CPUs of the run and the counts, so it lowers the counts. Outer levels
//! are served first, since inner regions are shorter and synchronise more often.
//!
//! Properties: Counts that fit are returned unchanged. The product of the fitted counts is at most
//! the number of CPUs. No count grows; no count becomes 0. A text that is not a list of counts
//! stays unchanged.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Treatment of thread counts that exceed the CPUs of a run: those in variables before the program
/// starts, and those of its teams while it runs (the budget of its hold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Variables are lowered.
    #[default]
    Auto,
    /// All are left as the user set them.
    Keep,
    /// Variables are lowered, and teams without a number of their own in the program.
    Budget,
    /// Variables are lowered, and all teams.
    Limit,
}

impl Fit {
    /// All values, as listed in help.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Keep, Self::Budget, Self::Limit];

    /// Returns the word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Keep => "keep",
            Self::Budget => "budget",
            Self::Limit => "limit",
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Fit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|fit| fit.word() == text);
        known.ok_or_else(|| format!("\"{text}\" is not a way to fit counts: auto, keep, budget or limit"))
    }
}

/// Parses thread counts as OpenMP does: one for each nesting level, outermost first. Returns `None`
/// for a text that is not such a list.
pub fn counts(text: &str) -> Option<Vec<u32>> {
    let count = |word: &str| word.trim().parse::<u32>().ok().filter(|&count| count > 0);
    text.split(',').map(count).collect()
}

/// Returns the list as text.
pub(super) fn list(counts: &[u32]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the number of threads of all levels together.
pub(super) fn threads(counts: &[u32]) -> u64 {
    counts.iter().fold(1, |product: u64, &count| product.saturating_mul(u64::from(count)))
}

/// Returns the counts lowered to `cpus`, outer levels first; `None` if they fit already.
pub fn fitted(counts: &[u32], cpus: u32) -> Option<Vec<u32>> {
    let cpus = cpus.max(1);
    if threads(counts) <= u64::from(cpus) {
        return None;
    }
    let mut left = cpus;
    let fitted = counts.iter().map(|&count| {
        let count = count.min(left);
        left /= count;
        count
    });
    Some(fitted.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn outer_levels_are_served_first() {
        for (before, cpus, after) in [
            (&[4][..], 2, Some(&[2][..])),
            (&[2, 2], 2, Some(&[2, 1])),
            (&[4, 4], 8, Some(&[4, 2])),
            (&[4, 4], 6, Some(&[4, 1])),
            (&[1, 8], 4, Some(&[1, 4])),
            (&[2, 3, 4], 8, Some(&[2, 3, 1])),
            (&[2, 2], 4, None),
            (&[1], 0, None),
        ] {
            assert_eq!(fitted(before, cpus).as_deref(), after, "{before:?} on {cpus}");
        }
    }

    #[test]
    fn a_text_that_is_no_list_of_counts_is_left_alone() {
        for text in ["", "x", "2,", "0", "-1", "2,x", "99999999999", "2;2"] {
            assert_eq!(counts(text), None, "{text:?}");
        }
        assert_eq!(counts(" 4 , 2 "), Some(vec![4, 2]));
    }

    proptest! {
        #[test]
        fn fitted_counts_fit_and_only_shrink(before in prop::collection::vec(1u32..100, 1..5), cpus in 1u32..200) {
            match fitted(&before, cpus) {
                None => prop_assert!(threads(&before) <= u64::from(cpus)),
                Some(after) => {
                    prop_assert!(threads(&before) > u64::from(cpus));
                    prop_assert!(threads(&after) <= u64::from(cpus));
                    prop_assert_eq!(after.len(), before.len());
                    prop_assert!(after.iter().zip(&before).all(|(after, before)| (1..=*before).contains(after)));
                    // No level could have one more thread without an inner level having fewer
                    // threads than now.
                    let outer = after.iter().zip(&before).position(|(after, before)| after < before).unwrap();
                    let more: u64 = threads(&after[..outer]) * u64::from(after[outer] + 1);
                    prop_assert!(more > u64::from(cpus));
                }
            }
        }
    }
}
