//! Tests of the traps that measurements and the literature warn of, one test each.

use crate::fluid::{Fluid, FluidEvent, Kernel, WaitMode};
use crate::run::{freeing, machine, run, run_with, settings};
use crate::script::{Did, Script, ran, slept};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::balance::{Act, Finding, Kind, Reason, Refusal, Settings, Settled};
use trimtab_core::drive::Go;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Left, Notice};
use trimtab_core::time::Span;

fn all(did: &[Did]) -> Vec<Option<Did>> {
    did.iter().copied().map(Some).collect()
}

/// A process of which a script has no initial thread: all are bound at the first sample.
const NO_INITIAL: u32 = 99;

/// Three threads on two CPUs; the last two share one.
fn uneven() -> Vec<Option<Did>> {
    all(&[ran(1.0, 0), ran(0.5, 1), ran(0.5, 1)])
}

fn said(findings: &[Finding], wanted: fn(&Finding) -> bool) -> bool {
    findings.iter().any(wanted)
}

#[test]
fn no_two_threads_share_a_core_while_a_hog_has_one_alone() {
    for kind in [Kind::Speed, Kind::Exchange, Kind::Auto] {
        let fluid = Fluid::new(2, 2, WaitMode::Spin, Kernel::Keeps).hog(0, true).long(3.0);
        let machine = machine(&fluid);
        let mut bound = BTreeMap::new();
        run_with(fluid, &machine, kind, &settings(50, 3), &mut |step| {
            for decision in &step.turn.decisions {
                bound.insert(decision.thread, decision.act.to().cloned());
            }
            let cpus: Vec<_> = bound.values().flatten().collect();
            assert!(cpus.len() < 2 || cpus[0] != cpus[1], "{kind} at {:?}: {bound:?}", step.seen.at);
            Go::On
        });
        assert_eq!(bound.len(), 2, "{kind}");
    }
}

#[test]
fn sleepers_are_not_bound_to_one_core() {
    for kind in [Kind::Speed, Kind::Exchange] {
        let fluid = Fluid::new(3, 2, WaitMode::Sleep, Kernel::Rotates).long(3.0).every(0.01);
        let ran = run(fluid, kind, &settings(50, 1));
        assert!(
            said(&ran.findings, |finding| matches!(finding, Finding::Sleepers { .. })),
            "{kind}: {:?}",
            ran.findings
        );
        for at in 0..3 {
            assert_eq!(ran.fluid.mask(at).len(), 2, "{kind}: thread {at}");
        }
    }
    let ran = run(
        Fluid::new(3, 2, WaitMode::Sleep, Kernel::Rotates).long(3.0).every(0.01),
        Kind::Auto,
        &settings(100, 1),
    );
    assert_eq!(ran.moves, 0, "auto never touches them: {:?}", ran.findings);
}

#[test]
fn bound_sleepers_are_let_loose() {
    let fluid = Fluid::new(3, 2, WaitMode::Sleep, Kernel::Rotates).long(3.0).every(0.01).bound();
    let ran = run(fluid, Kind::Auto, &freeing(100, 1));
    assert!(said(&ran.findings, |finding| matches!(finding, Finding::Bound { threads: 3, cpus: 2 })));
    for at in 0..3 {
        assert_eq!(ran.fluid.mask(at).len(), 2, "thread {at}");
    }
    assert!(ran.ratio < 1.06, "{}", ran.ratio);
}

#[test]
fn nothing_is_done_where_nothing_waits() {
    for (threads, cores) in [(1, 1), (2, 2), (3, 4), (8, 8)] {
        let ran = run(
            Fluid::new(threads, cores, WaitMode::Spin, Kernel::Rotates).long(2.0),
            Kind::Auto,
            &settings(100, 1),
        );
        assert_eq!(ran.moves, 0);
        assert_eq!(ran.findings.last(), Some(&Finding::NothingWaits), "{threads} on {cores}");
    }
}

#[test]
fn no_thread_is_passed_on_and_on() {
    for kind in [Kind::Speed, Kind::Exchange, Kind::Auto] {
        let fluid = Fluid::new(5, 4, WaitMode::Spin, Kernel::Keeps).long(4.0);
        let machine = machine(&fluid);
        let mut moves: BTreeMap<ThreadId, u32> = (0..5).map(|at| (ThreadId(at), 0)).collect();
        run_with(fluid, &machine, kind, &settings(50, 3), &mut |step| {
            for decision in &step.turn.decisions {
                *moves.entry(decision.thread).or_default() += 1;
            }
            Go::On
        });
        let (least, most) = (moves.values().min().unwrap(), moves.values().max().unwrap());
        assert!(*most <= 2 * least + 2, "{kind}: {moves:?}");
    }
}

#[test]
fn a_thread_that_begins_to_sleep_is_released_within_two_windows() {
    for kind in [Kind::Auto, Kind::Exchange, Kind::Speed] {
        let mut script = Script::new("core:2 pu:1", kind, &settings(100, 1), &["0-1"; 3]);
        // Not longer: a script ignores decisions, and auto would see that its moves bring nothing.
        let moved = script.pass(0.5, &uneven());
        assert!(moved.iter().any(|decision| matches!(decision.act, Act::Confine(_))), "{kind}");
        // In turns they sleep two fifths of the time.
        let (mut released, began) = (0, script.now);
        // A window that began before, and one that is whole.
        while released < 3 && script.now.since(began) < Span::from_ms(600) {
            let turn = script.step(&all(&[slept(0.6, 0), slept(0.6, 1), slept(0.6, 1)]));
            let sleeps = |decision: &&trimtab_core::balance::Decision| decision.reason == Reason::Sleeps;
            released += turn.decisions.iter().filter(sleeps).count();
        }
        assert_eq!(released, 3, "{kind}");
    }
}

#[test]
fn a_refused_half_of_an_exchange_is_put_right() {
    let script = Script::new("core:2 pu:1", Kind::Exchange, &settings(100, 1), &["0-1"; 3]);
    let mut script = script.in_processes(&[NO_INITIAL; 3]);
    script.step(&all(&[ran(0.0, 0), ran(0.0, 1), ran(0.0, 0)]));
    // Initial placement 0, 1, 0: thread 1 is ahead.
    let did = all(&[ran(0.5, 0), ran(1.0, 1), ran(0.5, 0)]);
    let turn = script.step_with(&did, |decision| match decision.reason {
        Reason::Ahead { .. } => Settled::Refused(Refusal::Other),
        _ => Settled::Applied,
    });
    assert_eq!(turn.decisions.len(), 2, "{:?}", turn.decisions);
    let pulled = turn.decisions[0].thread;
    let turn = script.step(&all(&[ran(0.33, 1), ran(0.33, 1), ran(1.0, 0)]));
    let undo = turn.decisions.iter().find(|decision| decision.reason == Reason::Undo).unwrap();
    assert_eq!((undo.thread, undo.act.to().unwrap().to_string()), (pulled, "0".to_owned()));
}

#[test]
fn a_thread_that_ends_between_sample_and_move_is_dropped() {
    for kind in Kind::ALL {
        for when in [0.0, 0.05, 0.25, 0.3] {
            let mut fluid = Fluid::new(5, 2, WaitMode::Spin, Kernel::Keeps);
            fluid.events = vec![(when, FluidEvent::End(1)), (when, FluidEvent::End(4))];
            run(fluid, kind, &settings(50, 1));
        }
    }
}

#[test]
fn a_thread_that_lost_its_cpu_gets_another_one() {
    for kind in Kind::ALL {
        let mut fluid = Fluid::new(5, 4, WaitMode::Spin, Kernel::Keeps).long(2.0);
        let set = |text: &str| text.parse().unwrap();
        fluid.events = vec![(0.61, FluidEvent::Usable(set("0-1"))), (1.8, FluidEvent::Usable(set("0-3")))];
        let machine = machine(&fluid);
        let mut gone = 0;
        run_with(fluid, &machine, kind, &settings(50, 1), &mut |step| {
            for decision in &step.turn.decisions {
                gone += u32::from(matches!(decision.reason, Reason::Gone(_)));
            }
            Go::On
        });
        let held = matches!(kind, Kind::Speed | Kind::Exchange | Kind::Pinned | Kind::Auto);
        assert_eq!(gone >= 2, held, "{kind}: {gone}");
    }
}

#[test]
fn readings_that_are_lost_are_not_zero() {
    for (kind, most) in [(Kind::Exchange, 1.04), (Kind::Auto, 1.04), (Kind::Speed, 1.15)] {
        let mut fluid = Fluid::new(5, 2, WaitMode::Spin, Kernel::Keeps).long(2.0);
        fluid.lossy = Some(3);
        let ran = run(fluid, kind, &settings(50, 1));
        assert!(ran.ratio < most, "{kind}: {}", ran.ratio);
    }
    // A thread that is never read is never reported as slow.
    let script = Script::new("core:2 pu:1", Kind::Speed, &settings(50, 1), &["0-1"; 2]);
    let mut script = script.in_processes(&[NO_INITIAL; 2]);
    script.step(&all(&[ran(0.0, 0), ran(0.0, 1)]));
    let moved = script.pass(3.0, &[Some(ran(1.0, 0)), None]);
    assert!(moved.is_empty(), "{moved:?}");
}

#[test]
fn refusals_do_not_stop_the_rest() {
    for (kind, most) in [(Kind::Exchange, 1.1), (Kind::Auto, 1.1), (Kind::Speed, 1.2)] {
        let mut fluid = Fluid::new(3, 2, WaitMode::Spin, Kernel::Keeps).long(3.0);
        fluid.refuses = Some(5);
        let ran = run(fluid, kind, &settings(50, 1));
        assert!(ran.ratio < most, "{kind}: {}", ran.ratio);
    }
}

#[test]
fn a_jump_of_the_clock_moves_no_thread() {
    let mut script = Script::new("core:2 pu:1", Kind::Speed, &settings(50, 1), &["0-1"; 3]);
    script.pass(0.4, &uneven());
    script.next = script.next + Span::from_ms(3_600_000);
    script.notices.push(Notice::ClockJump(Span::from_ms(3_600_000)));
    let turn = script.step(&all(&[ran(0.0, 0), ran(0.0, 1), ran(0.0, 1)]));
    let slow = |decision: &trimtab_core::balance::Decision| match decision.reason {
        Reason::Slow { speed, .. } => speed == 0.0,
        _ => false,
    };
    assert!(!turn.decisions.iter().any(slow), "{:?}", turn.decisions);
    assert!(turn.next > script.now && turn.next < script.now + Span::from_ms(200));
}

#[test]
fn equal_seeds_give_equal_decisions_and_other_seeds_others() {
    let decisions = |kind: Kind, seed: u64| {
        let fluid = Fluid::new(9, 8, WaitMode::Yield, Kernel::Rotates);
        let machine = machine(&fluid);
        let mut all = Vec::new();
        run_with(fluid, &machine, kind, &settings(50, seed), &mut |step| {
            all.push((step.seen.at, step.turn.clone()));
            Go::On
        });
        all
    };
    for kind in Kind::ALL {
        assert!(decisions(kind, 7) == decisions(kind, 7), "{kind}");
    }
    for kind in [Kind::Speed, Kind::Nudge] {
        assert!(decisions(kind, 7) != decisions(kind, 8), "{kind}");
    }
}

#[test]
fn a_thread_of_another_scheduler_is_never_touched() {
    for kind in Kind::ALL {
        let mut script = Script::new("core:2 pu:1", kind, &settings(50, 1), &["0-1"; 3]);
        for at in 0..3 {
            script.leave(at, Some(Left::Scheduler("rusty".to_owned())));
        }
        let mut findings = Vec::new();
        for _ in 0..20 {
            let turn = script.step(&uneven());
            assert!(turn.decisions.is_empty(), "{kind}: {:?}", turn.decisions);
            findings.extend(turn.findings);
        }
        if kind == Kind::Auto {
            let finding = findings.last().unwrap().to_string();
            assert!(finding.contains("3 threads") && finding.contains("rusty"), "{finding}");
        }
    }
}

const MOVERS: [Kind; 4] = [Kind::Pinned, Kind::Exchange, Kind::Speed, Kind::Auto];

#[test]
fn a_move_that_lost_a_race_is_tried_again() {
    for kind in MOVERS {
        let mut script = Script::new("core:2 pu:1", kind, &settings(50, 1), &["0-1"; 3]);
        let mut refused = BTreeSet::new();
        let mut applied = BTreeSet::new();
        for _ in 0..40 {
            let raced = refused.clone();
            let turn = script.step_with(&uneven(), |decision| match raced.contains(&decision.thread) {
                true => Settled::Applied,
                false => Settled::Refused(Refusal::MovedMeanwhile),
            });
            for decision in &turn.decisions {
                if !refused.insert(decision.thread) {
                    applied.insert(decision.thread);
                }
            }
        }
        assert_eq!(applied.len(), 3, "{kind}");
    }
}

#[test]
fn the_delay_after_refusals_doubles() {
    for kind in MOVERS {
        let mut script = Script::new("core:2 pu:1", kind, &settings(50, 1), &["0-1"; 3]);
        let mut refused = Vec::new();
        while script.next.0 < 60_000_000_000 {
            let turn = script.step_with(&uneven(), |_| Settled::Refused(Refusal::MovedMeanwhile));
            refused.extend(turn.decisions.iter().map(|_| script.now));
        }
        // Three times in a row each, and then after one second, two, four and so on.
        assert!(refused.len() <= 3 * 9, "{kind}: {}", refused.len());
    }
}

#[test]
fn a_thread_that_binds_itself_is_never_moved_again() {
    for kind in MOVERS {
        let mut script = Script::new("core:2 pu:1", kind, &settings(50, 1), &["0-1"; 3]);
        let mut refused = 0;
        for _ in 0..200 {
            let turn = script.step_with(&uneven(), |_| Settled::Refused(Refusal::MovedMeanwhile));
            for decision in &turn.decisions {
                // The host reports this in its next sample; the checker ensures that no decision
                // concerns the thread any more.
                script.leave(decision.thread.0 as usize, Some(Left::MovedItself));
                refused += 1;
            }
        }
        assert_eq!(refused, 3, "{kind}");
    }
}

#[test]
fn a_thread_returned_by_another_balancer_is_balanced_again() {
    for left in [Left::Scheduler("rusty".to_owned()), Left::Balancer(7)] {
        for kind in MOVERS {
            let mut script = Script::new("core:2 pu:1", kind, &settings(50, 1), &["0-1"; 3]);
            let moved = |decisions: &[trimtab_core::balance::Decision]| -> BTreeSet<ThreadId> {
                let held = decisions.iter().filter(|decision| matches!(decision.act, Act::Confine(_)));
                held.map(|decision| decision.thread).collect()
            };
            let all = script.pass(0.5, &uneven());
            assert_eq!(moved(&all).len(), 3, "{kind}");
            (0..3).for_each(|at| script.leave(at, Some(left.clone())));
            assert_eq!(script.pass(3.0, &uneven()), [], "{kind}");
            (0..3).for_each(|at| script.leave(at, None));
            let all = script.pass(1.0, &uneven());
            assert_eq!(moved(&all).len(), 3, "{kind}: {all:?}");
        }
    }
}

#[test]
fn a_thread_that_does_not_compute_any_more_is_released() {
    for kind in [Kind::Auto, Kind::Exchange] {
        let mut script = Script::new("core:2 pu:1", kind, &settings(100, 1), &["0-1"; 4]);
        let busy = all(&[ran(0.7, 0), ran(0.7, 1), ran(0.3, 1), ran(0.3, 0)]);
        let at = |decisions: Vec<trimtab_core::balance::Decision>| {
            let of = |decision: &&trimtab_core::balance::Decision| decision.thread == ThreadId(3);
            decisions.iter().rfind(of).map(|decision| decision.act.clone())
        };
        assert!(matches!(at(script.pass(0.45, &busy)), Some(Act::Confine(_))), "{kind}");
        let light = all(&[ran(0.7, 0), ran(0.7, 1), ran(0.6, 1), slept(0.05, 0)]);
        let last = at(script.pass(1.6, &light));
        assert_eq!(last, Some(Act::Release), "{kind}");
        // The thread comes back when it computes again.
        assert!(matches!(at(script.pass(2.0, &busy)), Some(Act::Confine(_))), "{kind}");
    }
}

#[test]
fn a_trial_is_judged_though_threads_come_and_go() {
    let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &["0-1"; 4]);
    let four = all(&[ran(0.9, 0), ran(0.4, 1), ran(0.4, 1), ran(0.3, 0)]);
    let three = all(&[ran(1.0, 0), ran(0.9, 1), ran(0.3, 1), slept(0.0, 0)]);
    script.pass(0.5, &four);
    let decisions = script.pass(10.0, &three);
    let undone = decisions.iter().filter(|decision| decision.reason == Reason::Undo).count();
    assert!(undone >= 3, "{undone} of {}", decisions.len());
}

#[test]
fn bound_threads_that_freeing_does_not_help_are_bound_again() {
    let mut script = Script::new("core:3 pu:1", Kind::Auto, &freeing(100, 1), &["0", "1", "1"]);
    let did = all(&[ran(1.0, 0), ran(0.9, 1), ran(0.3, 1)]);
    let decisions = script.pass(1.5, &did);
    let undone: Vec<_> = decisions.iter().filter(|decision| decision.reason == Reason::Undo).collect();
    assert!(!undone.is_empty(), "{decisions:?}");
    assert!(undone.iter().all(|decision| decision.act == Act::Release), "{undone:?}");
}

#[test]
fn looking_costs_for_every_thread_that_is_there() {
    let step = |helpers: usize| {
        let homes = vec!["0-1"; 3 + helpers];
        let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(10_000, 1), &homes);
        let mut did = uneven();
        did.extend(vec![Some(slept(0.0, 0)); helpers]);
        while !script.step(&did).decisions.iter().any(|decision| matches!(decision.act, Act::Confine(_))) {}
        script.next.since(script.now)
    };
    // 0.4 % of one core, at a microsecond per thread.
    let costs = |helpers: u64| Span::from_us((3 + helpers) * 1_000 / 4);
    assert!(step(1_000) >= costs(1_000), "{}", step(1_000));
    assert!(step(100) >= costs(100) && step(100) < step(1_000));
}

#[test]
fn coming_and_going_does_not_keep_a_calm_program_under_watch() {
    let mut fluid = Fluid::new(2, 16, WaitMode::Spin, Kernel::Rotates).long(40.0);
    for at in 0..500 {
        let (born, life) = (0.08 * f64::from(at), 0.05 + 0.09 * f64::from(at % 7));
        fluid.thread(1.0, born, "0-15".parse().unwrap(), 2 + at as usize % 14);
        fluid.events.push((born + life, FluidEvent::End(2 + at as usize)));
    }
    fluid.events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let machine = machine(&fluid);
    let mut looks = 0;
    run_with(fluid, &machine, Kind::Auto, &settings(100, 1), &mut |_| {
        looks += 1;
        Go::On
    });
    // Forty seconds, with half-second samples and some rounds of watching: watched all the time,
    // there would be 800.
    assert!(looks < 250, "{looks}");
}

#[test]
fn quotas_fine_yielding_and_missing_waits_are_reported_and_not_treated() {
    let finding = |change: &dyn Fn(&mut Script)| {
        let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &["0-1"; 3]);
        let mut findings = Vec::new();
        while script.next.0 < 2_000_000_000 {
            change(&mut script);
            let turn = script.step(&uneven());
            assert!(turn.decisions.is_empty(), "{:?}", turn.decisions);
            findings.extend(turn.findings);
        }
        findings.last().unwrap().clone()
    };
    let quota = finding(&|script| script.throttled = Some(script.next.since(Default::default()).times(0.4)));
    assert!(matches!(quota, Finding::Quota { throttled } if (throttled - 0.4).abs() < 0.1), "{quota:?}");
    let fine = finding(&|script| script.switches = true);
    assert!(matches!(fine, Finding::TooFine { bound } if bound > Span::from_ms(10)), "{fine:?}");
    assert_eq!(finding(&|script| script.counts_waits = false), Finding::NoWaitTimes);
}

#[test]
fn an_unsuccessful_treatment_is_undone_and_followed_by_a_pause() {
    // The same thread is always at half speed, whatever the policy does: the fluid model would not
    // do this, a virtual machine's host may.
    let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &["0-1"; 3]);
    let did = all(&[ran(1.0, 0), ran(0.9, 1), ran(0.3, 1)]);
    let mut undone = Vec::new();
    let mut findings = Vec::new();
    while script.next.0 < 10_000_000_000 {
        let turn = script.step(&did);
        if turn
            .decisions
            .iter()
            .any(|decision| decision.reason == Reason::Undo && decision.act == Act::Release)
        {
            undone.push(script.now);
        }
        findings.extend(turn.findings);
    }
    assert!((1..=5).contains(&undone.len()), "{undone:?}");
    let gaps: Vec<Span> = undone.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "{gaps:?}");
    assert!(findings.contains(&Finding::NoGain));
}

#[test]
fn a_still_program_is_sampled_rarely_and_cheaply() {
    let mut script = Script::new("core:4 pu:1", Kind::Auto, &Settings::default(), &["0-3"; 3]);
    let calm = all(&[ran(1.0, 0), ran(1.0, 1), ran(1.0, 2)]);
    script.pass(5.0, &calm);
    let turn = script.step(&calm);
    assert_eq!(turn.next.since(script.now), Span::from_ms(500));
    assert!(!turn.wanted.places && !turn.wanted.cpus && !turn.wanted.sleeps);
}

#[test]
fn a_storm_of_short_threads_is_let_pass() {
    let mut fluid = Fluid::new(3, 2, WaitMode::Spin, Kernel::Keeps).long(2.0);
    for at in 0..400 {
        fluid.thread(0.001, 0.003 * f64::from(at), "0-1".parse().unwrap(), 0);
        fluid.events.push((0.003 * f64::from(at) + 0.002, FluidEvent::End(3 + at as usize)));
    }
    let calm = run(Fluid::new(3, 2, WaitMode::Spin, Kernel::Keeps).long(2.0), Kind::Auto, &settings(100, 1));
    let ran = run(fluid, Kind::Auto, &settings(100, 1));
    assert!(ran.moves <= calm.moves + 20, "{} moves, {} without the storm", ran.moves, calm.moves);
}

#[test]
fn ticks_and_daemons_are_no_hog() {
    let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &["0-1"; 2]);
    let moved = script.pass(5.0, &all(&[ran(0.96, 0), ran(0.97, 1)]));
    assert!(moved.is_empty(), "{moved:?}");
    let mut script = Script::new("core:2 pu:1", Kind::Auto, &settings(100, 1), &["0-1"; 2]);
    let moved = script.pass(0.3, &all(&[ran(0.67, 0), ran(0.67, 1)]));
    assert!(moved.iter().all(|decision| matches!(decision.reason, Reason::Fence { .. })), "{moved:?}");
    assert_eq!(moved.len(), 2);
}

/// Returns whether the action leaves a thread only one CPU.
fn is_bound(act: &Act) -> bool {
    act.to().is_some_and(|to| to.len() == 1)
}

/// Runs threads of these processes beside a program that takes half of a CPU. Returns when each was
/// first bound to one core, in seconds.
fn first_bound(processes: &[u32], seconds: u64) -> Vec<Option<f64>> {
    let homes = vec!["0-3"; processes.len()];
    let mut script =
        Script::new("core:4 pu:1", Kind::Auto, &settings(100, 1), &homes).in_processes(processes);
    let did: Vec<_> =
        (0..processes.len()).map(|at| ran(if at == 0 { 0.5 } else { 1.0 }, at as u32)).collect();
    let mut bound = vec![None; processes.len()];
    while script.next.0 < seconds * 1_000_000_000 {
        let at = script.next.since(Default::default()).seconds();
        for decision in script.step(&all(&did)).decisions {
            if is_bound(&decision.act) {
                bound[decision.thread.0 as usize].get_or_insert(at);
            }
        }
    }
    bound
}

#[test]
fn a_thread_that_computes_alone_beside_another_program_is_never_bound() {
    assert_eq!(first_bound(&[7], 60), [None]);
    let team = first_bound(&[7, 7], 2);
    assert!(team.iter().all(|at| at.is_some_and(|at| at < 0.5)), "{team:?}");
}

#[test]
fn ranks_of_one_thread_are_bound_once_they_have_computed_for_five_seconds() {
    for at in first_bound(&[7, 8, 9], 60) {
        assert!(at.is_some_and(|at| at > 5.0), "{at:?}");
    }
}

#[test]
fn a_worker_of_one_thread_beside_a_team_begins_free() {
    let bound = first_bound(&[7, 7, 8], 60);
    assert!(bound[..2].iter().all(|at| at.is_some_and(|at| at < 0.5)), "{bound:?}");
    assert!(bound[2].is_some_and(|at| at > 5.0), "{bound:?}");
}

#[test]
fn lone_threads_that_are_crowded_are_freed_and_not_bound() {
    let mut script =
        Script::new("core:2 pu:1", Kind::Auto, &freeing(100, 1), &["0", "0", "0-1"]).in_processes(&[7, 8, 9]);
    let did = all(&[ran(0.5, 0), ran(0.5, 0), ran(1.0, 1)]);
    let decisions = script.pass(1.0, &did);
    assert!(decisions.iter().all(|decision| !is_bound(&decision.act)), "{decisions:?}");
    let freed = decisions.iter().filter(|decision| decision.act.to().is_some()).count();
    assert_eq!(freed, 2, "{decisions:?}");
}
