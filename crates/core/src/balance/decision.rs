//! A decision is a value: which thread, what to do with it, why, and what that should bring.

use crate::ids::{OsCpu, OsNode, ThreadId};
use crate::set::CpuSet;
use crate::time::Span;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What to do with a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Move it to these CPUs and keep it there until decided otherwise.
    Confine(CpuSet),
    /// Move it to these CPUs, then let it run again wherever it might before: the kernel may still pull it into an idle core.
    Nudge(CpuSet),
    /// Give it its own mask back.
    Release,
    /// Leave it where it is, and bring its process's memory from other nodes to this one.
    Fetch(OsNode),
}

impl Act {
    /// Where it is moved to, if it is moved.
    pub fn to(&self) -> Option<&CpuSet> {
        match self {
            Self::Confine(to) | Self::Nudge(to) => Some(to),
            Self::Release | Self::Fetch(_) => None,
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confine(to) => write!(f, "moved to {}", cpus(to)),
            Self::Nudge(to) => write!(f, "nudged to {}", cpus(to)),
            Self::Release => f.write_str("given its own mask back"),
            Self::Fetch(node) => write!(f, "its memory brought to node {node}"),
        }
    }
}

/// `CPU 3`, `CPUs 2-3`.
fn cpus(set: &CpuSet) -> String {
    format!("CPU{} {set}", if set.len() == 1 { "" } else { "s" })
}

/// Why a thread is moved. Speeds are in [0, 1].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Every thread is given a core of its own to begin with, round robin.
    Start,
    /// Its core is slower than the mean of all, and ours is faster.
    Slow {
        /// The speed of the core it leaves.
        speed: f64,
        /// The mean speed over all cores.
        mean: f64,
    },
    /// It is behind, and changes places with one that is ahead.
    Behind {
        /// By how much CPU time, weighted by core speed, it is behind its partner.
        by: Span,
        /// The partner.
        partner: ThreadId,
    },
    /// It is ahead, and changes places with one that is behind.
    Ahead {
        /// By how much.
        by: Span,
        /// The partner.
        partner: ThreadId,
    },
    /// A core has room: it moves there alone.
    Room {
        /// The speed it has.
        speed: f64,
        /// The speed it should have there.
        expected: f64,
    },
    /// Each thread has a core of its own, so that the kernel moves the others' work about and not ours.
    Fence {
        /// What others take of the core, as a share.
        foreign: f64,
    },
    /// It was bound where others wait, and is let loose so that the kernel can spread the threads.
    Free {
        /// How many threads shared its CPUs.
        threads: u32,
        /// How many CPUs that were.
        cpus: u32,
    },
    /// It began to sleep in barriers, and the kernel must be able to pull it to a core that falls idle.
    Sleeps,
    /// Its core may not be used any more.
    Gone(OsCpu),
    /// It suffers from where its memory is, and was never there: to see what it costs.
    Explore,
    /// All suffered less when it was there.
    Stalls {
        /// By what part the index is higher now than it was with the thread there.
        more: f64,
    },
    /// It changes places with a thread of another node, to see what that costs or because it was better.
    Exchanged {
        /// The partner.
        partner: ThreadId,
    },
    /// It waits for a CPU where it was put, and others idle.
    Crowded {
        /// The share of the time it wanted a CPU and had none.
        waits: f64,
    },
    /// It is kept in the node where it is while a move from or to there is on trial: what the kernel moves meanwhile would be taken for
    /// the trial's doing.
    Steady,
    /// Kept in place, since more of its memory is there than on any other node.
    Near,
    /// The CPUs that may be used where it was put changed.
    Changed,
    /// It stayed where it was put, so its memory comes after it.
    Stayed,
    /// Moving it did not help.
    Undo,
    /// Nothing is to be gained any more.
    Done,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        match self {
            Self::Start => f.write_str("a core to begin with"),
            Self::Slow { speed, mean } => {
                write!(f, "its core runs at {}, the mean is {}", percent(*speed), percent(*mean))
            }
            Self::Behind { by, partner } => write!(f, "{by} behind thread {partner}, places exchanged"),
            Self::Ahead { by, partner } => write!(f, "{by} ahead of thread {partner}, places exchanged"),
            Self::Room { speed, expected } => {
                write!(f, "runs at {}, {} expected there", percent(*speed), percent(*expected))
            }
            Self::Fence { foreign } => {
                write!(f, "a core of its own, of which others take {}", percent(*foreign))
            }
            Self::Free { threads, cpus } => {
                let were = if *threads == 1 { "was" } else { "were" };
                let (threads, cpus) = (plural(*threads, "thread"), plural(*cpus, "CPU"));
                write!(f, "{threads} {were} bound to {cpus}; the kernel may spread them now")
            }
            Self::Sleeps => f.write_str("it sleeps in barriers, so the kernel must be free to move it"),
            Self::Gone(cpu) => write!(f, "CPU {cpu} may not be used any more"),
            Self::Explore => f.write_str("stalls on memory, tried there once"),
            Self::Stalls { more } => {
                write!(f, "all stalled less while it was there (now {} more)", percent(*more))
            }
            Self::Exchanged { partner } => write!(f, "changes places with thread {partner}"),
            Self::Crowded { waits } => {
                write!(f, "waits {} of the time for a CPU there, others idle", percent(*waits))
            }
            Self::Steady => f.write_str("kept where it is while a move is on trial there"),
            Self::Near => f.write_str("kept where most of its memory is"),
            Self::Changed => f.write_str("the CPUs there that may be used changed"),
            Self::Stayed => f.write_str("it stayed there, and its memory follows"),
            Self::Undo => f.write_str("the move before did not help"),
            Self::Done => f.write_str("nothing more to gain"),
        }
    }
}

/// One thing to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// With which thread.
    pub thread: ThreadId,
    /// What.
    pub act: Act,
    /// Why.
    pub reason: Reason,
    /// By what part the slowest thread should progress faster for it; `None` where that was not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
}

/// Why the kernel or the host did not do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Not permitted: another user's thread, a thread of the kernel.
    Permission,
    /// None of the CPUs may be used.
    Cpus,
    /// Its memory cannot be moved here.
    Memory,
    /// The program or somebody else bound the thread meanwhile, and that is respected.
    MovedMeanwhile,
    /// A replayed or scripted host does not move threads.
    Replayed,
    /// Anything else the kernel answered.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permission => "refused: not permitted",
            Self::Cpus => "refused: none of the CPUs may be used",
            Self::Memory => "refused: its memory cannot be moved",
            Self::MovedMeanwhile => "refused: bound by somebody else meanwhile",
            Self::Replayed => "refused: nothing is moved in a replay",
            Self::Other => "refused by the kernel",
        })
    }
}

/// What became of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settled {
    /// Done.
    Applied,
    /// Not done.
    Refused(Refusal),
    /// The thread had ended.
    Vanished,
    /// Not done yet; the end of it comes with a later sample.
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

/// What became of the decision about a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The thread.
    pub thread: ThreadId,
    /// What became of it.
    pub end: Settled,
}
