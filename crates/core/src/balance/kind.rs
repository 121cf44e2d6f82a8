//! Names of the policies.

use super::auto::Auto;
use super::exchange::Exchange;
use super::float::Float;
use super::numa_migration::{Paper, brm, serial};
use super::pinned::Pinned;
use super::speed::{MoveStyle, Speed};
use super::{Policy, Settings};
use crate::time::Span;
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Name of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Diagnoses the cause that holds the program back, and applies the treatment that helps, or
    /// none.
    #[default]
    Auto,
    /// The paper's speed balancing: fast cores pull threads from slow cores.
    Speed,
    /// Threads that are behind exchange places with threads that are ahead.
    Exchange,
    /// As speed, but the kernel may move a moved thread again at once.
    Nudge,
    /// Threads that stall on memory try other nodes and stay where all threads stall least.
    Brm,
    /// The published rule of `brm`, including its gaps.
    BrmPaper,
    /// One move or exchange at a time, kept if all threads stall less after it.
    Serial,
    /// Each thread is bound to one core once and never moved: a control.
    Pinned,
    /// Threads are watched and never touched: a control.
    Float,
}

impl Kind {
    /// All policies, in the order of the help text.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Speed,
        Self::Exchange,
        Self::Nudge,
        Self::Brm,
        Self::BrmPaper,
        Self::Serial,
        Self::Pinned,
        Self::Float,
    ];

    /// Policies that move threads because of where their memory is.
    pub const BY_PENALTY: [Self; 3] = [Self::Brm, Self::BrmPaper, Self::Serial];

    /// Returns the word that a user types.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Speed => "speed",
            Self::Exchange => "exchange",
            Self::Nudge => "nudge",
            Self::Brm => "brm",
            Self::BrmPaper => "brm-paper",
            Self::Serial => "serial",
            Self::Pinned => "pinned",
            Self::Float => "float",
        }
    }

    /// Returns a one-line description.
    pub fn about(self) -> &'static str {
        match self {
            Self::Auto => "finds out what holds the program back, and does what helps, or nothing",
            Self::Speed => "fast cores pull threads from slow ones (speed balancing)",
            Self::Exchange => "threads that are behind change places with threads that are ahead",
            Self::Nudge => "as speed, but the kernel may move a moved thread again at once",
            Self::Brm => "threads that stall on memory try other nodes and stay where all stall least",
            Self::BrmPaper => "the published rule of brm (bias random migration)",
            Self::Serial => "one move or exchange between nodes at a time, kept if all stall less for it",
            Self::Pinned => "each thread on one core, never moved",
            Self::Float => "threads are watched and never touched",
        }
    }

    /// Returns whether the policy moves threads because of where their memory is.
    pub fn by_penalty(self) -> bool {
        Self::BY_PENALTY.contains(&self)
    }

    /// Returns the default time between two samples.
    pub fn interval(self) -> Span {
        if self.by_penalty() { Span::from_ms(10) } else { Span::from_ms(100) }
    }

    pub(super) fn make(self, machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
        match self {
            Self::Auto => Box::new(Auto::new(machine, settings)),
            Self::Speed => Box::new(Speed::new(machine, settings, MoveStyle::Bind)),
            Self::Exchange => Box::new(Exchange::new(machine, settings)),
            Self::Nudge => Box::new(Speed::new(machine, settings, MoveStyle::Nudge)),
            Self::Brm => brm(machine, settings),
            Self::BrmPaper => Box::new(Paper::new(machine, settings)),
            Self::Serial => serial(machine, settings),
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

/// Error: no policy has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "\"{0}\" is not a balancing policy (known: auto, speed, exchange, nudge, brm, brm-paper, serial, pinned, float)"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for Kind {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| UnknownPolicy(word.to_owned()))
    }
}
