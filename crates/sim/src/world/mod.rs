//! Simulated machine at work: threads of programs on CPUs, under a scheduler, event by event.
//!
//! Unit: integer nanoseconds of time; work in nanoseconds on an idle reference core. Idea: there
//! are no time steps. Between two events of a CPU, its thread progresses at a constant *rate*, so
//! its work is computed when the rate changes or when it is read. Each CPU has one planned event:
//! the end of the thread's phase or the moment at which the scheduler must check the thread,
//! whichever is earlier.
//!
//! Properties: equal model, kernel, programs and seed give equal runs. Time on CPUs adds up to the
//! time that CPUs were busy. A thread does exactly the work that it was given. An event costs the
//! logarithm of the number of CPUs and threads, and allocates nothing; the start of a team in a
//! hold costs an observation of the hold's processes.
//!
//! Left out: interrupts, the balancer's own cost, waits for I/O.
//!
//! Parts, each with fields of its own: `timeline` (time and planned events), `hardware` (busy cores
//! and speeds), `cpu_clocks` (time that CPUs ran), `agenda` (programs and their starts), `roster`
//! (threads and their numbers), the scheduler with its run queues (`sched`), and a model of memory
//! (`Progress`). Events join them:
//!
//! - `spawn`: programs start, threads start and end.
//! - `running`: threads on and off CPUs.
//! - `waiting`: phases, barriers, sleep.
//! - `regions`: regions of processes with teams. The budgets of holds (`budgets`) bound the sizes
//!   of these teams.
//! - `control`: actions of a host or a scenario on a running world.
//! - `view`: the view of a world from outside.

mod agenda;
mod budgets;
mod control;
mod cpu_clocks;
mod hardware;
mod regions;
mod roster;
mod running;
mod spawn;
mod timeline;
mod view;
mod waiting;

pub(crate) use agenda::finite;
pub use control::Refused;
pub use view::{Activity, BudgetView, ProgramView, RunCounters, ThreadView};

use crate::kernel::Kernel;
use crate::model::Model;
use crate::program::ProgramSpec;
use crate::progress::{NoStalls, Progress};
use crate::rng::Rng;
use crate::sched::{Scheduler, Seats, scheduler};
use agenda::Agenda;
use budgets::Budgets;
use cpu_clocks::CpuClocks;
use hardware::Hardware;
use regions::Regions;
use roster::Roster;
use timeline::{Slot, Timeline};
use trimtab_core::ids::Pu;
use trimtab_core::set::Set;
use trimtab_core::time::Moment;

/// Phase of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Computes,
    /// Waits at a barrier and wants the CPU.
    Polls,
    Sleeps,
    Over,
}

/// Thread of a program.
#[derive(Clone, Debug)]
struct SimThread {
    program: u32,
    /// Number among the threads that policies balance.
    id: Option<u32>,
    rank: u32,
    phase: Phase,
    /// Work to the end of the phase, or CPU time until the thread stops polling.
    left: f64,
    /// CPU time that the thread must spend before it progresses: context switches, migrations.
    debt: f64,
    /// Work per nanosecond on the present CPU.
    rate: f64,
    /// Work of one segment, before jitter.
    segment: f64,
    /// Work of the last segment, which may be shorter.
    last: f64,
    segments: u64,
    team: u32,
    /// Whether the footprint makes the thread wait for memory.
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
    /// CPU on which the thread ran last.
    ran_on: u32,
}

/// Threads that wait for each other.
#[derive(Clone, Debug, Default)]
struct BarrierTeam {
    members: Vec<u32>,
    arrived: u32,
    /// Only this many of the members take part, the first ones; `None`: all.
    first: Option<u32>,
}

impl BarrierTeam {
    /// Returns the number of threads for which the barrier waits.
    fn parties(&self) -> usize {
        self.first.map_or(self.members.len(), |first| first as usize)
    }
}

/// Program that was added.
#[derive(Clone, Debug)]
struct AddedProgram {
    program: ProgramSpec,
    mask: Option<Set<Pu>>,
    team: u32,
    alive: u32,
    /// Jobs of a churn that have not started; `None`: without end.
    jobs: Option<u32>,
    born: u32,
    begun: bool,
    ended: Option<u64>,
    stopped: bool,
    regions: Regions,
}

/// Machine at work.
#[derive(Debug)]
pub struct World<P: Progress = NoStalls> {
    timeline: Timeline,
    hardware: Hardware,
    clocks: CpuClocks,
    agenda: Agenda,
    roster: Roster,
    teams: Vec<BarrierTeam>,
    budgets: Budgets,
    seats: Seats,
    scheduler: Box<dyn Scheduler>,
    memory: P,
    random: Random,
    counters: RunCounters,
    buffers: Buffers,
}

/// Streams of random numbers.
#[derive(Debug)]
struct Random {
    threads: Rng,
    /// Draws the idle CPU that comes first when all are called.
    calls: Rng,
}

/// Lists that are kept so that an event allocates nothing; empty between events.
#[derive(Debug, Default)]
struct Buffers {
    pulled: Vec<usize>,
    changed: Vec<usize>,
}

impl World<NoStalls> {
    /// Returns a machine without memory delays.
    pub fn new(model: Model, kernel: &Kernel, programs: Vec<ProgramSpec>, seed: u64) -> Self {
        Self::with(model, kernel, programs, seed, NoStalls)
    }
}

impl<P: Progress> World<P> {
    /// Returns a machine with a model of memory.
    pub fn with(model: Model, kernel: &Kernel, programs: Vec<ProgramSpec>, seed: u64, progress: P) -> Self {
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
            budgets: Budgets::default(),
            scheduler: scheduler(kernel, &seats),
            seats,
            memory: progress,
            random: Random { threads: rng.fork("threads"), calls: rng.fork("calls") },
            counters: RunCounters::default(),
            buffers: Buffers::default(),
        };
        world.add_all(programs);
        let first = world.scheduler.everywhere(&mut world.seats, 0);
        if first != u64::MAX {
            world.timeline.plan(Slot::Everywhere, first);
        }
        world
    }

    /// Returns the present time.
    pub fn now(&self) -> Moment {
        Moment(self.timeline.now())
    }

    /// Returns the machine and its numbers.
    pub fn model(&self) -> &Model {
        self.hardware.model()
    }

    /// Returns the model of memory.
    pub fn progress(&self) -> &P {
        &self.memory
    }

    /// Returns whether all programs that can end have ended.
    pub fn over(&self) -> bool {
        self.agenda.is_over()
    }

    /// Lets time pass until a moment, or until the run is over if that is earlier.
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

    /// Carries out the next event.
    fn step(&mut self) {
        let Some((event, slot)) = self.timeline.begin() else { return };
        self.counters.events += 1;
        match slot {
            Slot::Cpu(cpu) => self.check_cpu(cpu),
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

    /// Lets the memory model compute its rates.
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
            // The event planned for now may be the one that is being carried out.
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
