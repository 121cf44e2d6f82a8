use super::*;
use crate::program::WaitMode;
use trimtab_core::topology::parse_synthetic;

/// Returns three equal threads of a second of work on two cores.
fn three_on_two() -> Scenario {
    let model = Model::plain(parse_synthetic("core:2").unwrap());
    Scenario {
        name: "three on two".to_owned(),
        kernel: Kernel::preset("linux-2.6.28", 2).unwrap(),
        programs: vec![ProgramSpec::spmd("app", 3, Span::from_ms(1_000), WaitMode::Spin)],
        arrivals: Vec::new(),
        policy: None,
        events: Vec::new(),
        faults: Faults::default(),
        observer_cost: ObserverCost::default(),
        end: Moment(60_000_000_000),
        seed: 1,
        memory: true,
        model,
    }
}

fn outcome(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| {}, &mut |_| Go::On)
}

#[test]
fn the_gain_of_a_policy_shows_in_the_outcome() {
    let alone = outcome(&three_on_two());
    let ratio = |outcome: &Outcome| outcome.programs[0].ratio.unwrap();
    assert!((ratio(&alone) - 4.0 / 3.0).abs() < 0.02, "old kernels leave queues of two and one: {alone:?}");
    assert_eq!((alone.samples, alone.complete), (0, true));
    let policy = Some((Kind::Exchange, Settings { interval: Span::from_ms(20), ..Settings::default() }));
    let scenario = Scenario { policy, ..three_on_two() };
    let exchanged = outcome(&scenario);
    assert!(ratio(&exchanged) < 1.05, "{exchanged:?}");
    assert!(exchanged.samples > 50 && exchanged.moved > 10, "{exchanged:?}");
    assert_eq!(outcome(&scenario), exchanged, "equal scenarios, equal outcomes");
    // Three seconds of work are done, independent of moves.
    for outcome in [&alone, &exchanged] {
        let work = outcome.programs[0].work.seconds();
        assert!((work - 3.0).abs() < 1e-3, "{work}");
    }
}

#[test]
fn things_happen_in_time() {
    let hog = ProgramSpec::hog("hog", 1).on("0".parse().unwrap());
    let at = |ms: u64, what| ScenarioEvent { at: Moment(ms * 1_000_000), what };
    let events = vec![
        at(100, Happening::Usable("0".parse().unwrap())),
        at(600, Happening::Usable("0-1".parse().unwrap())),
        at(700, Happening::Start(Box::new(hog))),
    ];
    let mut seen = Vec::new();
    let scenario = Scenario { events, ..three_on_two() };
    let outcome =
        run(&scenario, &mut |world| seen.push((world.now(), world.usable().len())), &mut |_| Go::On);
    let usable_at = |ms: u64| seen.iter().find(|(now, _)| now.0 == ms * 1_000_000).unwrap().1;
    assert_eq!((usable_at(0), usable_at(300), usable_at(700)), (2, 1, 2), "{seen:?}");
    assert_eq!(outcome.programs.len(), 2, "{outcome:?}");
    assert!(outcome.programs[1].makespan.is_none(), "a hog never ends");
    // Half a second of one CPU is missing.
    assert!(outcome.programs[0].makespan.unwrap() > Span::from_ms(1_950), "{outcome:?}");
}

#[test]
fn jobs_arrive_at_random_and_equally_often_for_equal_seeds() {
    let job = ProgramSpec::spmd("job", 1, Span::from_ms(10), WaitMode::Sleep);
    let arrivals = vec![Arrivals { program: job, every: Span::from_ms(20), most: 1_000 }];
    let scenario = Scenario { arrivals, programs: Vec::new(), end: Moment(10_000_000_000), ..three_on_two() };
    let first = outcome(&scenario);
    assert!((400..600).contains(&first.programs.len()), "{}", first.programs.len());
    assert!(first.throughput.is_some_and(|rate| (rate - 50.0).abs() < 10.0), "{:?}", first.throughput);
    assert_eq!(outcome(&scenario), first);
    assert_ne!(outcome(&Scenario { seed: 2, ..scenario }).programs.len(), first.programs.len());
}

fn seconds(seconds: u64) -> Moment {
    Moment(seconds * 1_000_000_000)
}

fn at(when: u64, what: Happening) -> ScenarioEvent {
    ScenarioEvent { at: seconds(when), what }
}

fn start(program: ProgramSpec) -> Happening {
    Happening::Start(Box::new(program))
}

fn spmd(name: &str, ms: u64) -> ProgramSpec {
    ProgramSpec::spmd(name, 1, Span::from_ms(ms), WaitMode::Sleep)
}

#[test]
fn a_run_without_an_ending_program_lasts_until_its_limit() {
    let hogs = Scenario { programs: vec![ProgramSpec::hog("hog", 2)], end: seconds(3), ..three_on_two() };
    let rare = Arrivals { program: spmd("job", 10), every: Span::from_ms(3_600_000), most: 9 };
    let nobody = Scenario { programs: Vec::new(), arrivals: vec![rare], end: seconds(3), ..three_on_two() };
    for (scenario, busy) in [(hogs, 1.0), (nobody, 0.0)] {
        let outcome = outcome(&scenario);
        assert_eq!((outcome.ended, outcome.complete), (seconds(3), true), "{outcome:?}");
        assert_eq!(outcome.throughput, Some(0.0));
        assert!(outcome.busy.is_some_and(|found| (found - busy).abs() < 0.01), "{outcome:?}");
        let policy = Some((Kind::Speed, Settings::default()));
        let sampled = self::outcome(&Scenario { policy, ..scenario });
        assert_eq!((sampled.ended, sampled.samples > 20), (seconds(3), true), "{sampled:?}");
    }
}

#[test]
fn a_program_started_by_an_event_keeps_a_run_alive() {
    let events = vec![at(3, start(spmd("late", 500)))];
    for programs in [vec![spmd("app", 200)], vec![ProgramSpec::hog("hog", 1)]] {
        let outcome = outcome(&Scenario { programs, events: events.clone(), ..three_on_two() });
        assert!(outcome.complete && outcome.ended > seconds(3) + Span::from_ms(500), "{outcome:?}");
        assert!(outcome.ended < seconds(5), "{outcome:?}");
        assert!(outcome.programs[1].makespan.is_some(), "{outcome:?}");
    }
    // A hog that arrives does not keep the run alive, and neither do programs due after the end.
    for late in [at(3, start(ProgramSpec::hog("hog", 1))), at(61, start(spmd("late", 500)))] {
        let scenario = Scenario { programs: vec![spmd("app", 200)], events: vec![late], ..three_on_two() };
        let outcome = outcome(&scenario);
        assert!(outcome.complete && outcome.ended < seconds(1), "{outcome:?}");
    }
}

#[test]
fn an_event_stops_a_program_that_an_event_started() {
    let hog = |name: &str| start(ProgramSpec::hog(name, 1));
    let events =
        vec![at(1, hog("one")), at(2, hog("other")), at(3, Happening::Stop(2)), at(4, Happening::Stop(1))];
    // Arrivals come between the scenario's own programs and those that events start.
    let job = Arrivals { program: spmd("job", 1), every: Span::from_ms(500), most: 5 };
    let scenario =
        Scenario { programs: vec![spmd("app", 9_000)], arrivals: vec![job], events, ..three_on_two() };
    let outcome = outcome(&scenario);
    let of = |name: &str| outcome.programs.iter().find(|program| program.name == name).unwrap();
    for name in ["one", "other"] {
        let program = of(name);
        let lived = program.makespan.unwrap().seconds();
        assert!((lived - if name == "one" { 3.0 } else { 1.0 }).abs() < 1e-6, "{program:?}");
        assert_eq!((program.ends, program.stopped, program.ratio), (false, true, None));
    }
    assert!(!of("app").stopped && of("job 1").makespan.is_some());
}

#[test]
fn a_stopped_program_has_not_ended_by_itself() {
    let stopped = Scenario { events: vec![at(1, Happening::Stop(0))], ..three_on_two() };
    let outcome = outcome(&stopped);
    let program = &outcome.programs[0];
    assert_eq!((program.makespan, program.stopped), (Some(Span::from_ms(1_000)), true));
    assert_eq!((program.ratio, crate::outcome::Value::Makespan.of(&outcome)), (None, None));
    assert_eq!((outcome.throughput, outcome.complete), (Some(0.0), true));
    // A program that has ended cannot be stopped.
    let late = Scenario {
        programs: vec![spmd("app", 100), spmd("other", 3_000)],
        events: vec![at(2, Happening::Stop(0))],
        ..three_on_two()
    };
    assert!(!self::outcome(&late).programs[0].stopped);
}

#[test]
fn a_run_that_takes_no_time_has_no_shares() {
    let outcome = outcome(&Scenario { events: vec![at(0, Happening::Stop(0))], ..three_on_two() });
    assert_eq!((outcome.ended, outcome.busy, outcome.throughput), (Moment(0), None, None));
}

#[test]
fn without_memory_no_footprint_matters_even_of_a_program_started_later() {
    let mut slow = spmd("slow", 100);
    slow.footprint = crate::program::Footprint { working_set: 1 << 30, misses: 50.0, ..slow.footprint };
    let model = crate::model::shipped::find("tigerton-e7310").unwrap().unwrap();
    let makespan = |memory: bool| {
        let events = vec![at(1, start(slow.clone()))];
        let programs = vec![spmd("app", 50)];
        let outcome = outcome(&Scenario { model: model.clone(), memory, programs, events, ..three_on_two() });
        outcome.programs[1].makespan.unwrap()
    };
    assert!(makespan(false) < Span::from_ms(101), "{}", makespan(false));
    assert!(makespan(true) > Span::from_ms(150), "{}", makespan(true));
}

#[test]
fn nothing_beats_the_ideal() {
    let mut turbo = Model::plain(parse_synthetic("pack:2 core:4").unwrap());
    turbo.turbo.factors = vec![1.5, 1.3, 1.2];
    let hardware_threads = Model::plain(parse_synthetic("core:2 pu:2").unwrap());
    for (model, threads) in [(turbo, 8), (hardware_threads, 4)] {
        let cpus = model.machine.pu_count();
        let programs = vec![ProgramSpec::spmd("app", threads, Span::from_ms(1_000), WaitMode::Spin)];
        let kernel = Kernel::preset("linux-6.12", cpus).unwrap();
        let outcome = outcome(&Scenario { model, kernel, programs, ..three_on_two() });
        let ratio = outcome.programs[0].ratio.unwrap();
        assert!((1.0..1.01).contains(&ratio), "{ratio}");
    }
}
