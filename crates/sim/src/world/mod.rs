//! The simulated machine at work: threads of programs on CPUs, under a scheduler, event by event.
//!
//! Unit: integer nanoseconds of time; work in nanoseconds on an idle reference core. Idea: nothing is stepped. Between two events of a CPU
//! its thread gets on at a constant *rate*, so what it has done is worked out when the rate changes or somebody looks; each CPU has
//! one planned event, the end of the thread's phase or the moment at which the scheduler must look at it, whichever is earlier.
//!
//! Properties: equal model, kernel, programs and seed give equal runs; time on CPUs adds up to the time CPUs were busy; a thread
//! does the work it was asked for, no more; an event costs the logarithm of the number of CPUs and threads, and
//! allocates nothing.
//!
//! Left out: interrupts, the balancer's own cost, waits for I/O.
//!
//! - `spawn`: programs start, threads are born and end.
//! - `running`: threads on and off CPUs.
//! - `waiting`: phases, barriers, sleep.
//! - `control`: what a host or a scenario does to a running world.
//! - `seen`: what can be seen of it from outside.

mod control;
mod running;
mod seen;
mod spawn;
mod waiting;

pub use control::Refused;
pub use seen::{Activity, Counters, ProgramSeen, ThreadSeen};
pub(crate) use spawn::finite;

use crate::kernel::Kernel;
use crate::model::Model;
use crate::program::Program;
use crate::progress::{Progress, Unhindered};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::sched::{Scheduler, Seats, scheduler};
use trimtab_core::ids::{Id, Pu};
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
    now: u64,
    model: Model,
    seats: Seats,
    scheduler: Box<dyn Scheduler>,
    events: Queue,
    progress: P,
    threads: Vec<Thread>,
    free: Vec<u32>,
    teams: Vec<Team>,
    programs: Vec<Started>,
    /// Programs to start, the last one first.
    agenda: Vec<(u64, u32)>,
    /// By number of those looked after: the thread, or none when it is over.
    watched: Vec<Option<u32>>,
    /// Numbers of those that ended.
    ended: Vec<u32>,
    /// Programs that must end for the run to be over, and have not.
    open: u32,
    /// By CPU: since when its thread runs unaccounted, how long it was busy, who was on it last, whether it is counted as busy.
    since: Vec<u64>,
    busy: Vec<u64>,
    last: Vec<u32>,
    occupied: Vec<bool>,
    until: Vec<u64>,
    looks: Vec<u8>,
    /// By CPU: its core, and its package.
    core_of: Vec<u32>,
    package_of: Vec<u32>,
    /// By core and package: busy hardware threads, busy cores.
    core_busy: Vec<u32>,
    package_busy: Vec<u32>,
    packages: Vec<std::ops::Range<usize>>,
    rng: Rng,
    /// Which idle CPU comes first when all are called.
    calls: Rng,
    counters: Counters,
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
        let machine = &model.machine;
        let count = machine.pu_count();
        let seats = Seats::new(&model, kernel, &rng);
        let packages = model.packages();
        let mut package_of = vec![0; count];
        for (at, cpus) in packages.iter().enumerate() {
            package_of[cpus.clone()].fill(at as u32);
        }
        let mut world = Self {
            now: 0,
            scheduler: scheduler(kernel, &seats),
            seats,
            events: Queue::new(2 * count + 3),
            progress,
            threads: Vec::new(),
            free: Vec::new(),
            teams: Vec::new(),
            programs: Vec::new(),
            agenda: Vec::new(),
            watched: Vec::new(),
            ended: Vec::new(),
            open: 0,
            since: vec![0; count],
            busy: vec![0; count],
            last: vec![u32::MAX; count],
            occupied: vec![false; count],
            until: vec![u64::MAX; count],
            looks: vec![0; count],
            core_of: (0..count).map(|cpu| machine.core_of(Pu::from_index(cpu)).0).collect(),
            core_busy: vec![0; machine.cores().len()],
            package_busy: vec![0; packages.len()],
            package_of,
            packages,
            calls: rng.fork("calls"),
            rng: rng.fork("threads"),
            counters: Counters::default(),
            pulled: Vec::new(),
            changed: Vec::new(),
            model,
        };
        world.add_all(programs);
        let first = world.scheduler.everywhere(&mut world.seats, 0);
        if first != u64::MAX {
            world.events.plan(world.everywhere_slot(), first);
        }
        world
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        Moment(self.now)
    }

    /// The machine and its numbers.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model of memory.
    pub fn progress(&self) -> &P {
        &self.progress
    }

    /// Whether all programs that can end have ended.
    pub fn over(&self) -> bool {
        self.open == 0
    }

    /// Lets time pass until a moment, or until all is over if that is earlier.
    pub fn run(&mut self, until: Moment) {
        while !self.over() {
            match self.events.next() {
                Some(at) if at <= until.0 => self.step(),
                _ => break,
            }
        }
        if !self.over() {
            self.now = self.now.max(until.0);
        }
    }

    fn cpus(&self) -> usize {
        self.since.len()
    }

    fn balance_slot(&self, cpu: usize) -> usize {
        self.cpus() + cpu
    }

    fn agenda_slot(&self) -> usize {
        2 * self.cpus()
    }

    fn epoch_slot(&self) -> usize {
        2 * self.cpus() + 1
    }

    fn everywhere_slot(&self) -> usize {
        2 * self.cpus() + 2
    }

    fn alarm_slot(&self, thread: usize) -> usize {
        2 * self.cpus() + 3 + thread
    }

    /// The next event.
    fn step(&mut self) {
        let Some(event) = self.events.begin() else { return };
        let slot = event.slot;
        self.now = event.at;
        self.counters.events += 1;
        let cpus = self.cpus();
        if slot < cpus {
            self.look(slot);
        } else if slot < 2 * cpus {
            self.balance(slot - cpus);
        } else if slot == self.agenda_slot() {
            self.start_due();
        } else if slot == self.epoch_slot() {
            self.epoch();
        } else if slot == self.everywhere_slot() {
            for cpu in 0..cpus {
                self.settle(cpu);
            }
            let next = self.scheduler.everywhere(&mut self.seats, self.now);
            self.events.plan(slot, next);
        } else {
            self.alarm(slot - self.alarm_slot(0));
        }
        self.events.done(event);
    }

    /// Memory works its rates out.
    fn epoch(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.clear();
        self.progress.epoch(Moment(self.now), &mut changed);
        for &thread in &changed {
            let cpu = self.seats.tasks[thread].cpu as usize;
            if self.seats.current(cpu) == Some(thread) {
                self.rerate(cpu);
            }
        }
        self.changed = changed;
        self.plan_epoch();
    }

    pub(super) fn plan_epoch(&mut self) {
        let slot = self.epoch_slot();
        match self.progress.next() {
            // What is planned for now may be what is being carried out.
            Some(at) if at.0 <= self.now || self.events.planned(slot) != Some(at.0) => {
                self.events.plan(slot, at.0.max(self.now));
            }
            Some(_) => {}
            None => self.events.cancel(slot),
        }
    }
}

#[cfg(test)]
mod tests;
