//! Load of each CPU between two moments.
//!
//! Unit: permille of the time between the samples. The kernel counts in clock ticks of 10 ms, so
//! samples 100 ms apart distinguish busy from idle in steps of 100 permille; samples closer
//! together show little, and CPUs with unmoved counters are missing, not idle.
//!
//! Rejected: `/proc/schedstat`, which counts in nanoseconds. It adds a task's time when the task
//! leaves the CPU, so the program that matters most, which computes without a pause, does not
//! appear at all.

use crate::text::{self, ReadError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::ids::OsCpu;

/// Counters of one CPU since boot, in clock ticks. Time of virtual machines' guests is inside
/// `user` and `nice`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ticks {
    /// In user mode.
    pub user: u64,
    /// In user mode at lowered priority.
    pub nice: u64,
    /// In the kernel.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a task that last ran here waits for a disk: usable by every other task.
    pub iowait: u64,
    /// In interrupts.
    pub irq: u64,
    /// In the deferred half of interrupts.
    pub softirq: u64,
    /// Ready, but the hypervisor ran something else.
    pub steal: u64,
}

impl Ticks {
    /// Parses the numbers of one line. The last four columns came with Linux 2.6; missing columns
    /// count as 0.
    fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut must = || words.next().and_then(text::number::<u64>);
        let (user, nice, system, idle) = (must()?, must()?, must()?, must()?);
        let mut may = || words.next().map_or(Some(0), text::number::<u64>);
        Some(Self { user, nice, system, idle, iowait: may()?, irq: may()?, softirq: may()?, steal: may()? })
    }

    /// Returns the counts between `before` and `self`; `None` if the counters were reset.
    ///
    /// The two idle counters may run back by a tick or so (they are estimates for CPUs with a clock
    /// that is stopped), which counts as no time. Any other counter that runs back means that the
    /// counters were reset.
    fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            user: self.user.checked_sub(before.user)?,
            nice: self.nice.checked_sub(before.nice)?,
            system: self.system.checked_sub(before.system)?,
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            irq: self.irq.checked_sub(before.irq)?,
            softirq: self.softirq.checked_sub(before.softirq)?,
            steal: self.steal.checked_sub(before.steal)?,
        })
    }

    /// Converts the counters of one interval to shares of it; `None` when no counter moved.
    fn shares(&self) -> Option<CpuLoad> {
        let wanted = [self.user, self.nice, self.system, self.irq, self.softirq, self.steal];
        let busy: u128 = wanted.iter().map(|&ticks| u128::from(ticks)).sum();
        let total = busy + u128::from(self.idle) + u128::from(self.iowait);
        let permille = |ticks: u128| u16::try_from((ticks * 1000).checked_div(total)?).ok();
        Some(CpuLoad { busy_permille: permille(busy)?, stolen_permille: permille(self.steal.into())? })
    }
}

/// Counters of all CPUs online at one moment, as read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoadSample {
    /// By CPU.
    pub cpus: BTreeMap<OsCpu, Ticks>,
}

impl LoadSample {
    /// Reads `stat` under `proc`.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn read(proc: &Path) -> Result<Self, ReadError> {
        let path = proc.join("stat");
        Self::parse(&text::read_piece(&path)?).map_err(|problem| ReadError::malformed(&path, problem))
    }

    /// Parses the text of `/proc/stat`.
    ///
    /// # Errors
    /// The missing or malformed part.
    pub fn parse(stat: &[u8]) -> Result<Self, &'static str> {
        let mut cpus = BTreeMap::new();
        // The CPUs come first; the line after them has thousands of interrupt counters.
        for line in stat.split(|&byte| byte == b'\n').take_while(|line| line.starts_with(b"cpu")) {
            let mut words = text::words(line);
            let name = words.next().and_then(|word| word.strip_prefix(b"cpu")).unwrap_or_default();
            if name.is_empty() {
                continue; // the sum of all CPUs
            }
            let cpu = text::number(name).map(OsCpu).ok_or("a CPU's number is not one")?;
            cpus.insert(cpu, Ticks::parse(words).ok_or("a CPU's counters are not numbers")?);
        }
        if cpus.is_empty() { Err("no line of a CPU") } else { Ok(Self { cpus }) }
    }
}

/// Use of one CPU's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Time in which a task ran on it or was ready, interrupts and stolen time included, in
    /// permille.
    pub busy_permille: u16,
    /// The stolen part of that time, which the hypervisor gave to others, in permille.
    pub stolen_permille: u16,
}

/// Load of the CPUs between two samples.
///
/// A CPU is missing when it was offline at either moment, when its counters were reset, or when
/// they did not move.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// By CPU.
    pub cpus: BTreeMap<OsCpu, CpuLoad>,
}

impl Load {
    /// Computes the load of the time between two samples.
    pub fn between(before: &LoadSample, after: &LoadSample) -> Self {
        let of = |(&cpu, now): (&OsCpu, &Ticks)| {
            let ticks = now.since(before.cpus.get(&cpu)?)?;
            Some((cpu, ticks.shares()?))
        };
        Self { cpus: after.cpus.iter().filter_map(of).collect() }
    }
}
