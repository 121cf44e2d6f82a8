//! What all models of schedulers share: CPUs with their queues, threads as a scheduler sees them.

use super::domains::{Domain, Domains};
use super::tree::Tree;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::rng::Rng;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::set::Set;

/// No thread.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    /// It sleeps, is not born, or is over.
    #[default]
    Off,
    /// In the queue of its CPU.
    Queued,
    /// On its CPU.
    Running,
}

/// A thread as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub(crate) state: State,
    /// The CPU it is on, or was last.
    pub(crate) cpu: u32,
    pub(crate) weight: u32,
    pub(crate) group: u32,
    /// Its number within its program.
    pub(crate) rank: u32,
    /// Where it may run; `None`: anywhere.
    pub(crate) mask: Option<Box<Set<Pu>>>,
    /// It may run on one CPU only.
    pub(crate) single: bool,
    /// It waits for others and yields whenever it polls.
    pub(crate) passive: bool,
    /// Virtual time, in nanoseconds at weight 1024.
    pub(crate) vruntime: i64,
    pub(crate) deadline: i64,
    /// How far it was behind the mean when it left its queue.
    pub(crate) lag: i64,
    /// When it was last on a CPU; 0 after a move, which makes it nobody's cached thread.
    pub(crate) last: u64,
    /// Since when it is in the queue.
    pub(crate) since: u64,
    /// How long it has run since it was put on the CPU.
    pub(crate) slice: u64,
    /// Round robin by rounds: its round, and how much of the round's slice it has used. Credits: what it has.
    pub(crate) round: u64,
    pub(crate) used: u64,
    pub(crate) credit: i64,
    pub(crate) boosted: bool,
    /// The part of the last while in which it wanted a CPU, at the moment noted; kept where it counts.
    pub(crate) wanted: f64,
    pub(crate) noted: u64,
}

impl Task {
    /// A new thread. It counts in full, whether others have weighed in balancing before it or not (init_entity_runnable_average).
    pub(crate) fn born(weight: u32, group: u32, rank: u32) -> Self {
        Self { weight, group, rank, wanted: 1.0, ..Self::default() }
    }
}

/// The half-life of what counts as the last while: 32 ms (kernel/sched/pelt.c).
const HALF_LIFE: f64 = 32e6;

/// What is left of a past after so many nanoseconds.
fn faded(span: u64) -> f64 {
    (-(span as f64) / HALF_LIFE).exp2()
}

/// A CPU and its queue.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) current: u32,
    pub(crate) queue: Vec<u32>,
    pub(crate) usable: bool,
    /// Waiting threads that may run elsewhere.
    pub(crate) movable: u32,
    /// Waiting threads that compute.
    pub(crate) eager: u32,
    /// The least virtual time, never falling.
    pub(crate) least: i64,
    /// Since when it has had nothing to do.
    pub(crate) idle_since: Option<u64>,
    /// How long it is usually idle.
    pub(crate) idle_mean: u64,
}

/// CPUs, threads, domains.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    pub(crate) tasks: Vec<Task>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) domains: Domains,
    /// Movable waiting threads by CPU.
    pub(crate) waiting: Tree,
    /// 1 where a CPU is idle.
    pub(crate) idle: Tree,
    /// 1 at the first CPU of a core all of whose CPUs are idle.
    pub(crate) cores: Tree,
    /// 1 at the first CPU of a core that runs several threads.
    pub(crate) doubled: Tree,
    /// Runnable weight by group, for schedulers that share by group.
    pub(crate) groups: Vec<u64>,
    pub(crate) by_group: bool,
    /// Whether any thread has had another weight than 1024.
    pub(crate) uneven: bool,
    /// How long a call of yield takes that finds nobody else.
    pub(crate) call: u64,
    pub(crate) tick: u64,
    /// When, within a tick, it comes.
    pub(crate) phase: u64,
    pub(crate) rng: Rng,
    smt: bool,
}

/// A long idle time to begin with: `2 * sysctl_sched_migration_cost`, to which the kernel limits the mean.
const IDLE_MEAN_MOST: u64 = 1_000_000;

impl Seats {
    pub(crate) fn new(model: &Model, kernel: &Kernel, rng: &Rng) -> Self {
        let machine = &model.machine;
        let count = machine.pu_count();
        let call = model.switching.yielding.0.max(1);
        let cpu = Cpu {
            current: NOBODY,
            queue: Vec::new(),
            usable: true,
            movable: 0,
            eager: 0,
            least: 0,
            idle_since: Some(0),
            idle_mean: IDLE_MEAN_MOST,
        };
        let tick = kernel.tick.0.max(1);
        let phase = rng.fork("ticks").below(tick);
        let mut seats = Self {
            tasks: Vec::new(),
            cpus: vec![cpu; count],
            domains: Domains::new(machine),
            waiting: Tree::new(count),
            idle: Tree::new(count),
            cores: Tree::new(count),
            doubled: Tree::new(count),
            groups: Vec::new(),
            by_group: kernel.groups,
            uneven: false,
            call,
            tick,
            phase,
            rng: rng.fork("scheduler"),
            smt: machine.smt() > 1,
        };
        for cpu in 0..count {
            seats.note(cpu);
        }
        seats
    }

    /// The first tick at or after a moment.
    pub(crate) fn tick_at(&self, moment: u64) -> u64 {
        let past = moment.saturating_sub(self.phase);
        past.div_ceil(self.tick).saturating_mul(self.tick).saturating_add(self.phase)
    }

    /// The first tick after a moment.
    pub(crate) fn tick_after(&self, moment: u64) -> u64 {
        self.tick_at(moment.saturating_add(1))
    }

    /// How many threads want a CPU.
    pub(crate) fn load(&self, cpu: usize) -> usize {
        self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current != NOBODY)
    }

    pub(crate) fn current(&self, cpu: usize) -> Option<usize> {
        let current = self.cpus[cpu].current;
        (current != NOBODY).then_some(current as usize)
    }

    /// Whether a thread may run there.
    pub(crate) fn allowed(&self, task: usize, cpu: usize) -> bool {
        self.cpus[cpu].usable
            && self.tasks[task].mask.as_ref().is_none_or(|mask| mask.contains(Pu::from_index(cpu)))
    }

    /// The weight that counts where a thread is: its own, or its part of its group's.
    pub(crate) fn weight(&self, task: usize) -> i64 {
        let task = &self.tasks[task];
        if !self.by_group {
            return i64::from(task.weight.max(2));
        }
        let all = self.groups.get(task.group as usize).copied().unwrap_or(0).max(1024);
        ((u64::from(task.weight) * 1024 / all) as i64).max(2)
    }

    /// As how many threads of weight 1024 a thread that wants a CPU counts in balancing: its weight, and of how much of late it
    /// wanted one (`task_h_load`).
    pub(crate) fn burden_of(&self, task: usize, now: u64) -> f64 {
        if self.plain() {
            return 1.0;
        }
        let seat = &self.tasks[task];
        self.weight(task) as f64 / 1024.0 * (1.0 - (1.0 - seat.wanted) * faded(now - seat.noted))
    }

    /// All threads weigh alike, and none less because it slept: balancing counts threads.
    fn plain(&self) -> bool {
        !self.by_group && !self.uneven
    }

    /// As how many threads of weight 1024 those of a domain count together.
    pub(crate) fn burden(&self, domain: &Domain, now: u64) -> f64 {
        if self.plain() {
            return f64::from(domain.load);
        }
        // Balancing comes at intervals in proportion to the domain's CPUs.
        let cpus = domain.cpus.clone();
        let members = cpus
            .flat_map(|cpu| self.cpus[cpu].queue.iter().map(|&task| task as usize).chain(self.current(cpu)));
        members.map(|task| self.burden_of(task, now)).sum()
    }

    /// Puts a thread into a queue.
    pub(crate) fn push(&mut self, task: usize, cpu: usize, now: u64) {
        let seat = &self.tasks[task];
        debug_assert_ne!(seat.state, State::Queued);
        let from = seat.cpu as usize;
        if seat.state == State::Off {
            if !self.plain() {
                let seat = &mut self.tasks[task];
                // A thread that was never off counts in full (init_entity_runnable_average).
                seat.wanted = if seat.noted == 0 { 1.0 } else { seat.wanted * faded(now - seat.noted) };
                seat.noted = now;
            }
            self.domains.add(cpu, 1);
            self.weigh(task, true);
        } else if from != cpu {
            self.domains.add(from, -1);
            self.domains.add(cpu, 1);
        }
        let seat = &mut self.tasks[task];
        (seat.state, seat.cpu, seat.since) = (State::Queued, cpu as u32, now);
        let (movable, eager) = (u32::from(!seat.single), u32::from(!seat.passive));
        let cpu_ = &mut self.cpus[cpu];
        cpu_.queue.push(task as u32);
        cpu_.movable += movable;
        cpu_.eager += eager;
        self.note(cpu);
    }

    /// Puts a thread of a CPU's queue onto the CPU.
    pub(crate) fn seat(&mut self, at: usize, cpu: usize, now: u64) -> usize {
        let task = self.cpus[cpu].queue.remove(at) as usize;
        self.unqueue(task, cpu);
        let seat = &mut self.tasks[task];
        (seat.state, seat.slice) = (State::Running, 0);
        let seat = &mut self.cpus[cpu];
        if let Some(since) = seat.idle_since.take() {
            let idle = now.saturating_sub(since);
            // kernel/sched/sched.h, update_avg: an eighth of the difference.
            let mean = (seat.idle_mean as i64 + (idle as i64 - seat.idle_mean as i64) / 8) as u64;
            seat.idle_mean = mean.min(IDLE_MEAN_MOST);
        }
        seat.current = task as u32;
        self.note(cpu);
        task
    }

    /// Takes the running thread off its CPU; it is nowhere until pushed, or `off` says that it is off.
    pub(crate) fn unseat(&mut self, cpu: usize, now: u64) -> Option<usize> {
        let task = self.current(cpu)?;
        self.cpus[cpu].current = NOBODY;
        self.tasks[task].last = now;
        self.note(cpu);
        Some(task)
    }

    /// Takes a waiting thread out of its queue; it is nowhere until pushed, or `off` says that it is off.
    pub(crate) fn take(&mut self, task: usize) {
        let cpu = self.tasks[task].cpu as usize;
        if let Some(at) = self.cpus[cpu].queue.iter().position(|&other| other as usize == task) {
            self.cpus[cpu].queue.remove(at);
            self.unqueue(task, cpu);
            self.tasks[task].state = State::Running;
            self.note(cpu);
        }
    }

    /// A thread that was taken out wants no CPU any more.
    pub(crate) fn off(&mut self, task: usize, now: u64) {
        let cpu = self.tasks[task].cpu as usize;
        let plain = self.plain();
        let seat = &mut self.tasks[task];
        if !plain {
            seat.wanted = 1.0 - (1.0 - seat.wanted) * faded(now - seat.noted);
            seat.noted = now;
        }
        seat.state = State::Off;
        self.domains.add(cpu, -1);
        self.weigh(task, false);
    }

    /// A CPU has nothing to do from now on.
    pub(crate) fn rests(&mut self, cpu: usize, now: u64) {
        self.cpus[cpu].idle_since = Some(now);
    }

    fn unqueue(&mut self, task: usize, cpu: usize) {
        let seat = &self.tasks[task];
        let (movable, eager) = (u32::from(!seat.single), u32::from(!seat.passive));
        self.cpus[cpu].movable -= movable;
        self.cpus[cpu].eager -= eager;
    }

    fn weigh(&mut self, task: usize, comes: bool) {
        if !self.by_group {
            return;
        }
        let (group, weight) = (self.tasks[task].group as usize, u64::from(self.tasks[task].weight));
        if group >= self.groups.len() {
            self.groups.resize(group + 1, 0);
        }
        let sum = &mut self.groups[group];
        *sum = if comes { *sum + weight } else { sum.saturating_sub(weight) };
    }

    /// A thread waits by yielding from now on, or not any more.
    pub(crate) fn set_passive(&mut self, task: usize, passive: bool) {
        let seat = &mut self.tasks[task];
        if seat.passive == passive {
            return;
        }
        seat.passive = passive;
        if seat.state == State::Queued {
            let eager = &mut self.cpus[seat.cpu as usize].eager;
            *eager = if passive { *eager - 1 } else { *eager + 1 };
        }
    }

    /// Where a thread may run from now on.
    pub(crate) fn set_mask(&mut self, task: usize, mask: Option<Set<Pu>>) {
        let single = mask.as_ref().map_or(self.cpus.len() == 1, |mask| mask.len() == 1);
        let seat = &mut self.tasks[task];
        let was = std::mem::replace(&mut seat.single, single);
        seat.mask = mask.map(Box::new);
        if seat.state == State::Queued && was != single {
            let cpu = seat.cpu as usize;
            let movable = &mut self.cpus[cpu].movable;
            *movable = if single { *movable - 1 } else { *movable + 1 };
            self.note(cpu);
        }
    }

    /// A CPU may be used, or not any more. Who is there stays for the world to move.
    pub(crate) fn set_usable(&mut self, cpu: usize, usable: bool) {
        if self.cpus[cpu].usable != usable {
            self.cpus[cpu].usable = usable;
            self.domains.open(cpu, usable);
            self.note(cpu);
        }
    }

    /// Whether a CPU's core runs several threads.
    pub(crate) fn is_doubled(&self, cpu: usize) -> bool {
        let cpus = &self.domains.all[self.domains.core[cpu] as usize].cpus;
        self.doubled.most(&(cpus.start..cpus.start + 1)) > 0
    }

    /// Brings the trees up to date for a CPU.
    fn note(&mut self, cpu: usize) {
        let seat = &self.cpus[cpu];
        // Who waits where nobody runs is about to run.
        let waiting = if seat.current == NOBODY { 0 } else { seat.movable };
        let free = seat.usable && seat.current == NOBODY && seat.queue.is_empty();
        self.waiting.set(cpu, waiting);
        self.idle.set(cpu, u32::from(free));
        if self.smt {
            let core = self.domains.core[cpu] as usize;
            let cpus = self.domains.all[core].cpus.clone();
            let first = cpus.start;
            let (mut all, mut running) = (true, 0);
            for seat in &self.cpus[cpus] {
                all &= seat.usable && seat.current == NOBODY && seat.queue.is_empty();
                running += u32::from(seat.current != NOBODY);
            }
            self.cores.set(first, u32::from(all));
            self.doubled.set(first, u32::from(running > 1));
        } else {
            self.cores.set(cpu, u32::from(free));
        }
    }
}
