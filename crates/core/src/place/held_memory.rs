//! Memory that runs hold: the share of each node, and the part that other runs hold and do not use
//! yet.
//!
//! Problem: a run that asked for 64 GiB needs minutes until it has touched them. Until then the
//! kernel counts them as free, and a second run would be planned on the same memory. Idea: the
//! ledger has the memory of each hold, and a planner subtracts from the free memory the part that
//! others hold and do not use yet. Memory that a hold uses is no longer free, so it is not
//! subtracted a second time.
//!
//! Properties: All memory that a plan holds is the requested amount, and no node holds more than it
//! has. A hold inside another one counts only as far as it exceeds the outer one. An amount of used
//! memory that is too small makes planners cautious; it never makes them count memory twice.

use super::MemorySize;
use crate::ids::OsNode;
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeMemory {
    /// The node.
    pub node: OsNode,
    /// Bytes.
    pub bytes: u64,
}

/// Returns memory in words: `64 GiB on node 0, 2 GiB on node 1`.
pub fn listed(memory: &[NodeMemory]) -> String {
    let word = |memory: &NodeMemory| format!("{} on node {}", MemorySize(memory.bytes), memory.node);
    memory.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Divides `size` bytes among nodes with this room (`None`: unknown, so any amount). The groups are
/// filled in their order; the nodes of a group get equal shares, as far as their room goes.
pub(super) fn spread(size: u64, groups: Vec<Vec<(OsNode, Option<u64>)>>) -> Vec<NodeMemory> {
    let mut left = size;
    let mut shares = Vec::new();
    for mut group in groups {
        // The node with the least room first, so that the others take the part that it lacks.
        group.sort_unstable_by_key(|&(node, room)| (room.unwrap_or(u64::MAX), node));
        let count = group.len() as u64;
        for (before, (node, room)) in (0..).zip(group) {
            let share = left.div_ceil(count - before).min(room.unwrap_or(u64::MAX));
            left -= share;
            shares.push(NodeMemory { node, bytes: share });
        }
    }
    shares.retain(|share| share.bytes > 0);
    shares.sort_unstable_by_key(|share| share.node);
    shares
}

/// Memory of one hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryHold {
    /// 0 for a hold of the machine, 1 for one inside such a hold, and so on.
    pub level: u8,
    /// CPUs of the hold.
    pub cpus: CpuSet,
    /// Bytes that it holds on each node.
    pub memory: BTreeMap<OsNode, u64>,
    /// Bytes that its own processes use, without those of holds inside it, on any node.
    pub used: u64,
}

/// Returns the bytes of each node that are held by others than a run at `level` inside of `within`,
/// and that they do not use yet.
pub fn held_by_others(holds: &[MemoryHold], level: u8, within: &CpuSet) -> BTreeMap<OsNode, u64> {
    let mut sum = BTreeMap::new();
    others(holds, None, (level, within), &mut sum);
    sum
}

/// Adds the memory of the holds inside of one hold, or of the machine.
fn others(
    holds: &[MemoryHold],
    outer: Option<usize>,
    (level, within): (u8, &CpuSet),
    sum: &mut BTreeMap<OsNode, u64>,
) {
    for at in inside(holds, outer) {
        if holds[at].level < level && within.is_subset(&holds[at].cpus) {
            // The run is part of this hold.
            others(holds, Some(at), (level, within), sum);
        } else {
            add(sum, &outstanding(holds, at));
        }
    }
}

/// Returns the holds directly inside of one hold; of none: those of the machine, and those with an
/// unknown outer hold. If two holds share their CPUs, holds inside both count for the first.
fn inside(holds: &[MemoryHold], outer: Option<usize>) -> impl Iterator<Item = usize> {
    let first_around = move |hold: &MemoryHold| {
        let depth = hold.level.checked_sub(1)?;
        holds.iter().position(|outer| outer.level == depth && hold.cpus.is_subset(&outer.cpus))
    };
    (0..holds.len()).filter(move |&at| first_around(&holds[at]) == outer)
}

/// Returns the memory that a hold and those inside it have and do not use yet: of each node the
/// larger of its own and that of the inner ones.
fn outstanding(holds: &[MemoryHold], at: usize) -> BTreeMap<OsNode, u64> {
    let hold = &holds[at];
    let (mut inner, mut used) = (BTreeMap::new(), u128::from(hold.used));
    for at in inside(holds, Some(at)) {
        add(&mut inner, &outstanding(holds, at));
        used += used_in(holds, at);
    }
    let total: u128 = hold.memory.values().copied().map(u128::from).sum();
    let mut own: BTreeMap<OsNode, u64> = hold
        .memory
        .iter()
        .map(|(&node, &bytes)| {
            // The nodes of the used pages are not known: they are counted in the proportions of the
            // hold.
            let there = used.min(total) * u128::from(bytes) / total.max(1);
            (node, bytes.saturating_sub(u64::try_from(there).unwrap_or(u64::MAX)))
        })
        .collect();
    for (node, bytes) in inner {
        let own = own.entry(node).or_default();
        *own = bytes.max(*own);
    }
    own
}

/// Returns the bytes that the processes of a hold use, with those of the holds inside it.
fn used_in(holds: &[MemoryHold], at: usize) -> u128 {
    let below = inside(holds, Some(at)).map(|at| used_in(holds, at));
    u128::from(holds[at].used) + below.sum::<u128>()
}

fn add(sum: &mut BTreeMap<OsNode, u64>, more: &BTreeMap<OsNode, u64>) {
    for (&node, &bytes) in more {
        let sum = sum.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn hold(level: u8, cpus: &str, gib: &[(u32, u64)], used: u64) -> MemoryHold {
        let memory = gib.iter().map(|&(node, gib)| (OsNode(node), gib * GIB)).collect();
        MemoryHold { level, cpus: cpus.parse().unwrap(), memory, used: used * GIB }
    }

    fn others_of(holds: &[MemoryHold], level: u8, within: &str) -> Vec<(u32, u64)> {
        let held = held_by_others(holds, level, &within.parse().unwrap());
        held.into_iter().map(|(node, bytes)| (node.0, bytes / GIB)).filter(|(_, gib)| *gib > 0).collect()
    }

    #[test]
    fn memory_that_is_used_is_not_subtracted_again() {
        let holds = [hold(0, "0-3", &[(0, 60), (1, 20)], 40), hold(0, "4-5", &[], 7)];
        assert_eq!(others_of(&holds, 0, "0-7"), [(0, 30), (1, 10)]);
        let full = [hold(0, "0-3", &[(0, 60)], 61)];
        assert_eq!(others_of(&full, 0, "0-7"), []);
    }

    #[test]
    fn a_hold_inside_another_counts_as_far_as_it_exceeds_it() {
        let outer = hold(0, "0-3", &[(0, 60)], 0);
        let inner = |gib| hold(1, "0-1", &[(0, gib)], 0);
        assert_eq!(others_of(&[outer.clone(), inner(20)], 0, "0-7"), [(0, 60)]);
        assert_eq!(others_of(&[outer.clone(), inner(70)], 0, "0-7"), [(0, 70)]);
        // Seen from inside, the outer hold is the run's own, and only its other parts count.
        let sibling = hold(1, "2-3", &[(0, 5)], 0);
        let other = hold(0, "4-5", &[(0, 3)], 0);
        assert_eq!(others_of(&[outer, inner(20), sibling, other], 1, "0-3"), [(0, 28)]);
        // The pages of an inner run are pages of the outer one.
        let part = hold(1, "0-1", &[(0, 30)], 25);
        assert_eq!(others_of(&[hold(0, "0-3", &[(0, 60)], 5), part], 0, "0-7"), [(0, 30)]);
    }

    #[test]
    fn a_run_two_levels_deep_does_not_see_what_is_around_it() {
        let holds = [
            hold(0, "0-7", &[(0, 60)], 0),
            hold(1, "0-3", &[(0, 30)], 0),
            hold(1, "4-7", &[(0, 10)], 0),
            hold(2, "0", &[(0, 4)], 0),
        ];
        assert_eq!(others_of(&holds, 2, "0-3"), [(0, 14)]);
    }

    fn share(size: u64, groups: &[&[Option<u64>]]) -> Vec<u64> {
        let mut number = 0..;
        let mut named = |room: &Option<u64>| (OsNode(number.next().unwrap()), *room);
        let groups: Vec<Vec<_>> = groups.iter().map(|group| group.iter().map(&mut named).collect()).collect();
        let nodes = groups.iter().map(Vec::len).sum::<usize>();
        let shares = spread(size, groups);
        let of = |node: usize| {
            shares.iter().find(|share| share.node.0 as usize == node).map_or(0, |share| share.bytes)
        };
        (0..nodes).map(of).collect()
    }

    #[test]
    fn nodes_of_a_group_share_equally_and_groups_are_filled_in_turn() {
        assert_eq!(share(10, &[&[Some(100), Some(100)]]), [5, 5]);
        assert_eq!(share(10, &[&[Some(2), Some(100), Some(5)]]), [2, 4, 4]);
        assert_eq!(share(10, &[&[Some(3)], &[Some(4)], &[None]]), [3, 4, 3]);
        assert_eq!(share(10, &[&[None, Some(1)]]), [9, 1]);
        assert_eq!(share(1, &[&[Some(8), Some(8)]]), [1, 0]);
        assert_eq!(share(10, &[&[]]), [0u64; 0]);
    }

    proptest! {
        #[test]
        fn shares_are_the_amount_and_within_the_room(
            rooms in prop::collection::vec(prop::collection::vec(prop::option::weighted(0.8, 0u64..50), 1..4), 1..4),
            size in 1u64..200,
        ) {
            let groups: Vec<&[Option<u64>]> = rooms.iter().map(Vec::as_slice).collect();
            let shares = share(size, &groups);
            let flat: Vec<Option<u64>> = rooms.concat();
            let has: Option<u64> = flat.iter().copied().sum();
            prop_assert_eq!(shares.iter().sum::<u64>(), has.map_or(size, |has| has.min(size)));
            for (share, room) in shares.iter().zip(&flat) {
                prop_assert!(room.is_none_or(|room| *share <= room));
            }
            // A group is used only if those before it are full, and inside a group only a node
            // without further room has less than the largest share less one.
            let mut at = 0;
            for group in &rooms {
                let own = &shares[at..at + group.len()];
                let largest = own.iter().max().unwrap();
                for (share, room) in own.iter().zip(group) {
                    prop_assert!(*room == Some(*share) || share + 1 >= *largest, "{:?}", shares);
                }
                let full = own.iter().zip(group).all(|(share, room)| *room == Some(*share));
                at += group.len();
                prop_assert!(full || shares[at..].iter().all(|later| *later == 0), "{:?}", shares);
            }
        }

        /// Bookkeeping by single bytes: each node has bytes with owners.
        #[test]
        fn what_others_hold_is_at_most_their_holds_and_at_least_the_unused_part(
            drawn in prop::collection::vec((prop::collection::btree_map(0u32..3, 0u64..1_000, 0..3), 0u64..1_500), 1..6),
        ) {
            let holds: Vec<MemoryHold> = (0u32..).zip(&drawn).map(|(at, (memory, used))| MemoryHold {
                level: 0,
                cpus: [crate::ids::OsCpu(at)].into_iter().collect(),
                memory: memory.iter().map(|(&node, &bytes)| (OsNode(node), bytes)).collect(),
                used: *used,
            }).collect();
            let others = held_by_others(&holds, 0, &"0-63".parse().unwrap());
            let total: u64 = others.values().sum();
            let unused: u64 = drawn.iter().map(|(memory, used)| memory.values().sum::<u64>().saturating_sub(*used)).sum();
            // Shares of used memory are rounded down, once for each node of a hold.
            prop_assert!(total >= unused && total <= unused + 3 * 6, "{} {}", total, unused);
            for (node, bytes) in others {
                let held: u64 = drawn.iter().filter_map(|(memory, _)| memory.get(&node.0)).sum();
                prop_assert!(bytes <= held);
            }
        }
    }
}
