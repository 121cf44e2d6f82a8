//! Settings of the policies of the uncore penalty.

use crate::penalty::{Index, Mean};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Threads that may be moved because of where their memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Candidates {
    /// Tagged threads, and threads that are seen to stall. `brm-paper` takes the tagged threads, or
    /// all threads if none is tagged.
    #[default]
    Auto,
    /// Tagged threads; no other thread is touched.
    Tagged,
    /// All computing threads.
    All,
}

impl Candidates {
    /// All choices, in the order of the help text.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Tagged, Self::All];

    /// Returns the word in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tagged => "tagged",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Error: no choice of candidates has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("\"{0}\" is not a choice of threads (known: auto, tagged, all)")]
pub struct UnknownCandidates(pub String);

impl FromStr for Candidates {
    type Err = UnknownCandidates;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|one| one.word() == word).ok_or_else(|| UnknownCandidates(word.to_owned()))
    }
}

/// Node to which `brm-paper` moves a thread (`bias`), where the slides can be read differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BiasReading {
    /// The last node that had the least penalty while the thread was there; at first the node after
    /// the thread's.
    #[default]
    Stayed,
    /// The same; at first node 0, as a record that is filled with zeros has it. A thread that has
    /// come to node 0 stays there, wherever its memory is.
    Zeroed,
    /// The node of the least remembered penalty, as "push migrate to a node with the minimum global
    /// penalty" says.
    Least,
}

impl BiasReading {
    /// All readings, in the order of the help text.
    pub const ALL: [Self; 3] = [Self::Stayed, Self::Zeroed, Self::Least];

    /// Returns the word in scenarios.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stayed => "stayed",
            Self::Zeroed => "zeroed",
            Self::Least => "least",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Index, candidates and limits of `brm`, `brm-paper` and `serial`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PenaltySettings {
    /// Index by which threads are compared; `None` for the index that the evidence supports on the
    /// machine's rung ([`Index::usual`]), and for the penalty itself under `brm-paper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Index>,
    /// Rule by which many indices become one number; `None` for the weighted mean, and for the
    /// plain sum under `brm-paper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Mean>,
    /// Threads that may be moved.
    pub candidates: Candidates,
    /// Whether the memory of a process follows its threads after they stayed on another node.
    pub move_memory: bool,
    /// Relative difference below which two states are equal.
    pub margin: f64,
    /// Share of one CPU that sampling, deciding and moving may take; samples become rare enough for
    /// it. `brm-paper` keeps its tick.
    pub budget: f64,
    /// Moves per second, all threads together; `None` for the number of threads to move, and at
    /// least ten. With 0, no thread is moved. `brm-paper` has no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves: Option<f64>,
    /// Whether `brm-paper` keeps its readiness from 0 to 100, as a probability. The slides mention
    /// no bounds; without them, ten calm seconds cost ten more before the first chance.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bounded: bool,
    /// Node to which `brm-paper` moves a thread.
    #[serde(skip_serializing_if = "BiasReading::is_default")]
    pub bias: BiasReading,
}

impl Default for PenaltySettings {
    fn default() -> Self {
        Self {
            index: None,
            mean: None,
            candidates: Candidates::Auto,
            move_memory: false,
            margin: 0.03,
            budget: 0.01,
            moves: None,
            bounded: false,
            bias: BiasReading::default(),
        }
    }
}

impl PenaltySettings {
    pub(in super::super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Settings;
    use super::*;

    #[test]
    fn every_word_reads_back_and_others_are_refused() {
        for one in Candidates::ALL {
            assert_eq!(one.word().parse(), Ok(one));
            assert_eq!(serde_json::to_value(one).unwrap(), one.word());
        }
        let refused = "none".parse::<Candidates>().unwrap_err().to_string();
        assert!(refused.contains("none") && refused.contains("auto, tagged, all"), "{refused}");
    }

    #[test]
    fn settings_of_before_read_as_defaults_and_defaults_are_not_written() {
        let text = serde_json::to_string(&Settings::default()).unwrap();
        assert!(!text.contains("penalty"), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), Settings::default());
        let own =
            PenaltySettings { index: Some(Index::Cpi), move_memory: true, ..PenaltySettings::default() };
        let own = Settings { penalty: own, ..Settings::default() };
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), own);
        let part: PenaltySettings = serde_json::from_str("{\"margin\":0.1}").unwrap();
        assert_eq!(part, PenaltySettings { margin: 0.1, ..PenaltySettings::default() });
    }
}
