//! Choice: the best answer of a strategy among candidates.
//!
//! Unit: cores; costs in thousandths of a core. The strategy is asked for its best answer among
//! *all* candidates and among only the cheaper ones. The answer with the smallest loss is used,
//! which counts foreign load and every node and cache touched.

use super::pool::{Item, KEY_LLC, KEY_NODE, Pool};
use super::spread::ThreadOrder;
use super::strategy::Strategy;
use super::taken::PINNED_COST;
use super::{Reason, compact, spread, stride};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Cost of one more node for a run, in thousandths of a core. The value makes a core that is less
/// than half busy cheaper than a second node, and a busier core more expensive (sensitivity:
/// `busy_cores_are_weighed_against_distance`).
const NODE_COST: u64 = 500;
/// Cost of one more last-level cache, in thousandths of a core: an eighth of a node.
const LLC_COST: u64 = 60;
/// Cost of a core without local memory, in thousandths of a core: more than one more node and
/// cache, so that free cores with memory are preferred at any distance; less than a mostly busy
/// core.
const REMOTE_COST: u64 = 600;
/// Cost of a core that is not near the requested device, in thousandths of a core: as for one
/// without local memory.
const FAR_COST: u64 = 600;
/// Cost limits, in thousandths of a core: the strategy is also asked with only the candidates up to
/// each of them.
const CEILINGS: [u32; 4] = [0, 250, 1_000, PINNED_COST];

/// Chosen cores, before they become slots.
pub(super) struct Chosen {
    /// Positions in the pool, in thread order.
    pub(super) members: Vec<usize>,
    /// Number of requested cores, if the request gives a number.
    pub(super) asked: Option<u32>,
    pub(super) reasons: Vec<Reason>,
}

/// Returns the largest number of cores that a strategy can use among candidates that cost at most
/// `ceiling`.
pub(super) fn most(pool: &Pool<'_>, strategy: Strategy, among: &Range<usize>, ceiling: u32) -> usize {
    let fits = |item: &&Item| item.cost <= ceiling;
    item_lists(pool, strategy, among).iter().map(|list| list.iter().filter(fits).count()).max().unwrap_or(0)
}

/// Returns the lists of items from which a strategy may choose, out of a run of candidates.
pub(super) fn item_lists(pool: &Pool<'_>, strategy: Strategy, among: &Range<usize>) -> Vec<Vec<Item>> {
    match strategy {
        Strategy::Stride(stride) => stride::item_lists(pool, stride, among),
        _ => vec![among.clone().map(|at| pool.item(at..at + 1)).collect()],
    }
}

/// Returns the strategy's answer with the smallest loss over a run of candidates.
pub(super) fn cheapest(
    pool: &Pool<'_>,
    strategy: Strategy,
    among: Range<usize>,
    n: usize,
) -> Option<Vec<usize>> {
    let best =
        item_lists(pool, strategy, &among).into_iter().filter_map(|list| weighed(pool, strategy, &list, n));
    // The first list wins ties.
    let (_, chosen) = best.min_by_key(|(cost, _)| *cost)?;
    Some(chosen.into_iter().flat_map(|item| item.members).collect())
}

/// Chooses `n` of `items` with the strategy, asked once per ceiling. Returns the answer with the
/// smallest loss, and its cost.
pub(super) fn weighed(
    pool: &Pool<'_>,
    strategy: Strategy,
    items: &[Item],
    n: usize,
) -> Option<(u64, Vec<Item>)> {
    let mut best: Option<(u64, Vec<Item>)> = None;
    let mut size_before = 0;
    for ceiling in CEILINGS.into_iter().chain([u32::MAX]) {
        let below: Vec<Item> = items.iter().filter(|item| item.cost <= ceiling).cloned().collect();
        if below.len() < n || below.len() == size_before {
            continue;
        }
        size_before = below.len();
        let Some(chosen) = nearest_first(pool, strategy, below, n) else { continue };
        let cost = loss(pool, strategy, &chosen);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, chosen));
        }
        if best.as_ref().is_some_and(|(least, _)| *least == 0) {
            break;
        }
    }
    best
}

/// Chooses `n` of `items` with the strategy: those near the requested device first, and among these
/// those with local memory; others only if these do not suffice.
fn nearest_first(pool: &Pool<'_>, strategy: Strategy, items: Vec<Item>, n: usize) -> Option<Vec<Item>> {
    if n == 0 {
        return by_strategy(pool, strategy, &[], &[], 0);
    }
    let mut classes: BTreeMap<(bool, bool), Vec<Item>> = BTreeMap::new();
    for item in items {
        classes.entry((item.far > 0, item.remote > 0)).or_default().push(item);
    }
    let mut all: Vec<Item> = Vec::new();
    for class in classes.into_values() {
        let left = n - all.len();
        if class.len() < left {
            all.extend(class);
            continue;
        }
        let last = by_strategy(pool, strategy, &all, &class, left)?;
        if all.is_empty() {
            return Some(last);
        }
        all.extend(last);
        all.sort_unstable_by_key(|item| item.members.start);
        // Choose all of them, only to get their order.
        return by_strategy(pool, strategy, &[], &all, n);
    }
    None
}

/// Chooses `n` of `items` in addition to those `before`.
fn by_strategy(
    pool: &Pool<'_>,
    strategy: Strategy,
    before: &[Item],
    items: &[Item],
    n: usize,
) -> Option<Vec<Item>> {
    let positions = match strategy {
        Strategy::Compact | Strategy::Stride(_) => compact::choose(pool, before, items, n),
        Strategy::Scatter => spread::choose(items, n, ThreadOrder::Dealt),
        Strategy::Balanced => spread::choose(items, n, ThreadOrder::Blocks),
    };
    Some(positions?.into_iter().map(|at| items[at].clone()).collect())
}

/// Returns the loss of a choice: foreign load, missing local memory, distance from the requested
/// device, and, for strategies that gather, every node and cache beyond the first.
fn loss(pool: &Pool<'_>, strategy: Strategy, chosen: &[Item]) -> u64 {
    let of =
        |item: &Item| u64::from(item.cost) + item.remote as u64 * REMOTE_COST + item.far as u64 * FAR_COST;
    let load: u64 = chosen.iter().map(of).sum();
    let distinct = |key: usize| -> BTreeSet<u32> { chosen.iter().map(|item| item.keys[key]).collect() };
    let nodes = distinct(KEY_NODE);
    let load = load + lack(pool, chosen, &nodes);
    match strategy {
        Strategy::Scatter | Strategy::Balanced => load,
        Strategy::Compact | Strategy::Stride(_) => {
            let beyond = |units: usize| (units as u64).saturating_sub(1);
            load + beyond(nodes.len()) * NODE_COST + beyond(distinct(KEY_LLC).len()) * LLC_COST
        }
    }
}

/// Returns the loss by requested memory that the nodes of a choice do not have: its share of the
/// request is used from other nodes by all cores.
fn lack(pool: &Pool<'_>, chosen: &[Item], nodes: &BTreeSet<u32>) -> u64 {
    let asked = u128::from(pool.room.asked);
    if asked == 0 {
        return 0;
    }
    let room: u128 = nodes.iter().map(|&node| u128::from(pool.room.of(node))).sum();
    let cores: usize = chosen.iter().map(|item| item.members.len() - item.remote).sum();
    let all = cores as u128 * u128::from(REMOTE_COST);
    u64::try_from(all * asked.saturating_sub(room) / asked).unwrap_or(u64::MAX)
}
