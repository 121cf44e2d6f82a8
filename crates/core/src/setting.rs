//! Setting: the part of a program's environment that can be chosen without changing the program.
//!
//! Unit: one [`Setting`] is one way to start a program; a knob that it does not name keeps the
//! default of `trimtab run` and the program. Problem: the study measures settings, the predictor
//! judges them, the tuner tries them and `run` starts programs in them; all four must mean the same
//! by "four threads a core, asleep, no huge pages". Idea: a setting is one value with one spelling
//! (`threads=4 wait=sleep`), checked when it is made, in one order. Each knob is a word that
//! `trimtab run` accepts.
//!
//! Properties: writing and parsing are inverse. The empty setting means "as it is". Every stored
//! value is one that `run` would accept.

use crate::balance::Kind;
use crate::place::waiting::WaitPolicy;
use crate::place::{MemoryRequest, Strategy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Slices of the scheduler that the kernel accepts, in milliseconds.
pub const SLICES: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// A knob of a setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Number of threads of the program (`OMP_NUM_THREADS` and similar variables), or of its ranks.
    Threads,
    /// Number of cores to take.
    Cores,
    /// Hardware threads used of each core: a number or `all`.
    Smt,
    /// Layout of threads: a [`Strategy`].
    Strategy,
    /// Origin of memory: a [`MemoryRequest`].
    Memory,
    /// Transparent huge pages: `inherit`, `off`, `advised`, or `on` (the allocator asks for them,
    /// if the C library can).
    Thp,
    /// Wait policy of threads: a [`WaitPolicy`].
    Wait,
    /// Binding of threads at their start: `auto` or `mask`.
    Pin,
    /// Policy that balances during the run: a [`Kind`], or `none`.
    Balance,
    /// Scheduler's slice of each thread in milliseconds, 0.1 to 100.
    Slice,
}

impl Knob {
    /// All knobs, in order.
    pub const ALL: [Self; 10] = [
        Self::Threads,
        Self::Cores,
        Self::Smt,
        Self::Strategy,
        Self::Memory,
        Self::Thp,
        Self::Wait,
        Self::Pin,
        Self::Balance,
        Self::Slice,
    ];

    /// Returns the word that a user types.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Cores => "cores",
            Self::Smt => "smt",
            Self::Strategy => "strategy",
            Self::Memory => "memory",
            Self::Thp => "thp",
            Self::Wait => "wait",
            Self::Pin => "pin",
            Self::Balance => "balance",
            Self::Slice => "slice",
        }
    }

    /// Checks a value. The error says why the knob does not accept it.
    fn check(self, value: &str) -> Result<(), String> {
        let one_of = |known: &[&str]| match known.contains(&value) {
            true => Ok(()),
            false => Err(format!("known: {}", known.join(", "))),
        };
        let number = || match value.parse::<u32>() {
            Ok(1..) => Ok(()),
            _ => Err("a number from 1 is expected".to_owned()),
        };
        match self {
            Self::Threads | Self::Cores => number(),
            Self::Smt if value == "all" => Ok(()),
            Self::Smt => number(),
            Self::Strategy => value.parse::<Strategy>().map(drop),
            Self::Memory => value.parse::<MemoryRequest>().map(drop),
            Self::Thp => one_of(&["inherit", "off", "advised", "on"]),
            Self::Wait => value.parse::<WaitPolicy>().map(drop),
            Self::Pin => one_of(&["auto", "mask"]),
            Self::Balance if value == "none" => Ok(()),
            Self::Balance => value.parse::<Kind>().map(drop).map_err(|error| error.to_string()),
            Self::Slice => match value.parse::<f64>() {
                Ok(ms) if SLICES.contains(&ms) => Ok(()),
                _ => Err("milliseconds from 0.1 to 100 are expected".to_owned()),
            },
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Error of a text or value that is not a setting.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SettingError {
    /// The text is not `knob=value`.
    #[error("\"{0}\" is not a setting: KNOB=VALUE is expected, as in wait=sleep")]
    Form(String),
    /// The knob is unknown.
    #[error(
        "\"{0}\" cannot be set (known: threads, cores, smt, strategy, memory, thp, wait, pin, balance, slice)"
    )]
    Knob(String),
    /// The knob does not accept the value.
    #[error("{knob} cannot be \"{value}\": {why}")]
    Value {
        /// Knob.
        knob: Knob,
        /// Given value.
        value: String,
        /// Reason, with the accepted values.
        why: String,
    },
    /// A knob is set twice.
    #[error("{0} is set twice")]
    Twice(Knob),
}

/// One way to start a program: some knobs, each with a value that `run` accepts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Knob, String>", into = "BTreeMap<Knob, String>")]
pub struct Setting(BTreeMap<Knob, String>);

impl Setting {
    /// Creates the empty setting: everything as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this setting with one knob set to a value, which replaces an earlier one. Returns an
    /// error if the knob does not accept the value.
    pub fn with(mut self, knob: Knob, value: impl Into<String>) -> Result<Self, SettingError> {
        let value = value.into();
        knob.check(&value).map_err(|why| SettingError::Value { knob, value: value.clone(), why })?;
        self.0.insert(knob, value);
        Ok(self)
    }

    /// Returns this setting with a knob unset.
    pub fn without(mut self, knob: Knob) -> Self {
        self.0.remove(&knob);
        self
    }

    /// Returns a knob's value, if it is set.
    pub fn get(&self, knob: Knob) -> Option<&str> {
        self.0.get(&knob).map(String::as_str)
    }

    /// Returns a knob's value as a number, if it is set and is one.
    pub fn number(&self, knob: Knob) -> Option<f64> {
        self.get(knob)?.parse().ok()
    }

    /// Returns the knobs that are set, in order, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Knob, &str)> {
        self.0.iter().map(|(knob, value)| (*knob, value.as_str()))
    }

    /// Returns whether no knob is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("as it is");
        }
        for (at, (knob, value)) in self.iter().enumerate() {
            write!(f, "{}{knob}={value}", if at == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        if text == "as it is" {
            return Ok(Self::new());
        }
        text.split_whitespace().try_fold(Self::new(), |setting, word| {
            let (name, value) = word.split_once('=').ok_or_else(|| SettingError::Form(word.to_owned()))?;
            let knob = Knob::ALL.into_iter().find(|knob| knob.word() == name);
            let knob = knob.ok_or_else(|| SettingError::Knob(name.to_owned()))?;
            if setting.get(knob).is_some() {
                return Err(SettingError::Twice(knob));
            }
            setting.with(knob, value)
        })
    }
}

impl TryFrom<BTreeMap<Knob, String>> for Setting {
    type Error = SettingError;

    fn try_from(values: BTreeMap<Knob, String>) -> Result<Self, SettingError> {
        values.into_iter().try_fold(Self::new(), |setting, (knob, value)| setting.with(knob, value))
    }
}

impl From<Setting> for BTreeMap<Knob, String> {
    fn from(setting: Setting) -> Self {
        setting.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_text_is_read_back() {
        for text in [
            "as it is",
            "threads=4 wait=sleep",
            "cores=2 strategy=stride:l2 thp=on slice=0.1",
            "memory=bind:0 balance=none",
        ] {
            let setting: Setting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
            let json = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        }
    }

    #[test]
    fn a_value_that_run_refuses_is_no_setting() {
        for text in [
            "threads=0",
            "wait=hop",
            "slice=0.01",
            "slice=nan",
            "smt=none",
            "thp=ON",
            "wait",
            "depth=3",
            "wait=spin wait=spin",
        ] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Setting>(r#"{"wait":"hop"}"#).is_err());
        assert!(serde_json::from_str::<Setting>(r#"{"depth":"3"}"#).is_err());
    }
}
