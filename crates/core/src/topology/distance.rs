//! Distances between NUMA nodes: the firmware's table if there is one, else derived from the
//! machine tree.

use super::{Level, NodePart, Object, Parts};

/// Local access, in firmware's (ACPI SLIT) scale.
const LOCAL_DISTANCE: u32 = 10;
/// Distance to another node in the same place: memory without CPUs that is attached to the PUs of a
/// node (HBM of a Knights Landing cluster). Chosen: more than local, less than all others.
const SAME_PLACE_DISTANCE: u32 = 11;
/// Distances to another node in the same package, in the same group, and across the machine, used
/// if firmware reports none. These are the usual values of two-package machines in the corpus (11
/// to 16 inside a package, 20 to 32 across).
const SAME_PACKAGE_DISTANCE: u32 = 12;
const SAME_GROUP_DISTANCE: u32 = 16;
const FAR_DISTANCE: u32 = 20;

/// Sorts nodes by kernel number and reorders the table accordingly.
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

/// Returns the full table, row by row in the order of the nodes.
pub(super) fn table(parts: &Parts, objects: &[Object]) -> Vec<u32> {
    if !parts.distances.is_empty() {
        return parts.distances.clone();
    }
    let packages = outermost(Level::Package, parts, objects);
    let groups = outermost(Level::Group, parts, objects);
    let share = |of: &[Option<usize>], a: usize, b: usize| of[a].is_some() && of[a] == of[b];
    let count = parts.nodes.len();
    let mut table = Vec::with_capacity(count * count);
    for from in 0..count {
        for to in 0..count {
            table.push(match () {
                () if from == to => LOCAL_DISTANCE,
                () if same_place(&parts.nodes[from], &parts.nodes[to]) => SAME_PLACE_DISTANCE,
                () if share(&packages, from, to) => SAME_PACKAGE_DISTANCE,
                () if share(&groups, from, to) => SAME_GROUP_DISTANCE,
                () => FAR_DISTANCE,
            });
        }
    }
    table
}

/// Returns whether the PUs near to one node are among those near to the other.
fn same_place(a: &NodePart, b: &NodePart) -> bool {
    let inside = |a: &NodePart, b: &NodePart| b.first <= a.first && a.first + a.count <= b.first + b.count;
    a.count > 0 && b.count > 0 && (inside(a, b) || inside(b, a))
}

/// Returns for each node the outermost object of `level` that contains its locality. Since objects
/// nest, two nodes are inside one object of the level exactly if these objects are the same.
fn outermost(level: Level, parts: &Parts, objects: &[Object]) -> Vec<Option<usize>> {
    let mut of = vec![None; parts.nodes.len()];
    for (at, object) in objects.iter().enumerate().filter(|(_, object)| object.level == level) {
        for (node, slot) in parts.nodes.iter().zip(&mut of) {
            let holds = object.pus.start <= node.first && node.first + node.count <= object.pus.end;
            if slot.is_none() && node.count > 0 && holds {
                *slot = Some(at); // objects are ordered outermost first
            }
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use crate::ids::NodeId;
    use crate::topology::parse_synthetic;

    #[test]
    fn without_firmware_distances_the_tree_gives_them() {
        let machine = parse_synthetic("group:2 pack:2 numa:2 core:1").unwrap();
        let row: Vec<u32> = (0..8).map(|to| machine.distance(NodeId(0), NodeId(to))).collect();
        assert_eq!(row, [10, 12, 16, 16, 20, 20, 20, 20]);
        let nested = parse_synthetic("group:2 group:2 numa:2 core:1").unwrap();
        let row: Vec<u32> = (0..8).map(|to| nested.distance(NodeId(0), NodeId(to))).collect();
        assert_eq!(row, [10, 16, 16, 16, 20, 20, 20, 20]);
        let attached = parse_synthetic("pack:2 numa:2 [numa] core:1").unwrap();
        let row: Vec<u32> = (0..8).map(|to| attached.distance(NodeId(1), NodeId(to))).collect();
        assert_eq!(row, [12, 10, 20, 20, 12, 11, 20, 20]);
    }
}
