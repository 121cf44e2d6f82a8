//! Scenario of one simulated run: a machine, a kernel, programs, events, and the policy that
//! balances the programs.
//!
//! A scenario is data, and [`run`] is a function of it: equal scenarios give equal outcomes and
//! equal traces, to the byte.

pub mod file;
mod stage;

use crate::faults::{Faults, Faulty};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::model::Model;
use crate::observer_cost::ObserverCost;
use crate::outcome::{Outcome, Tally};
use crate::program::ProgramSpec;
use crate::rng::Rng;
use crate::world::World;
use stage::Stage;
use std::cell::RefCell;
use trimtab_core::balance::{Kind, Policy, Settings, policy};
use trimtab_core::drive::{Awake, Go, Step, drive};
use trimtab_core::observe::Observer;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Scenario of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Name.
    pub name: String,
    /// Machine.
    pub model: Model,
    /// Whether memory delays threads; if not, footprints have no effect on the work.
    pub memory: bool,
    /// Kernel.
    pub kernel: Kernel,
    /// Programs, in the order in which they are added.
    pub programs: Vec<ProgramSpec>,
    /// Programs that arrive at random times, each like its pattern.
    pub arrivals: Vec<Arrivals>,
    /// Policy that balances the programs, and its settings; `None` for no policy.
    pub policy: Option<(Kind, Settings)>,
    /// Events, the earliest first.
    pub events: Vec<ScenarioEvent>,
    /// Faults between the policy and the machine.
    pub faults: Faults,
    /// Costs of the policy's samples.
    pub observer_cost: ObserverCost,
    /// Latest end of the run, and its end if nothing in the run ends by itself.
    pub end: Moment,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Jobs that arrive at random: an open system.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrivals {
    /// Pattern of the programs that arrive; its start is ignored.
    pub program: ProgramSpec,
    /// Mean time between two arrivals; times between are exponentially distributed.
    pub every: Span,
    /// Highest number of arrivals.
    pub most: u32,
}

/// Change to the machine or its programs.
#[derive(Clone, PartialEq, Debug)]
pub struct ScenarioEvent {
    /// Time of the event.
    pub at: Moment,
    /// Change.
    pub what: Happening,
}

/// Kind of change.
#[derive(Clone, PartialEq, Debug)]
pub enum Happening {
    /// Only these CPUs are usable from now on.
    Usable(CpuSet),
    /// A program starts, in addition to those of the scenario.
    Start(Box<ProgramSpec>),
    /// The program of this place ends. Places are those of [`Scenario::programs`], followed by the
    /// starts among [`Scenario::events`].
    Stop(usize),
}

/// Period of inspections of a run without a policy.
const INSPECTION_PERIOD: Span = Span::from_ms(100);

/// Watcher of a run from outside.
pub trait Watcher {
    /// Sees the world: before each sample of the policy, periodically in between, and before and
    /// after events.
    fn world(&mut self, world: &World<Memory>);

    /// Sees the policy's sample and decisions.
    fn step(&mut self, step: &Step<'_>) -> Go;

    /// Sees the world after the policy is gone and all threads have their own masks back.
    fn end(&mut self, world: &World<Memory>);
}

/// Runs a scenario. `inspect` sees the world at each sample, before the policy does; `watch` sees
/// the policy's steps and may end the run.
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

/// Runs a scenario with a watcher, which sees the world at least once per `every`. Watching changes
/// nothing in the run.
pub fn watched(scenario: &Scenario, every: Span, watch: &mut dyn Watcher) -> Outcome {
    let mut policy = scenario.policy();
    watched_under(scenario, policy.as_deref_mut(), every, watch)
}

/// Runs a scenario with a watcher under a policy that has no [`Kind`], or under no policy.
pub fn watched_under(
    scenario: &Scenario,
    policy: Option<&mut (dyn Policy + '_)>,
    every: Span,
    watch: &mut dyn Watcher,
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
        while stage.pass(INSPECTION_PERIOD) == Awake::Due {}
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
