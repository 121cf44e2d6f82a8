//! Tests that each checker catches its kind of fault: in worlds and hosts that were tampered with,
//! and under policies that are wrong on purpose.

use super::*;
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::observer_cost::ObserverCost;
use crate::program::{Body, ProgramSpec, WaitMode};
use crate::scenario::watched_under;
use crate::world::Activity;
use trimtab_core::balance::{Act, Decision, Kind, Policy, Reason, Settings, Turn, Wanted};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::Observation;
use trimtab_core::topology::parse_synthetic;

fn spmd(threads: u32, ms: u64) -> ProgramSpec {
    ProgramSpec::spmd("app", threads, Span::from_ms(ms), WaitMode::Spin)
}

fn scenario(cpus: usize, kernel: &str, programs: Vec<ProgramSpec>, seconds: u64) -> Scenario {
    Scenario {
        name: "watched".to_owned(),
        model: Model::plain(parse_synthetic(&format!("core:{cpus}")).unwrap()),
        kernel: Kernel::preset(kernel, cpus).unwrap(),
        programs,
        arrivals: Vec::new(),
        policy: None,
        events: Vec::new(),
        faults: Faults::default(),
        observer_cost: ObserverCost::default(),
        end: Moment(seconds * 1_000_000_000),
        seed: 1,
        memory: true,
    }
}

/// Watcher that shows the judge scenes that were tampered with.
struct Tampered<F> {
    judge: Judge,
    tamper: F,
}

impl<F: FnMut(&mut Scene)> Watcher for Tampered<F> {
    fn world(&mut self, world: &World<Memory>) {
        let mut scene = Scene::of(world);
        (self.tamper)(&mut scene);
        self.judge.scene(scene);
    }
    fn step(&mut self, step: &Step<'_>) -> Go {
        self.judge.step(step)
    }
    fn end(&mut self, world: &World<Memory>) {
        let mut scene = Scene::of(world);
        (self.tamper)(&mut scene);
        self.judge.last(&scene);
    }
}

fn tampered(scenario: &Scenario, tamper: impl FnMut(&mut Scene)) -> Vec<Invariant> {
    let mut watch = Tampered { judge: Judge::new(scenario), tamper };
    watched(scenario, SCENE_PERIOD, &mut watch);
    invariants(watch.judge)
}

fn invariants(judge: Judge) -> Vec<Invariant> {
    let mut invariants: Vec<Invariant> =
        judge.violations().iter().map(|violation| violation.invariant).collect();
    invariants.sort_unstable();
    invariants.dedup();
    invariants
}

/// Policy that follows a script, a function of the time in milliseconds.
struct Scripted<F> {
    script: F,
    samples: u64,
}

impl<F: FnMut(u64, &Observation<'_>) -> Vec<Decision>> Policy for Scripted<F> {
    fn kind(&self) -> Kind {
        Kind::Speed
    }
    fn first(&self) -> Wanted {
        Wanted::all()
    }
    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        self.samples += 1;
        let decisions = (self.script)(self.samples, seen);
        Turn { decisions, findings: Vec::new(), next: seen.at + Span::from_ms(20), wanted: Wanted::all() }
    }
}

/// Returns the broken invariants when such a policy balances a scenario.
fn under(scenario: Scenario, script: fn(u64, &Observation<'_>) -> Vec<Decision>) -> Vec<Invariant> {
    instead_of(Kind::Speed, scenario, script)
}

/// Returns the same by the terms of another policy.
fn instead_of(
    kind: Kind,
    mut scenario: Scenario,
    script: impl FnMut(u64, &Observation<'_>) -> Vec<Decision>,
) -> Vec<Invariant> {
    let settings = Settings { interval: Span::from_ms(20), ..Settings::default() };
    if scenario.policy.is_none() {
        scenario.policy = Some((kind, settings));
    }
    let mut judge = Judge::new(&scenario);
    let mut policy = Scripted { script, samples: 0 };
    watched_under(&scenario, Some(&mut policy), SCENE_PERIOD, &mut judge);
    invariants(judge)
}

fn put(thread: u32, to: &str, reason: Reason) -> Decision {
    Decision { thread: ThreadId(thread), act: Act::Confine(to.parse().unwrap()), reason, gain: None }
}

fn slow() -> Reason {
    Reason::Slow { speed: 0.5, mean: 1.0 }
}

#[test]
fn a_correct_run_breaks_no_invariant() {
    for kernel in Kernel::PRESETS {
        let mut programs = vec![spmd(5, 900).every(Span::from_ms(7)), ProgramSpec::hog("hog", 1)];
        programs.push(ProgramSpec {
            body: Body::Nested { inner: 2, regions: 9, work: Span::from_ms(20) },
            ..spmd(2, 0)
        });
        for policy in [None, Some((Kind::Exchange, Settings::default()))] {
            let scenario = Scenario { policy, ..scenario(4, kernel, programs.clone(), 6) };
            assert_eq!(check(&scenario).1, [], "{kernel}");
        }
    }
}

#[test]
fn watching_changes_nothing() {
    let policy = Some((Kind::Speed, Settings::default()));
    let scenario =
        Scenario { policy, ..scenario(3, "linux-6.12", vec![spmd(5, 700).every(Span::from_ms(9))], 9) };
    let alone = crate::scenario::run(&scenario, &mut |_| {}, &mut |_| Go::On);
    assert_eq!(check(&scenario).0, alone);
}

#[test]
fn lost_and_doubled_work_is_missed() {
    let whole = || scenario(2, "linux-6.12", vec![spmd(3, 300)], 9);
    let lost = tampered(&whole(), |scene| {
        if let Some(thread) = scene.threads.get_mut(1) {
            thread.done *= 0.9;
        }
    });
    assert_eq!(lost, [Invariant::Work]);
    let unfinished = tampered(&whole(), |scene| {
        for thread in &mut scene.threads {
            (thread.done, thread.asked) = (thread.done / 2.0, thread.asked / 2.0);
            thread.left /= 2.0;
        }
    });
    assert_eq!(unfinished, [Invariant::Work], "each thread is right, the program is not");
    let faster = tampered(&whole(), |scene| {
        for thread in &mut scene.threads {
            thread.done *= 3.0;
            (thread.asked, thread.left) = (thread.done, 0.0);
        }
    });
    assert_eq!(faster, [Invariant::Work]);
}

#[test]
fn lost_time_is_missed() {
    let whole = scenario(2, "linux-6.12", vec![spmd(3, 300)], 9);
    let idle = tampered(&whole, |scene| scene.busy[0].1 = scene.busy[0].1.times(0.5));
    assert_eq!(idle, [Invariant::Time]);
    let unaccounted = tampered(&whole, |scene| {
        if let Some(thread) = scene.threads.get_mut(0) {
            thread.wait = thread.wait.times(0.5);
        }
    });
    assert_eq!(unaccounted, [Invariant::Time]);
}

#[test]
fn a_counter_that_decreases_is_detected() {
    let whole = scenario(2, "linux-6.12", vec![spmd(3, 300)], 9);
    let threads = tampered(&whole, |scene| {
        if let Some(thread) = scene.threads.get_mut(0).filter(|_| scene.at.0 > 200_000_000) {
            thread.slices = 0;
        }
    });
    assert_eq!(threads, [Invariant::Counters]);
    let run = tampered(&whole, |scene| scene.counters.switches = 1_000_000 - scene.at.0 / 1_000_000);
    assert_eq!(run, [Invariant::Counters]);
}

#[test]
fn a_cpu_that_rests_beside_work_is_caught() {
    // A CPU of a kernel that pulls cannot be kept idle, so this kernel pins and is judged as one
    // that pulls.
    let bound = |kernel: &str| {
        let mut scenario = scenario(2, kernel, vec![spmd(1, 3_000), spmd(1, 3_000)], 9);
        scenario.programs[1].name = "other".to_owned();
        scenario
    };
    let honest = check(&bound("pinned")).1;
    assert_eq!(honest, []);
    let mut judge = Judge::new(&bound("linux-6.12"));
    watched(&bound("pinned"), SCENE_PERIOD, &mut judge);
    // Both programs begin on CPU 0 there.
    assert_eq!(invariants(judge), [Invariant::Idle]);
}

#[test]
fn a_thread_that_never_runs_is_detected() {
    let whole = scenario(1, "linux-6.12", vec![spmd(2, 3_000)], 9);
    let starved = tampered(&whole, |scene| {
        let at = scene.at.since(Moment(0));
        if let [first, second] = &mut scene.threads[..] {
            // The second thread's time becomes the first one's.
            first.run = first.run + second.run;
            (first.done, first.asked) = (first.done + second.done, first.asked + second.done);
            first.wait = at.less(first.run);
            (second.run, second.wait, second.slices) = (Span::ZERO, at, 0);
            (second.done, second.asked) = (0.0, second.left);
            second.activity = Activity::Queued;
        }
    });
    assert!(starved.contains(&Invariant::Starving), "{starved:?}");
}

#[test]
fn a_thread_that_leaves_its_mask_is_detected() {
    let one = || scenario(2, "linux-6.12", vec![spmd(2, 300).on("0".parse().unwrap())], 9);
    let outside = tampered(&one(), |scene| {
        for thread in &mut scene.threads {
            thread.cpu = trimtab_core::ids::OsCpu(1);
        }
    });
    assert_eq!(outside, [Invariant::Masks]);
    let lost = tampered(&one(), |scene| scene.usable = "1".parse().unwrap());
    assert!(lost.contains(&Invariant::Masks));
    let wide = tampered(&one(), |scene| {
        if let Some(thread) = scene.threads.get_mut(0).filter(|_| scene.at.0 > 100_000_000) {
            thread.mask = "0-1".parse().unwrap();
        }
    });
    assert_eq!(wide, [Invariant::Masks], "no decision says so");
    let ends = Moment(5_000_000_000);
    let mut left = scenario(2, "linux-6.12", vec![spmd(2, 9_000)], 5);
    left.policy = Some((Kind::Pinned, Settings::default()));
    assert_eq!(check(&left).1, []);
    let mut at = 0;
    let kept = tampered(&left, |scene| {
        at += u64::from(scene.at == ends);
        // The last scene, after all masks were given back.
        if at == 2 {
            scene.threads[0].mask = "0".parse().unwrap();
        }
    });
    assert_eq!(kept, [Invariant::Masks]);
}

#[test]
fn a_policy_that_oscillates_is_caught() {
    // Two threads on two CPUs change places at each sample, without a benefit.
    let found = under(scenario(2, "linux-6.12", vec![spmd(2, 9_000)], 8), |turn, _| {
        let (one, other) = if turn % 2 == 0 { ("0", "1") } else { ("1", "0") };
        if turn == 1 { Vec::new() } else { vec![put(0, one, slow()), put(1, other, slow())] }
    });
    assert_eq!(found, [Invariant::Trips, Invariant::Settling]);
}

#[test]
fn a_policy_that_crowds_is_caught() {
    // All threads stay on one CPU of four: none starves and none moves, and it is still wrong.
    let found = under(scenario(4, "linux-6.12", vec![spmd(4, 20_000)], 8), |turn, seen| {
        let threads = if turn == 2 { seen.threads.len() as u32 } else { 0 };
        (0..threads).map(|thread| put(thread, "0", Reason::Start)).collect()
    });
    assert_eq!(found, [Invariant::Settling]);
}

#[test]
fn a_policy_that_moves_for_balance_while_no_thread_waits_never_settles() {
    let found = under(scenario(4, "linux-6.12", vec![spmd(1, 20_000)], 8), |turn, _| {
        if turn == 1 { Vec::new() } else { vec![put(0, ["0", "1", "2", "3"][turn as usize % 4], slow())] }
    });
    assert!(found.contains(&Invariant::Settling), "{found:?}");
}

#[test]
fn moves_for_memory_are_rare_and_concern_stalling_threads() {
    let to_and_fro = |turn: u64, _: &Observation<'_>| {
        vec![put(0, if turn.is_multiple_of(2) { "0-1" } else { "2-3" }, Reason::Explore)]
    };
    let seldom = |turn: u64, seen: &Observation<'_>| {
        if turn % 10 > 1 { Vec::new() } else { to_and_fro(turn, seen) }
    };
    let quiet = || scenario(4, "linux-6.12", vec![spmd(1, 20_000)], 5);
    // These moves are not trials; other invariants cover those.
    let caught = |invariants: Vec<Invariant>| invariants.contains(&Invariant::Moves);
    assert!(caught(instead_of(Kind::BrmPaper, quiet(), seldom)), "no thread stalls");
    let far = || {
        let mut scenario = scenario(4, "linux-6.12", vec![spmd(1, 20_000)], 5);
        let westmere = crate::model::shipped::find("westmere-e5620").unwrap().unwrap();
        (scenario.model.caches, scenario.model.memory) = (westmere.caches, westmere.memory);
        scenario.programs[0].footprint = crate::program::mixes::walk(1 << 26);
        scenario
    };
    assert!(!caught(instead_of(Kind::Brm, far(), seldom)));
    assert!(caught(instead_of(Kind::Brm, far(), to_and_fro)));
    assert!(!caught(instead_of(Kind::BrmPaper, far(), to_and_fro)), "the published rule has no such limit");
    let crowded = |_: u64, _: &Observation<'_>| {
        vec![Decision { act: Act::Release, ..put(0, "0", Reason::Crowded { waits: 0.5 }) }]
    };
    assert!(
        caught(instead_of(Kind::Serial, far(), crowded)),
        "a thread that is released because of crowding is moved"
    );
    // If no move is allowed, one is too many.
    let once = |turn: u64, _: &Observation<'_>| {
        if turn == 9 { vec![put(0, "0-1", Reason::Explore)] } else { Vec::new() }
    };
    let none = || {
        let mut settings = Settings { interval: Span::from_ms(20), ..Settings::default() };
        settings.penalty.moves = Some(0.0);
        Scenario { policy: Some((Kind::Brm, settings)), ..far() }
    };
    assert!(caught(instead_of(Kind::Brm, none(), once)) && !caught(instead_of(Kind::Brm, far(), once)));
}

#[test]
fn a_policy_that_exceeds_its_rights_is_detected() {
    let home = || scenario(4, "linux-6.12", vec![spmd(2, 900).on("0-1".parse().unwrap())], 2);
    let outside =
        under(home(), |turn, _| if turn == 3 { vec![put(0, "3", Reason::Start)] } else { Vec::new() });
    assert_eq!(outside, [Invariant::Turns]);
    let nowhere =
        under(home(), |turn, _| if turn == 3 { vec![put(0, "9", Reason::Start)] } else { Vec::new() });
    assert_eq!(nowhere, [Invariant::Turns], "the host refuses that, and it must not be asked");
}

#[test]
fn a_policy_that_does_nothing_breaks_nothing() {
    assert_eq!(under(scenario(2, "linux-6.12", vec![spmd(3, 900)], 4), |_, _| Vec::new()), []);
}

#[test]
fn of_one_law_a_few_violations_are_kept() {
    let whole = scenario(2, "linux-6.12", vec![spmd(3, 300)], 9);
    let mut watch =
        Tampered { judge: Judge::new(&whole), tamper: |scene: &mut Scene| scene.counters.ran = Span(7) };
    watched(&whole, SCENE_PERIOD, &mut watch);
    let found = watch.judge.violations();
    assert_eq!(found.len(), VIOLATIONS_MAX);
    assert!(found.is_sorted_by_key(|violation| violation.at));
    assert!(found[0].to_string().starts_with("time at "), "{}", found[0]);
}

/// Returns two processes with teams of four threads in a hold of four cores; the second one waits
/// for 30 ms after each of its regions, and ends later.
fn of_hold() -> Scenario {
    of_hold_with(8)
}

/// As [`of_hold`], with this work of each region of the second process, ms.
fn of_hold_with(work: u64) -> Scenario {
    let process = |name: &str, regions: u32, work: u64, pause: Option<Span>| ProgramSpec {
        body: Body::Teams { regions, work: Span::from_ms(work), pause, hold: Some(7) },
        ..ProgramSpec::spmd(name, 4, Span::ZERO, WaitMode::Sleep)
    };
    let pause = Some(Span::from_ms(30));
    scenario(4, "linux-6.12", vec![process("busy", 400, 8, None), process("waits", 60, work, pause)], 60)
}

#[test]
fn teams_that_take_cores_of_others_are_caught() {
    let budget_with = |work: u64, tamper: fn(&mut crate::world::BudgetView, usize)| {
        tampered(&of_hold_with(work), |scene| {
            for (at, program) in scene.programs.iter_mut().enumerate() {
                if let Some(view) = program.budget.as_mut().filter(|view| view.size > 0) {
                    tamper(view, at);
                }
            }
        })
    };
    let budget = |tamper| budget_with(8, tamper);
    assert_eq!(budget(|_, _| {}), []);
    let broken = [Invariant::Budget];
    assert_eq!(budget(|view, _| view.size = 5), broken, "more than it asks for");
    assert_eq!(budget(|view, at| view.size -= u32::from(at == 1)), broken, "less than half of the cores");
    assert_eq!(budget(|view, _| view.passed_over = view.opened + Span::from_ms(1_000_000)), broken);
    // What the first one borrowed does not come back.
    assert_eq!(budget(|view, _| (view.size, view.came) = (4, Moment(0))), broken);
    // It keeps them in the regions of the other one, which are longer than cores are lent.
    assert_eq!(budget_with(80, |_, _| {}), []);
    assert_eq!(budget_with(80, |view, at| view.size = if at == 0 { 4 } else { view.size }), broken);
}

#[test]
fn a_process_that_waits_lends_its_cores_and_has_them_back_with_its_next_team() {
    let mut scenes: Vec<Scene> = Vec::new();
    assert_eq!(tampered(&of_hold(), |scene| scenes.push(scene.clone())), []);
    let views = |scene: &Scene| Some((scene.programs[0].budget?, scene.programs[1].budget?));
    let both: Vec<_> = scenes.iter().filter_map(views).collect();
    assert!(both.iter().any(|(busy, waits)| busy.size == 4 && waits.size == 0), "it borrows");
    assert!(both.iter().all(|(_, waits)| [0, 2, 4].contains(&waits.size)));
    let halves = both.iter().filter(|(busy, waits)| (busy.size, waits.size) == (2, 2));
    assert!(halves.count() > 1, "both have their parts");
    // It has them all when the other one has ended, from its next team on.
    let ended = scenes.iter().find_map(|scene| scene.programs[0].ended).unwrap();
    let alone = scenes.iter().filter_map(|scene| scene.programs[1].budget);
    let mut alone =
        alone.filter(|waits| waits.size > 0 && waits.opened > ended + Span::from_ms(2)).peekable();
    assert!(alone.peek().is_some() && alone.all(|waits| waits.size == 4));
}

#[test]
fn processes_without_a_budget_have_all_their_threads() {
    let mut free = of_hold();
    for program in &mut free.programs {
        if let Body::Teams { hold, .. } = &mut program.body {
            *hold = None;
        }
    }
    let mut crowded = 0;
    let broken = tampered(&free, |scene| {
        assert!(scene.programs.iter().all(|program| program.budget.is_none()));
        crowded += usize::from(scene.loads.iter().map(|(_, load)| load).sum::<usize>() > 4);
    });
    assert_eq!(broken, []);
    assert!(crowded > 0, "eight threads on four CPUs");
}
