//! Scheduler models that run below the policies, with their constants.
//!
//! Constants of Linux grow with the logarithm of the number of CPUs (`sched_tunable_scaling`,
//! capped at 8 CPUs), so a preset is made for a number of CPUs.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use trimtab_core::time::Span;

/// Scheduler model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// Balances queue lengths as kernels of 2008 to 2010 did: never fixes a difference of one.
    Load,
    /// Today's balancing: idle pull, periodic balancing of domains, the odd thread rotates.
    #[default]
    Eevdf,
    /// Round slices, with work stealing from queues that are behind: Li, Baumberger and Hahn, PPoPP
    /// 2009.
    Dwrr,
    /// Threads stay where they start, placed round robin.
    Pinned,
    /// Xen's credits for virtual CPUs.
    Credit,
}

/// Order in which the threads of one run queue run, where [`SchedulerKind`] leaves it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// The thread with the least run time first: the completely fair scheduler, 2.6.23 to 6.5.
    Least,
    /// The earliest virtual deadline first, among threads that had no more than the mean: since
    /// 6.6.
    #[default]
    Deadline,
}

/// Effect of a call of yield.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yielding {
    /// The caller goes to the tail of the queue: any thread that computes goes first.
    #[default]
    Posix,
    /// A hint: the caller soon runs again, and keeps about its fair share.
    Hint,
}

/// Scheduler model with its constants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Model.
    pub kind: SchedulerKind,
    /// Order of one run queue.
    pub order: QueueOrder,
    /// Period of the timer tick: preemption happens at its multiples.
    pub tick: Span,
    /// How long a thread runs before another of equal right runs: the least granularity, base
    /// slice, round or time slice.
    pub slice: Span,
    /// With [`QueueOrder::Least`]: period in which every thread runs once, unless slices become too
    /// short.
    pub latency: Span,
    /// With [`QueueOrder::Least`]: by how much a woken thread must be behind to preempt.
    pub wakeup: Span,
    /// Effect of yield.
    pub yielding: Yielding,
    /// Period of balancing: a domain of w CPUs is balanced every w times this when the CPU is idle.
    pub balance: Span,
    /// Factor by which balancing is less frequent on a busy CPU.
    pub busy_factor: u32,
    /// Whether sessions share the CPU time, instead of threads.
    pub groups: bool,
    /// Whether a CPU that falls idle searches other CPUs for work.
    pub idle_pull: bool,
    /// A CPU that is usually idle for less than this does not search.
    pub idle_least: Span,
    /// Odds of a search in 1,024 at first; later as often as searches were successful. 1,024:
    /// always.
    pub idle_odds: u32,
    /// With [`SchedulerKind::Credit`]: whether a running virtual CPU goes to the socket with more
    /// idle cores.
    pub spread: bool,
}

/// Error: no preset has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("\"{0}\" is not a kernel (known: {known})", known = Kernel::PRESETS.join(", "))]
pub struct UnknownKernel(pub String);

impl Kernel {
    /// Names of the presets.
    pub const PRESETS: [&'static str; 7] =
        ["linux-2.6.28", "linux-6.1", "linux-6.12", "linux-6.18", "dwrr-2.6.22", "xen-4.0", "pinned"];

    /// Returns a preset for a machine with this number of CPUs.
    ///
    /// # Errors
    /// No preset has this name.
    pub fn preset(name: &str, cpus: usize) -> Result<Self, UnknownKernel> {
        // kernel/sched/fair.c, get_update_sysctl_factor: 1 + log2 of the CPUs, at most 8 of them.
        let scale = u64::from(1 + cpus.clamp(1, 8).ilog2());
        let scaled = |us: u64| Span::from_us(us * scale);
        let modern = Self {
            kind: SchedulerKind::Eevdf,
            order: QueueOrder::Deadline,
            // CONFIG_HZ=250, the default of Debian's and most other servers.
            tick: Span::from_ms(4),
            slice: scaled(750), // sysctl_sched_base_slice, 6.6 to 6.12
            latency: scaled(6_000),
            wakeup: scaled(1_000),
            yielding: Yielding::Posix, // 79104becf42b, in 6.12.63 and 6.18
            balance: Span::from_ms(1), // kernel/sched/topology.c, sd_init: min_interval = sd_weight (ms)
            busy_factor: 16,           // 6e7499135db7, since 5.10
            groups: false,
            idle_pull: true,
            // rq->avg_idle is compared with the highest cost so far of a search of the domain, some
            // 20 us (measured values vary).
            idle_least: Span::from_us(20),
            // 33cf66d88306, "Proportional newidle balance", in 6.12.65 and 6.18.5: half of the
            // times, until its success is known.
            idle_odds: 512,
            spread: false,
        };
        let old = Self {
            kind: SchedulerKind::Load,
            order: QueueOrder::Least,
            slice: scaled(4_000),     // 2.6.28: sysctl_sched_min_granularity
            latency: scaled(20_000),  // sysctl_sched_latency
            wakeup: scaled(5_000),    // sysctl_sched_wakeup_granularity
            yielding: Yielding::Hint, // sched_compat_yield = 0
            busy_factor: 64,          // SD_CPU_INIT, include/linux/topology.h
            idle_least: Span::ZERO,   // avg_idle came with 2.6.31
            idle_odds: 1024,
            ..modern.clone()
        };
        Ok(match name {
            "linux-2.6.28" => old,
            // sysctl_sched_min_granularity 0.75 ms, latency 6 ms, wakeup granularity 1 ms, times
            // the scale.
            "linux-6.1" => {
                Self { order: QueueOrder::Least, yielding: Yielding::Hint, idle_odds: 1024, ..modern }
            }
            "linux-6.12" => modern,
            // base slice 0.7 ms since 6.13.
            "linux-6.18" => Self { slice: scaled(700), ..modern },
            // Round slices of 100 ms: the DEF_TIMESLICE of the O(1) scheduler, on which the
            // published patch is based.
            "dwrr-2.6.22" => Self {
                kind: SchedulerKind::Dwrr,
                slice: Span::from_ms(100),
                yielding: Yielding::Posix,
                ..old
            },
            // xen/common/sched_credit.c: CSCHED_MSECS_PER_TICK 10, three ticks a slice;
            // csched_vcpu_acct calls csched_cpu_pick at each tick.
            "xen-4.0" => Self {
                kind: SchedulerKind::Credit,
                tick: Span::from_ms(10),
                slice: Span::from_ms(30),
                spread: true,
                ..old
            },
            "pinned" => Self { kind: SchedulerKind::Pinned, ..modern },
            _ => return Err(UnknownKernel(name.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_known_by_name() {
        for name in Kernel::PRESETS {
            assert!(Kernel::preset(name, 16).is_ok());
        }
        let error = Kernel::preset("linux-7", 2).unwrap_err().to_string();
        assert!(error.contains("linux-6.18"), "{error}");
    }

    #[test]
    fn slices_are_those_measured_on_two_cpus() {
        assert_eq!(Kernel::preset("linux-6.18", 2).unwrap().slice, Span::from_us(1_400));
    }
}
