//! Benchmark of a balancing decision, by threads and cores.
//!
//! Unit: one call of `Policy::decide`, including the construction of its observation, while threads
//! take turns. The machines are synthetic: caches of eight cores, eight nodes. Of N threads, one in
//! sixteen shares a core unevenly with others, and on every thirty-second core another program
//! runs, so there is always something to exchange. Threads are moved as decided. Goal: 4,096
//! threads on 1,024 cores below 2 ms, and growth no worse than n log n.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;
use trimtab_core::balance::{Kind, Outcome, Policy, Settings, Settled, Turn, Wanted, policy};
use trimtab_core::ids::{Id, OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{CpuSample, Observer, Sample, ThreadInfo, ThreadSample};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::{Machine, parse_synthetic};

/// Numbers of threads and cores.
const SIZES: [(usize, usize); 8] = [
    (64, 1_024),
    (256, 1_024),
    (1_024, 1_024),
    (4_096, 1_024),
    (16_384, 1_024),
    (68, 64),
    (272, 256),
    (4_352, 4_096),
];

/// Threads that follow every decision.
struct Crowd {
    threads: Vec<(Span, Span, usize)>,
    cores: usize,
    observer: Observer,
    now: Moment,
    turn: Turn,
    told: bool,
}

impl Crowd {
    fn new(threads: usize, machine: &Machine) -> Self {
        let cores = machine.cores().len();
        Self {
            threads: (0..threads).map(|at| (Span::ZERO, Span::ZERO, at % cores)).collect(),
            cores,
            observer: Observer::new(machine.cpus()),
            now: Moment(0),
            turn: Turn { next: Moment(0), wanted: Wanted::all(), ..Turn::default() },
            told: false,
        }
    }

    /// Applies the last decisions, advances time, and samples.
    fn step(&mut self) {
        let mut outcomes = Vec::new();
        for decision in &self.turn.decisions {
            if let Some(cpu) = decision.act.to().and_then(|to| to.first()) {
                self.threads[decision.thread.index()].2 = cpu.index();
            }
            outcomes.push(Outcome { thread: decision.thread, end: Settled::Applied });
        }
        let mut load = vec![0.0; self.cores];
        for at in (0..self.cores).step_by(32) {
            load[at] = 1.0;
        }
        for (_, _, core) in &self.threads {
            load[*core] += 1.0;
        }
        let span = self.turn.next.since(self.now);
        self.now = self.turn.next;
        let mut sample = Sample { at: self.now, ..Sample::default() };
        for (at, (run, wait, core)) in self.threads.iter_mut().enumerate() {
            *run = *run + span.times(1.0 / load[*core]);
            *wait = *wait + span.times(1.0 - 1.0 / load[*core]);
            let (id, cpu) = (ThreadId::from_index(at), OsCpu::from_index(*core));
            if !self.told {
                let home = self.observer.observation().usable.clone();
                let (program, tid) = (ProgramId(0), u32::try_from(at).unwrap_or(0));
                sample.news.push(ThreadInfo {
                    id,
                    program,
                    pid: 1,
                    tid,
                    name: String::new(),
                    home,
                    left: None,
                    tagged: false,
                });
            }
            if self.turn.wanted.on.as_ref().is_none_or(|on| on.contains(cpu)) {
                let (run, wait) = (*run, Some(*wait));
                sample.threads.push(ThreadSample {
                    id,
                    run,
                    wait,
                    slices: None,
                    ready: None,
                    voluntary: None,
                    cpu: Some(cpu),
                    counts: None,
                });
            }
        }
        self.told = true;
        if self.turn.wanted.cpus {
            let busy = |at: usize| Span(self.now.0).times(f64::from(u8::from(load[at] > 0.0)));
            let cpu = |at: usize| CpuSample { cpu: OsCpu::from_index(at), busy: busy(at), steal: None };
            sample.cpus = (0..self.cores).map(cpu).collect();
        }
        self.observer.take(&sample, &outcomes);
    }
}

fn balancing(criterion: &mut Criterion) {
    for kind in [Kind::Speed, Kind::Exchange, Kind::Auto] {
        let mut group = criterion.benchmark_group(kind.word());
        for (threads, cores) in SIZES {
            let nodes = 8;
            let text = format!("numa:{nodes} l3:{} core:8 pu:1", cores / nodes / 8);
            let machine = parse_synthetic(&text).expect("the description is made of counts above 0");
            let mut policy: Box<dyn Policy> = policy(kind, &machine, &Settings::default());
            let crowd = RefCell::new(Crowd::new(threads, &machine));
            let decide = |policy: &mut dyn Policy| {
                let turn = policy.decide(black_box(&crowd.borrow().observer.observation()));
                crowd.borrow_mut().turn = turn;
            };
            // A second and a half: the initial placement is done, and threads take turns.
            while crowd.borrow().now < Moment(1_500_000_000) {
                crowd.borrow_mut().step();
                decide(policy.as_mut());
            }
            group.throughput(Throughput::Elements(threads as u64));
            group.bench_function(BenchmarkId::new(format!("{cores} cores"), threads), |bencher| {
                bencher.iter_batched(
                    || crowd.borrow_mut().step(),
                    |()| decide(policy.as_mut()),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = balancing
}
criterion_main!(benches);
