//! Figures and tables of the published studies, as runs of the model next to the published results.
//!
//! Unit: a *cell*, one scenario run with several seeds, and one number of each run. Idea: a figure
//! is data (cells, points made of them, the published values and orders). The cells can be run in
//! any order and in parallel; all later steps are arithmetic. Equal runs give equal reports, to the
//! byte.
//!
//! Terms: a *beside* is a published number next to the model's; a *claim* is a published order of
//! contestants, such as "SPEED is better than LOAD", judged on the model's numbers with a slack of
//! [`ORDER_SLACK`], because a text does not claim a difference that its figures cannot show.

mod balancing;
mod draft;
mod factors;
mod hardware_threads;
mod measured_cases;
mod migration;
mod oversubscription;
mod placements;
mod readings;
mod report;
mod scale;
mod sharing;
mod stream;

pub use report::{Judged, Pair, Plotted, Report, Summary};

use crate::measured_cases::LiveError;
use crate::model::shipped::NotShipped;
use crate::outcome::Outcome;
use crate::published::{PublishedValue, Used};
use crate::scenario::{Scenario, run};
use thiserror::Error;
use trimtab_core::drive::Go;
use trimtab_core::time::Span;

/// Relative difference up to which a contestant counts as good as or better than another: 3 %.
pub const ORDER_SLACK: f64 = 0.03;

/// Number of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Time that a program took, by its place; seconds.
    Makespan(usize),
    /// Time at which the last program that can end had ended; seconds.
    All,
    /// Bandwidth that all programs drew from memory while they ran; GB/s.
    Bandwidth,
    /// Mean time of the balanced programs that end by themselves; seconds.
    Mean,
    /// CPU time of the policy's samples, of the time that the balanced threads ran; per cent.
    Overhead,
    /// CPU time of the policy's samples, of one CPU; per cent.
    Daemon,
}

/// Scenario, run with several seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct FigureCell {
    /// Name; unique in its figure.
    pub name: String,
    /// Scenario. Its seed is that of the first run; the others follow.
    pub scenario: Scenario,
    /// Number that is read of each run.
    pub metric: Metric,
    /// Number of runs.
    pub runs: u32,
}

impl FigureCell {
    /// Returns the scenario of a run, from 0.
    pub fn scenario(&self, run: u32) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.seed = scenario.seed.wrapping_add(u64::from(run));
        if let Some((_, settings)) = &mut scenario.policy {
            settings.seed = scenario.seed;
        }
        scenario
    }

    /// Returns the number of a run, from 0. A run that did not end in time has an infinite time.
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
                100.0 * outcome.sampling_time.seconds() / ran
            }
            Self::Daemon => 1e11 * outcome.sampling_time.seconds() / outcome.ended.0.max(1) as f64,
        }
    }
}

/// Number made of cells.
#[derive(Clone, PartialEq, Debug)]
pub enum Measure {
    /// Median of a cell's runs.
    FigureCell(usize),
    /// Highest over lowest of a cell's runs.
    Spread(usize),
    /// Relative standard deviation of a cell's runs, per cent.
    Deviation(usize),
    /// A number that needs no run.
    Given(f64),
    /// First measure over the second.
    Ratio(Box<Measure>, Box<Measure>),
    /// The highest.
    Highest(Vec<Measure>),
    /// The lowest.
    Lowest(Vec<Measure>),
    /// Geometric mean, for ratios.
    Mean(Vec<Measure>),
    /// Arithmetic mean, for shares, which may be zero.
    Average(Vec<Measure>),
    /// Value farthest from 1.
    Farthest(Vec<Measure>),
}

impl Measure {
    /// Returns the ratio of this measure to another.
    #[must_use]
    pub fn over(&self, that: &Self) -> Self {
        Self::Ratio(Box::new(self.clone()), Box::new(that.clone()))
    }
}

/// Point of the figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Curve or row of the point.
    pub series: String,
    /// Position on the curve.
    pub x: String,
    /// Height.
    pub measure: Measure,
}

/// Published number and the model's.
#[derive(Clone, PartialEq, Debug)]
pub struct Beside {
    /// Published number.
    pub published: &'static PublishedValue,
    /// Model's number.
    pub measure: Measure,
}

/// Relation in a published order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Left is at least as high as right.
    AtLeast,
    /// Left is higher, by more than the slack.
    Above,
    /// Neither is higher by more than the slack.
    Alike,
}

/// Published order of two contestants.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderClaim {
    /// Statement of the text, with its setting.
    pub what: String,
    /// Place in the text.
    pub place: &'static str,
    /// Whether a machine file used it.
    pub used: Used,
    /// Left contestant.
    pub left: Measure,
    /// Relation of left to right.
    pub relation: Relation,
    /// Right contestant.
    pub right: Measure,
}

/// Figure or table.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Name.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Published figure or table.
    pub of: &'static str,
    /// Label of the points' positions.
    pub x: &'static str,
    /// Label of the points' heights.
    pub y: &'static str,
    /// Cells to run.
    pub cells: Vec<FigureCell>,
    /// Points to draw.
    pub points: Vec<Point>,
    /// Published numbers.
    pub beside: Vec<Beside>,
    /// Published orders.
    pub claims: Vec<OrderClaim>,
    /// Assumptions, and mechanisms that the model lacks.
    pub notes: &'static [&'static str],
}

/// Names of all figures, in order.
pub const NAMES: &[&str] = &[
    "balancing",
    "barriers",
    "hog",
    "oversubscription",
    "waiting",
    "sharing",
    "hardware-threads",
    "factors",
    "stream",
    "migration",
    "migration-readings",
    "migration-scale",
];

/// Names of the figures of live measurements, in order. They are not published, and are in no
/// summary of published results.
pub const LIVE: &[&str] = &["live-bench-6.18", "live-host-6.18", "live-guest-6.12", "live-guest-6.1"];

/// Error: a shipped machine or preset does not fit a figure. Tests ensure that this does not
/// happen.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FigureError {
    /// No figure has this name.
    #[error("\"{0}\" is not a figure (known: {known})", known = [NAMES, LIVE].concat().join(", "))]
    Unknown(String),
    /// A machine or a kernel.
    #[error(transparent)]
    Shipped(#[from] NotShipped),
    /// A set of measurements.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// No published value has this key, or no profile has this name.
    #[error("no published value or profile is called {0}")]
    Key(String),
}

/// Returns the figure of this name.
///
/// # Errors
/// No figure has this name.
pub fn find(name: &str) -> Result<Figure, FigureError> {
    match name {
        "balancing" => balancing::cores(),
        "barriers" => balancing::barriers(),
        "hog" => balancing::hog(),
        "oversubscription" => oversubscription::threads(),
        "waiting" => oversubscription::waiting(),
        "sharing" => sharing::sharing(),
        "hardware-threads" => hardware_threads::hardware_threads(),
        "factors" => factors::factors(),
        "stream" => stream::stream(),
        "migration" => migration::migration(),
        "migration-readings" => readings::readings(),
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
