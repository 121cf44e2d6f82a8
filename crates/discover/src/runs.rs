//! Conversion of hwloc's sets to the model's: runs of PUs in logical order, and sets of ids.

use hwlocality::Topology;
use hwlocality::cpu::cpuset::CpuSet as HwlocSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::types::ObjectType;
use std::collections::BTreeMap;
use std::ops::Range;
use trimtab_core::ids::{Id, OsCpu};
use trimtab_core::set::{CpuSet, MAX_ID};

/// The PUs in logical order, and the position of each.
pub(crate) struct Runs {
    pus: Vec<OsCpu>,
    position: BTreeMap<OsCpu, u32>,
}

impl Runs {
    pub(crate) fn of(topology: &Topology) -> Self {
        let pus: Vec<OsCpu> = topology
            .objects_with_type(ObjectType::PU)
            .filter_map(|pu| pu.os_index())
            .map(OsCpu::from_index)
            .collect();
        let position = pus.iter().copied().zip(0..).collect();
        Self { pus, position }
    }

    pub(crate) fn pus(&self) -> &[OsCpu] {
        &self.pus
    }

    /// Splits a set into runs: one run for every set of hwloc's tree, since the tree lists PUs
    /// depth first.
    pub(crate) fn split(&self, set: &CpuSet) -> Vec<Range<u32>> {
        let mut positions: Vec<u32> = set.iter().filter_map(|cpu| self.position.get(&cpu).copied()).collect();
        positions.sort_unstable();
        let mut runs: Vec<Range<u32>> = Vec::new();
        for at in positions {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}

/// Converts a set. hwloc's sets may be infinite; ours stop at the largest id.
pub(crate) fn cpus(set: &HwlocSet) -> CpuSet {
    set.iter_set().map(usize::from).take_while(|&index| index <= MAX_ID).map(OsCpu::from_index).collect()
}

/// Returns the CPUs of an object; none for objects without a place among CPUs.
pub(crate) fn cpus_of(object: &TopologyObject) -> CpuSet {
    object.cpuset().map(|set| cpus(&set)).unwrap_or_default()
}
