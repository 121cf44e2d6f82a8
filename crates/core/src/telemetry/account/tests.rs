//! Accounts of scripted samples.

use super::*;
use crate::balance::{Act, Decision, Kind, Outcome, Reason, Settings, Settled, Turn};
use crate::ids::OsNode;
use crate::observe::{CpuSample, ProgramInfo, Sample, ThreadInfo, ThreadSample};
use crate::set::CpuSet;
use crate::topology::parse_synthetic;
use crate::trace::{Header, StepRecord, Trace, VERSION};

const NS_PER_MS: u64 = 1_000_000;

/// Two nodes of two cores of two CPUs each: 0,1 | 2,3 || 4,5 | 6,7.
fn header() -> Header {
    let machine = parse_synthetic("numa:2 core:2 pu:2").unwrap();
    Header {
        version: VERSION,
        policy: Kind::Float,
        settings: Settings::default(),
        command: "app".to_owned(),
        began: None,
        usable: machine.cpus(),
        machine,
    }
}

fn info(id: u32) -> ThreadInfo {
    ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(0),
        pid: 100,
        tid: 100 + id,
        name: format!("t{id}"),
        home: "0-7".parse().unwrap(),
        left: None,
        tagged: false,
    }
}

fn read(id: u32, run_ms: u64, wait_ms: u64, cpu: u32) -> ThreadSample {
    ThreadSample {
        id: ThreadId(id),
        run: Span(run_ms * NS_PER_MS),
        wait: Some(Span(wait_ms * NS_PER_MS)),
        slices: None,
        ready: None,
        voluntary: None,
        cpu: Some(OsCpu(cpu)),
        counts: None,
    }
}

fn step(at_ms: u64, news: &[u32], gone: &[u32], threads: Vec<ThreadSample>) -> StepRecord {
    let program = ProgramInfo { id: ProgramId(0), pid: 100, name: "app".to_owned() };
    let sample = Sample {
        at: Moment(at_ms * NS_PER_MS),
        programs: if at_ms == 0 { vec![program] } else { Vec::new() },
        news: news.iter().copied().map(info).collect(),
        gone: gone.iter().copied().map(ThreadId).collect(),
        threads,
        ..Sample::default()
    };
    StepRecord { sample, ..StepRecord::default() }
}

fn play(steps: &[StepRecord]) -> Account {
    let mut playback = Playback::new(&header(), Keep::default());
    for record in steps {
        playback.step(record, &mut |_, _| ());
    }
    playback.account().clone()
}

fn only(account: &Account) -> &ProgramAccount {
    account.programs().next().unwrap()
}

#[test]
fn three_threads_on_two_cores_as_pinned() {
    // Threads 0 and 1 share core 0; thread 2 has core 1 alone: speeds 1/2, 1/2, 1.
    let steps: Vec<_> = (0..=10)
        .map(|at| {
            let threads =
                vec![read(0, at * 50, at * 50, 0), read(1, at * 50, at * 50, 1), read(2, at * 100, 0, 2)];
            step(at * 100, if at == 0 { &[0, 1, 2] } else { &[] }, &[], threads)
        })
        .collect();
    let account = play(&steps);
    let program = only(&account);
    assert_eq!((program.threads, program.active, program.totals.migrations), (3, 3, 0));
    assert_eq!(program.slowest, Some(0.5));
    assert!((program.speed.unwrap() - 2.0 / 3.0).abs() < 1e-9);
    // The slowest thread has half, the mean is two thirds.
    assert!((program.expected.unwrap() - 0.75).abs() < 1e-9, "{:?}", program.expected);
    // Both cores were busy all the time, but a third core could have been used.
    assert_eq!(program.balance, Some(0.0));
    assert_eq!(program.totals.run, Span(2_000 * NS_PER_MS));
    assert!((program.waited.unwrap() - 1.0 / 3.0).abs() < 1e-9);
    let slow = account.thread(ThreadId(0)).unwrap();
    assert_eq!(slow.speed_overall(Metric::RunWait), Some(0.5));
    assert_eq!(slow.node, Some(OsNode(0)));
}

#[test]
fn a_thread_that_was_not_read_has_no_speed_and_adds_nothing() {
    let account = play(&[
        step(0, &[0, 1], &[], vec![read(0, 0, 0, 0), read(1, 0, 0, 2)]),
        step(100, &[], &[], vec![read(0, 100, 0, 0)]),
    ]);
    let missed = account.thread(ThreadId(1)).unwrap();
    assert_eq!((missed.speed, missed.run_share, missed.progress()), (None, None, None));
    assert_eq!(only(&account).slowest, Some(1.0), "a thread that was not read is not slow");
    assert_eq!(only(&account).expected, None, "one thread alone is behind nobody");
    // When the thread is read again, its time counts with the whole span.
    let account = play(&[
        step(0, &[0], &[], vec![read(0, 0, 0, 0)]),
        step(100, &[], &[], vec![]),
        step(200, &[], &[], vec![read(0, 100, 100, 0)]),
    ]);
    let thread = account.thread(ThreadId(0)).unwrap();
    assert_eq!(
        (thread.speed, thread.totals.run, thread.totals.watched),
        (Some(0.5), Span(100 * NS_PER_MS), Span(200 * NS_PER_MS))
    );
}

#[test]
fn without_wait_times_there_is_no_speed_but_time_is_counted() {
    let blind = |at: u64| {
        let thread = ThreadSample { wait: None, ..read(0, at, 0, 0) };
        step(at, if at == 0 { &[0] } else { &[] }, &[], vec![thread])
    };
    let account = play(&[blind(0), blind(100)]);
    let thread = account.thread(ThreadId(0)).unwrap();
    assert_eq!((thread.speed, thread.totals.wait, thread.totals.wait_share()), (None, None, None));
    assert_eq!(thread.totals.run, Span(100 * NS_PER_MS));
    assert_eq!(only(&account).waited, None);
}

#[test]
fn a_wait_share_is_at_most_one() {
    // A wait of 300 ms ends in an interval of 100 ms, and is counted there.
    let account =
        play(&[step(0, &[0], &[], vec![read(0, 0, 0, 0)]), step(100, &[], &[], vec![read(0, 10, 300, 0)])]);
    let thread = account.threads().next().unwrap();
    assert_eq!(thread.wait_share, Some(1.0));
    assert_eq!(thread.totals.wait, Some(Span(300 * NS_PER_MS)));
}

#[test]
fn threads_that_end_stay_in_the_sums() {
    let account = play(&[
        step(0, &[0, 1], &[], vec![read(0, 0, 0, 0), read(1, 0, 0, 2)]),
        step(100, &[], &[], vec![read(0, 60, 40, 0), read(1, 100, 0, 2)]),
        step(200, &[], &[1], vec![read(0, 120, 80, 0)]),
    ]);
    let program = only(&account);
    assert_eq!((program.threads, program.ended), (1, 1));
    assert_eq!(
        (program.totals.run, program.totals.wait),
        (Span(220 * NS_PER_MS), Some(Span(80 * NS_PER_MS)))
    );
    assert_eq!(account.ended().len(), 1);
    assert_eq!(account.ended()[0].ended, Some(Moment(200 * NS_PER_MS)));
    assert_eq!(account.threads().count(), 1);
}

#[test]
fn a_thread_that_starts_late_counts_from_its_second_reading() {
    // The thread has CPU time from before it was first seen, which does not count.
    let account = play(&[
        step(0, &[], &[], vec![]),
        step(100, &[0], &[], vec![read(0, 5_000, 0, 0)]),
        step(200, &[], &[], vec![read(0, 5_050, 50, 0)]),
    ]);
    let thread = account.thread(ThreadId(0)).unwrap();
    assert_eq!(
        (thread.born, thread.totals.run, thread.speed),
        (Moment(100 * NS_PER_MS), Span(50 * NS_PER_MS), Some(0.5))
    );
}

#[test]
fn a_clock_jump_adds_nothing_and_is_counted() {
    let mut jump = step(10_000, &[], &[], vec![read(0, 9_000, 0, 0)]);
    jump.sample.notices = vec![Notice::ClockJump(Span::from_ms(9_000))];
    let account = play(&[
        step(0, &[0], &[], vec![read(0, 0, 0, 0)]),
        step(100, &[], &[], vec![read(0, 100, 0, 0)]),
        jump,
        step(10_100, &[], &[], vec![read(0, 9_050, 50, 0)]),
    ]);
    let thread = account.thread(ThreadId(0)).unwrap();
    assert_eq!((thread.totals.run, thread.totals.watched), (Span(150 * NS_PER_MS), Span(200 * NS_PER_MS)));
    assert_eq!(account.jumps(), 1);
    assert_eq!(thread.speed, Some(0.5));
}

#[test]
fn counters_that_run_back_add_nothing() {
    let account =
        play(&[step(0, &[0], &[], vec![read(0, 500, 0, 0)]), step(100, &[], &[], vec![read(0, 20, 0, 0)])]);
    assert_eq!(account.thread(ThreadId(0)).unwrap().totals.run, Span::ZERO);
}

#[test]
fn migrations_are_between_cores_and_siblings_are_one_core() {
    let at =
        |at: u64, cpu| step(at * 100, if at == 0 { &[0] } else { &[] }, &[], vec![read(0, at * 100, 0, cpu)]);
    let account = play(&[at(0, 0), at(1, 1), at(2, 2), at(3, 4), at(4, 4)]);
    let thread = account.thread(ThreadId(0)).unwrap();
    assert_eq!((thread.totals.migrations, thread.totals.node_migrations), (2, 1));
    assert_eq!(thread.totals.share_on(OsCpu(4)), Some(0.5));
    assert_eq!(only(&account).totals.run_on.len(), 3);
}

#[test]
fn balance_is_lowest_over_highest_of_the_cores_it_could_keep_busy() {
    let steps: Vec<_> = (0..=10)
        .map(|at| {
            let threads = vec![read(0, at * 100, 0, 0), read(1, at * 50, at * 50, 2)];
            step(at * 100, if at == 0 { &[0, 1] } else { &[] }, &[], threads)
        })
        .collect();
    assert_eq!(only(&play(&steps)).balance, Some(0.5));
    assert_eq!(only(&play(&steps[..10])).balance, None, "nine readings say too little");
}

#[test]
fn sleepers_have_no_part_in_the_expected_balance() {
    let steps: Vec<_> = (0..=4)
        .map(|at| {
            let threads = vec![read(0, at * 80, 0, 0), read(1, at * 80, 0, 2), read(2, 7, 0, 4)];
            step(at * 100, if at == 0 { &[0, 1, 2] } else { &[] }, &[], threads)
        })
        .collect();
    let account = play(&steps);
    assert_eq!((only(&account).active, only(&account).expected), (2, Some(1.0)));
}

#[test]
fn moves_are_counted_when_they_are_done_and_settled_later_if_need_be() {
    let decide = |thread: u32| Decision {
        thread: ThreadId(thread),
        act: Act::Confine("2".parse().unwrap()),
        reason: Reason::Start,
        gain: Some(0.5),
    };
    let outcome = |thread: u32, end| Outcome { thread: ThreadId(thread), end };
    let mut first = step(0, &[0, 1], &[], vec![read(0, 0, 0, 0), read(1, 0, 0, 0)]);
    first.turn = Turn { decisions: vec![decide(0), decide(1)], ..Turn::default() };
    first.outcomes = vec![outcome(0, Settled::Applied), outcome(1, Settled::Pending)];
    let mut second = step(100, &[], &[], vec![read(0, 50, 0, 2), read(1, 50, 0, 0)]);
    let account = play(&[first.clone(), second.clone()]);
    let moves = |id| account.thread(ThreadId(id)).unwrap().moves;
    assert_eq!((moves(0), moves(1), account.decided()), (1, 0, 2));
    second.sample.settled = vec![outcome(1, Settled::Applied)];
    let account = play(&[first, second]);
    assert!(account.moves().all(|one| one.end == Settled::Applied));
    assert_eq!(only(&account).moves, 2);
    assert_eq!(account.moves().next().unwrap().from, Some(OsCpu(0)));
}

#[test]
fn the_share_of_others_is_the_busy_time_that_is_not_ours() {
    let cpu = |at: u64| CpuSample { cpu: OsCpu(0), busy: Span(at * NS_PER_MS), steal: None };
    let mut first = step(0, &[0], &[], vec![read(0, 0, 0, 0)]);
    first.sample.cpus = vec![cpu(0)];
    let mut second = step(100, &[], &[], vec![read(0, 30, 0, 0)]);
    second.sample.cpus = vec![cpu(90)];
    let account = play(&[first.clone()]);
    assert_eq!((account.cpus()[0].busy, account.cpus()[0].others), (None, None));
    let account = play(&[first, second]);
    let cpu = account.cpus()[0];
    assert!((cpu.ours - 0.3).abs() < 1e-9 && (cpu.others.unwrap() - 0.6).abs() < 1e-9);
}

fn trace(steps: Vec<StepRecord>) -> Trace {
    Trace { header: header(), steps, end: None, cut: false }
}

#[test]
fn a_timeline_keeps_all_time_with_any_number_of_columns() {
    let steps: Vec<_> = (0..=97)
        .map(|at| {
            let threads = vec![read(0, at * 60, at * 40, u32::try_from(at % 3).unwrap() * 2)];
            step(at * 100, if at == 0 { &[0] } else { &[] }, &[], threads)
        })
        .collect();
    let trace = trace(steps);
    for columns in [1, 2, 7, 50, 97, 1_000] {
        let line = Timeline::of(&trace, columns, 10, 10);
        let lane = &line.lanes[0];
        assert_eq!((lane.cells.len(), line.edges.len()), (columns.min(97), columns.min(97) + 1));
        let run: f64 = lane
            .cells
            .iter()
            .enumerate()
            .map(|(at, cell)| cell.run.unwrap() * line.edges[at + 1].since(line.edges[at]).0 as f64)
            .sum();
        assert!((run / (97.0 * 60.0 * NS_PER_MS as f64) - 1.0).abs() < 1e-6, "{columns}: {run}");
        assert!(lane.cells.iter().all(|cell| (cell.speed.unwrap() - 0.6).abs() < 1e-6));
        let seen: u32 = lane.cells.iter().map(|cell| cell.migrations).sum();
        assert_eq!(u64::from(seen), lane.thread.totals.migrations);
        let ours: f64 = line.cpus.iter().flat_map(|cpu| &cpu.ours).sum::<f64>() / lane.cells.len() as f64;
        assert!((ours - 0.6).abs() < 1e-6, "{ours}");
    }
}

/// A policy that moves nothing does not sample CPUs each time: the reading at the end covers all
/// the time since the last.
#[test]
fn a_timeline_spreads_the_work_of_a_cpu_over_the_sampled_time() {
    let cpu = |busy: u64| CpuSample { cpu: OsCpu(0), busy: Span(busy * NS_PER_MS), steal: None };
    let steps = (0..=10).map(|at| {
        let mut step = step(at * 100, &[], &[], vec![]);
        if at % 10 == 0 {
            step.sample.cpus = vec![cpu(at * 50)];
        }
        step
    });
    let line = Timeline::of(&trace(steps.collect()), 10, 10, 10);
    let busy: Vec<_> = line.cpus[0].busy.iter().map(|busy| busy.map(|busy| (100.0 * busy).round())).collect();
    assert_eq!(busy, [Some(50.0); 10]);
}

#[test]
fn a_timeline_leaves_columns_empty_where_nothing_was_read() {
    let mut steps = vec![step(0, &[0], &[], vec![read(0, 0, 0, 0)])];
    steps.push(step(100, &[], &[], vec![read(0, 100, 0, 0)]));
    let mut jump = step(900, &[], &[], vec![read(0, 900, 0, 0)]);
    jump.sample.notices = vec![Notice::ClockJump(Span::from_ms(700))];
    steps.push(jump);
    steps.push(step(1_000, &[], &[0], vec![]));
    let line = Timeline::of(&trace(steps), 10, 10, 10);
    let cells = &line.lanes[0].cells;
    assert!(cells[0].speed.is_some(), "{cells:?}");
    assert!(cells[1..].iter().all(|cell| cell.speed.is_none() && cell.run.is_none()), "{cells:?}");
}

#[test]
fn balances_keep_their_value_between_samples() {
    // Ten samples in a tenth of a second, then one a second later.
    let steps: Vec<_> = (0..=10)
        .map(|at| if at < 10 { at * 10 } else { 1_100 })
        .map(|at| {
            let threads = vec![read(0, at / 2, at / 2, 0), read(1, at / 2, at / 2, 1), read(2, at, 0, 2)];
            step(at, if at == 0 { &[0, 1, 2] } else { &[] }, &[], threads)
        })
        .collect();
    let line = Timeline::of(&trace(steps), 10, 10, 10);
    let expected: Vec<_> = line.programs[0].points.iter().map(|point| point.expected).collect();
    assert_eq!(expected.len(), 10);
    assert!(
        expected.iter().all(|value| value.is_some_and(|value| (value - 0.75).abs() < 0.01)),
        "{expected:?}"
    );
}

#[test]
fn a_timeline_of_nothing_is_one_empty_column() {
    let line = Timeline::of(&trace(Vec::new()), 100, 100, 100);
    assert_eq!((line.edges.len(), line.lanes.len(), line.omitted), (2, 0, 0));
    let line = Timeline::of(&trace(vec![step(5, &[0], &[], vec![read(0, 1, 1, 9_999)])]), 0, 0, 0);
    assert_eq!((line.edges.len(), line.lanes.len(), line.omitted), (2, 0, 1));
}

#[test]
fn the_longest_runners_have_the_lanes() {
    let threads = |at: u64| (0..9).map(|id| read(id, at * u64::from(id), 0, 0)).collect();
    let ids: Vec<u32> = (0..9).collect();
    let line =
        Timeline::of(&trace(vec![step(0, &ids, &[], threads(0)), step(100, &[], &[], threads(10))]), 5, 3, 1);
    let shown: Vec<u32> = line.lanes.iter().map(|lane| lane.thread.info.id.0).collect();
    assert_eq!((shown, line.omitted), (vec![6, 7, 8], 6));
}

#[test]
fn any_order_of_moments_and_any_numbers_are_survived() {
    let weird = [
        (u64::MAX / NS_PER_MS, u64::MAX / NS_PER_MS, 0),
        (0, 5, 4_000_000_000),
        (7, 0, 3),
        (7, u64::MAX / NS_PER_MS, 3),
        (3, 1, 3),
    ];
    let steps: Vec<_> = weird
        .into_iter()
        .map(|(at, run, cpu)| step(at, &[0], &[], vec![read(0, run, u64::MAX / NS_PER_MS, cpu)]))
        .collect();
    let line = Timeline::of(&trace(steps.clone()), 1_000, 10, 10);
    assert!(
        line.lanes[0].cells.iter().filter_map(|cell| cell.speed).all(|speed| (0.0..=1.0).contains(&speed))
    );
    play(&steps);
    let _: CpuSet = header().usable;
}
