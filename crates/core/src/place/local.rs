//! Local memory: distinction of cores with local memory from cores that reach all memory through
//! other cores' nodes.
//!
//! Three cases are equal for a program: a die without its own memory channels (Threadripper
//! 2990WX), a node without memory modules, and a node that the cpuset excludes. In each case all
//! memory accesses go to another node. Such cores are *remote*. They compute as fast as others, so
//! they are used if cores with memory do not suffice, and after those.

use super::Taken;
use crate::ids::Id;
use crate::set::NodeSet;
use crate::topology::{Core, Machine};

/// Returns the nodes with memory, as far as the source reports it. An unknown amount counts as
/// memory; a source that reports only the amount 0 is ignored.
pub(super) fn filled(machine: &Machine) -> NodeSet {
    let nodes = machine.nodes();
    let filled: NodeSet = nodes.iter().filter(|node| node.bytes != Some(0)).map(|node| node.os).collect();
    if filled.is_empty() { nodes.iter().map(|node| node.os).collect() } else { filled }
}

/// Returns for each core of the machine whether it is remote. No core is remote if no node has
/// usable memory, because the cores then do not differ.
pub(super) fn remote(machine: &Machine, taken: &Taken) -> Vec<bool> {
    let filled = filled(machine);
    let usable = taken.mems.as_ref().map_or_else(|| filled.clone(), |mems| filled.intersection(mems));
    let is_local = |core: &Core| {
        let node = core.node.and_then(|node| machine.nodes().get(node.index()));
        usable.is_empty() || node.is_some_and(|node| usable.contains(node.os))
    };
    machine.cores().iter().map(|core| !is_local(core)).collect()
}
