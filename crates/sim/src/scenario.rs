//! One simulated run: a machine, a kernel, programs, what happens to them, and the policy that looks after them.
//!
//! A scenario is data, and [`run`] is a function of it: equal scenarios give equal outcomes and equal traces, to the byte.

pub mod file;
mod stage;

use crate::faults::{Faults, Faulty};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::model::Model;
use crate::observer_cost::Looking;
use crate::outcome::{Outcome, Tally};
use crate::program::Program;
use crate::rng::Rng;
use crate::world::World;
use stage::Stage;
use std::cell::RefCell;
use trimtab_core::balance::{Kind, Policy, Settings, policy};
use trimtab_core::drive::{Awake, Go, Step, drive};
use trimtab_core::observe::Observer;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// The machine.
    pub model: Model,
    /// Whether memory makes threads wait; without, work takes what it takes whatever the footprints.
    pub memory: bool,
    /// The kernel.
    pub kernel: Kernel,
    /// What runs, in the order in which it is added.
    pub programs: Vec<Program>,
    /// Programs that come at random times, each like its pattern.
    pub arrivals: Vec<Arrivals>,
    /// Who looks after the programs, and how; `None` for nobody.
    pub policy: Option<(Kind, Settings)>,
    /// What happens, the earliest first.
    pub events: Vec<Event>,
    /// What goes wrong between the policy and the machine.
    pub faults: Faults,
    /// What the policy's looks cost.
    pub looking: Looking,
    /// When the run ends at the latest; when it ends, if nothing in it ends by itself.
    pub end: Moment,
    /// All that is random is drawn from this.
    pub seed: u64,
}

/// Jobs that arrive at random: an open system.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrivals {
    /// What arrives; its start is ignored.
    pub program: Program,
    /// The mean time between two of them; times between are exponentially distributed.
    pub every: Span,
    /// No more after this many.
    pub most: u32,
}

/// Something that happens to the machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// When.
    pub at: Moment,
    /// What.
    pub what: Happening,
}

/// What can happen.
#[derive(Clone, PartialEq, Debug)]
pub enum Happening {
    /// Only these CPUs may be used from now on.
    Usable(CpuSet),
    /// A program starts, in addition to those of the scenario.
    Start(Box<Program>),
    /// The program of this place ends: of [`Scenario::programs`], and after those of the starts among [`Scenario::events`].
    Stop(usize),
}

/// How often a run without a policy is inspected.
const INSPECTED: Span = Span::from_ms(100);

/// Who looks at a run from outside.
pub trait Watch {
    /// The world: before each look of the policy, every so often in between, before and after what happens.
    fn world(&mut self, world: &World<Memory>);

    /// What the policy saw and did.
    fn step(&mut self, step: &Step<'_>) -> Go;

    /// The world when the policy is gone and all threads have their own masks back.
    fn end(&mut self, world: &World<Memory>);
}

/// Runs a scenario. `inspect` sees the world at each look, before the policy does; `watch` sees the policy's steps and may end the run.
pub fn run(
    scenario: &Scenario,
    inspect: &mut dyn FnMut(&World<Memory>),
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) -> Outcome {
    let mut tally = Tally::default();
    let mut stage = Stage::new(scenario, None, inspect);
    let mut policy = scenario.policy();
    play(scenario, &mut stage, policy.as_deref_mut(), &mut tally, watch);
    stage.outcome(tally)
}

/// Runs a scenario under the eyes of a watcher, who sees the world at least every so often. That changes nothing in the run.
pub fn watched(scenario: &Scenario, every: Span, watch: &mut dyn Watch) -> Outcome {
    let mut policy = scenario.policy();
    watched_under(scenario, policy.as_deref_mut(), every, watch)
}

/// The same under a policy that is no kind of its own, or under none.
pub fn watched_under(
    scenario: &Scenario,
    policy: Option<&mut (dyn Policy + '_)>,
    every: Span,
    watch: &mut dyn Watch,
) -> Outcome {
    let mut tally = Tally::default();
    let shared = RefCell::new(watch);
    let mut inspect = |world: &World<Memory>| shared.borrow_mut().world(world);
    let mut stage = Stage::new(scenario, Some(every), &mut inspect);
    play(scenario, &mut stage, policy, &mut tally, &mut |step| shared.borrow_mut().step(step));
    shared.borrow_mut().world(stage.world());
    let outcome = stage.outcome(tally);
    stage.give_back();
    shared.borrow_mut().end(stage.world());
    outcome
}

fn play(
    scenario: &Scenario,
    stage: &mut Stage<'_>,
    policy: Option<&mut (dyn Policy + '_)>,
    tally: &mut Tally,
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) {
    let Some(policy) = policy else {
        while stage.pass(INSPECTED) == Awake::Due {}
        return;
    };
    let mut observer = Observer::new(stage.usable());
    let mut faulty = Faulty::new(stage, scenario.faults, &Rng::new(scenario.seed).fork("faults"));
    let Ok(()) = drive(&mut faulty, policy, &mut observer, &mut |step| {
        tally.take(step);
        watch(step)
    });
}

impl Scenario {
    fn policy(&self) -> Option<Box<dyn Policy>> {
        let (kind, settings) = self.policy.as_ref()?;
        Some(policy(*kind, &self.model.machine, settings))
    }
}

#[cfg(test)]
mod tests;
