//! Credit scheduler for virtual CPUs, as in Xen's first credit scheduler.
//!
//! Every 30 ms each runnable virtual CPU is given its part of that time by weight; at each tick, a
//! running virtual CPU is charged for the time that it took. A virtual CPU with credit left is
//! *under*, else *over*; one that wakes while under is *boosted* until its next tick. A CPU runs
//! the best of its run queue for a slice. If the best of its queue is worse than one that waits
//! elsewhere, the CPU steals the latter. If a virtual CPU waits, all idle CPUs are notified, and
//! the first of them takes it: any of them, near or far, which is drawn at random here. So a
//! virtual CPU that is preempted briefly may resume on any CPU.
//!
//! At each tick, a running virtual CPU goes to another socket if more cores are idle there than
//! would be idle here without it. Sockets are LLC domains here.
//!
//! Source: xen/common/sched_credit.c of Xen 4.0 (csched_acct, csched_cpu_pick, csched_vcpu_acct,
//! csched_schedule, csched_load_balance, csched_runq_steal, __runq_tickle).

use super::tree::Tree;
use super::wake_placement;
use super::{JoinReason, Scheduler, Seats, TaskState};
use crate::kernel::Kernel;
use std::collections::BTreeMap;

/// Ticks between two accountings.
const ACCOUNTING_TICKS: u64 = 3;

/// Highest number of CPUs that are tried when masks exclude threads.
const CPU_TRIES_MAX: usize = 32;

/// Credit scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    slice: u64,
    /// Whether virtual CPUs spread over sockets ([`Kernel::spread`]).
    spread: bool,
    /// By CPU, the best priority of a movable waiting thread: 3 boosted, 2 under, 1 over.
    best: Tree,
    /// Threads that want a CPU at accounting.
    active: Vec<u32>,
}

fn priority(seats: &Seats, task: usize) -> u32 {
    let task = &seats.tasks[task];
    if task.boosted && task.credit >= 0 {
        3
    } else if task.credit >= 0 {
        2
    } else {
        1
    }
}

impl Credit {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats) -> Self {
        Self {
            slice: kernel.slice.0.max(1),
            spread: kernel.spread,
            best: Tree::new(seats.cpus.len()),
            active: Vec::new(),
        }
    }

    fn note(&mut self, seats: &Seats, cpu: usize) {
        let runs = seats.current(cpu).is_some();
        let movable = seats.cpus[cpu].queue.iter().map(|&task| task as usize);
        let best = movable.filter(|&task| !seats.tasks[task].single).map(|task| priority(seats, task)).max();
        self.best.set(cpu, best.filter(|_| runs).unwrap_or(0));
    }

    fn first(seats: &Seats, cpu: usize, can: impl Fn(usize) -> bool) -> Option<usize> {
        let queue = &seats.cpus[cpu].queue;
        let places = (0..queue.len()).filter(|&at| can(queue[at] as usize));
        places.min_by_key(|&at| {
            let task = queue[at] as usize;
            // A thread that waits by yielding comes after those that compute.
            let seat = &seats.tasks[task];
            (seat.passive, std::cmp::Reverse(priority(seats, task)), seat.since, task)
        })
    }

    /// Returns a thread that waits elsewhere with a priority higher than this.
    fn better(&self, seats: &Seats, cpu: usize, than: u32) -> Option<usize> {
        if self.best.top() <= than {
            return None;
        }
        seats.domains.up(cpu).find_map(|at| {
            let cpus = &seats.domains.all[at as usize].cpus;
            let can = |task: usize| priority(seats, task) > than && seats.allowed(task, cpu);
            // If masks exclude the first ones, the next ones.
            self.best.each(cpus, cpu, than + 1).take(CPU_TRIES_MAX).find_map(|from| {
                let at = Self::first(seats, from, can)?;
                Some(seats.cpus[from].queue[at] as usize)
            })
        })
    }
}

impl Scheduler for Credit {
    fn wake(&mut self, seats: &mut Seats, task: usize, _waker: Option<usize>) -> usize {
        // A boosted thread preempts the thread that runs there; idle CPUs are then called and steal
        // a waiting one.
        wake_placement::stay(seats, task)
    }

    fn joins(&mut self, seats: &mut Seats, task: usize, _cpu: usize, why: JoinReason) {
        let seat = &mut seats.tasks[task];
        seat.boosted |= why == JoinReason::Woken && seat.credit >= 0;
    }

    fn calls(&self) -> bool {
        true
    }

    fn leaves(&mut self, _seats: &mut Seats, _task: usize, _cpu: usize) {}

    fn changed(&mut self, seats: &Seats, cpu: usize) {
        self.note(seats, cpu);
    }

    fn ran(&mut self, seats: &mut Seats, task: usize, _cpu: usize, span: u64) {
        let seat = &mut seats.tasks[task];
        seat.credit -= span as i64;
        seat.slice += span;
        if seat.slice >= seats.tick {
            seat.boosted = false;
        }
    }

    fn pick(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> Option<usize> {
        let at = Self::first(seats, cpu, |_| true)?;
        let own = priority(seats, seats.cpus[cpu].queue[at] as usize);
        // csched_load_balance: only a CPU with a thread that is over searches elsewhere.
        if own < 2 && self.better(seats, cpu, own).is_some() {
            return None;
        }
        Some(at)
    }

    fn until(&self, seats: &Seats, now: u64, cpu: usize) -> u64 {
        let Some(task) = seats.current(cpu) else { return u64::MAX };
        if seats.tasks[task].passive && seats.cpus[cpu].eager > 0 {
            return now + seats.call;
        }
        seats.tick_after(now + self.slice.saturating_sub(seats.tasks[task].slice).max(1) - 1)
    }

    fn expired(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> bool {
        let Some(task) = seats.current(cpu) else { return false };
        // The thread goes to the tail of its priority.
        let yields = seats.tasks[task].passive && seats.cpus[cpu].eager > 0;
        if yields {
            seats.tasks[task].boosted = false;
        }
        let own = priority(seats, task);
        seats.tasks[task].since = now;
        let here =
            seats.cpus[cpu].queue.iter().any(|&other| yields || priority(seats, other as usize) >= own);
        let other = here || (own < 2 && self.better(seats, cpu, own).is_some());
        if !other {
            seats.tasks[task].slice = 0;
        }
        other
    }

    fn preempts(&mut self, seats: &mut Seats, task: usize, cpu: usize) -> bool {
        let new = priority(seats, task);
        seats
            .current(cpu)
            .is_none_or(|running| new > priority(seats, running) || seats.tasks[running].passive)
    }

    fn pull(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> Option<usize> {
        let own = seats.cpus[cpu].queue.iter().map(|&task| priority(seats, task as usize)).max().unwrap_or(0);
        self.better(seats, cpu, own)
    }

    fn balance(&mut self, seats: &mut Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64 {
        if seats.load(cpu) == 0 {
            pulled.extend(self.pull(seats, now, cpu));
            return seats.tick_after(now);
        }
        if self.spread { seats.tick_after(now) } else { u64::MAX }
    }

    fn better_cpu(&self, seats: &Seats, cpu: usize) -> Option<usize> {
        let task = seats.current(cpu).filter(|&task| self.spread && !seats.tasks[task].single)?;
        let socket = |cpu: usize| seats.domains.cache[cpu];
        let rests = |&cpu: &usize| seats.cpus[cpu].usable && seats.load(cpu) == 0;
        let mut idle: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        // By socket: the number of idle CPUs, and the first of them on which this thread may run.
        for other in (0..seats.cpus.len()).filter(rests) {
            let first = if seats.allowed(task, other) { other } else { usize::MAX };
            let (count, best) = idle.entry(socket(other)).or_insert((0, usize::MAX));
            *count += 1;
            *best = first.min(*best);
        }
        // The thread's own core would be idle without it.
        let here = idle.get(&socket(cpu)).map_or(0, |(count, _)| *count) + 1;
        let there = idle
            .iter()
            .filter(|&(at, &(count, first))| *at != socket(cpu) && count > here && first < usize::MAX);
        there.max_by_key(|&(at, &(count, _))| (count, std::cmp::Reverse(*at))).map(|(_, &(_, first))| first)
    }

    fn everywhere(&mut self, seats: &mut Seats, now: u64) -> u64 {
        let period = ACCOUNTING_TICKS * seats.tick;
        self.active.clear();
        let wants = |task: &super::Task| task.state != TaskState::Off;
        let weights: u64 =
            seats.tasks.iter().filter(|task| wants(task)).map(|task| u64::from(task.weight)).sum();
        let usable = seats.cpus.iter().filter(|cpu| cpu.usable).count() as u64;
        let all = period * usable;
        for task in &mut seats.tasks {
            if wants(task) && weights > 0 {
                let fair = u128::from(all) * u128::from(task.weight) / u128::from(weights);
                // No thread saves more than a slice, or owes more than one.
                let fair = i64::try_from(fair).unwrap_or(i64::MAX).min(period as i64);
                task.credit = (task.credit + fair).clamp(-(self.slice as i64), self.slice as i64);
            }
        }
        for cpu in 0..seats.cpus.len() {
            self.note(seats, cpu);
        }
        now + period
    }
}
