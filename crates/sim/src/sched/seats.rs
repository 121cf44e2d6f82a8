//! State that all scheduler models share: CPUs with their run queues, threads as a scheduler sees
//! them.

use super::domains::{Domain, Domains};
use super::tree::Tree;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::rng::Rng;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::set::Set;

/// Sentinel: no thread.
pub(crate) const NO_TASK: u32 = u32::MAX;

/// Scheduling state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TaskState {
    /// Asleep, not created yet, or ended.
    #[default]
    Off,
    /// Waiting in the run queue of its CPU.
    Queued,
    /// Running on its CPU.
    Running,
}

/// Thread as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub(crate) state: TaskState,
    /// Present or last CPU.
    pub(crate) cpu: u32,
    pub(crate) weight: u32,
    pub(crate) group: u32,
    /// Number within the program.
    pub(crate) rank: u32,
    /// CPUs on which the thread may run; `None`: all.
    pub(crate) mask: Option<Box<Set<Pu>>>,
    /// Whether the thread may run on one CPU only.
    pub(crate) single: bool,
    /// Whether the thread waits for others and yields whenever it polls.
    pub(crate) passive: bool,
    /// Virtual time, in nanoseconds at weight 1024.
    pub(crate) vruntime: i64,
    pub(crate) deadline: i64,
    /// Distance behind the mean when the thread left its queue.
    pub(crate) lag: i64,
    /// When the thread was last on a CPU, ns; 0 after a move, because then no cache holds its data.
    pub(crate) last: u64,
    /// When the thread joined the queue, ns.
    pub(crate) since: u64,
    /// Time that the thread has run since it was put on the CPU, ns.
    pub(crate) slice: u64,
    /// For round robin by rounds: the thread's round, and how much of the round's slice it has
    /// used. For credits: the thread's credit.
    pub(crate) round: u64,
    pub(crate) used: u64,
    pub(crate) credit: i64,
    pub(crate) boosted: bool,
    /// Share of the recent past in which the thread wanted a CPU, 0 to 1, at the time `noted`; kept
    /// only if balancing uses it.
    pub(crate) wanted: f64,
    pub(crate) noted: u64,
}

impl Task {
    /// Returns a new thread. It counts in full, independent of the weights of other threads in
    /// balancing before it (init_entity_runnable_average).
    pub(crate) fn born(weight: u32, group: u32, rank: u32) -> Self {
        Self { weight, group, rank, wanted: 1.0, ..Self::default() }
    }
}

/// Half-life of the recent past: 32 ms (kernel/sched/pelt.c).
const HALF_LIFE: f64 = 32e6;

/// Returns the share of a past value that is left after this time, in ns.
fn faded(span: u64) -> f64 {
    (-(span as f64) / HALF_LIFE).exp2()
}

/// CPU and its run queue.
#[derive(Clone, Debug)]
pub(crate) struct CpuQueue {
    pub(crate) current: u32,
    pub(crate) queue: Vec<u32>,
    pub(crate) usable: bool,
    /// Number of waiting threads that may run elsewhere.
    pub(crate) movable: u32,
    /// Number of waiting threads that compute.
    pub(crate) eager: u32,
    /// Lowest virtual time; it never falls.
    pub(crate) least: i64,
    /// When the CPU fell idle, ns.
    pub(crate) idle_since: Option<u64>,
    /// Mean idle time of the CPU, ns.
    pub(crate) idle_mean: u64,
}

/// CPUs, threads and domains.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    pub(crate) tasks: Vec<Task>,
    pub(crate) cpus: Vec<CpuQueue>,
    pub(crate) domains: Domains,
    /// Number of movable waiting threads, by CPU.
    pub(crate) waiting: Tree,
    /// 1 if a CPU is idle, by CPU.
    pub(crate) idle: Tree,
    /// 1 at the first CPU of a core if all CPUs of the core are idle.
    pub(crate) cores: Tree,
    /// 1 at the first CPU of a core that runs several threads.
    pub(crate) doubled: Tree,
    /// Runnable weight by group, for schedulers that share by group.
    pub(crate) groups: Vec<u64>,
    pub(crate) by_group: bool,
    /// Whether any thread has had a weight other than 1024.
    pub(crate) uneven: bool,
    /// Time of a call of yield that finds no other thread, ns.
    pub(crate) call: u64,
    pub(crate) tick: u64,
    /// Offset of ticks from the multiples of `tick`, ns.
    pub(crate) phase: u64,
    pub(crate) rng: Rng,
    smt: bool,
}

/// Upper bound and first value of a CPU's mean idle time, ns: `2 * sysctl_sched_migration_cost`, to
/// which the kernel limits the mean.
const IDLE_MEAN_MOST: u64 = 1_000_000;

impl Seats {
    pub(crate) fn new(model: &Model, kernel: &Kernel, rng: &Rng) -> Self {
        let machine = &model.machine;
        let count = machine.pu_count();
        let call = model.switching.yielding.0.max(1);
        let cpu = CpuQueue {
            current: NO_TASK,
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

    /// Returns the first tick at or after a moment.
    pub(crate) fn tick_at(&self, moment: u64) -> u64 {
        let past = moment.saturating_sub(self.phase);
        past.div_ceil(self.tick).saturating_mul(self.tick).saturating_add(self.phase)
    }

    /// Returns the first tick after a moment.
    pub(crate) fn tick_after(&self, moment: u64) -> u64 {
        self.tick_at(moment.saturating_add(1))
    }

    /// Returns the number of threads that want a CPU.
    pub(crate) fn load(&self, cpu: usize) -> usize {
        self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current != NO_TASK)
    }

    pub(crate) fn current(&self, cpu: usize) -> Option<usize> {
        let current = self.cpus[cpu].current;
        (current != NO_TASK).then_some(current as usize)
    }

    /// Returns whether a thread may run on a CPU.
    pub(crate) fn allowed(&self, task: usize, cpu: usize) -> bool {
        self.cpus[cpu].usable
            && self.tasks[task].mask.as_ref().is_none_or(|mask| mask.contains(Pu::from_index(cpu)))
    }

    /// Returns a thread's effective weight: its own, or its part of its group's.
    pub(crate) fn weight(&self, task: usize) -> i64 {
        let task = &self.tasks[task];
        if !self.by_group {
            return i64::from(task.weight.max(2));
        }
        let all = self.groups.get(task.group as usize).copied().unwrap_or(0).max(1024);
        ((u64::from(task.weight) * 1024 / all) as i64).max(2)
    }

    /// Returns the number of threads of weight 1024 for which a thread that wants a CPU counts in
    /// balancing: from its weight, and from the share of the recent past in which it wanted a CPU
    /// (`task_h_load`).
    pub(crate) fn burden_of(&self, task: usize, now: u64) -> f64 {
        if self.plain() {
            return 1.0;
        }
        let seat = &self.tasks[task];
        self.weight(task) as f64 / 1024.0 * (1.0 - (1.0 - seat.wanted) * faded(now - seat.noted))
    }

    /// Returns whether balancing counts threads: all weights are equal, and sleeping reduces none.
    fn plain(&self) -> bool {
        !self.by_group && !self.uneven
    }

    /// Returns the number of threads of weight 1024 for which the threads of a domain count
    /// together.
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
        debug_assert_ne!(seat.state, TaskState::Queued);
        let from = seat.cpu as usize;
        if seat.state == TaskState::Off {
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
        (seat.state, seat.cpu, seat.since) = (TaskState::Queued, cpu as u32, now);
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
        (seat.state, seat.slice) = (TaskState::Running, 0);
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

    /// Takes the running thread off its CPU. The thread is in no queue until it is pushed or set
    /// `off`.
    pub(crate) fn unseat(&mut self, cpu: usize, now: u64) -> Option<usize> {
        let task = self.current(cpu)?;
        self.cpus[cpu].current = NO_TASK;
        self.tasks[task].last = now;
        self.note(cpu);
        Some(task)
    }

    /// Takes a waiting thread out of its queue. The thread is in no queue until it is pushed or set
    /// `off`.
    pub(crate) fn take(&mut self, task: usize) {
        let cpu = self.tasks[task].cpu as usize;
        if let Some(at) = self.cpus[cpu].queue.iter().position(|&other| other as usize == task) {
            self.cpus[cpu].queue.remove(at);
            self.unqueue(task, cpu);
            self.tasks[task].state = TaskState::Running;
            self.note(cpu);
        }
    }

    /// Notes that a thread that was taken out wants no CPU any more.
    pub(crate) fn off(&mut self, task: usize, now: u64) {
        let cpu = self.tasks[task].cpu as usize;
        let plain = self.plain();
        let seat = &mut self.tasks[task];
        if !plain {
            seat.wanted = 1.0 - (1.0 - seat.wanted) * faded(now - seat.noted);
            seat.noted = now;
        }
        seat.state = TaskState::Off;
        self.domains.add(cpu, -1);
        self.weigh(task, false);
    }

    /// Notes that a CPU is idle from now on.
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

    /// Sets whether a thread waits by yielding.
    pub(crate) fn set_passive(&mut self, task: usize, passive: bool) {
        let seat = &mut self.tasks[task];
        if seat.passive == passive {
            return;
        }
        seat.passive = passive;
        if seat.state == TaskState::Queued {
            let eager = &mut self.cpus[seat.cpu as usize].eager;
            *eager = if passive { *eager - 1 } else { *eager + 1 };
        }
    }

    /// Sets the CPUs on which a thread may run from now on.
    pub(crate) fn set_mask(&mut self, task: usize, mask: Option<Set<Pu>>) {
        let single = mask.as_ref().map_or(self.cpus.len() == 1, |mask| mask.len() == 1);
        let seat = &mut self.tasks[task];
        let was = std::mem::replace(&mut seat.single, single);
        seat.mask = mask.map(Box::new);
        if seat.state == TaskState::Queued && was != single {
            let cpu = seat.cpu as usize;
            let movable = &mut self.cpus[cpu].movable;
            *movable = if single { *movable - 1 } else { *movable + 1 };
            self.note(cpu);
        }
    }

    /// Sets whether a CPU is usable. The world must move the threads that are there.
    pub(crate) fn set_usable(&mut self, cpu: usize, usable: bool) {
        if self.cpus[cpu].usable != usable {
            self.cpus[cpu].usable = usable;
            self.domains.open(cpu, usable);
            self.note(cpu);
        }
    }

    /// Returns whether a CPU's core runs several threads.
    pub(crate) fn is_doubled(&self, cpu: usize) -> bool {
        let cpus = &self.domains.all[self.domains.core[cpu] as usize].cpus;
        self.doubled.most(&(cpus.start..cpus.start + 1)) > 0
    }

    /// Updates the trees for a CPU.
    fn note(&mut self, cpu: usize) {
        let seat = &self.cpus[cpu];
        // A thread that waits on a CPU where no thread runs is about to run.
        let waiting = if seat.current == NO_TASK { 0 } else { seat.movable };
        let free = seat.usable && seat.current == NO_TASK && seat.queue.is_empty();
        self.waiting.set(cpu, waiting);
        self.idle.set(cpu, u32::from(free));
        if self.smt {
            let core = self.domains.core[cpu] as usize;
            let cpus = self.domains.all[core].cpus.clone();
            let first = cpus.start;
            let (mut all, mut running) = (true, 0);
            for seat in &self.cpus[cpus] {
                all &= seat.usable && seat.current == NO_TASK && seat.queue.is_empty();
                running += u32::from(seat.current != NO_TASK);
            }
            self.cores.set(first, u32::from(all));
            self.doubled.set(first, u32::from(running > 1));
        } else {
            self.cores.set(cpu, u32::from(free));
        }
    }
}
