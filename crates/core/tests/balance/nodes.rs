//! Model of a machine with memory nodes and threads that suffer from their placement, written
//! independently of the policies that run on it.
//!
//! Unit: seconds, and shares of a thread's speed. A thread does `m` units of memory work for each
//! unit of computing. A unit of memory work takes longer with the load of the node (squared), if
//! the thread's data is on another node, and with the share of its data-sharing threads that are
//! elsewhere. The threads of a node share its cores evenly; a node with an idle core takes a thread
//! from a crowded one, if masks allow. Counts follow from that, times noise that is drawn for each
//! sample and thread.

use std::collections::BTreeMap;
use trimtab_core::balance::{
    Act, Decision, Finding, Kind, Outcome, Refusal, Settings, Settled, Wanted, policy,
};
use trimtab_core::check::decisions::Account;
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::drive::{Awake, Go, Host, Step, drive};
use trimtab_core::ids::{Id, OsCpu, OsNode, ProgramId, ThreadId};
use trimtab_core::observe::{MemorySample, Notice, Observer, ProgramInfo, Sample, ThreadInfo, ThreadSample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::{Machine, parse_synthetic};

const CLOCK_HZ: f64 = 2.4e9;

/// Pseudo-random numbers: a multiplicative Lehmer generator; normal ones are sums of twelve.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u128);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Self(u128::from(seed) << 1 | 1);
        (0..8).for_each(|_| {
            draw.unit();
        });
        draw
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0xda94_2042_e4dd_58b5);
        (self.0 >> 64) as u64 as f64 / u64::MAX as f64
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.unit() * bound as f64) as usize).min(bound - 1)
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct NodeThread {
    /// Memory work for each unit of computing.
    pub(crate) m: f64,
    /// Node of the thread's data, and the slowdown of its memory work elsewhere.
    pub(crate) data: usize,
    pub(crate) remote: f64,
    /// Threads that share data, and the slowdown if all others of the group are elsewhere.
    pub(crate) group: usize,
    pub(crate) sharing: f64,
    pub(crate) born: f64,
    pub(crate) ends: f64,
    pub(crate) tagged: bool,
    /// Whether hardware counters count the thread.
    pub(crate) counted: bool,
    pub(crate) home: CpuSet,
    mask: CpuSet,
    pub(crate) node: usize,
    run: f64,
    wait: f64,
    done: f64,
    counts: Counts,
    counted_at: f64,
    told: bool,
    gone: bool,
}

/// Pages of a thread that are sampled, and pages of these on the node of its data; the others are
/// spread over all nodes.
const PAGES_SAMPLED: u64 = 9_000;
const PAGES_ON_DATA_NODE: u64 = 8_820;

fn pages_of(data: usize, nodes: usize) -> BTreeMap<OsNode, u64> {
    let elsewhere = (PAGES_SAMPLED - PAGES_ON_DATA_NODE) / (nodes as u64 - 1).max(1);
    let on = |node| if node == data { PAGES_ON_DATA_NODE } else { elsewhere };
    (0..nodes).map(|node| (OsNode(u32::try_from(node).unwrap()), on(node))).collect()
}

/// The machine and its threads.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) now: f64,
    pub(crate) end: f64,
    pub(crate) threads: Vec<NodeThread>,
    pub(crate) nodes: usize,
    pub(crate) cores: usize,
    pub(crate) noise: f64,
    /// Effect of a node's load on its memory work.
    pub(crate) contention: f64,
    pub(crate) rung: Rung,
    /// Cost of a sample.
    pub(crate) cost: Option<Span>,
    pub(crate) usable: CpuSet,
    /// Moments at which other CPUs become usable.
    pub(crate) events: Vec<(f64, CpuSet)>,
    /// Moments at which threads begin to compute from their caches.
    pub(crate) calms: Vec<(f64, usize)>,
    /// Moments at which threads begin to do memory work, and the amount.
    pub(crate) worries: Vec<(f64, usize, f64)>,
    /// Moves per second by the kernel of unbound threads to other nodes, without reason.
    pub(crate) restless: f64,
    pub(crate) moves: Vec<(f64, Decision)>,
    pub(crate) fetches: bool,
    /// Share of its time that a thread computes.
    pub(crate) wants: f64,
    /// Share of the wanted time that a thread waits on any node, as with CPUs emulated in turns.
    pub(crate) late: f64,
    /// Moments of samples of the threads, and of their CPUs.
    pub(crate) looked: Vec<f64>,
    pub(crate) placed: Vec<f64>,
    draw: Draw,
    told: bool,
    refused: u64,
}

impl Nodes {
    /// Creates threads of every kind on `nodes` of `cores`, placed at random, with no node above
    /// its share.
    pub(crate) fn mixed(seed: u64, threads: usize, nodes: usize, cores: usize) -> Self {
        let mut draw = Draw::new(seed);
        let all: CpuSet = (0..nodes * cores).map(OsCpu::from_index).collect();
        let mut places: Vec<usize> = (0..threads).map(|at| at % nodes).collect();
        for last in (1..threads).rev() {
            places.swap(last, draw.below(last + 1));
        }
        let mut thread = |at: usize| NodeThread {
            m: [0.1, 0.3, 1.0, 2.0][draw.below(4)],
            data: draw.below(nodes),
            remote: [0.0, 0.3, 0.6][draw.below(3)],
            group: at / 4,
            sharing: [0.0, 0.4][draw.below(2)],
            born: 0.0,
            ends: f64::INFINITY,
            tagged: false,
            counted: true,
            home: all.clone(),
            mask: all.clone(),
            node: places[at],
            run: 0.0,
            wait: 0.0,
            done: 0.0,
            counts: Counts::default(),
            counted_at: f64::NEG_INFINITY,
            told: false,
            gone: false,
        };
        Self {
            now: 0.0,
            end: 30.0,
            threads: (0..threads).map(&mut thread).collect(),
            nodes,
            cores,
            noise: 0.1,
            contention: 1.0,
            rung: Rung::Exact,
            cost: None,
            usable: all.clone(),
            events: Vec::new(),
            calms: Vec::new(),
            worries: Vec::new(),
            restless: 0.0,
            moves: Vec::new(),
            fetches: false,
            wants: 1.0,
            late: 0.0,
            looked: Vec::new(),
            placed: Vec::new(),
            draw: Draw::new(seed ^ 0xabcd),
            told: false,
            refused: 0,
        }
    }

    /// Makes all threads equal: this much memory work, data on one node, nothing shared.
    pub(crate) fn alike(mut self, m: f64, data: usize, remote: f64) -> Self {
        for thread in &mut self.threads {
            (thread.m, thread.data, thread.remote, thread.sharing) = (m, data, remote, 0.0);
        }
        self
    }

    fn lives(&self, thread: &NodeThread) -> bool {
        thread.born <= self.now && self.now < thread.ends
    }

    fn cpus(&self, node: usize) -> CpuSet {
        (node * self.cores..(node + 1) * self.cores).map(OsCpu::from_index).collect()
    }

    fn open(&self, node: usize) -> usize {
        self.cpus(node).intersection(&self.usable).len()
    }

    fn count(&self, node: usize) -> usize {
        self.threads.iter().filter(|thread| thread.node == node && self.lives(thread)).count()
    }

    /// Returns the slowdown of each thread's memory work relative to running alone on its data's
    /// node.
    pub(crate) fn penalties(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.nodes];
        let mut groups: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for thread in self.threads.iter().filter(|thread| self.lives(thread)) {
            loads[thread.node] += thread.m;
            *groups.entry((thread.group, thread.node)).or_default() += 1;
            *sizes.entry(thread.group).or_default() += 1;
        }
        let share = (loads.iter().sum::<f64>() / self.nodes as f64).max(1e-9);
        let penalty = |thread: &NodeThread| {
            let all = sizes.get(&thread.group).copied().unwrap_or(1);
            let near = groups.get(&(thread.group, thread.node)).copied().unwrap_or(1);
            let apart = (all - near.min(all)) as f64 / (all.max(2) - 1) as f64;
            let remote = if thread.node == thread.data { 0.0 } else { thread.remote };
            let crowded = self.contention * (loads[thread.node] / share).powi(2);
            (1.0 + crowded) * (1.0 + remote) * (1.0 + thread.sharing * apart)
        };
        self.threads.iter().map(penalty).collect()
    }

    /// Returns the speed of each thread.
    pub(crate) fn speeds(&self) -> Vec<f64> {
        let counts: Vec<usize> = (0..self.nodes).map(|node| self.count(node)).collect();
        let speed = |(thread, penalty): (&NodeThread, f64)| {
            let share = (self.open(thread.node) as f64 / counts[thread.node].max(1) as f64).min(1.0);
            if self.lives(thread) { share / (1.0 + thread.m * penalty) } else { 0.0 }
        };
        self.threads.iter().zip(self.penalties()).map(speed).collect()
    }

    /// Returns the speed of all threads: the geometric mean, in which each thread counts by its
    /// relative change.
    pub(crate) fn pace(&self) -> f64 {
        mean(self.speeds().into_iter())
    }

    /// Returns the best pace that a search from several starts finds: the result of a patient
    /// person.
    pub(crate) fn best(&self) -> f64 {
        let mut draw = Draw::new(99);
        let mut best = self.pace();
        for _ in 0..6 {
            let mut model = self.clone();
            for thread in &mut model.threads {
                thread.node = draw.below(self.nodes);
            }
            let mut pace = model.pace();
            for _ in 0..60 * self.threads.len() {
                let before: Vec<usize> = model.threads.iter().map(|thread| thread.node).collect();
                let (i, j) = (draw.below(before.len()), draw.below(before.len()));
                if draw.below(2) == 0 {
                    model.threads[i].node = draw.below(self.nodes);
                } else {
                    (model.threads[i].node, model.threads[j].node) = (before[j], before[i]);
                }
                let now = model.pace();
                if now > pace {
                    pace = now;
                } else {
                    model.threads.iter_mut().zip(&before).for_each(|(thread, node)| thread.node = *node);
                }
            }
            best = best.max(pace);
        }
        best
    }

    /// Returns whether a thread may run on the CPUs of this node and no others.
    pub(crate) fn is_kept(&self, at: usize, node: usize) -> bool {
        self.threads[at].mask == self.cpus(node)
    }

    fn allowed(&self, at: usize, node: usize) -> bool {
        let within = self.threads[at].mask.intersection(&self.usable);
        let cpus = self.cpus(node).intersection(&self.usable);
        // The kernel breaks a mask of which nothing is left.
        if within.is_empty() { !cpus.is_empty() } else { within.intersects(&cpus) }
    }

    fn resettle(&mut self, at: usize) {
        if !self.allowed(at, self.threads[at].node) {
            let nodes = (0..self.nodes).filter(|&node| self.allowed(at, node));
            if let Some(node) = nodes.min_by_key(|&node| self.count(node)) {
                self.threads[at].node = node;
            }
        }
    }

    /// Moves a thread from a crowded node to one with an idle core.
    fn pull(&mut self) {
        for node in 0..self.nodes {
            while self.count(node) < self.open(node) {
                let crowded = |at: &usize| {
                    let thread = &self.threads[*at];
                    self.lives(thread)
                        && self.count(thread.node) > self.open(thread.node)
                        && self.allowed(*at, node)
                };
                let all: Vec<usize> = (0..self.threads.len()).filter(crowded).collect();
                if all.is_empty() {
                    break;
                }
                let at = all[self.draw.below(all.len())];
                self.threads[at].node = node;
            }
        }
    }

    fn advance(&mut self, until: f64) {
        while self.now < until - 1e-9 {
            if self.events.first().is_some_and(|(when, _)| *when <= self.now) {
                self.usable = self.events.remove(0).1;
                self.told = false;
                (0..self.threads.len()).for_each(|at| self.resettle(at));
            }
            if self.calms.first().is_some_and(|(when, _)| *when <= self.now) {
                let (_, at) = self.calms.remove(0);
                self.threads[at].m = 0.001;
            }
            if self.worries.first().is_some_and(|(when, ..)| *when <= self.now) {
                let (_, at, m) = self.worries.remove(0);
                self.threads[at].m = m;
            }
            self.pull();
            let step = (until - self.now).min(0.005);
            if self.draw.unit() < self.restless * step {
                let (at, node) = (self.draw.below(self.threads.len()), self.draw.below(self.nodes));
                if self.allowed(at, node) && self.count(node) < self.open(node) {
                    self.threads[at].node = node;
                }
            }
            let (penalties, speeds) = (self.penalties(), self.speeds());
            let counts: Vec<usize> = (0..self.nodes).map(|node| self.count(node)).collect();
            for at in 0..self.threads.len() {
                if !self.lives(&self.threads[at]) {
                    continue;
                }
                let share =
                    (self.open(self.threads[at].node) as f64 / counts[self.threads[at].node] as f64).min(1.0);
                let share = share * (1.0 - self.late);
                let noise = (self.noise * self.draw.normal() * (0.01 / step).sqrt().min(2.0)).exp();
                let thread = &mut self.threads[at];
                thread.run += share * step * self.wants;
                thread.wait += (1.0 - share) * step * self.wants;
                thread.done += speeds[at] * step;
                let instructions = speeds[at] * step * CLOCK_HZ;
                let add = |counter: &mut Option<u64>, more: f64| {
                    *counter = Some(counter.unwrap_or(0) + more as u64)
                };
                let counts = &mut thread.counts;
                counts.running = Span((thread.run * 1e9) as u64);
                counts.enabled = counts.running;
                if self.rung.counts() {
                    add(&mut counts.cycles, share * step * CLOCK_HZ);
                    add(&mut counts.instructions, instructions);
                    add(&mut counts.requests, instructions * thread.m / 20.0);
                    if self.rung < Rung::Generic {
                        add(&mut counts.busy, instructions * thread.m * penalties[at] * noise);
                    }
                } else {
                    let pages = pages_of(thread.data, self.nodes);
                    let near = pages[&OsNode(u32::try_from(thread.node).unwrap())];
                    add(&mut counts.near, near as f64);
                    add(&mut counts.far, (PAGES_SAMPLED - near) as f64);
                }
            }
            self.now += step;
        }
    }

    fn settle(&mut self, decision: &Decision) -> Settled {
        self.refused += 1;
        let at = decision.thread.index();
        if !self.lives(&self.threads[at]) {
            return Settled::Vanished;
        }
        self.moves.push((self.now, decision.clone()));
        match &decision.act {
            Act::Confine(to) => self.threads[at].mask = to.clone(),
            Act::Release => self.threads[at].mask = self.threads[at].home.clone(),
            Act::Nudge(to) => {
                let before = std::mem::replace(&mut self.threads[at].mask, to.clone());
                self.resettle(at);
                self.threads[at].mask = before;
            }
            Act::Fetch(_) if !self.fetches => return Settled::Refused(Refusal::Memory),
            Act::Fetch(OsNode(node)) => {
                for thread in &mut self.threads {
                    thread.data = *node as usize;
                }
            }
        }
        self.resettle(at);
        Settled::Applied
    }

    /// Returns a thread's mask.
    pub(crate) fn mask(&self, at: usize) -> &CpuSet {
        &self.threads[at].mask
    }

    pub(crate) fn machine(&self) -> Machine {
        parse_synthetic(&format!("numa:{} l3:1 core:{} pu:1", self.nodes, self.cores)).unwrap()
    }
}

fn mean(speeds: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = speeds
        .filter(|speed| *speed > 0.0)
        .fold((0.0, 0.0), |(sum, count), one| (sum + one.ln(), count + 1.0));
    (sum / f64::max(count, 1.0)).exp()
}

impl Host for Nodes {
    type Error = std::convert::Infallible;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Self::Error> {
        self.looked.push(self.now);
        if wanted.places {
            self.placed.push(self.now);
        }
        let mut sample =
            Sample { at: Moment((self.now * 1e9).round() as u64), cost: self.cost, ..Sample::default() };
        let (program, pid) = (ProgramId(0), 100);
        if self.now == 0.0 {
            sample.programs.push(ProgramInfo { id: program, pid, name: "model".to_owned() });
            sample.notices.push(Notice::Counting(self.rung));
        }
        if !std::mem::replace(&mut self.told, true) {
            sample.notices.push(Notice::Usable(self.usable.clone()));
        }
        let now = self.now;
        for (at, thread) in self.threads.iter_mut().enumerate() {
            let (id, tid) = (ThreadId::from_index(at), u32::try_from(at).unwrap() + pid);
            if thread.born > now {
                continue;
            }
            if now >= thread.ends {
                if thread.told && !std::mem::replace(&mut thread.gone, true) {
                    sample.gone.push(id);
                }
                continue;
            }
            if !std::mem::replace(&mut thread.told, true) {
                let (name, home, tagged) = (format!("t{at}"), thread.home.clone(), thread.tagged);
                sample.news.push(ThreadInfo { id, program, pid, tid, name, home, left: None, tagged });
            }
            let cpu = OsCpu::from_index(thread.node * self.cores + at % self.cores);
            let span = |seconds: f64| Span((seconds * 1e9) as u64);
            // A live host reads pages and faults no more often.
            let due = self.rung.counts() || self.now - thread.counted_at >= 0.5;
            if due && wanted.counts {
                thread.counted_at = self.now;
            }
            let counts = Some(thread.counts)
                .filter(|_| wanted.counts && thread.counted && due && self.rung != Rung::Nothing);
            if counts.is_some() && !self.rung.counts() {
                sample.memory.push(MemorySample { thread: id, pages: pages_of(thread.data, self.nodes) });
            }
            sample.threads.push(ThreadSample {
                id,
                run: span(thread.run),
                wait: Some(span(thread.wait)),
                slices: None,
                voluntary: None,
                cpu: wanted.places.then_some(cpu),
                ready: None,
                counts,
            });
        }
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Self::Error> {
        let outcome = |decision: &Decision| Outcome { thread: decision.thread, end: self.settle(decision) };
        Ok(decisions.iter().map(outcome).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, Self::Error> {
        self.advance((until.0 as f64 / 1e9).min(self.end));
        Ok(if self.now >= self.end - 1e-9 { Awake::Over } else { Awake::Due })
    }
}

/// Result of a run.
pub(crate) struct NodesRun {
    pub(crate) nodes: Nodes,
    pub(crate) findings: Vec<(f64, Finding)>,
    /// Pace over the second half of the run.
    pub(crate) late: f64,
    /// Number of samples.
    pub(crate) looks: u64,
}

pub(crate) fn settings(kind: Kind, seed: u64) -> Settings {
    Settings { seed, ..Settings::of(kind) }
}

pub(crate) fn run(mut nodes: Nodes, kind: Kind, settings: &Settings) -> NodesRun {
    let machine = nodes.machine();
    let mut policy = policy(kind, &machine, settings);
    let mut observer = Observer::new(nodes.usable.clone());
    let (mut account, mut findings, mut looks) = (Account::default(), Vec::new(), 0);
    let half = nodes.end / 2.0;
    let mut step = |step: &Step<'_>| {
        let faults = account.check_turn(&machine, settings.across_nodes, step.seen, step.turn);
        assert!(faults.is_empty(), "{kind} at {:?}: {faults:?}", step.seen.at);
        let at = step.seen.at.0 as f64 / 1e9;
        findings.extend(step.turn.findings.iter().map(|finding| (at, finding.clone())));
        looks += 1;
        Go::On
    };
    // The same policy runs over both halves; in between, only the host's progress is read.
    let end = std::mem::replace(&mut nodes.end, half);
    drive(&mut nodes, policy.as_mut(), &mut observer, &mut step).unwrap_or_else(|never| match never {});
    let before: Vec<f64> = nodes.threads.iter().map(|thread| thread.done).collect();
    nodes.end = end;
    drive(&mut nodes, policy.as_mut(), &mut observer, &mut step).unwrap_or_else(|never| match never {});
    let done = nodes.threads.iter().zip(before).map(|(thread, before)| (thread.done - before) / (end - half));
    NodesRun { late: mean(done), nodes, findings, looks }
}
