//! Check of local memory: a plan must not use cores without local memory while free cores with
//! local memory would have met the request.
//!
//! A core is free if none of its CPUs is held, busy or has a task bound to it. The request alone
//! determines the cores that would have met it: any such core, if cores are counted; a unit that
//! consists only of such cores, if units are requested; for strides, a unit without a slot, or
//! enough cores of one remainder in one cache.

use super::{PlanFinding, inside, outermost};
use crate::place::{Amount, BUSY_FROM, KindChoice, Request, Strategy, Stride, Taken};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Core, Level, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) fn check(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    cores: &BTreeSet<u32>,
) -> Option<PlanFinding> {
    let local = local(machine, taken);
    let remote: BTreeSet<u32> = cores.difference(&local).copied().collect();
    if remote.is_empty() || request.amount == Amount::Exact {
        return None;
    }
    let kinds: BTreeSet<_> = cores.iter().map(|&core| machine.cores()[core as usize].kind).collect();
    let free = (0..).zip(machine.cores()).filter(|(at, core)| {
        local.contains(at)
            && !cores.contains(at)
            && is_free(machine, request, taken, core)
            && (request.kind == KindChoice::Any || kinds.contains(&core.kind))
    });
    let free: BTreeSet<u32> = free.map(|(at, _)| at).collect();
    let better = match (request.amount, request.strategy) {
        (Amount::Shape(shape), Strategy::Compact | Strategy::Scatter | Strategy::Balanced) => {
            unit(machine, shape.level, shape.per, &remote, &free)
        }
        (Amount::Shape(_), _) => BTreeSet::new(),
        (_, Strategy::Stride(Stride::Every(every))) => remainder(machine, every, cores.len(), &free),
        (_, Strategy::Stride(Stride::OnePer(level))) => unused(machine, level, taken, cores, &free),
        (_, Strategy::Stride(Stride::OnePerFpu)) => BTreeSet::new(),
        _ => free,
    };
    let cpus = |set: &BTreeSet<u32>| -> CpuSet {
        let cpus = set.iter().map(|&core| machine.cpus_of(&machine.cores()[core as usize].pus));
        cpus.fold(CpuSet::new(), |all, cpus| all.union(&cpus)).intersection(&taken.allowed)
    };
    (!better.is_empty()).then(|| PlanFinding::NoLocalMemory { cpus: cpus(&remote), free: cpus(&better) })
}

/// Returns the cores with a home node that has usable memory; all cores if no node has any.
fn local(machine: &Machine, taken: &Taken) -> BTreeSet<u32> {
    let says = machine.nodes().iter().any(|node| node.bytes.is_some_and(|bytes| bytes > 0));
    let empty = |bytes: Option<u64>| {
        bytes == Some(0) && (says || machine.nodes().iter().any(|node| node.bytes.is_none()))
    };
    let usable = machine.nodes().iter().filter(|node| !empty(node.bytes)).map(|node| node.os);
    let usable: NodeSet =
        usable.filter(|&os| taken.mems.as_ref().is_none_or(|mems| mems.contains(os))).collect();
    let is_local = |core: &Core| {
        usable.is_empty()
            || core.node.is_some_and(|node| usable.contains(machine.nodes()[node.0 as usize].os))
    };
    (0..).zip(machine.cores()).filter(|(_, core)| is_local(core)).map(|(at, _)| at).collect()
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
