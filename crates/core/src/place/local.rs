//! Local memory: distinction of cores with local memory from cores that reach all memory through
//! other cores' nodes.
//!
//! Four cases are equal for a program: a die without its own memory channels (Threadripper 2990WX),
//! a node without memory modules, a node that the cpuset excludes, and a node whose memory other
//! programs use up. In each case all memory accesses go to another node. Such cores are *remote*.
//! They compute as fast as others, so they are used if cores with memory do not suffice, and after
//! those; first the ones that are nearest to memory.

use super::Taken;
use super::taken::FULL_BELOW_PERCENT;
use crate::ids::{Id, NodeId};
use crate::set::NodeSet;
use crate::topology::{Core, Level, Machine, Node};

/// Distances of a core without a home node to memory in its package, in its group, and elsewhere:
/// the values with which the tree of objects stands in for the firmware's table.
const TREE_DISTANCES: [(Level, u32); 2] = [(Level::Package, 12), (Level::Group, 16)];
const FAR_DISTANCE: u32 = 20;

/// Returns the nodes with memory, as far as the source reports it. An unknown amount counts as
/// memory; a source that reports only the amount 0 is ignored.
fn filled(machine: &Machine) -> NodeSet {
    let nodes = machine.nodes();
    let filled: NodeSet = nodes.iter().filter(|node| node.bytes != Some(0)).map(|node| node.os).collect();
    if filled.is_empty() { nodes.iter().map(|node| node.os).collect() } else { filled }
}

/// Returns the nodes with memory that may be used, whether it is free or not.
pub(super) fn permitted(machine: &Machine, taken: &Taken) -> NodeSet {
    let filled = filled(machine);
    taken.mems.as_ref().map_or_else(|| filled.clone(), |mems| filled.intersection(mems))
}

/// Returns the nodes with memory that may be used and of which some is free. If all of them are
/// full, they do not differ, and all are returned.
pub(super) fn usable(machine: &Machine, taken: &Taken) -> NodeSet {
    let permitted = permitted(machine, taken);
    let full = machine.nodes().iter().filter(|node| is_full(node, taken)).map(|node| node.os).collect();
    let free = permitted.difference(&full);
    if free.is_empty() { permitted } else { free }
}

/// Returns whether other programs use up, or hold, the memory of a node.
pub(super) fn is_full(node: &Node, taken: &Taken) -> bool {
    let (Some(room), Some(bytes)) = (room(node, taken), node.bytes) else { return false };
    bytes > 0 && u128::from(room) * 100 < u128::from(bytes) * u128::from(FULL_BELOW_PERCENT)
}

/// Returns the bytes of a node that a run could get: its free memory, or all of its memory if it
/// was not examined, without the part that others hold; `None` if neither is known.
pub(super) fn room(node: &Node, taken: &Taken) -> Option<u64> {
    let free = taken.free_memory.get(&node.os).copied().or(node.bytes)?;
    Some(free.saturating_sub(held(node, taken)))
}

/// Returns the bytes of a node that others hold and do not use yet; at most its free memory.
pub(super) fn held(node: &Node, taken: &Taken) -> u64 {
    let held = taken.held_memory.get(&node.os).copied().unwrap_or(0);
    let free = taken.free_memory.get(&node.os).copied().or(node.bytes);
    free.map_or(held, |free| held.min(free))
}

/// Returns for each core of the machine whether it is remote. No core is remote if no node has
/// usable memory, because the cores then do not differ.
pub(super) fn remote(machine: &Machine, taken: &Taken) -> Vec<bool> {
    let usable = usable(machine, taken);
    machine.cores().iter().map(|core| !usable.is_empty() && !is_in(machine, core, &usable)).collect()
}

fn is_in(machine: &Machine, core: &Core, nodes: &NodeSet) -> bool {
    let node = core.node.and_then(|node| machine.nodes().get(node.index()));
    node.is_some_and(|node| nodes.contains(node.os))
}

/// Returns for each core of the machine the distance to the nearest of these nodes, on the scale of
/// [`Machine::distance`]; the same for all cores if there are no such nodes.
pub(super) fn distances(machine: &Machine, nodes: &NodeSet) -> Vec<u32> {
    let ids = || (0..machine.nodes().len()).map(NodeId::from_index);
    let targets: Vec<NodeId> = ids().filter(|id| nodes.contains(machine.nodes()[id.index()].os)).collect();
    if targets.is_empty() {
        return vec![0; machine.cores().len()];
    }
    let nearest = |from: NodeId| targets.iter().map(|&to| machine.distance(from, to)).min();
    let of_node: Vec<u32> = ids().map(|from| nearest(from).unwrap_or(FAR_DISTANCE)).collect();
    let mut last = None; // cores without a home node that share a cache are in one place
    let mut all = Vec::with_capacity(machine.cores().len());
    for core in machine.cores() {
        let distance = match (core.node, last) {
            (Some(node), _) => of_node[node.index()],
            (None, Some((llc, distance))) if llc == core.llc => distance,
            (None, _) => by_tree(machine, core, &targets),
        };
        last = core.node.is_none().then_some((core.llc, distance));
        all.push(distance);
    }
    all
}

/// Returns for each node of the machine its distance from the nearest of these nodes; the same for
/// all nodes if there are no such nodes.
pub(super) fn distances_from(machine: &Machine, nodes: &NodeSet) -> Vec<u32> {
    let ids = || (0..machine.nodes().len()).map(NodeId::from_index);
    let sources = || ids().filter(|id| nodes.contains(machine.nodes()[id.index()].os));
    ids().map(|to| sources().map(|from| machine.distance(from, to)).min().unwrap_or(0)).collect()
}

/// Returns the distance of a core without a home node to the nearest of some nodes.
fn by_tree(machine: &Machine, core: &Core, targets: &[NodeId]) -> u32 {
    let around = |level: Level| {
        let outer = |pus: &std::ops::Range<u32>| pus.start <= core.pus.start && core.pus.end <= pus.end;
        machine.at(level).filter(move |object| outer(&object.pus)).any(|object| {
            let inside = |near: &std::ops::Range<u32>| {
                !near.is_empty() && object.pus.start <= near.start && near.end <= object.pus.end
            };
            targets.iter().any(|node| inside(&machine.nodes()[node.index()].near))
        })
    };
    let found = TREE_DISTANCES.into_iter().find(|&(level, _)| around(level));
    found.map_or(FAR_DISTANCE, |(_, distance)| distance)
}
