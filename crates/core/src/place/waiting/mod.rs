//! How threads wait for each other: what the runtimes are told, from how full the plan's CPUs will be.
//!
//! Problem: a thread that spins at a barrier is quickest where every thread has a CPU of its own, and where not it takes the
//! CPU from the one it waits for: three threads on two CPUs with a barrier each millisecond take twice as long spinning as
//! yielding or sleeping. Runtimes choose by what they see, and they see too little: libgomp counts its own threads against the
//! affinity mask, so it knows no other program and no quota, and LLVM's runtime spins 200 ms whoever else wants the CPU. Idea:
//! the launcher knows the plan, the quota and the others; [`decide`] says from these whether CPUs will be short, and
//! [`Waiting::variables`] says it to each runtime in its own words, or leaves the runtime alone.
//!
//! Terms: the program's CPUs are *short* where it runs more threads than CPUs, or more than the CPUs of
//! its quota. Other programs on the same CPUs do not make them short: fine-grained OpenMP beside a hog
//! loses 8 to 37 % with waits that sleep, and the kernel divides the CPU either way. A *family* is the
//! variables of one runtime's kind (OpenMP, one MPI, UPC++).
//!
//! Properties: with CPUs of one's own nothing is set, so that a run is no worse than without trimtab; a family in which the
//! user set anything is left to the user as a whole, since half of a policy is none; equal input gives equal variables.
//!
//! Source: runtimes' manuals; the values were read back from libgomp 12 (`OMP_DISPLAY_ENV=verbose`) and LLVM's libomp 14
//! (`KMP_SETTINGS=1`). That waiting decides is in C. Iancu et al., "Oversubscription on Multicore Processors", IPDPS 2010.

mod variables;

#[cfg(test)]
mod tests;

use super::{Plan, Reason};
use crate::set::CpuSet;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How threads are to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// As the runtimes do by themselves where CPUs are the program's own; a moment of spinning and then sleep where not.
    #[default]
    Auto,
    /// Spin, whoever waits for the CPU.
    Spin,
    /// Give the CPU away and look again.
    Yield,
    /// Sleep at once.
    Sleep,
    /// Nothing is set.
    Keep,
}

impl WaitPolicy {
    /// All of them, as listed in help.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Spin, Self::Yield, Self::Sleep, Self::Keep];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Sleep => "sleep",
            Self::Keep => "keep",
        }
    }
}

impl fmt::Display for WaitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for WaitPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.word() == text);
        known.ok_or_else(|| format!("\"{text}\" is no way to wait: auto, spin, yield, sleep or keep"))
    }
}

/// What `sched_yield` does on this kernel: measured, since versions do not tell.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "yield", rename_all = "kebab-case")]
pub enum Yield {
    /// The caller gives its turn away: a computing thread beside it has nearly the whole CPU.
    Posix,
    /// The caller is chosen again soon.
    Weak {
        /// What a computing thread gets beside a yielding one, of the CPU.
        share: f64,
    },
    /// It was not measured.
    #[default]
    Unknown,
}

impl fmt::Display for Yield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posix => f.write_str("sched_yield gives the CPU away on this kernel: measured"),
            Self::Weak { share } => write!(
                f,
                "sched_yield barely gives the CPU away on this kernel: measured, a thread that computes beside one that yields \
                 gets {:.0} % of it",
                share * 100.0
            ),
            Self::Unknown => f.write_str(
                "what sched_yield does on this kernel could not be measured: others wanted the CPU",
            ),
        }
    }
}

/// How full the plan's CPUs will be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Occupancy {
    /// Threads that will compute, of all ranks on these CPUs together.
    pub threads: u64,
    /// CPUs that they have.
    pub cpus: u64,
    /// Thousandths of a CPU that they have together; `None` without a quota.
    pub quota: Option<u32>,
    /// Those of the CPUs that others use too.
    pub shared: CpuSet,
}

impl Occupancy {
    /// That of a plan. `omp` is the count of threads that the user set for OpenMP, one number or one a level; `nested` how
    /// many threads nested teams have together, where trimtab places some; `quota` in thousandths of a CPU.
    pub fn of(plan: &Plan, omp: Option<&str>, nested: Option<u64>, quota: Option<u32>) -> Self {
        let asked = omp.and_then(product).or(nested).unwrap_or(u64::from(plan.threads));
        let mut occupancy = Self { threads: asked, cpus: count(&plan.mask), quota, shared: CpuSet::new() };
        for reason in &plan.reasons {
            match reason {
                // Ranks count against the whole of what they share: a rank alone cannot tell that its core has two.
                Reason::Rank { of, allotment, .. } => {
                    occupancy.threads = asked.saturating_mul(u64::from(*of));
                    occupancy.cpus = count(allotment);
                }
                Reason::UsedAnyway { cpus, .. } => occupancy.shared.extend(cpus.iter()),
                _ => {}
            }
        }
        occupancy
    }

    /// Why the program's own threads have too few CPUs; empty where each has one.
    fn short(&self) -> Vec<Short> {
        let Self { threads, cpus, quota, .. } = *self;
        let mut why = Vec::new();
        if threads > cpus {
            why.push(Short::Threads { threads, cpus });
        }
        // A runtime advised by the quota rounds it up: 1.5 CPUs are 2 threads, and not too many.
        let granted = |quota: u32| u64::from(quota).div_ceil(1_000).max(1);
        if let Some(quota) = quota.filter(|&quota| granted(quota) < threads.min(cpus)) {
            why.push(Short::Quota { quota, threads });
        }
        why
    }
}

/// A list of counts, one a level, as a number of threads.
fn product(list: &str) -> Option<u64> {
    let counts = list
        .split(',')
        .map(|count| count.trim().parse::<u32>().ok().map(u64::from).filter(|&count| count > 0));
    counts.reduce(|all, count| Some(all?.saturating_mul(count?))).flatten()
}

fn count(cpus: &CpuSet) -> u64 {
    cpus.len() as u64
}

/// Why CPUs will be short.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "short", rename_all = "kebab-case")]
pub enum Short {
    /// There are more threads than CPUs.
    Threads {
        /// Threads.
        threads: u64,
        /// CPUs.
        cpus: u64,
    },
    /// The quota gives less time than the threads want, and no runtime looks at quotas.
    Quota {
        /// Thousandths of a CPU.
        quota: u32,
        /// Threads.
        threads: u64,
    },
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { threads, cpus } => {
                write!(f, "{} on {}", plural(*threads, "thread"), plural(*cpus, "CPU"))
            }
            Self::Quota { quota, threads } => write!(
                f,
                "{} on a quota of {}.{:02} CPUs",
                plural(*threads, "thread"),
                quota / 1000,
                quota % 1000 / 10
            ),
        }
    }
}

/// What waiting threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Whatever their runtime does by itself.
    Left,
    /// They spin.
    Spin,
    /// They yield.
    Yield,
    /// They spin for a moment and then sleep, or yield where a runtime cannot sleep.
    Brief,
    /// They sleep, or yield where a runtime cannot.
    Sleep,
}

/// A decision, with its causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// What was asked for.
    pub policy: WaitPolicy,
    /// What comes of it.
    pub how: How,
    /// Why the program's own threads have too few CPUs; empty where each has one.
    pub short: Vec<Short>,
    /// The CPUs that other programs use too.
    pub shared: CpuSet,
}

/// Decides.
pub fn decide(policy: WaitPolicy, occupancy: &Occupancy) -> Waiting {
    let short = occupancy.short();
    let how = match policy {
        WaitPolicy::Keep => How::Left,
        WaitPolicy::Auto if short.is_empty() => How::Left,
        WaitPolicy::Auto => How::Brief,
        WaitPolicy::Spin => How::Spin,
        WaitPolicy::Yield => How::Yield,
        WaitPolicy::Sleep => How::Sleep,
    };
    Waiting { policy, how, short, shared: occupancy.shared.clone() }
}

/// One line, for people.
impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<String> = self.short.iter().map(ToString::to_string).collect();
        let short = short.join("; ");
        match (self.policy, self.how) {
            (WaitPolicy::Keep, _) => f.write_str("how threads wait is left alone (--wait-policy keep)"),
            (_, How::Left) if self.shared.is_empty() => {
                f.write_str("threads wait as their runtimes do: every thread has a CPU")
            }
            (_, How::Left) => write!(
                f,
                "threads wait as their runtimes do: every thread has a CPU, though other programs use CPUs {} too",
                self.shared
            ),
            (_, How::Brief) => write!(f, "waiting threads spin for a moment and then sleep: {short}"),
            (policy, how) => {
                let what = match how {
                    How::Spin => "spin",
                    How::Yield => "yield",
                    _ => "sleep",
                };
                write!(f, "waiting threads {what} (--wait-policy {policy})")?;
                match how {
                    How::Spin if !short.is_empty() => {
                        write!(f, ", and will keep others from the CPU: {short}")
                    }
                    How::Spin if !self.shared.is_empty() => {
                        write!(f, ", beside other programs on CPUs {}", self.shared)
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}
