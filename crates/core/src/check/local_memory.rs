//! Check of local memory and of a requested device: a plan must not use cores without local memory,
//! or far from the device, while better free cores would have met the request. Nearness to the
//! device comes first.
//!
//! A core is free if none of its CPUs is held, busy or has a task bound to it. The request alone
//! determines the cores that would have met it: any such core, if cores are counted; a unit that
//! consists only of such cores, if units are requested; for strides, a unit without a slot, or
//! enough cores of one remainder in one cache.

use super::{PlanFinding, inside, outermost};
use crate::ids::{NodeId, OsNode};
use crate::place::{
    Amount, BUSY_FROM, FULL_BELOW_PERCENT, KindChoice, NodeMemory, Plan, Request, Strategy, Stride, Taken,
};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Core, Level, Machine, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) fn check(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    cores: &BTreeSet<u32>,
) -> Option<PlanFinding> {
    let device = near(machine, request);
    let local: BTreeSet<u32> = local(machine, taken).intersection(&device).copied().collect();
    let remote: BTreeSet<u32> =
        cores.intersection(&device).filter(|core| !local.contains(core)).copied().collect();
    let better = better(machine, request, taken, cores, &local, &remote);
    let of = |cores| cpus(machine, taken, cores);
    if !better.is_empty() {
        return Some(PlanFinding::NoLocalMemory { cpus: of(&remote), free: of(&better) });
    }
    let far: BTreeSet<u32> = cores.difference(&device).copied().collect();
    let better = self::better(machine, request, taken, cores, &device, &far);
    (!better.is_empty()).then(|| PlanFinding::FarFromDevice { cpus: of(&far), free: of(&better) })
}

fn cpus(machine: &Machine, taken: &Taken, cores: &BTreeSet<u32>) -> CpuSet {
    let cpus = cores.iter().map(|&core| machine.cpus_of(&machine.cores()[core as usize].pus));
    cpus.fold(CpuSet::new(), |all, cpus| all.union(&cpus)).intersection(&taken.allowed)
}

/// Returns the cores near to the requested device; all cores if none is requested, or if nothing is
/// known of its place.
fn near(machine: &Machine, request: &Request) -> BTreeSet<u32> {
    let of = |core: &Core| match &request.near {
        Some(device) if !device.cpus.is_empty() => machine.cpus_of(&core.pus).intersects(&device.cpus),
        _ => true,
    };
    (0..).zip(machine.cores()).filter(|(_, core)| of(core)).map(|(at, _)| at).collect()
}

/// Returns free cores among the `good` ones that would have met the request in place of the `bad`
/// ones; empty if there are none.
fn better(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    cores: &BTreeSet<u32>,
    good: &BTreeSet<u32>,
    bad: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    if bad.is_empty() || request.amount == Amount::Exact {
        return BTreeSet::new();
    }
    let kinds: BTreeSet<_> = cores.iter().map(|&core| machine.cores()[core as usize].kind).collect();
    let free = (0..).zip(machine.cores()).filter(|(at, core)| {
        good.contains(at)
            && !cores.contains(at)
            && is_free(machine, request, taken, core)
            && (request.kind == KindChoice::Any || kinds.contains(&core.kind))
    });
    let free: BTreeSet<u32> = free.map(|(at, _)| at).collect();
    match (request.amount, request.strategy) {
        (Amount::Shape(shape), Strategy::Compact | Strategy::Scatter | Strategy::Balanced) => {
            unit(machine, shape.level, shape.per, bad, &free)
        }
        (Amount::Shape(_), _) => BTreeSet::new(),
        (_, Strategy::Stride(Stride::Every(every))) => remainder(machine, every, cores.len(), &free),
        (_, Strategy::Stride(Stride::OnePer(level))) => unused(machine, level, taken, cores, &free),
        (_, Strategy::Stride(Stride::OnePerFpu)) => BTreeSet::new(),
        _ => free,
    }
}

/// Checks the requested amount of memory.
pub(super) fn check_room(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    plan: &Plan,
    cores: &BTreeSet<u32>,
) -> Option<PlanFinding> {
    let asked = request.memory.size?.0;
    let open = open_nodes(machine, taken);
    // An unknown amount is as good as enough.
    let of = |nodes: &NodeSet| {
        let rooms = machine.nodes().iter().filter(|node| nodes.contains(node.os));
        rooms.fold(0u64, |sum, node| sum.saturating_add(room_of(node, taken).unwrap_or(asked)))
    };
    let nodes = if plan.memory.policy.takes_nodes() { &plan.memory.nodes } else { &open };
    if of(nodes) < asked && !machine.nodes().is_empty() {
        return Some(PlanFinding::NoRoom { nodes: nodes.clone(), room: of(nodes), asked });
    }
    // Without nodes in the policy, pages are where the threads are, or where there is room.
    let holds_on = if plan.memory.policy.takes_nodes() { nodes.clone() } else { open.union(&plan.nodes) };
    if let Some(finding) = check_memory_hold(machine, taken, plan, asked, &holds_on) {
        return Some(finding);
    }
    let single = request.strategy == Strategy::Compact
        && matches!(request.amount, Amount::Cores(_))
        && request.near.is_none()
        && plan.nodes.len() == 1
        && plan.nodes.iter().all(|node| open.contains(node));
    if !single || of(&plan.nodes) >= asked {
        return None;
    }
    let kinds: BTreeSet<_> = cores.iter().map(|&core| machine.cores()[core as usize].kind).collect();
    let other = machine.nodes().iter().find(|node| {
        let free = node.cores.iter().map(|core| &machine.cores()[core.0 as usize]).filter(|core| {
            is_free(machine, request, taken, core)
                && (request.kind == KindChoice::Any || kinds.contains(&core.kind))
        });
        open.contains(node.os) && of(&[node.os].into_iter().collect()) >= asked && free.count() >= cores.len()
    });
    other.map(|node| PlanFinding::RoomElsewhere { nodes: plan.nodes.clone(), other: node.os })
}

/// Checks that a plan on one node is not on one with slower memory than an equally good other node
/// has. Nothing is said of machines on which a speed is not known.
pub(super) fn check_speed(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    plan: &Plan,
    cores: &BTreeSet<u32>,
) -> Option<PlanFinding> {
    let asked_for_more = request.near.is_some() || request.memory.size.is_some();
    let any_kind = machine.kinds().len() == 1 || request.kind == KindChoice::Any;
    let counted = request.strategy == Strategy::Compact && matches!(request.amount, Amount::Cores(_));
    let at = |os: OsNode| machine.nodes().iter().find(|node| node.os == os);
    let own = plan.nodes.iter().next().filter(|_| plan.nodes.len() == 1).and_then(at)?;
    let homeless = cores.iter().any(|&core| machine.cores()[core as usize].node.is_none());
    if asked_for_more || !any_kind || !counted || homeless {
        return None;
    }
    let with_cores = || machine.nodes().iter().filter(|node| !node.cores.is_empty());
    if !with_cores().all(|node| node.bandwidth.is_some() && node.latency.is_some()) {
        return None;
    }
    let open = open_nodes(machine, taken);
    let quiet = |node: &Node| caches_for(machine, request, taken, node, cores.len());
    let far = |node: &Node| {
        let number = |os: OsNode| machine.nodes().iter().position(|node| node.os == os);
        let id = |at: usize| NodeId(u32::try_from(at).unwrap_or(u32::MAX));
        let to = open.iter().filter_map(number).map(id);
        to.map(|to| Some(machine.distance(number(node.os).map(id)?, to))).min()
    };
    let faster = |node: &&Node| {
        let (bandwidth, latency) = (node.bandwidth > own.bandwidth, node.latency < own.latency);
        bandwidth || node.bandwidth == own.bandwidth && latency
    };
    let own_caches = quiet(own)?;
    let equal = |node: &&Node| {
        open.contains(node.os) == open.contains(own.os)
            && far(node) <= far(own)
            && quiet(node).is_some_and(|caches| caches <= own_caches)
    };
    let other = with_cores().filter(faster).find(equal)?;
    Some(PlanFinding::SlowerMemory { node: own.os, other: other.os })
}

/// Returns the number of last-level caches that `wanted` cores of a node need; `None` if it has too
/// few, or if one of the cores that are not held is not free.
fn caches_for(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    node: &Node,
    wanted: usize,
) -> Option<usize> {
    let mut caches: BTreeMap<u32, usize> = BTreeMap::new();
    for core in node.cores.iter().map(|core| &machine.cores()[core.0 as usize]) {
        let cpus = machine.cpus_of(&core.pus).intersection(&taken.allowed);
        let named = request.cpus.as_ref().is_none_or(|named| cpus.intersects(named));
        if cpus.is_empty() || !named || cpus.intersects(&taken.held) {
            continue;
        }
        if !is_free(machine, request, taken, core) {
            return None;
        }
        *caches.entry(core.llc.0).or_default() += 1;
    }
    let mut sizes: Vec<usize> = caches.into_values().collect();
    sizes.sort_unstable();
    let (mut left, mut needed) = (wanted, 0);
    while left > 0 {
        left = left.saturating_sub(sizes.pop()?);
        needed += 1;
    }
    Some(needed)
}

/// Checks the memory that the plan holds: the requested amount, on nodes of its policy that have
/// it. Plans of older versions hold none.
fn check_memory_hold(
    machine: &Machine,
    taken: &Taken,
    plan: &Plan,
    asked: u64,
    nodes: &NodeSet,
) -> Option<PlanFinding> {
    let mut sum = 0u64;
    for NodeMemory { node, bytes } in &plan.memory_hold {
        let known = machine.nodes().iter().find(|known| known.os == *node && nodes.contains(*node));
        let Some(known) = known else { return Some(PlanFinding::NoSuchNode(*node)) };
        if room_of(known, taken).is_some_and(|room| room < *bytes) {
            let nodes = [*node].into_iter().collect();
            return Some(PlanFinding::NoRoom { nodes, room: room_of(known, taken)?, asked: *bytes });
        }
        sum = sum.saturating_add(*bytes);
    }
    let differs = !plan.memory_hold.is_empty() && sum != asked;
    differs.then_some(PlanFinding::MemoryHold { asked, held: sum })
}

/// Returns the bytes of a node that are free and not held by others; `None` if the amount is not
/// known.
fn room_of(node: &Node, taken: &Taken) -> Option<u64> {
    let held = taken.held_memory.get(&node.os).copied().unwrap_or_default();
    match (taken.free_memory.get(&node.os), node.bytes) {
        (Some(&free), _) => Some(free.saturating_sub(held)),
        (None, Some(bytes)) => Some(bytes.saturating_sub(held)),
        (None, None) => None,
    }
}

/// Returns the cores with a home node that has usable memory; all cores if no node has any.
fn local(machine: &Machine, taken: &Taken) -> BTreeSet<u32> {
    let usable = open_nodes(machine, taken);
    let is_local = |core: &Core| {
        usable.is_empty()
            || core.node.is_some_and(|node| usable.contains(machine.nodes()[node.0 as usize].os))
    };
    (0..).zip(machine.cores()).filter(|(_, core)| is_local(core)).map(|(at, _)| at).collect()
}

/// Returns the nodes with memory that may be used and is not all in use; if that leaves none, those
/// with memory that may be used.
fn open_nodes(machine: &Machine, taken: &Taken) -> NodeSet {
    let says = machine.nodes().iter().any(|node| node.bytes.is_some_and(|bytes| bytes > 0));
    let empty = |bytes: Option<u64>| {
        bytes == Some(0) && (says || machine.nodes().iter().any(|node| node.bytes.is_none()))
    };
    let usable = machine.nodes().iter().filter(|node| !empty(node.bytes)).map(|node| node.os);
    let usable: NodeSet =
        usable.filter(|&os| taken.mems.as_ref().is_none_or(|mems| mems.contains(os))).collect();
    let full = |os: OsNode| {
        let node = machine.nodes().iter().find(|node| node.os == os);
        let room = node.and_then(|node| node.bytes.zip(room_of(node, taken)));
        room.is_some_and(|(bytes, room)| {
            u128::from(room) * 100 < u128::from(bytes) * u128::from(FULL_BELOW_PERCENT)
        })
    };
    let open: NodeSet = usable.iter().filter(|&os| !full(os)).collect();
    if open.is_empty() { usable } else { open }
}

fn is_free(machine: &Machine, request: &Request, taken: &Taken, core: &Core) -> bool {
    let cpus = machine.cpus_of(&core.pus);
    let usable = cpus.intersection(&taken.allowed);
    let named = request.cpus.as_ref().map_or_else(|| usable.clone(), |named| usable.intersection(named));
    let quiet = |cpu| !taken.pinned.contains(cpu) && taken.load(cpu) < BUSY_FROM;
    !named.is_empty() && !cpus.intersects(&taken.held) && cpus.iter().all(quiet)
}

/// Returns the cores of a unit that has no slot and could have replaced a unit with slots on cores
/// without memory.
fn unit(
    machine: &Machine,
    level: Level,
    per: Option<u32>,
    remote: &BTreeSet<u32>,
    free: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let of = |set: &BTreeSet<u32>, unit: &Range<u32>| -> BTreeSet<u32> {
        set.iter().copied().filter(|&core| inside(machine, core, unit)).collect()
    };
    let units = outermost(machine, level);
    let whole =
        |unit: &Range<u32>| (0..).zip(machine.cores()).filter(|(at, _)| inside(machine, *at, unit)).count();
    let largest = units.iter().map(whole).max().unwrap_or(0);
    let served = |unit: &&Range<u32>| {
        let free = of(free, unit).len();
        free == whole(unit) && per.map_or(free == largest, |per| free >= per as usize)
    };
    if !units.iter().any(|unit| !of(remote, unit).is_empty()) {
        return BTreeSet::new();
    }
    units.iter().find(served).map_or_else(BTreeSet::new, |unit| of(free, unit))
}

/// Returns enough free cores of one remainder in one cache, which would have had no disadvantage.
fn remainder(machine: &Machine, every: u32, wanted: usize, free: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut classes: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for &core in free {
        let place = &machine.cores()[core as usize];
        classes.entry((core % every.max(1), place.node, place.llc)).or_default().insert(core);
    }
    classes.into_values().find(|class| class.len() >= wanted).unwrap_or_default()
}

/// Returns the free cores of a unit without a slot and without cores of another run.
fn unused(
    machine: &Machine,
    level: Level,
    taken: &Taken,
    cores: &BTreeSet<u32>,
    free: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let held = |core: &Core| machine.cpus_of(&core.pus).intersection(&taken.allowed).intersects(&taken.held);
    let foreign: BTreeSet<u32> =
        (0..).zip(machine.cores()).filter(|(_, core)| held(core)).map(|(at, _)| at).collect();
    for unit in outermost(machine, level) {
        let of = |set: &BTreeSet<u32>| set.iter().any(|&core| inside(machine, core, &unit));
        if !of(cores) && !of(&foreign) && of(free) {
            return free.iter().copied().filter(|&core| inside(machine, core, &unit)).collect();
        }
    }
    BTreeSet::new()
}
