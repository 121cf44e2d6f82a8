//! What of the machine is already taken, and what using it anyway would cost.
//!
//! Unit: thousandths of a core lost. A core that foreign work keeps 30 % busy costs 300, since a barrier program runs at
//! the speed of its slowest thread. Held, pinned and busy cores are avoided in that order, and *scored* rather than
//! excluded: an almost idle core beats spanning a socket. Only a core that another run holds exclusively is out of
//! bounds, unless the user shares on purpose.

use crate::ids::OsCpu;
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of the machine around a request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// What the inherited mask, the cpuset and the online set leave.
    pub allowed: CpuSet,
    /// Memory nodes that may be used; `None` for all.
    pub mems: Option<crate::set::NodeSet>,
    /// CPUs that other runs hold in the ledger.
    pub held: CpuSet,
    /// CPUs that living foreign tasks are bound to.
    pub pinned: CpuSet,
    /// How busy each CPU was, in thousandths, where it was sampled.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPU bandwidth the cgroup grants, in thousandths of a CPU; `None` without a quota.
    pub quota: Option<u32>,
}

/// Below this share of busy time a core counts as free: timers, daemons and the sampling itself stay under it (idle
/// machines here show 0 to 4 % over 100 ms).
pub const BUSY_FROM: u16 = 100;
/// A living task bound to a core can claim all of it at any moment, and cannot go elsewhere.
pub(super) const PINNED_COST: u32 = 1_500;
/// A core another run holds: that run counts on having it alone.
pub(super) const HELD_COST: u32 = 4_000;

/// What stands in the way on a core, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing.
    Free,
    /// Foreign load at or above [`BUSY_FROM`].
    Busy,
    /// A foreign task is bound to it.
    Pinned,
    /// Another run holds it.
    Held,
    /// Outside what this process may use.
    Disallowed,
}

impl Taken {
    /// Nothing taken, `allowed` allowed.
    pub fn nothing(allowed: CpuSet) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// The state of one CPU.
    pub fn state(&self, cpu: OsCpu) -> State {
        match () {
            () if !self.allowed.contains(cpu) => State::Disallowed,
            () if self.held.contains(cpu) => State::Held,
            () if self.pinned.contains(cpu) => State::Pinned,
            () if self.load(cpu) >= BUSY_FROM => State::Busy,
            () => State::Free,
        }
    }

    /// Sampled load of one CPU in thousandths; 0 where it was not sampled.
    pub fn load(&self, cpu: OsCpu) -> u16 {
        self.busy.get(&cpu).copied().unwrap_or(0)
    }
}

/// A foreign task's binding: where it may run, and whether it wants to run now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Its affinity.
    pub cpus: CpuSet,
    /// Whether it was running or waiting for a CPU when it was looked at.
    pub running: bool,
}

/// The CPUs that bindings claim. A task bound inside one core claims that core's CPUs whether it runs or sleeps: when it
/// wakes it can go nowhere else. A task bound to many CPUs (a container's, a batch job's) claims none of them by itself;
/// only where running ones crowd, half a task or more for each of their CPUs, are those CPUs claimed.
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
