//! Fluid model of a machine: exact and without noise, written independently of the policies that
//! run on it.
//!
//! Unit: seconds. A core gives every thread that wants it the same share. Between two events (a
//! thread ends, the kernel balances, the policy samples) nothing changes, so time jumps from one
//! event to the next and nothing is rounded except the nanoseconds of a sample. Threads that wait
//! at a barrier *spin* (want the core), *yield* (want it, and get it only if no computing thread
//! wants it) or *sleep* (do not want it, and a core that falls idle pulls a waiting thread). The
//! kernel *keeps* (moves only if loads differ by two, as old kernels) or *rotates* (moves the odd
//! thread around, as new kernels). Masks are honoured: a thread bound to one core stays. Hogs are
//! pinned, or the kernel may move them.

use std::collections::BTreeSet;
use trimtab_core::balance::{Act, Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::counts::Counts;
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::{Id, OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{CpuSample, Notice, ProgramInfo, Sample, ThreadInfo, ThreadSample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Way in which threads wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitMode {
    Spin,
    Yield,
    Sleep,
}

/// The kernel's own behaviour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    Keeps,
    Rotates,
}

/// Event on the machine or its threads.
#[derive(Clone, Debug)]
pub(crate) enum FluidEvent {
    /// The CPUs that may be used change.
    Usable(CpuSet),
    /// A thread ends.
    End(usize),
}

/// Seconds between two balancing passes of the kernel: the busy interval of a small domain.
const KERNEL_TICK: f64 = 0.032;

const EPSILON_S: f64 = 1e-9;

/// A thread, or a hog, which is a thread that never ends and is not sampled.
#[derive(Clone, Debug)]
pub(crate) struct FluidThread {
    pub(crate) work: f64,
    pub(crate) born: f64,
    pub(crate) home: CpuSet,
    mask: CpuSet,
    core: usize,
    segment: f64,
    run: f64,
    wait: f64,
    sleeps: u64,
    moved: f64,
    hog: bool,
    told: bool,
    ended: bool,
    counts: Counts,
}

/// Fluid model.
#[derive(Clone, Debug)]
pub(crate) struct Fluid {
    pub(crate) now: f64,
    pub(crate) threads: Vec<FluidThread>,
    pub(crate) kernel: Kernel,
    pub(crate) wait: WaitMode,
    pub(crate) barrier: Option<f64>,
    pub(crate) speeds: Vec<f64>,
    pub(crate) usable: CpuSet,
    /// Of this number of readings of threads, one is lost.
    pub(crate) lossy: Option<u64>,
    /// Of this number of decisions, one is refused.
    pub(crate) refuses: Option<u64>,
    /// Seed of the hardware counts, if threads are counted: for each thread and core, the seed
    /// determines how much the thread suffers.
    pub(crate) counted: Option<u64>,
    /// Events with their moments, the earliest first.
    pub(crate) events: Vec<(f64, FluidEvent)>,
    /// Number of moves so far.
    pub(crate) moves: u64,
    /// Longest run.
    pub(crate) end: f64,
    busy: Vec<f64>,
    tick: f64,
    told_usable: bool,
    readings: u64,
    decided: u64,
    first: bool,
}

fn cpus(count: usize) -> CpuSet {
    (0..count).map(OsCpu::from_index).collect()
}

impl Fluid {
    /// Creates `threads` equal threads of one second on `cores` equal cores, started round robin.
    pub(crate) fn new(threads: usize, cores: usize, wait: WaitMode, kernel: Kernel) -> Self {
        let mut fluid = Self {
            now: 0.0,
            threads: Vec::new(),
            kernel,
            wait,
            barrier: None,
            speeds: vec![1.0; cores],
            usable: cpus(cores),
            lossy: None,
            refuses: None,
            counted: None,
            events: Vec::new(),
            moves: 0,
            end: 60.0,
            busy: vec![0.0; cores],
            tick: KERNEL_TICK,
            told_usable: true,
            readings: 0,
            decided: 0,
            first: true,
        };
        for at in 0..threads {
            fluid.thread(1.0, 0.0, cpus(cores), at % cores);
        }
        fluid
    }

    /// Adds a thread.
    pub(crate) fn thread(&mut self, work: f64, born: f64, home: CpuSet, core: usize) {
        self.threads.push(FluidThread {
            work,
            born,
            mask: home.clone(),
            home,
            core,
            segment: self.barrier.map_or(work, |barrier| barrier.min(work)),
            run: 0.0,
            wait: 0.0,
            sleeps: 0,
            moved: 0.0,
            hog: false,
            told: false,
            ended: false,
            counts: Counts::default(),
        });
    }

    /// Adds a barrier after each interval of this much work.
    pub(crate) fn every(mut self, barrier: f64) -> Self {
        self.barrier = Some(barrier);
        for thread in &mut self.threads {
            thread.segment = barrier.min(thread.work);
        }
        self
    }

    /// Gives all threads this much work.
    pub(crate) fn long(mut self, work: f64) -> Self {
        for thread in &mut self.threads {
            thread.work = work;
            thread.segment = self.barrier.map_or(work, |barrier| barrier.min(work));
        }
        self
    }

    /// Adds a hog that starts on a core; it is pinned there, or the kernel may move it.
    pub(crate) fn hog(mut self, core: usize, pinned: bool) -> Self {
        let home =
            if pinned { std::iter::once(OsCpu::from_index(core)).collect() } else { cpus(self.speeds.len()) };
        self.thread(f64::INFINITY, 0.0, home, core);
        if let Some(hog) = self.threads.last_mut() {
            hog.hog = true;
        }
        self
    }

    /// Binds the threads, one core each, round robin, as an OpenMP runtime does.
    pub(crate) fn bound(mut self) -> Self {
        for thread in self.threads.iter_mut().filter(|thread| !thread.hog) {
            thread.home = std::iter::once(OsCpu::from_index(thread.core)).collect();
            thread.mask = thread.home.clone();
        }
        self
    }

    /// Returns the time under fair shares: if every thread had the same share of the machine.
    pub(crate) fn ideal(&self) -> f64 {
        let most = self.ours().map(|thread| thread.work).fold(0.0, f64::max);
        let work: f64 = self.threads.iter().map(|thread| if thread.hog { most } else { thread.work }).sum();
        work / self.speeds.iter().sum::<f64>()
    }

    fn ours(&self) -> impl Iterator<Item = &FluidThread> {
        self.threads.iter().filter(|thread| !thread.hog)
    }

    pub(crate) fn over(&self) -> bool {
        self.ours().all(|thread| thread.work <= EPSILON_S) || self.now >= self.end
    }

    fn computes(&self, thread: &FluidThread) -> bool {
        thread.born <= self.now && !thread.ended && (thread.hog || thread.segment > EPSILON_S)
    }

    /// Returns whether a thread waits for the others at a barrier (the last one included).
    fn waits(&self, thread: &FluidThread) -> bool {
        thread.born <= self.now && !thread.ended && !thread.hog && thread.segment <= EPSILON_S
    }

    fn wants(&self, thread: &FluidThread) -> bool {
        self.computes(thread) || (self.wait != WaitMode::Sleep && self.waits(thread))
    }

    /// Returns the number of threads that want a core.
    fn load(&self, core: usize) -> usize {
        self.threads.iter().filter(|thread| thread.core == core && self.wants(thread)).count()
    }

    /// Returns each thread's share of its core.
    fn shares(&self) -> Vec<f64> {
        let cores = self.speeds.len();
        let (mut first, mut second) = (vec![0.0; cores], vec![0.0; cores]);
        let eager = |thread: &FluidThread| {
            self.computes(thread) || (self.wait == WaitMode::Spin && self.waits(thread))
        };
        for thread in self.threads.iter().filter(|thread| self.wants(thread)) {
            let queue = if eager(thread) { &mut first } else { &mut second };
            queue[thread.core] += 1.0;
        }
        let share = |thread: &FluidThread| -> f64 {
            if !self.wants(thread) {
                0.0
            } else if eager(thread) {
                1.0 / first[thread.core]
            } else if first[thread.core] == 0.0 {
                1.0 / second[thread.core]
            } else {
                0.0
            }
        };
        self.threads.iter().map(share).collect()
    }

    /// Advances time.
    pub(crate) fn advance(&mut self, until: f64) {
        while self.now < until - EPSILON_S && !self.over() {
            self.pull_idle();
            let shares = self.shares();
            let mut step = until.min(self.tick) - self.now;
            for (thread, share) in self.threads.iter().zip(&shares) {
                if self.computes(thread) && !thread.hog && *share > 0.0 {
                    step = step.min(thread.segment / (share * self.speeds[thread.core]));
                }
                if thread.born > self.now {
                    step = step.min(thread.born - self.now);
                }
            }
            let step = step.max(EPSILON_S);
            let wants: Vec<bool> = self.threads.iter().map(|thread| self.wants(thread)).collect();
            let computes: Vec<bool> = self.threads.iter().map(|thread| self.computes(thread)).collect();
            for (at, thread) in self.threads.iter_mut().enumerate() {
                thread.run += shares[at] * step;
                self.busy[thread.core] += shares[at] * step;
                if wants[at] {
                    thread.wait += (1.0 - shares[at]) * step;
                }
                if computes[at] && !thread.hog {
                    let done = shares[at] * step * self.speeds[thread.core];
                    thread.segment -= done;
                    thread.work -= done;
                    if thread.segment <= EPSILON_S && self.wait == WaitMode::Sleep {
                        thread.sleeps += 1;
                    }
                }
            }
            self.now += step;
            self.barrier();
            if self.now >= self.tick - EPSILON_S {
                self.tick += KERNEL_TICK;
                self.balance_kernel();
            }
        }
    }

    /// Releases all threads when all have arrived.
    fn barrier(&mut self) {
        let Some(barrier) = self.barrier else { return };
        let arrived = self.ours().all(|thread| thread.segment <= EPSILON_S || thread.born > self.now);
        if !arrived || self.ours().all(|thread| thread.work <= EPSILON_S) {
            return;
        }
        for at in 0..self.threads.len() {
            if self.threads[at].hog || self.threads[at].work <= EPSILON_S {
                continue;
            }
            // A sleeper wakes where it slept, or on an idle core.
            if self.wait == WaitMode::Sleep && self.load(self.threads[at].core) > 0 {
                let idle =
                    (0..self.speeds.len()).find(|&core| self.allowed(at, core) && self.load(core) == 0);
                if let Some(core) = idle {
                    self.threads[at].core = core;
                }
            }
            let thread = &mut self.threads[at];
            thread.segment = barrier.min(thread.work);
        }
    }

    fn allowed(&self, at: usize, core: usize) -> bool {
        let (mask, cpu) = (&self.threads[at].mask, OsCpu::from_index(core));
        // If no CPU of a mask is usable, the kernel ignores the mask.
        let within = mask.intersection(&self.usable);
        self.usable.contains(cpu) && (within.is_empty() || within.contains(cpu))
    }

    /// Moves a waiting thread from another core to a core without work.
    fn pull_idle(&mut self) {
        let mut loads = vec![0; self.speeds.len()];
        for thread in self.threads.iter().filter(|thread| self.wants(thread)) {
            loads[thread.core] += 1;
        }
        if loads.iter().all(|load| *load > 0) || loads.iter().all(|load| *load < 2) {
            return;
        }
        for core in 0..self.speeds.len() {
            if self.load(core) > 0 || !self.usable.contains(OsCpu::from_index(core)) {
                continue;
            }
            let can = |at: &usize| {
                let thread = &self.threads[*at];
                self.wants(thread) && self.load(thread.core) > 1 && self.allowed(*at, core)
            };
            let most =
                (0..self.threads.len()).filter(can).max_by_key(|&at| (self.load(self.threads[at].core), at));
            if let Some(at) = most {
                self.threads[at].core = core;
            }
        }
    }

    /// Applies the kernel's own balancing: one task moves from the busiest to the least busy core,
    /// the one that has waited longest for a move.
    fn balance_kernel(&mut self) {
        let least = match self.kernel {
            Kernel::Keeps => 2,
            Kernel::Rotates => 1,
        };
        let cores: Vec<usize> =
            (0..self.speeds.len()).filter(|&core| self.usable.contains(OsCpu::from_index(core))).collect();
        let Some(&calm) = cores.iter().min_by_key(|&&core| self.load(core)) else { return };
        let movable = |at: &usize| {
            let thread = &self.threads[*at];
            self.wants(thread)
                && thread.core != calm
                && self.load(thread.core) >= self.load(calm) + least
                && self.allowed(*at, calm)
        };
        let key = |&at: &usize| {
            let thread = &self.threads[at];
            (usize::MAX - self.load(thread.core), (thread.moved * 1e9) as u64, at)
        };
        if let Some(at) = (0..self.threads.len()).filter(movable).min_by_key(key) {
            self.threads[at].core = calm;
            self.threads[at].moved = self.now;
        }
    }

    /// Applies the events that are due.
    fn happen(&mut self) {
        while self.events.first().is_some_and(|(when, _)| *when <= self.now + EPSILON_S) {
            match self.events.remove(0).1 {
                FluidEvent::Usable(usable) => {
                    self.usable = usable;
                    self.told_usable = false;
                    for at in 0..self.threads.len() {
                        self.resettle(at);
                    }
                }
                FluidEvent::End(at) => {
                    let thread = &mut self.threads[at];
                    (thread.work, thread.segment, thread.ended) = (0.0, 0.0, true);
                }
            }
        }
    }

    /// Counts a thread up to now: a hundred million requests per second of CPU time, each of some
    /// cycles that differ from core to core and from sample to sample.
    fn count(&mut self, at: usize, seed: u64) {
        let looks = self.readings;
        let thread = &mut self.threads[at];
        let ran = span(thread.run).0.saturating_sub(thread.counts.running.0);
        let mut mixed = seed ^ (at as u64) << 32 ^ (thread.core as u64) << 48;
        let mut draw = |more: u64| {
            mixed = (mixed ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 40) % 100
        };
        let cycles = 5 + draw(1) / 10 + draw(looks) / 20;
        let requests = ran / 10;
        let add = |counter: &mut Option<u64>, more: u64| *counter = Some(counter.unwrap_or(0) + more);
        thread.counts.running = span(thread.run);
        thread.counts.enabled = span(thread.run);
        add(&mut thread.counts.requests, requests);
        add(&mut thread.counts.busy, requests * cycles);
        add(&mut thread.counts.cycles, 2 * ran);
        add(&mut thread.counts.instructions, ran);
    }

    /// Returns a thread's mask.
    pub(crate) fn mask(&self, at: usize) -> &CpuSet {
        &self.threads[at].mask
    }

    /// Moves a thread that may not be on its core to the least busy core of its mask.
    fn resettle(&mut self, at: usize) {
        if self.allowed(at, self.threads[at].core) {
            return;
        }
        let cores = (0..self.speeds.len()).filter(|&core| self.allowed(at, core));
        if let Some(core) = cores.min_by_key(|&core| self.load(core)) {
            self.threads[at].core = core;
        }
    }

    fn settle(&mut self, decision: &Decision) -> Settled {
        self.decided += 1;
        let at = decision.thread.index();
        let Some(thread) = self.threads.get(at) else { return Settled::Vanished };
        if thread.ended || thread.hog {
            return Settled::Vanished;
        }
        if self.refuses.is_some_and(|every| self.decided.is_multiple_of(every)) {
            return Settled::Refused(Refusal::Other);
        }
        if decision.act.to().is_some_and(|to| !to.intersects(&self.usable)) {
            return Settled::Refused(Refusal::Cpus);
        }
        let own = thread.home.clone();
        self.moves += u64::from(decision.act.to().is_some());
        match &decision.act {
            Act::Confine(to) => self.threads[at].mask = to.clone(),
            Act::Release => self.threads[at].mask = own,
            Act::Fetch(_) => return Settled::Refused(Refusal::Memory),
            Act::Nudge(to) => {
                let before = std::mem::replace(&mut self.threads[at].mask, to.clone());
                self.resettle(at);
                self.threads[at].mask = before;
            }
        }
        self.resettle(at);
        Settled::Applied
    }
}

fn span(seconds: f64) -> Span {
    Span((seconds * 1e9).round().max(0.0) as u64)
}

impl Host for Fluid {
    type Error = std::convert::Infallible;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Self::Error> {
        let mut sample = Sample { at: Moment(span(self.now).0), ..Sample::default() };
        let (program, pid) = (ProgramId(0), 100);
        if std::mem::take(&mut self.first) {
            sample.programs.push(ProgramInfo { id: program, pid, name: "model".to_owned() });
        }
        if !std::mem::replace(&mut self.told_usable, true) {
            sample.notices.push(Notice::Usable(self.usable.clone()));
        }
        if let Some(seed) = self.counted {
            for at in 0..self.threads.len() {
                self.count(at, seed);
            }
        }
        let now = self.now;
        for at in 0..self.threads.len() {
            let (id, tid) = (ThreadId::from_index(at), u32::try_from(at).unwrap_or(0) + pid);
            let thread = &mut self.threads[at];
            if thread.hog || thread.born > now {
                continue;
            }
            if thread.ended {
                if std::mem::take(&mut thread.told) {
                    sample.gone.push(id);
                }
                continue;
            }
            if !std::mem::replace(&mut thread.told, true) {
                let (name, home) = (format!("t{at}"), thread.home.clone());
                sample.news.push(ThreadInfo { id, program, pid, tid, name, home, left: None, tagged: false });
            }
            let cpu = OsCpu::from_index(thread.core);
            self.readings += 1;
            let lost = self.lossy.is_some_and(|every| self.readings.is_multiple_of(every));
            if lost || wanted.on.as_ref().is_some_and(|on| !on.contains(cpu)) {
                continue;
            }
            sample.threads.push(ThreadSample {
                id,
                run: span(thread.run),
                wait: Some(span(thread.wait)),
                slices: None,
                ready: None,
                voluntary: wanted.sleeps.then_some(thread.sleeps),
                cpu: (wanted.places || thread.mask.len() == 1).then_some(cpu),
                counts: self.counted.filter(|_| wanted.counts).map(|_| thread.counts),
            });
        }
        if wanted.cpus {
            for (core, busy) in self.busy.iter().enumerate() {
                sample.cpus.push(CpuSample { cpu: OsCpu::from_index(core), busy: span(*busy), steal: None });
            }
        }
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Self::Error> {
        // Events due in the next tenth of a millisecond happen between the sample and the moves.
        let now = self.now;
        self.now += 1e-4;
        self.happen();
        self.now = now;
        let mut seen = BTreeSet::new();
        let outcome = |decision: &Decision| {
            assert!(seen.insert(decision.thread), "two decisions about thread {}", decision.thread);
            Outcome { thread: decision.thread, end: self.settle(decision) }
        };
        Ok(decisions.iter().map(outcome).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, Self::Error> {
        let until = until.0 as f64 / 1e9;
        assert!(until > self.now - EPSILON_S, "the policy looks into the past: {until} at {}", self.now);
        self.advance(until);
        self.happen();
        Ok(if self.over() { Awake::Over } else { Awake::Due })
    }
}
