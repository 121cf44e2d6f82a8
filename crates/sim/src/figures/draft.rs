//! Draft of a figure: the methods with which the files of this folder build one.
//!
//! A draft first gets its cells ([`Draft::cell`]: a scenario, the number taken of each run, the
//! number of runs), each of which is a [`Measure`]. Points, published numbers and published orders
//! are then added as measures, or as combinations of them.

use super::{Beside, Figure, FigureCell, FigureError, Measure, Metric, OrderClaim, Point, Relation};
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::model::shipped::{self, NotShipped};
use crate::observer_cost::ObserverCost;
use crate::program::nas::{self, Profile};
use crate::program::{Bind, ProgramSpec};
use crate::progress::quiet;
use crate::published::{self, Used};
use crate::scenario::{Happening, Scenario, ScenarioEvent};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;

/// Latest end of a run, far beyond the time of any of them.
const END: Moment = Moment(3_600_000_000_000);

/// Figure under construction.
pub(super) struct Draft {
    figure: Figure,
}

/// Contestant: the scheduler of a scenario's threads, which is a preset of a kernel, with a policy
/// or without. The constants below have the names that the published studies use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) kernel: &'static str,
    pub(super) policy: Option<Kind>,
    /// Whether each thread is bound to one core, round robin.
    pub(super) bound: bool,
}

pub(super) const LOAD: Contestant =
    Contestant { name: "LOAD", kernel: "linux-2.6.28", policy: None, bound: false };
pub(super) const PINNED: Contestant = Contestant { name: "PINNED", bound: true, ..LOAD };
pub(super) const SPEED: Contestant = Contestant { name: "SPEED", policy: Some(Kind::Speed), ..LOAD };
pub(super) const DWRR: Contestant = Contestant { name: "DWRR", kernel: "dwrr-2.6.22", ..LOAD };

/// Returns a shipped machine.
pub(super) fn machine(name: &'static str) -> Result<Model, FigureError> {
    Ok(shipped::needed(name)?)
}

/// Returns a benchmark's profile.
pub(super) fn profile(name: &str) -> Result<&'static Profile, FigureError> {
    nas::find(name).ok_or_else(|| FigureError::Key(name.to_owned()))
}

/// Returns the first CPUs of a machine.
pub(super) fn first(count: u32) -> CpuSet {
    (0..count).map(OsCpu).collect()
}

/// Returns the scenario of programs on a machine under a contestant.
pub(super) fn scenario(
    model: &Model,
    of: Contestant,
    mut programs: Vec<ProgramSpec>,
) -> Result<Scenario, FigureError> {
    for program in programs.iter_mut().filter(|program| of.bound && program.balanced) {
        program.bind = Bind::Close;
    }
    Ok(Scenario {
        name: String::new(),
        kernel: Kernel::preset(of.kernel, model.machine.pu_count()).map_err(NotShipped::from)?,
        memory: programs.iter().any(|program| !quiet(&program.footprint)),
        programs,
        arrivals: Vec::new(),
        policy: of.policy.map(|kind| (kind, Settings::of(kind))),
        events: Vec::new(),
        faults: Faults::default(),
        observer_cost: ObserverCost::default(),
        end: END,
        seed: 1,
        model: model.clone(),
    })
}

/// Restricts a scenario to the first CPUs, as if the machine had no others.
pub(super) fn on_first(mut scenario: Scenario, count: u32) -> Scenario {
    let cpus = first(count);
    for program in &mut scenario.programs {
        program.mask = Some(cpus.clone());
    }
    scenario.events.push(ScenarioEvent { at: Moment(0), what: Happening::Usable(cpus) });
    scenario
}

impl Draft {
    /// Returns an empty figure.
    pub(super) fn new(
        name: &'static str,
        title: &'static str,
        of: &'static str,
        axes: [&'static str; 2],
    ) -> Self {
        let [x, y] = axes;
        let figure = Figure {
            name,
            title,
            of,
            x,
            y,
            cells: Vec::new(),
            points: Vec::new(),
            beside: Vec::new(),
            claims: Vec::new(),
            notes: &[],
        };
        Self { figure }
    }

    /// Adds a scenario to be run this number of times, under a name of its own.
    pub(super) fn cell(&mut self, name: &str, mut scenario: Scenario, metric: Metric, runs: u32) -> Measure {
        name.clone_into(&mut scenario.name);
        self.figure.cells.push(FigureCell { name: name.to_owned(), scenario, metric, runs });
        Measure::FigureCell(self.figure.cells.len() - 1)
    }

    /// Adds a point of a series.
    pub(super) fn point(&mut self, series: impl Into<String>, x: impl ToString, measure: &Measure) {
        self.figure.points.push(Point { series: series.into(), x: x.to_string(), measure: measure.clone() });
    }

    /// Puts the published number of this key next to the model's.
    pub(super) fn beside(&mut self, key: &str, measure: Measure) -> Result<(), FigureError> {
        let published = published::find(key).ok_or_else(|| FigureError::Key(key.to_owned()))?;
        self.figure.beside.push(Beside { published, measure });
        Ok(())
    }

    /// Puts a measured number next to the model's.
    pub(super) fn measured(&mut self, beside: Beside) {
        self.figure.beside.push(beside);
    }

    /// Adds a published order of two measures; `place` is where it was published. No number of a
    /// machine was calibrated on it.
    pub(super) fn claim(
        &mut self,
        what: impl Into<String>,
        place: &'static str,
        left: &Measure,
        relation: Relation,
        right: &Measure,
    ) {
        self.figure.claims.push(OrderClaim {
            what: what.into(),
            place,
            used: Used::HeldOut,
            left: left.clone(),
            relation,
            right: right.clone(),
        });
    }

    /// Marks the last published order as one by which a reading of the text was chosen: it is no
    /// prediction.
    pub(super) fn chosen_by_last(&mut self) {
        if let Some(claim) = self.figure.claims.last_mut() {
            claim.used = Used::Calibrated;
        }
    }

    /// Returns the figure, with these notes below it.
    pub(super) fn done(mut self, notes: &'static [&'static str]) -> Figure {
        self.figure.notes = notes;
        self.figure
    }
}
