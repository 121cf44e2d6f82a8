//! Tuning: which setting a program runs best in, found by trying some of all that there are.
//!
//! Unit: the metric's own; seconds where it is the time. Problem: a program has some ten switches around it, all combinations are thousands of runs, most of
//! them slow ones, every run is noisy, and who tries much finds something that looks good by luck. Idea: [`search()`] tries one knob at a time from where it
//! stands and gives more runs to the better half only (successive halving), then joins what helped, looks round once more from there, since knobs act on each
//! other, and at last measures the winner anew, in turn with the start. Only these last runs count as evidence: they took no part in the choice.
//!
//! What a verdict needs ([`judge`](mod@judge)): the bootstrap interval of the ratio excludes "no gain", the gain is at least [`Rules::gain_min`], and chance alone would
//! order the runs so at most once in [`judge::CHANCE_ODDS`] comparisons. What a knob adds to the winner is judged in the same manner, and a knob that adds nothing is left out.
//!
//! Properties: equal answers and seed give equal questions, so that a search is resumed by giving the old answers again; never more time than the budget
//! but for the run under way; nothing is stored that is inside the noise; a setting in which the program fails is asked no more. Time is what
//! the [`Bench`] says a run took. Two knobs that each do harm alone and good together are found only if one of them is found first: that is the price of
//! not trying everything.
//!
//! Source: successive halving is from Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013; measuring a selected winner
//! anew is the holdout of statistics; the order of runs is judged by Wilcoxon's rank sum, 1945.

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

/// How a search goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// Whether more of the metric is better.
    pub better: Better,
    /// What a change has to gain at least: 0.03 is 3 %.
    pub gain_min: f64,
    /// All runs together take no longer.
    pub budget: Span,
    /// Where the metric is the time: a run is stopped when it takes so many times as long as the best so far. `None` where time says nothing.
    pub cap: Option<f64>,
    /// Orders and intervals are drawn from this number.
    pub seed: u64,
}

/// What became of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "ran", rename_all = "kebab-case")]
pub enum Ran {
    /// It ended well.
    Well {
        /// Its metric.
        value: f64,
        /// How long it took.
        took: Span,
    },
    /// It took longer than it may, and was stopped.
    Slow {
        /// After this time.
        took: Span,
    },
    /// It failed, and would again.
    Failed {
        /// How.
        why: String,
        /// How long that took.
        took: Span,
    },
}

impl Ran {
    /// How long it took, however it ended.
    pub fn took(&self) -> Span {
        match self {
            Self::Well { took, .. } | Self::Slow { took } | Self::Failed { took, .. } => *took,
        }
    }
}

/// Why a run was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// So that files are in memory: it counts for nothing.
    Warm,
    /// One knob changed, from the start.
    Knobs,
    /// What helped, joined.
    Joined,
    /// One knob changed, from the best.
    Around,
    /// The winner and the start in turn: the evidence.
    Evidence,
    /// The winner without one of its knobs.
    Without,
}

impl Stage {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warm => "warming up",
            Self::Knobs => "one knob at a time",
            Self::Joined => "what helped, joined",
            Self::Around => "around the best",
            Self::Evidence => "evidence",
            Self::Without => "is each knob needed",
        }
    }
}

/// Who runs the program.
pub trait Bench {
    /// Runs the program once in a setting, at most so long. `None` ends the search: somebody asked for that.
    fn run(&mut self, setting: &Setting, stage: Stage, limit: Option<Span>) -> Option<Ran>;

    /// About so many runs are still to come.
    fn ahead(&mut self, runs: usize) {
        let _ = runs;
    }
}

/// A knob and the values that may be tried, without the one it has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Which.
    pub knob: Knob,
    /// What it may be; `None` leaves it alone.
    pub values: Vec<Option<String>>,
}

/// How a search ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    /// A better setting was found.
    Won,
    /// None is better beyond the noise.
    Nothing,
    /// The budget was spent before anything was certain.
    Spent,
    /// Somebody stopped it.
    Stopped,
    /// The program fails as it is.
    Failed {
        /// How.
        why: String,
    },
}

/// A setting that is better, with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Winner {
    /// The setting.
    pub setting: Setting,
    /// The start's runs in the evidence.
    pub before: Vec<f64>,
    /// The winner's.
    pub after: Vec<f64>,
    /// What they say.
    pub comparison: Comparison,
    /// What each of its knobs adds: how many times as good it is with it as without, for those that were asked in time.
    pub adds: Vec<(Knob, f64)>,
}

/// All runs in one setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// The setting.
    pub setting: Setting,
    /// The metric of those that ended well.
    pub values: Vec<f64>,
    /// Runs that were stopped for taking too long.
    pub slow: usize,
    /// How it failed, if it did.
    pub failed: Option<String>,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Found {
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
    /// What is better.
    pub winner: Option<Winner>,
    /// All that was tried, in the order in which it came up.
    pub series: Vec<Series>,
    /// Runs made.
    pub runs: usize,
    /// What they took.
    pub spent: Span,
}
