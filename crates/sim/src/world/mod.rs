//! The simulated machine at work: threads of programs on CPUs, under a scheduler, event by event.
//!
//! Unit: integer nanoseconds of time; work in nanoseconds on an idle reference core. Idea: nothing
//! is stepped. Between two events of a CPU its thread gets on at a constant *rate*, so what it has
//! done is worked out when the rate changes or somebody looks; each CPU has one planned event, the
//! end of the thread's phase or the moment at which the scheduler must look at it, whichever is
//! earlier.
//!
//! Properties: equal model, kernel, programs and seed give equal runs; time on CPUs adds up to the
//! time CPUs were busy; a thread does the work it was asked for, no more; an event costs the
//! logarithm of the number of CPUs and threads, and allocates nothing.
//!
//! Left out: interrupts, the balancer's own cost, waits for I/O.
//!
//! Parts, each with fields of its own: `timeline` (time and planned events), `hardware` (busy
//! cores and speeds), `cpu_clocks` (time that CPUs ran), `agenda` (programs and their starts),
//! `roster` (threads and their numbers), the scheduler with its queues (`sched`), and a model of
//! memory (`Progress`). Events join them:
//!
//! - `spawn`: programs start, threads are born and end.
//! - `running`: threads on and off CPUs.
//! - `waiting`: phases, barriers, sleep.
//! - `control`: what a host or a scenario does to a running world.
//! - `seen`: what can be seen of it from outside.

mod agenda;
mod control;
mod cpu_clocks;
mod hardware;
mod roster;
mod running;
mod seen;
mod spawn;
mod timeline;
mod waiting;

pub(crate) use agenda::finite;
pub use control::Refused;
pub use seen::{Activity, Counters, ProgramSeen, ThreadSeen};

use crate::kernel::Kernel;
use crate::model::Model;
use crate::program::Program;
use crate::progress::{Progress, Unhindered};
use crate::rng::Rng;
use crate::sched::{Scheduler, Seats, scheduler};
use agenda::Agenda;
use cpu_clocks::CpuClocks;
use hardware::Hardware;
use roster::Roster;
use timeline::{Slot, Timeline};
use trimtab_core::ids::Pu;
use trimtab_core::set::Set;
use trimtab_core::time::Moment;

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Computes,
    /// Waits at a barrier and wants the CPU.
    Polls,
    Sleeps,
    Over,
}

/// A thread.
#[derive(Clone, Debug)]
struct Thread {
    program: u32,
    /// Its number among the threads that are looked after.
    id: Option<u32>,
    rank: u32,
    phase: Phase,
    /// Work to the end of the phase, or CPU time until it stops polling.
    left: f64,
    /// CPU time to be spent before it gets on: switches, migrations.
    debt: f64,
    /// Work per nanosecond where it runs now.
    rate: f64,
    /// Work of one segment, before jitter.
    segment: f64,
    /// The last segment's, which may be shorter.
    last: f64,
    segments: u64,
    team: u32,
    /// Its footprint makes it wait for memory.
    stalls: bool,
    rng: Rng,
    home: Option<Set<Pu>>,
    run: u64,
    wait: u64,
    slices: u64,
    sleeps: u64,
    moves: u64,
    done: f64,
    asked: f64,
    /// Where it ran last.
    ran_on: u32,
}

/// Threads that wait for each other.
#[derive(Clone, Debug, Default)]
struct Team {
    members: Vec<u32>,
    arrived: u32,
}

/// A program that runs.
#[derive(Clone, Debug)]
struct Started {
    program: Program,
    mask: Option<Set<Pu>>,
    team: u32,
    alive: u32,
    /// Jobs of a churn that are still to be born; `None` for no end.
    jobs: Option<u32>,
    born: u32,
    begun: bool,
    ended: Option<u64>,
    stopped: bool,
}

/// A machine at work.
#[derive(Debug)]
pub struct World<P: Progress = Unhindered> {
    timeline: Timeline,
    hardware: Hardware,
    clocks: CpuClocks,
    agenda: Agenda,
    roster: Roster,
    teams: Vec<Team>,
    seats: Seats,
    scheduler: Box<dyn Scheduler>,
    memory: P,
    random: Random,
    counters: Counters,
    buffers: Buffers,
}

/// Streams of random numbers.
#[derive(Debug)]
struct Random {
    threads: Rng,
    /// Which idle CPU comes first when all are called.
    calls: Rng,
}

/// Lists that are kept so that an event allocates nothing; empty between events.
#[derive(Debug, Default)]
struct Buffers {
    pulled: Vec<usize>,
    changed: Vec<usize>,
}

impl World<Unhindered> {
    /// A machine where memory never makes anybody wait.
    pub fn new(model: Model, kernel: &Kernel, programs: Vec<Program>, seed: u64) -> Self {
        Self::with(model, kernel, programs, seed, Unhindered)
    }
}

impl<P: Progress> World<P> {
    /// A machine with a model of memory.
    pub fn with(model: Model, kernel: &Kernel, programs: Vec<Program>, seed: u64, progress: P) -> Self {
        let rng = Rng::new(seed);
        let seats = Seats::new(&model, kernel, &rng);
        let hardware = Hardware::new(model);
        let cpus = hardware.cpus();
        let mut world = Self {
            timeline: Timeline::new(cpus),
            hardware,
            clocks: CpuClocks::new(cpus),
            agenda: Agenda::default(),
            roster: Roster::default(),
            teams: Vec::new(),
            scheduler: scheduler(kernel, &seats),
            seats,
            memory: progress,
            random: Random { threads: rng.fork("threads"), calls: rng.fork("calls") },
            counters: Counters::default(),
            buffers: Buffers::default(),
        };
        world.add_all(programs);
        let first = world.scheduler.everywhere(&mut world.seats, 0);
        if first != u64::MAX {
            world.timeline.plan(Slot::Everywhere, first);
        }
        world
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        Moment(self.timeline.now())
    }

    /// The machine and its numbers.
    pub fn model(&self) -> &Model {
        self.hardware.model()
    }

    /// The model of memory.
    pub fn progress(&self) -> &P {
        &self.memory
    }

    /// Whether all programs that can end have ended.
    pub fn over(&self) -> bool {
        self.agenda.is_over()
    }

    /// Lets time pass until a moment, or until all is over if that is earlier.
    pub fn run(&mut self, until: Moment) {
        while !self.over() {
            match self.timeline.next() {
                Some(at) if at <= until.0 => self.step(),
                _ => break,
            }
        }
        if !self.over() {
            self.timeline.pass(until.0);
        }
    }

    fn cpus(&self) -> usize {
        self.hardware.cpus()
    }

    /// The next event.
    fn step(&mut self) {
        let Some((event, slot)) = self.timeline.begin() else { return };
        self.counters.events += 1;
        match slot {
            Slot::Cpu(cpu) => self.look(cpu),
            Slot::Balance(cpu) => self.balance(cpu),
            Slot::Agenda => self.start_due(),
            Slot::Epoch => self.epoch(),
            Slot::Everywhere => {
                for cpu in 0..self.cpus() {
                    self.settle(cpu);
                }
                let next = self.scheduler.everywhere(&mut self.seats, self.timeline.now());
                self.timeline.plan(slot, next);
            }
            Slot::Alarm(thread) => self.alarm(thread),
        }
        self.timeline.done(event);
    }

    /// Memory works its rates out.
    fn epoch(&mut self) {
        let mut changed = std::mem::take(&mut self.buffers.changed);
        changed.clear();
        self.memory.epoch(Moment(self.timeline.now()), &mut changed);
        for &thread in &changed {
            let cpu = self.seats.tasks[thread].cpu as usize;
            if self.seats.current(cpu) == Some(thread) {
                self.rerate(cpu);
            }
        }
        self.buffers.changed = changed;
        self.plan_epoch();
    }

    pub(super) fn plan_epoch(&mut self) {
        let slot = Slot::Epoch;
        match self.memory.next() {
            // What is planned for now may be what is being carried out.
            Some(at) if at.0 <= self.timeline.now() || self.timeline.planned(slot) != Some(at.0) => {
                self.timeline.plan(slot, at.0.max(self.timeline.now()));
            }
            Some(_) => {}
            None => self.timeline.cancel(slot),
        }
    }
}

#[cfg(test)]
mod tests;
