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
use crate::topology::Machine;
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
        let Some(chosen) = local_first(pool.machine, strategy, below, n) else { continue };
        let cost = loss(strategy, &chosen);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, chosen));
        }
        if best.as_ref().is_some_and(|(least, _)| *least == 0) {
            break;
        }
    }
    best
}

/// Chooses `n` of `items` with the strategy: those with local memory, and others only if these do
/// not suffice.
fn local_first(machine: &Machine, strategy: Strategy, items: Vec<Item>, n: usize) -> Option<Vec<Item>> {
    let (remote, local): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.remote > 0);
    if n <= local.len() {
        return by_strategy(machine, strategy, &local, n);
    }
    let mut all = by_strategy(machine, strategy, &remote, n - local.len())?;
    all.extend(local);
    all.sort_unstable_by_key(|item| item.members.start);
    // Choose all of them, only to get their order.
    by_strategy(machine, strategy, &all, n)
}

fn by_strategy(machine: &Machine, strategy: Strategy, items: &[Item], n: usize) -> Option<Vec<Item>> {
    let positions = match strategy {
        Strategy::Compact | Strategy::Stride(_) => compact::choose(machine, items, n),
        Strategy::Scatter => spread::choose(items, n, ThreadOrder::Dealt),
        Strategy::Balanced => spread::choose(items, n, ThreadOrder::Blocks),
    };
    Some(positions?.into_iter().map(|at| items[at].clone()).collect())
}

/// Returns the loss of a choice: foreign load, missing local memory, and, for strategies that
/// gather, every node and cache beyond the first.
fn loss(strategy: Strategy, chosen: &[Item]) -> u64 {
    let load: u64 = chosen.iter().map(|item| u64::from(item.cost) + item.remote as u64 * REMOTE_COST).sum();
    let distinct = |key: usize| {
        let mut keys: Vec<u32> = chosen.iter().map(|item| item.keys[key]).collect();
        keys.sort_unstable();
        keys.dedup();
        (keys.len() as u64).saturating_sub(1)
    };
    match strategy {
        Strategy::Scatter | Strategy::Balanced => load,
        Strategy::Compact | Strategy::Stride(_) => {
            load + distinct(KEY_NODE) * NODE_COST + distinct(KEY_LLC) * LLC_COST
        }
    }
}
