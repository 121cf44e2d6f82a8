//! View of a world from outside.

use super::agenda::finite;
use super::{AddedProgram, Phase, World};
use crate::program::Body;
use crate::progress::Progress;
use crate::sched::TaskState;
use trimtab_core::counts::Counts;
use trimtab_core::ids::{Id, OsCpu, ThreadId};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Counts of a run so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RunCounters {
    /// Planned events carried out; immediate consequences, such as wake-ups, are not counted.
    pub events: u64,
    /// Number of times that a thread was put on a CPU.
    pub switches: u64,
    /// Number of times that a thread ran on another CPU than before.
    pub moves: u64,
    /// Barriers that opened.
    pub barriers: u64,
    /// Sleeping threads woken.
    pub wakes: u64,
    /// Work done by threads that ended.
    pub done: f64,
    /// Work that was asked of threads that ended.
    pub asked: f64,
    /// CPU time of threads that ended.
    pub ran: Span,
}

/// Activity of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// On its CPU, computing.
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

/// View of a thread, now.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadView {
    /// Number, if policies may balance the thread.
    pub id: Option<ThreadId>,
    /// Program, by the order in which programs were added.
    pub program: usize,
    /// Number within the program.
    pub rank: u32,
    /// Activity.
    pub activity: Activity,
    /// Present or last CPU.
    pub cpu: OsCpu,
    /// CPUs on which the thread may run.
    pub mask: CpuSet,
    /// Time on a CPU.
    pub run: Span,
    /// Time ready without a CPU, including the present wait.
    pub wait: Span,
    /// Number of times that the thread was put on a CPU.
    pub slices: u64,
    /// Number of times that the thread went to sleep.
    pub sleeps: u64,
    /// Number of times that the thread ran on another CPU than before.
    pub moves: u64,
    /// Work done.
    pub done: f64,
    /// Work asked for so far.
    pub asked: f64,
    /// Work asked for and not done; infinite for a thread that works without end.
    pub left: f64,
}

/// View of a program, now.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramView {
    /// Name.
    pub name: String,
    /// When the program started or is to start.
    pub start: Moment,
    /// When the program ended.
    pub ended: Option<Moment>,
    /// Whether the program ends by itself; a hog does not.
    pub ends: bool,
    /// Number of threads now.
    pub alive: u32,
    /// Number of threads so far.
    pub born: u32,
    /// Whether the program was stopped before its end.
    pub stopped: bool,
    /// Budget of its hold, while it runs in one.
    pub budget: Option<BudgetView>,
}

/// View of a process in the budget of its hold, now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetView {
    /// Number of the hold.
    pub hold: u32,
    /// Cores of the hold.
    pub cores: u32,
    /// Threads that the process asks for in each region.
    pub asked: u32,
    /// Threads of its team; 0 in a pause.
    pub size: u32,
    /// When its last team opened.
    pub opened: Moment,
    /// When it started, or its last pause ended.
    pub came: Moment,
    /// When another process last took it for one that waits while its team was open.
    pub passed_over: Moment,
}

impl<P: Progress> World<P> {
    /// Returns the counts of the run so far.
    pub fn counters(&self) -> RunCounters {
        self.counters
    }

    /// Returns the programs, in the order in which they were added.
    pub fn programs(&self) -> impl Iterator<Item = ProgramView> + '_ {
        self.agenda.iter().enumerate().map(|(at, started)| ProgramView {
            name: started.program.name.clone(),
            start: started.program.start,
            ended: started.ended.map(Moment),
            ends: finite(&started.program),
            alive: started.alive,
            born: started.born,
            stopped: started.stopped,
            budget: self.budget(at, started),
        })
    }

    fn budget(&self, at: usize, started: &AddedProgram) -> Option<BudgetView> {
        let Body::Teams { hold: Some(hold), .. } = started.program.body else { return None };
        (started.begun && started.ended.is_none()).then(|| BudgetView {
            hold,
            cores: self.budgets.cores(hold),
            asked: started.program.threads,
            size: started.regions.size,
            opened: Moment(started.regions.opened),
            came: Moment(started.regions.came),
            passed_over: Moment(self.budgets.passed_over(hold, at)),
        })
    }

    /// Returns the time that a program took; `None` while it runs.
    pub fn makespan(&self, program: usize) -> Option<Span> {
        let started = self.agenda.get(program)?;
        Some(Moment(started.ended?).since(started.program.start))
    }

    /// Returns all threads so far, except short processes with a reused number.
    pub fn threads(&self) -> impl Iterator<Item = ThreadView> + '_ {
        (0..self.roster.len()).map(|at| self.thread(at))
    }

    /// Returns a thread by its place.
    ///
    /// # Panics
    /// If the place does not exist.
    pub fn thread(&self, at: usize) -> ThreadView {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let cpu = task.cpu as usize;
        let going = match task.state {
            TaskState::Running => self.timeline.now() - self.clocks.since(cpu),
            _ => 0,
        };
        let waiting = if task.state == TaskState::Queued { self.timeline.now() - task.since } else { 0 };
        let activity = match (thread.phase, task.state) {
            (Phase::Over, _) => Activity::Over,
            (_, TaskState::Off) => Activity::Asleep,
            (_, TaskState::Queued) => Activity::Queued,
            (Phase::Computes, TaskState::Running) => Activity::Computing,
            (_, TaskState::Running) => Activity::Polling,
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
        ThreadView {
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

    /// Returns the busy time of each CPU, in the model's order.
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

    /// Returns the number of threads that want each CPU, in the model's order.
    pub fn loads(&self) -> impl Iterator<Item = (OsCpu, usize)> + '_ {
        (0..self.cpus()).map(|cpu| (self.hardware.os(cpu), self.seats.load(cpu)))
    }
}

/// Counts that the kernel has of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) run: u64,
    pub(crate) wait: u64,
    pub(crate) slices: u64,
    pub(crate) sleeps: u64,
    pub(crate) cpu: OsCpu,
    pub(crate) single: bool,
    pub(crate) state: TaskState,
}

impl<P: Progress> World<P> {
    /// Returns the number of balanced threads so far.
    pub(crate) fn watched_count(&self) -> usize {
        self.roster.watched_count()
    }

    /// Returns the numbers of the balanced threads that ended, in the order of their ends.
    pub(crate) fn ended_ids(&self) -> &[u32] {
        self.roster.ended()
    }

    /// Returns a thread's program, the program's name, and the mask that the program gives the
    /// thread.
    pub(crate) fn birth(&self, at: usize) -> (u32, String, CpuSet) {
        let thread = &self.roster[at];
        let home = match &thread.home {
            Some(home) => home.iter().map(|pu| self.hardware.os(pu.index())).collect(),
            None => self.hardware.model().machine.cpus(),
        };
        (thread.program, self.agenda[thread.program as usize].program.name.clone(), home)
    }

    /// Returns the values of `/proc`: run time up to the last tick, waits that are over.
    pub(crate) fn counted(&self, at: usize) -> Counted {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let cpu = task.cpu as usize;
        let mut run = thread.run;
        if task.state == TaskState::Running {
            // Time accounted since the last tick is not counted yet; time that runs unaccounted
            // since before the tick is.
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

    /// Returns the values of a thread's hardware counters. The simulated core makes one cycle a
    /// nanosecond, and retires one instruction in each cycle without a stall, polling included.
    /// Requests to memory come from the memory model.
    pub(crate) fn hardware(&self, at: usize) -> Counts {
        let (thread, task) = (&self.roster[at], &self.seats.tasks[at]);
        let going = match task.state {
            TaskState::Running => self.timeline.now() - self.clocks.since(task.cpu as usize),
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
