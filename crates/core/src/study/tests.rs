//! Tests of the study's data. Oracles are sums computed by hand, and invariants of any samples.

use super::*;
use crate::stats::median;
use proptest::prelude::*;

fn cell(program: &str, per_core: u32, grip: ThreadBinding, wait: WaitPolicy) -> StudyCell {
    StudyCell {
        program: program.to_owned(),
        class: Some("S".to_owned()),
        family: Family::Nas,
        runtime: Runtime::Libgomp,
        threads: 2 * per_core,
        cores: 2,
        per_core,
        grip,
        wait,
        schedule: None,
        company: None,
    }
}

fn sample(cell: &StudyCell, round: u32, seconds: f64, beside: f64) -> Sample {
    Sample {
        cell: cell.clone(),
        round,
        status: Status::Done,
        seconds: Some(seconds),
        beside: Some(beside),
        wall: seconds,
        user: Some(2.0 * seconds),
        system: Some(0.0),
        balance: Some(0.5),
        interval: None,
        foreign: None,
        error: None,
    }
}

/// One of two programs that ran together.
fn with(program: &str, other: &str, place: u8, arrangement: Arrangement) -> StudyCell {
    let company = PairedProgram {
        program: other.to_owned(),
        class: Some("S".to_owned()),
        runtime: Runtime::Libgomp,
        per_core: 1,
        arrangement,
        place,
    };
    StudyCell { company: Some(company), ..cell(program, 1, ThreadBinding::Floating, WaitPolicy::Keep) }
}

#[test]
fn slow_downs_are_those_of_neighbours_and_not_of_medians() {
    let two = cell("cg", 2, ThreadBinding::Floating, WaitPolicy::Keep);
    // The machine is half as fast in the second round: ratios stay, times do not.
    let samples = [sample(&two, 1, 3.0, 2.0), sample(&two, 2, 6.0, 4.0), sample(&two, 3, 3.3, 2.0)];
    let summaries = cells(&samples, 1);
    assert_eq!(summaries.len(), 1);
    let summary = &summaries[0];
    assert_eq!((summary.samples, summary.stopped, summary.failed, summary.at_least), (3, 0, 0, false));
    assert_eq!(summary.slowdown.unwrap().median, 1.5);
    assert_eq!(summary.seconds.unwrap().median, 3.3);
    assert_eq!((summary.balance, summary.interval), (Some(0.5), None));
    assert_eq!(summary.cpu, Some(6.6));
}

#[test]
fn a_stopped_run_gives_a_lower_bound() {
    let slow = cell("lu", 4, ThreadBinding::Pinned, WaitPolicy::Spin);
    let stopped = |round| Sample { status: Status::Slower, ..sample(&slow, round, 40.0, 2.0) };
    let done = |round| sample(&slow, round, 4.0, 2.0);
    let found = |samples: &[Sample]| cells(samples, 1).remove(0);
    let most = found(&[stopped(1), done(2), stopped(3)]);
    assert_eq!((most.slowdown.unwrap().median, most.at_least, most.stopped), (20.0, true, 2));
    let least = found(&[done(1), stopped(2), done(3)]);
    assert_eq!((least.slowdown.unwrap().median, least.at_least, least.stopped), (2.0, false, 1));
    let even = found(&[done(1), stopped(2)]);
    assert_eq!((even.slowdown.unwrap().median, even.at_least), (11.0, true), "half of it is a bound");
    let failed = Sample { status: Status::Failed, error: Some("it fell".into()), ..done(1) };
    let none = found(&[failed]);
    assert_eq!((none.samples, none.failed, none.slowdown, none.at_least), (0, 1, None, false));
}

#[test]
fn the_best_way_is_the_quickest_that_is_known() {
    let ways = [
        (cell("cg", 1, ThreadBinding::Floating, WaitPolicy::Keep), 1.0),
        (cell("cg", 2, ThreadBinding::Floating, WaitPolicy::Sleep), 0.9),
        (cell("ep", 2, ThreadBinding::Floating, WaitPolicy::Sleep), 0.5),
    ];
    let mut samples: Vec<Sample> = ways.iter().map(|(cell, ratio)| sample(cell, 1, *ratio, 1.0)).collect();
    let early = cell("cg", 8, ThreadBinding::Floating, WaitPolicy::Spin);
    samples.push(Sample { status: Status::Slower, ..sample(&early, 1, 0.1, 1.0) });
    let summaries = cells(&samples, 1);
    assert_eq!(best(&summaries, &ways[0].0).unwrap().cell, ways[1].0);
    let scheduled = StudyCell { schedule: Some(LoopSchedule::Static), ..ways[1].0.clone() };
    samples.push(sample(&scheduled, 1, 0.2, 1.0));
    assert_eq!(best(&cells(&samples, 1), &ways[0].0).unwrap().cell, ways[1].0, "another binary");
    assert!(ways[0].0.is_baseline() && !ways[1].0.is_baseline());
}

#[test]
fn pairs_have_the_throughput_of_both_and_the_fairness_of_the_slower() {
    let mut samples = Vec::new();
    for (arrangement, [first, second]) in
        [(Arrangement::Shared, [1.25, 2.5]), (Arrangement::Partitioned, [2.0, 2.0])]
    {
        for round in 1..=3 {
            samples.push(sample(&with("cg", "ep", 1, arrangement), round, first, 1.0));
            samples.push(sample(&with("ep", "cg", 2, arrangement), round, 4.0 * second, 4.0));
        }
    }
    // A sample without its partner says nothing about a pair.
    samples.push(sample(&with("is", "ep", 1, Arrangement::Shared), 1, 1.0, 1.0));
    let pairs = pairs(&samples, 1);
    assert_eq!(pairs.len(), 2);
    let [shared, partitioned] = &pairs[..] else { panic!("{pairs:?}") };
    assert_eq!((shared.arrangement, shared.rounds), (Arrangement::Shared, 3));
    // 1/1.25 + 1/2.5 = 0.8 + 0.4, by hand.
    assert!((shared.throughput.unwrap().median - 1.2).abs() < 1e-12);
    assert_eq!(shared.fairness.unwrap().median, 0.5);
    assert_eq!((partitioned.throughput.unwrap().median, partitioned.fairness.unwrap().median), (1.0, 1.0));
    assert_eq!((shared.at_least, partitioned.at_least), ([false, false], [false, false]));
    let beside = sharing(&pairs, 1);
    assert_eq!(beside.len(), 1);
    assert!((beside[0].gain.unwrap().median - 1.2).abs() < 1e-12);
}

#[test]
fn a_program_can_be_its_own_company() {
    let (first, second) =
        (with("cg", "cg", 1, Arrangement::Shared), with("cg", "cg", 2, Arrangement::Shared));
    assert_ne!(first.to_string(), second.to_string());
    let pairs = pairs(&[sample(&first, 1, 2.0, 1.0), sample(&second, 1, 4.0, 1.0)], 1);
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[0].slowdowns.map(|one| one.unwrap().median), [2.0, 4.0]);
}

#[test]
fn cells_are_settings_that_run_takes() {
    let setting = cell("cg", 4, ThreadBinding::Balanced, WaitPolicy::Sleep).setting().unwrap();
    assert_eq!(setting.to_string(), "threads=8 cores=2 wait=sleep pin=mask balance=speed");
}

#[test]
fn words_are_read_as_they_are_written() {
    for runtime in Runtime::ALL {
        assert_eq!(runtime.to_string().parse(), Ok(runtime));
        assert_eq!(serde_json::to_value(runtime).unwrap(), runtime.word());
    }
    for grip in ThreadBinding::ALL {
        assert_eq!(grip.to_string().parse(), Ok(grip));
        assert_eq!(serde_json::to_value(grip).unwrap(), grip.word());
    }
    for arrangement in Arrangement::ALL {
        assert_eq!(arrangement.to_string().parse(), Ok(arrangement));
        assert_eq!(serde_json::to_value(arrangement).unwrap(), arrangement.word());
    }
    assert_eq!(
        "glue".parse::<ThreadBinding>(),
        Err("unknown grip \"glue\" (known: pinned, floating, balanced)".to_owned())
    );
}

fn start() -> serde_json::Value {
    serde_json::json!({
        "schema": SCHEMA, "record": "start", "bench": "oversub", "trimtab": "1", "machine": "m", "summary": "s", "kernel": "6",
        "cpus": "0-1", "cores": 2, "yields": {"yield": "weak", "share": 0.5}, "rounds": 5, "seed": 1, "limit": 20.0, "rate": null,
        "programs": "/p", "left_out": [],
    })
}

fn line(sample: &Sample) -> String {
    let mut value = serde_json::to_value(sample).unwrap();
    value["schema"] = SCHEMA.into();
    value["record"] = "sample".into();
    format!("{value}\n")
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let samples = [
        sample(&cell("cg", 2, ThreadBinding::Pinned, WaitPolicy::Spin), 1, 3.0, 2.0),
        sample(&with("ep", "cg", 2, Arrangement::Partitioned), 2, 1.0, 1.0),
    ];
    let mut text = format!("{}\n", start());
    text.extend(samples.iter().map(line));
    let result = serde_json::json!({"schema": SCHEMA, "record": "cell", "whatever": 1});
    // Results follow from samples, a second start comes from a continued run, and half a line is
    // dropped.
    text.push_str(&format!("{result}\n{}\n", start()));
    text.push_str(&line(&samples[0])[..30]);
    let study = read(&text).unwrap();
    assert_eq!(study.samples, samples);
    assert_eq!((study.about.cores, study.about.limit), (2, 20.0));
}

#[test]
fn a_line_that_is_no_record_is_refused_with_its_number() {
    let mut other = start();
    other["bench"] = "nested".into();
    let mut cut =
        serde_json::to_value(sample(&cell("cg", 1, ThreadBinding::Pinned, WaitPolicy::Keep), 1, 1.0, 1.0))
            .unwrap();
    cut["schema"] = SCHEMA.into();
    cut["record"] = "sample".into();
    cut["grip"] = "glue".into();
    for (text, why) in [
        (String::new(), "does not begin as a record"),
        (format!("{other}\n"), "does not begin as a record"),
        ("half\n".to_owned(), "line 1 is not JSON"),
        ("{}\n".to_owned(), "line 1 is not of schema"),
        (format!("{}\n{cut}\n", start()), "line 2 is not a sample"),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The oracle is the median of ratios that are known beforehand, whatever the speed of the
    /// machine.
    #[test]
    fn a_machine_that_changes_its_speed_changes_no_slow_down(
        runs in proptest::collection::vec((0.5..50.0_f64, 0.01..10.0_f64), 1..12)
    ) {
        let two = cell("mg", 2, ThreadBinding::Floating, WaitPolicy::Yield);
        let samples: Vec<Sample> = (1..).zip(&runs).map(|(round, (ratio, speed))| sample(&two, round, ratio * speed, *speed)).collect();
        let ratios: Vec<f64> = runs.iter().map(|(ratio, _)| *ratio).collect();
        let found = cells(&samples, 7)[0].slowdown.unwrap().median;
        prop_assert!((found / median(&ratios).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn fairness_is_at_most_one_and_throughput_at_most_two_if_no_program_gains(
        first in proptest::collection::vec(1.0..30.0_f64, 1..8), factor in 1.0..9.0_f64
    ) {
        let mut samples = Vec::new();
        for (round, slow) in (1..).zip(&first) {
            samples.push(sample(&with("cg", "ep", 1, Arrangement::Shared), round, *slow, 1.0));
            samples.push(sample(&with("ep", "cg", 2, Arrangement::Shared), round, slow * factor, 1.0));
        }
        let pair = pairs(&samples, 3).remove(0);
        let (throughput, fairness) = (pair.throughput.unwrap().median, pair.fairness.unwrap().median);
        prop_assert!(throughput > 0.0 && throughput <= 2.0);
        prop_assert!((fairness - 1.0 / factor).abs() < 1e-9);
    }
}

#[test]
fn a_schedule_makes_another_cell_that_is_no_baseline() {
    let plain = cell("cg", 1, ThreadBinding::Floating, WaitPolicy::Keep);
    assert!(plain.is_baseline() && plain.to_string() == "cg.S/libgomp/2on2/floating/keep");
    let guided = StudyCell { schedule: Some(LoopSchedule::Guided), ..plain.clone() };
    assert!(!guided.is_baseline());
    assert_eq!(guided.to_string(), "cg.S/libgomp/2on2/floating/keep/guided");
    let samples = [sample(&plain, 1, 1.0, 1.0), sample(&guided, 1, 2.0, 1.0)];
    let medians: Vec<f64> = cells(&samples, 1).iter().map(|one| one.slowdown.unwrap().median).collect();
    assert_eq!(medians, [1.0, 2.0]);
    for schedule in LoopSchedule::ALL {
        assert_eq!(schedule.word().parse(), Ok(schedule));
    }
    // Records of earlier versions do not have the field.
    let mut old = serde_json::to_value(&plain).unwrap();
    old.as_object_mut().unwrap().remove("schedule").unwrap();
    assert_eq!(serde_json::from_value::<StudyCell>(old).unwrap(), plain);
}

#[test]
fn variation_is_of_the_runs_that_ended() {
    let two = cell("cg", 2, ThreadBinding::Floating, WaitPolicy::Keep);
    let stopped = Sample { status: Status::Slower, ..sample(&two, 3, 9.0, 1.0) };
    let failed = Sample { status: Status::Failed, seconds: None, ..sample(&two, 4, 1.0, 1.0) };
    let samples = [sample(&two, 1, 2.0, 1.0), sample(&two, 2, 4.4, 1.0), stopped, failed];
    let variation = cells(&samples, 1)[0].variation.unwrap();
    assert!((variation - 120.0).abs() < 1e-9, "{variation}");
    assert_eq!(cells(&samples[1..], 1)[0].variation, None, "one run does not vary");
    // Baselines are of the cell with one floating thread per core, but are no runs of a case.
    let one = cell("cg", 1, ThreadBinding::Floating, WaitPolicy::Keep);
    let baseline = |round, seconds| Sample { beside: None, ..sample(&one, round, seconds, 1.0) };
    let cases = [sample(&one, 1, 2.0, 1.0), sample(&one, 2, 2.2, 1.0)];
    let samples = [&cases[..], &[baseline(1, 1.0), baseline(2, 8.0)]].concat();
    let variation = cells(&samples, 1)[0].variation.unwrap();
    assert!((variation - 10.0).abs() < 1e-9, "{variation}");
}
