//! The policies by name.

use super::auto::Auto;
use super::exchange::Exchange;
use super::float::Float;
use super::pinned::Pinned;
use super::speed::{Grip, Speed};
use super::{Policy, Settings};
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A policy by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Find out what holds the program back, and do what helps, or nothing.
    #[default]
    Auto,
    /// The paper's speed balancing: fast cores pull threads from slow ones.
    Speed,
    /// Threads that are behind change places with threads that are ahead.
    Exchange,
    /// As speed, but a moved thread may be moved on by the kernel at once.
    Nudge,
    /// Each thread on one core, dealt out once, never moved: a control.
    Pinned,
    /// Threads are watched and never touched: a control.
    Float,
}

impl Kind {
    /// All, in the order in which help names them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Speed, Self::Exchange, Self::Nudge, Self::Pinned, Self::Float];

    /// The word a user types.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Speed => "speed",
            Self::Exchange => "exchange",
            Self::Nudge => "nudge",
            Self::Pinned => "pinned",
            Self::Float => "float",
        }
    }

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Auto => "finds out what holds the program back, and does what helps, or nothing",
            Self::Speed => "fast cores pull threads from slow ones (speed balancing)",
            Self::Exchange => "threads that are behind change places with threads that are ahead",
            Self::Nudge => "as speed, but the kernel may move a moved thread on at once",
            Self::Pinned => "each thread on one core, never moved",
            Self::Float => "threads are watched and never touched",
        }
    }

    pub(super) fn make(self, machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
        match self {
            Self::Auto => Box::new(Auto::new(machine, settings)),
            Self::Speed => Box::new(Speed::new(machine, settings, Grip::Firm)),
            Self::Exchange => Box::new(Exchange::new(machine, settings)),
            Self::Nudge => Box::new(Speed::new(machine, settings, Grip::Soft)),
            Self::Pinned => Box::new(Pinned::new(machine, settings)),
            Self::Float => Box::new(Float::new(settings)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// No policy has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("\"{0}\" is no balancing policy (known: auto, speed, exchange, nudge, pinned, float)")]
pub struct UnknownPolicy(pub String);

impl FromStr for Kind {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| UnknownPolicy(word.to_owned()))
    }
}
