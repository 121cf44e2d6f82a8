//! Race: the runs that test advice. It decides which variant of a program runs next, for how long
//! at most, and when the race is over.
//!
//! Unit: seconds of wall time of a run. Problem: a prediction can be wrong by any factor, and a
//! user does not want to wait long for a test. Idea: every variant runs once, the best predicted
//! ones first. A run is stopped as soon as its time exceeds the best time by a bound, so a variant
//! that is hopeless costs little more than the best one. The variants that are left run in turn,
//! each turn in another order, so that slow changes of the machine affect all of them.
//!
//! Properties: equal outcomes give equal questions. The runs together take no more time than the
//! budget. A variant that was stopped, or that was rejected, does not run again. A run that cannot
//! end within the rest of the budget does not start.
//!
//! Source: racing is from Maron and Moore, "Hoeffding Races", NIPS 1993; the intervals are those of
//! `core::stats`.

use super::entrant::{Entrant, Kind};
use super::speedup::ratio;
use crate::stats::{SAMPLES_MIN, shuffled};
use crate::time::Span;

/// Runs of each variant, at most.
pub const RUNS_MAX: usize = 15;
/// Least time limit of a run: starting a program takes time, too.
pub const LIMIT_MIN: Span = Span::from_ms(300);
/// Least time limit of the program as the user runs it now.
pub const LIMIT_MIN_PLAIN: Span = Span::from_ms(1_000);
/// Factor over the best time at which the program as the user runs it is stopped: a factor of ten
/// is enough for the verdict.
pub const BOUND_PLAIN: f64 = 10.0;
/// The same for `trimtab run` without options.
pub const BOUND_RUN: f64 = 4.0;
/// Factor over the best time beyond which a candidate is hopeless, after one run, and after more.
const BOUNDS: [f64; 2] = [1.5, 1.25];
/// Runs from which a difference can be certain.
const RUNS_CERTAIN_MIN: usize = 3;
/// Runs from which equal medians count as equally fast.
const RUNS_NEAR: usize = 8;
/// Part of the budget for repeated runs of a baseline that is beyond the bound of a candidate.
const BASELINE_PART: f64 = 0.25;
/// Difference of medians that the race need not resolve: 3 %.
const NEAR: f64 = 1.03;

/// Outcome of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The run ended by itself.
    Ended {
        /// Wall time.
        took: Span,
    },
    /// The run was stopped at its limit.
    Stopped {
        /// Wall time until then.
        after: Span,
    },
    /// The run ended in another way than the program does now.
    Rejected {
        /// Reason.
        why: String,
        /// Wall time.
        took: Span,
    },
}

impl Outcome {
    fn took(&self) -> Span {
        match self {
            Self::Ended { took } | Self::Rejected { took, .. } => *took,
            Self::Stopped { after } => *after,
        }
    }
}

/// Rules of a race.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// Time of all runs together.
    pub budget: Span,
    /// Limit of a run while none has ended.
    pub limit_first: Span,
    /// Seed of the orders and intervals.
    pub seed: u64,
}

/// The next run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Index of the variant.
    pub entrant: usize,
    /// Time at which the run is stopped.
    pub limit: Span,
}

/// A race: its rules, and all variants. The first is the program as the user runs it, the second
/// is `trimtab run`.
#[derive(Clone, PartialEq, Debug)]
pub struct Race {
    rules: Rules,
    entrants: Vec<Entrant>,
    spent: Span,
}

impl Race {
    /// Creates a race of both baselines and of this number of candidates, best predicted first.
    pub fn new(rules: Rules, candidates: usize) -> Self {
        let kinds = [Kind::Plain, Kind::Run].into_iter();
        let all = kinds.chain(std::iter::repeat_n(Kind::Candidate, candidates));
        Self { rules, entrants: all.map(Entrant::new).collect(), spent: Span::ZERO }
    }

    /// Returns the variants.
    pub fn entrants(&self) -> &[Entrant] {
        &self.entrants
    }

    /// Returns the time of all runs so far.
    pub fn spent(&self) -> Span {
        self.spent
    }

    /// Returns the lowest median, if a run has ended.
    pub fn best(&self) -> Option<f64> {
        self.entrants.iter().filter_map(Entrant::median).min_by(f64::total_cmp)
    }

    /// Takes the outcome of a run.
    pub fn take(&mut self, entrant: usize, outcome: &Outcome) {
        self.spent = self.spent + outcome.took();
        let Some(entrant) = self.entrants.get_mut(entrant) else { return };
        entrant.spent = entrant.spent + outcome.took();
        match outcome {
            Outcome::Ended { took } => entrant.seconds.push(took.seconds()),
            Outcome::Stopped { after } => entrant.stopped = Some(after.seconds()),
            Outcome::Rejected { why, .. } => entrant.rejected = Some(why.clone()),
        }
    }

    /// Withdraws a variant without a run.
    pub fn reject(&mut self, entrant: usize, why: String) {
        if let Some(entrant) = self.entrants.get_mut(entrant) {
            entrant.rejected = Some(why);
        }
    }

    /// Returns the next run; `None` if the race is over.
    pub fn next(&self) -> Option<Trial> {
        let best = self.best();
        if best.is_some_and(|best| self.is_settled(best)) {
            return None;
        }
        let open: Vec<usize> = (0..self.entrants.len()).filter(|&at| self.goes_on(at, best)).collect();
        let runs = |at: usize| self.entrants[at].seconds.len();
        let least = open.iter().map(|&at| runs(at)).min()?;
        self.order(least).into_iter().filter(|at| open.contains(at) && runs(*at) == least).find_map(|at| {
            let limit = self.limit(at, best)?;
            Some(Trial { entrant: at, limit })
        })
    }

    /// Returns the order of a turn. In the first one the best predicted candidate runs before the
    /// program as it is, whose limit then follows from the candidate's time.
    fn order(&self, turn: usize) -> Vec<usize> {
        let count = self.entrants.len();
        if turn > 0 {
            return shuffled(count, self.rules.seed.wrapping_add(turn as u64));
        }
        [1, 2, 0].into_iter().chain(3..count).filter(|&at| at < count).collect()
    }

    /// Returns whether a variant runs again.
    fn goes_on(&self, at: usize, best: Option<f64>) -> bool {
        let entrant = &self.entrants[at];
        let runs = entrant.seconds.len();
        if !entrant.is_open() || runs >= RUNS_MAX {
            return false;
        }
        let (Some(best), Some(own)) = (best, entrant.median()) else { return true };
        // After some runs a smaller difference can be certain, too.
        let leader = self.entrants.iter().find(|one| one.median() == Some(best));
        let slower = leader.and_then(|leader| ratio(&entrant.seconds, &leader.seconds, self.rules.seed));
        let certain = runs >= RUNS_CERTAIN_MIN && slower.is_some_and(|slower| slower.low > NEAR);
        let hopeless = certain || own > best * BOUNDS[runs.clamp(1, BOUNDS.len()) - 1];
        match entrant.kind {
            Kind::Candidate => !hopeless && !self.is_needless(entrant),
            // The gain over a baseline is shown, so it gets as many runs as an interval needs, and
            // more while the gain is not certain.
            Kind::Plain | Kind::Run => {
                let affordable = entrant.spent.seconds() < BASELINE_PART * self.rules.budget.seconds();
                let wanted = runs < SAMPLES_MIN || entrant.kind == Kind::Plain && !certain;
                !hopeless || wanted && affordable
            }
        }
    }

    /// Returns whether `trimtab run` without options, which is simpler, is as fast as a candidate.
    fn is_needless(&self, candidate: &Entrant) -> bool {
        let run = self.entrants.iter().find(|one| one.kind == Kind::Run);
        let runs = |one: &Entrant| one.seconds.len() >= RUNS_CERTAIN_MIN;
        let simpler = run.filter(|run| runs(run) && runs(candidate)).and_then(Entrant::median);
        simpler.zip(candidate.median()).is_some_and(|(simpler, own)| own >= simpler)
    }

    /// Returns the time limit of a run; `None` if the rest of the budget is too short for it.
    fn limit(&self, at: usize, best: Option<f64>) -> Option<Span> {
        let rest = self.rules.budget.less(self.spent);
        let entrant = &self.entrants[at];
        let Some(best) = best else {
            return (rest > Span::ZERO).then(|| self.rules.limit_first.min(rest));
        };
        let (bound, least) = match entrant.kind {
            Kind::Plain => (BOUND_PLAIN, LIMIT_MIN_PLAIN),
            Kind::Run => (BOUND_RUN, LIMIT_MIN),
            Kind::Candidate => (BOUNDS[0], LIMIT_MIN),
        };
        let own = entrant.median().unwrap_or(best);
        if rest.seconds() <= own {
            return None;
        }
        let span = |seconds: f64| Span((seconds * 1e9) as u64);
        // A variant that has run keeps the right to a slow run.
        Some(span(best * bound).max(least).max(span(own * bound.min(2.0))).min(rest))
    }

    /// Returns whether more runs would not change the answer: the fastest variant is known, or the
    /// others are as fast, as far as a number of runs shows.
    fn is_settled(&self, best: f64) -> bool {
        let leader = self.entrants.iter().position(|entrant| entrant.median() == Some(best));
        let Some(leader) = leader.map(|at| &self.entrants[at]) else { return false };
        let all_ran = self.entrants.iter().all(|one| !one.is_open() || !one.seconds.is_empty());
        let open = (0..self.entrants.len()).filter(|&at| self.goes_on(at, Some(best)));
        let mut open = open.map(|at| &self.entrants[at]);
        all_ran
            && leader.seconds.len() >= SAMPLES_MIN
            && open.all(|one| {
                std::ptr::eq(one, leader)
                    || one.seconds.len() >= SAMPLES_MIN
                        && ratio(&one.seconds, &leader.seconds, self.rules.seed).is_some_and(|gain| {
                            let many = one.seconds.len() >= RUNS_NEAR && one.kind != Kind::Plain;
                            gain.low > NEAR || gain.high < NEAR || many && gain.likely < NEAR
                        })
            })
    }
}
