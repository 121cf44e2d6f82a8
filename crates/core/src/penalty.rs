//! How much threads suffer from where they run: one number a thread, one for any group of them, and one for what a change brought.
//!
//! Unit: cycles a request for the uncore penalty, else as each index says. Problem: whether a thread runs better on another node
//! shows in no time that the kernel counts; hardware counts show it, but several ratios of them claim to, and they fail in
//! different places. Idea: an [`Index`] is a ratio of two counts that ran together; a [`Mean`] makes one number of many threads';
//! both are switches. Why busy cycles over requests is latency over parallelism is derived in [`counts`](crate::counts).
//!
//! What the indices are worth was measured: pointer chases of eleven working sets, each alone and under load, in two records of
//! counters, and threads that spin at barriers for one of them in a third (`trimtab bench uncore --from experiments/uncore/results/...`;
//! `tests/penalty` has an extract). Correlation of their relative changes with those of run time over all 86, 86 and 10 cases, medians, and how often
//! the direction was right where run time changed by more than 5 %:
//!
//! ```text
//! index             correlation  direction right     spinning        fails where
//! P = B / A         0.94, 0.98   34 of 56, 50 of 62  0.95, 10 of 10  the number of requests itself changes
//! B / instruction   0.40, 0.94   56 of 56, 62 of 62  0.83, 10 of 10  hardly anything misses; threads spin at barriers
//! CPI               1.00, 1.00   56 of 56, 61 of 62  0.73, 5 of 10   threads spin
//! LLC miss rate     0.38, 0.91   34 of 56, 45 of 62  -               everywhere: it is blind to parallel misses
//! P' (generic)      0.92, 0.96   34 of 54, 49 of 62  -               as P, and where `c0` does not fit
//! ```
//!
//! CPI and B / instruction owe some of that to the experiment: each access executes the same instructions, so that time over
//! instructions *is* the time of an access; of threads that spin it is not. The goal was 0.9 for P: met for changes, missed for levels over
//! all kinds of work (0.87, 0.85).
//!
//! So a policy that compares, for which the direction counts and not the size, should take busy cycles an instruction while nobody spins,
//! and the penalty when somebody does ([`Index::usual`]).
//!
//! Means: the slides' global penalty is a plain sum of P over threads. Weighted by requests it is `sum B / sum A`, in which a thread
//! that misses once a second does not count as much as one that misses all the time. To compare two states neither is right: when a
//! suffering thread gets better it makes more requests, and the mean *rises* (Simpson). [`change`] therefore weighs each
//! thread in both states by what it was before: what would the same requests cost now?
//!
//! Properties: missing is not zero: a thread without counts, or whose denominator is zero, is left out and counted as such; no
//! thread, no level; order of threads does not matter but for rounding.
//!
//! Source: index and sum from Rao, Wang, Zhou and Xu, HPCA 2013; the comparison is Laspeyres's price index (1871).

use crate::counts::{Counts, Rung};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Cycles an instruction of a thread that never misses, for the estimate from generic counters: the best of three tried on recorded
/// data (0, 0.6, 1).
pub const C0: f64 = 0.6;

/// A number that says how much a thread suffers beyond its private caches: the higher the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// P: busy cycles a critical request.
    Penalty,
    /// Busy cycles an instruction.
    Busy,
    /// W: the share of cycles that are busy.
    Share,
    /// Cycles an instruction.
    Cpi,
    /// The share of look-ups that the last cache could not serve.
    MissRate,
    /// The share of memory (lines, faults or pages) that is on other nodes.
    Far,
    /// P': cycles that instructions do not explain, a request; where only generic counters exist.
    Estimate,
}

/// How the numbers of several threads become one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Numerators over denominators: each thread as much as it has requests (or instructions, or look-ups).
    Weighted,
    /// The plain sum.
    Sum,
}

/// No index, or no mean, has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("\"{word}\" is no {what} (known: {known})")]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: String,
}

fn known<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> String {
    all.iter().map(|one| word(*one)).collect::<Vec<_>>().join(", ")
}

impl Index {
    /// All, in the order in which help names them.
    pub const ALL: [Self; 7] =
        [Self::Penalty, Self::Busy, Self::Share, Self::Cpi, Self::MissRate, Self::Far, Self::Estimate];

    /// The word for it in output and options.
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

    /// What is divided by what; `None` where either was not counted.
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
                Some(((cycles - C0 * instructions).max(0.0), requests))
            }
        }
    }

    /// The index of one thread; `None` where it was not counted or nothing divides it.
    pub fn of(self, counts: &Counts) -> Option<f64> {
        let (above, below) = self.parts(counts)?;
        (below > 0.0).then(|| above / below)
    }

    /// What to compare by on a rung of the ladder, as the evidence has it; `None` where nothing tells.
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

    /// What stands for this index on a rung where it cannot be counted: the estimate for the penalty, far shares where nothing
    /// else is known.
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
    /// Both.
    pub const ALL: [Self; 2] = [Self::Weighted, Self::Sum];

    /// The word for it in output and options.
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
pub struct Level {
    /// The number; `None` when no thread has one.
    pub value: Option<f64>,
    /// Of how many threads it is made.
    pub counted: usize,
    /// How many were left out, because they were not counted or had nothing to count.
    pub missing: usize,
}

/// The index of a group of threads: those of a node, of a program, all.
pub fn level(index: Index, mean: Mean, threads: impl IntoIterator<Item = Option<Counts>>) -> Level {
    let (mut above, mut below, mut sum) = (0.0, 0.0, 0.0);
    let mut level = Level::default();
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

/// How much a thread counts in a comparison, and its index before; `None` if it had none.
pub(crate) fn weight(index: Index, mean: Mean, before: &Counts) -> Option<(f64, f64)> {
    let (above, below) = index.parts(before).filter(|(_, below)| *below > 0.0)?;
    let weight = match mean {
        Mean::Weighted => below,
        Mean::Sum => 1.0,
    };
    Some((weight, above / below))
}

/// By what factor the index of a group changed: below 1 it got better. Threads are pairs of what was counted before and after;
/// each weighs in both states what it weighed before, and those without an index in either are left out.
///
/// `None` when nobody is left, or nobody suffered before.
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
    fn who_is_not_counted_is_left_out_and_counted_as_such() {
        let threads = [Some(counts(300, 2, 10)), None, Some(counts(0, 0, 10)), Some(counts(100, 2, 30))];
        let of = |index, mean| level(index, mean, threads);
        assert_eq!(of(Index::Penalty, Mean::Weighted), Level { value: Some(100.0), counted: 2, missing: 2 });
        assert_eq!(of(Index::Penalty, Mean::Sum), Level { value: Some(200.0), counted: 2, missing: 2 });
        assert_eq!(of(Index::Busy, Mean::Weighted), Level { value: Some(8.0), counted: 3, missing: 1 });
        assert_eq!(of(Index::Cpi, Mean::Sum), Level { value: None, counted: 0, missing: 4 });
        assert_eq!(level(Index::Busy, Mean::Sum, []), Level::default());
    }

    #[test]
    fn a_thread_that_gets_better_and_does_more_does_not_make_all_worse() {
        // Both get better; the one that suffers most gets to make ten times the requests.
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
