//! What an index is worth: cases measured in two ways, and whether the index tells which way was slower.
//!
//! Unit: time of an access to memory; an index's own unit. Problem: a policy moves threads by an index that hardware counts, because
//! run time cannot be seen while a program runs. Where both can be seen, in a benchmark, it can be asked how far the index is to be
//! trusted. Idea: each case is run in two ways that differ in placement or load alone, several times, taking turns; the medians of
//! time and index are compared over all runs (do they go together?), and so are their relative changes from the first way to the
//! second (does the index see what placement does?), which is what the policy asks.
//!
//! Properties: pure; a case that lacks time or index in either way counts for neither, and what is missing is never zero; the order
//! of cases and runs does not matter.
//!
//! Source: the slides and the paper of Rao, Wang, Zhou and Xu, HPCA 2013, who judge their index by the correlation of relative
//! changes; signs are asked for in addition, because their rule only compares.

use crate::stats::correlation::{Agreement, agreement, pearson, spearman};
use crate::stats::median;
use serde::Serialize;

/// Smaller relative changes of run time are not asked for their direction.
pub const CHANGE_MIN: f64 = 0.05;

/// One run of a case in one way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reading {
    /// Of an access.
    pub time: f64,
    /// Each index; `None` where it was not counted.
    pub indices: Vec<Option<f64>>,
}

/// A case, run in two ways.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Contrast {
    /// All runs in the first way: alone, near, together.
    pub first: Vec<Reading>,
    /// All runs in the second.
    pub second: Vec<Reading>,
}

/// A quantity in both ways, as medians.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Change {
    /// In the first way.
    pub first: f64,
    /// In the second.
    pub second: f64,
    /// From the first to the second, relative to the first; `None` when that is not positive.
    pub relative: Option<f64>,
}

/// How two quantities go together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Correlation {
    /// Over so many pairs.
    pub pairs: usize,
    /// In proportion.
    pub pearson: Option<f64>,
    /// In order.
    pub spearman: Option<f64>,
}

/// What an index is worth over some cases.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Worth {
    /// Index and time of an access, each case giving two pairs.
    pub levels: Correlation,
    /// Their relative changes, each case giving one.
    pub changes: Correlation,
    /// Changes of time of more than [`CHANGE_MIN`] whose direction the index has too.
    pub signs: Agreement,
}

impl Contrast {
    /// The time of an access; `None` unless there are runs in both ways.
    pub fn time(&self) -> Option<Change> {
        self.of(|reading| Some(reading.time))
    }

    /// An index by its number; `None` unless it was counted in both ways.
    pub fn index(&self, number: usize) -> Option<Change> {
        self.of(|reading| reading.indices.get(number).copied().flatten())
    }

    fn of(&self, quantity: impl Fn(&Reading) -> Option<f64>) -> Option<Change> {
        let middle = |readings: &[Reading]| {
            let numbers: Vec<f64> = readings.iter().filter_map(&quantity).collect();
            median(&numbers)
        };
        let (first, second) = (middle(&self.first)?, middle(&self.second)?);
        Some(Change { first, second, relative: (first > 0.0).then(|| second / first - 1.0) })
    }
}

impl Correlation {
    fn of(pairs: &[(f64, f64)]) -> Self {
        Self { pairs: pairs.len(), pearson: pearson(pairs), spearman: spearman(pairs) }
    }
}

/// What an index is worth over these cases.
pub fn worth<'a>(index: usize, cases: impl IntoIterator<Item = &'a Contrast>) -> Worth {
    let both: Vec<(Change, Change)> =
        cases.into_iter().filter_map(|case| case.time().zip(case.index(index))).collect();
    let levels: Vec<(f64, f64)> = both
        .iter()
        .flat_map(|(time, index)| [(time.first, index.first), (time.second, index.second)])
        .collect();
    let changes: Vec<(f64, f64)> =
        both.iter().filter_map(|(time, index)| time.relative.zip(index.relative)).collect();
    Worth {
        levels: Correlation::of(&levels),
        changes: Correlation::of(&changes),
        signs: agreement(&changes, CHANGE_MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(all: &[(f64, Option<f64>)]) -> Vec<Reading> {
        all.iter().map(|&(time, index)| Reading { time, indices: vec![index] }).collect()
    }

    fn case(first: (f64, f64), second: (f64, f64)) -> Contrast {
        let one = |(time, index)| runs(&[(time, Some(index))]);
        Contrast { first: one(first), second: one(second) }
    }

    #[test]
    fn medians_of_what_was_counted_are_compared() {
        let contrast = Contrast {
            first: runs(&[(1.0, Some(10.0)), (9.0, None), (2.0, Some(30.0))]),
            second: runs(&[(3.0, Some(30.0))]),
        };
        assert_eq!(contrast.time(), Some(Change { first: 2.0, second: 3.0, relative: Some(0.5) }));
        assert_eq!(contrast.index(0), Some(Change { first: 20.0, second: 30.0, relative: Some(0.5) }));
        assert_eq!(contrast.index(1), None, "there is no such index");
        assert_eq!(Contrast::default().time(), None);
    }

    #[test]
    fn a_case_without_the_index_does_not_count() {
        let mut blind = case((1.0, 1.0), (2.0, 1.0));
        blind.second = runs(&[(2.0, None)]);
        let cases = [case((1.0, 1.0), (2.0, 3.0)), case((1.0, 2.0), (3.0, 1.0)), blind];
        let worth = worth(0, &cases);
        assert_eq!((worth.levels.pairs, worth.changes.pairs), (4, 2));
        assert_eq!(worth.signs, Agreement { agree: 1, of: 2 });
        assert_eq!(worth.changes.pearson, None, "two pairs tell nothing");
    }

    #[test]
    fn an_index_of_zero_has_no_relative_change() {
        let silent = case((1.0, 0.0), (2.0, 5.0));
        assert_eq!(silent.index(0).and_then(|change| change.relative), None);
        assert_eq!(worth(0, [&silent]).changes.pairs, 0);
    }

    proptest! {
        /// An index that is proportional to time is perfect, in whatever unit.
        #[test]
        fn time_itself_is_the_best_index(
            times in proptest::collection::vec((1.0..100.0_f64, 1.0..100.0_f64), 3..12), unit in 0.1..10.0_f64
        ) {
            let cases: Vec<Contrast> =
                times.iter().map(|&(a, b)| case((a, a * unit), (b, b * unit))).collect();
            let found = worth(0, &cases);
            prop_assert!(found.levels.pearson.is_none_or(|r| r > 0.999_999));
            prop_assert!(found.changes.spearman.is_none_or(|r| r > 0.999_999));
            prop_assert_eq!(found.signs.agree, found.signs.of);
            let mut turned = cases;
            turned.reverse();
            prop_assert_eq!(worth(0, &turned).signs, found.signs);
        }
    }
}
