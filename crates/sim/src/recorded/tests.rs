//! Records of simulated runs, whose truth is known, become scenarios that run as long.

use super::*;
use crate::scenario::file::{File, write};
use crate::scenario::{self};
use trimtab_core::drive::Go;
use trimtab_core::profile::Intervals;
use trimtab_core::trace::{Header, Line, StepRecord, VERSION};

fn open(text: &str) -> Scenario {
    let file = File::open("test", text, &[], &mut |path| Err(format!("{path}: not here"))).unwrap();
    file.scenario(0).unwrap()
}

/// Runs a scenario observed by `float`, which changes nothing. Returns its trace and the time of
/// its first program.
fn recorded(text: &str) -> (Trace, f64) {
    let scenario = open(&format!("policy = \"float\"\n{text}"));
    let mut steps = Vec::new();
    let outcome = scenario::run(&scenario, &mut |_| {}, &mut |step| {
        let Ok(Line::Step(record)) = Line::decode(&Line::encode_step(step)) else { panic!("no step") };
        let record: StepRecord = *record;
        steps.push(record);
        Go::On
    });
    let machine = scenario.model.machine.clone();
    let header = Header {
        version: VERSION,
        policy: Kind::Float,
        settings: Settings::default(),
        command: "/opt/app --fast".to_owned(),
        began: None,
        usable: machine.cpus(),
        machine,
    };
    let lasted = outcome.programs[0].makespan.unwrap().seconds();
    (Trace { header, steps, end: None, cut: false }, lasted)
}

/// Runs a record's scenario as a file, and returns the time of its first program.
fn lasts(run: &RecordedRun) -> f64 {
    let read = open(&write(&run.scenario).unwrap());
    assert_eq!(read, run.scenario);
    scenario::run(&read, &mut |_| {}, &mut |_| Go::On).programs[0].makespan.unwrap().seconds()
}

const APP: &str = "machine = \"numa:2 core:2\"\nkernel = \"linux-6.18\"\nend = \"60 s\"\nmemory = false\n\
    [[program]]\nname = \"app\"\nthreads = 6\nwork = \"2 s\"\ninterval = \"20 ms\"\nimbalance = 0.2\nwait = \"sleep\"\n";

#[test]
fn a_recorded_program_runs_as_long_in_its_scenario() {
    let (trace, lasted) = recorded(APP);
    let run = of_trace(&trace, None, "linux-6.18").unwrap();
    assert_eq!(run.scenario.name, "app");
    let [program] = &run.scenario.programs[..] else { panic!("{run:?}") };
    let Body::Spmd { work, interval: Some(interval), imbalance, .. } = program.body else {
        panic!("{run:?}")
    };
    assert_eq!(program.threads, 6);
    assert!((work.seconds() / 2.0 - 1.0).abs() < 0.05, "{work}");
    assert!((0.15..0.25).contains(&imbalance), "{imbalance}");
    // Not each wait is a sleep: some threads arrive when the others are there.
    assert!((0.015..0.04).contains(&interval.seconds()), "{interval}");
    assert!((lasts(&run) / lasted - 1.0).abs() < 0.1, "{} instead of {lasted}", lasts(&run));
    assert!(run.notes.iter().any(|note| note.contains("taken as")), "{:?}", run.notes);
}

#[test]
fn others_become_a_program_with_their_share() {
    let hog = "[[program]]\nname = \"x\"\nkind = \"hog\"\nthreads = 1\nworks = \"5 ms\"\nsleeps = \"5 ms\"\n";
    let (mut trace, lasted) = recorded(&format!("{APP}{hog}"));
    // A live trace shows watched programs only.
    let hog =
        trace.steps[0].sample.programs.iter().find(|program| program.name == "x").map(|program| program.id);
    for step in &mut trace.steps {
        let own: Vec<ThreadId> =
            step.sample.news.iter().filter(|news| Some(news.program) == hog).map(|news| news.id).collect();
        step.sample.news.retain(|news| !own.contains(&news.id));
        step.sample.programs.retain(|program| Some(program.id) != hog);
    }
    let run = of_trace(&trace, None, "linux-6.18").unwrap();
    let others = run.scenario.programs.iter().find(|program| program.name == "others").expect("others");
    let Body::Hog { duty: Some((works, sleeps)) } = others.body else { panic!("{others:?}") };
    let share = works.seconds() / (works.seconds() + sleeps.seconds());
    assert!((0.3..0.6).contains(&share), "{share}");
    assert!(!others.balanced && others.group == 1);
    assert!((lasts(&run) / lasted - 1.0).abs() < 0.1, "{} instead of {lasted}", lasts(&run));
}

#[test]
fn a_profile_gives_barriers_that_no_thread_sleeps_at() {
    let (trace, lasted) = recorded(&APP.replace("sleep", "yield"));
    let without = of_trace(&trace, None, "linux-6.18").unwrap();
    assert!(matches!(without.scenario.programs[0].body, Body::Spmd { interval: None, .. }));
    // Of the threads' CPU time 12 s are work, the rest polled.
    let ran: f64 = totals(&trace).values().map(|thread| thread.run.seconds()).sum();
    let intervals = Intervals { count: 100, mean: Span::from_ms(30), ..Intervals::default() };
    let profile = Profile {
        program: "app".to_owned(),
        cpus: 4,
        cores: 4,
        wall: Span(scaled(lasted)),
        user: Span(scaled(ran)),
        waiting: Some(1.0 - 12.0 / ran),
        workers: 6,
        intervals: Some(intervals),
        wait: Some("they yield".to_owned()),
        ..Profile::default()
    };
    let with = of_trace(&trace, Some(&profile), "linux-6.18").unwrap();
    let Body::Spmd { work, interval: Some(interval), .. } = with.scenario.programs[0].body else {
        panic!("{with:?}")
    };
    assert!((work.seconds() / interval.seconds() / 100.0 - 1.0).abs() < 0.01, "{work} and {interval}");
    assert_eq!(with.scenario.programs[0].wait, WaitMode::Yield);
    assert!((lasts(&with) / lasted - 1.0).abs() < 0.15, "{} instead of {lasted}", lasts(&with));
    // A profile of another program is not that of a shell beside it.
    let mut beside = trace.clone();
    let programs = beside.steps.iter_mut().flat_map(|step| &mut step.sample.programs);
    programs.for_each(|program| program.name = "sh".to_owned());
    let other = of_trace(&beside, Some(&profile), "linux-6.18").unwrap();
    assert!(matches!(other.scenario.programs[0].body, Body::Spmd { interval: Some(_), .. }), "the most work");
    // Of the profile alone: equal threads.
    let alone = of_profile(&profile, "linux-6.18").unwrap();
    assert_eq!((alone.scenario.programs[0].threads, alone.scenario.model.machine.pu_count()), (6, 4));
    assert!(lasts(&alone) >= 3.0, "12 s of work on 4 CPUs");
}

#[test]
fn what_ran_before_the_record_is_no_work() {
    let (trace, lasted) = recorded(APP);
    let mut late = trace.clone();
    // Its first half was not watched. Infos of threads and programs come with the first sample.
    let half = late.steps.len() / 2;
    let (early, rest) = trace.steps.split_at(half);
    late.steps = rest.to_vec();
    let began = late.steps[0].sample.at;
    for step in &mut late.steps {
        step.sample.at = Moment(0) + step.sample.at.since(began);
    }
    let news = early.iter().flat_map(|step| step.sample.news.clone());
    late.steps[0].sample.news.extend(news.collect::<Vec<_>>());
    let programs = early.iter().flat_map(|step| step.sample.programs.clone());
    late.steps[0].sample.programs.extend(programs.collect::<Vec<_>>());
    let run = of_trace(&late, None, "linux-6.18").unwrap();
    let rest = lasted - began.since(Moment(0)).seconds();
    assert!((lasts(&run) / rest - 1.0).abs() < 0.2, "{} instead of {rest}", lasts(&run));
}

#[test]
fn an_irregular_machine_keeps_its_number_of_cpus() {
    let mut parts = parse_synthetic("core:3 pu:2").unwrap().parts().clone();
    parts.pus.pop();
    for domain in &mut parts.domains {
        domain.count = domain.count.min(5 - domain.first.min(5));
    }
    for node in &mut parts.nodes {
        node.count = node.count.min(5);
    }
    for kind in &mut parts.kinds {
        kind.cpus = kind.cpus.intersection(&"0-4".parse().unwrap());
    }
    let machine = Machine::build(parts).unwrap();
    let (model, is_whole) = plain(&machine);
    assert_eq!((model.machine.pu_count(), is_whole), (5, false));
    let (model, is_whole) = plain(&parse_synthetic("pack:2 numa:2 l3:2 core:4 pu:2").unwrap());
    assert_eq!((model.machine.pu_count(), model.machine.llcs().len(), is_whole), (64, 8, true));
}

#[test]
fn what_computed_nothing_is_refused_and_so_is_an_unknown_kernel() {
    let (mut trace, _) = recorded(APP);
    assert!(matches!(of_trace(&trace, None, "minix"), Err(RecordedError::Kernel(_))));
    trace.steps.clear();
    assert_eq!(of_trace(&trace, None, "linux-6.18"), Err(RecordedError::Idle));
    assert_eq!(of_profile(&Profile::default(), "linux-6.18"), Err(RecordedError::Idle));
}
