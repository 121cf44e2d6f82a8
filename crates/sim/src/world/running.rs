//! Threads on and off CPUs.

use super::timeline::Slot;
use super::{Phase, World};
use crate::progress::Progress;
use crate::sched::{JoinReason, TaskState};
use trimtab_core::ids::{Id, Pu};
use trimtab_core::time::Moment;

/// Work below this share of a nanosecond's work counts as none.
const WORK_GRAIN_NS: f64 = 0.5;

/// Limit of the back-off of an idle CPU: a CPU that finds no thread to pull searches again at most
/// this many doublings of a tick later. Kernels search at each tick. Threads with a barrier every
/// millisecond wait in the run queue only occasionally, and few searches would miss them.
const BACKOFF_DOUBLINGS_MAX: u8 = 2;

/// Highest number of idle CPUs that are checked for whether they may take a waiting thread.
const KICKS_MAX: usize = 16;

/// Highest number of pulls in a search for a thread to run, before the first of the queue is taken.
const PULLS_MAX: usize = 4;

impl<P: Progress> World<P> {
    /// Accounts the time that a CPU's thread ran since the last accounting.
    pub(super) fn settle(&mut self, cpu: usize) {
        let span = self.timeline.now() - self.clocks.since(cpu);
        let Some(at) = self.seats.current(cpu).filter(|_| span > 0) else { return };
        self.clocks.account(cpu, self.timeline.now());
        let thread = &mut self.roster[at];
        thread.run += span;
        let spent = thread.debt.min(span as f64);
        thread.debt -= spent;
        let rest = span as f64 - spent;
        match thread.phase {
            Phase::Computes => {
                thread.left -= rest * thread.rate;
                thread.done += rest * thread.rate;
            }
            Phase::Polls => thread.left -= rest,
            Phase::Sleeps | Phase::Over => {}
        }
        self.scheduler.ran(&mut self.seats, at, cpu, span);
    }

    /// Handles a CPU's planned event: its thread's phase is over, or the scheduler checks the
    /// thread.
    pub(super) fn check_cpu(&mut self, cpu: usize) {
        self.settle(cpu);
        let Some(at) = self.seats.current(cpu) else { return };
        let thread = &self.roster[at];
        if thread.debt <= 0.0 && thread.left < WORK_GRAIN_NS * thread.rate {
            let due = self.timeline.now() >= self.clocks.until(cpu);
            self.phase_over(at, cpu);
            // If a phase ends with the slice, the other threads must not wait for the end of
            // another slice.
            if due
                && self.seats.current(cpu) == Some(at)
                && self.scheduler.expired(&mut self.seats, self.timeline.now(), cpu)
            {
                self.rotate(cpu);
            }
            return;
        }
        if self.timeline.now() >= self.clocks.until(cpu)
            && self.scheduler.expired(&mut self.seats, self.timeline.now(), cpu)
        {
            self.rotate(cpu);
        } else {
            self.arm(cpu);
        }
    }

    /// Puts the running thread back into the queue, and runs the best one.
    pub(super) fn rotate(&mut self, cpu: usize) {
        if let Some(at) = self.unseat(cpu) {
            self.seats.push(at, cpu, self.timeline.now());
        }
        self.switch_in(cpu);
    }

    /// Takes the running thread off its CPU; the thread is then in no queue.
    pub(super) fn unseat(&mut self, cpu: usize) -> Option<usize> {
        self.settle(cpu);
        let at = self.seats.unseat(cpu, self.timeline.now())?;
        let thread = &self.roster[at];
        if thread.stalls && thread.phase == Phase::Computes {
            self.memory.off_cpu(Moment(self.timeline.now()), at);
            self.plan_epoch();
        }
        Some(at)
    }

    /// Puts the best thread on a CPU where no thread runs.
    pub(super) fn switch_in(&mut self, cpu: usize) {
        let mut best = None;
        for _ in 0..PULLS_MAX {
            best = self.scheduler.pick(&mut self.seats, self.timeline.now(), cpu);
            if best.is_some() || !self.seats.cpus[cpu].usable {
                break;
            }
            self.scheduler.changed(&self.seats, cpu);
            let Some(task) = self.scheduler.pull(&mut self.seats, self.timeline.now(), cpu) else { break };
            self.relocate(task, cpu);
        }
        let first = (!self.seats.cpus[cpu].queue.is_empty()).then_some(0);
        let Some(place) = best.or(first) else {
            self.rest(cpu);
            return;
        };
        let at = self.seats.seat(place, cpu, self.timeline.now());
        self.counters.switches += 1;
        let thread = &mut self.roster[at];
        thread.wait += self.timeline.now() - self.seats.tasks[at].since;
        thread.slices += 1;
        if self.clocks.begin(cpu, at, self.timeline.now()) {
            thread.debt += self.hardware.model().switching.switch.0 as f64;
        }
        if thread.ran_on != cpu as u32 {
            if thread.ran_on != u32::MAX {
                thread.moves += 1;
                self.counters.moves += 1;
                thread.debt += self.hardware.model().switching.migrate.0 as f64;
            }
            thread.ran_on = cpu as u32;
        }
        let computes = thread.phase == Phase::Computes;
        if computes {
            self.computes(at, cpu);
        }
        self.occupy(cpu, true);
        self.rate(at, cpu);
        self.arm(cpu);
    }

    /// Tells the memory model that a thread computes on a CPU.
    pub(super) fn computes(&mut self, at: usize, cpu: usize) {
        if self.roster[at].stalls {
            self.memory.on_cpu(Moment(self.timeline.now()), at, Pu::from_index(cpu));
            self.plan_epoch();
        }
    }

    /// Makes a CPU idle that has no thread to run.
    fn rest(&mut self, cpu: usize) {
        self.timeline.cancel(Slot::Cpu(cpu));
        self.occupy(cpu, false);
        self.seats.rests(cpu, self.timeline.now());
        self.scheduler.changed(&self.seats, cpu);
        if self.wanted_elsewhere() && self.seats.cpus[cpu].usable {
            self.plan_balance(cpu, self.seats.tick_after(self.timeline.now()));
        }
    }

    /// Returns whether an idle CPU could take a thread.
    fn wanted_elsewhere(&self) -> bool {
        self.seats.waiting.top() > 0 || (self.seats.doubled.top() > 0 && self.seats.cores.top() > 0)
    }

    fn plan_balance(&mut self, cpu: usize, at: u64) {
        let slot = Slot::Balance(cpu);
        if self.timeline.planned(slot).is_none_or(|planned| planned > at) {
            self.timeline.plan(slot, at);
        }
    }

    /// Plans a CPU's next event. Its thread's time must be accounted.
    pub(super) fn arm(&mut self, cpu: usize) {
        self.scheduler.changed(&self.seats, cpu);
        let Some(at) = self.seats.current(cpu) else { return };
        let until = self.scheduler.until(&self.seats, self.timeline.now(), cpu);
        self.clocks.set_until(cpu, until);
        let thread = &self.roster[at];
        let rate = if thread.phase == Phase::Computes { thread.rate } else { 1.0 };
        let end = thread.debt + thread.left.max(0.0) / rate;
        // A time beyond the range of the clock means never.
        let end = if end < 1e18 { self.timeline.now() + end.ceil() as u64 } else { u64::MAX };
        let next = until.min(end);
        if next == u64::MAX {
            self.timeline.cancel(Slot::Cpu(cpu));
        } else if next == self.timeline.now() || self.timeline.planned(Slot::Cpu(cpu)) != Some(next) {
            // The event planned for now may be the one that is being carried out.
            self.timeline.plan(Slot::Cpu(cpu), next);
        }
        if self.cpus() > 1 {
            if self.timeline.planned(Slot::Balance(cpu)).is_none() {
                self.timeline.plan(Slot::Balance(cpu), self.seats.tick_after(self.timeline.now()));
            }
            self.kick(cpu);
        }
    }

    /// Plans a search of an idle CPU at the next tick, if a thread waits here or the core runs
    /// several threads while a CPU or core is idle (`nohz_balancer_kick`).
    fn kick(&mut self, cpu: usize) {
        if self.scheduler.calls() {
            self.call(cpu);
            return;
        }
        let seats = &self.seats;
        let domains = &seats.domains;
        let near = if seats.cpus[cpu].movable > 0 && seats.idle.top() > 0 {
            let queue = &seats.cpus[cpu].queue;
            // The first idle CPU can take a thread unless masks forbid it.
            let helps = |&idle: &usize| queue.iter().any(|&task| seats.allowed(task as usize, idle));
            domains.up(cpu).find_map(|at| {
                seats.idle.each(&domains.all[at as usize].cpus, cpu, 1).take(KICKS_MAX).find(helps)
            })
        } else if seats.doubled.top() > 0 && seats.cores.top() > 0 && seats.is_doubled(cpu) {
            domains.up(cpu).find_map(|at| seats.cores.around(&domains.all[at as usize].cpus, cpu, 1))
        } else {
            None
        };
        let Some(idle) = near else { return };
        if self.clocks.failed_pulls(idle) == 0 {
            self.plan_balance(idle, self.seats.tick_after(self.timeline.now()));
        } else if self.timeline.planned(Slot::Balance(idle)).is_none() {
            // The idle CPU gave up when no movable thread waited, and now one does.
            let later = self.timeline.now() + (self.seats.tick << self.clocks.failed_pulls(idle));
            self.plan_balance(idle, self.seats.tick_at(later));
        }
    }

    /// Calls an idle CPU if a thread waits here: one that could take the thread, drawn at random,
    /// searches at once.
    fn call(&mut self, cpu: usize) {
        let seats = &self.seats;
        if seats.cpus[cpu].movable == 0 || seats.idle.top() == 0 {
            return;
        }
        let queue = &seats.cpus[cpu].queue;
        let helps = |&idle: &usize| {
            seats.cpus[idle].usable
                && seats.current(idle).is_none()
                && queue
                    .iter()
                    .any(|&task| !seats.tasks[task as usize].single && seats.allowed(task as usize, idle))
        };
        let idle: Vec<usize> = (0..seats.cpus.len()).filter(helps).collect();
        if !idle.is_empty() {
            let first = idle[self.random.calls.below(idle.len() as u64) as usize];
            self.plan_balance(first, self.timeline.now());
        }
    }

    /// Accounts the time of a CPU's thread and plans its next event again.
    pub(super) fn rearm(&mut self, cpu: usize) {
        self.settle(cpu);
        self.arm(cpu);
    }

    /// Balances a CPU at a tick.
    pub(super) fn balance(&mut self, cpu: usize) {
        if !self.seats.cpus[cpu].usable {
            return;
        }
        self.settle(cpu);
        let mut pulled = std::mem::take(&mut self.buffers.pulled);
        pulled.clear();
        let mut next = self.scheduler.balance(&mut self.seats, self.timeline.now(), cpu, &mut pulled);
        for &task in &pulled {
            self.relocate(task, cpu);
            self.came(task, cpu);
        }
        if let Some((task, to)) = self.seats.current(cpu).zip(self.scheduler.better_cpu(&self.seats, cpu)) {
            self.relocate(task, to);
            self.came(task, to);
        }
        if self.seats.current(cpu).is_none() {
            if !self.wanted_elsewhere() {
                self.buffers.pulled = pulled;
                return;
            }
            let failed_pulls = self.clocks.failed_pulls(cpu);
            next = next.max(self.seats.tick_at(self.timeline.now() + (self.seats.tick << failed_pulls)));
            self.clocks.note_failed_pull(cpu, BACKOFF_DOUBLINGS_MAX);
        }
        self.buffers.pulled = pulled;
        self.timeline.plan(Slot::Balance(cpu), next);
    }

    /// Moves a thread that wants a CPU into another CPU's queue, and plans the next event of the
    /// CPU that it leaves.
    pub(super) fn relocate(&mut self, task: usize, to: usize) {
        let from = self.seats.tasks[task].cpu as usize;
        self.settle(to);
        let ran = self.seats.tasks[task].state == TaskState::Running;
        if ran {
            self.unseat(from);
        } else {
            self.settle(from);
            self.roster[task].wait += self.timeline.now() - self.seats.tasks[task].since;
            self.seats.take(task);
        }
        self.scheduler.leaves(&mut self.seats, task, from);
        self.scheduler.joins(&mut self.seats, task, to, JoinReason::Moved);
        // No cache near a moved thread holds its data.
        self.seats.tasks[task].last = 0;
        self.seats.push(task, to, self.timeline.now());
        if ran {
            self.switch_in(from);
        } else {
            self.arm(from);
        }
    }

    /// Handles a thread that has come to a CPU's queue.
    pub(super) fn came(&mut self, task: usize, cpu: usize) {
        if self.seats.tasks[task].state != TaskState::Queued || self.seats.tasks[task].cpu as usize != cpu {
            return;
        }
        if self.seats.current(cpu).is_none() {
            self.switch_in(cpu);
        } else {
            self.settle(cpu);
            if self.scheduler.preempts(&mut self.seats, task, cpu) {
                self.rotate(cpu);
            } else {
                self.arm(cpu);
            }
        }
    }

    /// Marks a CPU as busy or idle: the threads on its core's other hardware threads, and maybe on
    /// its package, change their speed.
    fn occupy(&mut self, cpu: usize, busy: bool) {
        let domain = self.seats.domains.core[cpu] as usize;
        let siblings = self.seats.domains.all[domain].cpus.clone();
        for other in self.hardware.occupy(cpu, busy, siblings) {
            self.rerate(other);
        }
    }

    /// Computes the rate at which a thread progresses on a CPU.
    fn rate(&mut self, at: usize, cpu: usize) {
        let stall = if self.roster[at].stalls { self.memory.rate(at) } else { 1.0 };
        let rate = self.hardware.speed(cpu) * stall;
        self.roster[at].rate = rate.max(1e-9);
    }

    /// Updates the rate of a CPU's thread.
    pub(super) fn rerate(&mut self, cpu: usize) {
        if let Some(at) = self.seats.current(cpu) {
            self.settle(cpu);
            self.rate(at, cpu);
            self.arm(cpu);
        }
    }
}
