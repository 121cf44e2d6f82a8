//! Pool of candidate cores for a request, with the cost of each.

use super::local;
use super::request::{NearDevice, Request};
use super::taken::{HELD_COST, PINNED_COST, Taken};
use crate::ids::{CoreId, Id, OsCpu, Pu};
use crate::topology::{Core, KindId, Level, Machine, Node};
use std::ops::Range;

/// Core that may be chosen.
#[derive(Clone, Debug)]
pub(super) struct CandidateCore {
    pub(super) core: CoreId,
    /// Its allowed CPUs, in logical order; never empty.
    pub(super) cpus: Vec<OsCpu>,
    /// Thousandths of a core lost by using it.
    pub(super) cost: u32,
    /// Whether all its usable memory is on other nodes; see [`local`].
    pub(super) remote: bool,
    /// Whether it is not among the nearest to the requested device.
    pub(super) far: bool,
    /// Distances to the device and to usable memory.
    away: Away,
}

/// Distances of a core, in the firmware's scale; 0 to a device that is not requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Away {
    /// To the node of the requested device.
    pub(super) device: u32,
    /// To the nearest node with usable memory.
    pub(super) memory: u32,
}

/// Memory that a request needs, and that nodes have.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// Requested bytes; 0 if any amount will do.
    pub(super) asked: u64,
    /// Bytes that each node of the machine offers: at most the request, since more does not count;
    /// as many as requested if the amount is not known, and none if the node may not be used.
    of_node: Vec<u64>,
}

impl Room {
    fn new(machine: &Machine, request: &Request, taken: &Taken) -> Self {
        let Some(size) = request.memory.size else { return Self::default() };
        let usable = local::usable(machine, taken);
        let of = |node: &Node| {
            let room = if usable.contains(node.os) { local::room(node, taken) } else { Some(0) };
            room.map_or(size.0, |room| room.min(size.0))
        };
        Self { asked: size.0, of_node: machine.nodes().iter().map(of).collect() }
    }

    /// Returns the bytes that a node offers, by its unit number.
    pub(super) fn of(&self, node: u32) -> u64 {
        self.of_node.get(node as usize).copied().unwrap_or(0)
    }
}

/// Speed of a node's memory; 0 if it is not known of all nodes with cores, so that nodes do not
/// differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Speed {
    /// In MB/s.
    pub(super) bandwidth: u64,
    /// In nanoseconds.
    pub(super) latency: u64,
}

/// Speeds of the nodes of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Speeds(Vec<Speed>);

/// Largest speed that counts: a petabyte a second, and a millisecond. Files may say anything, and
/// speeds are added up.
const BANDWIDTH_MAX: u64 = 1_000_000_000;
const LATENCY_MAX: u64 = 1_000_000;

impl Speeds {
    pub(super) fn of_machine(machine: &Machine) -> Self {
        let with_cores = || machine.nodes().iter().filter(|node| !node.cores.is_empty());
        let bandwidths = with_cores().all(|node| node.bandwidth.is_some());
        let latencies = with_cores().all(|node| node.latency.is_some());
        let of = |node: &Node| Speed {
            bandwidth: node.bandwidth.filter(|_| bandwidths).unwrap_or(0).min(BANDWIDTH_MAX),
            latency: node.latency.filter(|_| latencies).unwrap_or(0).min(LATENCY_MAX),
        };
        Self(machine.nodes().iter().map(of).collect())
    }

    /// Returns the speed of a node, by its unit number.
    pub(super) fn of(&self, node: u32) -> Speed {
        self.0.get(node as usize).copied().unwrap_or_default()
    }
}

/// Candidates in logical order, and the units of each core.
pub(super) struct Pool<'m> {
    pub(super) machine: &'m Machine,
    pub(super) candidates: Vec<CandidateCore>,
    /// Unit numbers of each core of the machine (not of each candidate), at the levels of [`KEYS`].
    keys: Vec<[u32; KEYS.len()]>,
    /// Cores excluded because another run holds them, ascending.
    held: Vec<CoreId>,
    /// Requested and available memory.
    pub(super) room: Room,
    /// Speeds of the nodes' memory.
    pub(super) speeds: Speeds,
    /// Units from which the request's stride takes one core each, as runs of cores; empty for other
    /// strategies.
    pub(super) strided: Vec<Range<u32>>,
}

/// Levels of the units that are compared, outermost first.
pub(super) const KEYS: [Level; 5] = [Level::Group, Level::Package, Level::Node, Level::L3, Level::L2];
/// Positions in [`KEYS`], which are filled in this order. `LLC` has the position of L3: it is the
/// outermost cache of any level.
const KEY_PACKAGE: usize = 1;
pub(super) const KEY_NODE: usize = 2;
pub(super) const KEY_LLC: usize = 3;
pub(super) const KEY_L2: usize = 4;

/// Object that is chosen as a whole: a core, or a unit of cores.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Positions in [`Pool::candidates`].
    pub(super) members: Range<usize>,
    /// Sum of the members' costs.
    pub(super) cost: u32,
    /// Number of remote members; if some of the members are chosen later, the number of remote ones
    /// that must be among them.
    pub(super) remote: usize,
    /// Number of members that are not near the requested device, counted in the same way.
    pub(super) far: usize,
    /// Distances of the first member.
    pub(super) away: Away,
    /// Unit numbers of the first member.
    pub(super) keys: [u32; KEYS.len()],
}

impl<'m> Pool<'m> {
    /// Gathers the allowed cores of `kind` (all kinds if `None`) that others do not hold, or all of
    /// them if sharing.
    pub(super) fn new(machine: &'m Machine, request: &Request, taken: &Taken, kind: Option<KindId>) -> Self {
        let (mut candidates, mut held) = (Vec::new(), Vec::new());
        let remote = local::remote(machine, taken);
        let memory = local::distances(machine, &local::usable(machine, taken));
        let device =
            request.near.as_ref().map(|near| local::distances(machine, &machine.nodes_of(&near.cpus)));
        for (at, core) in machine.cores().iter().enumerate() {
            if kind.is_some_and(|kind| core.kind != kind) {
                continue;
            }
            let all = core.pus.clone().map(|pu| machine.os(Pu(pu)));
            let cpus: Vec<OsCpu> = all.clone().filter(|&cpu| wanted(request, taken, cpu)).collect();
            if cpus.is_empty() {
                continue;
            }
            let own_held = all.clone().any(|cpu| taken.allowed.contains(cpu) && taken.held.contains(cpu));
            if own_held && !request.share {
                held.push(CoreId::from_index(at));
                continue;
            }
            let near =
                |near: &NearDevice| near.cpus.is_empty() || all.clone().any(|cpu| near.cpus.contains(cpu));
            let far = request.near.as_ref().is_some_and(|device| !near(device));
            let away = Away {
                device: device.as_ref().filter(|_| far).map_or(0, |device| device[at]),
                memory: memory[at],
            };
            let (cost, remote) = (cost(all.clone(), taken), remote[at]);
            candidates.push(CandidateCore { core: CoreId::from_index(at), cpus, cost, remote, far, away });
        }
        let strided = request.strategy.unit(machine).map(|level| machine.units(level));
        let (keys, room) = (keys(machine), Room::new(machine, request, taken));
        let speeds = Speeds::of_machine(machine);
        Self { machine, candidates, keys, held, room, speeds, strided: strided.unwrap_or_default() }
    }

    /// Returns the unit of the request's stride that contains a core.
    pub(super) fn strided_unit(&self, core: CoreId) -> Option<&Range<u32>> {
        let at = self.strided.partition_point(|unit| unit.end <= core.0);
        self.strided.get(at).filter(|unit| unit.contains(&core.0))
    }

    /// Returns a run of candidates as one item.
    pub(super) fn item(&self, members: Range<usize>) -> Item {
        let cost = self.candidates[members.clone()].iter().map(|candidate| candidate.cost).sum();
        let remote = self.candidates[members.clone()].iter().filter(|candidate| candidate.remote).count();
        let far = self.candidates[members.clone()].iter().filter(|candidate| candidate.far).count();
        let (keys, away) = self
            .candidates
            .get(members.start)
            .map_or(([0; KEYS.len()], Away::default()), |first| (self.keys[first.core.index()], first.away));
        Item { members, cost, remote, far, away, keys }
    }

    /// Returns the candidates inside a run of cores.
    pub(super) fn within(&self, cores: &Range<u32>) -> Range<usize> {
        let at = |core: u32| self.candidates.partition_point(|candidate| candidate.core.0 < core);
        at(cores.start)..at(cores.end)
    }

    /// Returns whether another run holds one of these cores, so that they are not available as a
    /// whole.
    pub(super) fn holds_foreign(&self, cores: &Range<u32>) -> bool {
        let at = self.held.partition_point(|core| core.0 < cores.start);
        self.held.get(at).is_some_and(|core| core.0 < cores.end)
    }
}

/// Returns the number of cores that a request may use at all, held or not.
pub(super) fn usable_cores(machine: &Machine, request: &Request, taken: &Taken) -> usize {
    let usable = |core: &&Core| core.pus.clone().any(|pu| wanted(request, taken, machine.os(Pu(pu))));
    machine.cores().iter().filter(usable).count()
}

fn wanted(request: &Request, taken: &Taken, cpu: OsCpu) -> bool {
    taken.allowed.contains(cpu) && request.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
}

/// Returns the cost of using a core: the largest cost of its hardware threads, since they share it,
/// including threads that are not allowed.
fn cost(cpus: impl Iterator<Item = OsCpu>, taken: &Taken) -> u32 {
    let of = |cpu: OsCpu| {
        let load = taken.load(cpu);
        let load = if load >= super::BUSY_FROM { u32::from(load) } else { 0 };
        match () {
            () if taken.held.contains(cpu) => HELD_COST + load,
            () if taken.pinned.contains(cpu) => PINNED_COST + load,
            () => load,
        }
    };
    cpus.map(of).max().unwrap_or(0)
}

fn keys(machine: &Machine) -> Vec<[u32; KEYS.len()]> {
    let mut keys = vec![[0; KEYS.len()]; machine.cores().len()];
    for (slot, &level) in KEYS.iter().enumerate() {
        match slot {
            KEY_NODE => {
                let nodes = u32::try_from(machine.nodes().len()).unwrap_or(u32::MAX);
                let (mut homeless, mut before) = (0, None);
                for (key, core) in keys.iter_mut().zip(machine.cores()) {
                    // Cores without a home node have keys beyond those of nodes. They are in one
                    // unit if no node lies between them: usually a die.
                    let place = (core.node, key[KEY_PACKAGE]);
                    let begins = core.node.is_none() && before.is_some_and(|before| before != place);
                    homeless += u32::from(nodes > 0 && begins);
                    before = Some(place);
                    key[slot] = core.node.map_or(nodes + homeless, |node| node.0);
                }
            }
            KEY_LLC => {
                for (key, core) in keys.iter_mut().zip(machine.cores()) {
                    key[slot] = core.llc.0;
                }
            }
            // Without such objects the machine is one unit.
            _ if machine.at(level).next().is_none() => {}
            // Groups inside packages (NPS modes, clusters) add no information to their nodes or
            // caches.
            _ if level == Level::Group && !holds_packages(machine) => {}
            _ => {
                for (number, unit) in (0..).zip(machine.units(level)) {
                    for key in &mut keys[unit.start as usize..unit.end as usize] {
                        key[slot] = number;
                    }
                }
            }
        }
    }
    keys
}

/// Returns whether the outermost groups consist of whole packages: boards, books.
fn holds_packages(machine: &Machine) -> bool {
    let packages = machine.outermost(Level::Package);
    machine
        .outermost(Level::Group)
        .iter()
        .any(|group| packages.iter().filter(|package| group.contains(&package.start)).count() > 1)
}
