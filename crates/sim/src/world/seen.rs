//! What can be seen of a world from outside.

use super::agenda::finite;
use super::{Phase, World};
use crate::progress::Progress;
use crate::sched::State;
use trimtab_core::counts::Counts;
use trimtab_core::ids::{Id, OsCpu, ThreadId};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// What a run has come to so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counters {
    /// Planned events carried out; what follows from them at once, as wake-ups do, is not counted.
    pub events: u64,
    /// How often a thread was put on a CPU.
    pub switches: u64,
    /// How often a thread ran on another CPU than before.
    pub moves: u64,
    /// Barriers that opened.
    pub barriers: u64,
    /// Sleeping threads woken.
    pub wakes: u64,
    /// Work done by threads that ended.
    pub done: f64,
    /// Work they were asked for.
    pub asked: f64,
    /// Time they were on CPUs.
    pub ran: Span,
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// On its CPU, getting on.
    Computing,
    /// On its CPU, waiting for others.
    Polling,
    /// Ready, and without a CPU.
    Queued,
    /// Not ready.
    Asleep,
    /// Ended.
    Over,
}

/// A thread, now.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadSeen {
    /// Its number, if policies may look after it.
    pub id: Option<ThreadId>,
    /// Its program, by the order in which programs were added.
    pub program: usize,
    /// Its place in the program.
    pub rank: u32,
    /// What it is doing.
    pub activity: Activity,
    /// Where it is, or was last.
    pub cpu: OsCpu,
    /// Where it may run.
    pub mask: CpuSet,
    /// Time on a CPU.
    pub run: Span,
    /// Time ready without one, what it waits now included.
    pub wait: Span,
    /// How often it was put on a CPU.
    pub slices: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// How often it ran on another CPU than before.
    pub moves: u64,
    /// Work done.
    pub done: f64,
    /// Work asked for so far.
    pub asked: f64,
    /// Work asked for and not done; infinite for who works for ever.
    pub left: f64,
}

/// A program, now.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramSeen {
    /// What it is called.
    pub name: String,
    /// When it started or is to start.
    pub start: Moment,
    /// When it ended.
    pub ended: Option<Moment>,
    /// Whether it ends by itself, as a hog does not.
    pub ends: bool,
    /// How many threads it has now.
    pub alive: u32,
    /// How many it has had.
    pub born: u32,
    /// Whether it was ended before its end.
    pub stopped: bool,
}

impl<P: Progress> World<P> {
    /// What the run has come to.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The programs, in the order in which they were added.
    pub fn programs(&self) -> impl Iterator<Item = ProgramSeen> + '_ {
        self.agenda.iter().map(|started| ProgramSeen {
            name: started.program.name.clone(),
            start: started.program.start,
            ended: started.ended.map(Moment),
            ends: finite(&started.program),
            alive: started.alive,
            born: started.born,
            stopped: started.stopped,
        })
    }

    /// How long a program took; `None` while it runs.
    pub fn makespan(&self, program: usize) -> Option<Span> {
        let started = self.agenda.get(program)?;
        Some(Moment(started.ended?).since(started.program.start))
    }

    /// All threads there have been, but for short processes whose number was used again.
    pub fn threads(&self) -> impl Iterator<Item = ThreadSeen> + '_ {
        (0..self.roster.len()).map(|at| self.thread(at))
    }

    /// A thread by its place.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn thread(&self, at: usize) -> ThreadSeen {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let cpu = task.cpu as usize;
        let going = match task.state {
            State::Running => self.timeline.now() - self.clocks.since(cpu),
            _ => 0,
        };
        let waiting = if task.state == State::Queued { self.timeline.now() - task.since } else { 0 };
        let activity = match (thread.phase, task.state) {
            (Phase::Over, _) => Activity::Over,
            (_, State::Off) => Activity::Asleep,
            (_, State::Queued) => Activity::Queued,
            (Phase::Computes, State::Running) => Activity::Computing,
            (_, State::Running) => Activity::Polling,
        };
        let worked = if activity == Activity::Computing {
            (going as f64 - thread.debt).max(0.0) * thread.rate
        } else {
            0.0
        };
        let mask = match &task.mask {
            Some(mask) => mask.iter().map(|pu| self.hardware.os(pu.index())).collect(),
            None => self.hardware.model().machine.cpus(),
        };
        ThreadSeen {
            id: thread.id.map(ThreadId),
            program: thread.program as usize,
            rank: thread.rank,
            activity,
            cpu: self.hardware.os(cpu),
            mask,
            run: Span(thread.run + going),
            wait: Span(thread.wait + waiting),
            slices: thread.slices,
            sleeps: thread.sleeps,
            moves: thread.moves,
            done: thread.done + worked,
            asked: thread.asked,
            left: if thread.phase == Phase::Computes { thread.left - worked } else { 0.0 },
        }
    }

    /// How long each CPU was busy, in the model's order.
    pub fn busy(&self) -> impl Iterator<Item = (OsCpu, Span)> + '_ {
        (0..self.cpus()).map(|cpu| {
            let going = if self.seats.current(cpu).is_some() {
                self.timeline.now() - self.clocks.since(cpu)
            } else {
                0
            };
            (self.hardware.os(cpu), Span(self.clocks.busy(cpu) + going))
        })
    }

    /// How many threads want a CPU, on each, in the model's order.
    pub fn loads(&self) -> impl Iterator<Item = (OsCpu, usize)> + '_ {
        (0..self.cpus()).map(|cpu| (self.hardware.os(cpu), self.seats.load(cpu)))
    }
}

/// What the kernel has counted of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) run: u64,
    pub(crate) wait: u64,
    pub(crate) slices: u64,
    pub(crate) sleeps: u64,
    pub(crate) cpu: OsCpu,
    pub(crate) single: bool,
    pub(crate) state: State,
}

impl<P: Progress> World<P> {
    /// How many threads that are looked after there have been.
    pub(crate) fn watched_count(&self) -> usize {
        self.roster.watched_count()
    }

    /// The numbers of those that ended, in order of their ends.
    pub(crate) fn ended_ids(&self) -> &[u32] {
        self.roster.ended()
    }

    /// A thread's program, its name, and where that lets the thread run.
    pub(crate) fn birth(&self, at: usize) -> (u32, String, CpuSet) {
        let thread = &self.roster[at];
        let home = match &thread.home {
            Some(home) => home.iter().map(|pu| self.hardware.os(pu.index())).collect(),
            None => self.hardware.model().machine.cpus(),
        };
        (thread.program, self.agenda[thread.program as usize].program.name.clone(), home)
    }

    /// What `/proc` would say: running time up to the last tick, waits that are over.
    pub(crate) fn counted(&self, at: usize) -> Counted {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let cpu = task.cpu as usize;
        let mut run = thread.run;
        if task.state == State::Running {
            // What was accounted for since the last tick is not counted yet; what runs unaccounted since before it, is.
            let next = self.seats.tick_after(self.timeline.now());
            let last = next.saturating_sub(self.seats.tick).min(self.timeline.now());
            run += last.saturating_sub(self.clocks.since(cpu));
        }
        Counted {
            run,
            wait: thread.wait,
            slices: thread.slices,
            sleeps: thread.sleeps,
            cpu: self.hardware.os(cpu),
            single: task.single,
            state: task.state,
        }
    }

    /// What hardware would have counted of a thread. The simulated core makes one cycle a nanosecond, and retires one instruction in each
    /// that it does not stall, polling included; requests to memory are the memory model's.
    pub(crate) fn hardware(&self, at: usize) -> Counts {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let going = match task.state {
            State::Running => self.timeline.now() - self.clocks.since(task.cpu as usize),
            _ => 0,
        };
        let run = thread.run + going;
        let counted = self.memory.counts(Moment(self.timeline.now()), at);
        let busy = (counted.waited_ns as u64).min(run);
        Counts {
            enabled: Span(run),
            running: Span(run),
            busy: Some(busy),
            requests: Some(counted.requests as u64),
            cycles: Some(run),
            instructions: Some(run - busy),
            llc_lookups: Some(counted.requests as u64),
            llc_misses: Some((counted.local + counted.remote) as u64),
            near: Some(counted.local as u64),
            far: Some(counted.remote as u64),
        }
    }
}
