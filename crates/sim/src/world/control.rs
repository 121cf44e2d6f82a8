//! What is done to a running world from outside: masks, CPUs that vanish, programs that are stopped.

use super::{Phase, World, finite};
use crate::progress::Progress;
use crate::sched::{State, emptiest};
use trimtab_core::ids::{Id, NodeId, OsNode, Pu, ThreadId};
use trimtab_core::set::{CpuSet, Set};
use trimtab_core::time::{Moment, Span};

/// Why a thread's mask was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The thread has ended, or nobody looks after it.
    Vanished,
    /// None of the CPUs may be used.
    Cpus,
    /// There is no such node.
    Memory,
}

impl<P: Progress> World<P> {
    /// The thread with a number, while it lives.
    pub(crate) fn watched(&self, id: ThreadId) -> Option<usize> {
        self.roster.watched(id.index())
    }

    /// Where a thread may run, `None` inside for anywhere; `None` when it has ended or nobody looks after it.
    pub(crate) fn mask(&self, id: ThreadId) -> Option<Option<Set<Pu>>> {
        let at = self.watched(id)?;
        Some(self.seats.tasks[at].mask.as_deref().cloned())
    }

    /// Lets a thread run where it might before, even if no CPU of that may be used now.
    pub(crate) fn give_back(&mut self, id: ThreadId, mask: Option<Set<Pu>>) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        self.masked(at, mask);
        Ok(())
    }

    /// Lets a thread run on these CPUs only, from now on.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub fn confine(&mut self, id: ThreadId, cpus: &CpuSet) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        let pus = self.hardware.pus(cpus);
        if !pus.iter().any(|pu| self.seats.cpus[pu.index()].usable) {
            return Err(Refused::Cpus);
        }
        self.masked(at, Some(pus));
        Ok(())
    }

    /// Moves a thread to these CPUs, and lets it run wherever it might before at once.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub fn nudge(&mut self, id: ThreadId, cpus: &CpuSet) -> Result<(), Refused> {
        let at = self.watched(id).ok_or(Refused::Vanished)?;
        let before = self.seats.tasks[at].mask.clone();
        self.confine(id, cpus)?;
        self.masked(at, before.map(|mask| *mask));
        Ok(())
    }

    /// Brings the memory of a thread's program to a node. Whoever's pages are moved stands still for it.
    ///
    /// # Errors
    /// [`Refused`] says why not.
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

    /// Keeps a thread that runs from getting on for so long. False, and nothing happens, where it does not run.
    pub(crate) fn hinder(&mut self, at: usize, cost: Span) -> bool {
        let runs = self.seats.tasks[at].state == State::Running;
        if runs {
            self.delay(at, cost);
        }
        runs
    }

    /// Takes so much time of a CPU: of one that rests, if there is any, else of the first from this one on; the answer is whose turn is next.
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

    /// Keeps a thread from getting on for so long, once it runs.
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
        if self.seats.tasks[at].state == State::Off {
            return;
        }
        if self.seats.allowed(at, cpu) {
            // Who could not be pulled from here may be now.
            self.rearm(cpu);
        } else {
            self.evict(at);
        }
    }

    /// Moves a thread from where it may not be.
    fn evict(&mut self, at: usize) {
        let to = emptiest(&self.seats, at);
        if to != self.seats.tasks[at].cpu as usize {
            self.relocate(at, to);
            self.came(at, to);
        }
    }

    /// The CPUs that may be used from now on. Threads on others are moved; one whose mask has none of them left may run
    /// anywhere until one returns. Without any, nothing changes.
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
        // Who was let out because all of its CPUs were gone is put back when one returns, as a cpuset does.
        for task in 0..self.seats.tasks.len() {
            let seat = &self.seats.tasks[task];
            if seat.state != State::Off && !self.seats.allowed(task, seat.cpu as usize) {
                self.evict(task);
            }
        }
        for cpu in pus.iter().map(Id::index) {
            if self.seats.current(cpu).is_none() {
                self.switch_in(cpu);
            }
        }
    }

    /// The CPUs that may be used.
    pub fn usable(&self) -> CpuSet {
        let usable = (0..self.cpus()).filter(|&cpu| self.seats.cpus[cpu].usable);
        usable.map(|cpu| self.hardware.os(cpu)).collect()
    }

    /// Ends a program: all its threads, at once.
    pub fn stop(&mut self, program: usize) {
        // What has ended cannot be ended any more.
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
