//! Growth of a hold while its program runs: when it takes cores that became free, and when it gives
//! them back.
//!
//! **Problem.** A run decides on its cores at its start, from what is free at that moment. A core
//! that becomes free a second later stays idle for the whole run.
//!
//! **Idea.** Observe the hold about once a second. Take free cores while the program has more
//! threads that want to compute than cores, but only cores that stayed free for a while: a build or
//! a test runner leaves gaps between two commands. Give cores back at once if a run waits for them,
//! and after a while if the program does not use them, or if programs outside of all holds to which
//! it yields ([`super::yields`]) lack them ([`super::outsiders`]).
//!
//! **Properties** (tests.rs):
//! - The hold has never fewer cores than it was granted first, and never more than allowed.
//! - It takes no more cores than are free, and none while a run waits that could use them. Cores
//!   that serve programs to which it yields do not count as free: what such a program lacks
//!   otherwise, a core that it may not use cannot give it.
//! - It changes at most once in each [`GrowRules::calm`], and grows at most once in each
//!   [`GrowRules::rest`] after it gave cores back.

use crate::time::{Moment, Span};
use std::fmt;

/// Rules of a hold that grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowRules {
    /// Cores that it was granted first, and keeps.
    pub least: usize,
    /// Cores that it may have, at most.
    pub most: usize,
    /// Time for which cores must have been free, and threads without cores, before it grows; time
    /// for which programs to which it yields must have lacked cores before it gives some back.
    pub calm: Span,
    /// Time for which cores must have been unused before it gives them back, and for which it does
    /// not grow after that.
    pub rest: Span,
}

impl GrowRules {
    /// Returns the usual rules: a second before it grows, five before it shrinks.
    pub fn usual(least: usize, most: usize) -> Self {
        Self { least, most: most.max(least), calm: Span::from_ms(1_000), rest: Span::from_ms(5_000) }
    }
}

/// Facts about a hold at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowObservation {
    /// Cores of the hold.
    pub cores: usize,
    /// Cores that it could get: not held, not busy, not kept for a run that waits, and of no use to
    /// the programs to which it yields.
    pub free: usize,
    /// Threads of its program that compute, or want to.
    pub wanting: usize,
    /// Cores of the hold for which runs wait; 0 if none waits.
    pub asked_back: usize,
    /// Cores of the hold that programs to which it yields lack ([`super::outsiders`]); 0 if it
    /// yields to none.
    pub outsiders: usize,
}

/// Step of a hold that grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowStep {
    /// The number of cores stays.
    Stay,
    /// It becomes larger.
    Grow {
        /// Cores after it.
        to: usize,
        /// Threads that wanted to compute.
        wanting: usize,
    },
    /// It becomes smaller, since runs wait.
    Yield {
        /// Cores after it.
        to: usize,
        /// Cores for which runs wait.
        asked_back: usize,
    },
    /// It becomes smaller, since programs to which it yields lack cores.
    Crowded {
        /// Cores after it.
        to: usize,
        /// Cores that they lacked, at least.
        outsiders: usize,
    },
    /// It becomes smaller, since the program does not use the cores.
    Unused {
        /// Cores after it.
        to: usize,
        /// Threads that wanted to compute, at most.
        wanting: usize,
    },
}

impl GrowStep {
    /// Returns the number of cores after the step; `None` if it stays.
    pub fn to(self) -> Option<usize> {
        match self {
            Self::Stay => None,
            Self::Grow { to, .. }
            | Self::Yield { to, .. }
            | Self::Crowded { to, .. }
            | Self::Unused { to, .. } => Some(to),
        }
    }
}

/// The cause. The number of cores is left out: a change may end with another one than was planned.
impl fmt::Display for GrowStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stay => f.write_str("no change"),
            Self::Grow { wanting, .. } => {
                write!(f, "{wanting} threads want to compute, and cores became free")
            }
            Self::Yield { asked_back, .. } => write!(f, "a run waits for {asked_back}"),
            Self::Crowded { outsiders, .. } => write!(f, "other programs lack {outsiders}"),
            Self::Unused { wanting, .. } => write!(f, "at most {wanting} threads wanted to compute"),
        }
    }
}

/// Policy of a hold that grows, with its memory.
///
/// # Examples
/// ```
/// use trimtab_core::resize::grow::{GrowObservation, GrowPolicy, GrowRules, GrowStep};
/// use trimtab_core::time::{Moment, Span};
///
/// let mut policy = GrowPolicy::new(GrowRules::usual(1, 4));
/// let seen = GrowObservation { cores: 1, free: 2, wanting: 4, asked_back: 0, outsiders: 0 };
/// let at = |ms| Moment(Span::from_ms(ms).0);
/// assert_eq!(policy.step(at(0), &seen), GrowStep::Stay, "free for how long?");
/// assert_eq!(policy.step(at(1_000), &seen), GrowStep::Grow { to: 3, wanting: 4 });
/// ```
#[derive(Clone, Debug)]
pub struct GrowPolicy {
    rules: GrowRules,
    /// Number of cores that it could have had since then; `None` if it had all that it wanted.
    could: Option<(Moment, usize)>,
    /// Number of cores that were enough since then; `None` if all were used.
    enough: Option<(Moment, usize)>,
    /// Number of cores that other programs lacked since then; `None` if none.
    crowded: Option<(Moment, usize)>,
    /// Time of the last change.
    changed: Option<Moment>,
    /// Time at which it last gave cores back, or was asked for some.
    yielded: Option<Moment>,
}

impl GrowPolicy {
    /// Makes the policy of a hold.
    pub fn new(rules: GrowRules) -> Self {
        Self { rules, could: None, enough: None, crowded: None, changed: None, yielded: None }
    }

    /// Decides at a moment. The caller carries the step out, and observes again.
    pub fn step(&mut self, at: Moment, seen: &GrowObservation) -> GrowStep {
        let GrowRules { least, most, calm, rest } = self.rules;
        if seen.asked_back > 0 {
            self.yielded = Some(at);
        }
        self.remember(at, seen);
        if self.changed.is_some_and(|before| at.since(before) < calm) {
            return GrowStep::Stay;
        }
        let spare = seen.cores.saturating_sub(least);
        if seen.asked_back > 0 {
            if spare == 0 {
                return GrowStep::Stay;
            }
            let to = seen.cores - spare.min(seen.asked_back);
            return self.change(at, GrowStep::Yield { to, asked_back: seen.asked_back });
        }
        if let Some((since, outsiders)) = self.crowded
            && spare > 0
            && at.since(since) >= calm
        {
            self.yielded = Some(at);
            return self.change(at, GrowStep::Crowded { to: seen.cores - spare.min(outsiders), outsiders });
        }
        if let Some((since, wanting)) = self.enough
            && spare > 0
            && at.since(since) >= rest
        {
            self.yielded = Some(at);
            return self.change(at, GrowStep::Unused { to: wanting.max(least), wanting });
        }
        let rests = self.yielded.is_some_and(|yielded| at.since(yielded) < rest);
        match self.could {
            Some((since, could)) if at.since(since) >= calm && !rests => {
                let to = could.min(most);
                self.change(at, GrowStep::Grow { to, wanting: seen.wanting })
            }
            _ => GrowStep::Stay,
        }
    }

    /// Updates since when the hold could have more cores, or would need fewer.
    fn remember(&mut self, at: Moment, seen: &GrowObservation) {
        let could = seen.cores.saturating_add(seen.free).min(seen.wanting).min(self.rules.most);
        self.could = (could > seen.cores && seen.asked_back == 0).then(|| match self.could {
            Some((since, before)) => (since, before.min(could)),
            None => (at, could),
        });
        self.crowded = (seen.outsiders > 0).then(|| match self.crowded {
            Some((since, before)) => (since, before.min(seen.outsiders)),
            None => (at, seen.outsiders),
        });
        self.enough = (seen.wanting < seen.cores).then(|| match self.enough {
            Some((since, before)) => (since, before.max(seen.wanting)),
            None => (at, seen.wanting),
        });
    }

    fn change(&mut self, at: Moment, step: GrowStep) -> GrowStep {
        self.changed = Some(at);
        (self.could, self.enough, self.crowded) = (None, None, None);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Moment {
        Moment(Span::from_ms(ms).0)
    }

    /// Runs the policy of a hold of 2 cores, at most 6, over observations each half second: free
    /// cores, threads that want to compute, cores asked back, cores that other programs lack.
    /// Returns its cores after each.
    fn run_beside(seen: &[(usize, usize, usize, usize)]) -> Vec<usize> {
        let mut policy = GrowPolicy::new(GrowRules::usual(2, 6));
        let mut cores = 2;
        let each = seen.iter().enumerate().map(|(index, &(free, wanting, asked_back, outsiders))| {
            let seen = GrowObservation { cores, free, wanting, asked_back, outsiders };
            if let Some(to) = policy.step(at(500 * index as u64), &seen).to() {
                cores = to;
            }
            cores
        });
        each.collect()
    }

    fn run(seen: &[(usize, usize, usize)]) -> Vec<usize> {
        let alone = |&(free, wanting, asked_back): &(usize, usize, usize)| (free, wanting, asked_back, 0);
        run_beside(&seen.iter().map(alone).collect::<Vec<_>>())
    }

    #[test]
    fn free_cores_are_taken_after_a_while_and_given_back_at_once() {
        assert_eq!(run(&[(3, 8, 0), (1, 8, 0), (4, 8, 0), (3, 8, 0)]), [2, 2, 3, 3], "what was always free");
        assert_eq!(run(&[(9, 8, 0), (9, 8, 0), (9, 8, 0)]), [2, 2, 6], "not beyond the most");
        assert_eq!(run(&[(9, 2, 0), (9, 2, 0), (9, 2, 0)]), [2, 2, 2], "nothing wants more");
        // A gap between two commands of another program.
        assert_eq!(run(&[(2, 8, 0), (0, 8, 0), (2, 8, 0), (0, 8, 0), (2, 8, 0)]), [2; 5]);
        let grown = [(2, 8, 0), (2, 8, 0), (2, 8, 0), (0, 8, 0), (0, 8, 0), (0, 8, 1), (0, 8, 0)];
        assert_eq!(run(&grown), [2, 2, 4, 4, 4, 3, 3]);
        // A run waits for more than was lent.
        assert_eq!(run(&[(2, 8, 0), (2, 8, 0), (2, 8, 0), (0, 8, 0), (0, 8, 9)]), [2, 2, 4, 4, 2]);
    }

    #[test]
    fn unused_cores_are_given_back_later() {
        let mut seen = vec![(2, 4, 0); 3];
        seen.extend([(0, 3, 0); 10]);
        assert_eq!(run(&seen), [vec![2, 2], vec![4; 11]].concat());
        seen.extend([(0, 1, 0); 3]);
        assert_eq!(run(&seen)[13..], [3, 3, 3], "three were used meanwhile");
    }

    #[test]
    fn cores_are_given_back_to_other_programs_that_lack_them_for_a_second() {
        let grown = vec![(4, 8, 0, 0); 3];
        let beside = |outsiders: &[usize]| {
            let later = outsiders.iter().map(|&outsiders| (0, 8, 0, outsiders));
            run_beside(&grown.iter().copied().chain(later).collect::<Vec<_>>())[3..].to_vec()
        };
        assert_eq!(beside(&[1, 1, 1, 0]), [6, 6, 5, 5]);
        assert_eq!(beside(&[1, 0, 2, 2, 0, 1]), [6; 6], "each for a moment");
        assert_eq!(beside(&[3, 2, 4, 0]), [6, 6, 4, 4], "those that were always there");
        assert_eq!(beside(&[9, 9, 9, 9, 9, 9]), [6, 6, 2, 2, 2, 2], "its own cores stay");
        // Cores that are free again are not taken for a while.
        let mut seen = grown.clone();
        seen.extend([(0, 8, 0, 1); 3]);
        seen.extend([(1, 8, 0, 0); 9]);
        assert_eq!(run_beside(&seen)[5..], [5; 10]);
        seen.extend([(1, 8, 0, 0); 2]);
        assert_eq!(run_beside(&seen)[15..], [6, 6]);
    }

    #[test]
    fn free_cores_are_taken_while_other_programs_lack_some_that_the_hold_cannot_give() {
        let short = vec![(3, 8, 0, 1); 3];
        assert_eq!(run_beside(&short), [2, 2, 5], "it has none but those of the start");
        // It could give the core now, and does.
        let later = [short.clone(), vec![(0, 8, 0, 1); 3]].concat();
        assert_eq!(run_beside(&later)[3..], [5, 5, 4]);
        let none = [(0, 8, 0, 1); 9];
        assert_eq!(run_beside(&none), [2; 9], "none is free");
    }

    #[test]
    fn a_step_names_its_cause_and_not_its_plan() {
        let step = GrowStep::Crowded { to: 7, outsiders: 2 };
        assert_eq!(step.to_string(), "other programs lack 2");
    }

    proptest! {
        #[test]
        fn the_properties_hold(
            seen in proptest::collection::vec((
                0..6usize, 0..9usize, prop_oneof![8 => Just(0), 1 => 1..4usize],
                prop_oneof![3 => Just(0), 1 => 1..4usize], 1..1_500u64,
            ), 1..200),
            least in 1..5usize,
            more in 0..5usize,
        ) {
            let rules = GrowRules::usual(least, least + more);
            let mut policy = GrowPolicy::new(rules);
            let (mut cores, mut now) = (least, 0);
            let (mut changes, mut yields): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for (free, wanting, asked_back, outsiders, pause) in seen {
                now += pause;
                let seen = GrowObservation { cores, free, wanting, asked_back, outsiders };
                let step = policy.step(at(now), &seen);
                let Some(to) = step.to() else { continue };
                prop_assert!((least..=least + more).contains(&to) && to != cores, "{step:?} of {cores}");
                if to > cores {
                    prop_assert!(to - cores <= free && to <= wanting, "{step:?}");
                    prop_assert!(asked_back == 0, "{step:?}");
                    prop_assert!(yields.last().is_none_or(|&before| now - before >= 5_000), "{step:?}");
                } else {
                    let given = cores - to;
                    prop_assert!(given <= asked_back.max(outsiders) || to >= wanting, "{step:?}");
                    yields.push(now);
                }
                prop_assert!(changes.last().is_none_or(|&before| now - before >= 1_000), "{step:?}");
                changes.push(now);
                cores = to;
            }
        }
    }
}
