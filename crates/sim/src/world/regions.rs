//! Regions of processes with teams: a team opens, computes, and closes; then the process pauses.
//!
//! The threads of a process are born with it. A team is the first of them, as many as the process
//! asks for or as the budget of its hold grants; the others sleep. Work of a region is divided
//! equally among its team.

use super::budgets::ProcessUse;
use super::timeline::Slot;
use super::{Phase, World};
use crate::program::Body;
use crate::progress::Progress;
use crate::sched::TaskState;

/// Regions of a process with teams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Regions {
    /// Number of regions that it has still to open.
    left: u32,
    /// Threads of its team; 0 if none is open.
    pub(super) size: u32,
    /// When its last team opened, ns.
    pub(super) opened: u64,
    /// When it started, or its last pause ended, ns.
    pub(super) came: u64,
}

impl<P: Progress> World<P> {
    /// Starts the regions of a process; its threads were born asleep.
    pub(super) fn start_regions(&mut self, program: usize, regions: u32) {
        self.agenda[program].regions.left = regions.max(1);
        self.resume_regions(program);
    }

    /// Goes on after the start or a pause.
    pub(super) fn resume_regions(&mut self, program: usize) {
        self.agenda[program].regions.came = self.timeline.now();
        let size = self.open_team(program);
        let members = self.take_members(program);
        for &member in &members[..size] {
            self.take_part(member as usize, program, None);
        }
        self.give_members(program, members);
    }

    /// Opens the team of the next region, and returns its size.
    fn open_team(&mut self, program: usize) -> usize {
        let wanted = self.agenda[program].program.threads;
        let size = match self.agenda[program].program.body {
            Body::Teams { hold: Some(hold), .. } => self.granted(program, wanted, hold),
            _ => wanted,
        };
        let now = self.timeline.now();
        let regions = &mut self.agenda[program].regions;
        (regions.size, regions.opened) = (size, now);
        regions.left = regions.left.saturating_sub(1);
        let team = self.agenda[program].team as usize;
        self.teams[team].first = Some(size);
        size as usize
    }

    /// Returns the threads that the budget of a hold grants a process.
    fn granted(&mut self, program: usize, wanted: u32, hold: u32) -> u32 {
        let now = self.timeline.now();
        let mut alive = Vec::new();
        if self.budgets.is_due(hold, program, now) {
            let others = self.budgets.programs(hold).chain([program]);
            alive.extend(others.filter(|&at| self.agenda[at].ended.is_none()).map(|at| self.used(at)));
        }
        self.budgets.open(hold, program, wanted, now, &alive)
    }

    /// Returns the use of CPUs by a process.
    fn used(&self, program: usize) -> ProcessUse {
        let members = &self.teams[self.agenda[program].team as usize].members;
        let run = |&at: &u32| {
            let (at, task) = (at as usize, &self.seats.tasks[at as usize]);
            let going = match task.state {
                TaskState::Running => self.timeline.now() - self.clocks.since(task.cpu as usize),
                _ => 0,
            };
            self.roster[at].run + going
        };
        let initial = members.first().map(|&at| self.seats.tasks[at as usize].state);
        ProcessUse {
            program,
            cpu_ns: members.iter().map(run).sum(),
            is_ready: initial.is_some_and(|state| state != TaskState::Off),
        }
    }

    /// Lets a thread compute its part of the region.
    fn take_part(&mut self, at: usize, program: usize, waker: Option<usize>) {
        let Body::Teams { work, .. } = self.agenda[program].program.body else { return };
        let part = work.0 as f64 / f64::from(self.agenda[program].regions.size.max(1));
        let thread = &mut self.roster[at];
        (thread.segment, thread.last, thread.segments) = (part, part, 1);
        self.go_on(at, waker);
    }

    /// Ends a region: all threads of its team have done their parts.
    pub(super) fn region_over(&mut self, program: usize, last: usize) {
        let Body::Teams { pause, hold, .. } = self.agenda[program].program.body else { return };
        if let Some(hold) = hold {
            self.budgets.close(hold, program);
        }
        let before = std::mem::take(&mut self.agenda[program].regions.size) as usize;
        let waker = self.seats.tasks[last].cpu as usize;
        let is_end = self.agenda[program].regions.left == 0;
        let goes_on = !is_end && pause.is_none();
        let size = if goes_on { self.open_team(program) } else { 0 };
        let members = self.take_members(program);
        // The last thread first: it has a CPU.
        let place = members.iter().position(|&member| member as usize == last).unwrap_or(0);
        let order = std::iter::once(place).chain((0..members.len()).filter(|&at| at != place));
        for at in order {
            let member = members[at] as usize;
            if is_end {
                self.end(member);
            } else if at < size {
                self.take_part(member, program, Some(waker));
            } else if at < before {
                self.retreat(member);
            }
        }
        if let (false, Some(pause), Some(&master)) = (is_end, pause, members.first()) {
            let at = self.timeline.now().saturating_add(pause.0);
            self.timeline.plan(Slot::Alarm(master as usize), at);
        }
        self.give_members(program, members);
    }

    /// Puts a thread to sleep that has no part in the next region.
    fn retreat(&mut self, at: usize) {
        match self.seats.tasks[at].state {
            TaskState::Running => self.sleep(at, self.seats.tasks[at].cpu as usize),
            TaskState::Queued => {
                self.leave_queue(at);
                self.roster[at].phase = Phase::Sleeps;
                self.roster[at].sleeps += 1;
            }
            TaskState::Off => {}
        }
    }

    fn take_members(&mut self, program: usize) -> Vec<u32> {
        let team = self.agenda[program].team as usize;
        std::mem::take(&mut self.teams[team].members)
    }

    fn give_members(&mut self, program: usize, members: Vec<u32>) {
        let team = self.agenda[program].team as usize;
        self.teams[team].members = members;
    }
}
