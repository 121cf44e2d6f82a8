//! Dense table of the machine's CPUs, as policies use it.
//!
//! Unit: one *seat* is one CPU. Its weight is its relative speed, 1 for the fastest kind of core.
//!
//! Problem: policies ask thousands of times a second how near two CPUs are, which CPUs may be used
//! now, and how fast they are.
//!
//! Idea: the table is built once from the [`Machine`]. A flag per CPU says whether it may be used,
//! and follows the host's notices.
//!
//! Properties: the table has the machine's hardware threads in logical order, so neighbours are
//! near. A CPU that is missing in the machine model (switched on later) is missing in the table.
//! Weights belong to the kind of core, not to the single core: favoured cores of one kind count the
//! same, because their top frequency says nothing about a busy machine. No share is predicted for
//! two hardware threads of one core that slow each other down; the initial placement fills cores
//! before their second threads instead.

use crate::ids::{CoreId, Id, LlcId, OsCpu, Pu};
use crate::set::CpuSet;
use crate::topology::{KindPart, Machine};

/// Index of a CPU in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CpuIndex(u32);

impl CpuIndex {
    /// Returns the index into tables by CPU.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the CPU at an index.
    pub(super) fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Dense index of a NUMA node; all CPUs without a node share one index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NodeIndex(u32);

impl NodeIndex {
    /// Returns the index into tables by node.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Properties of one CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CpuEntry {
    /// CPU number of the kernel.
    pub(super) os: OsCpu,
    /// Its core.
    pub(super) core: CoreId,
    /// Its last-level cache.
    pub(super) llc: LlcId,
    /// Its NUMA node.
    pub(super) node: NodeIndex,
    /// Its speed, 1 for the fastest kind of core.
    pub(super) weight: f64,
}

/// Distance that a thread may move, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nearness {
    /// To CPUs that share its last-level cache.
    Cache,
    /// To CPUs of its NUMA node.
    Node,
    /// To every CPU.
    Machine,
}

/// Table of the machine's CPUs.
#[derive(Clone, Debug)]
pub(super) struct CpuTable {
    entries: Vec<CpuEntry>,
    open: Vec<bool>,
    usable: CpuSet,
    by_os: Vec<Option<CpuIndex>>, // by the kernel's number
    cores: Vec<std::ops::Range<u32>>,
    llcs: usize,
    nodes: usize,
}

impl CpuTable {
    /// Builds the table of a machine. Until an observation says otherwise, the CPUs that the
    /// machine's source allows may be used.
    pub(super) fn new(machine: &Machine) -> Self {
        let weights = weights(machine);
        let mut by_os = Vec::new();
        let entries: Vec<CpuEntry> = (0..machine.pu_count())
            .map(|at| {
                let (pu, cpu) = (Pu::from_index(at), CpuIndex::at(at));
                let os = machine.os(pu);
                if by_os.len() <= os.index() {
                    by_os.resize(os.index() + 1, None);
                }
                by_os[os.index()] = Some(cpu);
                let core = machine.core_of(pu);
                let made = machine.core(core);
                // Node 0 is reserved for CPUs without a node.
                let node = NodeIndex(made.node.map_or(0, |node| node.0 + 1));
                CpuEntry { os, core, llc: made.llc, node, weight: weights[usize::from(made.kind.0)] }
            })
            .collect();
        let mut cpu_table = Self {
            open: vec![false; entries.len()],
            entries,
            usable: CpuSet::new(),
            by_os,
            cores: machine.cores().iter().map(|core| core.pus.clone()).collect(),
            llcs: machine.llcs().len(),
            nodes: machine.nodes().len() + 1,
        };
        cpu_table.follow(&machine.allowed());
        cpu_table
    }

    /// Updates the CPUs that may be used now. Returns true when they changed.
    pub(super) fn follow(&mut self, usable: &CpuSet) -> bool {
        if self.usable == *usable {
            return false;
        }
        self.usable.clone_from(usable);
        for (entry, open) in self.entries.iter().zip(&mut self.open) {
            *open = usable.contains(entry.os);
        }
        true
    }

    /// Returns the CPUs that may be used now.
    pub(super) fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// Returns the number of CPUs, usable or not.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of last-level caches.
    pub(super) fn llcs(&self) -> usize {
        self.llcs
    }

    /// Returns one more than the largest node index.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns whether a CPU may be used now.
    pub(super) fn is_open(&self, cpu: CpuIndex) -> bool {
        self.open[cpu.index()]
    }

    /// Iterates over the CPUs that may be used now, in logical order.
    pub(super) fn open(&self) -> impl Iterator<Item = CpuIndex> + '_ {
        (0..self.entries.len()).map(CpuIndex::at).filter(|&cpu| self.is_open(cpu))
    }

    /// Returns the table index of a CPU; `None` if the machine model does not have the CPU.
    pub(super) fn find(&self, os: OsCpu) -> Option<CpuIndex> {
        self.by_os.get(os.index()).copied().flatten()
    }

    /// Returns the properties of a CPU.
    pub(super) fn entry(&self, cpu: CpuIndex) -> &CpuEntry {
        &self.entries[cpu.index()]
    }

    /// Returns the set that holds only this CPU.
    pub(super) fn only(&self, cpu: CpuIndex) -> CpuSet {
        std::iter::once(self.entry(cpu).os).collect()
    }

    /// Iterates over the CPUs of the same core, this CPU included.
    pub(super) fn siblings(&self, cpu: CpuIndex) -> impl Iterator<Item = CpuIndex> + '_ {
        self.cores[self.entry(cpu).core.index()].clone().map(CpuIndex)
    }
}

/// Returns the weight of each kind of core: its reported capacity, else its top frequency, as a
/// share of the highest. If one kind reports neither, all kinds weigh 1.
fn weights(machine: &Machine) -> Vec<f64> {
    let by = |figure: fn(&KindPart) -> Option<u32>| -> Option<Vec<f64>> {
        machine
            .kinds()
            .iter()
            .map(|kind| {
                let of = machine.parts().kinds.iter().filter(|part| part.cpus.intersects(&kind.cpus));
                of.filter_map(figure).max().filter(|&figure| figure > 0).map(f64::from)
            })
            .collect()
    };
    let figures = by(|part| part.capacity).or_else(|| by(|part| part.mhz_max));
    let figures = figures.unwrap_or_else(|| vec![1.0; machine.kinds().len()]);
    let most = figures.iter().copied().fold(0.0, f64::max);
    figures.into_iter().map(|figure| figure / most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{KindPart, parse_synthetic};

    #[test]
    fn seats_follow_the_usable_cpus() {
        let machine = parse_synthetic("numa:2 l3:2 core:2 pu:2(far)").unwrap();
        let mut cpu_table = CpuTable::new(&machine);
        assert_eq!(cpu_table.open().count(), 16);
        assert!(cpu_table.follow(&"1-3".parse().unwrap()));
        assert!(!cpu_table.follow(&"1-3".parse().unwrap()));
        let open: Vec<OsCpu> = cpu_table.open().map(|cpu| cpu_table.entry(cpu).os).collect();
        assert_eq!(open, [OsCpu(1), OsCpu(2), OsCpu(3)]);
        assert_eq!(cpu_table.find(OsCpu(99)), None);
    }

    #[test]
    fn a_place_names_its_shared_cache_and_node() {
        let cpu_table = CpuTable::new(&parse_synthetic("numa:2 l3:2 core:2 pu:2").unwrap());
        let entry = |at: usize| cpu_table.entry(CpuIndex::at(at));
        assert_eq!((entry(0).llc, entry(0).node), (entry(3).llc, entry(3).node));
        assert_ne!(entry(0).llc, entry(4).llc);
        assert_eq!(entry(0).node, entry(4).node);
        assert_ne!(entry(0).node, entry(8).node);
        assert_eq!(
            cpu_table.siblings(CpuIndex::at(5)).collect::<Vec<_>>(),
            [CpuIndex::at(4), CpuIndex::at(5)]
        );
    }

    #[test]
    fn weights_go_by_make() {
        let mut parts = parse_synthetic("core:4 pu:1").unwrap().parts().clone();
        let kind = |cpus: &str, capacity, mhz_max| KindPart {
            cpus: cpus.parse().unwrap(),
            capacity,
            mhz_max: Some(mhz_max),
            ..KindPart::default()
        };
        parts.kinds =
            vec![kind("0", Some(1024), 4900), kind("1", Some(980), 4700), kind("2-3", Some(512), 3000)];
        let weight = |parts: &crate::topology::Parts| -> Vec<f64> {
            let cpu_table = CpuTable::new(&Machine::build(parts.clone()).unwrap());
            cpu_table.open().map(|cpu| cpu_table.entry(cpu).weight).collect()
        };
        assert_eq!(weight(&parts), [1.0, 1.0, 0.5, 0.5]);
        for kind in &mut parts.kinds {
            kind.capacity = None;
        }
        let by_mhz = weight(&parts);
        assert!((by_mhz[3] - 3000.0 / 4900.0).abs() < 1e-9, "{by_mhz:?}");
        parts.kinds[2].mhz_max = None;
        assert_eq!(weight(&parts), [1.0; 4]);
    }
}
