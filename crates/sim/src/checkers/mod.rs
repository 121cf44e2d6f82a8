//! Checkers of simulated runs: each watches a run from outside and reports broken invariants.
//!
//! Problem: a simulator whose threads lose work, or a policy that starves a thread, still gives
//! figures, which look correct. Idea: any scenario can be run with checkers. A checker gets the
//! world as a series of [`Scene`]s, at least one every [`SCENE_PERIOD`], and the policy's turns; it
//! does not see the internal state of the policy or of the kernel model. Each invariant has a
//! checker with a bound, and its file states the bound with its reason. A breach is a
//! [`Violation`], with the time, the thread and a sentence.
//!
//! Properties: checkers do not change the run, and cost nothing in runs without them. Equal
//! scenarios have equal violations.
//!
//! - [`scene`]: the world at a moment; [`terms`]: the set-up of a run, and the time after which
//!   nothing changes any more.
//! - Of the simulator: [`work`] (given work is done), [`time`] (running threads and busy CPUs
//!   agree), [`counters`] (they only grow), [`idle`] (no CPU is idle while a thread waits that may
//!   run there), [`starving`] (a ready thread runs).
//! - Of the budget of a hold: [`budget`] (each process has its part of the cores, and lent cores
//!   come back).
//! - Of the policy: [`masks`] (as decided, and given back by the host at the end), [`turns`] (each
//!   turn is allowed), [`trips`] (no thread is moved back and forth without a benefit),
//!   [`settling`] (when the load stops changing, moves for balance stop), [`moves`] (no move
//!   because of memory if memory delays no thread, and not too many moves).

pub mod budget;
pub mod counters;
pub mod idle;
pub mod masks;
pub mod moves;
pub mod scene;
pub mod settling;
pub mod starving;
pub mod terms;
pub mod time;
pub mod trips;
pub mod turns;
pub mod work;

#[cfg(test)]
mod tests;

pub use scene::Scene;
pub use terms::Terms;

use crate::memory::Memory;
use crate::outcome::Outcome;
use crate::scenario::{Scenario, Watcher, watched};
use crate::world::{ThreadView, World};
use serde::Serialize;
use std::fmt;
use trimtab_core::drive::{Go, Step};
use trimtab_core::time::{Moment, Span};

/// Period of the scenes of a watched world: about a tick of the kernel's, half of the shortest
/// period of a policy.
pub const SCENE_PERIOD: Span = Span::from_ms(5);

/// Number of violations kept for each invariant; more of them add no information.
const VIOLATIONS_MAX: usize = 3;

/// Invariant of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// Given work is done, no more, no less.
    Work,
    /// Time on CPUs equals the CPUs' busy time, and every moment of a thread is run, wait or sleep.
    Time,
    /// Counters only grow.
    Counters,
    /// No CPU is idle while a thread waits that may run there.
    Idle,
    /// A ready thread runs within a bounded time.
    Starving,
    /// No thread is outside its mask; masks are as decided, and are given back by the host at the
    /// end.
    Masks,
    /// A policy's turns are valid.
    Turns,
    /// No thread is moved back and forth without a benefit.
    Trips,
    /// When the load stops changing, moves for balance stop.
    Settling,
    /// No thread is moved because of memory if memory delays no thread, and none is moved too
    /// often.
    Moves,
    /// Each process of a hold gets its part of the cores, and lent cores come back.
    Budget,
}

impl Invariant {
    /// Returns the name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Time => "time",
            Self::Counters => "counters",
            Self::Idle => "idle",
            Self::Starving => "starving",
            Self::Masks => "masks",
            Self::Turns => "turns",
            Self::Trips => "trips",
            Self::Settling => "settling",
            Self::Moves => "moves",
            Self::Budget => "budget",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Thread, by its program and its number there. These are never reused, unlike its place in the
/// world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ThreadKey {
    /// Number of the program in the scenario.
    pub program: usize,
    /// Number of the thread in the program.
    pub rank: u32,
}

impl ThreadKey {
    /// Returns the identity of a thread in a scene.
    pub fn of(thread: &ThreadView) -> Self {
        Self { program: thread.program, rank: thread.rank }
    }
}

impl fmt::Display for ThreadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of program {}", self.rank, self.program)
    }
}

/// Breach of an invariant.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Violation {
    /// Broken invariant.
    #[serde(rename = "law")]
    pub invariant: Invariant,
    /// When the breach was seen.
    pub at: Moment,
    /// Thread concerned, if the breach is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadKey>,
    /// Observation, and the allowed bound.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.invariant, self.at.since(Moment(0)))?;
        match &self.thread {
            Some(key) => write!(f, "{key} {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Collector of a checker's violations.
#[derive(Debug, Default)]
pub(crate) struct ViolationLog {
    at: Moment,
    violations: Vec<Violation>,
}

impl ViolationLog {
    fn add(&mut self, invariant: Invariant, thread: Option<ThreadKey>, text: String) {
        if self.violations.iter().filter(|found| found.invariant == invariant).count() < VIOLATIONS_MAX {
            self.violations.push(Violation { invariant, at: self.at, thread, text });
        }
    }
}

/// Checker of one invariant.
pub(crate) trait Checker {
    /// Checks the world now against the previous scene.
    fn inspect(&mut self, _terms: &Terms, _before: &Scene, _now: &Scene, _found: &mut ViolationLog) {}

    /// Checks a turn of the policy.
    fn step(&mut self, _terms: &Terms, _step: &Step<'_>, _found: &mut ViolationLog) {}

    /// Checks the world after the end of the run, with masks given back.
    fn end(&mut self, _terms: &Terms, _now: &Scene, _found: &mut ViolationLog) {}
}

/// All checkers over one run.
pub struct Judge {
    terms: Terms,
    checkers: Vec<Box<dyn Checker>>,
    before: Scene,
    found: ViolationLog,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Judge {
    /// Returns a judge of a run of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(work::WorkChecker),
            Box::new(time::TimeChecker),
            Box::new(counters::CountersChecker::default()),
            Box::new(idle::IdleChecker::default()),
            Box::new(starving::StarvingChecker::default()),
            Box::new(masks::MasksChecker::default()),
            Box::new(turns::TurnsChecker::default()),
            Box::new(trips::TripsChecker::default()),
            Box::new(settling::SettlingChecker::default()),
            Box::new(moves::MovesChecker::default()),
            Box::new(budget::BudgetChecker::default()),
        ];
        Self {
            terms: Terms::of(scenario),
            checkers,
            before: Scene::default(),
            found: ViolationLog::default(),
        }
    }

    /// Checks the next scene.
    pub(crate) fn scene(&mut self, now: Scene) {
        self.found.at = now.at;
        for checker in &mut self.checkers {
            checker.inspect(&self.terms, &self.before, &now, &mut self.found);
        }
        self.before = now;
    }

    /// Checks the last scene.
    pub(crate) fn last(&mut self, now: &Scene) {
        self.found.at = now.at;
        for checker in &mut self.checkers {
            checker.end(&self.terms, now, &mut self.found);
        }
    }

    /// Returns the violations, in order of time.
    pub fn violations(self) -> Vec<Violation> {
        self.found.violations
    }
}

impl Watcher for Judge {
    fn world(&mut self, world: &World<Memory>) {
        self.scene(Scene::of(world));
    }

    fn step(&mut self, step: &Step<'_>) -> Go {
        for checker in &mut self.checkers {
            checker.step(&self.terms, step, &mut self.found);
        }
        Go::On
    }

    fn end(&mut self, world: &World<Memory>) {
        self.last(&Scene::of(world));
    }
}

/// Runs a scenario under all checkers. Returns the outcome and the violations.
pub fn check(scenario: &Scenario) -> (Outcome, Vec<Violation>) {
    let mut judge = Judge::new(scenario);
    let outcome = watched(scenario, SCENE_PERIOD, &mut judge);
    (outcome, judge.violations())
}
