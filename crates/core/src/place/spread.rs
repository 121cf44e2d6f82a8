//! Scatter and balanced strategies: threads as far apart as the machine allows.
//!
//! Unit: items. Problem: give `n` threads the most memory controllers and cache, on machines with
//! unequal free room in their parts. Idea: split `n` over the children of each level in proportion
//! to their free items, largest remainder first, and descend: groups, packages, nodes, caches.
//! Scatter deals out thread numbers in turn (neighbouring numbers are far apart); balanced gives
//! each child a block (neighbouring numbers stay neighbours). Properties: Shares of equal children
//! differ by at most one at every level. Winners among equal remainders are spaced evenly, so 2 of
//! 8 equal nodes are nodes 0 and 4. Source: seed 004 and the affinity types of Intel's runtime.

use super::pool::{Item, KEYS};

/// Order of thread numbers over the places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadOrder {
    /// Neighbouring numbers are far apart.
    Dealt,
    /// Neighbouring numbers are in neighbouring places.
    Blocks,
}

/// Chooses `n` of `items`. Returns their positions in thread order; `None` if there are fewer
/// items.
pub(super) fn choose(items: &[Item], n: usize, order: ThreadOrder) -> Option<Vec<usize>> {
    (items.len() >= n).then(|| split(items, &(0..items.len()).collect::<Vec<_>>(), 0, n, order))
}

fn split(items: &[Item], among: &[usize], level: usize, n: usize, order: ThreadOrder) -> Vec<usize> {
    if n == 0 {
        return Vec::new();
    }
    if level == KEYS.len() {
        let mut cheapest = among.to_vec();
        cheapest.sort_by_key(|&at| (items[at].cost, at));
        cheapest.truncate(n);
        cheapest.sort_unstable();
        return cheapest;
    }
    let children: Vec<&[usize]> =
        among.chunk_by(|&a, &b| items[a].keys[level] == items[b].keys[level]).collect();
    let shares = apportion(&children.iter().map(|child| child.len()).collect::<Vec<_>>(), n);
    let parts: Vec<Vec<usize>> = children
        .iter()
        .zip(shares)
        .map(|(child, share)| split(items, child, level + 1, share, order))
        .collect();
    match order {
        ThreadOrder::Blocks => parts.concat(),
        ThreadOrder::Dealt => {
            let rounds = parts.iter().map(Vec::len).max().unwrap_or(0);
            (0..rounds)
                .flat_map(|round| parts.iter().filter_map(move |part| part.get(round).copied()))
                .collect()
        }
    }
}

/// Splits `n` over children in proportion to their sizes (`n` at most their sum), largest remainder
/// first; winners among equal remainders are spaced evenly.
pub(super) fn apportion(sizes: &[usize], n: usize) -> Vec<usize> {
    let total: usize = sizes.iter().sum();
    if total == 0 {
        return vec![0; sizes.len()];
    }
    let mut shares: Vec<usize> = sizes.iter().map(|size| n * size / total).collect();
    let mut left = n - shares.iter().sum::<usize>();
    let mut remainders: Vec<(usize, usize)> = sizes.iter().map(|size| n * size % total).zip(0..).collect();
    remainders.sort_by_key(|&(remainder, at)| (std::cmp::Reverse(remainder), at));
    for equal in remainders.chunk_by(|a, b| a.0 == b.0) {
        let winners = left.min(equal.len());
        for winner in 0..winners {
            shares[equal[winner * equal.len() / winners].1] += 1;
        }
        left -= winners;
    }
    shares
}
