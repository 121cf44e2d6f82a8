//! What became of a run's threads: where they ran, what they waited for, who else was there.
//!
//! Unit: CPU time and shares of it. Problem: after a run people ask where its threads were and whether somebody was in their
//! way, and answers are wanted of runs that nobody balanced too. Idea: add up the samples that the loop reads anyway. Time
//! that a thread ran between two looks counts for the CPU on which the later one found it.
//!
//! What that cannot see: a thread that lived and died between two looks, and the last moments of one that has ended before
//! the last look. How much of the program's CPU time the looks have seen is part of the answer ([`Audited::covered`]), and changes of
//! CPU between two looks are counted once at most ([`ThreadAudit::moved_at_least`]).
//!
//! Properties: times never exceed what was read; the time over CPUs sums to the thread's time; a thread's counters begin at the
//! first look for those that lived then, and at its birth for others; what was not read is missing.
//!
//! Source: balance as lowest over highest time over cores is Iancu, Hofmeyr, Blagojević and Zheng, "Oversubscription on
//! Multicore Processors", IPDPS 2010.

use crate::balance::{Kind, Policy, Turn, Wanted};
use crate::ids::{OsCpu, OsNode, ThreadId};
use crate::observe::{Observation, Sample, ThreadSample};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use serde::Serialize;
use std::collections::BTreeMap;

/// Looks and does nothing, as `float` does, at intervals that grow with the time it has looked for: a run of any length is
/// seen to its last twentieth, and a long one costs next to nothing.
#[derive(Clone, Debug, Default)]
pub struct Auditor {
    began: Option<Moment>,
}

/// The shortest time between two looks of an [`Auditor`].
const LOOK_MIN: Span = Span::from_ms(10);
/// The longest.
const LOOK_MAX: Span = Span::from_ms(1_000);

impl Policy for Auditor {
    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let began = *self.began.get_or_insert(seen.at);
        let pause = Span(seen.at.since(began).0 / 20).clamp(LOOK_MIN, LOOK_MAX);
        Turn { next: seen.at + pause, wanted: Wanted::all(), ..Turn::default() }
    }
}

/// What a host knows besides samples, by looking closely: dearer, and therefore seldom read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Close {
    /// Thread by thread.
    pub threads: BTreeMap<ThreadId, Counted>,
    /// The share of accesses that would go to another node than the thread's, if every thread used all pages of its process
    /// alike.
    pub remote: Option<f64>,
    /// The share of anonymous memory that is in huge pages.
    pub huge: Option<f64>,
    /// Bytes in memory at the most, of all processes.
    pub resident: Option<u64>,
    /// Bytes touched between two close looks at the most, of all processes, where that was asked for.
    pub touched: Option<u64>,
}

/// What was counted of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// How often it went to sleep.
    pub sleeps: Option<u64>,
    /// How often it was taken off a CPU against its will, when that was last read.
    pub preempted: Option<u64>,
    /// How often it went from one CPU to another, likewise.
    pub migrations: Option<u64>,
}

/// So many ended threads are remembered one by one, those that ran longest; others are summed up. A program may start
/// millions, and the watcher lives as long as it does.
const ENDED_MAX: usize = 8_192;

/// What is known of one thread.
#[derive(Clone, Debug)]
struct Known {
    ended: bool,
    pid: u32,
    tid: u32,
    name: String,
    base: ThreadSample,
    last: ThreadSample,
    cpus: BTreeMap<OsCpu, Span>,
    moved: u64,
    /// The first look that read it, and the last.
    seen: (u64, u64),
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    ours: Span,
    busy: Span,
    /// Busy time at the reading before.
    last: Option<Span>,
}

/// Adds samples up.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    threads: BTreeMap<ThreadId, Known>,
    names: BTreeMap<ThreadId, (u32, u32, String)>,
    cpus: BTreeMap<OsCpu, Cpu>,
    began: Option<Moment>,
    ended: Moment,
    looks: u64,
    /// How many of the threads have ended.
    dead: usize,
    folded: Folded,
}

impl Audit {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a sample in.
    pub fn take(&mut self, sample: &Sample) {
        let first = self.began.is_none();
        self.began.get_or_insert(sample.at);
        self.ended = sample.at;
        self.looks += 1;
        for info in &sample.news {
            self.names.insert(info.id, (info.pid, info.tid, info.name.clone()));
        }
        for read in &sample.threads {
            let Some((pid, tid, name)) = self.names.get(&read.id) else { continue };
            let known = self.threads.entry(read.id).or_insert_with(|| {
                let base = if first { read.clone() } else { born(read) };
                let last = base.clone();
                Known {
                    ended: false,
                    pid: *pid,
                    tid: *tid,
                    name: name.clone(),
                    base,
                    last,
                    cpus: BTreeMap::new(),
                    moved: 0,
                    seen: (self.looks, self.looks),
                }
            });
            known.seen.1 = self.looks;
            known.name.clone_from(name);
            let ran = read.run.less(known.last.run);
            let cpu = read.cpu.or(known.last.cpu);
            if let Some(cpu) = cpu {
                *known.cpus.entry(cpu).or_default() = known.cpus.get(&cpu).copied().unwrap_or_default() + ran;
                let here = self.cpus.entry(cpu).or_default();
                here.ours = here.ours + ran;
            }
            known.moved += u64::from(known.last.cpu.is_some() && cpu != known.last.cpu);
            known.last = ThreadSample { cpu, ..read.clone() };
        }
        for id in &sample.gone {
            self.names.remove(id);
            if let Some(known) = self.threads.get_mut(id) {
                self.dead += usize::from(!std::mem::replace(&mut known.ended, true));
            }
        }
        // Not at each end: so it costs little for each.
        if self.dead > 2 * ENDED_MAX {
            self.fold();
        }
        for read in &sample.cpus {
            let here = self.cpus.entry(read.cpu).or_default();
            if let Some(last) = here.last {
                here.busy = here.busy + read.busy.less(last);
            }
            here.last = Some(read.busy);
        }
    }

    /// Sums up the ended threads that ran least.
    fn fold(&mut self) {
        let dead = self.threads.iter().filter(|(_, known)| known.ended);
        let mut dead: Vec<(Span, ThreadId)> = dead.map(|(id, known)| (known.run(), *id)).collect();
        dead.sort_by_key(|(run, id)| (std::cmp::Reverse(*run), *id));
        for (run, id) in dead.drain(ENDED_MAX.min(dead.len())..) {
            self.threads.remove(&id);
            self.folded.threads += 1;
            self.folded.run = self.folded.run + run;
        }
        self.dead = dead.len();
    }

    /// How many threads with at least this share of the CPU time of the one that had most there were at the same time, as far as looks saw: threads that
    /// lived one after another are no more than one.
    pub fn at_once(&self, share: f64) -> u64 {
        let longest = self.threads.values().map(Known::run).max().unwrap_or_default();
        let works =
            |known: &&Known| known.run() > Span::ZERO && known.run() >= longest.times(share.clamp(0.0, 1.0));
        // By look: how many come with it, and how many were gone after it.
        let mut edges: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for known in self.threads.values().filter(works) {
            edges.entry(known.seen.0).or_default().0 += 1;
            edges.entry(known.seen.1).or_default().1 += 1;
        }
        let (mut now, mut most) = (0, 0);
        for (come, go) in edges.into_values() {
            now += come;
            most = most.max(now);
            now -= go;
        }
        most
    }

    /// What came of it, on this machine; `usable` are the CPUs that the program could use, and `spent` is its whole CPU time
    /// where that is known.
    pub fn report(&self, machine: &Machine, usable: &CpuSet, spent: Option<Span>, close: &Close) -> Audited {
        let span = self.began.map_or(Span::ZERO, |began| self.ended.since(began));
        let threads: Vec<ThreadAudit> = self
            .threads
            .iter()
            .map(|(id, known)| known.report(machine, close.threads.get(id).copied().unwrap_or_default()))
            .collect();
        let seen: Span = threads.iter().map(|thread| thread.run).sum::<Span>() + self.folded.run;
        let mut cores: BTreeMap<u32, (CpuSet, Span)> = BTreeMap::new();
        let mut cpus = Vec::new();
        for cpu in usable.iter() {
            let here = self.cpus.get(&cpu).copied().unwrap_or_default();
            if let Some(pu) = machine.pu(cpu) {
                let (of, ran) = cores.entry(machine.core_of(pu).0).or_default();
                of.insert(cpu);
                *ran = *ran + here.ours;
            }
            let ours = here.ours.share_of(span).map(|share| share.min(1.0));
            // Two clocks count: others have at most what is left, so that no CPU is busy more than all the time.
            let others = here.last.and_then(|_| here.busy.less(here.ours).share_of(span));
            let others = others.map(|share| share.min(1.0 - ours.unwrap_or(0.0)));
            cpus.push(CpuAudit { cpu, node: node_of(machine, cpu), ours, others });
        }
        let lowest = cores.values().map(|(_, ran)| *ran).min().unwrap_or_default();
        let highest = cores.values().map(|(_, ran)| *ran).max().unwrap_or_default();
        let others: Vec<f64> = cpus.iter().filter_map(|cpu| cpu.others).collect();
        Audited {
            seconds: span.seconds(),
            looks: self.looks,
            run: seen,
            spent,
            covered: spent.and_then(|spent| seen.share_of(spent)).map(|share| share.min(1.0)),
            balance: lowest.share_of(highest),
            remote_pages: close.remote,
            huge_pages: close.huge,
            others: (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64),
            cpus,
            threads,
            folded: self.folded,
        }
    }
}

/// The counters of a thread at its birth.
fn born(read: &ThreadSample) -> ThreadSample {
    let zero = |count: Option<u64>| count.map(|_| 0);
    ThreadSample {
        id: read.id,
        run: Span::ZERO,
        wait: read.wait.map(|_| Span::ZERO),
        slices: zero(read.slices),
        ready: None,
        voluntary: zero(read.voluntary),
        cpu: None,
        counts: None,
    }
}

/// The node that is home to a CPU.
fn node_of(machine: &Machine, cpu: OsCpu) -> Option<OsNode> {
    let node = machine.core(machine.core_of(machine.pu(cpu)?)).node?;
    machine.nodes().get(usize::try_from(node.0).ok()?).map(|node| node.os)
}

impl Known {
    /// Its time on CPUs, as far as the looks saw.
    fn run(&self) -> Span {
        self.last.run.less(self.base.run)
    }

    fn report(&self, machine: &Machine, counted: Counted) -> ThreadAudit {
        let run = self.run();
        let wait = self.last.wait.zip(self.base.wait).map(|(last, base)| last.less(base));
        let count = |last: Option<u64>, base: Option<u64>| last?.checked_sub(base?);
        let slices = count(self.last.slices, self.base.slices);
        let voluntary = count(self.last.voluntary, self.base.voluntary);
        let mut nodes: BTreeMap<OsNode, Span> = BTreeMap::new();
        for (&cpu, &ran) in &self.cpus {
            if let Some(node) = node_of(machine, cpu) {
                let sum = nodes.entry(node).or_default();
                *sum = *sum + ran;
            }
        }
        let placed: Span = self.cpus.values().copied().sum();
        ThreadAudit {
            pid: self.pid,
            tid: self.tid,
            name: self.name.clone(),
            run,
            wait,
            wait_share: wait.and_then(|wait| wait.share_of(run + wait)),
            sleeps: voluntary.max(counted.sleeps),
            // It was put on a CPU as often as it left one, but for the last time; what was not by its own will was not voluntary.
            preempted: slices
                .zip(voluntary)
                .map(|(slices, voluntary)| slices.saturating_sub(voluntary + 1))
                .max(counted.preempted),
            migrations: counted.migrations,
            moved_at_least: self.moved,
            cpus: shares(&self.cpus, placed),
            nodes: shares(&nodes, placed),
        }
    }
}

fn shares<I: Copy>(times: &BTreeMap<I, Span>, whole: Span) -> Vec<(I, f64)> {
    times.iter().filter_map(|(&id, ran)| Some((id, ran.share_of(whole)?))).collect()
}

/// What became of a thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadAudit {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Nanoseconds on a CPU, as far as the looks saw.
    pub run: Span,
    /// Nanoseconds ready without one.
    pub wait: Option<Span>,
    /// The share of the time it wanted a CPU and had none.
    pub wait_share: Option<f64>,
    /// How often it went to sleep.
    pub sleeps: Option<u64>,
    /// How often it was taken off a CPU against its will.
    pub preempted: Option<u64>,
    /// How often it went from one CPU to another, where the kernel says so.
    pub migrations: Option<u64>,
    /// In how many looks it was on another CPU than in the one before.
    pub moved_at_least: u64,
    /// The CPUs it ran on, each with its share of the time.
    pub cpus: Vec<(OsCpu, f64)>,
    /// The nodes of these.
    pub nodes: Vec<(OsNode, f64)>,
}

/// Ended threads that are not told one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Folded {
    /// How many.
    pub threads: u64,
    /// Nanoseconds on CPUs, all together, as far as the looks saw.
    pub run: Span,
}

/// What became of a CPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuAudit {
    /// Which.
    pub cpu: OsCpu,
    /// Its node.
    pub node: Option<OsNode>,
    /// The share of the time in which it ran the program.
    pub ours: Option<f64>,
    /// The share in which it ran anything else.
    pub others: Option<f64>,
}

/// What became of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Audited {
    /// From the first to the last look.
    pub seconds: f64,
    /// Looks.
    pub looks: u64,
    /// Nanoseconds that the looks saw the threads on CPUs.
    pub run: Span,
    /// The program's whole CPU time in nanoseconds.
    pub spent: Option<Span>,
    /// How much of it the looks saw.
    pub covered: Option<f64>,
    /// Lowest over highest time on a core, over all that could be used; 1 is even.
    pub balance: Option<f64>,
    /// The share of accesses that would go to another node, if threads used all pages of their process alike.
    pub remote_pages: Option<f64>,
    /// The share of anonymous memory in huge pages.
    pub huge_pages: Option<f64>,
    /// The share of these CPUs' time that others took.
    pub others: Option<f64>,
    /// CPU by CPU.
    pub cpus: Vec<CpuAudit>,
    /// Thread by thread.
    pub threads: Vec<ThreadAudit>,
    /// Of many thousands, the ended ones that ran least.
    pub folded: Folded,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProgramId;
    use crate::observe::{CpuSample, ThreadInfo};
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn info(id: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            pid: 7,
            tid: 7 + id,
            name: format!("t{id}"),
            home: "0-1".parse().unwrap(),
            left: None,
            tagged: false,
        }
    }

    fn read(id: u32, run_ms: u64, cpu: u32) -> ThreadSample {
        ThreadSample {
            id: ThreadId(id),
            run: Span::from_ms(run_ms),
            wait: Some(Span::from_ms(run_ms / 2)),
            slices: Some(run_ms),
            ready: None,
            voluntary: Some(run_ms / 4),
            cpu: Some(OsCpu(cpu)),
            counts: None,
        }
    }

    fn sample(at_ms: u64, news: Vec<ThreadInfo>, threads: Vec<ThreadSample>, busy: [u64; 2]) -> Sample {
        let cpu = |cpu: usize| CpuSample {
            cpu: OsCpu(u32::try_from(cpu).unwrap()),
            busy: Span::from_ms(busy[cpu]),
            steal: None,
        };
        let at = Moment(at_ms * 1_000_000);
        Sample { at, news, threads, cpus: vec![cpu(0), cpu(1)], ..Sample::default() }
    }

    #[test]
    fn time_is_counted_for_the_cpu_where_a_look_found_the_thread() {
        let machine = parse_synthetic("numa:2 core:1 pu:1").unwrap();
        let mut audit = Audit::new();
        audit.take(&sample(0, vec![info(0)], vec![read(0, 40, 0)], [500, 100]));
        // Thread 1 is born after the first look: all it did counts.
        audit.take(&sample(100, vec![info(1)], vec![read(0, 100, 0), read(1, 20, 1)], [590, 130]));
        audit.take(&sample(200, vec![], vec![read(0, 140, 1), read(1, 20, 1)], [600, 200]));
        let seen = audit.report(&machine, &machine.cpus(), Some(Span::from_ms(160)), &Close::default());
        assert_eq!((seen.looks, seen.run, seen.covered), (3, Span::from_ms(120), Some(0.75)));
        let first = &seen.threads[0];
        assert_eq!((first.run, first.wait), (Span::from_ms(100), Some(Span::from_ms(50))));
        assert_eq!((first.moved_at_least, first.sleeps, first.preempted), (1, Some(25), Some(74)));
        assert_eq!(first.cpus, [(OsCpu(0), 0.6), (OsCpu(1), 0.4)]);
        assert_eq!(first.nodes, [(OsNode(0), 0.6), (OsNode(1), 0.4)]);
        assert_eq!(seen.threads[1].nodes, [(OsNode(1), 1.0)]);
        // 60 ms on each core of 200: even; others had 40 and 40 of 100 busy ones.
        assert_eq!(seen.balance, Some(1.0));
        assert_eq!((seen.cpus[0].ours, seen.cpus[0].others), (Some(0.3), Some(0.2)));
        assert_eq!(seen.others, Some(0.2));
    }

    #[test]
    fn threads_that_lived_one_after_another_did_not_work_at_once() {
        let mut audit = Audit::new();
        audit.take(&sample(0, vec![info(0)], vec![read(0, 0, 0)], [0, 0]));
        assert_eq!(audit.at_once(0.05), 0, "nobody has worked yet");
        // One stays, of the others two at a time are there, each for a look.
        for at in 1..=100 {
            let pair = [2 * at - 1, 2 * at];
            let threads =
                [0].iter().chain(&pair).map(|id| read(*id as u32, if *id == 0 { at } else { 9 }, 0));
            let news = pair.iter().map(|id| info(*id as u32)).collect();
            let gone =
                if at > 1 { vec![ThreadId(2 * at as u32 - 3), ThreadId(2 * at as u32 - 2)] } else { vec![] };
            audit.take(&Sample { gone, ..sample(10 * at, news, threads.collect(), [0, 0]) });
        }
        assert_eq!(audit.at_once(0.05), 3);
        // Those that had too little do not count.
        assert_eq!((audit.at_once(0.5), audit.at_once(7.0)), (1, 1));
        assert_eq!(Audit::new().at_once(0.05), 0);
    }

    #[test]
    fn nothing_seen_is_missing_and_not_zero() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut audit = Audit::new();
        let seen = audit.report(&machine, &machine.cpus(), None, &Close::default());
        assert_eq!((seen.balance, seen.others, seen.covered, seen.threads.len()), (None, None, None, 0));
        let unread = ThreadSample { wait: None, slices: None, voluntary: None, cpu: None, ..read(0, 5, 0) };
        audit.take(&Sample { news: vec![info(0)], threads: vec![unread], ..Sample::default() });
        let thread = &audit.report(&machine, &machine.cpus(), None, &Close::default()).threads[0];
        assert_eq!((thread.wait, thread.preempted, thread.cpus.len()), (None, None, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_lost() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut audit = Audit::new();
        let (each, rounds) = (1_000, 40);
        audit.take(&sample(0, vec![info(each * rounds)], vec![read(each * rounds, 0, 0)], [0, 0]));
        for round in 0..rounds {
            let ids = || each * round..each * (round + 1);
            let at = u64::from(round) * 10 + 10;
            // The first threads run longest.
            let run = |id: u32| if id < 100 { 9 } else { 1 };
            audit.take(&sample(
                at,
                ids().map(info).collect(),
                ids().map(|id| read(id, run(id), 0)).collect(),
                [0, 0],
            ));
            audit.take(&Sample {
                gone: ids().map(ThreadId).collect(),
                ..sample(at + 5, vec![], vec![], [0, 0])
            });
        }
        assert!(audit.threads.len() <= 2 * ENDED_MAX + 1, "{}", audit.threads.len());
        let seen = audit.report(&machine, &machine.cpus(), None, &Close::default());
        assert_eq!(seen.threads.len() as u64 + seen.folded.threads, u64::from(each * rounds) + 1);
        assert_eq!(seen.run, Span::from_ms(u64::from(each * rounds) + 800));
        let long = seen.threads.iter().filter(|thread| thread.run == Span::from_ms(9)).count();
        assert_eq!(long, 100, "those that ran longest are told");
        assert!(seen.threads.iter().any(|thread| thread.tid == 7 + each * rounds), "and all that live");
    }

    #[test]
    fn an_auditor_looks_often_at_first_and_once_a_second_in_the_end() {
        let mut observer = crate::observe::Observer::new(CpuSet::new());
        let mut auditor = Auditor::default();
        let mut next = |at: Moment| {
            observer.take(&Sample { at, ..Sample::default() }, &[]);
            auditor.decide(&observer.observation()).next.since(at)
        };
        assert_eq!(next(Moment(0)), LOOK_MIN);
        assert_eq!(next(Moment(2_000_000_000)), Span::from_ms(100));
        assert_eq!(next(Moment(3_600_000_000_000)), LOOK_MAX);
    }

    proptest! {
        #[test]
        fn times_sum_up_whatever_is_read(
            reads in prop::collection::vec((0u32..3, 0u64..1_000, 0u32..2, 0u64..2_000), 1..30),
        ) {
            let machine = parse_synthetic("core:2 pu:1").unwrap();
            let mut audit = Audit::new();
            let mut most = [0u64; 3];
            for (at, (id, run, cpu, busy)) in reads.into_iter().enumerate() {
                most[id as usize] = most[id as usize].max(run);
                let news = vec![info(id)];
                audit.take(&sample(at as u64 * 10, news, vec![read(id, run, cpu)], [busy, busy]));
            }
            let seen = audit.report(&machine, &machine.cpus(), None, &Close::default());
            for thread in &seen.threads {
                let shares: f64 = thread.cpus.iter().map(|(_, share)| share).sum();
                prop_assert!(thread.cpus.is_empty() || (shares - 1.0).abs() < 1e-9);
                prop_assert!(thread.run <= Span::from_ms(most[(thread.tid - 7) as usize]));
            }
            for cpu in &seen.cpus {
                prop_assert!(cpu.ours.is_none_or(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(cpu.others.is_none_or(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(cpu.ours.unwrap_or(0.0) + cpu.others.unwrap_or(0.0) <= 1.0);
            }
            prop_assert!(seen.balance.is_none_or(|balance| (0.0..=1.0).contains(&balance)));
        }
    }
}
