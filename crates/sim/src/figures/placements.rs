//! Placements of threads on nodes: all distinct ones, to find the best of them offline.
//!
//! Unit: a *placement*, the node of each thread, in order. Problem: a study compares with the best
//! static placement, "hand-optimised", which is found by experiment. Idea: threads of one kind are
//! interchangeable, and so are nodes without their memory, so few placements remain. Each is run
//! like any other scenario, with every thread bound to the CPUs of its node.

/// Returns all placements of threads on nodes with `room` places each. `kinds` is the kind of each
/// thread; the memory is all on node 0, and the other nodes are interchangeable.
pub(super) fn all(kinds: &[usize], nodes: usize, room: usize) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    let mut placement = vec![0; kinds.len()];
    loop {
        let count = |node: usize| placement.iter().filter(|&&at| at == node).count();
        let fits = (0..nodes).all(|node| count(node) <= room);
        // Of threads of a kind, the first is on the lowest node.
        let ordered = (0..kinds.len()).all(|at| {
            let before = (0..at).rev().find(|&before| kinds[before] == kinds[at]);
            before.is_none_or(|before| placement[before] <= placement[at])
        });
        // Of interchangeable nodes, the lowest is used first.
        let first = |node: usize| placement.iter().position(|&at| at == node).unwrap_or(usize::MAX);
        let lowest = (2..nodes).all(|node| first(node - 1) <= first(node));
        if fits && ordered && lowest {
            found.push(placement.clone());
        }
        let Some(at) = placement.iter().rposition(|&node| node + 1 < nodes) else { return found };
        placement[at] += 1;
        placement[at + 1..].fill(0);
    }
}

/// Returns a short name of a placement: threads by node, as `3+1`, or node by thread if their kinds
/// differ, as `0110`.
pub(super) fn name(placement: &[usize], kinds: &[usize], nodes: usize) -> String {
    if kinds.iter().all(|kind| *kind == kinds[0]) {
        let count = |node: usize| placement.iter().filter(|&&at| at == node).count().to_string();
        return (0..nodes).map(count).collect::<Vec<_>>().join("+");
    }
    placement.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_threads_have_as_many_ways_as_counts() {
        let names = |kinds: &[usize], nodes, room| -> Vec<String> {
            all(kinds, nodes, room).iter().map(|one| name(one, kinds, nodes)).collect()
        };
        assert_eq!(names(&[0; 4], 2, 4), ["4+0", "3+1", "2+2", "1+3", "0+4"]);
        assert_eq!(names(&[0; 8], 2, 4), ["4+4"]);
        assert_eq!(names(&[0; 2], 4, 4), ["2+0+0+0", "1+1+0+0", "0+2+0+0", "0+1+1+0"]);
        assert_eq!(all(&[0, 1, 2, 3], 2, 4).len(), 16);
        assert_eq!(names(&[0, 1], 2, 4), ["00", "01", "10", "11"]);
    }
}
