//! Independent checker of plans: reports errors in a plan without sharing code with the placement.
//!
//! Every placement test uses it, and so does `trimtab check` for a plan from a file. [`decisions`]
//! is the equivalent for policies.

pub mod decisions;
mod local_memory;

use crate::ids::OsCpu;
use crate::place::nesting::Listing;
use crate::place::{Amount, KindChoice, Plan, Request, Smt, Strategy, Stride, Taken};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Level, Machine};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Error in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum PlanFinding {
    /// The plan has no slot.
    Empty,
    /// A slot is on a CPU that the machine does not have.
    NoSuchCpu(OsCpu),
    /// CPUs are outside the allowed set.
    NotAllowed(CpuSet),
    /// CPUs are outside the set named by the user.
    NotNamed(CpuSet),
    /// Two slots are on one CPU.
    Twice(OsCpu),
    /// The mask differs from the set of the slots' CPUs.
    MaskDiffers(CpuSet),
    /// A slot names another core, cache or node than the machine does.
    WrongPlace(OsCpu),
    /// Slots are not reserved.
    NotHeld(CpuSet),
    /// Reserved CPUs are held by another run.
    HeldByOthers(CpuSet),
    /// A core has more slots than requested.
    CrowdedCore {
        /// One of its CPUs.
        cpu: OsCpu,
        /// Number of slots on the core.
        slots: usize,
    },
    /// The number of cores differs from the requested one.
    Cores {
        /// Number of requested cores.
        asked: usize,
        /// Number of cores in the plan.
        got: usize,
    },
    /// A unit is used in part, or with another number of cores than requested.
    Unit {
        /// Level of the unit.
        level: Level,
        /// Number of cores used in the unit.
        used: usize,
        /// Requested number of cores in the unit.
        wanted: usize,
    },
    /// Two slots are in a unit, although the stride allows only one.
    StrideBroken(Level),
    /// Cores of several kinds are used, although one kind was requested and had enough cores.
    MixedKinds,
    /// CPUs have a smaller last-level cache than others, although the largest was requested.
    SmallerCache(CpuSet),
    /// Cores without local memory are used, although free cores with local memory would have met
    /// the request.
    NoLocalMemory {
        /// CPUs of the plan without local memory.
        cpus: CpuSet,
        /// CPUs of free cores with local memory.
        free: CpuSet,
    },
    /// Cores far from the requested device are used, although free cores near to it would have met
    /// the request.
    FarFromDevice {
        /// CPUs of the plan that are far from the device.
        cpus: CpuSet,
        /// CPUs of free cores near to it.
        free: CpuSet,
    },
    /// The nodes do not have the requested memory.
    NoRoom {
        /// Nodes from which the run may allocate.
        nodes: NodeSet,
        /// Bytes available on these nodes.
        room: u64,
        /// Requested bytes.
        asked: u64,
    },
    /// The plan holds another amount of memory than the requested one.
    MemoryHold {
        /// Requested bytes.
        asked: u64,
        /// Bytes that the plan holds.
        held: u64,
    },
    /// The node of the cores does not have the requested memory, although another node has it, and
    /// enough free cores.
    RoomElsewhere {
        /// Node of the cores.
        nodes: NodeSet,
        /// The other node.
        other: crate::ids::OsNode,
    },
    /// The cores are on a node with slower memory than another one, which would have served
    /// equally.
    SlowerMemory {
        /// Node of the cores.
        node: crate::ids::OsNode,
        /// The faster node.
        other: crate::ids::OsNode,
    },
    /// The memory policy names nodes that do not exist or may not be used.
    NoSuchNode(crate::ids::OsNode),
    /// The thread count is not between 1 and the number of slots.
    Threads(u32),
}

impl fmt::Display for PlanFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the plan has no slot"),
            Self::NoSuchCpu(cpu) => write!(f, "CPU {cpu} does not exist on this machine"),
            Self::NotAllowed(cpus) => write!(f, "CPUs {cpus} are not allowed"),
            Self::NotNamed(cpus) => write!(f, "CPUs {cpus} are not among those named"),
            Self::Twice(cpu) => write!(f, "CPU {cpu} has two slots"),
            Self::MaskDiffers(cpus) => write!(f, "the mask and the slots differ in CPUs {cpus}"),
            Self::WrongPlace(cpu) => {
                write!(f, "the slot on CPU {cpu} names another core, cache or node than it has")
            }
            Self::NotHeld(cpus) => write!(f, "CPUs {cpus} are used but not held"),
            Self::HeldByOthers(cpus) => write!(f, "CPUs {cpus} are held by others"),
            Self::CrowdedCore { cpu, slots } => write!(f, "the core of CPU {cpu} has {slots} slots"),
            Self::Cores { asked, got } => write!(f, "{got} cores instead of {asked}"),
            Self::Unit { level, used, wanted } => {
                write!(f, "a {level} has {used} cores in use instead of {wanted}")
            }
            Self::StrideBroken(level) => write!(f, "two slots share a {level}"),
            Self::MixedKinds => write!(f, "core kinds are mixed although one kind would do"),
            Self::SmallerCache(cpus) => write!(f, "CPUs {cpus} do not have the largest last-level cache"),
            Self::NoLocalMemory { cpus, free } => {
                write!(f, "CPUs {cpus} have no memory of their own, while CPUs {free} have some and are free")
            }
            Self::FarFromDevice { cpus, free } => {
                write!(f, "CPUs {cpus} are far from the device, while CPUs {free} are near to it and free")
            }
            Self::NoRoom { nodes, room, asked } => {
                write!(f, "node {nodes} has {room} bytes of memory for the {asked} that are asked for")
            }
            Self::MemoryHold { asked, held } => {
                write!(f, "the plan holds {held} bytes of memory instead of {asked}")
            }
            Self::RoomElsewhere { nodes, other } => {
                write!(
                    f,
                    "node {nodes} lacks the memory asked for, while node {other} has it and enough free cores"
                )
            }
            Self::SlowerMemory { node, other } => {
                write!(
                    f,
                    "the memory of node {node} is slower than that of node {other}, which is as good otherwise"
                )
            }
            Self::NoSuchNode(node) => write!(f, "memory node {node} does not exist or may not be used"),
            Self::Threads(threads) => write!(f, "{threads} threads for the slots there are"),
        }
    }
}

/// Returns all errors in the placement of nested teams within a plan, based on the list alone.
///
/// The requirements for every strategy: each level has the number of threads given by the sizes,
/// all inside the plan's mask; thread 0 of an inner team is on the CPU of the thread that opened
/// the team; no CPU has two threads of one level while there are CPUs for all.
pub fn check_nesting(plan: &Plan, listing: &Listing) -> Vec<NestFinding> {
    let mut findings = Vec::new();
    let mut outer: Vec<OsCpu> = Vec::new();
    let mut wanted = 1usize;
    for (at, level) in listing.levels.iter().enumerate() {
        let number = at + 1;
        wanted = wanted.saturating_mul(level.size as usize);
        if level.threads.len() != wanted {
            findings.push(NestFinding::Threads { level: number, wanted, got: level.threads.len() });
        }
        let mut uses: BTreeMap<OsCpu, usize> = BTreeMap::new();
        for (thread, listed) in level.threads.iter().enumerate() {
            let path = listed.path.clone();
            if !plan.mask.contains(listed.cpu) {
                findings.push(NestFinding::Outside { path: path.clone(), cpu: listed.cpu });
            }
            *uses.entry(listed.cpu).or_default() += 1;
            let size = (level.size as usize).max(1);
            let master = outer.get(thread / size).filter(|_| thread.is_multiple_of(size));
            if let Some(&master) = master.filter(|&&master| master != listed.cpu) {
                findings.push(NestFinding::MasterMoved { path, from: master, to: listed.cpu });
            }
        }
        // A team that stays in its master's part may be larger than the part.
        if wanted <= plan.mask.len()
            && let Some((&cpu, &threads)) = uses.iter().find(|(_, threads)| **threads > 1)
        {
            findings.push(NestFinding::Shared { level: number, cpu, threads });
        }
        outer = level.threads.iter().map(|listed| listed.cpu).collect();
    }
    findings
}

/// Error in the placement of nested teams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NestFinding {
    /// A level has another number of threads than its sizes say.
    Threads {
        /// Number of the level, from 1.
        level: usize,
        /// Number of threads by the sizes.
        wanted: usize,
        /// Number of threads in the list.
        got: usize,
    },
    /// A thread is outside the plan's mask.
    Outside {
        /// The thread.
        path: String,
        /// CPU of the thread.
        cpu: OsCpu,
    },
    /// The first thread of an inner team is not on the CPU of the thread that opened the team.
    MasterMoved {
        /// The first thread of the team.
        path: String,
        /// CPU of the thread that opened the team.
        from: OsCpu,
        /// CPU of the first thread.
        to: OsCpu,
    },
    /// Threads share a CPU although there are enough CPUs.
    Shared {
        /// Number of the level, from 1.
        level: usize,
        /// The shared CPU.
        cpu: OsCpu,
        /// Number of threads on it.
        threads: usize,
    },
}

impl fmt::Display for NestFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { level, wanted, got } => {
                write!(f, "level {level} of the nested teams has {got} threads instead of {wanted}")
            }
            Self::Outside { path, cpu } => {
                write!(f, "nested thread {path} is on CPU {cpu}, outside the plan")
            }
            Self::MasterMoved { path, from, to } => {
                write!(
                    f,
                    "nested thread {path} is on CPU {to}, and the thread that opens its team on CPU {from}"
                )
            }
            Self::Shared { level, cpu, threads } => {
                write!(
                    f,
                    "{threads} threads of level {level} share CPU {cpu} although there are CPUs for all"
                )
            }
        }
    }
}

/// Returns all errors in a plan for `request` on `machine` with the occupancy `taken`; empty for a
/// correct plan.
pub fn check(machine: &Machine, request: &Request, taken: &Taken, plan: &Plan) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    let restricted;
    let request = if request.kind == KindChoice::LargestCache {
        let largest = largest_cache(machine);
        let smaller = plan.mask.difference(&largest);
        findings.extend((!smaller.is_empty()).then_some(PlanFinding::SmallerCache(smaller)));
        let cpus =
            request.cpus.as_ref().map_or_else(|| largest.clone(), |named| named.intersection(&largest));
        restricted = Request { cpus: Some(cpus), kind: KindChoice::Any, ..request.clone() };
        &restricted
    } else {
        request
    };
    if plan.slots.is_empty() {
        findings.push(PlanFinding::Empty);
    }
    let mut seen = CpuSet::new();
    let mut per_core: BTreeMap<u32, Vec<OsCpu>> = BTreeMap::new();
    for slot in &plan.slots {
        if !seen.insert(slot.cpu) {
            findings.push(PlanFinding::Twice(slot.cpu));
        }
        match core_index(machine, slot.cpu) {
            None => findings.push(PlanFinding::NoSuchCpu(slot.cpu)),
            Some(core) => {
                let place = &machine.cores()[core as usize];
                let node = place.node.map(|node| machine.nodes()[node.0 as usize].os);
                if slot.core.0 != core || slot.llc != place.llc || slot.node != node {
                    findings.push(PlanFinding::WrongPlace(slot.cpu));
                }
                per_core.entry(core).or_default().push(slot.cpu);
            }
        }
    }
    let mut set = |cpus: CpuSet, finding: fn(CpuSet) -> PlanFinding| {
        if !cpus.is_empty() {
            findings.push(finding(cpus));
        }
    };
    set(seen.difference(&plan.mask).union(&plan.mask.difference(&seen)), PlanFinding::MaskDiffers);
    set(plan.mask.union(&plan.hold).difference(&taken.allowed), PlanFinding::NotAllowed);
    set(plan.mask.difference(&plan.hold), PlanFinding::NotHeld);
    if let Some(named) = &request.cpus {
        set(plan.mask.difference(named), PlanFinding::NotNamed);
    }
    if !request.share {
        set(plan.hold.intersection(&taken.held), PlanFinding::HeldByOthers);
    }
    let depth = match (request.amount, request.smt) {
        (Amount::Exact, _) | (_, Smt::All) => usize::MAX,
        (_, Smt::Threads(threads)) => threads as usize,
    };
    for cpus in per_core.values().filter(|cpus| cpus.len() > depth) {
        findings.push(PlanFinding::CrowdedCore { cpu: cpus[0], slots: cpus.len() });
    }
    let cores: BTreeSet<u32> = per_core.into_keys().collect();
    amount(machine, request, taken, &cores, &mut findings);
    stride(machine, request, &cores, &mut findings);
    kinds(machine, request, taken, &cores, &mut findings);
    findings.extend(local_memory::check(machine, request, taken, &cores));
    findings.extend(local_memory::check_room(machine, request, taken, plan, &cores));
    findings.extend(local_memory::check_speed(machine, request, taken, plan, &cores));
    for node in plan.memory.nodes.iter() {
        let exists = machine.nodes().iter().any(|known| known.os == node);
        if !exists || taken.mems.as_ref().is_some_and(|mems| !mems.contains(node)) {
            findings.push(PlanFinding::NoSuchNode(node));
        }
    }
    if plan.threads == 0 || plan.threads as usize > plan.slots.len() {
        findings.push(PlanFinding::Threads(plan.threads));
    }
    findings
}

/// Returns the CPUs below the largest of the outermost caches, from the parts of the machine.
fn largest_cache(machine: &Machine) -> CpuSet {
    let parts = machine.parts();
    let size = |at: u32| {
        let around = parts.caches.iter().filter(|cache| {
            at >= cache.first && u64::from(at) < u64::from(cache.first) + u64::from(cache.count)
        });
        around.max_by_key(|cache| (cache.level == Level::L3, cache.count)).map_or(0, |cache| cache.bytes)
    };
    let sizes: Vec<(OsCpu, u64)> = (0..).zip(&parts.pus).map(|(at, &cpu)| (cpu, size(at))).collect();
    let largest = sizes.iter().map(|(_, size)| *size).max().unwrap_or(0);
    sizes.into_iter().filter(|(_, size)| *size == largest).map(|(cpu, _)| cpu).collect()
}

fn core_index(machine: &Machine, cpu: OsCpu) -> Option<u32> {
    let at = machine.parts().pus.iter().position(|&os| os == cpu)?;
    let core =
        machine.cores().iter().position(|core| core.pus.contains(&u32::try_from(at).unwrap_or(u32::MAX)))?;
    u32::try_from(core).ok()
}

/// Returns the cores with an allowed and named CPU. If `free` is set, cores with a held CPU are
/// excluded.
fn usable(machine: &Machine, request: &Request, taken: &Taken, free: bool) -> BTreeSet<u32> {
    let mut cores = BTreeSet::new();
    for (at, core) in (0..).zip(machine.cores()) {
        let cpus = machine.cpus_of(&core.pus).intersection(&taken.allowed);
        let named = request.cpus.as_ref().map_or_else(|| cpus.clone(), |named| cpus.intersection(named));
        if !named.is_empty() && (!free || !cpus.intersects(&taken.held)) {
            cores.insert(at);
        }
    }
    cores
}

fn amount(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    cores: &BTreeSet<u32>,
    findings: &mut Vec<PlanFinding>,
) {
    let mut expect = |asked: usize| {
        let short = request.or_fewer && cores.len() < asked && !cores.is_empty();
        if cores.len() != asked && !short {
            findings.push(PlanFinding::Cores { asked, got: cores.len() });
        }
    };
    match request.amount {
        Amount::Cores(asked) => expect(asked as usize),
        Amount::Percent(percent) => {
            expect((usable(machine, request, taken, false).len() * percent as usize / 100).max(1));
        }
        Amount::Exact => {
            let named = request.cpus.clone().unwrap_or_default();
            expect(
                (0..)
                    .zip(machine.cores())
                    .filter(|(_, core)| machine.cpus_of(&core.pus).intersects(&named))
                    .count(),
            );
        }
        Amount::Auto => {
            let granted = request.granted.as_ref().map(|granted| granted.cores);
            let cap = request.cores_max.into_iter().chain(request.cores_auto).chain(granted).min();
            if let Some(cap) = cap.filter(|&cap| cores.len() > cap as usize) {
                findings.push(PlanFinding::Cores { asked: cap as usize, got: cores.len() });
            }
        }
        Amount::Shape(shape) => {
            let stride = matches!(request.strategy, Strategy::Stride(_));
            let mut all = usable(machine, request, taken, false);
            if request.kind != KindChoice::Any {
                // If one kind is wanted, a whole unit consists of its cores of that kind.
                let kinds: BTreeSet<_> =
                    cores.iter().map(|&core| machine.cores()[core as usize].kind).collect();
                all.retain(|&core| kinds.contains(&machine.cores()[core as usize].kind));
            }
            let mut units = 0;
            for object in outermost(machine, shape.level) {
                let of =
                    |set: &BTreeSet<u32>| set.iter().filter(|&&core| inside(machine, core, &object)).count();
                let (used, whole) = (of(cores), of(&all));
                units += usize::from(used > 0);
                let wanted = shape.per.map_or(whole, |per| per as usize);
                if used > 0 && used != wanted && !(stride && shape.per.is_none()) {
                    findings.push(PlanFinding::Unit { level: shape.level, used, wanted });
                }
            }
            let wanted = shape.units.or(shape.per.is_none().then_some(1));
            if let Some(wanted) = wanted.filter(|&wanted| wanted as usize != units)
                && shape.level != Level::Core
                && !(request.or_fewer && units < wanted as usize)
            {
                findings.push(PlanFinding::Cores { asked: wanted as usize, got: units });
            }
        }
    }
}

/// Returns the PU runs of a level's objects; of nested groups only the outermost.
fn outermost(machine: &Machine, level: Level) -> Vec<std::ops::Range<u32>> {
    let mut runs: Vec<std::ops::Range<u32>> = Vec::new();
    for object in machine.objects().iter().filter(|object| object.level == level) {
        if runs.last().is_none_or(|last| object.pus.start >= last.end) {
            runs.push(object.pus.clone());
        }
    }
    runs
}

fn inside(machine: &Machine, core: u32, pus: &std::ops::Range<u32>) -> bool {
    pus.contains(&machine.cores()[core as usize].pus.start)
}

fn stride(machine: &Machine, request: &Request, cores: &BTreeSet<u32>, findings: &mut Vec<PlanFinding>) {
    let level = match request.strategy {
        Strategy::Stride(Stride::OnePer(level)) if request.amount != Amount::Exact => level,
        _ => return,
    };
    for pus in outermost(machine, level) {
        if cores.iter().filter(|&&core| inside(machine, core, &pus)).count() > 1 {
            findings.push(PlanFinding::StrideBroken(level));
        }
    }
}

fn kinds(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    cores: &BTreeSet<u32>,
    findings: &mut Vec<PlanFinding>,
) {
    let kind = |core: &u32| machine.cores()[*core as usize].kind;
    let used: BTreeSet<_> = cores.iter().map(kind).collect();
    if used.len() < 2 || request.kind != KindChoice::One || request.amount == Amount::Exact {
        return;
    }
    if let Amount::Cores(asked) = request.amount {
        let free = usable(machine, request, taken, true);
        let enough = |id| free.iter().filter(|core| kind(core) == id).count() >= asked as usize;
        let plain = !matches!(request.strategy, Strategy::Stride(_));
        if plain && used.into_iter().any(enough) {
            findings.push(PlanFinding::MixedKinds);
        }
    }
}
