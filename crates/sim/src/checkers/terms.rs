//! Terms of a run: the part of its set-up from which the checkers' bounds are computed.

use crate::faults::Faults;
use crate::kernel::{Kernel, QueueOrder};
use crate::program::ProgramSpec;
use crate::progress::quiet;
use crate::scenario::{Happening, Scenario};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::observe::Metric;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;

/// Terms of a run.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Machine.
    pub machine: Machine,
    /// Kernel.
    pub kernel: Kernel,
    /// Policy.
    pub policy: Option<(Kind, Settings)>,
    /// The scenario's own programs; arrivals come after them.
    pub programs: Vec<ProgramSpec>,
    /// Highest speed of work on any CPU.
    pub fastest: f64,
    /// Whether all cores are equally fast.
    pub even: bool,
    /// Weight of the heaviest thread over that of the lightest.
    pub weights: f64,
    /// Time after which the machine and the policy do not change, and no program starts.
    pub calm: Moment,
    /// Whether memory delays any thread.
    pub stalls: bool,
    /// Whether readings were falsified, moves refused or clocks changed at any time.
    pub faults: bool,
}

impl Terms {
    /// Returns the terms of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let model = &scenario.model;
        let most = |numbers: &[f64]| numbers.iter().copied().fold(1.0, f64::max);
        let first = model.speeds.first().copied().unwrap_or(1.0);
        let started = scenario.events.iter().filter_map(|event| match &event.what {
            Happening::Start(program) => Some(program.as_ref()),
            _ => None,
        });
        let all: Vec<&ProgramSpec> = scenario
            .programs
            .iter()
            .chain(scenario.arrivals.iter().map(|arrivals| &arrivals.program))
            .chain(started)
            .collect();
        let weight = |program: &&ProgramSpec| f64::from(program.weight.max(2));
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

    /// Returns whether the policy can distinguish waiting from sleeping.
    pub(crate) fn counts_waits(&self) -> bool {
        self.policy.as_ref().is_some_and(|(_, settings)| settings.metric == Metric::RunWait)
    }

    /// Returns the longest time that a thread runs while others of equal right wait.
    pub(crate) fn turn(&self) -> Span {
        let kernel = &self.kernel;
        let latency = if kernel.order == QueueOrder::Least { kernel.latency } else { Span::ZERO };
        kernel.slice.max(latency).max(kernel.tick)
    }

    /// Returns the policy's interval.
    pub(crate) fn interval(&self) -> Span {
        self.policy.as_ref().map_or(Span::from_ms(100), |(_, settings)| settings.interval)
    }
}
