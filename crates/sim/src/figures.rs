//! The tables and figures of the published studies, as runs of the model with what was published beside them.
//!
//! Unit: a *cell*, one scenario run with several seeds, and one number of each run. Idea: a figure is data (cells, points made of them, the
//! published values and orders beside them), so that whoever has time and cores runs the cells in any order, and everything after
//! that is arithmetic. Equal runs give equal reports, to the byte.
//!
//! Terms: a *beside* is a published number next to the model's; a *claim* is a published order of contestants, such as "SPEED is better than
//! LOAD", judged on the model's numbers with a slack of [`SLACK`]: what no figure shows, no text means.

mod balancing;
mod draft;
mod factors;
mod measured_cases;
mod migration;
mod oversubscription;
mod placements;
mod report;
mod scale;
mod sharing;
mod stream;

pub use report::{Judged, Pair, Plotted, Report, Summary};

use crate::measured_cases::LiveError;
use crate::model::shipped::NotShipped;
use crate::outcome::Outcome;
use crate::published::{Used, Value};
use crate::scenario::{Scenario, run};
use thiserror::Error;
use trimtab_core::drive::Go;
use trimtab_core::time::Span;

/// By how much a contestant may fall behind where the text calls it as good or better: 3 %.
pub const SLACK: f64 = 0.03;

/// One number of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// How long a program took, by its place; seconds.
    Makespan(usize),
    /// When the last program that can end had ended; seconds.
    All,
    /// What all programs drew from memory while they ran; GB/s.
    Bandwidth,
    /// How long programs took that are looked after and end by themselves, on average; seconds.
    Mean,
    /// The CPU time that looking took, of the time that the threads which are looked after ran; per cent.
    Overhead,
    /// The CPU time that looking took, of one CPU; per cent.
    Daemon,
}

/// A scenario, run with several seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// What it is called; unique in its figure.
    pub name: String,
    /// What is run. The seed is the first run's; the others follow.
    pub scenario: Scenario,
    /// What is read of each run.
    pub metric: Metric,
    /// How many runs there are.
    pub runs: u32,
}

impl Cell {
    /// The scenario of a run, from 0.
    pub fn scenario(&self, run: u32) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.seed = scenario.seed.wrapping_add(u64::from(run));
        if let Some((_, settings)) = &mut scenario.policy {
            settings.seed = scenario.seed;
        }
        scenario
    }

    /// The number of a run, from 0. What did not end in time is as good as endless.
    pub fn run(&self, number: u32) -> f64 {
        let outcome = run(&self.scenario(number), &mut |_| {}, &mut |_| Go::On);
        self.metric.of(&outcome)
    }
}

impl Metric {
    fn of(self, outcome: &Outcome) -> f64 {
        let makespan = |at: usize| outcome.programs.get(at).and_then(|program| program.makespan);
        match self {
            Self::Makespan(at) => makespan(at).map_or(f64::INFINITY, |span| span.seconds()),
            Self::All if outcome.complete => outcome.ended.0 as f64 / 1e9,
            Self::All => f64::INFINITY,
            Self::Bandwidth => {
                let lines: f64 = outcome.programs.iter().map(|program| program.local + program.remote).sum();
                lines * 64.0 / outcome.ended.0.max(1) as f64
            }
            Self::Mean => {
                let own = || outcome.programs.iter().filter(|program| program.ends);
                let times = own().map(|program| program.makespan.map_or(f64::INFINITY, Span::seconds));
                times.sum::<f64>() / own().count().max(1) as f64
            }
            Self::Overhead => {
                let own = outcome.programs.iter().filter(|program| program.ends);
                let ran: f64 = own.map(|program| program.run.seconds()).sum();
                100.0 * outcome.looking.seconds() / ran
            }
            Self::Daemon => 1e11 * outcome.looking.seconds() / outcome.ended.0.max(1) as f64,
        }
    }
}

/// A number made of cells.
#[derive(Clone, PartialEq, Debug)]
pub enum Measure {
    /// The median of a cell's runs.
    Cell(usize),
    /// Highest over lowest of a cell's runs.
    Spread(usize),
    /// The relative standard deviation of a cell's runs, per cent.
    Deviation(usize),
    /// A number that needs no run.
    Given(f64),
    /// One over another.
    Ratio(Box<Measure>, Box<Measure>),
    /// The highest.
    Highest(Vec<Measure>),
    /// The lowest.
    Lowest(Vec<Measure>),
    /// The geometric mean: of ratios.
    Mean(Vec<Measure>),
    /// The arithmetic mean: of shares, which may be zero.
    Average(Vec<Measure>),
    /// The one farthest from 1.
    Farthest(Vec<Measure>),
}

impl Measure {
    /// This over that.
    #[must_use]
    pub fn over(&self, that: &Self) -> Self {
        Self::Ratio(Box::new(self.clone()), Box::new(that.clone()))
    }
}

/// A point of the figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Which curve or row it belongs to.
    pub series: String,
    /// Where it is on it.
    pub x: String,
    /// How high.
    pub measure: Measure,
}

/// A published number and what the model says.
#[derive(Clone, PartialEq, Debug)]
pub struct Beside {
    /// The published one.
    pub published: &'static Value,
    /// The model's.
    pub measure: Measure,
}

/// What a published order says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The left is at least as high as the right.
    AtLeast,
    /// The left is higher, by more than the slack.
    Above,
    /// Neither is higher by more than the slack.
    Alike,
}

/// A published order of two contestants.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// What the text says, of which setting.
    pub what: String,
    /// Where.
    pub place: &'static str,
    /// Whether a machine file used it.
    pub used: Used,
    /// The one of which it is said ...
    pub left: Measure,
    /// ... what ...
    pub relation: Relation,
    /// ... compared with which.
    pub right: Measure,
}

/// A figure or table.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Which published figure or table it is.
    pub of: &'static str,
    /// What the points' places are.
    pub x: &'static str,
    /// What their heights are.
    pub y: &'static str,
    /// What is run.
    pub cells: Vec<Cell>,
    /// What is drawn.
    pub points: Vec<Point>,
    /// Published numbers.
    pub beside: Vec<Beside>,
    /// Published orders.
    pub claims: Vec<Claim>,
    /// What was assumed, and which mechanisms the model lacks.
    pub notes: &'static [&'static str],
}

/// The names of all figures, in order.
pub const NAMES: &[&str] = &[
    "balancing",
    "barriers",
    "hog",
    "oversubscription",
    "waiting",
    "sharing",
    "factors",
    "stream",
    "migration",
    "migration-scale",
];

/// The names of the figures of what was measured live, in order: not published, and in no summary of what was.
pub const LIVE: &[&str] = &["live-bench-6.18", "live-host-6.18", "live-guest-6.12", "live-guest-6.1"];

/// A shipped machine or preset is not what a figure needs: tests make sure that this does not happen.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FigureError {
    /// No figure has this name.
    #[error("\"{0}\" is no figure (known: {known})", known = [NAMES, LIVE].concat().join(", "))]
    Unknown(String),
    /// A machine or a kernel.
    #[error(transparent)]
    Shipped(#[from] NotShipped),
    /// A set of measurements.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing of this key was published, or no profile has this name.
    #[error("nothing is known under {0}")]
    Key(String),
}

/// The figure of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<Figure, FigureError> {
    match name {
        "balancing" => balancing::cores(),
        "barriers" => balancing::barriers(),
        "hog" => balancing::hog(),
        "oversubscription" => oversubscription::threads(),
        "waiting" => oversubscription::waiting(),
        "sharing" => sharing::sharing(),
        "factors" => factors::factors(),
        "stream" => stream::stream(),
        "migration" => migration::migration(),
        "migration-scale" => scale::scale(),
        _ => {
            let known = LIVE.iter().zip(crate::measured_cases::SETS).find(|(known, _)| **known == name);
            let (name, set) = known.ok_or_else(|| FigureError::Unknown(name.to_owned()))?;
            measured_cases::figure(name, set)
        }
    }
}

#[cfg(test)]
mod tests;
