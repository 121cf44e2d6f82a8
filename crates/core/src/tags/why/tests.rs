//! Explanations of scripted steps.

use super::*;
use crate::balance::{Reason, Turn};
use crate::counts::Counts;
use crate::observe::{Left, MemorySample, Observer, Sample, ThreadInfo, ThreadSample};
use crate::topology::parse_synthetic;
use proptest::prelude::*;

/// Two nodes of two CPUs each: 0,1 | 2,3.
const MACHINE: &str = "numa:2 core:2 pu:1";

fn info(id: u32, program: u32) -> ThreadInfo {
    ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(program),
        pid: 100 + program,
        tid: 1_000 + id,
        name: format!("t{id}"),
        home: "0-3".parse().unwrap(),
        left: None,
        tagged: true,
    }
}

fn read(id: u32, run_ms: u64, wait_ms: u64, cpu: u32) -> ThreadSample {
    ThreadSample {
        id: ThreadId(id),
        run: Span::from_ms(run_ms),
        wait: Some(Span::from_ms(wait_ms)),
        slices: None,
        voluntary: None,
        cpu: Some(OsCpu(cpu)),
        ready: None,
        counts: None,
    }
}

fn moved(id: u32, to: &str) -> Decision {
    let reason = Reason::Crowded { waits: 0.5 };
    Decision { thread: ThreadId(id), act: Act::Confine(to.parse().unwrap()), reason, gain: None }
}

/// A daemon's loop with scripted samples and turns.
struct Script {
    observer: Observer,
    explainer: Explainer,
    now: u64,
}

impl Script {
    fn new(machine: &str) -> Self {
        let machine = parse_synthetic(machine).unwrap();
        Self { observer: Observer::new(machine.cpus()), explainer: Explainer::new(&machine), now: 0 }
    }

    /// Takes a step, 100 ms after the last.
    fn step(&mut self, sample: Sample, turn: Turn, ends: &[Settled]) -> &mut Self {
        self.now += 100;
        let sample = Sample { at: Moment(self.now * 1_000_000), ..sample };
        let outcomes: Vec<Outcome> = turn
            .decisions
            .iter()
            .zip(ends)
            .map(|(decision, end)| Outcome { thread: decision.thread, end: *end })
            .collect();
        self.observer.take(&sample, &[]);
        let seen = self.observer.observation();
        self.explainer.take(
            &Step { sample: &sample, seen: &seen, turn: &turn, outcomes: &outcomes },
            Moment(self.now * 1_000_000),
        );
        self
    }

    fn quiet(&mut self, sample: Sample) -> &mut Self {
        self.step(sample, Turn::default(), &[])
    }

    fn decide(&mut self, decisions: Vec<Decision>, end: Settled) -> &mut Self {
        let ends = vec![end; decisions.len()];
        self.step(Sample::default(), Turn { decisions, ..Turn::default() }, &ends)
    }

    fn why(&self, program: u32) -> Why {
        self.explainer.why(ProgramId(program), Moment(self.now * 1_000_000))
    }

    fn still(&self, program: u32) -> String {
        self.why(program).still.unwrap_or_default()
    }
}

fn first(infos: Vec<ThreadInfo>, threads: Vec<ThreadSample>) -> Sample {
    Sample { news: infos, threads, ..Sample::default() }
}

fn then(threads: Vec<ThreadSample>) -> Sample {
    Sample { threads, ..Sample::default() }
}

#[test]
fn a_program_that_is_left_alone_has_its_own_reason_before_that_of_all() {
    let mut script = Script::new(MACHINE);
    let bound = |id, program| ThreadInfo { home: "1".parse().unwrap(), ..info(id, program) };
    let left = |id, program| ThreadInfo { left: Some(Left::Balancer(7)), ..info(id, program) };
    let untagged = ThreadInfo { tagged: false, ..info(9, 5) };
    let news = vec![info(0, 0), bound(1, 1), left(2, 2), info(3, 3), untagged];
    let reads = |ms: u64| (0..4).map(|id| read(id, if id == 3 { 0 } else { ms }, 0, id)).collect::<Vec<_>>();
    script.quiet(first(news, reads(0)));
    assert!(script.still(0).contains("not been sampled twice"), "{}", script.still(0));
    assert_eq!(script.still(7), script.still(0), "an unknown program");
    let found = Turn { findings: vec![Finding::NothingWaits], ..Turn::default() };
    script.step(then(reads(50)), found, &[]);
    assert!(script.still(0).starts_with("no thread waits"), "{}", script.still(0));
    assert!(script.still(1).contains("one CPU only"), "{}", script.still(1));
    assert_eq!(script.still(2), "its thread may not be moved: process 7 balances it");
    assert_eq!(script.still(3), "its thread sleeps and wants no CPU");
    assert!(script.explainer.figures(ProgramId(5)).is_none(), "no tag covers it");
    // The same reason keeps its begin.
    script.quiet(then(reads(100))).quiet(then(reads(150)));
    assert_eq!(script.why(3).still_for, Some(Span::from_ms(200)));
    // Its threads have ended.
    let gone = Sample { gone: vec![ThreadId(3)], ..then(reads(200)[..3].to_vec()) };
    script.quiet(gone);
    assert!(script.still(3).starts_with("no thread counts to this tag"), "{}", script.still(3));
    assert_eq!(script.why(3).still_for, Some(Span::ZERO));
    script.explainer.keep(&BTreeSet::from([ProgramId(0)]));
    assert!(script.explainer.figures(ProgramId(3)).is_none());
}

#[test]
fn a_host_with_one_node_says_that_nothing_can_be_gained() {
    let mut script = Script::new("core:2 pu:1");
    script.quiet(first(vec![info(0, 0)], vec![read(0, 0, 0, 0)]));
    let found = Turn { findings: vec![Finding::OneUnit], ..Turn::default() };
    script.step(then(vec![read(0, 90, 5, 0)]), found, &[]);
    assert!(
        script.still(0).starts_with("nothing can be gained by moves between nodes"),
        "{}",
        script.still(0)
    );
    assert_eq!(script.explainer.figures(ProgramId(0)).unwrap().far, Some(0.0), "no memory is far");
}

#[test]
fn the_last_decision_has_its_reason_its_age_and_its_outcome() {
    let mut script = Script::new(MACHINE);
    script.quiet(first(vec![info(0, 0), info(1, 0)], vec![read(0, 0, 0, 0), read(1, 0, 0, 0)]));
    script.decide(vec![moved(0, "1"), moved(1, "2")], Settled::Applied);
    let last = script.why(0).last.unwrap();
    assert_eq!((last.pid, last.tid, last.thread.as_str()), (100, 1_001, "t1"));
    assert_eq!((last.act.as_str(), last.end.as_str(), last.age), ("moved to CPU 2", "done", Span::ZERO));
    assert!(last.reason.contains("waits 50 %"), "{}", last.reason);
    assert_eq!(script.why(0).still, None, "while decisions are made");
    script.quiet(then(vec![read(0, 100, 0, 1), read(1, 100, 0, 2)]));
    assert_eq!(script.why(0).last.unwrap().age, Span::from_ms(100));
    assert!(script.why(0).still.is_some());
    // An outcome that becomes known later.
    script.decide(vec![moved(0, "3")], Settled::Pending);
    assert_eq!(script.why(0).last.unwrap().end, "not done yet");
    let settled = vec![Outcome { thread: ThreadId(0), end: Settled::Refused(Refusal::Memory) }];
    script.quiet(Sample { settled, ..Sample::default() });
    assert!(script.why(0).last.unwrap().end.starts_with("refused"), "{:?}", script.why(0).last);
    let figures = script.explainer.figures(ProgramId(0)).unwrap();
    assert_eq!((figures.moves, figures.refused, figures.withheld), (2, 1, 0));
}

#[test]
fn a_withheld_move_that_is_decided_again_counts_once() {
    let mut script = Script::new(MACHINE);
    script.quiet(first(vec![info(0, 0)], vec![read(0, 0, 0, 0)]));
    let observed = Settled::Refused(Refusal::Observed);
    for to in ["1", "1", "1", "2"] {
        script.decide(vec![moved(0, to)], observed);
    }
    assert_eq!(script.why(0).withheld, 2);
    let last = script.why(0).last.unwrap();
    assert_eq!((last.act.as_str(), last.end.as_str()), ("moved to CPU 2", "not done: only observed"));
    assert_eq!(would(&Act::Confine("2".parse().unwrap())), "would be moved to CPU 2");
    assert_eq!(would(&Act::Fetch(OsNode(1))), "would have its memory brought to node 1");
}

#[test]
fn memory_is_near_or_far_by_counts_and_else_by_pages_and_missing_without_both() {
    let mut script = Script::new(MACHINE);
    let counts = |near, far, busy, requests| {
        let enabled = Span::from_ms(10);
        let (near, far) = (Some(near), Some(far));
        Counts {
            enabled,
            running: enabled,
            near,
            far,
            busy: Some(busy),
            requests: Some(requests),
            ..Counts::default()
        }
    };
    script.quiet(first(vec![info(0, 0)], vec![read(0, 0, 0, 0)]));
    let far = |script: &Script| script.explainer.figures(ProgramId(0)).unwrap().far;
    assert_eq!(far(&script), None, "nothing was read, which is not zero");
    let memory = |near: u64, far: u64| MemorySample {
        thread: ThreadId(0),
        pages: BTreeMap::from([(OsNode(0), near), (OsNode(1), far)]),
    };
    script.quiet(Sample { memory: vec![memory(3, 1)], ..then(vec![read(0, 50, 0, 1)]) });
    assert_eq!(far(&script), Some(0.25), "it runs in node 0");
    script.quiet(then(vec![read(0, 100, 0, 2)]));
    assert_eq!(far(&script), Some(0.75), "it runs in node 1");
    let read_with = |run, counts| ThreadSample { counts: Some(counts), ..read(0, run, 0, 2) };
    let mut later = counts(1, 1, 10, 1);
    script.quiet(then(vec![read_with(150, later)]));
    later = Counts { enabled: Span::from_ms(20), running: Span::from_ms(20), ..counts(2, 10, 110, 6) };
    script.quiet(then(vec![read_with(200, later)]));
    assert_eq!(far(&script), Some(0.9));
    assert_eq!(script.explainer.figures(ProgramId(0)).unwrap().penalty, Some(20.0));
}

proptest! {
    /// An independent count: of outcomes by kind, and of CPU time and waiting by program.
    #[test]
    fn figures_are_the_sums_of_what_was_shown(
        steps in prop::collection::vec((prop::collection::vec((0_u32..4, 0_u64..90, 0_u64..90), 0..5), 0_u32..4, 0_u8..4), 1..30),
    ) {
        let mut script = Script::new(MACHINE);
        let news = (0..4).map(|id| info(id, id % 2)).collect();
        let mut totals = [(0_u64, 0_u64); 4];
        script.quiet(first(news, (0..4).map(|id| read(id, 0, 0, 0)).collect()));
        let (mut moves, mut refused) = ([0_u64; 2], [0_u64; 2]);
        for (reads, thread, end) in steps {
            let mut threads: BTreeMap<u32, ThreadSample> = BTreeMap::new();
            for (id, run, wait) in reads {
                if threads.contains_key(&id) { continue; }
                let total = &mut totals[id as usize];
                *total = (total.0 + run, total.1 + wait);
                threads.insert(id, read(id, total.0, total.1, 0));
            }
            let end = [Settled::Applied, Settled::Refused(Refusal::Cpus), Settled::Vanished,
                Settled::Refused(Refusal::MovedMeanwhile)][usize::from(end)];
            match end {
                Settled::Applied => moves[thread as usize % 2] += 1,
                Settled::Refused(_) => refused[thread as usize % 2] += 1,
                _ => {}
            }
            let turn = Turn { decisions: vec![moved(thread, "1")], ..Turn::default() };
            script.step(then(threads.into_values().collect()), turn, &[end]);
        }
        for program in 0..2_usize {
            let figures = script.explainer.figures(ProgramId(program as u32)).unwrap();
            let ms = |of: fn(&(u64, u64)) -> u64| (of(&totals[program]) + of(&totals[program + 2])) as f64;
            prop_assert_eq!(figures.threads, 2);
            prop_assert!((figures.run.seconds() * 1e3 - ms(|total| total.0)).abs() < 0.01);
            if let Some(wait) = figures.wait {
                prop_assert!((wait.seconds() * 1e3 - ms(|total| total.1)).abs() < 0.01);
            }
            prop_assert_eq!((figures.moves, figures.refused), (moves[program], refused[program]));
        }
    }
}
