//! Stage of a run: a host over a world, on which the scenario's events happen in time.

use super::{Happening, Scenario, ScenarioEvent};
use crate::host::Simulated;
use crate::memory::Memory;
use crate::outcome::{Outcome, ProgramOutcome, Tally};
use crate::program::{Footprint, ProgramSpec};
use crate::rng::Rng;
use crate::world::{World, finite};
use std::convert::Infallible;
use trimtab_core::balance::{Decision, Outcome as Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::observe::Sample;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Host on which events happen.
pub(super) struct Stage<'a> {
    scenario: &'a Scenario,
    host: Simulated<Memory>,
    next: usize,
    /// Places in the world of the programs that events started, in order.
    started: Vec<usize>,
    /// Number of programs that end and that events have not started yet.
    expected: u32,
    /// Whether nothing in the scenario ends by itself.
    endless: bool,
    /// Period of inspections between two samples; `None` for never.
    every: Option<Span>,
    inspect: &'a mut dyn FnMut(&World<Memory>),
}

/// Returns the programs of a scenario, including those that arrive.
fn programs(scenario: &Scenario) -> Vec<ProgramSpec> {
    let rng = Rng::new(scenario.seed).fork("arrivals");
    let mut programs = scenario.programs.clone();
    for (stream, arrivals) in (0..).zip(&scenario.arrivals) {
        let mut rng = rng.nth(stream);
        let mut at = Moment(0);
        for number in 1..=arrivals.most {
            at = at + arrivals.every.times(rng.exponential());
            if at >= scenario.end {
                break;
            }
            let name = format!("{} {number}", arrivals.program.name);
            programs.push(ProgramSpec { name, start: at, ..arrivals.program.clone() });
        }
    }
    programs.into_iter().map(|program| admitted(scenario, program)).collect()
}

/// Returns a program as it runs: if memory costs nothing, its footprint is dropped.
fn admitted(scenario: &Scenario, program: ProgramSpec) -> ProgramSpec {
    let footprint = if scenario.memory { program.footprint } else { Footprint::default() };
    ProgramSpec { footprint, ..program }
}

/// Returns the number of programs that end and that events start before the scenario's end.
fn expected(scenario: &Scenario) -> u32 {
    let ending = |event: &&ScenarioEvent| match &event.what {
        Happening::Start(program) => event.at < scenario.end && finite(program),
        Happening::Usable(_) | Happening::Stop(_) => false,
    };
    scenario.events.iter().filter(ending).count() as u32
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        every: Option<Span>,
        inspect: &'a mut dyn FnMut(&World<Memory>),
    ) -> Self {
        let memory = Memory::new(&scenario.model);
        let programs = programs(scenario);
        let expected = expected(scenario);
        let endless = expected == 0 && !programs.iter().any(finite);
        let mut world = World::with(
            scenario.model.clone(),
            &scenario.kernel,
            programs,
            Rng::new(scenario.seed).fork("world").draw(),
            memory,
        );
        // Programs to come keep a run alive; if nothing ends by itself, the run goes on to its end.
        world.hold(if endless { 1 } else { expected });
        let host = Simulated::new(world, scenario.end)
            .paying(scenario.observer_cost, Rng::new(scenario.seed).fork("counters"));
        let mut stage =
            Self { scenario, host, next: 0, started: Vec::new(), expected, endless, every, inspect };
        // Events at the very start have always been so: policies see no other machine.
        while let Some(event) = scenario.events.get(stage.next).filter(|event| event.at == Moment(0)) {
            stage.next += 1;
            stage.happen(&event.what);
        }
        stage
    }

    pub(super) fn usable(&self) -> CpuSet {
        self.host.world().usable()
    }

    /// Lets this time pass.
    pub(super) fn pass(&mut self, span: Span) -> Awake {
        (self.inspect)(self.host.world());
        let until = self.host.world().now() + span;
        let Ok(awake) = self.wait(until);
        awake
    }

    /// Gives all threads their own masks back.
    pub(super) fn give_back(&mut self) {
        self.host.restore();
    }

    /// Returns the world.
    pub(super) fn world(&self) -> &World<Memory> {
        self.host.world()
    }

    /// Returns the time of the next inspection, if it is before a moment.
    fn inspection(&self, before: Moment) -> Option<Moment> {
        let every = self.every?.0.max(1);
        let next = Moment((self.host.world().now().0 / every + 1).saturating_mul(every));
        (next < before).then_some(next)
    }

    fn happen(&mut self, what: &Happening) {
        let own = self.scenario.programs.len();
        let world = self.host.world_mut();
        match what {
            Happening::Usable(cpus) => world.set_usable(cpus),
            Happening::Start(program) => {
                let start = world.now();
                let program = admitted(self.scenario, ProgramSpec { start, ..(**program).clone() });
                let ends = finite(&program);
                self.started.push(world.add(program));
                if ends {
                    self.expected = self.expected.saturating_sub(1);
                    world.let_go();
                }
            }
            Happening::Stop(program) => {
                let started = program.checked_sub(own).map(|at| self.started.get(at).copied());
                if let Some(at) = started.unwrap_or(Some(*program)) {
                    world.stop(at);
                }
            }
        }
    }

    /// Returns the result of the run.
    pub(super) fn outcome(&self, tally: Tally) -> Outcome {
        let world = self.host.world();
        let ended = world.now();
        let usable = world.usable();
        let busy: Vec<f64> =
            world.busy().filter(|(cpu, _)| usable.contains(*cpu)).map(|(_, busy)| busy.seconds()).collect();
        let most = busy.iter().copied().fold(0.0, f64::max);
        let least = busy.iter().copied().fold(f64::INFINITY, f64::min);
        let capacity = world.model().capacity();
        let mut programs: Vec<ProgramOutcome> = (0..)
            .zip(world.programs())
            .map(|(at, program)| ProgramOutcome {
                name: program.name,
                start: program.start,
                ends: program.ends,
                stopped: program.stopped,
                makespan: world.makespan(at),
                ratio: None,
                threads: program.born,
                work: Span::ZERO,
                run: Span::ZERO,
                wait: Span::ZERO,
                local: 0.0,
                remote: 0.0,
            })
            .collect();
        for (at, thread) in world.threads().enumerate() {
            let program = &mut programs[thread.program];
            let counts = world.progress().counts(ended, at);
            program.work = program.work + Span(thread.done as u64);
            program.run = program.run + thread.run;
            program.wait = program.wait + thread.wait;
            program.local += counts.local;
            program.remote += counts.remote;
        }
        for program in &mut programs {
            let ideal = program.work.seconds() / capacity;
            let makespan = program.makespan.filter(|_| program.ends && !program.stopped);
            program.ratio =
                makespan.map(|makespan| makespan.seconds() / ideal).filter(|ratio| ratio.is_finite());
        }
        let over = programs.iter().filter(|program| program.makespan.is_some() && !program.stopped).count();
        let open = programs.iter().filter(|program| program.ends && program.makespan.is_none()).count();
        let seconds = ended.since(Moment(0)).seconds();
        let counters = world.counters();
        Outcome {
            ended,
            complete: open == 0 && self.expected == 0 && (!self.endless || ended >= self.scenario.end),
            balance: (most > 0.0).then(|| least / most),
            busy: share(busy.iter().sum(), seconds * busy.len() as f64),
            throughput: share(over as f64, seconds),
            programs,
            samples: tally.samples,
            sampling_time: self.host.paid(),
            moved: tally.moved,
            refused: tally.refused,
            migrations: counters.moves,
            switches: counters.switches,
            events: counters.events,
        }
    }
}

/// Returns a part over its whole; `None` if the whole is zero.
fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

impl Host for Stage<'_> {
    type Error = Infallible;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Infallible> {
        (self.inspect)(self.host.world());
        self.host.observe(wanted)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Settled>, Infallible> {
        self.host.apply(decisions)
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, Infallible> {
        let scenario = self.scenario;
        loop {
            let event = scenario.events.get(self.next).filter(|event| event.at <= until);
            let at = event.map_or(until, |event| event.at);
            if let Some(next) = self.inspection(at) {
                if self.host.wait(next)? == Awake::Over {
                    return Ok(Awake::Over);
                }
                (self.inspect)(self.host.world());
                continue;
            }
            let awake = self.host.wait(at)?;
            let Some(event) = event else { return Ok(awake) };
            if awake == Awake::Over {
                return Ok(Awake::Over);
            }
            // A run that is inspected periodically is also inspected before and after events.
            if self.every.is_some() {
                (self.inspect)(self.host.world());
            }
            self.next += 1;
            self.happen(&event.what);
            if self.every.is_some() {
                (self.inspect)(self.host.world());
            }
        }
    }
}
