//! Programs start, threads are born and end.

use super::{Phase, Started, Team, Thread, World};
use crate::program::{Bind, Body, Program};
use crate::progress::{Progress, quiet};
use crate::sched::{Task, Why};
use trimtab_core::ids::{Id, Pu};
use trimtab_core::set::{CpuSet, Set};
use trimtab_core::time::{Moment, Span};

/// What a new thread is given.
struct Birth {
    rank: u32,
    team: u32,
    segment: f64,
    last: f64,
    segments: u64,
}

impl<P: Progress> World<P> {
    /// Adds a program, to start when it says, or at once if that is past. The answer is its number.
    pub fn add(&mut self, program: Program) -> usize {
        let (start, at) = self.enroll(program);
        // The last one first; of equal ones, the one added first comes first.
        let place = self.agenda.partition_point(|&(when, _)| when > start);
        self.agenda.insert(place, (start, at));
        self.plan_agenda();
        at as usize
    }

    /// Adds many programs: each as if alone, and together in no more time than it takes to sort them.
    pub(super) fn add_all(&mut self, programs: impl IntoIterator<Item = Program>) {
        for program in programs {
            let due = self.enroll(program);
            self.agenda.push(due);
        }
        self.agenda.sort_unstable_by(|one, other| other.cmp(one));
        self.plan_agenda();
    }

    /// The run is not over before as many are let go: programs that end are still to be added.
    pub(crate) fn hold(&mut self, programs: u32) {
        self.open += programs;
    }

    /// One that was waited for has been added.
    pub(crate) fn let_go(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Takes a program in; the answer is when it starts, and its number.
    fn enroll(&mut self, program: Program) -> (u64, u32) {
        let at = self.programs.len();
        let start = program.start.0.max(self.now);
        self.open += u32::from(finite(&program));
        let mask = program.mask.as_ref().map(|mask| self.pus(mask));
        let jobs = match program.body {
            Body::Churn { jobs, .. } => jobs,
            _ => Some(0),
        };
        self.programs.push(Started {
            mask,
            team: 0,
            alive: 0,
            jobs,
            born: 0,
            begun: false,
            ended: None,
            stopped: false,
            program,
        });
        (start, at as u32)
    }

    fn plan_agenda(&mut self) {
        let slot = self.agenda_slot();
        match self.agenda.last() {
            Some(&(when, _)) => self.events.plan(slot, when),
            None => self.events.cancel(slot),
        }
    }

    /// PUs of a set of CPUs, as far as the machine has them.
    pub(super) fn pus(&self, cpus: &CpuSet) -> Set<Pu> {
        cpus.iter().filter_map(|cpu| self.model.machine.pu(cpu)).collect()
    }

    /// Starts what is due.
    pub(super) fn start_due(&mut self) {
        while let Some(&(when, at)) = self.agenda.last()
            && when <= self.now
        {
            self.agenda.pop();
            if !self.programs[at as usize].stopped {
                self.start(at as usize);
            }
        }
        self.plan_agenda();
    }

    fn start(&mut self, at: usize) {
        self.programs[at].begun = true;
        let program = &self.programs[at].program;
        let (threads, body) = (program.threads, program.body.clone());
        let team = self.teams.len() as u32;
        self.teams.push(Team::default());
        self.programs[at].team = team;
        match body {
            Body::Spmd { work, interval, imbalance, .. } => {
                for rank in 0..threads {
                    let place =
                        if threads > 1 { 2.0 * f64::from(rank) / f64::from(threads - 1) - 1.0 } else { 0.0 };
                    let factor = 1.0 + imbalance * place;
                    let every = interval.map_or(work.0, |interval| interval.0.min(work.0)).max(1);
                    let segments = work.0.div_ceil(every).max(1);
                    let last = work.0.saturating_sub((segments - 1) * every);
                    let birth = Birth {
                        rank,
                        team,
                        segment: every as f64 * factor,
                        last: last as f64 * factor,
                        segments,
                    };
                    self.bear(at, &birth);
                }
            }
            Body::Nested { inner, regions, work } => {
                for outer in 0..threads {
                    let own = self.teams.len() as u32;
                    self.teams.push(Team::default());
                    for rank in 0..inner {
                        let (rank, work) = (outer * inner + rank, work.0 as f64);
                        let birth = Birth {
                            rank,
                            team: own,
                            segment: work,
                            last: work,
                            segments: u64::from(regions.max(1)),
                        };
                        self.bear(at, &birth);
                    }
                }
            }
            Body::Hog { duty } => {
                let segment = duty.map_or(f64::INFINITY, |(work, _)| work.0 as f64);
                for rank in 0..threads {
                    self.bear(at, &Birth { rank, team, segment, last: segment, segments: 1 });
                }
            }
            Body::Churn { at_once, .. } => {
                for _ in 0..at_once {
                    self.next_job(at);
                }
            }
        }
        if self.programs[at].alive == 0 {
            self.program_over(at);
        }
    }

    /// The next process of a churn, if there is to be one.
    pub(super) fn next_job(&mut self, at: usize) {
        let started = &mut self.programs[at];
        let Body::Churn { work, .. } = started.program.body else { return };
        if started.stopped || started.jobs == Some(0) {
            return;
        }
        started.jobs = started.jobs.map(|jobs| jobs - 1);
        let (rank, team) = (started.born, started.team);
        let mut rng = self.rng.nth(at as u64).nth(u64::from(rank));
        let work = (work.0 as f64 * rng.exponential()).max(1.0);
        self.bear(at, &Birth { rank, team, segment: work, last: work, segments: 1 });
    }

    fn bear(&mut self, program: usize, birth: &Birth) {
        let at = match self.free.pop() {
            Some(free) => free as usize,
            None => {
                self.threads.push(Thread::nobody());
                self.seats.tasks.push(Task::default());
                self.events.grow(self.alarm_slot(self.threads.len()));
                self.threads.len() - 1
            }
        };
        let home = self.home(program, birth.rank);
        let started = &mut self.programs[program];
        started.alive += 1;
        started.born += 1;
        let of = &started.program;
        let id = of.balanced.then_some(self.watched.len() as u32);
        if id.is_some() {
            self.watched.push(Some(at as u32));
        }
        self.threads[at] = Thread {
            program: program as u32,
            id,
            rank: birth.rank,
            segment: birth.segment,
            last: birth.last,
            segments: birth.segments,
            team: birth.team,
            stalls: !quiet(&of.footprint),
            rng: self.rng.nth(program as u64).fork("jitter").nth(u64::from(birth.rank)),
            home: home.clone(),
            ..Thread::nobody()
        };
        let (weight, group) = (of.weight, of.group);
        self.seats.uneven |= weight != 1024;
        self.seats.tasks[at] = Task::born(weight, group, birth.rank);
        self.seats.set_mask(at, home);
        self.progress.born(Moment(self.now), at, program, &self.programs[program].program.footprint);
        if birth.segment.is_finite() {
            self.begin_segment(at);
        } else {
            (self.threads[at].phase, self.threads[at].left) = (Phase::Computes, f64::INFINITY);
        }
        if !matches!(self.programs[program].program.body, Body::Churn { .. }) {
            self.teams[birth.team as usize].members.push(at as u32);
        }
        let whole = self.programs[program].team;
        if whole != birth.team {
            self.teams[whole as usize].members.push(at as u32);
        }
        let cpu = self.scheduler.fork(&mut self.seats, at);
        self.settle(cpu);
        self.seats.tasks[at].cpu = cpu as u32;
        self.scheduler.joins(&mut self.seats, at, cpu, Why::New);
        self.seats.push(at, cpu, self.now);
        self.came(at, cpu);
    }

    /// Where a program's runtime lets a thread run.
    fn home(&self, program: usize, rank: u32) -> Option<Set<Pu>> {
        let started = &self.programs[program];
        let of = &started.program;
        let one = |place: usize| {
            let all: Vec<Pu> = match &started.mask {
                Some(mask) => mask.iter().collect(),
                None => (0..self.cpus()).map(Pu::from_index).collect(),
            };
            all.get(place % all.len().max(1)).map(|&pu| std::iter::once(pu).collect())
        };
        let rank = rank as usize;
        match &of.bind {
            Bind::Free => started.mask.clone(),
            Bind::Close => one(rank),
            Bind::Spread => {
                let cpus = started.mask.as_ref().map_or(self.cpus(), Set::len);
                let threads = of.threads.max(1) as usize;
                one(if threads < cpus { rank * cpus / threads } else { rank })
            }
            Bind::List(places) => places
                .get(rank % places.len().max(1))
                .map(|cpus| self.pus(cpus))
                .or_else(|| started.mask.clone()),
        }
    }

    /// What is done when a thread has left its queue for good.
    pub(super) fn buried(&mut self, at: usize) {
        self.threads[at].phase = Phase::Over;
        self.progress.ended(Moment(self.now), at);
        self.events.cancel(self.alarm_slot(at));
        let thread = &self.threads[at];
        self.counters.done += thread.done;
        self.counters.asked += if thread.asked.is_finite() { thread.asked } else { 0.0 };
        self.counters.ran = self.counters.ran + Span(thread.run);
        let program = thread.program as usize;
        if let Some(id) = thread.id {
            self.watched[id as usize] = None;
            self.ended.push(id);
        }
        if matches!(self.programs[program].program.body, Body::Churn { .. }) {
            self.free.push(at as u32);
        }
        self.programs[program].alive -= 1;
        if self.programs[program].alive == 0 && self.programs[program].jobs == Some(0) {
            self.program_over(program);
        }
    }

    pub(super) fn program_over(&mut self, at: usize) {
        let started = &mut self.programs[at];
        if started.ended.is_none() {
            started.ended = Some(self.now);
            self.open -= u32::from(finite(&started.program));
        }
    }
}

/// Whether a program ends by itself.
pub(crate) fn finite(program: &Program) -> bool {
    !matches!(program.body, Body::Hog { .. } | Body::Churn { jobs: None, .. })
}

impl Thread {
    fn nobody() -> Self {
        Self {
            program: 0,
            id: None,
            rank: 0,
            phase: Phase::Over,
            left: 0.0,
            debt: 0.0,
            rate: 1.0,
            segment: 0.0,
            last: 0.0,
            segments: 0,
            team: 0,
            stalls: false,
            rng: crate::rng::Rng::new(0),
            home: None,
            run: 0,
            wait: 0,
            slices: 0,
            sleeps: 0,
            moves: 0,
            done: 0.0,
            asked: 0.0,
            ran_on: u32::MAX,
        }
    }
}
