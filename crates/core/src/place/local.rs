//! Local memory: which cores have memory of their own, and which reach all of it through other cores' nodes.
//!
//! A die whose memory channels are not led out (Threadripper 2990WX), a node without modules and a node that the cpuset
//! excludes are alike to a program: each access goes to another node. Such cores are *remote*. They compute as fast as
//! others, so they are used where cores with memory do not suffice, and after them.

use super::Taken;
use crate::ids::Id;
use crate::set::NodeSet;
use crate::topology::{Core, Machine};

/// The nodes that have memory, as far as their source says: an unknown amount counts as some, and a source that names no
/// amount but 0 has said nothing.
pub(super) fn filled(machine: &Machine) -> NodeSet {
    let nodes = machine.nodes();
    let filled: NodeSet = nodes.iter().filter(|node| node.bytes != Some(0)).map(|node| node.os).collect();
    if filled.is_empty() { nodes.iter().map(|node| node.os).collect() } else { filled }
}

/// Of each core of the machine, whether it is remote. None is where no node has memory that may be used: then nothing
/// tells the cores apart.
pub(super) fn remote(machine: &Machine, taken: &Taken) -> Vec<bool> {
    let filled = filled(machine);
    let usable = taken.mems.as_ref().map_or_else(|| filled.clone(), |mems| filled.intersection(mems));
    let is_local = |core: &Core| {
        let node = core.node.and_then(|node| machine.nodes().get(node.index()));
        usable.is_empty() || node.is_some_and(|node| usable.contains(node.os))
    };
    machine.cores().iter().map(|core| !is_local(core)).collect()
}
