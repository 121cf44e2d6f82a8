//! One number of a run, to compare with that of other runs.

use super::Outcome;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Time that programs took, seconds: the mean of those that ended by themselves.
    Makespan,
    /// The same time over the ideal time.
    Ratio,
    /// Evenness of the CPUs' busy times, 1 is even.
    Balance,
    /// Share of the CPUs' time in which they were busy.
    Busy,
    /// Programs that ended by themselves, per second.
    Throughput,
    /// Number of times that threads changed CPUs.
    Migrations,
    /// Number of the policy's moves that were done.
    Moves,
}

/// Error: no value has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "\"{0}\" is not a value of a run (known: makespan, ratio, balance, busy, throughput, migrations, moves)"
)]
pub struct UnknownValue(String);

impl Value {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Makespan,
        Self::Ratio,
        Self::Balance,
        Self::Busy,
        Self::Throughput,
        Self::Migrations,
        Self::Moves,
    ];

    /// Returns the name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::Ratio => "ratio",
            Self::Balance => "balance",
            Self::Busy => "busy",
            Self::Throughput => "throughput",
            Self::Migrations => "migrations",
            Self::Moves => "moves",
        }
    }

    /// Returns a description with the unit.
    pub fn about(self) -> &'static str {
        match self {
            Self::Makespan => "time of a program, s",
            Self::Ratio => "time of a program over the ideal time",
            Self::Balance => "lowest over highest busy time of a CPU",
            Self::Busy => "share of time in which CPUs were busy",
            Self::Throughput => "programs ended a second",
            Self::Migrations => "changes of CPU by threads",
            Self::Moves => "moves of the policy",
        }
    }

    /// Returns this number of a run; `None` if there is none, as for programs that did not end.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let mean =
            |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let own = outcome.programs.iter().filter(|program| program.ends && !program.stopped);
        let makespans = own.filter_map(|program| program.makespan);
        let value = match self {
            Self::Makespan => mean(&makespans.map(|makespan| makespan.seconds()).collect::<Vec<_>>()),
            Self::Ratio => {
                mean(&outcome.programs.iter().filter_map(|program| program.ratio).collect::<Vec<_>>())
            }
            Self::Balance => outcome.balance,
            Self::Busy => outcome.busy,
            Self::Throughput => outcome.throughput,
            Self::Migrations => Some(outcome.migrations as f64),
            Self::Moves => Some(outcome.moved as f64),
        };
        value.filter(|value| value.is_finite())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Value {
    type Err = UnknownValue;

    fn from_str(word: &str) -> Result<Self, UnknownValue> {
        Self::ALL.into_iter().find(|value| value.word() == word).ok_or_else(|| UnknownValue(word.to_owned()))
    }
}
