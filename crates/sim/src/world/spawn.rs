//! Spawn of programs and threads: the start of programs, the start and the end of threads.

use super::regions::Regions;
use super::timeline::Slot;
use super::{AddedProgram, BarrierTeam, Phase, SimThread, World};
use crate::program::{Bind, Body, ProgramSpec};
use crate::progress::{Progress, quiet};
use crate::sched::{JoinReason, Task};
use trimtab_core::ids::{Id, Pu};
use trimtab_core::set::Set;
use trimtab_core::time::{Moment, Span};

/// Parameters of a new thread.
struct NewThread {
    rank: u32,
    team: u32,
    segment: f64,
    last: f64,
    segments: u64,
}

impl<P: Progress> World<P> {
    /// Adds a program, to start at its start time, or at once if that is past. Returns its number.
    pub fn add(&mut self, program: ProgramSpec) -> usize {
        let (start, started) = self.enrolled(program);
        let at = self.agenda.insert(start, started);
        self.plan_agenda();
        at
    }

    /// Adds many programs, each as if alone, in the time of one sort.
    pub(super) fn add_all(&mut self, programs: impl IntoIterator<Item = ProgramSpec>) {
        let programs: Vec<(u64, AddedProgram)> =
            programs.into_iter().map(|program| self.enrolled(program)).collect();
        self.agenda.extend(programs);
        self.plan_agenda();
    }

    /// Keeps the run going until [`Self::let_go`] was called for this number of programs: programs
    /// that end by themselves and are still to be added.
    pub(crate) fn hold(&mut self, programs: u32) {
        self.agenda.hold(programs);
    }

    /// Notes that an awaited program has been added.
    pub(crate) fn let_go(&mut self) {
        self.agenda.let_go();
    }

    /// Returns a program in its state before the start, and its start time in ns.
    fn enrolled(&mut self, program: ProgramSpec) -> (u64, AddedProgram) {
        let start = program.start.0.max(self.timeline.now());
        let mask = program.mask.as_ref().map(|mask| self.hardware.pus(mask));
        if let Body::Teams { hold: Some(hold), .. } = program.body {
            let all = || (0..self.cpus()).map(Pu::from_index).collect();
            let cpus = mask.clone().unwrap_or_else(all);
            self.budgets.add_cpus(hold, &cpus);
        }
        let jobs = match program.body {
            Body::Churn { jobs, .. } => jobs,
            _ => Some(0),
        };
        let started = AddedProgram {
            mask,
            team: 0,
            alive: 0,
            jobs,
            born: 0,
            begun: false,
            ended: None,
            stopped: false,
            regions: Regions::default(),
            program,
        };
        (start, started)
    }

    fn plan_agenda(&mut self) {
        match self.agenda.next() {
            Some(when) => self.timeline.plan(Slot::Agenda, when),
            None => self.timeline.cancel(Slot::Agenda),
        }
    }

    /// Starts the programs that are due.
    pub(super) fn start_due(&mut self) {
        while let Some(at) = self.agenda.take_due(self.timeline.now()) {
            if !self.agenda[at].stopped {
                self.start(at);
            }
        }
        self.plan_agenda();
    }

    fn start(&mut self, at: usize) {
        self.agenda[at].begun = true;
        let program = &self.agenda[at].program;
        let (threads, body) = (program.threads, program.body.clone());
        let team = self.teams.len() as u32;
        self.teams.push(BarrierTeam::default());
        self.agenda[at].team = team;
        match body {
            Body::Spmd { work, interval, imbalance, .. } => {
                for rank in 0..threads {
                    let place =
                        if threads > 1 { 2.0 * f64::from(rank) / f64::from(threads - 1) - 1.0 } else { 0.0 };
                    let factor = 1.0 + imbalance * place;
                    let every = interval.map_or(work.0, |interval| interval.0.min(work.0)).max(1);
                    let segments = work.0.div_ceil(every).max(1);
                    let last = work.0.saturating_sub((segments - 1) * every);
                    let new = NewThread {
                        rank,
                        team,
                        segment: every as f64 * factor,
                        last: last as f64 * factor,
                        segments,
                    };
                    self.spawn_thread(at, &new);
                }
            }
            Body::Nested { inner, regions, work } => {
                for outer in 0..threads {
                    let own = self.teams.len() as u32;
                    self.teams.push(BarrierTeam::default());
                    for rank in 0..inner {
                        let (rank, work) = (outer * inner + rank, work.0 as f64);
                        let new = NewThread {
                            rank,
                            team: own,
                            segment: work,
                            last: work,
                            segments: u64::from(regions.max(1)),
                        };
                        self.spawn_thread(at, &new);
                    }
                }
            }
            Body::Teams { regions, .. } => {
                for rank in 0..threads {
                    let asleep = NewThread { rank, team, segment: 0.0, last: 0.0, segments: 0 };
                    self.spawn_thread(at, &asleep);
                }
                self.start_regions(at, regions);
            }
            Body::Hog { duty } => {
                let segment = duty.map_or(f64::INFINITY, |(work, _)| work.0 as f64);
                for rank in 0..threads {
                    self.spawn_thread(at, &NewThread { rank, team, segment, last: segment, segments: 1 });
                }
            }
            Body::Churn { at_once, .. } => {
                for _ in 0..at_once {
                    self.next_job(at);
                }
            }
        }
        if self.agenda[at].alive == 0 {
            self.program_over(at);
        }
    }

    /// Starts the next process of a churn, if there is to be one.
    pub(super) fn next_job(&mut self, at: usize) {
        let started = &mut self.agenda[at];
        let Body::Churn { work, .. } = started.program.body else { return };
        if started.stopped || started.jobs == Some(0) {
            return;
        }
        started.jobs = started.jobs.map(|jobs| jobs - 1);
        let (rank, team) = (started.born, started.team);
        let mut rng = self.random.threads.nth(at as u64).nth(u64::from(rank));
        let work = (work.0 as f64 * rng.exponential()).max(1.0);
        self.spawn_thread(at, &NewThread { rank, team, segment: work, last: work, segments: 1 });
    }

    fn spawn_thread(&mut self, program: usize, new: &NewThread) {
        let (at, more) = self.roster.place();
        if more {
            self.seats.tasks.push(Task::default());
            self.timeline.grow(self.roster.len());
        }
        let home = self.home(program, new.rank);
        let started = &mut self.agenda[program];
        started.alive += 1;
        started.born += 1;
        let of = &started.program;
        let id = of.balanced.then(|| self.roster.watch(at));
        self.roster[at] = SimThread {
            program: program as u32,
            id,
            rank: new.rank,
            segment: new.segment,
            last: new.last,
            segments: new.segments,
            team: new.team,
            stalls: !quiet(&of.footprint),
            rng: self.random.threads.nth(program as u64).fork("jitter").nth(u64::from(new.rank)),
            home: home.clone(),
            ..SimThread::vacant()
        };
        let (weight, group) = (of.weight, of.group);
        self.seats.uneven |= weight != 1024;
        self.seats.tasks[at] = Task::born(weight, group, new.rank);
        self.seats.set_mask(at, home);
        self.memory.born(Moment(self.timeline.now()), at, program, &self.agenda[program].program.footprint);
        let is_asleep = matches!(self.agenda[program].program.body, Body::Teams { .. });
        if is_asleep {
            self.roster[at].phase = Phase::Sleeps;
        } else if new.segment.is_finite() {
            self.begin_segment(at);
        } else {
            (self.roster[at].phase, self.roster[at].left) = (Phase::Computes, f64::INFINITY);
        }
        if !matches!(self.agenda[program].program.body, Body::Churn { .. }) {
            self.teams[new.team as usize].members.push(at as u32);
        }
        let whole = self.agenda[program].team;
        if whole != new.team {
            self.teams[whole as usize].members.push(at as u32);
        }
        let begins = self.begins_on(program, new.rank, at);
        let cpu = begins.unwrap_or_else(|| self.scheduler.fork(&mut self.seats, at));
        self.settle(cpu);
        self.seats.tasks[at].cpu = cpu as u32;
        if is_asleep {
            return;
        }
        self.scheduler.joins(&mut self.seats, at, cpu, JoinReason::New);
        self.seats.push(at, cpu, self.timeline.now());
        self.came(at, cpu);
    }

    /// Returns the mask that a program's runtime gives a thread.
    fn home(&self, program: usize, rank: u32) -> Option<Set<Pu>> {
        let started = &self.agenda[program];
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
            Bind::Free | Bind::BeginOn(_) => started.mask.clone(),
            Bind::Close => one(rank),
            Bind::Spread => {
                let cpus = started.mask.as_ref().map_or(self.cpus(), Set::len);
                let threads = of.threads.max(1) as usize;
                one(if threads < cpus { rank * cpus / threads } else { rank })
            }
            Bind::List(places) => places
                .get(rank % places.len().max(1))
                .map(|cpus| self.hardware.pus(cpus))
                .or_else(|| started.mask.clone()),
        }
    }

    /// Returns the CPU on which a new thread begins, if its program says so: one of the least
    /// loaded ones of the thread's set.
    fn begins_on(&self, program: usize, rank: u32, thread: usize) -> Option<usize> {
        let Bind::BeginOn(places) = &self.agenda[program].program.bind else { return None };
        let cpus = self.hardware.pus(places.get(rank as usize % places.len().max(1))?);
        let allowed = || cpus.iter().map(Id::index).filter(|&cpu| self.seats.allowed(thread, cpu));
        let least = allowed().map(|cpu| self.seats.load(cpu)).min()?;
        let free: Vec<usize> = allowed().filter(|&cpu| self.seats.load(cpu) == least).collect();
        let mut rng = self.random.threads.nth(program as u64).fork("begin").nth(u64::from(rank));
        free.get(rng.below(free.len() as u64) as usize).copied()
    }

    /// Cleans up after a thread that has left its queue for the last time.
    pub(super) fn clean_up(&mut self, at: usize) {
        self.roster[at].phase = Phase::Over;
        self.memory.ended(Moment(self.timeline.now()), at);
        self.timeline.cancel(Slot::Alarm(at));
        let thread = &self.roster[at];
        self.counters.done += thread.done;
        self.counters.asked += if thread.asked.is_finite() { thread.asked } else { 0.0 };
        self.counters.ran = self.counters.ran + Span(thread.run);
        let program = thread.program as usize;
        let again = matches!(self.agenda[program].program.body, Body::Churn { .. });
        self.roster.retire(at, again);
        self.agenda[program].alive -= 1;
        if self.agenda[program].alive == 0 && self.agenda[program].jobs == Some(0) {
            self.program_over(program);
        }
    }

    pub(super) fn program_over(&mut self, at: usize) {
        self.agenda.end(at, self.timeline.now());
    }
}

impl SimThread {
    pub(super) fn vacant() -> Self {
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
