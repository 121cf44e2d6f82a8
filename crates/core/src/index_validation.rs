//! Validation of an index of hardware counters: cases measured in two variants, and whether the
//! index shows which variant was slower.
//!
//! Unit: time per memory access; the unit of the index. Problem: a policy moves threads by an index
//! from hardware counters, because run time cannot be seen while a program runs. A benchmark
//! measures both, so it can measure the quality of the index. Idea: each case runs in two variants
//! that differ in placement or load alone, several times, taking turns. The medians of time and
//! index are compared over all runs (do they change together?), and so are their relative changes
//! from the first variant to the second (does the index see the effect of placement?), which is the
//! question of the policy.
//!
//! Properties: the module is pure. A case that lacks time or index in either variant counts for
//! neither, and a missing value is never zero. The order of cases and runs does not matter.
//!
//! Source: the slides and the paper of Rao, Wang, Zhou and Xu, HPCA 2013. The authors judge their
//! index by the correlation of relative changes. This module also compares signs, because their
//! rule only compares.

use crate::counts::Counts;
use crate::penalty::Index;
use crate::stats::correlation::{Agreement, agreement, pearson, spearman};
use crate::stats::median;
use serde::{Deserialize, Serialize};

/// Smallest relative change of run time that is tested for its direction.
pub const CHANGE_MIN: f64 = 0.05;

/// One run of a case in one variant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// CPU time per access, in nanoseconds.
    pub time: f64,
    /// Counts of all threads, in one piece, or in several if groups of counters took turns.
    pub counts: Vec<Counts>,
}

impl Reading {
    /// Creates a reading from the number of accesses and their CPU time in seconds; `None` for a
    /// run without accesses.
    pub fn of(accesses: u64, cpu_seconds: f64, counts: Vec<Counts>) -> Option<Self> {
        let time = 1e9 * cpu_seconds / accesses as f64;
        (accesses > 0 && time.is_finite()).then_some(Self { time, counts })
    }

    /// Returns an index, from the first piece that has it.
    pub fn index(&self, index: Index) -> Option<f64> {
        self.counts.iter().find_map(|counts| index.of(counts))
    }
}

/// Returns the sum of the counts of several threads; `None` unless all of them were counted.
pub fn together(threads: impl IntoIterator<Item = Option<Counts>>) -> Option<Counts> {
    let mut threads = threads.into_iter();
    let first = threads.next()??;
    threads.try_fold(first, |sum, counts| Some(sum.plus(&counts?)))
}

/// A case, run in two variants.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Contrast {
    /// All runs of the first variant: alone, near, or together.
    pub first: Vec<Reading>,
    /// All runs of the second variant.
    pub second: Vec<Reading>,
}

/// Medians of a quantity in both variants.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Median in the first variant.
    pub first: f64,
    /// Median in the second variant.
    pub second: f64,
    /// Change from the first to the second, relative to the first; `None` if the first is not
    /// positive.
    pub relative: Option<f64>,
}

/// Correlation of two quantities.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Correlation {
    /// Number of pairs.
    pub pairs: usize,
    /// Pearson's correlation (proportion).
    pub pearson: Option<f64>,
    /// Spearman's correlation (order).
    pub spearman: Option<f64>,
}

/// Quality of an index over some cases.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct IndexQuality {
    /// Correlation of index and time per access; each case gives two pairs.
    pub levels: Correlation,
    /// Correlation of their relative changes; each case gives one pair.
    pub changes: Correlation,
    /// Changes of time above [`CHANGE_MIN`], and those in which the index has the same direction.
    pub signs: Agreement,
}

impl Contrast {
    /// Returns the time per access; `None` unless there are runs in both variants.
    pub fn time(&self) -> Option<Change> {
        self.of(|reading| Some(reading.time))
    }

    /// Returns an index; `None` unless it was counted in both variants.
    pub fn index(&self, index: Index) -> Option<Change> {
        self.of(|reading| reading.index(index))
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

/// Returns the quality of an index over these cases.
pub fn worth<'a>(index: Index, cases: impl IntoIterator<Item = &'a Contrast>) -> IndexQuality {
    let both: Vec<(Change, Change)> =
        cases.into_iter().filter_map(|case| case.time().zip(case.index(index))).collect();
    let levels: Vec<(f64, f64)> = both
        .iter()
        .flat_map(|(time, index)| [(time.first, index.first), (time.second, index.second)])
        .collect();
    let changes: Vec<(f64, f64)> =
        both.iter().filter_map(|(time, index)| time.relative.zip(index.relative)).collect();
    IndexQuality {
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
        let counted = |penalty: f64| Counts {
            busy: Some((penalty * 1e6) as u64),
            requests: Some(1_000_000),
            ..Counts::default()
        };
        all.iter()
            .map(|&(time, index)| Reading { time, counts: index.map(counted).into_iter().collect() })
            .collect()
    }

    fn case(first: (f64, f64), second: (f64, f64)) -> Contrast {
        let one = |(time, index)| runs(&[(time, Some(index))]);
        Contrast { first: one(first), second: one(second) }
    }

    #[test]
    fn medians_of_counted_cases_are_compared() {
        let contrast = Contrast {
            first: runs(&[(1.0, Some(10.0)), (9.0, None), (2.0, Some(30.0))]),
            second: runs(&[(3.0, Some(30.0))]),
        };
        assert_eq!(contrast.time(), Some(Change { first: 2.0, second: 3.0, relative: Some(0.5) }));
        assert_eq!(
            contrast.index(Index::Penalty),
            Some(Change { first: 20.0, second: 30.0, relative: Some(0.5) })
        );
        assert_eq!(contrast.index(Index::Cpi), None, "it was not counted");
        assert_eq!(Contrast::default().time(), None);
    }

    #[test]
    fn a_case_without_the_index_does_not_count() {
        let mut blind = case((1.0, 1.0), (2.0, 1.0));
        blind.second = runs(&[(2.0, None)]);
        let cases = [case((1.0, 1.0), (2.0, 3.0)), case((1.0, 2.0), (3.0, 1.0)), blind];
        let worth = worth(Index::Penalty, &cases);
        assert_eq!((worth.levels.pairs, worth.changes.pairs), (4, 2));
        assert_eq!(worth.signs, Agreement { agree: 1, of: 2 });
        assert_eq!(worth.changes.pearson, None, "two pairs tell nothing");
    }

    #[test]
    fn an_index_of_zero_has_no_relative_change() {
        let silent = case((1.0, 0.0), (2.0, 5.0));
        assert_eq!(silent.index(Index::Penalty).and_then(|change| change.relative), None);
        assert_eq!(worth(Index::Penalty, [&silent]).changes.pairs, 0);
    }

    #[test]
    fn indices_use_counted_values_only() {
        let some =
            Counts { cycles: Some(1000), instructions: Some(500), requests: Some(10), ..Counts::default() };
        let cache = Counts { llc_lookups: Some(8), llc_misses: Some(2), ..Counts::default() };
        let reading = Reading::of(2, 6e-9, vec![some, cache]).unwrap();
        let of = |index| reading.index(index);
        assert!((reading.time - 3.0).abs() < 1e-9);
        assert_eq!((of(Index::Cpi), of(Index::MissRate), of(Index::Penalty)), (Some(2.0), Some(0.25), None));
        assert_eq!(of(Index::Estimate), Some(70.0));
        let none = Counts { requests: Some(0), ..some };
        assert_eq!(Index::Estimate.of(&none), None, "no request, no estimate");
        assert_eq!(Reading::of(0, 1.0, vec![]), None);
    }

    #[test]
    fn threads_are_together_only_if_all_were_counted() {
        let one = Counts { busy: Some(3), cycles: Some(5), ..Counts::default() };
        let other = Counts { busy: Some(4), ..Counts::default() };
        let sum = together([Some(one), Some(other)]).unwrap();
        assert_eq!((sum.busy, sum.cycles), (Some(7), None));
        assert_eq!(together([Some(one), None]), None);
        assert_eq!(together([]), None);
    }

    proptest! {
        /// An index that is proportional to time is perfect, in any unit.
        #[test]
        fn time_itself_is_the_best_index(
            times in proptest::collection::vec((1.0..100.0_f64, 1.0..100.0_f64), 3..12), unit in 0.1..10.0_f64
        ) {
            let cases: Vec<Contrast> =
                times.iter().map(|&(a, b)| case((a, a * unit), (b, b * unit))).collect();
            let found = worth(Index::Penalty, &cases);
            prop_assert!(found.levels.pearson.is_none_or(|r| r > 0.999_999));
            prop_assert!(found.changes.spearman.is_none_or(|r| r > 0.999_999));
            prop_assert_eq!(found.signs.agree, found.signs.of);
            let mut turned = cases;
            turned.reverse();
            prop_assert_eq!(worth(Index::Penalty, &turned).signs, found.signs);
        }
    }
}
