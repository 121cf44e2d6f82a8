//! Tests of the uncore-penalty policies on a machine of nodes, and on a script.

use crate::nodes::{Nodes, NodesRun, run, settings};
use crate::script::{Script, ran};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::balance::{
    Act, BiasReading, Candidates, Decision, Finding, Kind, PenaltySettings, Reason, Settings,
};
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::ids::Id;
use trimtab_core::observe::Notice;
use trimtab_core::penalty::{Index, Mean};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const CLIMBERS: [Kind; 2] = [Kind::Brm, Kind::Serial];

fn with(kind: Kind, seed: u64, penalty: PenaltySettings) -> Settings {
    Settings { penalty, ..settings(kind, seed) }
}

/// Counts the moves: a thread that is bound to its node during a trial, and released afterwards, is
/// not moved.
fn moves<'a>(all: impl IntoIterator<Item = &'a (f64, Decision)>) -> usize {
    let mut kept = BTreeSet::new();
    let mut is_move = |decision: &Decision| match decision.reason {
        Reason::Steady => {
            kept.insert(decision.thread);
            false
        }
        Reason::Done => !kept.remove(&decision.thread),
        _ => {
            kept.remove(&decision.thread);
            true
        }
    };
    all.into_iter().filter(|(_, decision)| is_move(decision)).count()
}

fn said(ran: &NodesRun, wanted: impl Fn(&Finding) -> bool) -> usize {
    ran.findings.iter().filter(|(_, finding)| wanted(finding)).count()
}

#[test]
fn kept_moves_are_better_than_no_moves() {
    for (threads, nodes, cores) in [(4, 2, 4), (8, 2, 4), (8, 2, 8), (9, 3, 4)] {
        let (mut start, mut near) = (0.0, [0.0; 2]);
        for seed in 0..4 {
            let mut model = Nodes::mixed(seed, threads, nodes, cores);
            model.end = 16.0;
            let (best, first) = (model.best(), model.pace());
            start += first / best / 4.0;
            for (kind, near) in CLIMBERS.into_iter().zip(&mut near) {
                let ran = run(model.clone(), kind, &settings(kind, seed));
                let (of_start, moves) = (ran.late / first, moves(&ran.nodes.moves));
                assert!(
                    of_start > 0.97,
                    "{kind}: {threads} on {nodes} x {cores}, {seed}: {of_start} of the start"
                );
                assert!(moves <= 12 * 16, "{kind}: {moves} moves");
                *near += ran.late / best / 4.0;
            }
        }
        for (kind, near) in CLIMBERS.into_iter().zip(near) {
            let what = format!("{kind}: {threads} on {nodes} x {cores}: {near}, start {start}");
            assert!(near > start + 0.3 * (1.0 - start), "{what}");
        }
    }
}

#[test]
fn noise_does_not_make_threads_thrash() {
    for kind in CLIMBERS {
        for seed in 0..3 {
            // Nothing can be gained: no thread's data is anywhere, and threads of one kind are
            // spread evenly already.
            let mut model = Nodes::mixed(seed, 8, 2, 8).alike(1.0, 0, 0.0);
            (model.noise, model.end) = (0.27, 50.0);
            (0..8).for_each(|at| model.threads[at].node = at % 2);
            let first = model.pace();
            let ran = run(model, kind, &settings(kind, seed));
            let late = moves(ran.nodes.moves.iter().filter(|(at, _)| *at > 25.0));
            assert!(late < 50, "{kind}: {late} moves in the second half");
            assert!(ran.late > 0.96 * first, "{kind}: {} of {first}", ran.late);
            // A large gain is nevertheless found.
            let mut model = Nodes::mixed(seed, 4, 2, 8).alike(2.0, 0, 0.6);
            (model.noise, model.end, model.contention) = (0.27, 20.0, 0.1);
            model.threads.iter_mut().for_each(|thread| thread.node = 1);
            let (best, first) = (model.best(), model.pace());
            let ran = run(model, kind, &settings(kind, seed));
            assert!(ran.late > 0.9 * best, "{kind}: {} of {best}, first {first}", ran.late);
        }
    }
}

#[test]
fn nothing_gained_in_a_minute_is_undone_and_let_be() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(1, 4, 2, 4).alike(1.0, 0, 0.0);
        (model.end, model.contention) = (100.0, 0.0);
        (0..4).for_each(|at| model.threads[at].node = at % 2);
        let ran = run(model, kind, &settings(kind, 1));
        assert_eq!(
            said(&ran, |finding| *finding == Finding::NoGain),
            1,
            "{kind}: {:?}, {:?}",
            ran.findings,
            ran.nodes.moves
        );
        let since = ran.findings.iter().find(|(_, finding)| *finding == Finding::NoGain).unwrap().0;
        assert!((60.0..63.0).contains(&since), "{kind}: {since}");
        let after =
            ran.nodes.moves.iter().filter(|(at, decision)| *at > since + 0.1 && decision.act != Act::Release);
        assert_eq!(after.count(), 0, "{kind}");
        for at in 0..4 {
            assert_eq!(*ran.nodes.mask(at), ran.nodes.threads[at].home, "{kind}: thread {at}");
        }
    }
}

#[test]
fn expensive_samples_become_rare() {
    for (cost_us, ticks) in [(50, 0.010..0.011), (400, 0.038..0.044), (20_000, 0.9..1.2)] {
        let mut model = Nodes::mixed(1, 4, 2, 4);
        (model.end, model.cost) = (20.0, Some(Span::from_us(cost_us)));
        let ran = run(model, Kind::Brm, &settings(Kind::Brm, 1));
        let tick = 20.0 / ran.looks as f64;
        assert!(ticks.contains(&tick), "{cost_us} us a look: every {tick} s");
        let told = said(&ran, |finding| matches!(finding, Finding::Slowed { .. }));
        assert_eq!(told > 0, cost_us > 100, "{cost_us}: {:?}", ran.findings);
    }
    let generous = PenaltySettings { budget: 0.04, ..PenaltySettings::default() };
    let mut model = Nodes::mixed(1, 4, 2, 4);
    (model.end, model.cost) = (5.0, Some(Span::from_us(400)));
    let ran = run(model, Kind::Serial, &with(Kind::Serial, 1, generous));
    assert!(ran.looks > 450, "{}", ran.looks);
}

#[test]
fn moves_keep_their_rate() {
    for kind in CLIMBERS {
        let slow = PenaltySettings { moves: Some(1.0), ..PenaltySettings::default() };
        let mut model = Nodes::mixed(3, 8, 2, 8);
        model.end = 30.0;
        let ran = run(model.clone(), kind, &with(kind, 3, slow));
        let made = moves(&ran.nodes.moves);
        assert!(made <= 36, "{kind}: {made} moves in 30 s");
        let none = PenaltySettings { moves: Some(0.0), ..PenaltySettings::default() };
        let ran = run(model, kind, &with(kind, 3, none));
        assert_eq!(ran.nodes.moves.len(), 0, "{kind}: nobody is to be moved");
    }
}

#[test]
fn threads_that_come_and_go_and_cpus_that_are_lost_are_borne() {
    for kind in Kind::BY_PENALTY {
        for seed in 0..3 {
            let mut model = Nodes::mixed(seed, 10, 2, 4);
            model.end = 12.0;
            for (at, thread) in model.threads.iter_mut().enumerate().skip(5) {
                thread.born = at as f64 * 0.7;
                thread.ends = thread.born + 1.0 + at as f64 * 0.2;
            }
            model.threads[0].counted = false;
            let set = |text: &str| text.parse().unwrap();
            model.events = vec![(3.0, set("0-3")), (5.0, set("2,5")), (6.0, set("4-7")), (9.0, set("0-7"))];
            // The checker inside ensures that no thread is left on a lost CPU, and that ended
            // threads are not moved.
            let ran = run(model, kind, &settings(kind, seed));
            let touched = ran.nodes.moves.iter().any(|(at, _)| (0.0..3.0).contains(at));
            assert!(touched || kind == Kind::BrmPaper, "{kind}: nothing was moved at all");
        }
    }
}

#[test]
fn a_missing_index_is_reported_once_and_moves_no_thread() {
    for kind in Kind::BY_PENALTY {
        let mut model = Nodes::mixed(1, 4, 2, 4);
        model.rung = Rung::Nothing;
        model.end = 8.0;
        let ran = run(model, kind, &settings(kind, 1));
        assert_eq!(ran.nodes.moves.len(), 0, "{kind}");
        assert_eq!(said(&ran, |finding| *finding == Finding::Uncounted), 1, "{kind}: {:?}", ran.findings);
        let mut model = Nodes::mixed(1, 4, 1, 4);
        model.end = 8.0;
        let ran = run(model, kind, &settings(kind, 1));
        assert_eq!(
            (ran.nodes.moves.len(), said(&ran, |finding| *finding == Finding::OneUnit)),
            (0, 1),
            "{kind}"
        );
    }
}

#[test]
fn every_rung_brings_threads_to_their_memory() {
    for rung in [Rung::Exact, Rung::Proxy, Rung::Generic, Rung::HintFaults, Rung::Residency] {
        for kind in CLIMBERS {
            let mut model = Nodes::mixed(2, 4, 2, 8).alike(2.0, 0, 0.6);
            // Without counters there are two samples a second at most.
            let end = if rung.counts() { 16.0 } else { 120.0 };
            (model.rung, model.end, model.contention) = (rung, end, 0.1);
            model.threads.iter_mut().for_each(|thread| thread.node = 1);
            let (best, first) = (model.best(), model.pace());
            let ran = run(model, kind, &settings(kind, 2));
            assert!(ran.late > 0.95 * best, "{kind} on {rung}: {} of {best}, first {first}", ran.late);
        }
    }
}

/// On four nodes there are three others to try: if memory is reported per node, no thread tries
/// those that have less of it.
#[test]
fn with_the_nodes_of_memory_known_threads_move_to_it_directly() {
    for rung in [Rung::HintFaults, Rung::Residency] {
        for kind in CLIMBERS {
            let mut model = Nodes::mixed(2, 3, 4, 4).alike(2.0, 0, 0.6);
            (model.rung, model.end, model.contention) = (rung, 60.0, 0.0);
            for (at, thread) in model.threads.iter_mut().enumerate() {
                // The last thread is already on the node of its memory.
                (thread.data, thread.node) = (at, if at == 2 { 2 } else { at + 1 });
            }
            let mut asked = model.clone();
            let ran = run(model, kind, &settings(kind, 2));
            let nodes: Vec<usize> = ran.nodes.threads.iter().map(|thread| thread.node).collect();
            assert_eq!(nodes, [0, 1, 2], "{kind} on {rung}");
            let made = &ran.nodes.moves;
            for (time, decision) in made.iter().filter(|(_, decision)| decision.reason == Reason::Explore) {
                let to = decision.act.to().and_then(CpuSet::first).unwrap().index() / 4;
                assert!(to == decision.thread.index() && *time < 20.0, "{kind} on {rung}: {made:?}");
            }
            assert_eq!(moves(made), 2, "{kind} on {rung}: {made:?}");
            // There they no longer suffer, and they are bound there; otherwise the kernel would
            // move them away again.
            let kept = |node: usize| ran.nodes.is_kept(node, node);
            assert!(kept(0) && kept(1) && !kept(2), "{kind} on {rung}: {made:?}");
            // A tagged thread that is already on its node is bound there.
            asked.threads.iter_mut().for_each(|thread| thread.tagged = true);
            let ran = run(asked, kind, &settings(kind, 2));
            assert!(
                (0..3).all(|node| ran.nodes.is_kept(node, node)),
                "{kind} on {rung}: {:?}",
                ran.nodes.moves
            );
        }
    }
}

#[test]
fn every_index_can_be_chosen() {
    for index in [Index::Penalty, Index::Busy, Index::Share, Index::Cpi] {
        for mean in Mean::ALL {
            let own = PenaltySettings { index: Some(index), mean: Some(mean), ..PenaltySettings::default() };
            let mut model = Nodes::mixed(2, 4, 2, 8).alike(2.0, 0, 0.6);
            (model.end, model.contention) = (12.0, 0.1);
            model.threads.iter_mut().for_each(|thread| thread.node = 1);
            let (best, first) = (model.best(), model.pace());
            let ran = run(model, Kind::Brm, &with(Kind::Brm, 2, own));
            assert!(ran.late > 0.9 * best, "{index} {mean}: {} of {best}, first {first}", ran.late);
        }
    }
}

#[test]
fn a_thread_that_computes_from_its_caches_is_left_alone() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 6, 2, 4).alike(0.02, 0, 0.6);
        model.end = 8.0;
        let ran = run(model.clone(), kind, &settings(kind, 2));
        assert_eq!(ran.nodes.moves.len(), 0, "{kind}");
        assert_eq!(said(&ran, |finding| *finding == Finding::NothingStalls), 1, "{kind}: {:?}", ran.findings);
        // Two exceptions: a tagged thread, and candidates that the settings choose.
        model.threads[3].tagged = true;
        let ran = run(model.clone(), kind, &settings(kind, 2));
        let moved = |ran: &NodesRun| ran.nodes.moves.iter().any(|(_, decision)| decision.thread.0 == 3);
        assert!(moved(&ran), "{kind}");
        let tagged = PenaltySettings { candidates: Candidates::Tagged, ..PenaltySettings::default() };
        let ran = run(model.clone(), kind, &with(kind, 2, tagged));
        assert!(ran.nodes.moves.iter().all(|(_, decision)| decision.thread.0 == 3), "{kind}");
        let all = PenaltySettings { candidates: Candidates::All, ..PenaltySettings::default() };
        assert!(!run(model, kind, &with(kind, 2, all)).nodes.moves.is_empty(), "{kind}");
    }
}

#[test]
fn a_program_without_stalls_is_sampled_rarely_until_it_stalls() {
    let between =
        |times: &[f64], from: f64, to: f64| times.iter().filter(|at| (from..to).contains(*at)).count();
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 6, 2, 4).alike(2.0, 0, 0.6);
        // All suffer, then all compute from their caches.
        (model.end, model.calms) = (20.0, (0..6).map(|thread| (4.0, thread)).collect());
        let ran = run(model, kind, &settings(kind, 2));
        let looked = &ran.nodes.looked;
        assert!(between(looked, 0.0, 4.0) >= 395, "{kind}: every 10 ms");
        // Five seconds until no thread is a candidate, and two more.
        let late = between(looked, 14.0, 20.0);
        assert!((58..=62).contains(&late), "{kind}: {late} looks in six seconds");
        // The opposite case.
        let mut model = Nodes::mixed(2, 6, 2, 4).alike(0.02, 0, 0.6);
        (model.end, model.worries) = (20.0, vec![(8.0, 3, 2.0)]);
        let ran = run(model, kind, &settings(kind, 2));
        let looked = &ran.nodes.looked;
        let (calm, after) = (between(looked, 4.0, 8.0), between(looked, 10.0, 14.0));
        assert!((38..=42).contains(&calm) && after >= 395, "{kind}: {calm}, {after}");
        // No thread is moved because of samples of two kinds.
        assert!(ran.nodes.moves.iter().all(|(at, _)| *at > 8.0), "{kind}");
    }
}

#[test]
fn the_cpu_of_a_thread_is_read_at_each_sample_only_if_it_computes() {
    for kind in CLIMBERS {
        let of = |wants: f64| {
            let mut model = Nodes::mixed(2, 6, 2, 4).alike(2.0, 0, 0.6);
            (model.end, model.wants) = (5.0, wants);
            // All threads may be moved, and none is.
            model.threads.iter_mut().for_each(|thread| thread.tagged = true);
            let ran = run(
                model,
                kind,
                &with(kind, 2, PenaltySettings { moves: Some(0.0), ..PenaltySettings::default() }),
            );
            (ran.nodes.looked.len(), ran.nodes.placed.len())
        };
        let (looks, places) = of(1.0);
        assert!(looks >= 495 && places == looks, "{kind}: {places} of {looks}");
        let (looks, places) = of(0.05);
        assert!(looks >= 495 && (24..80).contains(&places), "{kind}: {places} of {looks}");
    }
}

#[test]
fn memory_follows_threads_that_stayed_together_elsewhere() {
    // The data is on node 1, but another program's memory work disturbs there: all are better off
    // on node 0.
    let model = || {
        let mut model = Nodes::mixed(2, 2, 2, 4).alike(2.0, 0, 0.6);
        (model.end, model.contention, model.fetches) = (12.0, 0.0, true);
        model.threads.iter_mut().for_each(|thread| thread.node = 1);
        model
    };
    let fetches = |ran: &NodesRun| {
        let fetch = |(at, decision): &(f64, trimtab_core::balance::Decision)| {
            (decision.reason == Reason::Stayed).then_some((*at, decision.act.clone()))
        };
        ran.nodes.moves.iter().filter_map(fetch).collect::<Vec<_>>()
    };
    for kind in CLIMBERS {
        let asked = PenaltySettings { move_memory: true, ..PenaltySettings::default() };
        let ran = run(model(), kind, &with(kind, 2, asked.clone()));
        let found = fetches(&ran);
        assert_eq!(found.len(), 1, "{kind}: {found:?}");
        assert!(matches!(found[0].1, Act::Fetch(node) if node.0 == 0), "{kind}: {found:?}");
        // The first move of each thread to that node: it was bound there, even if it was sent back
        // once as a test.
        for thread in 0..2 {
            let to = |decision: &trimtab_core::balance::Decision| {
                decision.thread.0 == thread && decision.act.to().is_some_and(|to| to.to_string() == "0-3")
            };
            let came = ran.nodes.moves.iter().find(|(_, decision)| to(decision)).unwrap().0;
            assert!(found[0].0 > came + 1.0, "{kind}: thread {thread} came at {came}: {found:?}");
        }
        assert_eq!(fetches(&run(model(), kind, &settings(kind, 2))), [], "{kind}: not asked for");
        // A host that refuses once is not asked again.
        let mut refuses = model();
        refuses.fetches = false;
        assert_eq!(fetches(&run(refuses, kind, &with(kind, 2, asked))).len(), 1, "{kind}");
    }
}

#[test]
fn a_thread_that_waits_for_a_cpu_where_it_was_put_is_released() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 4, 2, 4).alike(2.0, 0, 0.6);
        (model.end, model.contention) = (12.0, 0.1);
        model.threads.iter_mut().for_each(|thread| thread.node = 1);
        // The threads come to node 0, of which then one CPU is left.
        model.events = vec![(8.0, "0,4-7".parse().unwrap())];
        let ran = run(model, kind, &settings(kind, 2));
        let crowded = ran.nodes.moves.iter().filter(|(at, decision)| {
            *at > 8.0 && matches!(decision.reason, Reason::Crowded { .. }) && decision.act == Act::Release
        });
        assert!(crowded.count() >= 1, "{kind}: {:?}", ran.nodes.moves);
    }
}

#[test]
fn a_thread_that_waits_no_more_than_others_is_not_released_for_it() {
    for kind in CLIMBERS {
        let mut model = Nodes::mixed(2, 4, 2, 4).alike(2.0, 0, 0.6);
        (model.end, model.contention, model.late) = (30.0, 0.1, 0.3);
        model.threads.iter_mut().for_each(|thread| thread.node = 1);
        let ran = run(model, kind, &settings(kind, 2));
        let crowded =
            ran.nodes.moves.iter().find(|(_, decision)| matches!(decision.reason, Reason::Crowded { .. }));
        assert_eq!(crowded, None, "{kind}");
        assert!(!ran.nodes.moves.is_empty(), "{kind}: somebody is put somewhere");
    }
}

/// Independent version of the slides' pseudo code: one state per thread, with numbers from the
/// generator of Steele, Lea and Flood.
struct Slides {
    state: u64,
    nodes: usize,
    reading: BiasReading,
    minds: BTreeMap<usize, (Vec<f64>, i64, usize)>,
}

impl Slides {
    fn hundred(&mut self) -> i64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * 100) >> 64) as i64
    }

    /// Returns the node to which the thread goes, if it moves.
    fn tick(&mut self, thread: usize, node: usize, global: f64) -> Option<usize> {
        let draw = self.hundred();
        let first = if self.reading == BiasReading::Zeroed { 0 } else { (node + 1) % self.nodes };
        let (unc, prob, bias) = self.minds.entry(thread).or_insert((vec![0.0; self.nodes], 0, first));
        unc[node] = global;
        if unc.iter().any(|other| *other < global) {
            *prob += 1;
            if self.reading == BiasReading::Least {
                *bias = (0..self.nodes).min_by(|a, b| unc[*a].total_cmp(&unc[*b])).unwrap();
            }
        } else {
            *prob -= 1;
            *bias = node;
        }
        if draw < *prob {
            *prob = 0;
            return Some(*bias).filter(|bias| *bias != node);
        }
        None
    }
}

#[test]
fn the_published_rule_is_played_to_the_letter_in_each_reading() {
    let cases = [(0, None, 2), (7, Some(2), 2), (99, None, 2), (3, None, 3), (4, Some(1), 3)];
    let all = BiasReading::ALL.into_iter().flat_map(|reading| cases.map(|case| (reading, case)));
    for (reading, (seed, tagged, nodes)) in all {
        let mut settings = settings(Kind::BrmPaper, seed);
        settings.penalty.bias = reading;
        let machine = format!("numa:{nodes} l3:1 core:2 pu:1");
        let mut script = Script::new(&machine, Kind::BrmPaper, &settings, &["0-5"; 4]);
        script.notices.push(Notice::Counting(Rung::Exact));
        if let Some(at) = tagged {
            script.tag(at);
        }
        let mut slides = Slides { state: seed, nodes, reading, minds: BTreeMap::new() };
        let mut places = [0_u32, 1, 2, 3];
        let mut last = [None; 4];
        let mut moves = 0;
        for look in 0..1500_u64 {
            // Counts of each thread, which depend on its node; the last thread is not counted in
            // every sample.
            let counted: Vec<Option<Counts>> = (0..4_u64)
                .map(|at| {
                    let node = u64::from(places[at as usize] / 2);
                    let cycles = 50 + 40 * ((at + node + look / 300) % nodes as u64) + (look * (7 + at)) % 13;
                    let counts = Counts {
                        enabled: Span::from_ms(10),
                        running: Span::from_ms(10),
                        busy: Some(1000 * cycles),
                        requests: Some(1000),
                        ..Counts::default()
                    };
                    // Some samples have no counts at all.
                    ((at != 3 || look % 3 == 0) && look % 50 != 17).then_some(counts)
                })
                .collect();
            let none = counted.iter().all(Option::is_none);
            script.count(&counted);
            let did: Vec<_> = places.iter().map(|cpu| Some(ran(1.0, *cpu))).collect();
            let turn = script.step(&did);
            let mut wanted = Vec::new();
            // There is no difference before the second reading.
            if look > 0 {
                for (last, counts) in last.iter_mut().zip(&counted) {
                    let penalty =
                        |counts: &Counts| counts.busy.unwrap() as f64 / counts.requests.unwrap() as f64;
                    *last = counts.as_ref().map(penalty).or(*last);
                }
                let global: f64 = last.iter().flatten().sum();
                let candidates: Vec<usize> = tagged.map_or_else(|| (0..4).collect(), |at| vec![at]);
                for at in candidates.into_iter().filter(|_| !none) {
                    if let Some(to) = slides.tick(at, places[at] as usize / 2, global) {
                        wanted.push((at, to));
                    }
                }
            }
            let found: Vec<(usize, usize)> = turn
                .decisions
                .iter()
                .map(|decision| {
                    let Act::Nudge(to) = &decision.act else { panic!("{decision:?}") };
                    assert_eq!(to.len(), 2, "a whole node");
                    (decision.thread.0 as usize, to.first().unwrap().0 as usize / 2)
                })
                .collect();
            assert_eq!(found, wanted, "look {look}, seed {seed}, {reading:?}");
            for (at, to) in found {
                places[at] = 2 * to as u32 + at as u32 % 2;
                moves += 1;
            }
        }
        // A bias that starts at node 0 keeps a thread there for ever.
        let stays = reading == BiasReading::Zeroed && tagged.is_some_and(|at| at < 2);
        assert_eq!(moves > 0, !stays, "seed {seed}, {reading:?}: {moves} moves");
    }
}

#[test]
fn a_thread_that_cannot_be_moved_keeps_its_readiness() {
    // One thread; of three nodes the next one is not usable for a while, and the thread suffers
    // more on its own node than anywhere else.
    for seed in 0..6 {
        let settings = settings(Kind::BrmPaper, seed);
        let mut script = Script::new("numa:3 l3:1 core:2 pu:1", Kind::BrmPaper, &settings, &["0-5"]);
        script.notices.push(Notice::Counting(Rung::Exact));
        script.notices.push(Notice::Usable("0-1,4-5".parse().unwrap()));
        let counts = Counts {
            enabled: Span::from_ms(10),
            running: Span::from_ms(10),
            busy: Some(50_000),
            requests: Some(1_000),
            ..Counts::default()
        };
        let mut look = |notice: Option<Notice>| {
            script.notices.extend(notice);
            script.count(&[Some(counts)]);
            script.step(&[Some(ran(1.0, 0))]).decisions
        };
        assert!((0..150).all(|_| look(None).is_empty()), "seed {seed}");
        // By now the draw is practically certain.
        let went = look(Some(Notice::Usable("0-5".parse().unwrap())));
        assert!(
            matches!(&went[..], [one] if matches!(&one.act, Act::Nudge(to) if to.to_string() == "2-3")),
            "seed {seed}: {went:?}"
        );
    }
}
