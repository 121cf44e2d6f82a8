//! Simulated host: a world with the readings and the actions of the live host.
//!
//! Samples are as Linux gives them. A wait is counted when it is over, so a thread that waits
//! through a whole step shows no change; the sample then reports that the thread is ready, as the
//! live host does. Time on a CPU is counted when the timer ticks or when the thread leaves the CPU.
//! Hardware counters are exact unless [`ObserverCost::noise`] is set. Busy time of CPUs comes in
//! hundredths of a second (`/proc/stat`).

use crate::observer_cost::ObserverCost;
use crate::progress::{NoStalls, Progress};
use crate::rng::Rng;
use crate::sched::TaskState;
use crate::world::{Refused, World};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use trimtab_core::balance::{Act, Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::{Id, ProgramId, Pu, ThreadId};
use trimtab_core::observe::{CpuSample, Notice, ProgramInfo, Sample, ThreadInfo, ThreadSample};
use trimtab_core::set::{CpuSet, Set};
use trimtab_core::time::{Moment, Span};

/// Unit of the counts in `/proc/stat`, ns: `USER_HZ` is 100.
const STAT_GRAIN: u64 = 10_000_000;

/// Number of the first process; the others follow it.
const FIRST_PID: u32 = 1000;

/// Last reading of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Read {
    run: u64,
    wait: u64,
    slices: u64,
}

/// World that policies can sample and act on.
#[derive(Debug)]
pub struct Simulated<P: Progress = NoStalls> {
    world: World<P>,
    end: Moment,
    told_programs: BTreeSet<u32>,
    told: usize,
    gone: usize,
    usable: CpuSet,
    read: Vec<Option<Read>>,
    counting: bool,
    /// Threads that were confined and not released, with the masks that they had before.
    held: BTreeMap<ThreadId, Option<Set<Pu>>>,
    observer_cost: ObserverCost,
    /// CPU time that samples have cost so far, and the cost of the last sample.
    paid: Span,
    cost: Option<Span>,
    turn: usize,
    /// By thread: busy cycles as reported and true, at the last sample.
    noisy: Vec<Noisy>,
    rng: Rng,
}

/// Busy cycles of a thread: the true count, and the count that samples report with noise.
#[derive(Clone, Copy, Debug, Default)]
struct Noisy {
    truth: u64,
    told: u64,
}

impl<P: Progress> Simulated<P> {
    /// Returns a host over a world. The run is over when the programs are, or at `end`.
    pub fn new(world: World<P>, end: Moment) -> Self {
        let usable = world.usable();
        Self {
            world,
            end,
            told_programs: BTreeSet::new(),
            told: 0,
            gone: 0,
            usable,
            read: Vec::new(),
            counting: false,
            held: BTreeMap::new(),
            observer_cost: ObserverCost::default(),
            paid: Span::ZERO,
            cost: None,
            turn: 0,
            noisy: Vec::new(),
            rng: Rng::new(0),
        }
    }

    /// Returns the same host with samples that cost CPU time.
    #[must_use]
    pub fn paying(mut self, observer_cost: ObserverCost, rng: Rng) -> Self {
        (self.observer_cost, self.rng) = (observer_cost, rng);
        self
    }

    /// Returns the CPU time that samples have taken so far.
    pub fn paid(&self) -> Span {
        self.paid
    }

    /// Returns the hardware counts of a thread, with the noise of reading them.
    fn hardware(&mut self, id: usize, at: usize) -> Counts {
        let mut counts = self.world.hardware(at);
        let noise = self.observer_cost.noise;
        let (Some(busy), Some(most)) = (counts.busy.filter(|_| noise > 0.0), counts.cycles) else {
            return counts;
        };
        if self.noisy.len() <= id {
            self.noisy.resize(id + 1, Noisy::default());
        }
        let noisy = &mut self.noisy[id];
        let more = busy.saturating_sub(noisy.truth) as f64;
        let told = noisy.told + (more * (1.0 + noise * self.rng.normal()).max(0.0)) as u64;
        // Busy cycles cannot exceed all cycles.
        *noisy = Noisy { truth: busy, told: told.min(most).max(noisy.told) };
        counts.busy = Some(noisy.told);
        counts
    }

    /// Charges the cost of a sample of this number of threads.
    fn pay(&mut self, threads: usize) {
        if self.observer_cost.is_free() {
            return;
        }
        let price = self.observer_cost.cost(threads);
        if self.observer_cost.inside {
            for id in 0..self.told {
                let at = self.world.watched(ThreadId::from_index(id));
                if at.is_some_and(|at| self.world.hinder(at, price)) {
                    self.paid = self.paid + price;
                }
            }
            return;
        }
        self.cost = Some(price);
        self.paid = self.paid + price;
        self.turn = self.world.work_aside(self.turn, price);
    }

    /// Returns the world.
    pub fn world(&self) -> &World<P> {
        &self.world
    }

    /// Returns the world, to change it between two samples.
    pub fn world_mut(&mut self) -> &mut World<P> {
        &mut self.world
    }

    /// Returns the world and drops the host.
    pub fn into_world(self) -> World<P> {
        self.world
    }

    /// Gives every thread that is still confined the mask back that it had before. The live host
    /// does the same at its end, without asking the policy. Other threads are not touched.
    pub fn restore(&mut self) {
        for (id, mask) in std::mem::take(&mut self.held) {
            // A thread that has ended needs no mask.
            let _ended = self.world.give_back(id, mask);
        }
    }

    /// Confines a thread. The thread gets back the mask that it had before the first time.
    fn confine(&mut self, id: ThreadId, to: &CpuSet) -> Result<(), Refused> {
        let found = self.world.mask(id).ok_or(Refused::Vanished)?;
        self.world.confine(id, to)?;
        self.held.entry(id).or_insert(found);
        Ok(())
    }

    fn release(&mut self, id: ThreadId) -> Result<(), Refused> {
        match self.held.remove(&id) {
            Some(mask) => self.world.give_back(id, mask),
            None => self.world.mask(id).map(drop).ok_or(Refused::Vanished),
        }
    }

    fn tell_news(&mut self, sample: &mut Sample) {
        let born = self.world.watched_count();
        // A thread that was created and ended between two samples is never reported.
        let ended = &self.world.ended_ids()[self.gone..];
        sample.gone = ended.iter().filter(|&&id| (id as usize) < self.told).map(|&id| ThreadId(id)).collect();
        sample.gone.sort_unstable();
        for id in ended {
            self.held.remove(&ThreadId(*id));
        }
        self.gone += ended.len();
        for id in self.told..born {
            let Some(at) = self.world.watched(ThreadId::from_index(id)) else { continue };
            let (program, name, home) = self.world.birth(at);
            let pid = FIRST_PID + program;
            if self.told_programs.insert(program) {
                sample.programs.push(ProgramInfo { id: ProgramId(program), pid, name: name.clone() });
            }
            let tid = FIRST_PID.saturating_mul(10).saturating_add(id as u32);
            let program = ProgramId(program);
            sample.news.push(ThreadInfo {
                id: ThreadId::from_index(id),
                program,
                pid,
                tid,
                name,
                home,
                left: None,
                tagged: false,
            });
        }
        self.told = born;
        self.read.resize(born, None);
        let usable = self.world.usable();
        if usable != self.usable {
            sample.notices.push(Notice::Usable(usable.clone()));
            self.usable = usable;
        }
    }
}

impl<P: Progress> Host for Simulated<P> {
    type Error = Infallible;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Infallible> {
        let mut sample = Sample { at: self.world.now(), cost: self.cost, ..Sample::default() };
        self.tell_news(&mut sample);
        if wanted.counts && !std::mem::replace(&mut self.counting, true) {
            sample.notices.push(Notice::Counting(Rung::Exact));
        }
        for id in 0..self.told {
            let number = ThreadId::from_index(id);
            let Some(at) = self.world.watched(number) else { continue };
            let counted = self.world.counted(at);
            if wanted.on.as_ref().is_some_and(|on| !on.contains(counted.cpu)) {
                continue;
            }
            let read = Read { run: counted.run, wait: counted.wait, slices: counted.slices };
            let unchanged = self.read[id].replace(read) == Some(read);
            let counts = wanted.counts.then(|| self.hardware(id, at));
            sample.threads.push(ThreadSample {
                id: number,
                run: Span(counted.run),
                wait: Some(Span(counted.wait)),
                slices: Some(counted.slices),
                voluntary: wanted.sleeps.then_some(counted.sleeps),
                cpu: (wanted.places || counted.single).then_some(counted.cpu),
                ready: unchanged.then_some(counted.state != TaskState::Off),
                counts,
            });
        }
        self.pay(sample.threads.len());
        if wanted.cpus {
            let grain = |busy: Span| Span(busy.0 / STAT_GRAIN * STAT_GRAIN);
            let read = self.world.busy().map(|(cpu, busy)| CpuSample { cpu, busy: grain(busy), steal: None });
            sample.cpus = read.collect();
            sample.cpus.sort_unstable_by_key(|read| read.cpu);
        }
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Infallible> {
        let outcome = |decision: &Decision| {
            let thread = decision.thread;
            let done = match &decision.act {
                Act::Confine(to) => self.confine(thread, to),
                Act::Nudge(to) => self.world.nudge(thread, to),
                Act::Release => self.release(thread),
                Act::Fetch(node) => self.world.fetch(thread, *node),
            };
            let end = match done {
                Ok(()) => Settled::Applied,
                Err(Refused::Vanished) => Settled::Vanished,
                Err(Refused::Cpus) => Settled::Refused(Refusal::Cpus),
                Err(Refused::Memory) => Settled::Refused(Refusal::Memory),
            };
            Outcome { thread, end }
        };
        Ok(decisions.iter().map(outcome).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, Infallible> {
        self.world.run(until.min(self.end));
        let over = self.world.over() || self.world.now() >= self.end;
        Ok(if over { Awake::Over } else { Awake::Due })
    }
}
