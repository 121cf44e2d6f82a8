//! Helpers that run a policy on the fluid model.

use crate::fluid::Fluid;
use trimtab_core::balance::{Finding, Kind, Settings, policy};
use trimtab_core::check::decisions::Account;
use trimtab_core::drive::{Go, Step, drive};
use trimtab_core::observe::Observer;
use trimtab_core::time::Span;
use trimtab_core::topology::{KindPart, Machine, parse_synthetic};

/// Result of a run.
pub(crate) struct FluidRun {
    /// Makespan over the time under fair shares.
    pub(crate) ratio: f64,
    /// Number of moves.
    pub(crate) moves: u64,
    /// Findings of the policy, in order.
    pub(crate) findings: Vec<Finding>,
    /// Model at the end of the run.
    pub(crate) fluid: Fluid,
}

/// Returns a machine for a model: cores that share a cache, with the model's speeds.
pub(crate) fn machine(fluid: &Fluid) -> Machine {
    let machine = parse_synthetic(&format!("numa:1 l3:1 core:{} pu:1", fluid.speeds.len())).unwrap();
    let most = fluid.speeds.iter().copied().fold(0.0, f64::max);
    let mut parts = machine.parts().clone();
    if fluid.speeds.iter().any(|speed| *speed != most) {
        let kind = |(at, speed): (usize, &f64)| KindPart {
            cpus: at.to_string().parse().unwrap(),
            capacity: Some((1024.0 * speed / most).round() as u32),
            ..KindPart::default()
        };
        parts.kinds = fluid.speeds.iter().enumerate().map(kind).collect();
    }
    Machine::build(parts).unwrap()
}

/// Returns settings with an interval in milliseconds.
pub(crate) fn settings(interval_ms: u64, seed: u64) -> Settings {
    Settings { interval: Span::from_ms(interval_ms), seed, ..Settings::default() }
}

/// Returns the same settings, with which threads may leave their own masks.
pub(crate) fn freeing(interval_ms: u64, seed: u64) -> Settings {
    Settings { free: true, ..settings(interval_ms, seed) }
}

/// Runs a model to its end, and shows each step to `watch`.
pub(crate) fn run_with(
    mut fluid: Fluid,
    machine: &Machine,
    kind: Kind,
    settings: &Settings,
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) -> FluidRun {
    let ideal = fluid.ideal();
    let mut policy = policy(kind, machine, settings);
    let mut observer = Observer::new(fluid.usable.clone());
    let mut findings = Vec::new();
    let mut account = Account::default();
    let mut step = |step: &Step<'_>| {
        let faults = account.check_turn(machine, settings.across_nodes, step.seen, step.turn);
        assert!(faults.is_empty(), "{kind} at {:?}: {faults:?}", step.seen.at);
        findings.extend(step.turn.findings.iter().cloned());
        watch(step)
    };
    drive(&mut fluid, policy.as_mut(), &mut observer, &mut step).unwrap_or_else(|never| match never {});
    assert!(fluid.now < fluid.end, "the model never ended");
    FluidRun { ratio: fluid.now / ideal, moves: fluid.moves, findings, fluid }
}

/// Runs a model to its end.
pub(crate) fn run(fluid: Fluid, kind: Kind, settings: &Settings) -> FluidRun {
    let machine = machine(&fluid);
    run_with(fluid, &machine, kind, settings, &mut |_| Go::On)
}

/// Returns the median over 15 seeds, for policies that draw.
pub(crate) fn median(fluid: &Fluid, kind: Kind, interval_ms: u64) -> f64 {
    let ratio = |seed| run(fluid.clone(), kind, &settings(interval_ms, seed)).ratio;
    let mut ratios: Vec<f64> = (0..15).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[7]
}
