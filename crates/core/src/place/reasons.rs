//! Reasons of a plan, derived from the finished choice. They are not collected along the way, so
//! they cannot deviate from the choice that they explain.

use super::choice::item_lists;
use super::pool::{KEY_LLC, KEY_NODE, Pool};
use super::request::{Amount, KindChoice, Request, Smt};
use super::strategy::Strategy;
use super::taken::{BUSY_FROM, CpuState, Taken};
use super::{MemorySize, Reason, local};
use crate::ids::{Id, NodeId, OsCpu, OsNode, Pu};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{KindId, Level, Machine};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the reason about the chosen kind of a hybrid machine.
pub(super) fn of_kind(
    pool: &Pool<'_>,
    request: &Request,
    kind: Option<KindId>,
    asked: Option<u32>,
) -> Option<Reason> {
    let machine = pool.machine;
    if request.kind == KindChoice::LargestCache {
        return largest_cache(machine);
    }
    if machine.kinds().len() < 2 {
        return None;
    }
    match (kind, &request.kind) {
        (Some(kind), _) => {
            let left = machine.cores().iter().filter(|core| core.kind != kind).count();
            Some(Reason::Kind { name: machine.kinds()[usize::from(kind.0)].name.clone(), left })
        }
        (None, KindChoice::One) if request.amount != Amount::Exact => {
            Some(Reason::KindsMixed { cores: asked? })
        }
        _ => None,
    }
}

/// Returns the reason about the cores with the largest last-level cache.
fn largest_cache(machine: &Machine) -> Option<Reason> {
    let bytes = machine.llcs().iter().filter_map(|llc| llc.bytes).max()?;
    let left = machine.llcs().iter().filter(|llc| llc.bytes != Some(bytes)).map(|llc| llc.cores.len()).sum();
    Some(Reason::LargestCache { bytes: MemorySize(bytes), left })
}

/// Returns the reasons about cores without local memory that were used or avoided.
pub(super) fn of_remote(pool: &Pool<'_>, request: &Request, taken: &Taken, members: &[usize]) -> Vec<Reason> {
    let chosen: BTreeSet<usize> = members.iter().copied().collect();
    // By whether the cores are used, and by the full node that is the cause.
    let mut remote: BTreeMap<(bool, Option<OsNode>), CpuSet> = BTreeMap::new();
    for (at, candidate) in pool.candidates.iter().enumerate().filter(|(_, candidate)| candidate.remote) {
        let node = pool.machine.core(candidate.core).node;
        let node = node.and_then(|node| pool.machine.nodes().get(node.index()));
        let full = node.filter(|node| local::is_full(node, taken)).map(|node| node.os);
        remote.entry((!chosen.contains(&at), full)).or_default().extend(candidate.cpus.iter().copied());
    }
    let named = request.amount == Amount::Exact;
    let reason = |((avoided, full), cpus): ((bool, Option<OsNode>), CpuSet)| match full {
        Some(node) => Reason::Full { nodes: NodeSet::from_iter([node]), cpus, used: !avoided },
        None => Reason::Remote { cpus, used: !avoided, named },
    };
    remote.into_iter().map(reason).collect()
}

/// Returns the reason about the requested device.
pub(super) fn of_device(pool: &Pool<'_>, request: &Request, members: &[usize]) -> Option<Reason> {
    let near = request.near.as_ref()?;
    if near.cpus.is_empty() {
        return Some(Reason::Note { text: format!("it is not known which CPUs are near {}", near.name) });
    }
    let device = near.name.clone();
    let far = members.iter().map(|&at| &pool.candidates[at]).filter(|candidate| candidate.far);
    Some(Reason::Near { device, far: far.flat_map(|candidate| candidate.cpus.iter().copied()).collect() })
}

/// Returns the reasons about the distribution of slots over nodes and caches.
pub(super) fn of_shape(pool: &Pool<'_>, request: &Request, members: &[usize]) -> Vec<Reason> {
    let mut used: [BTreeMap<u32, usize>; 2] = Default::default();
    for &at in members {
        let keys = pool.item(at..at + 1).keys;
        // Cores without a home node do not count as a node.
        let nodes = pool.machine.nodes().len();
        if nodes == 0 || (keys[KEY_NODE] as usize) < nodes {
            *used[0].entry(keys[KEY_NODE]).or_default() += 1;
        }
        *used[1].entry(keys[KEY_LLC]).or_default() += 1;
    }
    let mut reasons = Vec::new();
    match request.strategy {
        Strategy::Scatter | Strategy::Balanced => {
            reasons.push(Reason::Spread { nodes: used[0].len(), llcs: used[1].len() });
        }
        _ if matches!(request.amount, Amount::Exact | Amount::Shape(_)) => {}
        _ => reasons.extend(gathered(pool, request.strategy, &used, members.len())),
    }
    if matches!(request.strategy, Strategy::Stride(_)) {
        let slots: BTreeSet<u32> = members.iter().map(|&at| pool.candidates[at].core.0).collect();
        let shared = pool.strided.iter().filter(|unit| slots.range((*unit).clone()).next().is_some());
        let idle = shared.map(|unit| unit.len() - slots.range(unit.clone()).count()).sum();
        reasons.push(Reason::Strided { strategy: request.strategy, idle });
    }
    reasons
}

/// Returns the node or cache that contains all slots, or the reason why none does.
fn gathered(
    pool: &Pool<'_>,
    strategy: Strategy,
    used: &[BTreeMap<u32, usize>; 2],
    cores: usize,
) -> Option<Reason> {
    let machine = pool.machine;
    let several_caches = machine.llcs().len() > 1 && machine.at(Level::L3).next().is_some();
    let (level, key, used) = match (used[0].len(), used[1].len()) {
        (1, 1) if several_caches => (Level::L3, KEY_LLC, &used[1]),
        (1, _) if machine.nodes().len() > 1 => (Level::Node, KEY_NODE, &used[0]),
        (1, 2..) if several_caches => (Level::L3, KEY_LLC, &used[1]),
        (2.., _) => (Level::Node, KEY_NODE, &used[0]),
        _ => return None,
    };
    let free = free_in(pool, strategy, key);
    if used.len() > 1 {
        let best = free.values().copied().max().unwrap_or(0);
        return Some(Reason::Spans { level, count: used.len(), cores, best });
    }
    let (&unit, &taken) = used.iter().next()?;
    let number = match level {
        Level::Node => machine.nodes().get(NodeId(unit).index())?.os.0,
        _ => unit,
    };
    Some(Reason::Fits { level, number, free: free.get(&unit).copied().unwrap_or(0).max(taken), taken })
}

/// Returns the number of free cores that the strategy could use in each unit.
fn free_in(pool: &Pool<'_>, strategy: Strategy, key: usize) -> BTreeMap<u32, usize> {
    let mut most: BTreeMap<u32, usize> = BTreeMap::new();
    for list in item_lists(pool, strategy, &(0..pool.candidates.len())) {
        let mut free: BTreeMap<u32, usize> = BTreeMap::new();
        for item in list.iter().filter(|item| item.cost < u32::from(BUSY_FROM)) {
            *free.entry(item.keys[key]).or_default() += 1;
        }
        for (unit, count) in free {
            let best = most.entry(unit).or_default();
            *best = count.max(*best);
        }
    }
    most
}

/// Returns the reasons about the other hardware threads of the chosen cores.
pub(super) fn of_siblings(
    machine: &Machine,
    taken: &Taken,
    mask: &CpuSet,
    hold: &CpuSet,
    request: &Request,
) -> Vec<Reason> {
    let cores: BTreeSet<_> =
        mask.iter().filter_map(|cpu| machine.pu(cpu)).map(|pu| machine.core_of(pu)).collect();
    let all: CpuSet =
        cores.iter().flat_map(|&core| machine.core(core).pus.clone()).map(|pu| machine.os(Pu(pu))).collect();
    let idle = all.intersection(hold).difference(mask);
    let foreign = all.difference(&taken.allowed);
    let mut reasons = Vec::new();
    if !idle.is_empty() && request.smt != Smt::All {
        reasons.push(Reason::WholeCores { idle });
    }
    if !foreign.is_empty() {
        reasons.push(Reason::SiblingsForeign { cpus: foreign });
    }
    reasons
}

/// Returns the reasons about CPUs that were avoided because they are taken, and about taken CPUs
/// that were used.
pub(super) fn of_taken(taken: &Taken, mask: &CpuSet, hold: &CpuSet) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut states: BTreeMap<CpuState, CpuSet> = BTreeMap::new();
    for cpu in taken.allowed.iter() {
        states.entry(taken.state(cpu)).or_default().insert(cpu);
    }
    for state in [CpuState::Held, CpuState::Pinned, CpuState::Busy] {
        let such = states.remove(&state).unwrap_or_default();
        let used = such.intersection(mask);
        let avoided = such.difference(mask).difference(hold);
        if !avoided.is_empty() {
            reasons.push(Reason::Avoided { state, cpus: avoided });
        }
        if !used.is_empty() {
            let load = used.iter().map(|cpu: OsCpu| taken.load(cpu)).max().unwrap_or(0);
            reasons.push(Reason::UsedAnyway { state, cpus: used, load });
        }
    }
    reasons
}
