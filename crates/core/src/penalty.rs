//! Penalty indices: one number for how much a thread suffers from its placement, one for a group of
//! threads, and one for the effect of a change.
//!
//! Unit: cycles per request for the uncore penalty, otherwise as each index says. Problem: no time
//! that the kernel counts shows whether a thread would run better on another node. Hardware
//! counters show it, but several ratios of them claim to, and they fail in different places. Idea:
//! an [`Index`] is a ratio of two counts that ran together, and a [`Mean`] combines the numbers of
//! many threads; both can be chosen. [`counts`](crate::counts) derives why busy cycles over
//! requests is latency over parallelism.
//!
//! The indices were validated by measurement: pointer chases of eleven working sets, each alone and
//! under load, in two records of counters, and threads that spin at barriers for one of them in a
//! third (`trimtab bench uncore --from experiments/uncore/results/...`; `tests/penalty` has an
//! extract). The table shows the correlation of their relative changes with those of run time over
//! all 86, 86 and 10 cases, medians, and how often the direction was right if run time changed by
//! more than 5 %:
//!
//! ```text
//! index            correlation  direction right     spinning        fails if
//! P = B / A        0.94, 0.98   34 of 56, 50 of 62  0.95, 10 of 10  number of requests changes
//! B / instruction  0.40, 0.94   56 of 56, 62 of 62  0.83, 10 of 10  few misses; spin at barriers
//! CPI              1.00, 1.00   56 of 56, 61 of 62  0.73, 5 of 10   threads spin
//! LLC miss rate    0.38, 0.91   34 of 56, 45 of 62  -               always (parallel misses)
//! P' (generic)     0.92, 0.96   34 of 54, 49 of 62  -               as P; `BASE_CPI` wrong
//! ```
//!
//! The LLC miss rate fails everywhere because it does not show that misses overlap. CPI and B /
//! instruction owe some of their result to the experiment: each access executes the same
//! instructions, so time over instructions *is* the time of an access. This does not hold for
//! threads that spin. The goal was 0.9 for P: met for changes, missed for levels over all kinds of
//! work (0.87, 0.85).
//!
//! A policy that compares needs the direction, not the size. It should use busy cycles per
//! instruction while no thread spins, and the penalty when some do ([`Index::usual`]).
//!
//! Means: the slides' global penalty is a plain sum of P over threads. Weighted by requests it is
//! `sum B / sum A`, in which a thread that misses once a second does not count as much as one that
//! misses all the time. Neither is right for comparing two states: when a suffering thread gets
//! better it makes more requests, and the mean *rises* (Simpson). [`change`] therefore weights each
//! thread in both states by its requests in the first: how much would the same requests cost now?
//!
//! Properties: missing is not zero. A thread without counts, or with a denominator of zero, is left
//! out and counted as missing. A group without threads has no level. The order of threads does not
//! matter except for rounding.
//!
//! Source: index and sum from Rao, Wang, Zhou and Xu, HPCA 2013; the comparison is Laspeyres's
//! price index (1871).

use crate::counts::{Counts, Rung};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Cycles per instruction of a thread that never misses, for the estimate from generic counters:
/// the best of three values tried on recorded data (0, 0.6, 1).
pub const BASE_CPI: f64 = 0.6;

/// An index of how much a thread suffers beyond its private caches; higher is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// P: busy cycles per critical request.
    Penalty,
    /// Busy cycles per instruction.
    Busy,
    /// W: share of cycles that are busy.
    Share,
    /// Cycles per instruction.
    Cpi,
    /// Share of look-ups that missed in the last-level cache.
    MissRate,
    /// Share of memory (lines, faults or pages) that is on other nodes.
    Far,
    /// P': cycles that instructions do not explain, per request; for machines with generic counters
    /// only.
    Estimate,
}

/// Rule that combines the numbers of several threads into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Sum of numerators over sum of denominators: each thread is weighted by its requests (or
    /// instructions, or look-ups).
    Weighted,
    /// Plain sum.
    Sum,
}

/// Error for a word that names no index, or no mean.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("unknown {what} \"{word}\" (known: {known})")]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: String,
}

fn known<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> String {
    all.iter().map(|one| word(*one)).collect::<Vec<_>>().join(", ")
}

impl Index {
    /// All indices, in the order of the help text.
    pub const ALL: [Self; 7] =
        [Self::Penalty, Self::Busy, Self::Share, Self::Cpi, Self::MissRate, Self::Far, Self::Estimate];

    /// Returns the word for the index in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Penalty => "penalty",
            Self::Busy => "busy",
            Self::Share => "share",
            Self::Cpi => "cpi",
            Self::MissRate => "miss-rate",
            Self::Far => "far",
            Self::Estimate => "estimate",
        }
    }

    /// Returns numerator and denominator; `None` if either was not counted.
    pub fn parts(self, counts: &Counts) -> Option<(f64, f64)> {
        let two = |a: Option<u64>, b: Option<u64>| Some((a? as f64, b? as f64));
        match self {
            Self::Penalty => two(counts.busy, counts.requests),
            Self::Busy => two(counts.busy, counts.instructions),
            Self::Share => two(counts.busy, counts.cycles),
            Self::Cpi => two(counts.cycles, counts.instructions),
            Self::MissRate => two(counts.llc_misses, counts.llc_lookups),
            Self::Far => {
                let (near, far) = (counts.near? as f64, counts.far? as f64);
                Some((far, near + far))
            }
            Self::Estimate => {
                let (cycles, instructions) = two(counts.cycles, counts.instructions)?;
                let requests = counts.requests.or(counts.llc_misses)? as f64;
                Some(((cycles - BASE_CPI * instructions).max(0.0), requests))
            }
        }
    }

    /// Returns the index of one thread; `None` if it was not counted or the denominator is zero.
    pub fn of(self, counts: &Counts) -> Option<f64> {
        let (above, below) = self.parts(counts)?;
        (below > 0.0).then(|| above / below)
    }

    /// Returns the index to compare by on a rung, as the evidence suggests; `None` if nothing can
    /// be compared.
    pub fn usual(rung: Rung, spins: bool) -> Option<Self> {
        match (rung, spins) {
            (Rung::Exact | Rung::Proxy, false) => Some(Self::Busy),
            (Rung::Exact | Rung::Proxy, true) => Some(Self::Penalty),
            (Rung::Generic, false) => Some(Self::Cpi),
            (Rung::Generic, true) => Some(Self::Estimate),
            (Rung::HintFaults | Rung::Residency, _) => Some(Self::Far),
            (Rung::Nothing, _) => None,
        }
    }

    /// Returns the substitute for this index on a rung that cannot count it: the estimate for the
    /// penalty, far shares if nothing else is known.
    #[must_use]
    pub fn on(self, rung: Rung) -> Self {
        match (self, rung) {
            (Self::Penalty | Self::Busy | Self::Share, Rung::Generic) => Self::Estimate,
            (_, Rung::HintFaults | Rung::Residency) => Self::Far,
            (index, _) => index,
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Index {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let unknown =
            || UnknownWord { what: "index", word: word.to_owned(), known: known(&Self::ALL, Self::word) };
        Self::ALL.into_iter().find(|index| index.word() == word).ok_or_else(unknown)
    }
}

impl Mean {
    /// Both means.
    pub const ALL: [Self; 2] = [Self::Weighted, Self::Sum];

    /// Returns the word for the mean in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Sum => "sum",
        }
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mean {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let unknown =
            || UnknownWord { what: "mean", word: word.to_owned(), known: known(&Self::ALL, Self::word) };
        Self::ALL.into_iter().find(|mean| mean.word() == word).ok_or_else(unknown)
    }
}

/// The index of a group of threads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct GroupIndex {
    /// Value of the index; `None` if no thread has one.
    pub value: Option<f64>,
    /// Number of threads in the value.
    pub counted: usize,
    /// Number of threads left out because they were not counted or their denominator was zero.
    pub missing: usize,
}

/// Returns the index of a group of threads: those of a node, of a program, or all.
pub fn level(index: Index, mean: Mean, threads: impl IntoIterator<Item = Option<Counts>>) -> GroupIndex {
    let (mut above, mut below, mut sum) = (0.0, 0.0, 0.0);
    let mut level = GroupIndex::default();
    for counts in threads {
        match counts.and_then(|counts| index.parts(&counts)).filter(|(_, below)| *below > 0.0) {
            Some((a, b)) => {
                level.counted += 1;
                above += a;
                below += b;
                sum += a / b;
            }
            None => level.missing += 1,
        }
    }
    level.value = (level.counted > 0).then(|| match mean {
        Mean::Weighted => above / below,
        Mean::Sum => sum,
    });
    level
}

/// Returns the weight of a thread in a comparison, and its index before; `None` if it had none.
pub(crate) fn weight(index: Index, mean: Mean, before: &Counts) -> Option<(f64, f64)> {
    let (above, below) = index.parts(before).filter(|(_, below)| *below > 0.0)?;
    let weight = match mean {
        Mean::Weighted => below,
        Mean::Sum => 1.0,
    };
    Some((weight, above / below))
}

/// Returns the factor by which the index of a group changed: below 1 it got better. Threads are
/// pairs of counts before and after. Each thread has its weight before in both states; threads
/// without an index in either state are left out.
///
/// `None` if no thread is left, or if the index was zero before.
pub fn change<'a>(
    index: Index,
    mean: Mean,
    threads: impl IntoIterator<Item = (&'a Counts, &'a Counts)>,
) -> Option<f64> {
    let (mut then, mut now) = (0.0, 0.0);
    for (before, after) in threads {
        let Some(((weight, was), is)) = weight(index, mean, before).zip(index.of(after)) else { continue };
        then += weight * was;
        now += weight * is;
    }
    (then > 0.0).then(|| now / then)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(busy: u64, requests: u64, instructions: u64) -> Counts {
        Counts {
            busy: Some(busy),
            requests: Some(requests),
            instructions: Some(instructions),
            ..Counts::default()
        }
    }

    #[test]
    fn threads_without_counts_are_left_out_and_their_number_is_kept() {
        let threads = [Some(counts(300, 2, 10)), None, Some(counts(0, 0, 10)), Some(counts(100, 2, 30))];
        let of = |index, mean| level(index, mean, threads);
        assert_eq!(
            of(Index::Penalty, Mean::Weighted),
            GroupIndex { value: Some(100.0), counted: 2, missing: 2 }
        );
        assert_eq!(of(Index::Penalty, Mean::Sum), GroupIndex { value: Some(200.0), counted: 2, missing: 2 });
        assert_eq!(of(Index::Busy, Mean::Weighted), GroupIndex { value: Some(8.0), counted: 3, missing: 1 });
        assert_eq!(of(Index::Cpi, Mean::Sum), GroupIndex { value: None, counted: 0, missing: 4 });
        assert_eq!(level(Index::Busy, Mean::Sum, []), GroupIndex::default());
    }

    #[test]
    fn a_thread_that_gets_better_and_does_more_does_not_make_all_worse() {
        // Both get better; the thread that suffers most makes ten times the requests.
        let before = [counts(1000, 10, 10), counts(1000, 100, 1000)];
        let after = [counts(9000, 100, 100), counts(900, 100, 1000)];
        let all = |threads: &[Counts]| {
            level(Index::Penalty, Mean::Weighted, threads.iter().copied().map(Some)).value.unwrap()
        };
        assert!(all(&after) > all(&before), "the mean rises");
        let change = change(Index::Penalty, Mean::Weighted, before.iter().zip(&after)).unwrap();
        assert!((change - 0.9).abs() < 1e-9, "{change}");
    }

    #[test]
    fn every_word_reads_back_and_others_are_refused() {
        for index in Index::ALL {
            assert_eq!(index.word().parse(), Ok(index));
            assert_eq!(serde_json::to_value(index).unwrap(), index.word());
        }
        for mean in Mean::ALL {
            assert_eq!(mean.word().parse(), Ok(mean));
            assert_eq!(serde_json::to_value(mean).unwrap(), mean.word());
        }
        let refused = "ipc".parse::<Index>().unwrap_err().to_string();
        assert!(refused.contains("ipc") && refused.contains("penalty, busy"), "{refused}");
    }

    #[test]
    fn every_rung_has_an_index_that_it_can_count() {
        for rung in Rung::ALL {
            assert_eq!(Index::usual(rung, true).is_none(), rung == Rung::Nothing);
        }
        assert_eq!(Index::Penalty.on(Rung::Generic), Index::Estimate);
        assert_eq!(Index::Busy.on(Rung::Exact), Index::Busy);
    }
}
