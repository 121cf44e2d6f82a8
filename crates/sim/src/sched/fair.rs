//! Fair schedulers: threads of one queue share by virtual time, what a thread has had over its weight.
//!
//! Two orders. By *least* (2.6.23 to 6.5): who has had least runs; a slice is the latency over the number of threads, looked at when the
//! timer ticks; a woken thread that is far behind preempts. By *deadline* (since 6.6): of those who have had no more than the mean, the
//! one whose request ends first; a request is the base slice, looked at when the timer ticks; a woken thread keeps how far
//! it was behind when it slept, and preempts only who has had his request.
//!
//! Yield. A thread that waits by yielding is *passive*. Truly yielding (`Posix`), it gives its request up each time it is called,
//! and so runs a moment per tick beside one that computes. As a hint, it is called again until its virtual time has caught up, which is
//! half of the CPU. Among themselves, passive threads would take turns in each microsecond; here one polls for all until the tick.
//!
//! Sources: kernel/sched/fair.c of 2.6.28, 6.1, 6.12, 6.18 (place_entity, check_preempt_tick, wakeup_preempt_entity,
//! pick_eevdf, update_deadline, yield_task_fair); commit 79104becf42b for yield.

use super::load_balance::{LoadBalance, Spread};
use super::{Scheduler, Seats, Why, wake_placement};
use crate::kernel::{Kernel, Order, Yielding};

/// A fair scheduler with a way of spreading threads over queues.
#[derive(Clone, Debug)]
pub(crate) struct Fair {
    order: Order,
    slice: i64,
    latency: i64,
    wakeup: i64,
    yielding: Yielding,
    /// Who gave way as a hint and is passed over once (`cfs_rq->skip`).
    skip: Option<usize>,
    load_balance: LoadBalance,
}

impl Fair {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats, spread: Spread) -> Self {
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

    /// Everyone on a CPU: those who wait, and who runs.
    fn members(seats: &Seats, cpu: usize) -> impl Iterator<Item = usize> + '_ {
        let seat = &seats.cpus[cpu];
        seat.queue.iter().map(|&task| task as usize).chain(seats.current(cpu))
    }

    /// The mean virtual time, weighted; the least ever where nobody is.
    fn mean(seats: &Seats, cpu: usize) -> i64 {
        let least = seats.cpus[cpu].least;
        // Distances from the least are milliseconds to seconds: their weighted sum is far from the end of 64 bits.
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

    /// What a thread may run at a time, by least: its part of the latency.
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

    /// The best of the queue, and of who runs: a place in the queue, or nothing if who runs is the best.
    fn best(&self, seats: &Seats, cpu: usize) -> Option<usize> {
        let current = seats.current(cpu);
        let key = |task: usize| &seats.tasks[task];
        let queue = &seats.cpus[cpu].queue;
        match self.order {
            Order::Least => {
                let skipped = |task: usize| self.skip == Some(task);
                let at = (0..queue.len()).min_by_key(|&at| {
                    let task = queue[at] as usize;
                    (skipped(task), key(task).passive && self.skip.is_some(), key(task).vruntime)
                })?;
                let waits = key(queue[at] as usize).vruntime;
                current.is_none_or(|task| waits < key(task).vruntime).then_some(at)
            }
            Order::Deadline => {
                // Who may run: those that have not had more than the mean. The one with least always may.
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

    /// A passive thread runs beside others that compute.
    fn gives_way(seats: &Seats, cpu: usize) -> bool {
        seats.cpus[cpu].eager > 0 && seats.current(cpu).is_some_and(|task| seats.tasks[task].passive)
    }

    /// How much more a thread that yields as a hint runs until the others are let before it.
    fn catch_up(&self, seats: &Seats, cpu: usize) -> i64 {
        let Some(task) = seats.current(cpu) else { return 0 };
        let slack = if self.order == Order::Least { self.wakeup } else { 0 };
        let eager = seats.cpus[cpu].queue.iter().map(|&task| &seats.tasks[task as usize]);
        let second = eager.filter(|task| !task.passive).map(|task| task.vruntime).min();
        let behind = second.map_or(0, |second| second - slack - seats.tasks[task].vruntime);
        behind.max(0) * seats.weight(task) / 1024
    }
}

impl Scheduler for Fair {
    fn fork(&mut self, seats: &mut Seats, task: usize) -> usize {
        match self.load_balance.spread {
            Spread::Nothing => wake_placement::round_robin(seats, task),
            _ => wake_placement::fork(seats, task),
        }
    }

    fn wake(&mut self, seats: &mut Seats, task: usize, waker: Option<usize>) -> usize {
        match self.load_balance.spread {
            Spread::Nothing => wake_placement::stay(seats, task),
            _ => wake_placement::wake(seats, task, waker),
        }
    }

    fn joins(&mut self, seats: &mut Seats, task: usize, cpu: usize, why: Why) {
        let slice = self.virtual_slice(seats, task);
        let from = seats.tasks[task].cpu as usize;
        let (least, least_there) = (seats.cpus[cpu].least, seats.cpus[from].least);
        match self.order {
            Order::Least => {
                let seat = &mut seats.tasks[task];
                // Virtual times of two queues have nothing in common but their least.
                let own = seat.vruntime - least_there + least;
                seat.vruntime = match why {
                    // START_DEBIT: a new thread has had its slice.
                    Why::New => least + slice,
                    // GENTLE_FAIR_SLEEPERS: half a latency of credit for who slept.
                    Why::Woken => own.max(least - self.latency / 2),
                    Why::Moved => own,
                };
            }
            Order::Deadline => {
                let mean = Self::mean(seats, cpu);
                let seat = &mut seats.tasks[task];
                let left = (seat.deadline - seat.vruntime).clamp(0, slice);
                seat.vruntime = if why == Why::New { mean } else { mean - seat.lag };
                seat.deadline = seat.vruntime
                    + match why {
                        Why::New => slice / 2, // PLACE_DEADLINE_INITIAL
                        Why::Woken => slice,
                        Why::Moved => left, // PLACE_REL_DEADLINE
                    };
            }
        }
    }

    fn leaves(&mut self, seats: &mut Seats, task: usize, cpu: usize) {
        if self.order == Order::Deadline {
            // The mean with the thread that leaves; it is in no queue any more.
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
        if self.order == Order::Deadline && seats.tasks[task].vruntime >= seats.tasks[task].deadline {
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
            Order::Deadline => (seat.deadline - seat.vruntime) * seats.weight(task) / 1024,
            Order::Least => {
                let (part, ran) = (self.part(seats, cpu), seat.slice as i64);
                let behind = Self::least_waiting(seats, cpu).map_or(0, |least| seat.vruntime - least);
                // check_preempt_tick: its slice is over, or it is a whole slice ahead.
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
                (Yielding::Posix, Order::Deadline) => {
                    let mean = Self::mean(seats, cpu);
                    let seat = &mut seats.tasks[task];
                    if seat.vruntime <= mean {
                        seat.vruntime = seat.vruntime.max(seat.deadline);
                        seat.deadline = seat.vruntime + slice;
                    }
                    return self.best(seats, cpu).is_some();
                }
                (Yielding::Posix, Order::Least) => {
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
        if self.order == Order::Deadline {
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
            Order::Least => old.vruntime - new.vruntime > self.wakeup * 1024 / seats.weight(task),
            // RUN_TO_PARITY: who runs keeps the CPU until it has had its request.
            Order::Deadline => {
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
