//! Fair schedulers: threads of one run queue share by virtual time, which is run time over weight.
//!
//! There are two orders. *Least* (2.6.23 to 6.5): the thread with the least virtual time runs; a
//! slice is the latency over the number of threads, checked when the timer ticks; a woken thread
//! that is far behind preempts. *Deadline* (since 6.6): of the threads that have had no more than
//! the mean, the one with the earliest end of its request runs; a request is the base slice,
//! checked when the timer ticks; a woken thread keeps its lag from before it slept, and preempts
//! only a thread that has had its request.
//!
//! Yield. A thread that waits by yielding is *passive*. A true yield (`Posix`) gives the thread's
//! request up at each call, so the thread runs for a moment per tick next to one that computes.
//! After a yield as a hint, the thread is called again until its virtual time has caught up, which
//! is half of the CPU. Passive threads among themselves would take turns in each microsecond; here
//! one polls for all until the tick.
//!
//! Sources: kernel/sched/fair.c of 2.6.28, 6.1, 6.12, 6.18 (place_entity, check_preempt_tick,
//! wakeup_preempt_entity, pick_eevdf, update_deadline, yield_task_fair); commit 79104becf42b for
//! yield.

use super::load_balance::{BalanceRule, LoadBalance};
use super::{JoinReason, Scheduler, Seats, wake_placement};
use crate::kernel::{Kernel, QueueOrder, Yielding};

/// Fair scheduler with a rule for balancing between run queues.
#[derive(Clone, Debug)]
pub(crate) struct Fair {
    order: QueueOrder,
    slice: i64,
    latency: i64,
    wakeup: i64,
    yielding: Yielding,
    /// Thread that yielded as a hint and is passed over once (`cfs_rq->skip`).
    skip: Option<usize>,
    load_balance: LoadBalance,
}

impl Fair {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats, spread: BalanceRule) -> Self {
        Self {
            order: kernel.order,
            slice: kernel.slice.0.max(1) as i64,
            latency: kernel.latency.0 as i64,
            wakeup: kernel.wakeup.0 as i64,
            yielding: kernel.yielding,
            skip: None,
            load_balance: LoadBalance::new(kernel, seats, spread),
        }
    }

    /// Returns all threads of a CPU: those that wait, and the one that runs.
    fn members(seats: &Seats, cpu: usize) -> impl Iterator<Item = usize> + '_ {
        let seat = &seats.cpus[cpu];
        seat.queue.iter().map(|&task| task as usize).chain(seats.current(cpu))
    }

    /// Returns the weighted mean of the virtual times; the lowest so far if the CPU has no thread.
    fn mean(seats: &Seats, cpu: usize) -> i64 {
        let least = seats.cpus[cpu].least;
        // Distances from the lowest are milliseconds to seconds, so their weighted sum is far below
        // the limit of 64 bits.
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for task in Self::members(seats, cpu) {
            let weight = seats.weight(task);
            sum = sum.saturating_add(weight.saturating_mul(seats.tasks[task].vruntime - least));
            weights += weight;
        }
        if weights == 0 { least } else { least + sum.div_euclid(weights) }
    }

    fn virtual_slice(&self, seats: &Seats, task: usize) -> i64 {
        self.slice * 1024 / seats.weight(task)
    }

    /// Returns the time that the running thread may run at a time under `QueueOrder::Least`, ns:
    /// its part of the latency.
    fn part(&self, seats: &Seats, cpu: usize) -> i64 {
        let Some(task) = seats.current(cpu) else { return self.slice };
        let threads = seats.load(cpu) as i64;
        let period = self.latency.max(self.slice * threads);
        let all: i64 = Self::members(seats, cpu).map(|task| seats.weight(task)).sum();
        (period * seats.weight(task) / all.max(1)).max(1)
    }

    fn least_waiting(seats: &Seats, cpu: usize) -> Option<i64> {
        seats.cpus[cpu].queue.iter().map(|&task| seats.tasks[task as usize].vruntime).min()
    }

    fn renew(&self, seats: &mut Seats, cpu: usize) {
        if let Some(least) = Self::members(seats, cpu).map(|task| seats.tasks[task].vruntime).min() {
            let seat = &mut seats.cpus[cpu];
            seat.least = seat.least.max(least);
        }
    }

    /// Returns the place in the queue of the best thread, or `None` if the running thread is the
    /// best.
    fn best(&self, seats: &Seats, cpu: usize) -> Option<usize> {
        let current = seats.current(cpu);
        let key = |task: usize| &seats.tasks[task];
        let queue = &seats.cpus[cpu].queue;
        match self.order {
            QueueOrder::Least => {
                let skipped = |task: usize| self.skip == Some(task);
                let at = (0..queue.len()).min_by_key(|&at| {
                    let task = queue[at] as usize;
                    (skipped(task), key(task).passive && self.skip.is_some(), key(task).vruntime)
                })?;
                let waits = key(queue[at] as usize).vruntime;
                current.is_none_or(|task| waits < key(task).vruntime).then_some(at)
            }
            QueueOrder::Deadline => {
                // Eligible threads have had no more than the mean. The one with the least always
                // is.
                let mean = Self::mean(seats, cpu);
                let rank = |task: usize| {
                    let task = key(task);
                    (task.vruntime > mean, if task.vruntime > mean { task.vruntime } else { task.deadline })
                };
                let at = (0..queue.len()).min_by_key(|&at| rank(queue[at] as usize))?;
                let waits = rank(queue[at] as usize);
                current.is_none_or(|task| waits < rank(task)).then_some(at)
            }
        }
    }

    /// Returns whether a passive thread runs while others that compute wait.
    fn gives_way(seats: &Seats, cpu: usize) -> bool {
        seats.cpus[cpu].eager > 0 && seats.current(cpu).is_some_and(|task| seats.tasks[task].passive)
    }

    /// Returns how much longer a thread that yields as a hint runs before the others are let run,
    /// ns.
    fn catch_up(&self, seats: &Seats, cpu: usize) -> i64 {
        let Some(task) = seats.current(cpu) else { return 0 };
        let slack = if self.order == QueueOrder::Least { self.wakeup } else { 0 };
        let eager = seats.cpus[cpu].queue.iter().map(|&task| &seats.tasks[task as usize]);
        let second = eager.filter(|task| !task.passive).map(|task| task.vruntime).min();
        let behind = second.map_or(0, |second| second - slack - seats.tasks[task].vruntime);
        behind.max(0) * seats.weight(task) / 1024
    }
}

impl Scheduler for Fair {
    fn fork(&mut self, seats: &mut Seats, task: usize) -> usize {
        match self.load_balance.spread {
            BalanceRule::Nothing => wake_placement::round_robin(seats, task),
            _ => wake_placement::fork(seats, task),
        }
    }

    fn wake(&mut self, seats: &mut Seats, task: usize, waker: Option<usize>) -> usize {
        match self.load_balance.spread {
            BalanceRule::Nothing => wake_placement::stay(seats, task),
            _ => wake_placement::wake(seats, task, waker),
        }
    }

    fn joins(&mut self, seats: &mut Seats, task: usize, cpu: usize, why: JoinReason) {
        let slice = self.virtual_slice(seats, task);
        let from = seats.tasks[task].cpu as usize;
        let (least, least_there) = (seats.cpus[cpu].least, seats.cpus[from].least);
        match self.order {
            QueueOrder::Least => {
                let seat = &mut seats.tasks[task];
                // Virtual times of two queues can be compared only relative to each queue's lowest.
                let own = seat.vruntime - least_there + least;
                seat.vruntime = match why {
                    // START_DEBIT: a new thread has had its slice.
                    JoinReason::New => least + slice,
                    // GENTLE_FAIR_SLEEPERS: half a latency of credit for a thread that slept.
                    JoinReason::Woken => own.max(least - self.latency / 2),
                    JoinReason::Moved => own,
                };
            }
            QueueOrder::Deadline => {
                let mean = Self::mean(seats, cpu);
                let seat = &mut seats.tasks[task];
                let left = (seat.deadline - seat.vruntime).clamp(0, slice);
                seat.vruntime = if why == JoinReason::New { mean } else { mean - seat.lag };
                seat.deadline = seat.vruntime
                    + match why {
                        JoinReason::New => slice / 2, // PLACE_DEADLINE_INITIAL
                        JoinReason::Woken => slice,
                        JoinReason::Moved => left, // PLACE_REL_DEADLINE
                    };
            }
        }
    }

    fn leaves(&mut self, seats: &mut Seats, task: usize, cpu: usize) {
        if self.order == QueueOrder::Deadline {
            // The mean including the thread that leaves; the thread is in no queue any more.
            let (mean, own) = (Self::mean(seats, cpu), seats.tasks[task].vruntime);
            let rest: i64 = Self::members(seats, cpu).map(|task| seats.weight(task)).sum();
            let weight = seats.weight(task);
            let mean = if rest == 0 { own } else { mean + (own - mean) * weight / (rest + weight) };
            // update_entity_lag: twice the slice, or a tick.
            let limit = (2 * self.slice).max(seats.tick as i64) * 1024 / weight;
            seats.tasks[task].lag = (mean - own).clamp(-limit, limit);
        }
        self.renew(seats, cpu);
    }

    fn ran(&mut self, seats: &mut Seats, task: usize, cpu: usize, span: u64) {
        let weight = seats.weight(task);
        let seat = &mut seats.tasks[task];
        seat.vruntime += span as i64 * 1024 / weight;
        seat.slice += span;
        self.renew(seats, cpu);
    }

    fn pick(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> Option<usize> {
        let at = self.best(seats, cpu);
        self.skip = None;
        let at = at?;
        let task = seats.cpus[cpu].queue[at] as usize;
        if self.order == QueueOrder::Deadline && seats.tasks[task].vruntime >= seats.tasks[task].deadline {
            seats.tasks[task].deadline = seats.tasks[task].vruntime + self.virtual_slice(seats, task);
        }
        Some(at)
    }

    fn until(&self, seats: &Seats, now: u64, cpu: usize) -> u64 {
        let Some(task) = seats.current(cpu) else { return u64::MAX };
        if seats.cpus[cpu].queue.is_empty() {
            return u64::MAX;
        }
        if Self::gives_way(seats, cpu) {
            let more = match self.yielding {
                Yielding::Posix => 0,
                Yielding::Hint => self.catch_up(seats, cpu) as u64,
            };
            return now + seats.call.max(more);
        }
        let seat = &seats.tasks[task];
        let left = match self.order {
            QueueOrder::Deadline => (seat.deadline - seat.vruntime) * seats.weight(task) / 1024,
            QueueOrder::Least => {
                let (part, ran) = (self.part(seats, cpu), seat.slice as i64);
                let behind = Self::least_waiting(seats, cpu).map_or(0, |least| seat.vruntime - least);
                // check_preempt_tick: the slice is over, or the thread is a whole slice ahead.
                (self.slice - ran).max((part - ran).min(part - behind))
            }
        };
        seats.tick_after(now + left.max(1) as u64 - 1)
    }

    fn expired(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> bool {
        let Some(task) = seats.current(cpu) else { return false };
        let slice = self.virtual_slice(seats, task);
        if Self::gives_way(seats, cpu) {
            match (self.yielding, self.order) {
                (Yielding::Posix, QueueOrder::Deadline) => {
                    let mean = Self::mean(seats, cpu);
                    let seat = &mut seats.tasks[task];
                    if seat.vruntime <= mean {
                        seat.vruntime = seat.vruntime.max(seat.deadline);
                        seat.deadline = seat.vruntime + slice;
                    }
                    return self.best(seats, cpu).is_some();
                }
                (Yielding::Posix, QueueOrder::Least) => {
                    // sched_compat_yield: behind the last.
                    let last = seats.cpus[cpu].queue.iter().map(|&task| seats.tasks[task as usize].vruntime);
                    let last = last.max().unwrap_or(0);
                    let seat = &mut seats.tasks[task];
                    seat.vruntime = seat.vruntime.max(last + 1);
                    return true;
                }
                (Yielding::Hint, _) => {
                    let gives = self.catch_up(seats, cpu) == 0;
                    self.skip = gives.then_some(task);
                    return gives;
                }
            }
        }
        if self.order == QueueOrder::Deadline {
            let seat = &mut seats.tasks[task];
            if seat.vruntime < seat.deadline {
                return false;
            }
            seat.deadline = seat.vruntime + slice;
        }
        self.best(seats, cpu).is_some()
    }

    fn preempts(&mut self, seats: &mut Seats, task: usize, cpu: usize) -> bool {
        let Some(running) = seats.current(cpu) else { return true };
        let (new, old) = (&seats.tasks[task], &seats.tasks[running]);
        match self.order {
            QueueOrder::Least => old.vruntime - new.vruntime > self.wakeup * 1024 / seats.weight(task),
            // RUN_TO_PARITY: the running thread keeps the CPU until it has had its request.
            QueueOrder::Deadline => {
                old.vruntime >= old.deadline
                    && new.vruntime <= Self::mean(seats, cpu)
                    && new.deadline < old.vruntime + self.virtual_slice(seats, running)
            }
        }
    }

    fn changed(&mut self, seats: &Seats, cpu: usize) {
        self.load_balance.changed(seats, cpu);
    }

    fn pull(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> Option<usize> {
        self.load_balance.pull(seats, now, cpu)
    }

    fn balance(&mut self, seats: &mut Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64 {
        self.load_balance.balance(seats, now, cpu, pulled)
    }
}
