//! Race: the runs that test advice. It decides which variant of a program runs next, for how long
//! at most, and when the race is over.
//!
//! Unit: seconds of wall time of a run. Problem: a prediction can be wrong by any factor, and a
//! user does not want to wait long for a test. Idea: every variant runs once, the best predicted
//! ones first. A run is stopped as soon as its time exceeds the best time by a bound, so a variant
//! that is hopeless costs little more than the best one. The variants that are left run in turn,
//! each turn in another order, so that slow changes of the machine affect all of them, and runs of
//! the same turn are compared. Times of short programs depend on the moment: they get more turns,
//! and a single slow run does not exclude a variant.
//!
//! Properties: equal outcomes give equal questions. The runs together take no more time than the
//! budget, and more only while the fastest variant is likely faster than the program as it is, and
//! not certainly. A variant that was rejected, beaten, or stopped (unless runs are short) does not
//! run again, so the n-th runs of all variants belong to the same turn. A run that cannot end
//! within the rest of the budget does not start.
//!
//! Source: racing is from Maron and Moore, "Hoeffding Races", NIPS 1993; the intervals are those of
//! `core::stats::paired`.

use super::choice::is_sure;
use super::entrant::{Entrant, Kind, leader};
use super::speedup::ratio;
use crate::stats::{SAMPLES_MIN, shuffled};
use crate::time::Span;

/// Runs of each variant, at most; of a short program, as many as fit in 1.5 s.
pub const RUNS_MAX: usize = 15;
/// Runs of each variant of a short program, at most.
pub const RUNS_SHORT_MAX: usize = 60;
/// Time that the runs of one variant of a short program may take. 15 runs of 30 ms lie within half
/// a second, in which other programs may all sleep, or all work.
const SHORT_RUNS_S: f64 = 1.5;
/// Time below which one run says little: other programs take turns of some milliseconds with it.
const SHORT_RUN_S: f64 = 0.3;
/// Least time limit of a run: starting a program takes time, too.
pub const LIMIT_MIN: Span = Span::from_ms(300);
/// Least time limit of the program as the user runs it now.
pub const LIMIT_MIN_PLAIN: Span = Span::from_ms(1_000);
/// Factor over the best time at which the program as the user runs it is stopped: a factor of ten
/// is enough for the verdict.
pub const BOUND_PLAIN: f64 = 10.0;
/// The same for `trimtab run` without options.
pub const BOUND_RUN: f64 = 4.0;
/// Factors over the best time beyond which a candidate is hopeless, after one turn, two, and more.
const BOUNDS: [f64; 2] = [1.5, 1.25];
/// The same for short programs while the budget allows more turns.
const BOUNDS_SHORT: [f64; 5] = [3.0, 2.0, 1.6, 1.6, 1.35];
/// The same while the budget is too short for as many turns as make a difference certain: what is
/// not faster at once makes place for others.
const BOUND_SCARCE: f64 = 1.1;
/// Turns from which a difference can be certain.
const RUNS_CERTAIN_MIN: usize = 3;
/// Turns from which variants count as equally fast if their ratio is near 1.
const RUNS_NEAR: usize = 8;
/// The same for the program as it is: the gain over it is the answer.
const RUNS_NEAR_PLAIN: usize = 30;
/// Part of the budget for repeated runs of a baseline that is beyond the bound of a candidate, and
/// for one run of it.
const BASELINE_PART: f64 = 0.25;
/// The same for the program as it is, while no gain over it is certain.
const PLAIN_PART: f64 = 0.5;
/// Factor over the known time of the program as it is at which another way is stopped while none
/// has ended.
const KNOWN_FACTOR: f64 = 1.2;
/// Factor over the known time of the program as it is that is kept for a run of it.
const KEPT_FACTOR: f64 = 1.1;
/// Part of the best time in which a variant that never ran may end.
const HOPED: f64 = 0.5;
/// Difference that the race need not resolve: 3 %.
const NEAR: f64 = 1.03;
/// Speedup of the fastest variant from which a race that is not certain goes on beyond its budget.
const LIKELY: f64 = 1.05;

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
    /// More time for as long as a gain is likely and not certain.
    pub more: Span,
    /// Limit of a run while none has ended.
    pub limit_first: Span,
    /// Time of the program as the user runs it, from a run before the race; `None` if none ended.
    pub known: Option<Span>,
    /// Seed of the orders.
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
        let mut entrants: Vec<Entrant> = all.map(Entrant::new).collect();
        entrants[0].known = rules.known.map(Span::seconds);
        Self { rules, entrants, spent: Span::ZERO }
    }

    /// Returns the variants.
    pub fn entrants(&self) -> &[Entrant] {
        &self.entrants
    }

    /// Returns the time of all runs so far.
    pub fn spent(&self) -> Span {
        self.spent
    }

    /// Returns the median of the fastest variant that was not beaten, if a run has ended.
    pub fn best(&self) -> Option<f64> {
        self.entrants[leader(&self.entrants)?].median()
    }

    /// Takes the outcome of a run.
    pub fn take(&mut self, entrant: usize, outcome: &Outcome) {
        self.spent = self.spent + outcome.took();
        let is_patient = self.is_patient();
        let Some(entrant) = self.entrants.get_mut(entrant) else { return };
        entrant.spent = entrant.spent + outcome.took();
        match outcome {
            Outcome::Ended { took } => entrant.seconds.push(took.seconds()),
            // Of a short program a single slow run is one time, and not the end.
            Outcome::Stopped { after } if is_patient && entrant.kind != Kind::Plain && !entrant.slowed => {
                entrant.seconds.push(after.seconds());
                entrant.slowed = true;
            }
            Outcome::Stopped { after } => entrant.stopped = Some(after.seconds()),
            Outcome::Rejected { why, .. } => entrant.rejected = Some(why.clone()),
        }
        if self.is_turn_over() {
            let beaten: Vec<usize> = (0..self.entrants.len()).filter(|&at| self.is_beaten(at)).collect();
            for at in beaten {
                self.entrants[at].beaten = true;
            }
        }
    }

    /// Returns whether all variants that are left have the same number of runs.
    fn is_turn_over(&self) -> bool {
        let mut runs = self.entrants.iter().filter(|one| one.is_open()).map(|one| one.seconds.len());
        let first = runs.next();
        runs.all(|runs| Some(runs) == first)
    }

    /// Withdraws a variant without a run.
    pub fn reject(&mut self, entrant: usize, why: String) {
        if let Some(entrant) = self.entrants.get_mut(entrant) {
            entrant.rejected = Some(why);
        }
    }

    /// Returns the next run; `None` if the race is over.
    pub fn next(&self) -> Option<Trial> {
        if self.is_turn_over() && self.is_settled() {
            return None;
        }
        let best = self.best();
        let runs = |at: usize| self.entrants[at].seconds.len();
        let runs_max = best.map_or(RUNS_MAX, runs_max);
        let open: Vec<usize> = (0..self.entrants.len())
            .filter(|&at| self.entrants[at].is_open() && runs(at) < runs_max)
            .collect();
        let least = open.iter().map(|&at| runs(at)).min()?;
        self.order(least).into_iter().filter(|at| open.contains(at) && runs(*at) == least).find_map(|at| {
            let limit = self.limit(at, best)?;
            Some(Trial { entrant: at, limit })
        })
    }

    /// Returns the order of a turn. In the first one the best predicted candidate runs before the
    /// program as it is, whose limit then follows from the candidate's time; if that time is known,
    /// all candidates do. If one of them was stopped then, the known time may have been luck, and
    /// the program as it is runs next.
    fn order(&self, turn: usize) -> Vec<usize> {
        let count = self.entrants.len();
        if turn > 0 {
            return shuffled(count, self.rules.seed.wrapping_add(turn as u64));
        }
        if self.rules.known.is_some() {
            let lucky = self.best().is_none() && self.entrants.iter().any(|one| one.stopped.is_some());
            return if lucky { (0..count).collect() } else { (1..count).chain([0]).collect() };
        }
        [1, 2, 0].into_iter().chain(3..count).filter(|&at| at < count).collect()
    }

    /// Returns whether a variant need not run again, because another one is faster.
    fn is_beaten(&self, at: usize) -> bool {
        let entrant = &self.entrants[at];
        let leader = leader(&self.entrants).filter(|&leader| leader != at);
        let Some(leader) = leader.filter(|_| entrant.is_open()) else { return false };
        let best = &self.entrants[leader];
        let Some(slower) = ratio(&entrant.seconds, &best.seconds) else { return false };
        let turns = entrant.seconds.len().min(best.seconds.len());
        if entrant.slowed && entrant.seconds.len() == 1 {
            return false;
        }
        // After some turns a smaller difference can be certain, too.
        let certain = turns >= RUNS_CERTAIN_MIN && slower.low > NEAR;
        let hopeless = certain || slower.likely > self.bound(turns);
        match entrant.kind {
            Kind::Candidate => hopeless || self.is_needless(entrant),
            // The gain over a baseline is shown, so it gets as many runs as an interval needs, and
            // more while the gain is not certain.
            Kind::Plain | Kind::Run => {
                let unsure = entrant.kind == Kind::Plain && !is_sure(entrant, best, self.entrants.len());
                let part = if unsure { PLAIN_PART } else { BASELINE_PART };
                let affordable = entrant.spent.seconds() < part * self.budget().seconds();
                let wanted = turns < SAMPLES_MIN || unsure;
                hopeless && !(wanted && affordable)
            }
        }
    }

    /// Returns the factor beyond which a candidate is hopeless after this number of turns.
    fn bound(&self, turns: usize) -> f64 {
        let bounds = match () {
            () if self.is_patient() => &BOUNDS_SHORT[..],
            () if self.is_scarce() => &[BOUND_SCARCE][..],
            () => &BOUNDS[..],
        };
        bounds[turns.clamp(1, bounds.len()) - 1]
    }

    /// Returns whether the rest of the budget is too short for as many turns of all variants that
    /// are left as make a difference certain.
    fn is_scarce(&self) -> bool {
        let Some(best) = self.best() else { return false };
        let open = self.entrants.iter().filter(|one| one.is_open());
        let turn: f64 = open.map(|one| one.median().unwrap_or(best)).sum();
        self.rest().seconds() < RUNS_CERTAIN_MIN as f64 * turn
    }

    /// Returns the time that all runs together may take, as it is known now.
    fn budget(&self) -> Span {
        let likely = || {
            let plain = self.entrants.first().filter(|plain| plain.is_open())?;
            let leader = &self.entrants[leader(&self.entrants)?];
            let gain = ratio(&plain.seconds, &leader.seconds)?.likely;
            Some(gain >= LIKELY && !is_sure(plain, leader, self.entrants.len()))
        };
        let more = self.rules.more > Span::ZERO && likely() == Some(true);
        if more { self.rules.budget + self.rules.more } else { self.rules.budget }
    }

    /// Returns the rest of the budget, without the first run of the program as it is, if that is
    /// still to come.
    fn rest(&self) -> Span {
        let plain = self.entrants.first().filter(|plain| plain.is_open() && plain.seconds.is_empty());
        let kept = plain.and(self.rules.known).map_or(Span::ZERO, |known| known.times(KEPT_FACTOR));
        self.budget().less(self.spent).less(kept)
    }

    /// Returns whether runs are short, and the budget allows as many more turns as show that two
    /// variants are equally fast.
    fn is_patient(&self) -> bool {
        let Some(best) = self.best().filter(|best| *best < SHORT_RUN_S) else { return false };
        let open = self.entrants.iter().filter(|one| one.is_open());
        let turn: f64 = open.map(|one| one.median().unwrap_or(best)).sum();
        self.budget().less(self.spent).seconds() > RUNS_NEAR as f64 * turn
    }

    /// Returns whether `trimtab run` without options, which is simpler, is as fast as a candidate.
    fn is_needless(&self, candidate: &Entrant) -> bool {
        let run = self.entrants.iter().find(|one| one.kind == Kind::Run && one.is_open());
        let Some(run) = run else { return false };
        let turns = run.seconds.len().min(candidate.seconds.len());
        let enough = if self.is_patient() { RUNS_NEAR } else { RUNS_CERTAIN_MIN };
        let ahead = ratio(&run.seconds, &candidate.seconds).map(|ahead| ahead.likely);
        turns >= enough && ahead.is_some_and(|ahead| ahead <= 1.0)
    }

    /// Returns the time limit of a run; `None` if the rest of the budget is too short for it.
    fn limit(&self, at: usize, best: Option<f64>) -> Option<Span> {
        let entrant = &self.entrants[at];
        let all = self.budget().less(self.spent);
        let rest = if entrant.kind == Kind::Plain { all } else { self.rest() };
        let Some(best) = best else {
            // A way that is slower than the program as it is need not end.
            let slower = self.rules.known.map(|known| known.times(KNOWN_FACTOR).max(LIMIT_MIN_PLAIN));
            let limit = slower.filter(|_| entrant.kind != Kind::Plain).unwrap_or(self.rules.limit_first);
            return (rest > Span::ZERO).then(|| limit.min(rest));
        };
        let part = BASELINE_PART * self.budget().seconds();
        let (bound, least) = match entrant.kind {
            // A program that takes minutes is not run ten times as long.
            Kind::Plain => (BOUND_PLAIN.min(part / best).max(2.0), LIMIT_MIN_PLAIN),
            Kind::Run => (BOUND_RUN, LIMIT_MIN),
            Kind::Candidate if self.is_scarce() => (BOUND_SCARCE, LIMIT_MIN),
            Kind::Candidate => (self.bound(1), LIMIT_MIN),
        };
        // A variant that never ran may be faster than the best one.
        let own = entrant.median().unwrap_or(HOPED * best);
        if rest.seconds() <= own {
            return None;
        }
        let span = |seconds: f64| Span((seconds * 1e9) as u64);
        // A variant that has run keeps the right to a slow run.
        let slow = entrant.median().map_or(Span::ZERO, |own| span(own * bound.clamp(1.5, 2.0)));
        Some(span(best * bound).max(least).max(slow).min(rest))
    }

    /// Returns whether more runs would not change the answer: the fastest variant is known, or the
    /// others are as fast, as far as a number of runs shows.
    fn is_settled(&self) -> bool {
        let Some(leader) = leader(&self.entrants).map(|at| &self.entrants[at]) else { return false };
        let all_ran = self.entrants.iter().all(|one| !one.is_open() || !one.seconds.is_empty());
        let mut open = self.entrants.iter().filter(|one| one.is_open());
        all_ran
            && leader.seconds.len() >= SAMPLES_MIN
            && open.all(|one| std::ptr::eq(one, leader) || self.is_known(one, leader))
    }

    /// Returns whether the difference between a variant and the fastest one is known.
    fn is_known(&self, one: &Entrant, leader: &Entrant) -> bool {
        let turns = one.seconds.len().min(leader.seconds.len());
        let Some(slower) = ratio(&one.seconds, &leader.seconds) else { return false };
        if turns < SAMPLES_MIN {
            return false;
        }
        let near = |least: usize| turns >= least && slower.likely < NEAR;
        match one.kind {
            Kind::Plain => {
                slower.high < NEAR || near(RUNS_NEAR_PLAIN) || is_sure(one, leader, self.entrants.len())
            }
            Kind::Run | Kind::Candidate => slower.low > NEAR || slower.high < NEAR || near(RUNS_NEAR),
        }
    }
}

/// Returns the number of runs of each variant, at most, if the best one takes this time.
fn runs_max(best: f64) -> usize {
    let fitting = (SHORT_RUNS_S / best.max(1e-3)) as usize;
    fitting.clamp(RUNS_MAX, RUNS_SHORT_MAX)
}
