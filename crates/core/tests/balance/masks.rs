//! Masks that threads have by themselves, and initial threads, which may be about to count CPUs.

use crate::fluid::{Fluid, Kernel, WaitMode};
use crate::laws::{World, model, worlds};
use crate::run::{freeing, machine, run_with, settings};
use crate::script::{Did, Script, ran, slept};
use proptest::prelude::*;
use std::collections::BTreeMap;
use trimtab_core::balance::{Act, Finding, Kind, Settings};
use trimtab_core::drive::Go;
use trimtab_core::ids::ThreadId;
use trimtab_core::topology::parse_synthetic;

/// Policies that bind threads to single CPUs.
const BINDING: [Kind; 4] = [Kind::Auto, Kind::Speed, Kind::Exchange, Kind::Pinned];

fn all(did: &[Did]) -> Vec<Option<Did>> {
    did.iter().copied().map(Some).collect()
}

/// Returns whether the action leaves a thread bound to one CPU.
fn binds(act: &Act) -> bool {
    matches!(act, Act::Confine(to) if to.len() == 1)
}

fn stays_within_own_masks(world: &World, kind: Kind) -> Result<(), TestCaseError> {
    let machine = parse_synthetic("numa:2 l3:2 core:2 pu:1").unwrap();
    let settings = Settings { across_nodes: world.across_nodes, ..settings(50, world.seed) };
    let mut outside = Vec::new();
    run_with(model(world), &machine, kind, &settings, &mut |step| {
        for decision in &step.turn.decisions {
            let view = step.seen.threads.iter().find(|view| view.id() == decision.thread).unwrap();
            if decision.act.to().is_some_and(|to| !to.is_subset(&view.info.home)) {
                outside.push((step.seen.at, decision.clone(), view.info.home.clone()));
            }
        }
        Go::On
    });
    prop_assert!(outside.is_empty(), "{kind}: {outside:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Unless the settings allow it, no policy puts any thread outside its own mask.
    #[test]
    fn no_thread_leaves_its_own_mask(world in worlds(), kind in prop::sample::select(Kind::ALL.to_vec())) {
        stays_within_own_masks(&world, kind)?;
    }
}

#[test]
fn masks_that_crowd_are_respected_unless_threads_may_leave_them() {
    // The last thread only sleeps.
    for (homes, cpus) in [(["0", "0", "0", "0"], 1), (["0", "1", "0", "0-1"], 2), (["0", "0", "0", "0-1"], 1)]
    {
        let second = ran(if cpus == 1 { 0.3 } else { 1.0 }, cpus - 1);
        let did = all(&[ran(0.4, 0), second, ran(0.3, 0), slept(0.0, 0)]);
        let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &homes);
        let (mut findings, mut decisions) = (Vec::new(), 0);
        while script.next.0 < 3_000_000_000 {
            let turn = script.step(&did);
            findings.extend(turn.findings);
            decisions += turn.decisions.len();
        }
        assert!(findings.contains(&Finding::Respected { threads: 3, cpus }), "{homes:?}: {findings:?}");
        assert_eq!(decisions, 0, "{homes:?}");
        let mut script = Script::new("core:2 pu:1", Kind::Auto, &freeing(100, 1), &homes);
        let moved = script.pass(1.0, &did);
        let elsewhere = |act: &Act| act.to().is_some_and(|to| to.to_string() != "0");
        assert!(moved.iter().any(|decision| elsewhere(&decision.act)), "{homes:?}: {moved:?}");
    }
}

#[test]
fn an_initial_thread_that_waits_for_its_workers_is_never_bound() {
    for kind in BINDING {
        let mut script = Script::new("core:2 pu:1", kind, &settings(100, 1), &["0-1"; 4]);
        let did = all(&[slept(0.0, 1), ran(0.5, 0), ran(1.0, 1), ran(0.5, 0)]);
        let moved = script.pass(5.0, &did);
        let bound = |id: u32| {
            moved.iter().filter(|decision| decision.thread == ThreadId(id) && binds(&decision.act)).count()
        };
        assert_eq!(bound(0), 0, "{kind}: {moved:?}");
        assert!(bound(1) > 0, "{kind}: the workers are bound: {moved:?}");
    }
}

#[test]
fn an_initial_thread_that_computes_alone_is_free() {
    for kind in BINDING {
        let mut script = Script::new("core:2 pu:1", kind, &settings(100, 1), &["0-1"; 3]);
        let team = all(&[ran(0.5, 0), ran(1.0, 1), ran(0.5, 0)]);
        let alone = all(&[slept(1.0, 0), slept(0.0, 1), slept(0.0, 0)]);
        let mut moved = script.pass(1.0, &team);
        let bound = moved.iter().any(|decision| decision.thread == ThreadId(0) && binds(&decision.act));
        assert!(bound, "{kind}: the master of a team is bound with it: {moved:?}");
        moved.extend(script.pass(3.0, &alone));
        // A nudge leaves its mask as it was.
        let lasts = |act: &Act| !matches!(act, Act::Nudge(_));
        let mut lasting = moved.iter().rev().filter(|decision| lasts(&decision.act));
        let last = lasting.find(|decision| decision.thread == ThreadId(0)).unwrap();
        assert_eq!(last.act, Act::Release, "{kind}: {moved:?}");
    }
}

#[test]
fn a_thread_that_comes_later_may_set_its_mask_before_it_is_bound() {
    for kind in BINDING {
        let mut fluid = Fluid::new(3, 2, WaitMode::Spin, Kernel::Rotates).long(2.0);
        for at in 0..3 {
            fluid.thread(1.0, 0.31 + 0.02 * f64::from(at), "0-1".parse().unwrap(), 0);
        }
        let machine = machine(&fluid);
        let (mut first_seen, mut late) = (BTreeMap::new(), 0);
        run_with(fluid, &machine, kind, &settings(50, 1), &mut |step| {
            for view in &step.seen.threads {
                first_seen.entry(view.id()).or_insert(step.seen.at);
            }
            for decision in step.turn.decisions.iter().filter(|decision| binds(&decision.act)) {
                let seen = first_seen[&decision.thread];
                if seen.0 > 0 && decision.thread.0 > 2 {
                    late += 1;
                    assert!(step.seen.at > seen, "{kind}: {decision:?}");
                }
            }
            Go::On
        });
        assert!(late > 0 || kind == Kind::Auto, "{kind}: no thread that came later was bound");
    }
}
