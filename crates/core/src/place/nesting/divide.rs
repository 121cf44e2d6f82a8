//! Division of cores into shares, one for each thread of a team.
//!
//! Unit: cores, as sorted runs of tree order. Problem: give each of `n` threads at least `w` cores,
//! such that the shares are where the strategy wants them and do not straddle the groups of the
//! machine. Idea: pass whole shares down the tree. Each group gets at most the number of shares it
//! has room for, in proportion to its cores (far apart) or as early as possible (close together).
//! Only if the groups are too small to contain a share is the run cut as if it had no groups.
//! Properties: Shares are disjoint while there is a core for each thread. Each share has `w` cores
//! while there are `n * w`; otherwise it has at most one core fewer than its neighbours. Shares are
//! in ascending order, and so are the cores of a share. An anchored division begins with the first
//! core given.

use super::tree::{CoreGroup, Tree};

/// Parameters of a division.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Number of shares.
    pub(super) threads: usize,
    /// Number of cores wanted for each share.
    pub(super) width: usize,
    /// Whether the shares are far apart and use all cores; if not, they are close together and use
    /// no more cores than wanted.
    pub(super) apart: bool,
    /// Whether the first share must begin at the first core.
    pub(super) anchored: bool,
}

impl Tree {
    /// Divides the tree into `count` parts that are far apart, for this number of programs. With
    /// more parts than cores, parts overlap.
    pub fn parts(&self, count: u32) -> Vec<Self> {
        let all: Vec<u32> = (0..self.len()).collect();
        let cut = Cut { threads: count as usize, width: 1, apart: true, anchored: false };
        divide(self, &all, cut).iter().filter_map(|cores| self.only(cores)).collect()
    }
}

/// Divides `cores`, which must be ascending, into shares.
pub(super) fn divide(tree: &Tree, cores: &[u32], cut: Cut) -> Vec<Vec<u32>> {
    let Some(all) = tree.groups().first().filter(|_| cores.len() >= cut.threads) else {
        return divide_run(cores, cut);
    };
    let cut = cut.narrowed(cores.len());
    let mut shares = Vec::with_capacity(cut.threads);
    let (group, cores) =
        if cut.apart { (all, cores) } else { smallest(tree, cores, cut).unwrap_or((all, cores)) };
    hand_down(tree, group, cores, cut, &mut shares);
    shares
}

/// Returns the group that contains enough of `cores` and the fewest others, with its part of
/// `cores`; among equals the innermost, then the first. With an anchor, only groups around it
/// count.
fn smallest<'a, 'b>(tree: &'a Tree, cores: &'b [u32], cut: Cut) -> Option<(&'a CoreGroup, &'b [u32])> {
    let anchor = cores.first().filter(|_| cut.anchored);
    let fits = tree.groups().iter().rev().filter_map(|group| {
        let from = cores.partition_point(|&core| core < group.cores.start);
        let to = cores.partition_point(|&core| core < group.cores.end);
        let inside = &cores[from..to];
        let around = anchor.is_none_or(|anchor| group.cores.contains(anchor));
        (around && inside.len() >= cut.threads * cut.width).then_some((group, inside))
    });
    // Groups are in tree order: in reverse, the last of equals is the first, and its parents come
    // after it.
    fits.min_by_key(|(group, inside)| (inside.len(), group.cores.len(), group.cores.start))
}

/// Divides cores, in any order, as if they had no groups.
pub(super) fn divide_run(cores: &[u32], cut: Cut) -> Vec<Vec<u32>> {
    let (count, threads) = (cores.len(), cut.threads);
    if count < threads {
        // More threads than cores: threads with neighbouring numbers share a core.
        return (0..threads).filter_map(|thread| Some(vec![*cores.get(thread * count / threads)?])).collect();
    }
    let mut shares = Vec::with_capacity(threads);
    slice(cores, cut.narrowed(count), &mut shares);
    shares
}

impl Cut {
    /// Limits the width to the value that `cores` cores allow for each thread.
    fn narrowed(self, cores: usize) -> Self {
        Self { width: self.width.min(cores / self.threads.max(1)).max(1), ..self }
    }
}

/// Divides cores inside a group; there must be at least `threads * width`.
fn hand_down(tree: &Tree, group: &CoreGroup, cores: &[u32], cut: Cut, shares: &mut Vec<Vec<u32>>) {
    let Cut { threads, width, apart, anchored } = cut;
    if threads == 0 {
        return;
    }
    let parts = parts(tree, group, cores);
    if let [(Some(only), inside)] = parts.as_slice() {
        return hand_down(tree, only, inside, cut, shares);
    }
    // Far apart, with at least one part for each thread: neighbouring parts are joined.
    if apart && threads <= parts.len() {
        let bundle =
            |thread: usize| &parts[thread * parts.len() / threads..(thread + 1) * parts.len() / threads];
        let bundles = (0..threads)
            .map(|thread| bundle(thread).iter().flat_map(|(_, inside)| *inside).copied().collect());
        let bundles: Vec<Vec<u32>> = bundles.collect();
        if bundles.iter().all(|bundle| bundle.len() >= width) {
            shares.extend(bundles);
            return;
        }
    }
    let rooms: Vec<usize> = parts.iter().map(|(_, inside)| inside.len() / width).collect();
    let sizes: Vec<usize> = parts.iter().map(|(_, inside)| inside.len()).collect();
    let flat = parts.iter().all(|(_, inside)| inside.len() == 1);
    let counts = match (flat, rooms.iter().sum::<usize>() >= threads && (!anchored || rooms[0] > 0)) {
        (false, true) if apart => in_proportion(threads, &rooms, &sizes, anchored),
        (false, true) => in_order(threads, &rooms),
        _ => return slice(cores, cut, shares),
    };
    for ((count, (inner, inside)), first) in counts.into_iter().zip(parts).zip(0..) {
        let cut = Cut { threads: count, anchored: anchored && first == 0, ..cut };
        match inner {
            Some(inner) => hand_down(tree, inner, inside, cut, shares),
            None => slice(inside, cut, shares),
        }
    }
}

/// Cuts a run as if it had no groups.
fn slice(cores: &[u32], Cut { threads, width, apart, .. }: Cut, shares: &mut Vec<Vec<u32>>) {
    for thread in 0..threads {
        let (from, to) = if apart {
            (thread * cores.len() / threads, (thread + 1) * cores.len() / threads)
        } else {
            (thread * width, (thread + 1) * width)
        };
        shares.push(cores.get(from..to).unwrap_or_default().to_vec());
    }
}

/// Returns the cores of a group by the objects directly inside it: its inner groups, and each other
/// core alone.
fn parts<'a, 'b>(
    tree: &'a Tree,
    group: &'a CoreGroup,
    cores: &'b [u32],
) -> Vec<(Option<&'a CoreGroup>, &'b [u32])> {
    let mut parts = Vec::new();
    let mut rest = cores;
    let children = group.children.iter().filter_map(|&child| tree.groups().get(child as usize));
    for child in children {
        let (before, from) = rest.split_at(rest.partition_point(|&core| core < child.cores.start));
        let (inside, after) = from.split_at(from.partition_point(|&core| core < child.cores.end));
        parts.extend(before.chunks(1).map(|core| (None, core)));
        if !inside.is_empty() {
            parts.push((Some(child), inside));
        }
        rest = after;
    }
    parts.extend(rest.chunks(1).map(|core| (None, core)));
    parts
}

/// Distributes `threads` over parts by their sizes, none above its room: largest remainder, first
/// among equals.
fn in_proportion(threads: usize, rooms: &[usize], sizes: &[usize], anchored: bool) -> Vec<usize> {
    let all: usize = sizes.iter().sum();
    let mut counts: Vec<usize> =
        rooms.iter().zip(sizes).map(|(&room, &size)| (threads * size / all).min(room)).collect();
    if anchored {
        counts[0] = counts[0].max(1);
    }
    let mut given: usize = counts.iter().sum();
    while given > threads {
        // The anchor took one too many: take it from the part with the most threads.
        if let Some(most) = (1..counts.len()).max_by_key(|&at| (counts[at], std::cmp::Reverse(at))) {
            counts[most] = counts[most].saturating_sub(1);
        }
        given -= 1;
    }
    while given < threads {
        // The part with the most cores for each of its threads, including the new thread.
        let open = (0..counts.len()).filter(|&at| counts[at] < rooms[at]);
        let owed = |at: usize| (threads * sizes[at]).saturating_sub(counts[at] * all);
        let Some(next) = open.max_by_key(|&at| (owed(at), std::cmp::Reverse(at))) else { break };
        counts[next] += 1;
        given += 1;
    }
    counts
}

/// Distributes `threads` over parts, each filled before the next.
fn in_order(threads: usize, rooms: &[usize]) -> Vec<usize> {
    let mut left = threads;
    rooms
        .iter()
        .map(|&room| {
            let count = room.min(left);
            left -= count;
            count
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(tree: &str, threads: usize, width: usize, apart: bool) -> Vec<Vec<u32>> {
        let tree: Tree = tree.parse().unwrap();
        let all: Vec<u32> = (0..tree.len()).collect();
        divide(&tree, &all, Cut { threads, width, apart, anchored: false })
    }

    const SOCKETS: &str = "[0,1,2,3],[4,5,6,7],[8,9,10,11],[12,13,14,15]";

    fn first_cores(shares: &[Vec<u32>]) -> Vec<u32> {
        shares.iter().map(|share| share[0]).collect()
    }

    #[test]
    fn far_apart_uses_every_group() {
        assert_eq!(first_cores(&cut(SOCKETS, 4, 1, true)), [0, 4, 8, 12]);
        assert_eq!(first_cores(&cut(SOCKETS, 6, 2, true)), [0, 2, 4, 6, 8, 12]);
        let rest = (8..16).collect();
        assert_eq!(cut(SOCKETS, 3, 4, true), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], rest]);
        assert_eq!(first_cores(&cut("[(0,1),(2,3)],[(4,5),(6,7)]", 2, 1, true)), [0, 4]);
        assert_eq!(first_cores(&cut("[(0,1),(2,3)],[(4,5),(6,7)]", 4, 1, true)), [0, 2, 4, 6]);
    }

    #[test]
    fn close_together_takes_the_smallest_group() {
        assert_eq!(first_cores(&cut(SOCKETS, 4, 1, false)), [0, 1, 2, 3]);
        assert_eq!(cut("[0,1,2,3],[4,5]", 2, 1, false), [[4], [5]]);
        assert_eq!(cut("[0,1,2,3,4],[5,6,7,8,9]", 3, 2, false), [[0, 1], [2, 3], [5, 6]]);
    }

    #[test]
    fn a_team_larger_than_any_group_is_cut_from_consecutive_cores() {
        assert_eq!(
            cut("[0,1,2,3,4,5],[6,7,8,9,10,11]", 3, 4, true),
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        );
    }

    #[test]
    fn more_threads_than_cores_are_dealt_evenly() {
        assert_eq!(first_cores(&cut("[0,1],[2]", 7, 3, true)), [0, 0, 0, 1, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn shares_keep_the_promises(
            groups in prop::collection::vec(1usize..7, 1..6),
            threads in 1usize..20,
            width in 1usize..8,
            apart: bool,
            anchored: bool,
        ) {
            let mut cpu = 0;
            let text: Vec<String> = groups.iter().map(|&size| {
                let cpus: Vec<String> = (cpu..cpu + size).map(|cpu| cpu.to_string()).collect();
                cpu += size;
                format!("[{}]", cpus.join(","))
            }).collect();
            let tree: Tree = text.join(",").parse().unwrap();
            let all: Vec<u32> = (0..tree.len()).collect();
            let shares = divide(&tree, &all, Cut { threads, width, apart, anchored });
            prop_assert_eq!(shares.len(), threads);
            prop_assert!(!anchored || shares[0][0] == 0);
            let least = shares.iter().map(Vec::len).min().unwrap();
            if all.len() >= threads {
                let mut used: Vec<u32> = shares.iter().flatten().copied().collect();
                let count = used.len();
                prop_assert!(used.is_sorted());
                used.dedup();
                prop_assert_eq!(used.len(), count, "disjoint");
                prop_assert!(least >= width.min(all.len() / threads));
            } else {
                let uses = |core: u32| shares.iter().filter(|share| share[0] == core).count();
                let counts: Vec<usize> = all.iter().map(|&core| uses(core)).collect();
                prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            }
        }
    }
}
