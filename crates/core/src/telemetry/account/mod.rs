//! Account of watched programs while they run: the figures of the screen, the metrics and the page of
//! `report`.
//!
//! Unit: shares of elapsed time in [0, 1], and nanoseconds of CPU time. Idea: an [`Account`] is fed the
//! [`Step`]s of the one loop, live ones by `drive`, recorded ones by [`Playback`], and only formats
//! differ. [`Timeline`] folds a whole trace into columns of time.
//!
//! Terms. *Progress* of a thread is its CPU time; over a few readings, the [`WINDOW`] latest. *Balance*
//! of a program is that of as many of its cores as it could have kept busy: the busiest ones, and one
//! that it could have used and did not counts nothing. *Expected balance* is what the end will be like
//! if all goes on as now: the progress of its slowest active thread over the mean of all active ones;
//! 1 means that all end together. Threads that sleep have no part in it. *Migrations* are changes of
//! core between two samples.
//!
//! Properties: what was not read has no speed, and is not slow; a reading that is not believed (a clock
//! jump, a counter that ran back) adds nothing; sums of ended threads stay in their program; equal
//! steps give equal accounts.

mod moves;
mod playback;
mod program;
mod tally;
mod thread;
mod timeline;

pub use moves::Move;
pub use playback::Playback;
pub use program::ProgramAccount;
pub use tally::Tally;
pub use thread::{Past, ThreadAccount};
pub use timeline::{Cell, CpuLane, Lane, Point, ProgramLine, Timeline};

use crate::balance::Finding;
use crate::drive::Step;
use crate::ids::{CoreId, Id, OsCpu, OsNode, ProgramId, ThreadId};
use crate::observe::{Metric, Notice};
use crate::time::{Moment, Span};
use crate::topology::Machine;
use moves::Moves;
use serde::Serialize;
use std::collections::BTreeMap;

/// Progress is looked at over this many readings: at 100 ms between them, two seconds, in which a rotating kernel has given
/// each of N+1 threads its turn on N cores several times.
pub const WINDOW: usize = 20;

/// Where a CPU is in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Seat {
    /// Its core, by its place in the model.
    pub core: CoreId,
    /// Its NUMA node as the kernel numbers it, if the machine has nodes.
    pub node: Option<OsNode>,
}

/// What is known of a CPU now.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CpuAccount {
    /// Which.
    pub cpu: OsCpu,
    /// Where it is; `None` for one that the machine's model lacks.
    pub seat: Option<Seat>,
    /// Share of the time it ran anything.
    pub busy: Option<f64>,
    /// Share of the time it ran the watched threads that were last seen on it.
    pub ours: f64,
    /// What is left: others' share.
    pub others: Option<f64>,
    /// Share of the time the hypervisor took.
    pub steal: Option<f64>,
}

/// How an account is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// How many past readings of each thread; at least [`WINDOW`] are kept.
    pub history: usize,
    /// How many past moves.
    pub moves: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { history: 64, moves: 256 }
    }
}

/// The account.
#[derive(Clone, Debug)]
pub struct Account {
    metric: Metric,
    keep: Keep,
    seats: BTreeMap<OsCpu, Seat>,
    threads: BTreeMap<ThreadId, ThreadAccount>,
    ended: Vec<ThreadAccount>,
    programs: BTreeMap<ProgramId, ProgramAccount>,
    cpus: Vec<CpuAccount>,
    moves: Moves,
    tally: Tally,
    began: Option<Moment>,
    at: Moment,
    throttled: Option<f64>,
    jumps: u64,
    unread: u64,
}

impl Account {
    /// One of nothing.
    pub fn new(machine: &Machine, metric: Metric, keep: Keep) -> Self {
        let seat = |(at, &cpu): (usize, &OsCpu)| {
            let core = machine.core_of(crate::ids::Pu::from_index(at));
            let node = machine.core(core).node.map(|node| machine.nodes()[node.index()].os);
            (cpu, Seat { core, node })
        };
        Self {
            metric,
            keep: Keep { history: keep.history.max(WINDOW), ..keep },
            seats: machine.parts().pus.iter().enumerate().map(seat).collect(),
            threads: BTreeMap::new(),
            ended: Vec::new(),
            programs: BTreeMap::new(),
            cpus: Vec::new(),
            moves: Moves::default(),
            tally: Tally::default(),
            began: None,
            at: Moment::default(),
            throttled: None,
            jumps: 0,
            unread: 0,
        }
    }

    /// Takes one round of the loop in.
    pub fn take(&mut self, step: &Step<'_>) {
        self.tally.take(step, self.metric);
        self.at = step.seen.at;
        self.began.get_or_insert(step.seen.at);
        self.throttled = step.seen.throttled;
        for notice in step.seen.notices {
            match notice {
                Notice::ClockJump(_) => self.jumps += 1,
                Notice::Unread(threads) => self.unread += u64::from(*threads),
                Notice::Usable(_) | Notice::Scheduler(_) | Notice::Counting(_) | Notice::Memory(_) => {}
            }
        }
        for info in &step.sample.programs {
            self.program(info.id).info = Some(info.clone());
        }
        self.bury(step.seen.gone);
        self.look_at_threads(step);
        self.look_at_cpus(step);
        self.moves.settle(&step.sample.settled, &mut self.threads);
        self.moves.add(step, &mut self.threads, self.keep.moves);
        self.sum_up(step);
    }

    fn program(&mut self, id: ProgramId) -> &mut ProgramAccount {
        self.programs.entry(id).or_insert_with(|| ProgramAccount::new(id))
    }

    fn bury(&mut self, gone: &[ThreadId]) {
        self.ended.clear();
        for id in gone {
            let Some(mut thread) = self.threads.remove(id) else { continue };
            thread.ended = Some(self.at);
            self.program(thread.info.program).bury(&thread);
            self.ended.push(thread);
        }
    }

    fn look_at_threads(&mut self, step: &Step<'_>) {
        for info in &step.sample.news {
            if let Some(thread) = self.threads.get_mut(&info.id) {
                thread.info = info.clone();
            }
        }
        for view in &step.seen.threads {
            let thread = self
                .threads
                .entry(view.id())
                .or_insert_with(|| ThreadAccount::new(view.info.clone(), step.seen.at));
            let ran = thread.look(view, self.metric, &self.seats, self.keep.history);
            if let Some((cpu, run)) = ran
                && let Some(seat) = self.seats.get(&cpu)
            {
                let program = thread.info.program;
                let program = self.programs.entry(program).or_insert_with(|| ProgramAccount::new(program));
                program.ran_on(seat.core, run);
            }
        }
    }

    fn look_at_cpus(&mut self, step: &Step<'_>) {
        let mut ours: BTreeMap<OsCpu, f64> = BTreeMap::new();
        for thread in self.threads.values() {
            if let (Some(cpu), Some(run)) = (thread.cpu, thread.run_share) {
                *ours.entry(cpu).or_default() += run;
            }
        }
        let account = |view: &crate::observe::CpuView| {
            let ours = ours.get(&view.cpu).copied().unwrap_or(0.0).min(1.0);
            CpuAccount {
                cpu: view.cpu,
                seat: self.seats.get(&view.cpu).copied(),
                busy: view.busy,
                ours,
                others: view.busy.map(|busy| (busy - ours).max(0.0)),
                steal: view.steal,
            }
        };
        // A policy may look at CPUs less often than at threads: the last look counts until the next.
        if !step.seen.cpus.is_empty() {
            self.cpus = step.seen.cpus.iter().map(account).collect();
        }
    }

    /// The figures of programs, from those of their threads.
    fn sum_up(&mut self, step: &Step<'_>) {
        let mut of: BTreeMap<ProgramId, Vec<&ThreadAccount>> = BTreeMap::new();
        for thread in self.threads.values() {
            of.entry(thread.info.program).or_default().push(thread);
        }
        for id in of.keys() {
            self.programs.entry(*id).or_insert_with(|| ProgramAccount::new(*id));
        }
        for (id, program) in &mut self.programs {
            let threads = of.get(id).map_or(&[][..], Vec::as_slice);
            program.sum_up(threads, step.seen.usable, &self.seats);
        }
    }

    /// How speed is measured.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// When the last step was.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// How long this has gone on.
    pub fn watched(&self) -> Span {
        self.began.map_or(Span::ZERO, |began| self.at.since(began))
    }

    /// How many steps there were.
    pub fn steps(&self) -> u64 {
        self.tally.looks
    }

    /// How much was done.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The living threads, ascending.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadAccount> {
        self.threads.values()
    }

    /// A living thread.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadAccount> {
        self.threads.get(&id)
    }

    /// The threads that ended with the last step.
    pub fn ended(&self) -> &[ThreadAccount] {
        &self.ended
    }

    /// The programs seen so far, ascending.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramAccount> {
        self.programs.values()
    }

    /// The CPUs as last looked at, ascending.
    pub fn cpus(&self) -> &[CpuAccount] {
        &self.cpus
    }

    /// Where a CPU is.
    pub fn seat(&self, cpu: OsCpu) -> Option<Seat> {
        self.seats.get(&cpu).copied()
    }

    /// The latest moves, oldest first.
    pub fn moves(&self) -> impl DoubleEndedIterator<Item = &Move> {
        self.moves.latest()
    }

    /// How many moves were decided, those forgotten included.
    pub fn decided(&self) -> u64 {
        self.moves.decided()
    }

    /// What the policy thinks since it last said so.
    pub fn findings(&self) -> &[Finding] {
        &self.tally.findings
    }

    /// The share of the time that a quota kept the programs off their CPUs, summed over them.
    pub fn throttled(&self) -> Option<f64> {
        self.throttled
    }

    /// How often the clock jumped.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// How many readings of threads failed.
    pub fn unread(&self) -> u64 {
        self.unread
    }
}

#[cfg(test)]
mod tests;
