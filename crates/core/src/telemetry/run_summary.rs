//! Summary of a run: where its threads ran, how long they waited, which other load there was. The
//! summary is a view of the [`Accumulator`], used by the report after a run and by profiles.
//!
//! Unit: CPU time and shares of it. The share of the program's CPU time that the samples saw is
//! part of the summary ([`RunSummary::covered`]); the accumulator's documentation names the events
//! that samples cannot see.

use super::accumulator::{Accumulator, Folded, ThreadTotals};
use super::{balance, shares};
use crate::ids::{OsCpu, OsNode, ThreadId};
use crate::set::CpuSet;
use crate::time::Span;
use crate::topology::Machine;
use serde::Serialize;
use std::collections::BTreeMap;

/// Readings of a host besides samples. They are more expensive and therefore taken less often.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CloseSample {
    /// Context switches and migrations by thread.
    pub threads: BTreeMap<ThreadId, SwitchCounts>,
    /// Bytes on each node, by process.
    pub memory: BTreeMap<u32, BTreeMap<OsNode, u64>>,
    /// Share of anonymous memory that is in huge pages.
    pub huge: Option<f64>,
    /// Largest resident memory of all processes, in bytes.
    pub resident: Option<u64>,
    /// Largest number of bytes touched between two close samples, over all processes; `None` if
    /// this was not measured.
    pub touched: Option<u64>,
}

/// Counts of the kernel for one thread, as last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchCounts {
    /// Times that the thread went to sleep.
    pub sleeps: Option<u64>,
    /// Times that the thread was preempted.
    pub preempted: Option<u64>,
    /// Migrations between CPUs.
    pub migrations: Option<u64>,
}

/// Use of CPUs by one thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadSummary {
    /// Process of the thread.
    pub pid: u32,
    /// Thread number of the kernel.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Nanoseconds on a CPU, as far as samples saw.
    pub run: Span,
    /// Nanoseconds ready without a CPU.
    pub wait: Option<Span>,
    /// Share of the wanted CPU time in which the thread had no CPU.
    pub wait_share: Option<f64>,
    /// Times that the thread went to sleep.
    pub sleeps: Option<u64>,
    /// Times that the thread was preempted.
    pub preempted: Option<u64>,
    /// Migrations between CPUs, if the kernel counts them.
    pub migrations: Option<u64>,
    /// Samples that found the thread on another CPU than the sample before.
    pub moved_at_least: u64,
    /// CPUs on which the thread ran, each with its share of the thread's CPU time.
    pub cpus: Vec<(OsCpu, f64)>,
    /// Nodes of these CPUs, each with its share of the thread's CPU time.
    pub nodes: Vec<(OsNode, f64)>,
}

/// Use of one CPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuSummary {
    /// CPU.
    pub cpu: OsCpu,
    /// Node of the CPU.
    pub node: Option<OsNode>,
    /// Share of the time in which the CPU ran the program.
    pub ours: Option<f64>,
    /// Share of the time in which the CPU ran anything else.
    pub others: Option<f64>,
}

/// Summary of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunSummary {
    /// Seconds from the first to the last sample.
    pub seconds: f64,
    /// Number of samples.
    pub looks: u64,
    /// CPU time of the threads in nanoseconds, as far as samples saw.
    pub run: Span,
    /// Whole CPU time of the program in nanoseconds.
    pub spent: Option<Span>,
    /// Share of it that samples saw.
    pub covered: Option<f64>,
    /// Lowest over highest CPU time of a core, over all cores that could be used; 1 is even.
    pub balance: Option<f64>,
    /// Share of memory accesses to another node, if threads used all pages of their process
    /// equally.
    pub remote_pages: Option<f64>,
    /// Share of anonymous memory in huge pages.
    pub huge_pages: Option<f64>,
    /// Share of the time of these CPUs that other programs took.
    pub others: Option<f64>,
    /// CPUs.
    pub cpus: Vec<CpuSummary>,
    /// Threads.
    pub threads: Vec<ThreadSummary>,
    /// Ended threads that ran least, if there were many thousands.
    pub folded: Folded,
    /// Share of the wanted CPU time in which the threads had no CPU, over all of them.
    #[serde(skip)]
    pub wait_share: Option<f64>,
}

impl RunSummary {
    /// Summarises the totals of a run on this machine. `usable` are the CPUs that the program could
    /// use, and `spent` is the program's whole CPU time if it is known.
    pub fn of(
        totals: &Accumulator,
        machine: &Machine,
        usable: &CpuSet,
        spent: Option<Span>,
        close: &CloseSample,
    ) -> Self {
        let summary = |(id, thread): (&ThreadId, &ThreadTotals)| {
            ThreadSummary::of(thread, machine, close.threads.get(id).copied().unwrap_or_default())
        };
        let threads: Vec<ThreadSummary> = totals.threads.iter().map(summary).collect();
        let run = totals.all.run;
        let cpus: Vec<CpuSummary> = usable.iter().map(|cpu| CpuSummary::of(totals, machine, cpu)).collect();
        let others: Vec<f64> = cpus.iter().filter_map(|cpu| cpu.others).collect();
        Self {
            seconds: totals.span().seconds(),
            looks: totals.samples,
            run,
            spent,
            covered: spent.and_then(|spent| run.share_of(spent)).map(|share| share.min(1.0)),
            balance: balance(core_times(totals, machine, usable).into_values()),
            remote_pages: remote_share(totals, machine, &close.memory),
            huge_pages: close.huge,
            others: (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64),
            cpus,
            threads,
            folded: totals.folded,
            wait_share: totals.all.wait_share(),
        }
    }
}

/// Returns the time of the program's threads on each core of these CPUs.
fn core_times(totals: &Accumulator, machine: &Machine, usable: &CpuSet) -> BTreeMap<u32, Span> {
    let mut times = BTreeMap::new();
    for cpu in usable.iter() {
        if let Some(pu) = machine.pu(cpu) {
            let ours = totals.all.run_on.get(&cpu).copied().unwrap_or_default();
            super::add_time(&mut times, machine.core_of(pu).0, ours);
        }
    }
    times
}

/// Returns the share of accesses that would go to another node than the thread's, if every thread
/// used all pages of its process equally. `None` if no process with a thread that ran has known
/// pages.
fn remote_share(
    totals: &Accumulator,
    machine: &Machine,
    memory: &BTreeMap<u32, BTreeMap<OsNode, u64>>,
) -> Option<f64> {
    let nodes: BTreeMap<OsNode, CpuSet> =
        machine.nodes().iter().map(|node| (node.os, machine.cpus_of(&node.near))).collect();
    let (mut all, mut remote) = (0.0, 0.0);
    for thread in totals.threads.values() {
        let Some(bytes) = memory.get(&thread.pid) else { continue };
        let whole: u64 = bytes.values().sum();
        for (cpu, span) in &thread.totals.run_on {
            let here = nodes.iter().find(|(_, cpus)| cpus.contains(*cpu)).map(|(node, _)| *node);
            let (Some(here), true) = (here, whole > 0) else { continue };
            let local = bytes.get(&here).copied().unwrap_or(0) as f64 / whole as f64;
            all += span.seconds();
            remote += span.seconds() * (1.0 - local);
        }
    }
    (all > 0.0).then(|| remote / all)
}

/// Returns the node of a CPU.
fn node_of(machine: &Machine, cpu: OsCpu) -> Option<OsNode> {
    let node = machine.core(machine.core_of(machine.pu(cpu)?)).node?;
    machine.nodes().get(usize::try_from(node.0).ok()?).map(|node| node.os)
}

impl CpuSummary {
    fn of(totals: &Accumulator, machine: &Machine, cpu: OsCpu) -> Self {
        let here = totals.cpus.get(&cpu).copied().unwrap_or_default();
        let span = totals.span();
        let ran = totals.all.run_on.get(&cpu).copied().unwrap_or_default();
        let ours = ran.share_of(span).map(|share| share.min(1.0));
        // The two times come from two clocks. Other programs get at most the remainder, so that a
        // CPU is never busy for more than the whole time.
        let others = here.last.and_then(|_| here.busy.less(ran).share_of(span));
        let others = others.map(|share| share.min(1.0 - ours.unwrap_or(0.0)));
        Self { cpu, node: node_of(machine, cpu), ours, others }
    }
}

impl ThreadSummary {
    fn of(thread: &ThreadTotals, machine: &Machine, counted: SwitchCounts) -> Self {
        let totals = &thread.totals;
        let count = |(base, last): (Option<u64>, Option<u64>)| last?.checked_sub(base?);
        let slices = count(thread.slices);
        let voluntary = count(thread.voluntary);
        let mut nodes: BTreeMap<OsNode, Span> = BTreeMap::new();
        for (&cpu, &ran) in &totals.run_on {
            if let Some(node) = node_of(machine, cpu) {
                super::add_time(&mut nodes, node, ran);
            }
        }
        let placed = totals.placed();
        Self {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            run: totals.run,
            wait: totals.wait,
            wait_share: totals.wait_share(),
            sleeps: voluntary.max(counted.sleeps),
            // A thread is put on a CPU as often as it leaves one, except for the last time. A
            // departure that was not voluntary was a preemption.
            preempted: slices
                .zip(voluntary)
                .map(|(slices, voluntary)| slices.saturating_sub(voluntary + 1))
                .max(counted.preempted),
            migrations: counted.migrations,
            moved_at_least: totals.cpu_changes,
            cpus: shares(&totals.run_on, placed),
            nodes: shares(&nodes, placed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ProgramId, ThreadId};
    use crate::observe::{CpuSample, Sample, ThreadInfo, ThreadSample};
    use crate::time::Moment;
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
    fn time_counts_for_the_cpu_of_the_thread_at_the_sample() {
        let machine = parse_synthetic("numa:2 core:1 pu:1").unwrap();
        let mut totals = Accumulator::default();
        totals.add(&sample(0, vec![info(0)], vec![read(0, 40, 0)], [500, 100]));
        // Thread 1 is born after the first sample, so all its CPU time counts.
        totals.add(&sample(100, vec![info(1)], vec![read(0, 100, 0), read(1, 20, 1)], [590, 130]));
        totals.add(&sample(200, vec![], vec![read(0, 140, 1), read(1, 20, 1)], [600, 200]));
        let seen = RunSummary::of(
            &totals,
            &machine,
            &machine.cpus(),
            Some(Span::from_ms(160)),
            &CloseSample::default(),
        );
        assert_eq!((seen.looks, seen.run, seen.covered), (3, Span::from_ms(120), Some(0.75)));
        let first = &seen.threads[0];
        assert_eq!((first.run, first.wait), (Span::from_ms(100), Some(Span::from_ms(50))));
        assert_eq!((first.moved_at_least, first.sleeps, first.preempted), (1, Some(25), Some(74)));
        assert_eq!(first.cpus, [(OsCpu(0), 0.6), (OsCpu(1), 0.4)]);
        assert_eq!(first.nodes, [(OsNode(0), 0.6), (OsNode(1), 0.4)]);
        assert_eq!(seen.threads[1].nodes, [(OsNode(1), 1.0)]);
        // 60 ms on each core of 200: even. Other programs had 40 and 40 of 100 busy ones.
        assert_eq!(seen.balance, Some(1.0));
        assert_eq!((seen.cpus[0].ours, seen.cpus[0].others), (Some(0.3), Some(0.2)));
        assert_eq!(seen.others, Some(0.2));
    }

    #[test]
    fn threads_that_lived_one_after_another_did_not_work_at_once() {
        let mut totals = Accumulator::default();
        totals.add(&sample(0, vec![info(0)], vec![read(0, 0, 0)], [0, 0]));
        assert_eq!(totals.at_once(0.05), 0, "nobody has worked yet");
        // One thread stays. Of the others, two at a time live, each for one sample.
        for at in 1..=100 {
            let pair = [2 * at - 1, 2 * at];
            let threads =
                [0].iter().chain(&pair).map(|id| read(*id as u32, if *id == 0 { at } else { 9 }, 0));
            let news = pair.iter().map(|id| info(*id as u32)).collect();
            let gone =
                if at > 1 { vec![ThreadId(2 * at as u32 - 3), ThreadId(2 * at as u32 - 2)] } else { vec![] };
            totals.add(&Sample { gone, ..sample(10 * at, news, threads.collect(), [0, 0]) });
        }
        assert_eq!(totals.at_once(0.05), 3);
        // Threads that had too little CPU time do not count.
        assert_eq!((totals.at_once(0.5), totals.at_once(7.0)), (1, 1));
        assert_eq!(Accumulator::default().at_once(0.05), 0);
    }

    #[test]
    fn pages_are_remote_to_the_time_spent_elsewhere() {
        let machine = parse_synthetic("numa:2 core:1 pu:1").unwrap();
        let mut totals = Accumulator::default();
        totals.add(&sample(0, vec![info(0)], vec![read(0, 0, 0)], [0, 0]));
        totals.add(&sample(100, vec![], vec![read(0, 50, 0)], [0, 0]));
        totals.add(&sample(200, vec![], vec![read(0, 100, 1)], [0, 0]));
        let remote = |pid: u32, bytes: [u64; 2]| {
            let nodes = BTreeMap::from([(OsNode(0), bytes[0]), (OsNode(1), bytes[1])]);
            let close = CloseSample { memory: BTreeMap::from([(pid, nodes)]), ..CloseSample::default() };
            RunSummary::of(&totals, &machine, &machine.cpus(), None, &close).remote_pages
        };
        assert_eq!(remote(7, [30, 10]), Some(0.5 * 0.25 + 0.5 * 0.75));
        assert_eq!(remote(7, [0, 0]), None, "no page was read");
        assert_eq!(remote(8, [30, 10]), None, "the process of no thread");
        let seen = RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default());
        assert_eq!((seen.remote_pages, seen.wait_share), (None, Some(1.0 / 3.0)));
    }

    #[test]
    fn nothing_seen_is_missing_and_not_zero() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut totals = Accumulator::default();
        let seen = RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default());
        assert_eq!((seen.balance, seen.others, seen.covered, seen.threads.len()), (None, None, None, 0));
        let unread = ThreadSample { wait: None, slices: None, voluntary: None, cpu: None, ..read(0, 5, 0) };
        totals.add(&Sample { news: vec![info(0)], threads: vec![unread], ..Sample::default() });
        let thread =
            &RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default()).threads[0];
        assert_eq!((thread.wait, thread.preempted, thread.cpus.len()), (None, None, 0));
    }

    #[test]
    fn the_memory_is_bounded_and_no_sum_is_lost() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut totals = Accumulator::default();
        let (each, rounds) = (1_000, 40);
        totals.add(&sample(0, vec![info(each * rounds)], vec![read(each * rounds, 0, 0)], [0, 0]));
        for round in 0..rounds {
            let ids = || each * round..each * (round + 1);
            let at = u64::from(round) * 10 + 10;
            // The first threads run longest.
            let run = |id: u32| if id < 100 { 9 } else { 1 };
            totals.add(&sample(
                at,
                ids().map(info).collect(),
                ids().map(|id| read(id, run(id), 0)).collect(),
                [0, 0],
            ));
            totals.add(&Sample {
                gone: ids().map(ThreadId).collect(),
                ..sample(at + 5, vec![], vec![], [0, 0])
            });
        }
        assert!(totals.threads.len() <= 2 * 8_192 + 1, "{}", totals.threads.len());
        let seen = RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default());
        assert_eq!(seen.threads.len() as u64 + seen.folded.threads, u64::from(each * rounds) + 1);
        assert_eq!(seen.run, Span::from_ms(u64::from(each * rounds) + 800));
        let long = seen.threads.iter().filter(|thread| thread.run == Span::from_ms(9)).count();
        assert_eq!(long, 100, "those that ran longest are told");
        assert!(seen.threads.iter().any(|thread| thread.tid == 7 + each * rounds), "and all that live");
    }

    proptest! {
        #[test]
        fn times_sum_up_for_any_readings(
            reads in prop::collection::vec((0u32..3, 0u64..1_000, 0u32..2, 0u64..2_000), 1..30),
        ) {
            let machine = parse_synthetic("core:2 pu:1").unwrap();
            let mut totals = Accumulator::default();
            let (mut last, mut grown) = ([None; 3], [0u64; 3]);
            for (at, (id, run, cpu, busy)) in reads.into_iter().enumerate() {
                // Threads of the first sample count from it, others from their birth.
                let before = last[id as usize].replace(run).unwrap_or(if at == 0 { run } else { 0 });
                grown[id as usize] += run.saturating_sub(before);
                let news = vec![info(id)];
                totals.add(&sample(at as u64 * 10, news, vec![read(id, run, cpu)], [busy, busy]));
            }
            let seen = RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default());
            for thread in &seen.threads {
                let shares: f64 = thread.cpus.iter().map(|(_, share)| share).sum();
                prop_assert!(thread.cpus.is_empty() || (shares - 1.0).abs() < 1e-9);
                prop_assert_eq!(thread.run, Span::from_ms(grown[(thread.tid - 7) as usize]));
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
