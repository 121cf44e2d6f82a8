//! Decision as a value: the thread, the action, the reason, and the expected gain.

use crate::ids::{OsCpu, OsNode, ThreadId};
use crate::set::CpuSet;
use crate::time::Span;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Action on a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Move the thread to these CPUs and keep it there until another decision.
    Confine(CpuSet),
    /// Move the thread to these CPUs, then restore its mask: the kernel may still pull it to an
    /// idle core.
    Nudge(CpuSet),
    /// Give the thread its own mask back.
    Release,
    /// Leave the thread where it is, and bring its process's memory from other nodes to this one.
    Fetch(OsNode),
}

impl Act {
    /// Returns the CPUs to which the thread is moved; `None` if it is not moved.
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

/// Formats a set as `CPU 3` or `CPUs 2-3`.
fn cpus(set: &CpuSet) -> String {
    format!("CPU{} {set}", if set.len() == 1 { "" } else { "s" })
}

/// Reason for an action. Speeds are in [0, 1].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Each thread first gets a core, round robin.
    Start,
    /// The thread's core is slower than the mean of all cores, and the core that pulls it is
    /// faster.
    Slow {
        /// Speed of the core that the thread leaves.
        speed: f64,
        /// Mean speed of all cores.
        mean: f64,
    },
    /// The thread is behind, and exchanges places with a thread that is ahead.
    Behind {
        /// CPU time, weighted by core speed, by which the thread is behind its partner.
        by: Span,
        /// The partner.
        partner: ThreadId,
    },
    /// The thread is ahead, and exchanges places with a thread that is behind.
    Ahead {
        /// CPU time, weighted by core speed, by which the thread is ahead of its partner.
        by: Span,
        /// The partner.
        partner: ThreadId,
    },
    /// A core has room, and the thread moves there alone.
    Room {
        /// Current speed of the thread.
        speed: f64,
        /// Expected speed of the thread on that core.
        expected: f64,
    },
    /// Each thread has its own core, so that the kernel moves the work of other programs and not
    /// the threads of this one.
    Fence {
        /// Share of the core that other programs take.
        foreign: f64,
    },
    /// The thread's mask made it share CPUs on which threads wait; the wider mask lets the kernel
    /// spread the threads.
    Free {
        /// Number of threads that shared the CPUs.
        threads: u32,
        /// Number of those CPUs.
        cpus: u32,
    },
    /// The thread began to sleep in barriers, and the kernel must be able to pull it to a core that
    /// becomes idle.
    Sleeps,
    /// The thread's core may not be used any more.
    Gone(OsCpu),
    /// The thread stalls because of where its memory is, and was never on this node: the move
    /// measures the effect.
    Explore,
    /// All threads stalled less when this thread was there.
    Stalls {
        /// Relative increase of the index over its value when the thread was there.
        more: f64,
    },
    /// The thread exchanges places with a thread of another node, either to measure the effect or
    /// because the exchange was better before.
    Exchanged {
        /// The partner.
        partner: ThreadId,
    },
    /// The thread waits for a CPU where it was put, while other CPUs are idle.
    Crowded {
        /// Share of the time the thread wanted a CPU in which it had none.
        waits: f64,
    },
    /// The thread stays in its node while a move from or to that node is on trial: otherwise a
    /// migration by the kernel would be mistaken for an effect of the trial.
    Steady,
    /// The thread stays, because this node holds more of its memory than any other node.
    Near,
    /// The usable CPUs changed where the thread was put.
    Changed,
    /// The thread stayed where it was put, so its memory follows.
    Stayed,
    /// Moving the thread did not help.
    Undo,
    /// Nothing more is to be gained.
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
                write!(f, "its own core, of which other programs take {}", percent(*foreign))
            }
            Self::Free { threads, cpus } => {
                let were = if *threads == 1 { "was" } else { "were" };
                let (threads, cpus) = (plural(*threads, "thread"), plural(*cpus, "CPU"));
                write!(f, "{threads} {were} bound to {cpus}; the kernel may spread them now")
            }
            Self::Sleeps => f.write_str("it sleeps in barriers, so the kernel must be free to move it"),
            Self::Gone(cpu) => write!(f, "CPU {cpu} may not be used any more"),
            Self::Explore => f.write_str("stalls on memory, tries this node once"),
            Self::Stalls { more } => {
                write!(f, "all stalled less while it was there (now {} more)", percent(*more))
            }
            Self::Exchanged { partner } => write!(f, "changes places with thread {partner}"),
            Self::Crowded { waits } => {
                write!(f, "waits {} of the time for a CPU there, while other CPUs are idle", percent(*waits))
            }
            Self::Steady => f.write_str("kept where it is while a move is on trial there"),
            Self::Near => f.write_str("kept where most of its memory is"),
            Self::Changed => f.write_str("the usable CPUs there changed"),
            Self::Stayed => f.write_str("it stayed there, and its memory follows"),
            Self::Undo => f.write_str("the move before did not help"),
            Self::Done => f.write_str("nothing more to gain"),
        }
    }
}

/// One decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// The thread.
    pub thread: ThreadId,
    /// The action.
    pub act: Act,
    /// The reason.
    pub reason: Reason,
    /// Share by which the slowest thread should progress faster; `None` if this was not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
}
