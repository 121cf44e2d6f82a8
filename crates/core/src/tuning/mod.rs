//! Tuning: the search for the setting in which a program runs best, with a limited number of runs.
//!
//! Unit: that of the metric; seconds if the metric is the time. Problem: a program has some ten
//! switches around it, and all combinations are thousands of runs, most of them slow. Every run is
//! noisy, and a search that tries much finds something that looks good by luck. Idea: [`search()`]
//! tries one knob at a time from the current setting and gives more runs to the better half only
//! (successive halving). Then it joins the changes that helped. It tries single knobs once more
//! from there, since knobs interact. At last it measures the winner again, in turn with the start.
//! Only these last runs count as evidence: they took no part in the choice.
//!
//! A verdict needs three conditions ([`judge`](mod@judge)): the bootstrap interval of the ratio
//! excludes "no gain", the gain is at least [`Rules::gain_min`], and chance alone would order the
//! runs so at most once in [`judge::CHANCE_ODDS`] comparisons. The contribution of each knob to the
//! winner is judged by the same method, and a knob that adds nothing is left out.
//!
//! Properties: equal answers and an equal seed give equal questions, so a search is resumed by
//! giving the old answers again. The search never takes more time than the budget, except for the
//! current run. No setting is stored whose gain is inside the noise. A setting in which the program
//! fails is not tried again. The time of a run is the time that the [`Bench`] reports. Two knobs
//! that each do harm alone and good together are found only if one of them is found first: that is
//! the price of not trying everything.
//!
//! Source: successive halving is from Karnin, Koren and Somekh, "Almost Optimal Exploration in
//! Multi-Armed Bandits", ICML 2013; measuring a selected winner again is the holdout of statistics;
//! the order of runs is judged by Wilcoxon's rank sum, 1945.

pub mod grid;
pub mod judge;
mod lean;
mod search;

#[cfg(test)]
mod tests;

pub use search::search;

use crate::setting::{Knob, Setting};
use crate::stats::{Better, Comparison};
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Rules of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// Direction in which the metric improves.
    pub better: Better,
    /// Smallest gain that counts, as a share: 0.03 is 3 %.
    pub gain_min: f64,
    /// Longest time of all runs together.
    pub budget: Span,
    /// Factor over the best time so far at which a run is stopped, if the metric is the time;
    /// `None` if the time of a run is not valid.
    pub cap: Option<f64>,
    /// Seed of the random orders and intervals.
    pub seed: u64,
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "ran", rename_all = "kebab-case")]
pub enum Ran {
    /// The run ended normally.
    Well {
        /// Metric of the run.
        value: f64,
        /// Duration of the run.
        took: Span,
    },
    /// The run exceeded its time limit and was stopped.
    Slow {
        /// Time after which the run was stopped.
        took: Span,
    },
    /// The run failed, and would fail again.
    Failed {
        /// Reason of the failure.
        why: String,
        /// Time until the failure.
        took: Span,
    },
}

impl Ran {
    /// Returns the duration of the run, however it ended.
    pub fn took(&self) -> Span {
        match self {
            Self::Well { took, .. } | Self::Slow { took } | Self::Failed { took, .. } => *took,
        }
    }
}

/// Purpose of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Warms up, so that files are in memory; the result does not count.
    Warm,
    /// Tries one changed knob, from the start.
    Knobs,
    /// Tries changes that helped, joined.
    Joined,
    /// Tries one changed knob, from the best setting.
    Around,
    /// Measures the winner and the start in turn: the evidence.
    Evidence,
    /// Tries the winner without one of its knobs.
    Without,
}

impl Stage {
    /// Returns a short name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warm => "warming up",
            Self::Knobs => "one knob at a time",
            Self::Joined => "joined changes",
            Self::Around => "one knob at a time, from the best",
            Self::Evidence => "evidence",
            Self::Without => "is each knob needed",
        }
    }
}

/// A bench that runs the program.
pub trait Bench {
    /// Runs the program once in a setting, for at most `limit`. `None` ends the search: the user
    /// requested that.
    fn run(&mut self, setting: &Setting, stage: Stage, limit: Option<Span>) -> Option<Ran>;

    /// Announces about how many runs are still to come.
    fn ahead(&mut self, runs: usize) {
        let _ = runs;
    }
}

/// A knob and the values to try, without its current value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Knob.
    pub knob: Knob,
    /// Values; `None` leaves the knob unset.
    pub values: Vec<Option<String>>,
}

/// Outcome of a search.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    /// A better setting was found.
    Won,
    /// No setting is better beyond the noise.
    Nothing,
    /// The budget was spent before a result was certain.
    Spent,
    /// The user stopped the search.
    Stopped,
    /// The program fails in the start setting.
    Failed {
        /// Reason of the failure.
        why: String,
    },
}

/// A better setting, with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Winner {
    /// Setting.
    pub setting: Setting,
    /// Metric of the start in the runs of the evidence.
    pub before: Vec<f64>,
    /// Metric of the winner in the runs of the evidence.
    pub after: Vec<f64>,
    /// Comparison of the two.
    pub comparison: Comparison,
    /// Contribution of each knob: the ratio of the metric with the knob to the metric without it,
    /// in the better direction. Knobs that were not tested in time are missing.
    pub adds: Vec<(Knob, f64)>,
}

/// All runs in one setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Setting.
    pub setting: Setting,
    /// Metric of the runs that ended normally.
    pub values: Vec<f64>,
    /// Number of runs that were stopped at the time limit.
    pub slow: usize,
    /// Reason of a failure, if a run failed.
    pub failed: Option<String>,
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Found {
    /// Outcome.
    #[serde(flatten)]
    pub end: End,
    /// Better setting, if one was found.
    pub winner: Option<Winner>,
    /// All settings tried, in the order in which they came up.
    pub series: Vec<Series>,
    /// Number of runs.
    pub runs: usize,
    /// Time of all runs.
    pub spent: Span,
}
