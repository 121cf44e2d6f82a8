//! Devices dealt to the ranks of a job, and the cores of each rank near its devices.
//!
//! Problem: on a machine with four accelerators, rank 2 of four should run on the cores near the
//! third one. Consecutive parts of the allotment ([`part`](super::part)) are near it only if the
//! devices are evenly distributed over the cores. Idea: devices are dealt in the order of their
//! numbers, and each rank takes as many cores as before, first the ones near its devices.
//!
//! Properties: Rank i of as many ranks as devices gets device i. Fewer ranks get consecutive
//! devices, more ranks share them, neighbours with neighbours. Parts are disjoint, use every core,
//! and their sizes differ by at most one core, as without devices. The result depends on the
//! allotment and the devices alone, so that all ranks agree.

use super::{Plan, Reason};
use crate::ids::{CoreId, Id, NodeId};
use crate::set::CpuSet;
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Device that is dealt to ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DealtDevice {
    /// The device, as it can be named: `gpu:2`.
    pub name: String,
    /// Nearest CPUs; empty if they are not known.
    pub cpus: CpuSet,
    /// PCI number of its maker; `None` if unknown.
    pub vendor: Option<u16>,
    /// Its number among the devices of this kind and maker, in the order of bus ids.
    pub index: u32,
}

/// Returns the devices of a rank.
pub fn of_rank(devices: &[DealtDevice], rank: u32, of: u32) -> &[DealtDevice] {
    let (count, rank, of) = (devices.len(), rank as usize, (of as usize).max(1));
    if count == 0 || rank >= of {
        return &[];
    }
    let first = rank * count / of;
    let end = if of <= count { (rank + 1) * count / of } else { first + 1 };
    &devices[first..end]
}

/// Returns the CPUs near to any of these devices.
pub fn near(devices: &[DealtDevice]) -> CpuSet {
    devices.iter().fold(CpuSet::new(), |all, device| all.union(&device.cpus))
}

/// Returns the names of these devices: `gpu:0, gpu:1`.
pub fn names(devices: &[DealtDevice]) -> String {
    devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the order in which ranks choose cores: those with the fewest near CPUs first, so that a
/// rank with a choice leaves them the cores that they need.
pub fn choosing_order(devices: &[DealtDevice], of: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..of).collect();
    order.sort_by_key(|&rank| {
        let near = near(of_rank(devices, rank, of)).len();
        (if near == 0 { usize::MAX } else { near }, rank)
    });
    order
}

/// Returns the cores of each rank, out of at least as many cores as ranks.
pub(super) fn deal(
    machine: &Machine,
    cores: &[CoreId],
    devices: &[DealtDevice],
    of: u32,
) -> Vec<BTreeSet<CoreId>> {
    let ranks = (of as usize).max(1);
    let (size, more) = (cores.len() / ranks, cores.len() % ranks);
    let quota = |rank: usize| size + usize::from(rank < more);
    let mut left: BTreeSet<CoreId> = cores.iter().copied().collect();
    let mut parts: Vec<BTreeSet<CoreId>> = vec![BTreeSet::new(); ranks];
    let order = choosing_order(devices, of);
    let cpus_of = |core: &CoreId| machine.cpus_of(&machine.core(*core).pus);
    for &rank in &order {
        let near = near(of_rank(devices, rank, of));
        let rank = rank as usize;
        let chosen = left.iter().filter(|core| cpus_of(core).intersects(&near)).copied();
        let chosen: Vec<CoreId> = chosen.take(quota(rank)).collect();
        chosen.iter().for_each(|core| _ = left.remove(core));
        parts[rank].extend(chosen);
    }
    for &rank in &order {
        let nodes = machine.nodes_of(&near(of_rank(devices, rank, of)));
        let rank = rank as usize;
        let mut rest: Vec<(u32, CoreId)> =
            left.iter().map(|&core| (distance(machine, core, &nodes), core)).collect();
        rest.sort_unstable();
        for (_, core) in rest.into_iter().take(quota(rank) - parts[rank].len()) {
            left.remove(&core);
            parts[rank].insert(core);
        }
    }
    parts
}

/// Returns the distance of a core to the nearest of some nodes; 0 if there are none.
fn distance(machine: &Machine, core: CoreId, nodes: &crate::set::NodeSet) -> u32 {
    let Some(home) = machine.core(core).node else { return u32::MAX };
    let ids = (0..machine.nodes().len()).filter(|&at| nodes.contains(machine.nodes()[at].os));
    ids.map(|at| machine.distance(home, NodeId::from_index(at))).min().unwrap_or(0)
}

/// Returns the reason about a rank's devices.
pub(super) fn reason(devices: &[DealtDevice], part: &Plan) -> Option<Reason> {
    let near = near(devices);
    let device = names(devices);
    match (devices.is_empty(), near.is_empty()) {
        (true, _) => None,
        (false, true) => Some(Reason::Note { text: format!("it is not known which CPUs are near {device}") }),
        (false, false) => Some(Reason::Near { device, far: part.mask.difference(&near) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Amount, Request, Taken, part, plan};
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn device(index: u32, cpus: &str) -> DealtDevice {
        DealtDevice { name: format!("gpu:{index}"), cpus: cpus.parse().unwrap(), vendor: Some(0x10de), index }
    }

    #[test]
    fn devices_are_dealt_in_order() {
        let four: Vec<DealtDevice> = (0..4).map(|index| device(index, "0")).collect();
        let of = |rank, of| names(of_rank(&four, rank, of));
        assert_eq!([0, 1, 2, 3].map(|rank| of(rank, 4)), ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]);
        assert_eq!([0, 1].map(|rank| of(rank, 2)), ["gpu:0, gpu:1", "gpu:2, gpu:3"]);
        assert_eq!([0, 1, 2].map(|rank| of(rank, 3)), ["gpu:0", "gpu:1", "gpu:2, gpu:3"]);
        assert_eq!([0, 1, 2, 3, 7].map(|rank| of(rank, 8)), ["gpu:0", "gpu:0", "gpu:1", "gpu:1", "gpu:3"]);
        assert_eq!((of(5, 4), names(of_rank(&[], 0, 4))), (String::new(), String::new()));
    }

    #[test]
    fn ranks_are_near_their_devices_in_whatever_order_these_are() {
        let machine = parse_synthetic("numa:4 core:4").unwrap();
        let whole = |amount: &str| {
            let request = Request { amount: amount.parse().unwrap(), ..Request::default() };
            plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap()
        };
        // As on nodes of Frontier: the numbers of devices do not follow those of the nodes.
        let devices = [device(0, "12-15"), device(1, "4-7"), device(2, "8-11"), device(3, "0-3")];
        let masks = |amount: &str, of: u32, devices: &[DealtDevice]| {
            let of_rank = |rank| part(&machine, &whole(amount), rank, of, devices).mask.to_string();
            (0..of).map(of_rank).collect::<Vec<_>>()
        };
        assert_eq!(masks("auto", 4, &devices), ["12-15", "4-7", "8-11", "0-3"]);
        assert_eq!(masks("auto", 2, &devices), ["4-7,12-15", "0-3,8-11"]);
        assert_eq!(masks("auto", 8, &devices)[..4], ["12-13", "14-15", "4-5", "6-7"]);
        assert_eq!(masks("auto", 4, &[]), ["0-3", "4-7", "8-11", "12-15"]);
        // A rank whose device is near everything leaves the others theirs.
        assert_eq!(masks("auto", 2, &[device(0, "0-15"), device(1, "0-7")]), ["8-15", "0-7"]);
        // Cores near no device go to the ranks that lack some.
        assert_eq!(masks("auto", 2, &[device(0, "0-3"), device(1, "4-7")]), ["0-3,8-11", "4-7,12-15"]);
        // More ranks than cores share them in turn, as without devices.
        assert_eq!(masks("2", 3, &devices), ["0", "1", "0"]);
        let own = part(&machine, &whole("auto"), 0, 4, &devices);
        let reasons: Vec<String> = own.reasons.iter().map(ToString::to_string).collect();
        assert!(reasons.iter().any(|reason| reason == "all near gpu:0"), "{reasons:?}");
    }

    proptest! {
        #[test]
        fn parts_by_devices_are_disjoint_even_complete_and_as_near_as_can_be(
            nodes in 1u32..4, cores in 1u32..5, of in 1u32..7,
            near in prop::collection::vec(prop::collection::btree_set(0u32..15, 0..6), 1..5),
        ) {
            let machine = parse_synthetic(&format!("numa:{nodes} core:{cores}")).unwrap();
            let request = Request { amount: Amount::Auto, ..Request::default() };
            let whole = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
            let total = nodes * cores;
            let device = |(index, cpus): (u32, &BTreeSet<u32>)| {
                let cpus: CpuSet = cpus.iter().map(|&cpu| crate::ids::OsCpu(cpu % total)).collect();
                DealtDevice { name: format!("gpu:{index}"), cpus, vendor: None, index }
            };
            let devices: Vec<DealtDevice> = (0..).zip(&near).map(device).collect();
            let parts: Vec<Plan> = (0..of).map(|rank| part(&machine, &whole, rank, of, &devices)).collect();
            let sizes: Vec<usize> = parts.iter().map(|part| part.slots.len()).collect();
            prop_assert!(sizes.iter().all(|&size| size > 0));
            if total < of {
                return Ok(());
            }
            prop_assert_eq!(sizes.iter().sum::<usize>(), total as usize);
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            let union = parts.iter().fold(CpuSet::new(), |all, part| all.union(&part.mask));
            prop_assert_eq!(union, machine.cpus());
            // No two ranks would both be nearer after an exchange of cores.
            let near_of = |rank: usize| super::near(of_rank(&devices, u32::try_from(rank).unwrap(), of));
            for a in 0..parts.len() {
                for b in a + 1..parts.len() {
                    let lacks = |own: usize, other: usize| {
                        parts[own].mask.iter().find(|&cpu| !near_of(own).contains(cpu) && near_of(other).contains(cpu))
                    };
                    prop_assert!(lacks(a, b).is_none() || lacks(b, a).is_none(), "{:?}", devices);
                }
            }
        }
    }
}
