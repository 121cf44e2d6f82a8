//! Outcome of a decision: what the kernel and the host made of it. Samples carry the outcomes that
//! became known late.

use crate::ids::ThreadId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reason why the kernel or the host did not carry out a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Not permitted: the thread belongs to another user or to the kernel.
    Permission,
    /// None of the CPUs may be used.
    Cpus,
    /// The memory cannot be moved on this machine.
    Memory,
    /// The program or another balancer bound the thread meanwhile, and that mask is respected.
    MovedMeanwhile,
    /// A replayed or scripted host does not move threads.
    Replayed,
    /// The balancer only observes: it says what it would have done, and does nothing.
    Observed,
    /// Any other error of the kernel.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permission => "refused: not permitted",
            Self::Cpus => "refused: none of the CPUs may be used",
            Self::Memory => "refused: its memory cannot be moved",
            Self::MovedMeanwhile => "refused: bound by another program meanwhile",
            Self::Replayed => "refused: nothing is moved in a replay",
            Self::Observed => "not done: only observed",
            Self::Other => "refused by the kernel",
        })
    }
}

/// State of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settled {
    /// Done.
    Applied,
    /// Not done.
    Refused(Refusal),
    /// The thread had ended.
    Vanished,
    /// Not done yet; a later sample brings the outcome.
    Pending,
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied => f.write_str("done"),
            Self::Refused(why) => why.fmt(f),
            Self::Vanished => f.write_str("the thread had ended"),
            Self::Pending => f.write_str("not done yet"),
        }
    }
}

/// Outcome of the decision about a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The thread.
    pub thread: ThreadId,
    /// State of the decision.
    pub end: Settled,
}
