//! Findings of a policy: the reasons why it moves threads, or why it leaves them alone.

use crate::set::CpuSet;
use crate::time::Span;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Diagnosis of a program. Shares are in [0, 1].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The measurement is too short for a diagnosis.
    TooEarly,
    /// No thread waits for a CPU.
    NothingWaits,
    /// The threads progress equally: the kernel already rotates them fairly enough.
    KernelRotates {
        /// Lead of the first thread over the last, as a share of the mean progress.
        spread: f64,
    },
    /// Several threads compute on the only CPU that they may use: there is no other CPU to move
    /// them to.
    OneCpu {
        /// Number of threads.
        threads: u32,
    },
    /// Threads are bound so that some CPUs hold more of them than others.
    Bound {
        /// Number of bound threads.
        threads: u32,
        /// Number of CPUs to which they are bound, together.
        cpus: u32,
    },
    /// Threads are bound so that some CPUs hold more of them than others, and their masks are
    /// respected.
    Respected {
        /// Number of bound threads.
        threads: u32,
        /// Number of CPUs to which they are bound, together.
        cpus: u32,
    },
    /// There are more running threads than CPUs, and they do not divide evenly.
    Uneven {
        /// Number of threads.
        threads: u32,
        /// Number of CPUs.
        cpus: u32,
    },
    /// Threads go to sleep while they wait for each other: they must stay free to move.
    Sleepers {
        /// Share of the time in which active threads sleep.
        idle: f64,
    },
    /// Other programs use these CPUs.
    Hog {
        /// The CPUs.
        cpus: CpuSet,
        /// Share of the CPUs that other programs take.
        share: f64,
    },
    /// A CPU quota limits the program: moving threads cannot help, fewer threads can.
    Quota {
        /// Share of the time in which the quota kept the program off its CPUs.
        throttled: f64,
    },
    /// Cores differ in speed.
    Asymmetric {
        /// Speed of the slowest core as a share of the fastest.
        slowest: f64,
    },
    /// Threads wait for each other more often than moves can follow. The wait policy decides the
    /// speed, not the placement.
    TooFine {
        /// Shortest time between barriers at which moving threads can help.
        bound: Span,
    },
    /// No thread that could be moved may be moved by this balancer.
    HandsOff {
        /// Number of threads.
        threads: u32,
        /// Reason, for the first of them.
        why: String,
    },
    /// Some threads cannot be read, or exceed the number that is watched at once. Nothing is known
    /// of them, and none is moved.
    Unwatched {
        /// Number of such threads.
        threads: u32,
    },
    /// The kernel does not count how long threads wait for a CPU, so speeds are shares of elapsed
    /// time.
    NoWaitTimes,
    /// Each computing thread is the only one of its process: it may be about to count the CPUs of
    /// its mask, and stays free.
    Lone {
        /// Number of processes, with one computing thread each.
        processes: u32,
    },
    /// All usable CPUs share one memory node and one last-level cache.
    OneUnit,
    /// No available counter shows whether memory is near.
    Uncounted,
    /// Threads stall on memory beyond their private caches: moving these threads may help.
    Stalls {
        /// Number of threads.
        threads: u32,
        /// Share of their cycles that they stall; `None` if not counted.
        share: Option<f64>,
    },
    /// No thread stalls on memory enough for a move to help.
    NothingStalls,
    /// Sampling costs more than its budget, so the policy samples less often.
    Slowed {
        /// New time between two samples.
        tick: Span,
    },
    /// Moves were tried and did not help: the program is left alone from now on.
    NoGain,
}

impl Finding {
    /// Returns the name of the finding, as used in traces and figures.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooEarly => "too-early",
            Self::NothingWaits => "nothing-waits",
            Self::KernelRotates { .. } => "kernel-rotates",
            Self::Bound { .. } => "bound",
            Self::Respected { .. } => "respected",
            Self::Uneven { .. } => "uneven",
            Self::Sleepers { .. } => "sleepers",
            Self::Hog { .. } => "hog",
            Self::Quota { .. } => "quota",
            Self::Asymmetric { .. } => "asymmetric",
            Self::TooFine { .. } => "too-fine",
            Self::HandsOff { .. } => "hands-off",
            Self::NoWaitTimes => "no-wait-times",
            Self::NoGain => "no-gain",
            Self::OneCpu { .. } => "one-cpu",
            Self::Unwatched { .. } => "unwatched",
            Self::Lone { .. } => "lone",
            Self::OneUnit => "one-unit",
            Self::Uncounted => "uncounted",
            Self::Stalls { .. } => "stalls",
            Self::NothingStalls => "nothing-stalls",
            Self::Slowed { .. } => "slowed",
        }
    }
}

/// Describes threads that their masks crowd.
fn bound(threads: u32, cpus: u32) -> String {
    let bound = plural(threads, "thread");
    match (threads, cpus) {
        (_, 1) => format!("{bound} can only use one CPU"),
        (1, _) => format!("{bound} is bound to {cpus} CPUs that others crowd"),
        _ => format!("{bound} are bound unevenly to {cpus} CPUs"),
    }
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
                let threads = plural(*threads, "thread");
                write!(f, "{threads} on the only CPU that they may use: there is nowhere to move them")
            }
            Self::Bound { threads, cpus } => f.write_str(&bound(*threads, *cpus)),
            Self::Respected { threads, cpus } => {
                let bound = bound(*threads, *cpus);
                write!(f, "{bound}: their own masks are respected (--free lets threads leave them)")
            }
            Self::Uneven { threads, cpus } => {
                let threads = plural(*threads, "running thread");
                write!(f, "{threads} do not divide evenly over {}", plural(*cpus, "CPU"))
            }
            Self::Sleepers { idle } => {
                let idle = percent(*idle);
                write!(f, "threads sleep {idle} of the time waiting for each other: they stay free to move")
            }
            Self::Hog { cpus, share } => write!(f, "other programs take {} of CPUs {cpus}", percent(*share)),
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
                write!(f, "{} may not be moved: {why}", plural(*threads, "thread"))
            }
            Self::Unwatched { threads } => {
                let more = plural(*threads, "more thread");
                write!(f, "{more} cannot be watched (too many, or unreadable): left alone")
            }
            Self::NoWaitTimes => f.write_str(
                "the kernel does not count time spent waiting for a CPU: speeds are shares of elapsed time",
            ),
            Self::Lone { processes: 1 } => f.write_str(
                "one thread computes, and it may be about to count CPUs or to start others: it stays free to move",
            ),
            Self::Lone { processes } => write!(
                f,
                "{processes} processes compute with one thread each, and have only begun: they stay free to move"
            ),
            Self::OneUnit => f.write_str(
                "all CPUs share one memory node and one last-level cache: no thread can be nearer to its memory",
            ),
            Self::Uncounted => f.write_str(
                "no counter tells whether memory is near (see trimtab counters): no thread is moved because of its memory",
            ),
            Self::Stalls { threads, share } => {
                let stall = if *threads == 1 { "stalls" } else { "stall" };
                write!(f, "{} {stall} on memory", plural(*threads, "thread"))?;
                match share {
                    Some(share) => write!(f, " {} of the cycles: other nodes are tried", percent(*share)),
                    None => f.write_str(": other nodes are tried"),
                }
            }
            Self::NothingStalls => f.write_str("no thread stalls on memory enough for a move to help"),
            Self::Slowed { tick } => {
                write!(f, "sampling costs more than its budget (--budget): a sample every {tick} from now on")
            }
            Self::NoGain => f.write_str("moves were tried and brought nothing: threads are left alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_traces_and_one_is_one() {
        let all = [
            Finding::TooEarly,
            Finding::NothingWaits,
            Finding::KernelRotates { spread: 0.1 },
            Finding::Bound { threads: 3, cpus: 2 },
            Finding::Respected { threads: 3, cpus: 2 },
            Finding::Uneven { threads: 3, cpus: 2 },
            Finding::Sleepers { idle: 0.1 },
            Finding::Hog { cpus: CpuSet::new(), share: 0.1 },
            Finding::Quota { throttled: 0.1 },
            Finding::Asymmetric { slowest: 0.1 },
            Finding::TooFine { bound: Span::from_ms(1) },
            Finding::HandsOff { threads: 1, why: "so".to_owned() },
            Finding::NoWaitTimes,
            Finding::NoGain,
            Finding::Unwatched { threads: 2 },
            Finding::OneCpu { threads: 2 },
            Finding::Lone { processes: 1 },
            Finding::Lone { processes: 2 },
            Finding::OneUnit,
            Finding::Uncounted,
            Finding::Stalls { threads: 2, share: Some(0.4) },
            Finding::Stalls { threads: 1, share: None },
            Finding::NothingStalls,
            Finding::Slowed { tick: Span::from_ms(40) },
        ];
        for finding in all {
            let value = serde_json::to_value(&finding).unwrap();
            let kind = value.as_object().map_or(value.as_str(), |one| one.keys().next().map(String::as_str));
            assert_eq!(kind, Some(finding.word()), "{finding}");
        }
        let one = Finding::HandsOff { threads: 1, why: "so".to_owned() };
        assert_eq!(one.to_string(), "1 thread may not be moved: so");
        assert_eq!(Finding::Bound { threads: 3, cpus: 1 }.to_string(), "3 threads can only use one CPU");
    }
}
