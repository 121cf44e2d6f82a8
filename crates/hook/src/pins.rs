//! CPUs of each vCPU of a guest.
//!
//! Order: the vCPUs by the guest's NUMA nodes and their numbers, the CPUs by the machine's nodes,
//! cores and hardware threads, one to one. So siblings of the guest are siblings of the machine if
//! its cores were chosen whole, and each of its nodes is in as few nodes of the machine as the
//! chosen cores permit.

use crate::shape::GuestShape;
use std::collections::BTreeSet;
use trimtab_core::ids::Pu;
use trimtab_core::set::{CpuSet, NodeSet};
use trimtab_core::topology::Machine;

/// CPUs of the threads of a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VcpuPins {
    /// CPUs of each vCPU, by number.
    pub vcpus: Vec<CpuSet>,
    /// CPUs of all vCPUs together.
    pub all: CpuSet,
    /// CPUs of the emulator and of I/O threads: all that is reserved, so that idle hardware threads
    /// do their work.
    pub rest: CpuSet,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Returns the CPUs of each vCPU of a guest that may run on `cpus`, of the CPUs that are reserved.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_hook::pins::vcpu_pins;
/// use trimtab_hook::shape::GuestShape;
///
/// let machine = parse_synthetic("core:4 pu:2")?;
/// let (cpus, reserved) = ("0,2".parse()?, "0-3".parse()?);
/// let guest = GuestShape { vcpus: 2, threads: 1, ..GuestShape::default() };
/// let pins = vcpu_pins(&machine, &cpus, &reserved, &guest);
/// assert_eq!((pins.vcpus[1].to_string(), pins.rest), ("2".to_owned(), reserved));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn vcpu_pins(machine: &Machine, cpus: &CpuSet, reserved: &CpuSet, guest: &GuestShape) -> VcpuPins {
    let (all, rest) = (cpus.clone(), reserved.clone());
    let count = guest.vcpus as usize;
    if cpus.len() < count {
        let notes = vec![format!("{count} vCPUs share CPUs {cpus}: none has one of its own")];
        return VcpuPins { vcpus: vec![all.clone(); count], all, rest, notes };
    }
    let pus = (0..u32::try_from(machine.pu_count()).unwrap_or(u32::MAX)).map(Pu);
    let order = pus.map(|pu| machine.os(pu)).filter(|cpu| cpus.contains(*cpu));
    let mut vcpus = vec![CpuSet::new(); count];
    for (vcpu, cpu) in vcpus_in_order(guest).into_iter().zip(order) {
        if let Some(mask) = vcpus.get_mut(vcpu as usize) {
            mask.insert(cpu);
        }
    }
    let notes = wide_cells(machine, &vcpus, guest);
    VcpuPins { vcpus, all, rest, notes }
}

/// Returns the numbers of the vCPUs: those of the guest's first node, of its next ones, and all
/// that are in none.
fn vcpus_in_order(guest: &GuestShape) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    let listed = guest.cells.iter().flatten().copied();
    let all = listed.chain(0..guest.vcpus);
    all.filter(|vcpu| *vcpu < guest.vcpus && seen.insert(*vcpu)).collect()
}

/// Names the nodes of the guest whose vCPUs are in several nodes of the machine.
fn wide_cells(machine: &Machine, vcpus: &[CpuSet], guest: &GuestShape) -> Vec<String> {
    let note = |(number, cell): (usize, &BTreeSet<u32>)| {
        let masks = cell.iter().filter_map(|vcpu| vcpus.get(*vcpu as usize));
        let cpus = masks.fold(CpuSet::new(), |sum, mask| sum.union(mask));
        let nodes: NodeSet = machine.nodes_of(&cpus);
        (nodes.len() > 1)
            .then(|| format!("vCPUs of node {number} of the guest are on nodes {nodes} of this machine"))
    };
    guest.cells.iter().enumerate().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimtab_core::topology::parse_synthetic;

    fn pins(machine: &str, cpus: &str, guest: &GuestShape) -> (Vec<String>, usize) {
        let machine = parse_synthetic(machine).unwrap();
        let cpus: CpuSet = cpus.parse().unwrap();
        let found = vcpu_pins(&machine, &cpus, &cpus, guest);
        (found.vcpus.iter().map(ToString::to_string).collect(), found.notes.len())
    }

    fn guest(vcpus: u32, threads: u32, cells: &[&[u32]]) -> GuestShape {
        let cells = cells.iter().map(|cell| cell.iter().copied().collect()).collect();
        GuestShape { vcpus, threads, cells, ..GuestShape::default() }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn siblings_and_nodes_of_the_guest_are_those_of_the_machine() {
        assert_eq!(pins("core:4 pu:2", "2-5", &guest(4, 2, &[])), (words("2 3 4 5"), 0));
        // The second node of the guest has the first vCPUs.
        let cells: [&[u32]; 2] = [&[2, 3], &[0, 1]];
        assert_eq!(pins("numa:2 core:2", "0-3", &guest(4, 1, &cells)), (words("2 3 0 1"), 0));
        assert_eq!(pins("numa:2 core:4", "3-6", &guest(4, 1, &cells)), (words("5 6 3 4"), 1));
        assert_eq!(pins("core:4", "1", &guest(2, 1, &[])), (words("1 1"), 1));
        // More cores than vCPUs.
        assert_eq!(pins("core:4", "0-3", &guest(2, 1, &[])), (words("0 1"), 0));
    }

    proptest! {
        #[test]
        fn each_vcpu_has_a_cpu_of_its_own_if_there_are_enough(
            count in 1_u32..12,
            chosen in proptest::collection::btree_set(0_u32..16, 1..16),
            cells in proptest::collection::vec(proptest::collection::btree_set(0_u32..12, 0..4), 0..4),
        ) {
            let machine = parse_synthetic("numa:2 core:4 pu:2").unwrap();
            let cpus: CpuSet = chosen.into_iter().map(trimtab_core::ids::OsCpu).collect();
            let shape = GuestShape { vcpus: count, threads: 1, cells, ..GuestShape::default() };
            let found = vcpu_pins(&machine, &cpus, &cpus, &shape);
            prop_assert_eq!(found.vcpus.len(), count as usize);
            let sum = found.vcpus.iter().fold(CpuSet::new(), |sum, mask| sum.union(mask));
            prop_assert!(sum.is_subset(&cpus));
            if cpus.len() >= count as usize {
                prop_assert!(found.vcpus.iter().all(|mask| mask.len() == 1));
                prop_assert_eq!(sum.len(), count as usize);
            } else {
                prop_assert!(found.vcpus.iter().all(|mask| *mask == cpus));
            }
        }
    }
}
