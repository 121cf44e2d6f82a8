//! Two programs on the same cores: the arrangements that are worth a trial, and the figures of a
//! trial.
//!
//! Unit: seconds from the common start. Problem: programs that run at once take CPUs from each
//! other, and threads that wait by spinning make both slower by any factor; no profile of one of
//! them predicts that. Idea: both are run together, in turn, and on parts of the cores, and the
//! times until both have ended are compared as in any race ([`super::race`]).
//!
//! Properties: parts of an arrangement together are all cores, and each has one core at least.

use crate::stats::median;
use serde::Serialize;

/// Arrangement of two programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "arrangement", rename_all = "kebab-case")]
pub enum Arrangement {
    /// Both at once, as the user starts them now.
    AtOnce,
    /// One after the other, each under `trimtab run`.
    InTurn,
    /// Both at once under `trimtab run`, each on cores of its own.
    Split {
        /// Number of cores of the first program.
        first: u32,
        /// Number of cores of the second program.
        second: u32,
    },
    /// Both at once under `trimtab run --share`, each on all cores.
    Shared,
}

/// Returns the arrangements to try, in the order of a race: the programs as they are, one after the
/// other, and the candidates, best expected first.
///
/// # Examples
/// ```
/// use trimtab_core::advise::pair::{Arrangement, arrangements};
///
/// let split = |first, second| Arrangement::Split { first, second };
/// assert_eq!(arrangements(2)[2..], [split(1, 1), Arrangement::Shared]);
/// assert_eq!(arrangements(8)[2..], [split(4, 4), split(6, 2), split(2, 6), Arrangement::Shared]);
/// ```
pub fn arrangements(cores: u32) -> Vec<Arrangement> {
    let half = cores / 2;
    let quarter = cores / 4;
    let firsts = [cores - half, cores - quarter, quarter];
    let mut all = vec![Arrangement::AtOnce, Arrangement::InTurn];
    for first in firsts {
        let split = Arrangement::Split { first, second: cores - first };
        if first > 0 && first < cores && !all.contains(&split) {
            all.push(split);
        }
    }
    all.push(Arrangement::Shared);
    all
}

/// Seconds from the common start to the end of each program, in one trial that ended.
pub type Ends = [f64; 2];

/// Figures of an arrangement, from medians of its trials.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PairFigures {
    /// Seconds until each program has ended.
    pub ends: Ends,
    /// These, each over the program's time alone on all cores. 1 is no loss.
    pub slowdowns: Option<[f64; 2]>,
    /// Sum of the times alone over the time until both have ended: 1 is the result of running one
    /// after the other.
    pub throughput: Option<f64>,
    /// Smaller slowdown over the larger: 1 is fair.
    pub fairness: Option<f64>,
}

/// Returns the time of each program alone on all cores, from trials of [`Arrangement::InTurn`].
pub fn alone(in_turn: &[Ends]) -> Option<[f64; 2]> {
    let first: Vec<f64> = in_turn.iter().map(|ends| ends[0]).collect();
    let second: Vec<f64> = in_turn.iter().map(|ends| ends[1] - ends[0]).collect();
    Some([median(&first)?, median(&second)?])
}

/// Returns the figures of trials; `None` without a trial that ended.
pub fn figures(trials: &[Ends], alone: Option<[f64; 2]>) -> Option<PairFigures> {
    let of = |place: usize| median(&trials.iter().map(|ends| ends[place]).collect::<Vec<_>>());
    let both = median(&trials.iter().map(|ends| ends[0].max(ends[1])).collect::<Vec<_>>())?;
    let ends = [of(0)?, of(1)?];
    let alone = alone.filter(|alone| alone.iter().all(|time| *time > 0.0) && both > 0.0);
    let slowdowns = alone.map(|alone| [ends[0] / alone[0], ends[1] / alone[1]]);
    Some(PairFigures {
        ends,
        slowdowns,
        throughput: alone.map(|alone| (alone[0] + alone[1]) / both),
        fairness: slowdowns.map(|[one, other]| one.min(other) / one.max(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_core_is_shared_or_used_in_turn() {
        assert_eq!(arrangements(1), [Arrangement::AtOnce, Arrangement::InTurn, Arrangement::Shared]);
        assert_eq!(arrangements(0), arrangements(1));
    }

    #[test]
    fn figures_follow_from_the_times() {
        // Alone 2 and 3 seconds; at once both need 4.
        let alone = alone(&[[2.0, 5.0], [2.0, 5.0], [9.0, 12.0]]).unwrap();
        assert_eq!(alone, [2.0, 3.0]);
        let found = figures(&[[4.0, 4.0]], Some(alone)).unwrap();
        assert_eq!(found.slowdowns, Some([2.0, 4.0 / 3.0]));
        assert_eq!(found.throughput, Some(1.25));
        assert!((found.fairness.unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(figures(&[], Some(alone)), None);
        let unknown = figures(&[[4.0, 4.0]], None).unwrap();
        assert_eq!((unknown.slowdowns, unknown.throughput, unknown.fairness), (None, None, None));
    }

    proptest! {
        #[test]
        fn parts_are_all_cores_and_none_is_empty_or_twice(cores in 0u32..5000) {
            let all = arrangements(cores);
            for (at, one) in all.iter().enumerate() {
                prop_assert!(!all[..at].contains(one));
                if let Arrangement::Split { first, second } = one {
                    prop_assert!(*first >= 1 && *second >= 1 && first + second == cores);
                }
            }
            let splits = all.iter().filter(|one| matches!(one, Arrangement::Split { .. })).count();
            prop_assert_eq!(splits > 0, cores >= 2);
        }

        #[test]
        fn one_after_the_other_has_throughput_one(first in 0.01f64..100.0, second in 0.01f64..100.0) {
            let trials = [[first, first + second]];
            let found = figures(&trials, alone(&trials)).unwrap();
            prop_assert!((found.throughput.unwrap() - 1.0).abs() < 1e-6);
            prop_assert!(found.fairness.unwrap() <= 1.0);
            prop_assert!((found.slowdowns.unwrap()[0] - 1.0).abs() < 1e-9);
        }
    }
}
