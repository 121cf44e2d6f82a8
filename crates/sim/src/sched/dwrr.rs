//! Distributed weighted round robin: threads are at most one round apart.
//!
//! Time is divided into rounds. A thread may run for a round slice in each; then it waits for its
//! CPU's next round. If all threads of a CPU have had their slice, the CPU searches elsewhere for a
//! waiting thread whose round is not later than its own, and takes it; only if there is none does
//! it begin its next round. So a thread on a crowded CPU is pulled to a CPU that has finished its
//! round, and all threads get the same time per round.
//!
//! Properties: rounds of busy CPUs differ by at most one where masks permit; a thread's lag is
//! bounded by a constant. Threads of one round take turns at ticks.
//!
//! Source: Li, Baumberger, Hahn, "Efficient and Scalable Multiprocessor Fair Scheduling Using
//! Distributed Weighted Round-Robin", PPoPP 2009: round slices, round-active and round-expired
//! queues, round balancing.

use super::tree::Tree;
use super::{JoinReason, Scheduler, Seats, TaskState};
use crate::kernel::{Kernel, Yielding};

/// Base of a CPU's key in the tree of pullable threads: the earlier the round, the larger the key.
const KEY_BASE: u64 = u32::MAX as u64;

/// Highest number of CPUs that are tried when masks exclude threads.
const CPU_TRIES_MAX: usize = 32;

/// DWRR scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Dwrr {
    slice: u64,
    /// Time that threads of one round run at a time, ns.
    turn: u64,
    yielding: Yielding,
    rounds: Vec<u64>,
    /// Latest round of any CPU.
    latest: u64,
    /// By CPU, the key of the earliest round in which a movable thread waits with slice left.
    early: Tree,
}

impl Dwrr {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats) -> Self {
        Self {
            slice: kernel.slice.0.max(1),
            turn: seats.tick,
            yielding: kernel.yielding,
            rounds: vec![0; seats.cpus.len()],
            latest: 0,
            early: Tree::new(seats.cpus.len()),
        }
    }

    /// Returns the time that a thread may run in a round, ns.
    fn share(&self, seats: &Seats, task: usize) -> u64 {
        (self.slice * seats.weight(task) as u64 / 1024).max(1)
    }

    /// Advances the round of a thread that has used its slice.
    fn settle(&self, seats: &mut Seats, task: usize) {
        let share = self.share(seats, task);
        let seat = &mut seats.tasks[task];
        while seat.used >= share {
            seat.used -= share;
            seat.round += 1;
        }
    }

    fn note(&mut self, seats: &Seats, cpu: usize) {
        let waiting = seats.cpus[cpu].queue.iter().map(|&task| &seats.tasks[task as usize]);
        let earliest = waiting.filter(|task| !task.single && !task.passive).map(|task| task.round).min();
        let runs = seats.current(cpu).is_some();
        let key = earliest.filter(|_| runs).map_or(0, |round| KEY_BASE.saturating_sub(round).max(1) as u32);
        self.early.set(cpu, key);
    }

    /// Returns the thread of a CPU's queue in the earliest round, of these the longest waiting.
    fn first(seats: &Seats, cpu: usize, can: impl Fn(usize) -> bool) -> Option<usize> {
        let queue = &seats.cpus[cpu].queue;
        let places = (0..queue.len()).filter(|&at| can(queue[at] as usize));
        places.min_by_key(|&at| {
            let task = &seats.tasks[queue[at] as usize];
            // A thread that waits by yielding comes after those that compute.
            (task.passive, task.round, task.since, queue[at])
        })
    }

    /// Returns a waiting thread of another CPU in a round not later than this.
    fn behind(&self, seats: &Seats, cpu: usize, round: u64) -> Option<usize> {
        let least = KEY_BASE.saturating_sub(round).max(1) as u32;
        for at in seats.domains.up(cpu) {
            let cpus = &seats.domains.all[at as usize].cpus;
            let most = self.early.most(cpus);
            if most < least {
                continue;
            }
            let can = |task: usize| {
                let seat = &seats.tasks[task];
                !seat.passive && seat.round <= round && seats.allowed(task, cpu)
            };
            // The thread furthest behind comes first; if its mask excludes this CPU, others that
            // are behind.
            let most = self.early.around(cpus, cpu, most);
            let others = self.early.each(cpus, cpu, least).take(CPU_TRIES_MAX);
            let found = most.into_iter().chain(others).find_map(|from| {
                let at = Self::first(seats, from, can)?;
                Some(seats.cpus[from].queue[at] as usize)
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl Scheduler for Dwrr {
    fn joins(&mut self, seats: &mut Seats, task: usize, cpu: usize, why: JoinReason) {
        // An idle CPU joins the present round. A busy CPU finishes its own round first. Otherwise
        // its threads would have to catch up with rounds that short threads made pass elsewhere
        // before any new thread ran.
        let others = seats.cpus[cpu].queue.iter().any(|&other| other as usize != task);
        if !others && seats.current(cpu).is_none_or(|current| current == task) {
            self.rounds[cpu] = self.rounds[cpu].max(self.latest.saturating_sub(1));
        }
        // A new thread comes in the next round. Otherwise threads created one after the other, here
        // or elsewhere, would delay that round without end.
        let round = self.rounds[cpu] + u64::from(why == JoinReason::New);
        let seat = &mut seats.tasks[task];
        if why != JoinReason::Moved && seat.round < round {
            // A thread that slept through rounds does not get them back.
            (seat.round, seat.used) = (round, 0);
        }
        // Where many threads are created, rounds pass faster. A thread that comes from there must
        // not wait until the same rounds have passed here.
        seat.round = seat.round.min(self.rounds[cpu] + 1);
    }

    fn leaves(&mut self, _seats: &mut Seats, _task: usize, _cpu: usize) {}

    fn changed(&mut self, seats: &Seats, cpu: usize) {
        self.note(seats, cpu);
    }

    fn ran(&mut self, seats: &mut Seats, task: usize, _cpu: usize, span: u64) {
        let seat = &mut seats.tasks[task];
        seat.used += span;
        seat.slice += span;
    }

    fn pick(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> Option<usize> {
        for at in 0..seats.cpus[cpu].queue.len() {
            let task = seats.cpus[cpu].queue[at] as usize;
            self.settle(seats, task);
        }
        let at = Self::first(seats, cpu, |_| true)?;
        let next = seats.tasks[seats.cpus[cpu].queue[at] as usize].round;
        if next > self.rounds[cpu] {
            // All threads here have used their slices: threads elsewhere that have not go first.
            if self.behind(seats, cpu, self.rounds[cpu]).is_some() {
                return None;
            }
            self.rounds[cpu] = next;
            self.latest = self.latest.max(next);
        }
        Some(at)
    }

    fn until(&self, seats: &Seats, now: u64, cpu: usize) -> u64 {
        let Some(task) = seats.current(cpu) else { return u64::MAX };
        let seat = &seats.tasks[task];
        if seat.passive && seats.cpus[cpu].eager > 0 && self.yielding == Yielding::Posix {
            return now + seats.call;
        }
        let round = self.share(seats, task).saturating_sub(seat.used);
        let turn =
            if seats.cpus[cpu].queue.is_empty() { u64::MAX } else { self.turn.saturating_sub(seat.slice) };
        seats.tick_after(now + round.min(turn).max(1) - 1)
    }

    fn expired(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> bool {
        let Some(task) = seats.current(cpu) else { return false };
        self.settle(seats, task);
        if seats.tasks[task].passive && seats.cpus[cpu].eager > 0 {
            return true;
        }
        let round = seats.tasks[task].round;
        if round > self.rounds[cpu] {
            // Its slice is over: another thread of this CPU still has slice left, or one waits
            // elsewhere.
            return true;
        }
        seats.tasks[task].slice = 0;
        let queue = &seats.cpus[cpu].queue;
        queue.iter().any(|&other| {
            let other = &seats.tasks[other as usize];
            other.round <= round && !other.passive
        })
    }

    fn preempts(&mut self, seats: &mut Seats, task: usize, cpu: usize) -> bool {
        seats.current(cpu).is_none_or(|running| {
            seats.tasks[running].passive
                && !seats.tasks[task].passive
                && seats.tasks[task].state == TaskState::Queued
        })
    }

    fn pull(&mut self, seats: &mut Seats, _now: u64, cpu: usize) -> Option<usize> {
        if seats.cpus[cpu].queue.is_empty() {
            // The CPU is idle: take any waiting thread.
            let round = u64::from(u32::MAX);
            let task = self.behind(seats, cpu, round)?;
            self.rounds[cpu] = self.rounds[cpu].max(seats.tasks[task].round);
            return Some(task);
        }
        self.behind(seats, cpu, self.rounds[cpu])
    }

    fn balance(&mut self, seats: &mut Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64 {
        if seats.load(cpu) == 0 {
            pulled.extend(self.pull(seats, now, cpu));
            return seats.tick_after(now);
        }
        u64::MAX
    }
}
