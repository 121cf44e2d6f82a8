use super::*;
use crate::balance::{Act, Decision, Finding, Reason, Settled, Wanted};
use crate::ids::{OsCpu, OsNode, ProgramId, ThreadId};
use crate::observe::{
    CpuSample, Fetched, Left, MemorySample, Notice, Observer, ProgramInfo, ThreadInfo, ThreadSample,
    Unfetched,
};
use crate::time::{Moment, Span};
use crate::topology::parse_synthetic;

fn header() -> Header {
    Header {
        version: VERSION,
        policy: Kind::Speed,
        settings: Settings { seed: 7, ..Settings::default() },
        command: "./app \u{fffd}".to_owned(),
        began: Some(1_700_000_000),
        usable: "0-3".parse().unwrap(),
        machine: parse_synthetic("pack:1 core:4 pu:1").unwrap(),
    }
}

/// Returns a step in which no field is empty.
fn step(number: u64) -> StepRecord {
    let thread = ThreadId(3);
    let confined = Decision {
        thread,
        act: Act::Confine("2".parse().unwrap()),
        reason: Reason::Slow { speed: 0.5, mean: 0.7 },
        gain: Some(0.25),
    };
    let sample = Sample {
        at: Moment(number * 100),
        programs: vec![ProgramInfo { id: ProgramId(0), pid: 9, name: "app".to_owned() }],
        news: vec![ThreadInfo {
            id: thread,
            program: ProgramId(0),
            pid: 9,
            tid: 10,
            name: "a \"name\"\n</script>".to_owned(),
            home: "0-3".parse().unwrap(),
            left: Some(Left::Scheduler("rusty".to_owned())),
            tagged: false,
        }],
        gone: vec![ThreadId(1)],
        threads: vec![ThreadSample {
            id: thread,
            run: Span(u64::MAX),
            wait: None,
            slices: Some(4),
            ready: Some(true),
            voluntary: Some(1),
            cpu: Some(OsCpu(2)),
            counts: None,
        }],
        cpus: vec![CpuSample { cpu: OsCpu(0), busy: Span(5), steal: Some(Span(1)) }],
        memory: vec![MemorySample { thread, pages: [(OsNode(0), 3), (OsNode(7), u64::MAX)].into() }],
        throttled: Some(Span(77)),
        cost: Some(Span(48_000)),
        settled: vec![Outcome { thread, end: Settled::Applied }],
        notices: vec![
            Notice::ClockJump(Span(3)),
            Notice::Scheduler(None),
            Notice::Unread(2),
            Notice::Memory(Fetched {
                thread: ThreadId(3),
                pid: 4,
                to: OsNode(1),
                moved: 8_192,
                left: 4_096,
                why: Some(Unfetched::Policy("bind:0".into())),
            }),
        ],
    };
    let findings = vec![Finding::Hog { cpus: "1".parse().unwrap(), share: 0.5 }, Finding::NothingWaits];
    let turn = Turn {
        decisions: vec![
            confined,
            Decision { thread, act: Act::Release, reason: Reason::Gone(OsCpu(1)), gain: None },
        ],
        findings,
        next: Moment(number * 100 + 100),
        wanted: Wanted { on: Some("0-1".parse().unwrap()), ..Wanted::all() },
    };
    StepRecord { sample, turn, outcomes: vec![Outcome { thread, end: Settled::Vanished }] }
}

fn text(steps: u64, end: bool) -> String {
    let mut lines = vec![Line::Header(Box::new(header()))];
    lines.extend((0..steps).map(|number| Line::Step(Box::new(step(number)))));
    lines.extend(end.then(|| Line::End(End { why: "the program ended".to_owned(), status: Some(3) })));
    lines.iter().map(|line| line.encode() + "\n").collect()
}

#[test]
fn written_data_is_read_back() {
    let trace = Trace::parse(&text(3, true)).unwrap();
    assert_eq!(trace.header, header());
    assert_eq!(trace.steps, (0..3).map(step).collect::<Vec<_>>());
    assert_eq!(trace.end.unwrap().status, Some(3));
    assert!(!trace.cut);
}

#[test]
fn every_line_stands_alone() {
    for line in text(2, true).lines() {
        let read = Line::decode(line).unwrap();
        assert_eq!(read.encode(), line);
    }
}

/// After a crash or on a full disk, all whole steps before the cut are there, wherever the cut is.
#[test]
fn a_trace_cut_anywhere_gives_the_whole_steps_before_the_cut() {
    let whole = text(3, true);
    let head = whole.find('\n').unwrap();
    for cut in (0..=whole.len()).filter(|&cut| whole.is_char_boundary(cut)) {
        let part = &whole[..cut];
        let found = Trace::parse(part);
        if cut < head {
            assert!(found.is_err(), "a header cut at {cut}");
            continue;
        }
        let found = found.unwrap();
        let lines = part.matches('\n').count();
        // A last line that lacks only its line end is whole.
        let steps = found.steps.len();
        assert!(steps == lines.saturating_sub(1).min(3) || steps == lines.min(3), "cut at {cut}");
        assert_eq!(found.steps, (0..steps as u64).map(step).collect::<Vec<_>>());
    }
}

#[test]
fn foreign_files_are_named_as_such() {
    assert_eq!(Trace::parse(""), Err(TraceError::Empty));
    for foreign in ["\n", "hello\n", "{}\n", "{\"step\":{}}\n", "[1,2]\n", "{\"header\":{}}\n", "\u{0}\u{1}"]
    {
        assert!(matches!(Trace::parse(foreign), Err(TraceError::Foreign(_))), "{foreign:?}");
    }
    let later = text(1, true).replacen("\"trimtab-trace\":1", "\"trimtab-trace\":2", 1);
    assert_eq!(Trace::parse(&later), Err(TraceError::Version(2)));
}

#[test]
fn damage_in_the_middle_is_an_error_with_its_line() {
    let mut lines: Vec<String> = text(3, true).lines().map(str::to_owned).collect();
    lines[2].truncate(20);
    let damaged = lines.join("\n") + "\n";
    assert!(matches!(Trace::parse(&damaged), Err(TraceError::Damaged { line: 3, .. })));
    let twice = text(1, false) + &text(1, false);
    assert!(matches!(Trace::parse(&twice), Err(TraceError::Damaged { line: 3, .. })));
}

#[test]
fn unknown_keys_are_ignored() {
    let later = text(1, true).replacen("{\"sample\":{", "{\"later\":1,\"sample\":{\"more\":[2],", 1);
    assert_eq!(Trace::parse(&later).unwrap().steps, [step(0)]);
}

#[test]
fn a_step_is_written_equally_with_and_without_a_copy() {
    let outcomes = [Outcome { thread: ThreadId(3), end: Settled::Pending }];
    for outcomes in [&outcomes[..], &[]] {
        let (sample, turn) = (Sample::default(), Turn::default());
        let observer = Observer::new(CpuSet::new());
        let seen = observer.observation();
        let text = Line::encode_step(&Step { sample: &sample, seen: &seen, turn: &turn, outcomes });
        let record = StepRecord { sample: sample.clone(), turn: turn.clone(), outcomes: outcomes.to_vec() };
        assert_eq!(text, Line::Step(Box::new(record)).encode());
    }
}
