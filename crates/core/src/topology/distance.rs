//! Distances between NUMA nodes: firmware's table where there is one, the tree's shape where there is none.

use super::{Level, Object, Parts};
use std::ops::Range;

/// Local access, in firmware's (ACPI SLIT) scale.
const LOCAL: u32 = 10;
/// Another node behind the same package or group, and one across the machine, where firmware is silent. The usual values
/// of two-package machines in the corpus (11 to 16 inside a package, 20 to 32 across).
const SAME_PACKAGE: u32 = 12;
const SAME_GROUP: u32 = 16;
const FAR: u32 = 20;

/// Sorts nodes by kernel number and carries the table along.
pub(super) fn sort_nodes(parts: &mut Parts) {
    let mut order: Vec<usize> = (0..parts.nodes.len()).collect();
    order.sort_by_key(|&at| parts.nodes[at].os);
    if order.windows(2).all(|pair| pair[0] < pair[1]) {
        return;
    }
    if !parts.distances.is_empty() {
        let n = order.len();
        let old = &parts.distances;
        parts.distances =
            order.iter().flat_map(|&from| order.iter().map(move |&to| old[from * n + to])).collect();
    }
    parts.nodes = order.iter().map(|&at| parts.nodes[at].clone()).collect();
}

/// The full table, row by row in the order of the nodes.
pub(super) fn table(parts: &Parts, objects: &[Object]) -> Vec<u32> {
    if !parts.distances.is_empty() {
        return parts.distances.clone();
    }
    let near: Vec<Range<u32>> = parts.nodes.iter().map(|node| node.first..node.first + node.count).collect();
    let holds = |object: &Object, pus: &Range<u32>| {
        !pus.is_empty() && object.pus.start <= pus.start && pus.end <= object.pus.end
    };
    let share = |level: Level, a: &Range<u32>, b: &Range<u32>| {
        objects.iter().any(|object| object.level == level && holds(object, a) && holds(object, b))
    };
    let mut table = Vec::with_capacity(near.len() * near.len());
    for (from, a) in near.iter().enumerate() {
        for (to, b) in near.iter().enumerate() {
            table.push(match () {
                () if from == to => LOCAL,
                () if share(Level::Package, a, b) => SAME_PACKAGE,
                () if share(Level::Group, a, b) => SAME_GROUP,
                () => FAR,
            });
        }
    }
    table
}
