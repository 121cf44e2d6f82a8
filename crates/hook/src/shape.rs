//! Shape of a guest: what the choice of its cores depends on.

use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::place::vcpus_own;
use trimtab_core::set::CpuSet;

/// Most vCPUs of a guest. QEMU's machines have 4,096 at most.
pub const VCPUS_MAX: u32 = 8_192;

/// Shape of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GuestShape {
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// Hardware threads of each of its cores, as the guest sees them.
    pub threads: u32,
    /// The vCPUs of each of its own NUMA nodes, in the order of the nodes; empty if it has none.
    pub cells: Vec<BTreeSet<u32>>,
    /// CPUs that the engine itself was told.
    pub own: OwnCpus,
    /// Numbers of its I/O threads.
    pub iothreads: u32,
}

/// CPUs of a guest that its engine was told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum OwnCpus {
    /// None.
    #[default]
    None,
    /// Each vCPU has CPUs of its own.
    Exclusive(CpuSet),
    /// There are some, which other guests may share.
    Shared,
}

impl OwnCpus {
    /// Judges the masks of a guest's vCPUs; `None` is a vCPU without one.
    pub fn of(masks: &[Option<CpuSet>]) -> Self {
        if masks.iter().all(Option::is_none) {
            return Self::None;
        }
        let all: Option<Vec<CpuSet>> = masks.iter().cloned().collect();
        all.and_then(|masks| vcpus_own(&masks)).map_or(Self::Shared, Self::Exclusive)
    }
}

/// Returns the vCPUs of each NUMA node of a guest, in the order of the nodes' numbers, without the
/// nodes that have none. There are no nodes if one of them cannot be used (`None`), or if a number
/// or a vCPU is in two of them, so that a hostile text cannot make more of them than the guest has
/// vCPUs.
pub(crate) fn numa_cells(
    listed: impl Iterator<Item = Option<(u32, CpuSet)>>,
    vcpus: u32,
) -> Vec<BTreeSet<u32>> {
    let (mut cells, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for cell in listed {
        let Some((number, list)) = cell else { return Vec::new() };
        let cell: BTreeSet<u32> = list.iter().map(|vcpu| vcpu.0).filter(|vcpu| *vcpu < vcpus).collect();
        let is_new = cell.iter().all(|vcpu| seen.insert(*vcpu));
        if !is_new || cells.insert(number, cell).is_some() {
            return Vec::new();
        }
    }
    cells.into_values().filter(|cell| !cell.is_empty()).collect()
}

/// Returns a number of vCPUs if a guest can have as many.
pub(crate) fn vcpu_count(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|count| (1..=VCPUS_MAX).contains(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_exclusive_if_the_vcpus_have_no_more_cpus_than_they_are() {
        let masks = |texts: &[&str]| -> Vec<Option<CpuSet>> {
            texts.iter().map(|text| (!text.is_empty()).then(|| text.parse().unwrap())).collect()
        };
        assert_eq!(OwnCpus::of(&masks(&["", ""])), OwnCpus::None);
        assert_eq!(OwnCpus::of(&masks(&["4", "5"])), OwnCpus::Exclusive("4-5".parse().unwrap()));
        assert_eq!(OwnCpus::of(&masks(&["0-7", "0-7"])), OwnCpus::Shared);
        assert_eq!(OwnCpus::of(&masks(&["4", ""])), OwnCpus::Shared);
    }

    #[test]
    fn a_vcpu_is_in_one_node_of_its_guest() {
        let cells = |listed: &[(u32, &str)]| {
            let read = listed.iter().map(|(number, list)| Some((*number, list.parse().ok()?)));
            numa_cells(read, 8)
        };
        let sets = |lists: &[&[u32]]| -> Vec<BTreeSet<u32>> {
            lists.iter().map(|list| list.iter().copied().collect()).collect()
        };
        assert_eq!(cells(&[(1, "2-3"), (0, "0,4"), (7, ""), (2, "7-9")]), sets(&[&[0, 4], &[2, 3], &[7]]));
        assert_eq!(cells(&[(0, "0-3"), (1, "3-4")]), sets(&[]), "vCPU 3 is in two");
        assert_eq!(cells(&[(0, "0"), (0, "1")]), sets(&[]), "node 0 is there twice");
        assert_eq!(cells(&[(0, "0"), (1, "x")]), sets(&[]), "no list");
    }

    #[test]
    fn a_count_of_vcpus_has_bounds() {
        assert_eq!(vcpu_count(" 4\n"), Some(4));
        for text in ["", "0", "-1", "8193", "99999999999", "x"] {
            assert_eq!(vcpu_count(text), None, "{text}");
        }
    }
}
