//! Occupancy of the machine, and the cost of using occupied cores.
//!
//! Unit: thousandths of a core lost. A core that other programs keep 30 % busy costs 300, since a
//! program with barriers runs at the speed of its slowest thread. Held, pinned and busy cores are
//! avoided in this order, and *scored* instead of excluded: an almost idle core is better than a
//! second socket. Only a core held exclusively by another run is excluded, unless the user shares
//! on purpose.

use crate::ids::{OsCpu, OsNode};
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of the machine around a request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// CPUs that remain after the inherited mask, the cpuset and the online set.
    pub allowed: CpuSet,
    /// Memory nodes that may be used; `None` for all.
    pub mems: Option<crate::set::NodeSet>,
    /// CPUs held by other runs in the ledger, or granted to others by another manager.
    pub held: CpuSet,
    /// CPUs to which running or sleeping tasks of other programs are bound.
    pub pinned: CpuSet,
    /// Busy share of each sampled CPU, in thousandths.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPU bandwidth granted by the cgroup, in thousandths of a CPU; `None` without a quota.
    pub quota: Option<u32>,
    /// Memory of each examined node that is free or can be freed at once, in bytes. A node without
    /// an entry was not examined, and counts with all of its memory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub free_memory: BTreeMap<OsNode, u64>,
    /// Memory of each node that other runs hold and do not use yet, in bytes. It is part of the
    /// free memory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_memory: BTreeMap<OsNode, u64>,
}

/// Share of its memory, in percent, below which a node counts as full. Chosen: the kernel starts to
/// reclaim pages when less than 0.1 to 1 % of a zone is free, and serves requests from another node
/// by then.
pub const FULL_BELOW_PERCENT: u8 = 2;

/// Busy share in thousandths from which a core counts as busy. Timers, daemons and the sampling
/// itself stay below it (idle machines here show 0 to 4 % over 100 ms).
pub const BUSY_FROM: u16 = 100;
/// Cost of a core with a bound task, in thousandths: the task can claim all of the core at any
/// moment, and cannot run elsewhere.
pub(super) const PINNED_COST: u32 = 1_500;
/// Cost of a core held by another run, in thousandths: that run relies on having the core alone.
pub(super) const HELD_COST: u32 = 4_000;

/// State of a core, from free to the strongest obstacle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuState {
    /// No obstacle.
    Free,
    /// Load of other programs at or above [`BUSY_FROM`].
    Busy,
    /// A task of another program is bound to it.
    Pinned,
    /// Another run holds it.
    Held,
    /// Outside the CPUs that this process may use.
    Disallowed,
}

impl Taken {
    /// Returns an occupancy with `allowed` allowed and nothing taken.
    pub fn nothing(allowed: CpuSet) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// Returns the state of one CPU.
    pub fn state(&self, cpu: OsCpu) -> CpuState {
        match () {
            () if !self.allowed.contains(cpu) => CpuState::Disallowed,
            () if self.held.contains(cpu) => CpuState::Held,
            () if self.pinned.contains(cpu) => CpuState::Pinned,
            () if self.load(cpu) >= BUSY_FROM => CpuState::Busy,
            () => CpuState::Free,
        }
    }

    /// Returns the sampled load of one CPU in thousandths; 0 if it was not sampled.
    pub fn load(&self, cpu: OsCpu) -> u16 {
        self.busy.get(&cpu).copied().unwrap_or(0)
    }
}

/// Binding of another program's task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Affinity mask of the task.
    pub cpus: CpuSet,
    /// Whether it was running or waiting for a CPU when it was sampled.
    pub running: bool,
}

/// Returns the CPUs that bindings claim. A task bound inside one core claims this core's CPUs
/// whether it runs or sleeps, because it cannot run elsewhere after waking. A task bound to many
/// CPUs (a container's, a batch job's) claims none of them alone. Their CPUs are claimed only if
/// running tasks crowd them: half a task or more for each CPU.
pub fn pinned_cpus(machine: &crate::topology::Machine, bindings: &[Binding]) -> CpuSet {
    let mut claimed = CpuSet::new();
    let mut crowd: BTreeMap<OsCpu, u64> = BTreeMap::new();
    for Binding { cpus, running } in bindings {
        let cores: std::collections::BTreeSet<_> =
            cpus.iter().filter_map(|cpu| machine.pu(cpu)).map(|pu| machine.core_of(pu)).collect();
        if cores.len() == 1 {
            claimed.extend(cpus.iter());
        } else if *running {
            let share = 1_000 / cpus.len().max(1) as u64;
            for cpu in cpus.iter() {
                *crowd.entry(cpu).or_default() += share;
            }
        }
    }
    claimed.extend(crowd.into_iter().filter(|&(_, tasks)| tasks >= 500).map(|(cpu, _)| cpu));
    claimed
}
