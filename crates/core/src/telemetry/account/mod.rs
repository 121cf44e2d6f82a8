//! Account of watched programs while they run: the figures of the screen, the metrics and the page
//! of `report`.
//!
//! Unit: shares of elapsed time in [0, 1], and nanoseconds of CPU time. Idea: an [`Account`] takes
//! the [`Step`]s of the one loop, live ones from `drive`, recorded ones from [`Playback`]; only
//! formats differ. [`Timeline`] folds a whole trace into columns of time.
//!
//! Terms. *Progress* of a thread is its CPU time over its [`PROGRESS_READINGS`] latest readings.
//! *Balance* of a program is taken over as many of its cores as it could have kept busy: the
//! busiest ones, where a core that it could have used and did not use counts as zero. *Expected
//! balance* is the balance at the end of the run if all goes on as now: the progress of the slowest
//! active thread over the mean of all active ones; 1 means that all end together. Threads that
//! sleep are left out. *Migrations* are changes of core between two samples.
//!
//! Properties: a thread that was not read has no speed, and does not count as slow. A reading that
//! is not accepted (a clock jump, a counter that decreased) adds nothing. Sums of ended threads
//! stay in their program. Equal steps give equal accounts.

mod moves;
mod playback;
mod program;
mod tally;
mod thread;
mod timeline;

pub use super::CpuPosition;
pub use moves::Move;
pub use playback::Playback;
pub use program::ProgramAccount;
pub use tally::Tally;
pub use thread::{Past, ThreadAccount};
pub use timeline::{CpuLane, Lane, Point, ProgramLine, Timeline, TimelineCell};

use crate::balance::Finding;
use crate::drive::Step;
use crate::ids::{Id, OsCpu, ProgramId, ThreadId};
use crate::observe::{Metric, Notice};
use crate::time::{Moment, Span};
use crate::topology::Machine;
use moves::Moves;
use serde::Serialize;
use std::collections::BTreeMap;

/// Readings over which progress is measured. At 100 ms between them these are two seconds, in which
/// a rotating kernel has given each of N+1 threads its turn on N cores several times.
pub const PROGRESS_READINGS: usize = 20;

/// Current figures of a CPU.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CpuAccount {
    /// CPU.
    pub cpu: OsCpu,
    /// Position of the CPU; `None` for a CPU that the machine's model lacks.
    pub seat: Option<CpuPosition>,
    /// Share of the time that the CPU ran anything.
    pub busy: Option<f64>,
    /// Share of the time that the CPU ran the watched threads that were last seen on it.
    pub ours: f64,
    /// Share of the time that the CPU ran other programs: the remainder.
    pub others: Option<f64>,
    /// Share of the time that the hypervisor took (steal time).
    pub steal: Option<f64>,
}

/// Bounds on the history of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Past readings kept per thread; at least [`PROGRESS_READINGS`].
    pub history: usize,
    /// Past moves kept.
    pub moves: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { history: 64, moves: 256 }
    }
}

/// Figures of the watched threads, programs and CPUs after the latest step.
#[derive(Clone, Debug)]
pub struct Account {
    metric: Metric,
    keep: Keep,
    seats: BTreeMap<OsCpu, CpuPosition>,
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
    /// Creates an empty account.
    pub fn new(machine: &Machine, metric: Metric, keep: Keep) -> Self {
        let seat = |(at, &cpu): (usize, &OsCpu)| {
            let core = machine.core_of(crate::ids::Pu::from_index(at));
            let node = machine.core(core).node.map(|node| machine.nodes()[node.index()].os);
            (cpu, CpuPosition { core, node })
        };
        Self {
            metric,
            keep: Keep { history: keep.history.max(PROGRESS_READINGS), ..keep },
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

    /// Takes one round of the loop into the account.
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
        self.take_threads(step);
        self.take_cpus(step);
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

    fn take_threads(&mut self, step: &Step<'_>) {
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
            let Some(change) = thread.take(view, self.metric, &self.seats, self.keep.history) else {
                continue;
            };
            let core = change.cpu.and_then(|cpu| self.seats.get(&cpu)).map(|seat| seat.core);
            let program = thread.info.program;
            let program = self.programs.entry(program).or_insert_with(|| ProgramAccount::new(program));
            program.take(&change, core);
        }
    }

    fn take_cpus(&mut self, step: &Step<'_>) {
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
        // A policy may sample CPUs less often than threads: the last sample of CPUs counts until
        // the next.
        if !step.seen.cpus.is_empty() {
            self.cpus = step.seen.cpus.iter().map(account).collect();
        }
    }

    /// Computes the figures of programs from those of their threads.
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

    /// Returns the metric of speed.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the moment of the last step.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// Returns the time since the first step.
    pub fn watched(&self) -> Span {
        self.began.map_or(Span::ZERO, |began| self.at.since(began))
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.tally.looks
    }

    /// Returns the counts of samples, decisions and threads.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the living threads, ascending.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadAccount> {
        self.threads.values()
    }

    /// Returns a living thread; `None` if it has ended or was never seen.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadAccount> {
        self.threads.get(&id)
    }

    /// Returns the threads that ended with the last step.
    pub fn ended(&self) -> &[ThreadAccount] {
        &self.ended
    }

    /// Returns the programs seen so far, ascending.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramAccount> {
        self.programs.values()
    }

    /// Returns the CPUs as last sampled, ascending.
    pub fn cpus(&self) -> &[CpuAccount] {
        &self.cpus
    }

    /// Returns the position of a CPU; `None` if the model lacks the CPU.
    pub fn seat(&self, cpu: OsCpu) -> Option<CpuPosition> {
        self.seats.get(&cpu).copied()
    }

    /// Returns the latest moves, oldest first.
    pub fn moves(&self) -> impl DoubleEndedIterator<Item = &Move> {
        self.moves.latest()
    }

    /// Returns the number of moves decided, including those that are no longer stored.
    pub fn decided(&self) -> u64 {
        self.moves.decided()
    }

    /// Returns the policy's latest findings.
    pub fn findings(&self) -> &[Finding] {
        &self.tally.findings
    }

    /// Returns the share of the time that a quota kept the programs off their CPUs, summed over the
    /// programs.
    pub fn throttled(&self) -> Option<f64> {
        self.throttled
    }

    /// Returns the number of clock jumps.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Returns the number of readings of threads that failed.
    pub fn unread(&self) -> u64 {
        self.unread
    }
}

#[cfg(test)]
mod tests;
