//! Waiting of threads: settings of the runtimes' wait policies, derived from the occupancy of the
//! plan's CPUs.
//!
//! Problem: busy-waiting at a barrier is fastest if every thread has its own CPU. Otherwise the
//! waiting thread takes the CPU from the thread it waits for: three threads on two CPUs with a
//! barrier each millisecond take twice as long spinning as yielding or sleeping. Runtimes choose
//! from too few facts: libgomp compares its own threads with the affinity mask, so it ignores other
//! programs and quotas, and LLVM's runtime spins 200 ms even if other threads want the CPU. Idea:
//! the launcher has the plan, the quota and the load of other programs. [`decide`] derives from
//! these whether CPUs will be short, and [`Waiting::variables`] sets each runtime's own variables,
//! or leaves the runtime unchanged.
//!
//! Terms: the program's CPUs are *short* if it runs more threads than CPUs, or more than the CPUs
//! of its quota. Other programs on the same CPUs do not make them short: fine-grained OpenMP beside
//! a hog loses 8 to 37 % with waits that sleep, and the kernel divides the CPU in either case. A
//! *family* is the set of variables for one kind of runtime (OpenMP, one MPI, UPC++).
//!
//! Properties: If the program has its own CPUs nothing is set, so that a run is not worse than
//! without trimtab; only under a budget ranks of MPI yield. If the user set any variable of a family, the whole family is left to the user,
//! since half of a policy has no effect. Equal input gives equal variables.
//!
//! Source: runtimes' manuals; the values were read back from libgomp 12 (`OMP_DISPLAY_ENV=verbose`)
//! and LLVM's libomp 14 (`KMP_SETTINGS=1`). The finding that the way of waiting is decisive is in
//! C. Iancu et al., "Oversubscription on Multicore Processors", IPDPS 2010.

mod variables;

#[cfg(test)]
mod tests;

use super::{Plan, Reason};
use crate::set::CpuSet;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Requested wait policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// The runtimes' default if the CPUs belong to the program alone; otherwise brief spinning and
    /// then sleep.
    #[default]
    Auto,
    /// Spin, even if other threads wait for the CPU.
    Spin,
    /// Yield the CPU and check again.
    Yield,
    /// Sleep immediately.
    Sleep,
    /// Set nothing.
    Keep,
}

impl WaitPolicy {
    /// All values, as listed in help.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Spin, Self::Yield, Self::Sleep, Self::Keep];

    /// Returns the name.
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
        known.ok_or_else(|| format!("\"{text}\" is not a way to wait: auto, spin, yield, sleep or keep"))
    }
}

/// Effect of `sched_yield` on this kernel. It is measured, since it cannot be derived from the
/// version.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "yield", rename_all = "kebab-case")]
pub enum Yield {
    /// The caller gives up its turn: a computing thread beside it has nearly the whole CPU.
    Posix,
    /// The caller is soon chosen again.
    Weak {
        /// Share of the CPU that a computing thread gets beside a yielding one, 0 to 1.
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
                "the effect of sched_yield on this kernel could not be measured: other programs used the CPU",
            ),
        }
    }
}

/// Occupancy of the plan's CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Occupancy {
    /// Number of threads that will compute, of all ranks on these CPUs together.
    pub threads: u64,
    /// Number of CPUs for these threads.
    pub cpus: u64,
    /// Thousandths of a CPU for all of them together; `None` without a quota.
    pub quota: Option<u32>,
    /// CPUs among them that other programs use too.
    pub shared: CpuSet,
    /// Whether the processes of the run share these CPUs by a budget, so that there may be more
    /// processes than CPUs.
    pub budget: bool,
}

impl Occupancy {
    /// Returns the occupancy of a plan. `omp` is the user's OpenMP thread count, one number or one
    /// per level; `nested` is the number of threads of all nested teams, if trimtab places some;
    /// `quota` is in thousandths of a CPU.
    pub fn of(plan: &Plan, omp: Option<&str>, nested: Option<u64>, quota: Option<u32>) -> Self {
        let asked = omp.and_then(product).or(nested).unwrap_or(u64::from(plan.threads));
        let mut occupancy = Self { threads: asked, cpus: count(&plan.mask), quota, ..Self::default() };
        for reason in &plan.reasons {
            match reason {
                // Ranks are compared with the whole allotment: a single rank has no information
                // that its core has two ranks.
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

    /// Returns why the program's own threads have too few CPUs; empty if each thread has one.
    fn short(&self) -> Vec<Short> {
        let Self { threads, cpus, quota, .. } = *self;
        let mut why = Vec::new();
        if threads > cpus {
            why.push(Short::Threads { threads, cpus });
        }
        // A runtime that follows the quota rounds it up: 1.5 CPUs give 2 threads, which are not too
        // many.
        let granted = |quota: u32| u64::from(quota).div_ceil(1_000).max(1);
        if let Some(quota) = quota.filter(|&quota| granted(quota) < threads.min(cpus)) {
            why.push(Short::Quota { quota, threads });
        }
        why
    }
}

/// Returns the number of threads for a list of counts, one per level.
fn product(list: &str) -> Option<u64> {
    let counts = list
        .split(',')
        .map(|count| count.trim().parse::<u32>().ok().map(u64::from).filter(|&count| count > 0));
    counts.reduce(|all, count| Some(all?.saturating_mul(count?))).flatten()
}

fn count(cpus: &CpuSet) -> u64 {
    cpus.len() as u64
}

/// Reason why CPUs will be short.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "short", rename_all = "kebab-case")]
pub enum Short {
    /// There are more threads than CPUs.
    Threads {
        /// Number of threads.
        threads: u64,
        /// Number of CPUs.
        cpus: u64,
    },
    /// The quota gives less time than the threads want, and no runtime reads quotas.
    Quota {
        /// Quota in thousandths of a CPU.
        quota: u32,
        /// Number of threads.
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

/// Activity of waiting threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Default of their runtime.
    Left,
    /// Ranks of MPI and UPC++ yield, and threads wait as their runtimes do.
    RanksYield,
    /// They spin.
    Spin,
    /// They yield.
    Yield,
    /// They spin briefly and then sleep, or yield if a runtime cannot sleep.
    Brief,
    /// They sleep, or yield if a runtime cannot sleep.
    Sleep,
}

/// Decision about waiting, with its causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// Requested policy.
    pub policy: WaitPolicy,
    /// Resulting way of waiting.
    pub how: How,
    /// Reasons why the program's own threads have too few CPUs; empty if each thread has one.
    pub short: Vec<Short>,
    /// CPUs that other programs use too.
    pub shared: CpuSet,
}

/// Decides how threads wait.
pub fn decide(policy: WaitPolicy, occupancy: &Occupancy) -> Waiting {
    let short = occupancy.short();
    let how = match policy {
        WaitPolicy::Keep => How::Left,
        // Two programs of MPI that run at once would spin at each other's cost: neither knows the
        // other. Teams of OpenMP are made smaller instead.
        WaitPolicy::Auto if short.is_empty() && occupancy.budget => How::RanksYield,
        WaitPolicy::Auto if short.is_empty() => How::Left,
        WaitPolicy::Auto => How::Brief,
        WaitPolicy::Spin => How::Spin,
        WaitPolicy::Yield => How::Yield,
        WaitPolicy::Sleep => How::Sleep,
    };
    Waiting { policy, how, short, shared: occupancy.shared.clone() }
}

/// One line for the user.
impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<String> = self.short.iter().map(ToString::to_string).collect();
        let short = short.join("; ");
        match (self.policy, self.how) {
            (WaitPolicy::Keep, _) => f.write_str("the wait policy is not changed (--wait-policy keep)"),
            (_, How::Left) if self.shared.is_empty() => {
                f.write_str("threads wait as their runtimes do: every thread has a CPU")
            }
            (_, How::Left) => write!(
                f,
                "threads wait as their runtimes do: every thread has a CPU, though other programs use CPUs {} too",
                self.shared
            ),
            (_, How::RanksYield) => f.write_str(
                "waiting ranks of MPI yield, since the run's processes share its CPUs by a budget",
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
