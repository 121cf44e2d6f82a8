//! One simulated run: a machine, a kernel, programs, what happens to them, and the policy that looks after them.
//!
//! A scenario is data, and [`run`] is a function of it: equal scenarios give equal outcomes and equal traces, to the byte.

pub mod file;
mod stage;

use crate::faults::{Faults, Faulty};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::model::Model;
use crate::outcome::{Outcome, Tally};
use crate::program::Program;
use crate::rng::Rng;
use crate::world::World;
use stage::Stage;
use trimtab_core::balance::{Kind, Settings, policy};
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
    /// When the run ends at the latest.
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
    /// The program of this place (of [`Scenario::programs`]) ends.
    Stop(usize),
}

/// How often a run without a policy is inspected.
const INSPECTED: Span = Span::from_ms(100);

/// Runs a scenario. `inspect` sees the world at each look, before the policy does; `watch` sees the policy's steps and may end the run.
pub fn run(
    scenario: &Scenario,
    inspect: &mut dyn FnMut(&World<Memory>),
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) -> Outcome {
    let mut tally = Tally::default();
    let mut stage = Stage::new(scenario, inspect);
    match &scenario.policy {
        Some((kind, settings)) => {
            let mut policy = policy(*kind, &scenario.model.machine, settings);
            let mut observer = Observer::new(stage.usable());
            let mut faulty =
                Faulty::new(&mut stage, scenario.faults, &Rng::new(scenario.seed).fork("faults"));
            let Ok(()) = drive(&mut faulty, policy.as_mut(), &mut observer, &mut |step| {
                tally.take(step);
                watch(step)
            });
        }
        None => while stage.pass(INSPECTED) == Awake::Due {},
    }
    stage.outcome(tally)
}

#[cfg(test)]
mod tests;
