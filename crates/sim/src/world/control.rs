//! Control of a running world from outside: masks, CPUs that vanish, programs that are stopped.

use super::{Phase, World, finite};
use crate::progress::Progress;
use crate::sched::{TaskState, emptiest};
use trimtab_core::ids::{Id, NodeId, OsNode, Pu, ThreadId};
use trimtab_core::set::{CpuSet, Set};
use trimtab_core::time::{Moment, Span};

/// Reason why a thread's mask was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The thread has ended, or is not balanced.
    Vanished,
    /// None of the CPUs is usable.
    Cpus,
    /// The node does not exist.
    Memory,
}

impl<P: Progress> World<P> {
    /// Returns the thread with a number, while the thread lives.
    pub(crate) fn watched(&self, id: ThreadId) -> Option<usize> {
        self.roster.watched(id.index())
    }

    /// Returns a thread's mask, the inner `None` for all CPUs; the outer `None` if the thread has
    /// ended or is not balanced.
    pub(crate) fn mask(&self, id: ThreadId) -> Option<Option<Set<Pu>>> {
        let at = self.watched(id)?;
        Some(self.seats.tasks[at].mask.as_deref().cloned())
    }

    /// Gives a thread its former mask back, even if no CPU of the mask is usable now.
    pub(crate) fn give_back(&mut self, id: ThreadId, mask: Option<Set<Pu>>) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        self.masked(at, mask);
        Ok(())
    }

    /// Restricts a thread to these CPUs.
    ///
    /// # Errors
    /// [`Refused`] gives the reason.
    pub fn confine(&mut self, id: ThreadId, cpus: &CpuSet) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        let pus = self.hardware.pus(cpus);
        if !pus.iter().any(|pu| self.seats.cpus[pu.index()].usable) {
            return Err(Refused::Cpus);
        }
        self.masked(at, Some(pus));
        Ok(())
    }

    /// Moves a thread to these CPUs, and at once restores its former mask.
    ///
    /// # Errors
    /// [`Refused`] gives the reason.
    pub fn nudge(&mut self, id: ThreadId, cpus: &CpuSet) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        let before = self.seats.tasks[at].mask.clone();
        self.confine(id, cpus)?;
        self.masked(at, before.map(|mask| *mask));
        Ok(())
    }

    /// Migrates the memory of a thread's program to a node. A thread does not run while its pages
    /// are moved.
    ///
    /// # Errors
    /// [`Refused`] gives the reason.
    pub fn fetch(&mut self, id: ThreadId, to: OsNode) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        let nodes = self.hardware.model().machine.nodes();
        let to = nodes.iter().position(|node| node.os == to).ok_or(Refused::Memory)?;
        let program = self.roster[at].program;
        for other in 0..self.roster.len() {
            if self.roster[other].program == program && self.roster[other].phase != Phase::Over {
                let cost = self.memory.fetch(Moment(self.timeline.now()), other, NodeId::from_index(to));
                self.delay(other, cost);
            }
        }
        self.plan_epoch();
        Ok(())
    }

    /// Delays a running thread by this time. Returns false, and does nothing, if the thread does
    /// not run.
    pub(crate) fn hinder(&mut self, at: usize, cost: Span) -> bool {
        let runs = self.seats.tasks[at].state == TaskState::Running;
        if runs {
            self.delay(at, cost);
        }
        runs
    }

    /// Takes this time from a CPU: from an idle one if there is any, else from the first usable one
    /// at or after `turn`. Returns the CPU for the next call.
    pub(crate) fn work_aside(&mut self, turn: usize, cost: Span) -> usize {
        let usable = |cpu: &usize| self.seats.cpus[*cpu].usable;
        if (0..self.cpus()).filter(usable).any(|cpu| self.seats.current(cpu).is_none()) {
            return turn;
        }
        let next = (0..self.cpus()).map(|step| (turn + step) % self.cpus()).find(usable);
        let Some(cpu) = next else { return turn };
        if let Some(at) = self.seats.current(cpu) {
            self.delay(at, cost);
        }
        cpu + 1
    }

    /// Delays a thread by this time, once it runs.
    fn delay(&mut self, at: usize, cost: Span) {
        let cpu = self.seats.tasks[at].cpu as usize;
        let runs = self.seats.current(cpu) == Some(at);
        if runs {
            self.settle(cpu);
        }
        self.roster[at].debt += cost.0 as f64;
        if runs {
            self.arm(cpu);
        }
    }

    fn masked(&mut self, at: usize, mask: Option<Set<Pu>>) {
        self.seats.set_mask(at, mask);
        let cpu = self.seats.tasks[at].cpu as usize;
        if self.seats.tasks[at].state == TaskState::Off {
            return;
        }
        if self.seats.allowed(at, cpu) {
            // A thread that could not be pulled from here may be now.
            self.rearm(cpu);
        } else {
            self.evict(at);
        }
    }

    /// Moves a thread away from a CPU on which it may not run.
    fn evict(&mut self, at: usize) {
        let to = emptiest(&self.seats, at);
        if to != self.seats.tasks[at].cpu as usize {
            self.relocate(at, to);
            self.came(at, to);
        }
    }

    /// Sets the CPUs that are usable from now on. Threads on others are moved. If no CPU of a
    /// thread's mask is left, the thread may run on any CPU until one returns. Does nothing if the
    /// set is empty.
    pub fn set_usable(&mut self, cpus: &CpuSet) {
        let pus = self.hardware.pus(cpus);
        if pus.is_empty() {
            return;
        }
        for pu in 0..self.cpus() {
            let usable = pus.contains(Pu::from_index(pu));
            if usable && !self.seats.cpus[pu].usable {
                self.seats.set_usable(pu, true);
            }
        }
        for cpu in 0..self.cpus() {
            if pus.contains(Pu::from_index(cpu)) || !self.seats.cpus[cpu].usable {
                continue;
            }
            self.seats.set_usable(cpu, false);
            let queue = self.seats.cpus[cpu].queue.clone();
            for task in queue.into_iter().map(|task| task as usize).chain(self.seats.current(cpu)) {
                self.evict(task);
            }
        }
        // A thread that was let out because all of its CPUs were gone is put back when one returns,
        // as a cpuset does.
        for task in 0..self.seats.tasks.len() {
            let seat = &self.seats.tasks[task];
            if seat.state != TaskState::Off && !self.seats.allowed(task, seat.cpu as usize) {
                self.evict(task);
            }
        }
        for cpu in pus.iter().map(Id::index) {
            if self.seats.current(cpu).is_none() {
                self.switch_in(cpu);
            }
        }
    }

    /// Returns the usable CPUs.
    pub fn usable(&self) -> CpuSet {
        let usable = (0..self.cpus()).filter(|&cpu| self.seats.cpus[cpu].usable);
        usable.map(|cpu| self.hardware.os(cpu)).collect()
    }

    /// Ends a program: all its threads, at once.
    pub fn stop(&mut self, program: usize) {
        // A program that has ended cannot be ended again.
        if self.agenda.get(program).is_none_or(|started| started.ended.is_some()) {
            return;
        }
        let started = &mut self.agenda[program];
        started.stopped = true;
        started.jobs = Some(0);
        let begun = started.begun;
        for at in 0..self.roster.len() {
            if self.roster[at].program as usize == program && self.roster[at].phase != Phase::Over {
                self.end(at);
            }
        }
        if !begun && finite(&self.agenda[program].program) {
            self.program_over(program);
        }
    }
}
