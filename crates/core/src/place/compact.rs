//! Compact strategy: the fewest nodes and caches, the shortest distances, the tightest fit.
//!
//! Unit: items (cores, or whole units of cores); distances in the firmware's scale; costs in
//! thousandths of a core. Problem: choose `n` of the free items such that they touch the fewest
//! nodes, then lack the least of the requested memory, then are nearest to memory, then touch the
//! fewest last-level caches, then are nearest to each other, then cost least, then have the fastest
//! memory (most bandwidth, then least latency, if the firmware reports them for all nodes), then
//! leave the smallest rest, so that large holes stay whole for later runs. (Items far from a
//! requested device are nearest to it before all else.) Idea: the number of nodes is known in
//! advance (add the largest nodes until they suffice), so only sets with exactly this number of
//! nodes are compared. Inside a set the caches are chosen largest first, and the last cache is the
//! smallest that suffices. Properties: The node count is always minimal, and the cache count is
//! minimal for the chosen nodes. The rest of the order is exact while there are at most
//! [`SETS_MAX`] sets of nodes (every machine up to 14 nodes, and most requests beyond); past that,
//! sets are grown greedily from each of [`SEEDS_MAX`] nodes. Ties go to the lower number.

use super::pool::{Away, Item, KEY_L2, KEY_LLC, KEY_NODE, Pool, Room, Speed, Speeds};
use crate::ids::NodeId;
use crate::topology::Machine;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of sets of nodes that are compared exhaustively. C(14,7) = 3,432 fits; the limit
/// keeps planning under 10 ms.
const SETS_MAX: u64 = 5_000;
/// Maximum number of starting nodes of the greedy search.
const SEEDS_MAX: usize = 64;

/// Items of one node, grouped by last-level cache.
struct Bin<'a> {
    node: u32,
    caches: Vec<Vec<&'a Item>>,
    /// Sizes of the caches, largest first.
    sizes: Vec<usize>,
    capacity: usize,
    cost: u64,
    /// Bytes of the requested memory that the node offers.
    room: u64,
    away: Away,
    speed: Speed,
}

/// Chooses `n` of `items`, in addition to the items `before`, whose nodes offer their memory in any
/// case. Returns ascending positions in `items`; `None` if there are fewer items.
pub(super) fn choose(pool: &Pool<'_>, before: &[Item], items: &[Item], n: usize) -> Option<Vec<usize>> {
    if n == 0 || items.len() < n {
        return (n == 0).then(Vec::new);
    }
    let mut bins = bins(items, &pool.room, &pool.speeds);
    let counted: BTreeSet<u32> = before.iter().map(|item| item.keys[KEY_NODE]).collect();
    bins.iter_mut().filter(|bin| counted.contains(&bin.node)).for_each(|bin| bin.room = 0);
    let offered = counted.iter().fold(0u64, |sum, &node| sum.saturating_add(pool.room.of(node)));
    let set = nodes(pool.machine, pool.room.asked.saturating_sub(offered), &bins, n);
    let caches: Vec<&Vec<&Item>> = set.iter().flat_map(|&at| bins[at].caches.iter()).collect();
    let sizes: Vec<usize> = caches.iter().map(|cache| cache.len()).collect();
    let chosen = fill(&sizes, n).into_iter().flat_map(|(cache, take)| part(caches[cache], take));
    let mut starts: Vec<usize> = chosen.map(|item| item.members.start).collect();
    starts.sort_unstable();
    // Items are in logical order, so an item can be found by its first member.
    starts.iter().map(|&start| items.binary_search_by_key(&start, |item| item.members.start).ok()).collect()
}

fn bins<'a>(items: &'a [Item], room: &Room, speeds: &Speeds) -> Vec<Bin<'a>> {
    let mut nodes: BTreeMap<u32, BTreeMap<u32, Vec<&Item>>> = BTreeMap::new();
    for item in items {
        nodes.entry(item.keys[KEY_NODE]).or_default().entry(item.keys[KEY_LLC]).or_default().push(item);
    }
    nodes
        .into_iter()
        .map(|(node, caches)| Bin::new(node, room.of(node), speeds.of(node), caches.into_values().collect()))
        .collect()
}

impl<'a> Bin<'a> {
    fn new(node: u32, room: u64, speed: Speed, caches: Vec<Vec<&'a Item>>) -> Self {
        let mut sizes: Vec<usize> = caches.iter().map(Vec::len).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let capacity = sizes.iter().sum();
        let cost = caches.iter().flatten().map(|item| u64::from(item.cost)).sum();
        // The items of a node are in one place.
        let away = caches.iter().flatten().next().map_or_else(Away::default, |item| item.away);
        Self { node, caches, sizes, capacity, cost, room, away, speed }
    }
}

/// Returns the best set of nodes that together contain `n` items, as ascending positions in `bins`.
fn nodes(machine: &Machine, bytes: u64, bins: &[Bin<'_>], n: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..bins.len()).collect();
    by_size.sort_by_key(|&at| std::cmp::Reverse(bins[at].capacity));
    let mut sum = 0;
    let count = 1 + by_size
        .iter()
        .take_while(|&&at| {
            sum += bins[at].capacity;
            sum < n
        })
        .count();
    let scales = Scales::new(machine, bytes, bins, n, count);
    let mut best: Option<(Weight, Vec<usize>)> = None;
    let mut weigh = |set: &[usize]| {
        let Some(weight) = scales.weigh(set) else { return };
        if best.as_ref().is_none_or(|(least, chosen)| (&weight, set) < (least, chosen.as_slice())) {
            best = Some((weight, set.to_vec()));
        }
    };
    if combinations(bins.len() as u64, count as u64) <= SETS_MAX {
        each_set(bins.len(), count, &mut weigh);
    } else {
        for &seed in by_size.iter().take(SEEDS_MAX) {
            if let Some(set) = grow(machine, bins, &by_size, seed, count, n) {
                weigh(&set);
            }
        }
    }
    best.map_or_else(
        || {
            by_size.truncate(count);
            by_size.sort_unstable();
            by_size
        },
        |(_, set)| set,
    )
}

/// Grows a set from `seed` by the nearest node that still lets `count` nodes reach `n`.
fn grow(
    machine: &Machine,
    bins: &[Bin<'_>],
    by_size: &[usize],
    seed: usize,
    count: usize,
    n: usize,
) -> Option<Vec<usize>> {
    let mut set = vec![seed];
    let mut sum = bins[seed].capacity;
    let mut near: Vec<usize> = (0..bins.len()).filter(|&at| at != seed).collect();
    near.sort_by_key(|&at| (distance(machine, bins[seed].node, bins[at].node), at));
    let mut large: Vec<usize> = by_size.iter().copied().filter(|&at| at != seed).collect();
    while set.len() < count {
        // Maximum capacity of the nodes still to be added: the largest ones, with or without the
        // candidate node.
        let left = count - set.len() - 1;
        let capacity = |at: &usize| bins[*at].capacity;
        let rest: usize = large.iter().take(left).map(capacity).sum();
        let one_more = rest + large.get(left).map_or(0, capacity);
        let smallest = large[..left.min(large.len())].last().map_or(usize::MAX, capacity);
        let next = near.iter().copied().find(|at| {
            // If the candidate is one of the largest itself, there is room for the next of them.
            let together = if capacity(at) >= smallest { one_more } else { capacity(at) + rest };
            sum + together >= n
        })?;
        near.retain(|&at| at != next);
        large.retain(|&at| at != next);
        sum += bins[next].capacity;
        set.push(next);
    }
    set.sort_unstable();
    Some(set)
}

/// Weight of a set of nodes, in order of priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Weight {
    /// Distances from the requested device, summed; 0 for the nodes near to it.
    from_device: u64,
    /// Bytes of the requested memory that the nodes do not have.
    lack: u64,
    /// Distances from usable memory, summed: equal for all sets whose nodes have memory.
    from_memory: u64,
    /// Caches touched.
    caches: usize,
    /// Distances between the nodes.
    spread: u64,
    /// Mean cost of an item in thousandths of a thousandth, so that small sets are not preferred
    /// for being small.
    cost: u64,
    /// Bandwidths of the nodes' memory, summed: the most is the best.
    bandwidth: Reverse<u64>,
    /// Latencies of the nodes' memory, summed.
    latency: u64,
    /// Room left over.
    rest: usize,
}

/// Sums over some bins.
#[derive(Clone, PartialEq, Debug, Default)]
struct Sums {
    capacity: usize,
    cost: u64,
    room: u128,
    from_device: u64,
    from_memory: u64,
    bandwidth: u64,
    latency: u64,
    /// Number of caches by size.
    counts: Vec<usize>,
}

impl Sums {
    /// Returns the sums over the other bins, if these are the sums over all.
    fn without(&self, part: &Self) -> Self {
        Self {
            capacity: self.capacity - part.capacity,
            cost: self.cost - part.cost,
            room: self.room - part.room,
            from_device: self.from_device - part.from_device,
            from_memory: self.from_memory - part.from_memory,
            bandwidth: self.bandwidth - part.bandwidth,
            latency: self.latency - part.latency,
            counts: self.counts.iter().zip(&part.counts).map(|(all, part)| all - part).collect(),
        }
    }
}

/// Comparison of sets of nodes of one size. Sums are taken over the set or over its complement,
/// whichever is smaller, so that weighing 98 of 100 nodes is as fast as weighing 2.
struct Scales<'a> {
    machine: &'a Machine,
    /// Requested memory.
    bytes: u64,
    bins: &'a [Bin<'a>],
    n: usize,
    /// Distinct sizes of caches, largest first.
    sizes: Vec<usize>,
    /// Number of caches of each size in each bin.
    counts: Vec<Vec<usize>>,
    /// Sums over all bins, if sets are weighed by their complement.
    all: Option<All>,
}

/// Sums over all bins.
struct All {
    sums: Sums,
    spread: u64,
    /// Distance from each bin to all others, summed.
    spread_of: Vec<u64>,
}

impl<'a> Scales<'a> {
    /// Prepares the comparison of sets of `count` bins.
    fn new(machine: &'a Machine, bytes: u64, bins: &'a [Bin<'a>], n: usize, count: usize) -> Self {
        let mut sizes: Vec<usize> = bins.iter().flat_map(|bin| bin.sizes.iter().copied()).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        let counts_of = |bin: &Bin<'_>| {
            let mut counts = vec![0; sizes.len()];
            for alike in bin.sizes.chunk_by(|a, b| a == b) {
                counts[sizes.partition_point(|&size| size > alike[0])] = alike.len();
            }
            counts
        };
        let counts = bins.iter().map(counts_of).collect();
        let mut scales = Self { machine, bytes, bins, n, sizes, counts, all: None };
        if 2 * count > bins.len() {
            let every: Vec<usize> = (0..bins.len()).collect();
            let sums = scales.sums(&every);
            let of = |&a: &usize| every.iter().filter(|&&b| b != a).map(|&b| scales.far(a, b)).sum();
            let spread_of: Vec<u64> = every.iter().map(of).collect();
            let spread = spread_of.iter().sum::<u64>() / 2;
            scales.all = Some(All { sums, spread, spread_of });
        }
        scales
    }

    /// Returns the weight of an ascending set; `None` if it has too few items.
    fn weigh(&self, set: &[usize]) -> Option<Weight> {
        let (sums, spread) = match &self.all {
            None => (self.sums(set), self.spread(set)),
            Some(all) => {
                let mut inside = set.iter().peekable();
                let out = (0..self.bins.len()).filter(|at| inside.next_if_eq(&at).is_none());
                let out: Vec<usize> = out.collect();
                // Subtract every pair with a node of the complement; pairs of two such nodes were
                // subtracted twice.
                let off: u64 = out.iter().map(|&at| all.spread_of[at]).sum();
                (all.sums.without(&self.sums(&out)), all.spread + self.spread(&out) - off)
            }
        };
        Some(Weight {
            rest: sums.capacity.checked_sub(self.n)?,
            from_device: sums.from_device,
            lack: u64::try_from(u128::from(self.bytes).saturating_sub(sums.room)).unwrap_or(u64::MAX),
            from_memory: sums.from_memory,
            caches: self.caches_needed(&sums.counts),
            spread,
            cost: sums.cost * 1_000 / sums.capacity.max(1) as u64,
            bandwidth: Reverse(sums.bandwidth),
            latency: sums.latency,
        })
    }

    /// Returns the sums over some bins.
    fn sums(&self, set: &[usize]) -> Sums {
        let mut sums = Sums { counts: vec![0; self.sizes.len()], ..Sums::default() };
        for &at in set {
            let bin = &self.bins[at];
            sums.capacity += bin.capacity;
            sums.cost += bin.cost;
            sums.room += u128::from(bin.room);
            sums.from_device += u64::from(bin.away.device);
            sums.from_memory += u64::from(bin.away.memory);
            sums.bandwidth += bin.speed.bandwidth;
            sums.latency += bin.speed.latency;
            sums.counts.iter_mut().zip(&self.counts[at]).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// Returns the sum of distances between some bins, each pair once.
    fn spread(&self, set: &[usize]) -> u64 {
        let pairs = set.iter().enumerate().flat_map(|(at, &a)| set[at + 1..].iter().map(move |&b| (a, b)));
        pairs.map(|(a, b)| self.far(a, b)).sum()
    }

    fn far(&self, a: usize, b: usize) -> u64 {
        distance(self.machine, self.bins[a].node, self.bins[b].node)
    }

    /// Returns the number of caches needed if the largest are filled first.
    fn caches_needed(&self, counts: &[usize]) -> usize {
        let (mut needed, mut left) = (0, self.n);
        for (&size, &count) in self.sizes.iter().zip(counts) {
            let take = count.min(left.div_ceil(size));
            needed += take;
            left = left.saturating_sub(take * size);
        }
        needed
    }
}

/// Returns the distance in both directions together. Cores without a home node have the usual
/// distance across a machine to every node.
fn distance(machine: &Machine, a: u32, b: u32) -> u64 {
    let known = |node: u32| (node as usize) < machine.nodes().len();
    if !known(a) || !known(b) {
        return 40;
    }
    let one_way = |from, to| u64::from(machine.distance(NodeId(from), NodeId(to)));
    one_way(a, b) + one_way(b, a)
}

/// Returns which bins to use and how much of each, so that `n` fit into the fewest bins and the
/// last bin is the smallest that suffices.
fn fill(sizes: &[usize], n: usize) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_unstable_by_key(|&at| (std::cmp::Reverse(sizes[at]), at));
    let mut taken = Vec::new();
    let mut left = n;
    for (at, &largest) in order.iter().enumerate() {
        if left == 0 {
            break;
        }
        if sizes[largest] < left {
            taken.push((largest, sizes[largest]));
            left -= sizes[largest];
            continue;
        }
        // One more bin is enough: the smallest that suffices, with the lowest number among equals.
        let rest = order[at..].iter().copied();
        let fitting = rest.filter(|&bin| sizes[bin] >= left).min_by_key(|&bin| (sizes[bin], bin));
        taken.extend(fitting.map(|bin| (bin, left)));
        break;
    }
    taken
}

/// Returns `take` items of one cache: the cheapest; among equally cheap ones whole second-level
/// caches first.
fn part<'a>(cache: &[&'a Item], take: usize) -> Vec<&'a Item> {
    if take == cache.len() {
        return cache.to_vec();
    }
    if cache.iter().any(|item| item.cost != cache[0].cost) {
        let mut order = cache.to_vec();
        order.sort_by_key(|item| (item.cost, item.members.start));
        order.truncate(take);
        return order;
    }
    let mut units: BTreeMap<u32, Vec<&Item>> = BTreeMap::new();
    for item in cache {
        units.entry(item.keys[KEY_L2]).or_default().push(item);
    }
    let units: Vec<Vec<&Item>> = units.into_values().collect();
    let sizes: Vec<usize> = units.iter().map(Vec::len).collect();
    fill(&sizes, take).into_iter().flat_map(|(unit, take)| units[unit][..take].to_vec()).collect()
}

/// Returns the number of sets of `count` out of `of`; if it exceeds 64 bits, any number above
/// [`SETS_MAX`].
fn combinations(of: u64, count: u64) -> u64 {
    // With the smaller of the two sides every step grows the product, so a saturated product cannot
    // become small again.
    (0..count.min(of - count)).fold(1u64, |product, at| product.saturating_mul(of - at) / (at + 1))
}

/// Calls `visit` with every set of `count` out of `0..of`, in lexicographic order.
fn each_set(of: usize, count: usize, visit: &mut impl FnMut(&[usize])) {
    let mut set: Vec<usize> = (0..count).collect();
    loop {
        visit(&set);
        let Some(at) = (0..count).rev().find(|&at| set[at] < of - count + at) else { return };
        set[at] += 1;
        for later in at + 1..count {
            set[later] = set[later - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OsNode;
    use crate::topology::{MemorySpeed, parse_synthetic};
    use proptest::prelude::*;

    #[test]
    fn counts_of_sets_are_exact_or_beyond_reach() {
        let mut row = vec![1u128];
        for of in 1..=300u64 {
            let inner = row.windows(2).map(|pair| pair[0].saturating_add(pair[1]));
            row = [1].into_iter().chain(inner).chain([1]).collect();
            for (count, &exact) in (0..).zip(&row) {
                let counted = u128::from(combinations(of, count));
                assert!(counted == exact || counted.min(exact) > u128::from(SETS_MAX), "{count} of {of}");
            }
        }
    }

    proptest! {
        /// Sums over the complement of a set give the same weight as the sums that define the
        /// weight.
        #[test]
        fn sets_weigh_the_same_from_both_sides(
            costs in prop::collection::vec(0u32..3_000, 24),
            there in prop::collection::vec(0u8..4, 24),
            chosen in prop::collection::vec(any::<bool>(), 6),
            n in 1usize..20,
            rooms in prop::collection::vec(0u64..100, 6),
            asked in 0u64..300,
            speeds in prop::collection::vec((1u64..900, 1u64..90), 6),
        ) {
            let mut parts = parse_synthetic("pack:2 numa:3 l3:2 core:2").unwrap().parts().clone();
            parts.memory_speeds = (0..).map(OsNode).zip(&speeds).map(|(node, &(bandwidth, latency))| {
                MemorySpeed { node, bandwidth: Some(bandwidth), latency: Some(latency) }
            }).collect();
            let machine = Machine::build(parts).unwrap();
            let place = |node: u32| Away { device: 7 * node % 5, memory: 10 + 3 * node % 4 };
            let item = |core: usize| {
                let (node, cache) = (u32::try_from(core / 4).unwrap(), u32::try_from(core / 2).unwrap());
                Item { members: core..core + 1, cost: costs[core], remote: 0, far: 0, away: place(node), keys: [0, node / 3, node, cache, 0] }
            };
            let items: Vec<Item> = (0..24).filter(|&core| there[core] > 0).map(item).collect();
            let mut bins = bins(&items, &Room::default(), &Speeds::of_machine(&machine));
            bins.iter_mut().for_each(|bin| bin.room = rooms[bin.node as usize].min(asked));
            let set: Vec<usize> = (0..bins.len()).filter(|&at| chosen[at]).collect();
            let weight = Scales::new(&machine, asked, &bins, n, set.len()).weigh(&set);

            let mut sizes: Vec<usize> = set.iter().flat_map(|&at| bins[at].sizes.clone()).collect();
            sizes.sort_unstable();
            let capacity: usize = sizes.iter().sum();
            if capacity < n {
                prop_assert_eq!(weight, None);
                return Ok(());
            }
            let (mut caches, mut left) = (0, n);
            while left > 0 {
                left = left.saturating_sub(sizes.pop().unwrap());
                caches += 1;
            }
            let mut spread = 0;
            for a in &set {
                spread += set.iter().filter(|b| a < b).map(|&b| distance(&machine, bins[*a].node, bins[b].node)).sum::<u64>();
            }
            let cost: u64 = set.iter().map(|&at| bins[at].cost).sum();
            let room: u64 = set.iter().map(|&at| rooms[bins[at].node as usize].min(asked)).sum();
            let places = || set.iter().map(|&at| place(bins[at].node));
            let wanted = Weight {
                from_device: places().map(|away| u64::from(away.device)).sum(),
                lack: asked.saturating_sub(room),
                from_memory: places().map(|away| u64::from(away.memory)).sum(),
                caches,
                spread,
                cost: cost * 1_000 / capacity as u64,
                bandwidth: Reverse(set.iter().map(|&at| speeds[bins[at].node as usize].0).sum()),
                latency: set.iter().map(|&at| speeds[bins[at].node as usize].1).sum(),
                rest: capacity - n,
            };
            prop_assert_eq!(weight, Some(wanted));
        }
    }
}
