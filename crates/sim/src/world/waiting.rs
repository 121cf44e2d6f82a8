//! Phases of threads: a segment of work, a barrier, the next segment; sleep and wake-up.

use super::timeline::Slot;
use super::{Phase, World};
use crate::program::{Body, WaitMode};
use crate::progress::Progress;
use crate::sched::{JoinReason, TaskState};
use trimtab_core::time::Moment;

impl<P: Progress> World<P> {
    /// Ends the running thread's phase: its work is done, or its time of polling is over.
    pub(super) fn phase_over(&mut self, at: usize, cpu: usize) {
        match self.roster[at].phase {
            Phase::Computes => {
                let thread = &mut self.roster[at];
                thread.done += thread.left;
                thread.left = 0.0;
                self.work_over(at, cpu);
            }
            Phase::Polls => self.sleep(at, cpu),
            Phase::Sleeps | Phase::Over => {}
        }
    }

    fn work_over(&mut self, at: usize, cpu: usize) {
        let program = self.roster[at].program as usize;
        match self.agenda[program].program.body {
            Body::Spmd { .. } | Body::Nested { .. } | Body::Teams { .. } => self.arrive(at),
            Body::Hog { duty: Some((_, pause)) } => {
                self.timeline.plan(Slot::Alarm(at), self.timeline.now().saturating_add(pause.0));
                self.stops_computing(at);
                self.sleep(at, cpu);
            }
            Body::Hog { duty: None } => {
                self.roster[at].left = f64::INFINITY;
                self.arm(cpu);
            }
            Body::Churn { .. } => {
                self.end(at);
                self.next_job(program);
            }
        }
    }

    /// Notes that a thread stops computing; the thread keeps its CPU.
    fn stops_computing(&mut self, at: usize) {
        let task = &self.seats.tasks[at];
        if self.roster[at].stalls
            && self.roster[at].phase == Phase::Computes
            && task.state == TaskState::Running
        {
            self.memory.off_cpu(Moment(self.timeline.now()), at);
            self.plan_epoch();
        }
        self.roster[at].phase = Phase::Polls;
        self.roster[at].left = f64::INFINITY;
    }

    /// Lets a thread reach the barrier of its team.
    pub(super) fn arrive(&mut self, at: usize) {
        let team = self.roster[at].team as usize;
        self.stops_computing(at);
        self.teams[team].arrived += 1;
        if self.teams[team].arrived as usize == self.teams[team].parties() {
            self.release(team, at);
        } else {
            self.waits(at);
        }
    }

    /// Lets a thread wait for its team, in its program's way.
    fn waits(&mut self, at: usize) {
        let wait = self.agenda[self.roster[at].program as usize].program.wait;
        let (state, cpu) = (self.seats.tasks[at].state, self.seats.tasks[at].cpu as usize);
        match wait {
            _ if state == TaskState::Off => self.roster[at].phase = Phase::Sleeps,
            WaitMode::Spin => {}
            WaitMode::Yield => self.seats.set_passive(at, true),
            WaitMode::SpinThenSleep(patience) => self.roster[at].left = patience.0 as f64,
            WaitMode::Sleep if state == TaskState::Queued => {
                self.leave_queue(at);
                self.roster[at].phase = Phase::Sleeps;
                self.roster[at].sleeps += 1;
                return;
            }
            WaitMode::Sleep => {
                self.sleep(at, cpu);
                return;
            }
        }
        if state != TaskState::Off {
            self.rearm(cpu);
        }
    }

    /// Opens a barrier: all have arrived. The last thread goes on first, and wakes the others.
    fn release(&mut self, team: usize, last: usize) {
        self.counters.barriers += 1;
        self.teams[team].arrived = 0;
        let program = self.roster[last].program as usize;
        if matches!(self.agenda[program].program.body, Body::Teams { .. }) {
            return self.region_over(program, last);
        }
        let waker = self.seats.tasks[last].cpu as usize;
        self.proceed(last, waker);
        // No thread joins or leaves a team while it continues, but its members may end.
        let members = std::mem::take(&mut self.teams[team].members);
        for &member in &members {
            if member as usize != last {
                self.proceed(member as usize, waker);
            }
        }
        self.teams[team].members = members;
    }

    /// Lets a thread that waited go on: to its next segment, to the barrier of the whole program,
    /// or to its end.
    fn proceed(&mut self, at: usize, waker: usize) {
        if self.roster[at].phase == Phase::Over {
            return;
        }
        if self.roster[at].segments == 0 {
            let (program, team) = (self.roster[at].program as usize, self.roster[at].team);
            let whole = self.agenda[program].team;
            if team == whole {
                self.end(at);
            } else {
                self.roster[at].team = whole;
                self.arrive(at);
            }
            return;
        }
        self.go_on(at, Some(waker));
    }

    /// Lets a thread that waits or sleeps begin its next segment.
    pub(super) fn go_on(&mut self, at: usize, waker: Option<usize>) {
        let cpu = self.seats.tasks[at].cpu as usize;
        let state = self.seats.tasks[at].state;
        if state == TaskState::Running {
            self.settle(cpu);
        }
        self.begin_segment(at);
        match state {
            TaskState::Running => {
                self.seats.set_passive(at, false);
                self.computes(at, cpu);
                self.rerate(cpu);
            }
            TaskState::Queued => {
                self.seats.set_passive(at, false);
                // The thread that runs there may have to give way now.
                if self.seats.current(cpu).is_some_and(|running| self.seats.tasks[running].passive) {
                    self.rearm(cpu);
                }
            }
            TaskState::Off => self.wake(at, waker),
        }
    }

    /// Begins the next segment of work.
    pub(super) fn begin_segment(&mut self, at: usize) {
        let thread = &mut self.roster[at];
        let program = &self.agenda[thread.program as usize].program;
        thread.segments -= 1;
        let mut work = if thread.segments == 0 { thread.last } else { thread.segment };
        if let Body::Spmd { jitter, .. } = program.body
            && jitter > 0.0
        {
            // The factor is never below a twentieth, because no program does an interval in no
            // time.
            work *= (1.0 + jitter * thread.rng.normal()).max(0.05);
        }
        thread.asked += work;
        thread.left = work;
        thread.phase = Phase::Computes;
    }

    /// Puts the running thread to sleep.
    pub(super) fn sleep(&mut self, at: usize, cpu: usize) {
        self.unseat(cpu);
        self.roster[at].phase = Phase::Sleeps;
        self.roster[at].sleeps += 1;
        self.scheduler.leaves(&mut self.seats, at, cpu);
        self.seats.off(at, self.timeline.now());
        self.switch_in(cpu);
    }

    /// Takes a waiting thread that wants no CPU any more out of its queue.
    pub(super) fn leave_queue(&mut self, at: usize) {
        let cpu = self.seats.tasks[at].cpu as usize;
        self.settle(cpu);
        self.roster[at].wait += self.timeline.now() - self.seats.tasks[at].since;
        self.seats.take(at);
        self.scheduler.leaves(&mut self.seats, at, cpu);
        self.seats.off(at, self.timeline.now());
        self.arm(cpu);
    }

    /// Wakes a sleeping thread. Its phase must be set already.
    pub(super) fn wake(&mut self, at: usize, waker: Option<usize>) {
        self.seats.set_passive(at, false);
        let cpu = self.scheduler.wake(&mut self.seats, at, waker);
        self.settle(cpu);
        self.scheduler.joins(&mut self.seats, at, cpu, JoinReason::Woken);
        self.roster[at].debt += self.hardware.model().switching.wake.0 as f64;
        self.counters.wakes += 1;
        self.seats.push(at, cpu, self.timeline.now());
        self.came(at, cpu);
    }

    /// Handles a thread's own alarm.
    pub(super) fn alarm(&mut self, at: usize) {
        let program = self.roster[at].program as usize;
        if self.roster[at].phase != Phase::Sleeps {
            return;
        }
        match self.agenda[program].program.body {
            Body::Hog { duty: Some((work, _)) } => {
                let thread = &mut self.roster[at];
                thread.phase = Phase::Computes;
                thread.left = work.0 as f64;
                thread.asked += thread.left;
                self.wake(at, None);
            }
            Body::Teams { .. } => self.resume_regions(program),
            _ => {}
        }
    }

    /// Ends a thread.
    pub(super) fn end(&mut self, at: usize) {
        let cpu = self.seats.tasks[at].cpu as usize;
        match self.seats.tasks[at].state {
            TaskState::Running => {
                self.unseat(cpu);
                self.roster[at].phase = Phase::Over;
                self.scheduler.leaves(&mut self.seats, at, cpu);
                self.seats.off(at, self.timeline.now());
                self.switch_in(cpu);
            }
            TaskState::Queued => self.leave_queue(at),
            TaskState::Off => {}
        }
        self.clean_up(at);
    }
}
