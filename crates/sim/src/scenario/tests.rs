use super::*;
use crate::program::Wait;
use trimtab_core::topology::parse_synthetic;

/// Three equal threads of a second of work on two cores.
fn three_on_two() -> Scenario {
    let model = Model::plain(parse_synthetic("core:2").unwrap());
    Scenario {
        name: "three on two".to_owned(),
        kernel: Kernel::preset("linux-2.6.28", 2).unwrap(),
        programs: vec![Program::spmd("app", 3, Span::from_ms(1_000), Wait::Spin)],
        arrivals: Vec::new(),
        policy: None,
        events: Vec::new(),
        faults: Faults::default(),
        looking: Looking::default(),
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
fn what_a_policy_brings_shows_in_the_outcome() {
    let alone = outcome(&three_on_two());
    let ratio = |outcome: &Outcome| outcome.programs[0].ratio.unwrap();
    assert!((ratio(&alone) - 4.0 / 3.0).abs() < 0.02, "old kernels leave queues of two and one: {alone:?}");
    assert_eq!((alone.looks, alone.complete), (0, true));
    let policy = Some((Kind::Exchange, Settings { interval: Span::from_ms(20), ..Settings::default() }));
    let scenario = Scenario { policy, ..three_on_two() };
    let exchanged = outcome(&scenario);
    assert!(ratio(&exchanged) < 1.05, "{exchanged:?}");
    assert!(exchanged.looks > 50 && exchanged.moved > 10, "{exchanged:?}");
    assert_eq!(outcome(&scenario), exchanged, "equal scenarios, equal outcomes");
    // Three seconds of work are done whoever moves whom.
    for outcome in [&alone, &exchanged] {
        let work = outcome.programs[0].work.seconds();
        assert!((work - 3.0).abs() < 1e-3, "{work}");
    }
}

#[test]
fn things_happen_in_time() {
    let hog = Program::hog("hog", 1).on("0".parse().unwrap());
    let at = |ms: u64, what| Event { at: Moment(ms * 1_000_000), what };
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
    let job = Program::spmd("job", 1, Span::from_ms(10), Wait::Sleep);
    let arrivals = vec![Arrivals { program: job, every: Span::from_ms(20), most: 1_000 }];
    let scenario = Scenario { arrivals, programs: Vec::new(), end: Moment(10_000_000_000), ..three_on_two() };
    let first = outcome(&scenario);
    assert!((400..600).contains(&first.programs.len()), "{}", first.programs.len());
    assert!((first.throughput - 50.0).abs() < 10.0, "{}", first.throughput);
    assert_eq!(outcome(&scenario), first);
    assert_ne!(outcome(&Scenario { seed: 2, ..scenario }).programs.len(), first.programs.len());
}
