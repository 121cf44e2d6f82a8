//! Summary of a run: where its threads ran, what they waited for, who else was there. A view of the
//! [`Accumulator`], behind the report after a run and profiles.
//!
//! Unit: CPU time and shares of it. How much of the program's CPU time the samples saw is part of the
//! answer ([`RunSummary::covered`]); what samples cannot see says the accumulator.

use super::accumulator::{Accumulator, Folded, ThreadTotals};
use super::{balance, shares};
use crate::ids::{OsCpu, OsNode, ThreadId};
use crate::set::CpuSet;
use crate::time::Span;
use crate::topology::Machine;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a host knows besides samples, by reading closely: dearer, and therefore seldom read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CloseSample {
    /// Thread by thread.
    pub threads: BTreeMap<ThreadId, SwitchCounts>,
    /// The share of accesses that would go to another node than the thread's, if every thread used
    /// all pages of its process alike.
    pub remote: Option<f64>,
    /// The share of anonymous memory that is in huge pages.
    pub huge: Option<f64>,
    /// Bytes in memory at the most, of all processes.
    pub resident: Option<u64>,
    /// Bytes touched between two close samples at the most, of all processes, where that was asked
    /// for.
    pub touched: Option<u64>,
}

/// What the kernel counted of one thread, when that was last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchCounts {
    /// Times it went to sleep.
    pub sleeps: Option<u64>,
    /// Times it was preempted.
    pub preempted: Option<u64>,
    /// Times it went from one CPU to another.
    pub migrations: Option<u64>,
}

/// What one thread used.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadSummary {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Nanoseconds on a CPU, as far as samples saw.
    pub run: Span,
    /// Nanoseconds ready without one.
    pub wait: Option<Span>,
    /// The share of the time it wanted a CPU and had none.
    pub wait_share: Option<f64>,
    /// Times it went to sleep.
    pub sleeps: Option<u64>,
    /// Times it was preempted.
    pub preempted: Option<u64>,
    /// Times it went from one CPU to another, where the kernel counts that.
    pub migrations: Option<u64>,
    /// Samples that found it on another CPU than the one before.
    pub moved_at_least: u64,
    /// The CPUs it ran on, each with its share of the time.
    pub cpus: Vec<(OsCpu, f64)>,
    /// The nodes of these.
    pub nodes: Vec<(OsNode, f64)>,
}

/// What one CPU ran.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuSummary {
    /// The CPU.
    pub cpu: OsCpu,
    /// Its node.
    pub node: Option<OsNode>,
    /// The share of the time in which it ran the program.
    pub ours: Option<f64>,
    /// The share in which it ran anything else.
    pub others: Option<f64>,
}

/// What a run used.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunSummary {
    /// Seconds from the first to the last sample.
    pub seconds: f64,
    /// Samples.
    pub looks: u64,
    /// Nanoseconds that samples saw the threads on CPUs.
    pub run: Span,
    /// The program's whole CPU time in nanoseconds.
    pub spent: Option<Span>,
    /// The share of it that samples saw.
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
    pub cpus: Vec<CpuSummary>,
    /// Thread by thread.
    pub threads: Vec<ThreadSummary>,
    /// Of many thousands, the ended ones that ran least.
    pub folded: Folded,
}

impl RunSummary {
    /// What was added up, on this machine. `usable` are the CPUs that the program could use, and
    /// `spent` is its whole CPU time where that is known.
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
        let run: Span = threads.iter().map(|thread| thread.run).sum::<Span>() + totals.folded.run;
        let cpus: Vec<CpuSummary> = usable.iter().map(|cpu| CpuSummary::of(totals, machine, cpu)).collect();
        let others: Vec<f64> = cpus.iter().filter_map(|cpu| cpu.others).collect();
        Self {
            seconds: totals.span().seconds(),
            looks: totals.samples,
            run,
            spent,
            covered: spent.and_then(|spent| run.share_of(spent)).map(|share| share.min(1.0)),
            balance: balance(core_times(totals, machine, usable).into_values()),
            remote_pages: close.remote,
            huge_pages: close.huge,
            others: (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64),
            cpus,
            threads,
            folded: totals.folded,
        }
    }
}

/// The time of the program's threads on each core of these CPUs.
fn core_times(totals: &Accumulator, machine: &Machine, usable: &CpuSet) -> BTreeMap<u32, Span> {
    let mut times = BTreeMap::new();
    for cpu in usable.iter() {
        if let Some(pu) = machine.pu(cpu) {
            let ours = totals.cpus.get(&cpu).copied().unwrap_or_default().ours;
            super::add_time(&mut times, machine.core_of(pu).0, ours);
        }
    }
    times
}

/// The node that is home to a CPU.
fn node_of(machine: &Machine, cpu: OsCpu) -> Option<OsNode> {
    let node = machine.core(machine.core_of(machine.pu(cpu)?)).node?;
    machine.nodes().get(usize::try_from(node.0).ok()?).map(|node| node.os)
}

impl CpuSummary {
    fn of(totals: &Accumulator, machine: &Machine, cpu: OsCpu) -> Self {
        let here = totals.cpus.get(&cpu).copied().unwrap_or_default();
        let span = totals.span();
        let ours = here.ours.share_of(span).map(|share| share.min(1.0));
        // Two clocks count: others have at most what is left, so that no CPU is busy more than all
        // the time.
        let others = here.last.and_then(|_| here.busy.less(here.ours).share_of(span));
        let others = others.map(|share| share.min(1.0 - ours.unwrap_or(0.0)));
        Self { cpu, node: node_of(machine, cpu), ours, others }
    }
}

impl ThreadSummary {
    fn of(totals: &ThreadTotals, machine: &Machine, counted: SwitchCounts) -> Self {
        let (last, base) = (&totals.last, &totals.base);
        let run = totals.run();
        let wait = last.wait.zip(base.wait).map(|(last, base)| last.less(base));
        let count = |last: Option<u64>, base: Option<u64>| last?.checked_sub(base?);
        let slices = count(last.slices, base.slices);
        let voluntary = count(last.voluntary, base.voluntary);
        let mut nodes: BTreeMap<OsNode, Span> = BTreeMap::new();
        for (&cpu, &ran) in &totals.run_on {
            if let Some(node) = node_of(machine, cpu) {
                super::add_time(&mut nodes, node, ran);
            }
        }
        let placed: Span = totals.run_on.values().copied().sum();
        Self {
            pid: totals.pid,
            tid: totals.tid,
            name: totals.name.clone(),
            run,
            wait,
            wait_share: wait.and_then(|wait| wait.share_of(run + wait)),
            sleeps: voluntary.max(counted.sleeps),
            // It was put on a CPU as often as it left one, but for the last time; what was not by its
            // own will was not voluntary.
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
    fn time_is_counted_for_the_cpu_where_a_look_found_the_thread() {
        let machine = parse_synthetic("numa:2 core:1 pu:1").unwrap();
        let mut totals = Accumulator::default();
        totals.add(&sample(0, vec![info(0)], vec![read(0, 40, 0)], [500, 100]));
        // Thread 1 is born after the first look: all it did counts.
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
        // 60 ms on each core of 200: even; others had 40 and 40 of 100 busy ones.
        assert_eq!(seen.balance, Some(1.0));
        assert_eq!((seen.cpus[0].ours, seen.cpus[0].others), (Some(0.3), Some(0.2)));
        assert_eq!(seen.others, Some(0.2));
    }

    #[test]
    fn threads_that_lived_one_after_another_did_not_work_at_once() {
        let mut totals = Accumulator::default();
        totals.add(&sample(0, vec![info(0)], vec![read(0, 0, 0)], [0, 0]));
        assert_eq!(totals.at_once(0.05), 0, "nobody has worked yet");
        // One stays, of the others two at a time are there, each for a look.
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
        // Those that had too little do not count.
        assert_eq!((totals.at_once(0.5), totals.at_once(7.0)), (1, 1));
        assert_eq!(Accumulator::default().at_once(0.05), 0);
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
    fn what_is_remembered_is_bounded_and_nothing_is_lost() {
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
        fn times_sum_up_whatever_is_read(
            reads in prop::collection::vec((0u32..3, 0u64..1_000, 0u32..2, 0u64..2_000), 1..30),
        ) {
            let machine = parse_synthetic("core:2 pu:1").unwrap();
            let mut totals = Accumulator::default();
            let mut most = [0u64; 3];
            for (at, (id, run, cpu, busy)) in reads.into_iter().enumerate() {
                most[id as usize] = most[id as usize].max(run);
                let news = vec![info(id)];
                totals.add(&sample(at as u64 * 10, news, vec![read(id, run, cpu)], [busy, busy]));
            }
            let seen = RunSummary::of(&totals, &machine, &machine.cpus(), None, &CloseSample::default());
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
