//! Properties that trials of `brm` and `serial` need for their measurements to be meaningful.

use crate::nodes::{Nodes, NodesRun, run, settings};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::balance::{Act, Decision, Finding, Kind, Reason};

const CLIMBERS: [Kind; 2] = [Kind::Brm, Kind::Serial];

/// Returns whether a decision begins a trial's move.
fn tries(decision: &Decision) -> bool {
    matches!(decision.reason, Reason::Explore | Reason::Stalls { .. } | Reason::Exchanged { .. })
}

fn tried(ran: &NodesRun) -> impl Iterator<Item = &(f64, Decision)> {
    ran.nodes.moves.iter().filter(|(_, decision)| tries(decision))
}

/// Returns the node of the CPUs to which a decision moves a thread.
fn node(decision: &Decision, cores: usize) -> usize {
    decision.act.to().unwrap().first().unwrap().0 as usize / cores
}

#[test]
fn untried_units_are_not_all_tried_in_one_order() {
    let mut model = Nodes::mixed(5, 8, 8, 4).alike(1.0, 3, 0.3);
    model.end = 6.0;
    let ran = run(model, Kind::Brm, &settings(Kind::Brm, 5));
    let firsts: Vec<usize> = tried(&ran).take(8).map(|(_, decision)| node(decision, 4)).collect();
    let distinct: BTreeSet<usize> = firsts.iter().copied().collect();
    assert!(firsts.len() == 8 && distinct.len() >= 4, "{firsts:?}");
}

#[test]
fn a_successful_trial_of_one_thread_is_repeated_first_for_its_siblings() {
    // All data is on node 6; a thread that comes there guides the others.
    let mut found = 0;
    for seed in 0..4 {
        let mut model = Nodes::mixed(seed, 4, 8, 4).alike(2.0, 6, 0.6);
        (model.end, model.contention, model.noise) = (16.0, 0.0, 0.03);
        (0..4).for_each(|at| model.threads[at].node = [0, 2, 4, 7][at]);
        let ran = run(model, Kind::Brm, &settings(Kind::Brm, seed));
        let tries: Vec<(u32, usize)> =
            tried(&ran).map(|(_, decision)| (decision.thread.0, node(decision, 4))).collect();
        // After the first thread has come there, the others go there next.
        let first = tries.iter().position(|(_, to)| *to == 6).unwrap();
        let next: Vec<usize> = (0..4)
            .filter(|thread| *thread != tries[first].0)
            .filter_map(|thread| {
                let mut later = tries[first + 2..].iter().filter(|(who, _)| *who == thread);
                later.next().map(|(_, to)| *to)
            })
            .collect();
        found += next.iter().filter(|to| **to == 6).count();
    }
    assert!(found >= 9, "{found} of 12");
}

#[test]
fn no_trial_begins_before_all_computing_threads_there_are_counted_and_bound() {
    for kind in CLIMBERS {
        for seed in 0..3 {
            let mut model = Nodes::mixed(seed, 6, 2, 4);
            model.end = 9.0;
            model.threads[5].born = 5.0;
            let ran = run(model.clone(), kind, &settings(kind, seed));
            // The sixth thread is seen when others may be on trial already; no trial begins before
            // ten samples of it.
            let hasty = tried(&ran).filter(|(at, _)| *at > 5.02 && *at < 5.11).count();
            assert_eq!(hasty, 0, "{kind} {seed}: {:?}", ran.nodes.moves);
            let mut kept: BTreeMap<u32, bool> = (0..6).map(|at| (at, false)).collect();
            for (at, decision) in &ran.nodes.moves {
                if tries(decision) {
                    let loose: Vec<_> = kept
                        .iter()
                        .filter(|(id, kept)| !**kept && model.threads[**id as usize].born < at - 0.2)
                        .filter(|(id, _)| model.threads[**id as usize].m > 0.2)
                        .collect();
                    assert!(loose.is_empty(), "{kind} {seed} at {at}: {loose:?} are loose");
                }
                kept.insert(decision.thread.0, matches!(decision.act, Act::Confine(_)));
            }
        }
    }
}

#[test]
fn a_kernel_that_migrates_free_threads_does_not_spoil_the_result() {
    for kind in CLIMBERS {
        for seed in 0..3 {
            let mut model = Nodes::mixed(seed, 4, 2, 8).alike(2.0, 0, 0.6);
            (model.end, model.contention, model.restless, model.noise) = (20.0, 0.1, 4.0, 0.05);
            model.threads.iter_mut().for_each(|thread| thread.node = 1);
            let best = model.best();
            let ran = run(model, kind, &settings(kind, seed));
            assert!(ran.late > 0.95 * best, "{kind} {seed}: {} of {best}", ran.late);
        }
    }
}

#[test]
fn an_undone_move_is_warm_again_before_the_next_comparison() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(1, 4, 2, 4).alike(1.0, 0, 0.0);
        (model.end, model.contention) = (30.0, 0.0);
        let ran = run(model, kind, &settings(kind, 1));
        let mut undone: Option<f64> = None;
        let mut pairs = 0;
        for (at, decision) in &ran.nodes.moves {
            if decision.reason == Reason::Undo {
                undone = Some(*at);
            } else if let Some(before) = undone.filter(|_| tries(decision)) {
                // Two samples that are cold, and ten that are compared.
                assert!(at - before > 0.115, "{kind}: undone at {before}, tried at {at}");
                pairs += 1;
                undone = None;
            }
        }
        assert!(pairs >= 2, "{kind}: {:?}", ran.nodes.moves);
    }
}

#[test]
fn a_clearly_failed_trial_is_undone_at_once() {
    for kind in CLIMBERS {
        // All threads are on the right node: elsewhere everything takes twice as long.
        let mut model = Nodes::mixed(1, 3, 2, 4).alike(2.0, 0, 1.0);
        (model.end, model.contention, model.noise) = (20.0, 0.0, 0.03);
        model.threads.iter_mut().for_each(|thread| thread.node = 0);
        let first = model.pace();
        let ran = run(model, kind, &settings(kind, 1));
        let mut away: BTreeMap<u32, f64> = BTreeMap::new();
        let mut longest: f64 = 0.0;
        for (at, decision) in &ran.nodes.moves {
            if tries(decision) {
                away.insert(decision.thread.0, *at);
            } else if let Some(since) = away.remove(&decision.thread.0) {
                longest = longest.max(at - since);
            }
        }
        assert!(longest > 0.0 && longest < 0.09, "{kind}: {longest}");
        assert!(ran.late > 0.985 * first, "{kind}: {} of {first}", ran.late);
    }
}

#[test]
fn a_round_of_serial_tries_no_move_twice_and_exchanges_only_after_single_moves() {
    let mut model = Nodes::mixed(1, 4, 2, 8).alike(1.0, 0, 0.0);
    (model.end, model.contention, model.noise) = (50.0, 0.0, 0.03);
    (0..4).for_each(|at| model.threads[at].node = at % 2);
    let ran = run(model, Kind::Serial, &settings(Kind::Serial, 1));
    let all: Vec<(u32, bool)> = tried(&ran)
        .map(|(_, decision)| (decision.thread.0, matches!(decision.reason, Reason::Exchanged { .. })))
        .collect();
    let alone: BTreeSet<u32> = all.iter().take(4).map(|(id, _)| *id).collect();
    assert!(all.iter().take(4).all(|(_, exchange)| !exchange) && alone.len() == 4, "{all:?}");
    // Two on each node: four pairs, two moves each.
    assert!(all[4..12].iter().all(|(_, exchange)| *exchange), "{all:?}");
    let pairs: BTreeSet<BTreeSet<u32>> =
        all[4..12].chunks(2).map(|two| two.iter().map(|(id, _)| *id).collect()).collect();
    assert_eq!(pairs.len(), 4, "{all:?}");
    assert!(all.len() > 12 && !all[12].1, "and then from the beginning: {all:?}");
}

#[test]
fn a_thread_that_is_no_candidate_any_more_is_released() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 4, 2, 4).alike(2.0, 0, 0.6);
        (model.end, model.contention) = (30.0, 0.1);
        model.threads.iter_mut().for_each(|thread| thread.node = 1);
        model.calms = vec![(8.0, 2)];
        let ran = run(model, kind, &settings(kind, 2));
        let home = &ran.nodes.threads[2].home;
        let let_go = |(at, decision): &&(f64, Decision)| {
            *at > 8.0 && decision.thread.0 == 2 && decision.act == Act::Release
        };
        // Five seconds until the thread is known to be calm, and five more; later trials may bind
        // it to its node for a while again.
        let first = ran.nodes.moves.iter().find(let_go).unwrap();
        assert!(first.0 > 17.0 && first.0 < 24.0, "{kind}: {first:?}");
        assert_ne!(ran.nodes.mask(0), home, "{kind}: the others still stall");
    }
}

#[test]
fn the_remaining_thread_of_an_exchange_goes_back() {
    for kind in CLIMBERS {
        let model = |ends: Option<(usize, f64)>| {
            // Full nodes: no thread finds room alone.
            let mut model = Nodes::mixed(3, 8, 2, 4);
            model.end = 12.0;
            if let Some((at, when)) = ends {
                model.threads[at].ends = when;
            }
            model
        };
        let ran = run(model(None), kind, &settings(kind, 3));
        let exchange = ran.nodes.moves.iter().find_map(|(at, decision)| match &decision.reason {
            Reason::Exchanged { partner } => Some((*at, decision.thread, *partner)),
            _ => None,
        });
        let (at, id, partner) = exchange.unwrap();
        // The run is the same until then; one thread of the pair ends right after.
        let ran = run(model(Some((partner.0 as usize, at + 0.015))), kind, &settings(kind, 3));
        let back =
            ran.nodes.moves.iter().find(|(when, decision)| *when > at && decision.thread == id).unwrap();
        assert!(back.1.reason == Reason::Undo && back.0 < at + 0.06, "{kind}: {back:?}");
    }
}

#[test]
fn a_program_that_does_something_else_is_compared_with_itself() {
    // A thread that began cold or behaved differently before is not a valid measure: kept moves do
    // not count as useless because of it.
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 4, 2, 8).alike(2.0, 0, 0.6);
        (model.end, model.contention) = (75.0, 0.1);
        model.threads.iter_mut().for_each(|thread| thread.node = 1);
        let ran = run(model, kind, &settings(kind, 2));
        let vain = ran.findings.iter().filter(|(_, finding)| *finding == Finding::NoGain).count();
        assert_eq!(vain, 0, "{kind}: {:?}", ran.findings);
    }
}
