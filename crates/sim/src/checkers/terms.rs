//! What a run was set up to be: all that bounds are made of.

use crate::faults::Faults;
use crate::kernel::{Kernel, Order};
use crate::program::Program;
use crate::progress::quiet;
use crate::scenario::{Happening, Scenario};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::observe::Metric;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;

/// The terms of a run.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The machine.
    pub machine: Machine,
    /// The kernel.
    pub kernel: Kernel,
    /// The policy.
    pub policy: Option<(Kind, Settings)>,
    /// The scenario's own programs; arrivals come after them.
    pub programs: Vec<Program>,
    /// The fastest that work gets on anywhere.
    pub fastest: f64,
    /// Whether all cores are equally fast.
    pub even: bool,
    /// How often the heaviest thread weighs the lightest.
    pub weights: f64,
    /// From here on nothing happens to the machine or the policy, and nobody comes.
    pub calm: Moment,
    /// Whether memory makes anybody wait.
    pub stalls: bool,
    /// Whether readings were spoiled, moves refused or clocks turned at any time.
    pub faults: bool,
}

impl Terms {
    /// Those of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let model = &scenario.model;
        let most = |numbers: &[f64]| numbers.iter().copied().fold(1.0, f64::max);
        let first = model.speeds.first().copied().unwrap_or(1.0);
        let started = scenario.events.iter().filter_map(|event| match &event.what {
            Happening::Start(program) => Some(program.as_ref()),
            _ => None,
        });
        let all: Vec<&Program> = scenario
            .programs
            .iter()
            .chain(scenario.arrivals.iter().map(|arrivals| &arrivals.program))
            .chain(started)
            .collect();
        let weight = |program: &&Program| f64::from(program.weight.max(2));
        let heaviest = all.iter().map(weight).fold(1.0, f64::max);
        let lightest = all.iter().map(weight).fold(f64::INFINITY, f64::min).min(heaviest);
        let stalls =
            scenario.memory && model.memory.local_ns > 0.0 && all.iter().any(|one| !quiet(&one.footprint));
        let faults = scenario.faults != Faults { until: scenario.faults.until, ..Faults::default() };
        let ends = [
            scenario.events.iter().map(|event| event.at).max(),
            scenario.programs.iter().map(|program| program.start).max(),
            faults.then(|| scenario.faults.until.unwrap_or(scenario.end)),
            (!scenario.arrivals.is_empty()).then_some(scenario.end),
        ];
        Self {
            machine: model.machine.clone(),
            kernel: scenario.kernel.clone(),
            policy: scenario.policy.clone(),
            programs: scenario.programs.clone(),
            fastest: most(&model.speeds) * most(&model.turbo.factors),
            even: model.speeds.iter().all(|speed| speed.to_bits() == first.to_bits()),
            weights: heaviest / lightest,
            calm: ends.into_iter().flatten().max().unwrap_or(Moment(0)),
            stalls,
            faults,
        }
    }

    /// Whether the policy knows waiting from sleeping.
    pub(crate) fn counts_waits(&self) -> bool {
        self.policy.as_ref().is_some_and(|(_, settings)| settings.metric == Metric::RunWait)
    }

    /// The longest that a thread runs while others of equal right wait.
    pub(crate) fn turn(&self) -> Span {
        let kernel = &self.kernel;
        let latency = if kernel.order == Order::Least { kernel.latency } else { Span::ZERO };
        kernel.slice.max(latency).max(kernel.tick)
    }

    /// The policy's interval.
    pub(crate) fn interval(&self) -> Span {
        self.policy.as_ref().map_or(Span::from_ms(100), |(_, settings)| settings.interval)
    }
}
