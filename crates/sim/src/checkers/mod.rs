//! Checkers: they watch a run from outside and say what must not be.
//!
//! Problem: a simulator whose threads lose work, or a policy that starves somebody, still gives figures, and they look like others.
//! Idea: whoever runs a scenario can have it watched. A watcher sees the world as a series of [`Scene`]s, at least one every [`EVERY`], and the policy's
//! turns; never what the policy or the kernel model keeps inside. Each invariant is a checker with a bound that is stated and
//! reasoned in its file; what breaks it is a [`Violation`], with the time, the thread and a sentence.
//!
//! Properties: watching changes nothing in the run; it costs nothing where nobody watches; equal scenarios have equal violations.
//!
//! - [`scene`]: the world at a moment; [`terms`]: what a run was set up to be, and since when nothing changes any more.
//! - Of the simulator: [`work`] (what is given is done), [`time`] (what runs is on a CPU, and the other way round), [`counters`] (they
//!   only grow), [`idle`] (no CPU rests beside work that may come to it), [`starving`] (who is ready runs).
//! - Of the policy: [`masks`] (as decided, and given back by the host in the end), [`turns`] (each turn is one that may be taken),
//!   [`trips`] (nobody to and fro for nothing), [`settling`] (when the load stops changing, the balance comes to rest), [`moves`] (nobody
//!   for memory that makes nobody wait, and not too often).

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
use crate::scenario::{Scenario, Watch, watched};
use crate::world::{ThreadSeen, World};
use serde::Serialize;
use std::fmt;
use trimtab_core::drive::{Go, Step};
use trimtab_core::time::{Moment, Span};

/// How often a watched world is looked at: about a tick of the kernel's, half of the shortest period of a policy.
pub const EVERY: Span = Span::from_ms(5);

/// So many violations of one invariant are kept; more of them say nothing new.
const KEPT: usize = 3;

/// The invariants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// What is given is done, no more, no less.
    Work,
    /// Time on CPUs is the time CPUs were busy, and every moment of a thread is run, wait or sleep.
    Time,
    /// Counters only grow.
    Counters,
    /// No CPU rests beside a thread that waits and may come to it.
    Idle,
    /// Who is ready runs in the end.
    Starving,
    /// No thread outside its mask; masks as decided; given back by the host in the end.
    Masks,
    /// A policy's turns are sound.
    Turns,
    /// Nobody is moved to and fro for nothing.
    Trips,
    /// When the load stops changing, the balance comes to rest.
    Settling,
    /// Nobody is moved on account of memory that makes nobody wait, and nobody too often.
    Moves,
}

impl Invariant {
    /// Its name.
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
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A thread by its program and its place there: these are never used again, unlike its place in the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Who {
    /// The program's place in the scenario.
    pub program: usize,
    /// The thread's in the program.
    pub rank: u32,
}

impl Who {
    /// Of a thread that is seen.
    pub fn of(thread: &ThreadSeen) -> Self {
        Self { program: thread.program, rank: thread.rank }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of program {}", self.rank, self.program)
    }
}

/// Something that must not be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Violation {
    /// The invariant that is broken.
    #[serde(rename = "law")]
    pub invariant: Invariant,
    /// When that was seen.
    pub at: Moment,
    /// By or to which thread, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Who>,
    /// What was seen, and what is allowed.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.invariant, self.at.since(Moment(0)))?;
        match &self.thread {
            Some(who) => write!(f, "{who} {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Where a checker puts what it finds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    at: Moment,
    violations: Vec<Violation>,
}

impl Found {
    fn add(&mut self, invariant: Invariant, thread: Option<Who>, text: String) {
        if self.violations.iter().filter(|found| found.invariant == invariant).count() < KEPT {
            self.violations.push(Violation { invariant, at: self.at, thread, text });
        }
    }
}

/// Watches over one invariant.
pub(crate) trait Checker {
    /// The world now, and at the look before.
    fn look(&mut self, _terms: &Terms, _before: &Scene, _now: &Scene, _found: &mut Found) {}

    /// A turn of the policy.
    fn step(&mut self, _terms: &Terms, _step: &Step<'_>, _found: &mut Found) {}

    /// The world when all is over and masks are given back.
    fn end(&mut self, _terms: &Terms, _now: &Scene, _found: &mut Found) {}
}

/// All checkers over one run.
pub struct Judge {
    terms: Terms,
    checkers: Vec<Box<dyn Checker>>,
    before: Scene,
    found: Found,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Judge {
    /// Over a run of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(work::Work),
            Box::new(time::Time),
            Box::new(counters::Counters::default()),
            Box::new(idle::Idle::default()),
            Box::new(starving::Starving::default()),
            Box::new(masks::Masks::default()),
            Box::new(turns::Turns::default()),
            Box::new(trips::Trips::default()),
            Box::new(settling::Settling::default()),
            Box::new(moves::Moves::default()),
        ];
        Self { terms: Terms::of(scenario), checkers, before: Scene::default(), found: Found::default() }
    }

    /// The next scene.
    pub(crate) fn scene(&mut self, now: Scene) {
        self.found.at = now.at;
        for checker in &mut self.checkers {
            checker.look(&self.terms, &self.before, &now, &mut self.found);
        }
        self.before = now;
    }

    /// The last scene.
    pub(crate) fn last(&mut self, now: &Scene) {
        self.found.at = now.at;
        for checker in &mut self.checkers {
            checker.end(&self.terms, now, &mut self.found);
        }
    }

    /// What was found, in order of time.
    pub fn violations(self) -> Vec<Violation> {
        self.found.violations
    }
}

impl Watch for Judge {
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

/// Runs a scenario under all checkers.
pub fn check(scenario: &Scenario) -> (Outcome, Vec<Violation>) {
    let mut judge = Judge::new(scenario);
    let outcome = watched(scenario, EVERY, &mut judge);
    (outcome, judge.violations())
}
