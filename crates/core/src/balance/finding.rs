//! What a policy has come to think: why it moves threads, or why it leaves them alone.

use crate::set::CpuSet;
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A diagnosis. Shares are in [0, 1].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Too little has been seen to say anything.
    TooEarly,
    /// No thread waits for a CPU.
    NothingWaits,
    /// The threads progress alike: the kernel moves them about by itself, fairly enough.
    KernelRotates {
        /// By how much the furthest is ahead of the last, as a share of the mean progress.
        spread: f64,
    },
    /// Several threads compute on the only CPU that they may use: there is nowhere to move them.
    OneCpu {
        /// How many threads.
        threads: u32,
    },
    /// Threads are bound so that some CPUs hold more of them than others.
    Bound {
        /// How many threads.
        threads: u32,
        /// To how many CPUs together.
        cpus: u32,
    },
    /// There are more running threads than CPUs, and they do not divide evenly.
    Uneven {
        /// How many threads.
        threads: u32,
        /// How many CPUs.
        cpus: u32,
    },
    /// Threads go to sleep while they wait for each other: they must stay free to move.
    Sleepers {
        /// The share of the time in which active threads sleep.
        idle: f64,
    },
    /// Others take part of these CPUs.
    Hog {
        /// Which CPUs.
        cpus: CpuSet,
        /// The share that others take of them.
        share: f64,
    },
    /// A CPU quota holds the program back: moving threads cannot help, fewer threads can.
    Quota {
        /// The share of the time that the quota kept it off its CPUs.
        throttled: f64,
    },
    /// Cores are of different speed.
    Asymmetric {
        /// The slowest's speed as a share of the fastest's.
        slowest: f64,
    },
    /// Threads wait for each other more often than moving them can follow; how they wait decides, not where.
    TooFine {
        /// The shortest time between barriers that moving can help.
        bound: Span,
    },
    /// Every thread that could be moved is not ours to move.
    HandsOff {
        /// How many.
        threads: u32,
        /// Why, for the first of them.
        why: String,
    },
    /// The kernel does not count how long threads wait for a CPU, so speeds are shares of elapsed time.
    NoWaitTimes,
    /// Moves were tried and did not help: left alone from now on.
    NoGain,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        match self {
            Self::TooEarly => f.write_str("too little seen yet"),
            Self::NothingWaits => f.write_str("no thread waits for a CPU: nothing to gain"),
            Self::KernelRotates { spread } => {
                write!(f, "the kernel spreads the threads evenly (progress differs by {})", percent(*spread))
            }
            Self::OneCpu { threads } => {
                write!(
                    f,
                    "{threads} threads share the only CPU that they may use: there is nowhere to move them"
                )
            }
            Self::Bound { threads, cpus } => write!(f, "{threads} threads are bound unevenly to {cpus} CPUs"),
            Self::Uneven { threads, cpus } => {
                write!(f, "{threads} running threads do not divide evenly over {cpus} CPUs")
            }
            Self::Sleepers { idle } => {
                let idle = percent(*idle);
                write!(f, "threads sleep {idle} of the time waiting for each other: they stay free to move")
            }
            Self::Hog { cpus, share } => write!(f, "others take {} of CPUs {cpus}", percent(*share)),
            Self::Quota { throttled } => write!(
                f,
                "a CPU quota holds the program back {} of the time: fewer threads would help, moving them cannot",
                percent(*throttled)
            ),
            Self::Asymmetric { slowest } => {
                write!(f, "cores differ: the slowest runs at {} of the fastest", percent(*slowest))
            }
            Self::TooFine { bound } => write!(
                f,
                "threads wait for each other more often than every {bound}: how they wait decides, not where (--wait-policy)"
            ),
            Self::HandsOff { threads, why } => {
                write!(f, "{threads} threads are not ours to move: {why}")
            }
            Self::NoWaitTimes => f.write_str(
                "the kernel does not count time spent waiting for a CPU: speeds are shares of elapsed time",
            ),
            Self::NoGain => f.write_str("moves were tried and brought nothing: threads are left alone"),
        }
    }
}
