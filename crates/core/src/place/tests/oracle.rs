//! Oracle of the compact strategy with memory and devices: on small machines it tries every set of
//! cores, and shares no code with the strategy.
//!
//! The order that it checks is the documented one: near to the requested device, then with local
//! memory; the cores that are chosen out of the last of these classes are on the fewest nodes; then
//! nearest to the device, then the least of the requested memory is missing, then nearest to
//! memory, then on the fewest caches, then the nodes are nearest to each other, then they have the
//! most bandwidth and the least latency, if those of all nodes are known.

use crate::check::check;
use crate::ids::{Id, NodeId, OsCpu, OsNode};
use crate::place::*;
use crate::set::CpuSet;
use crate::topology::{Machine, MemorySpeed, parse_synthetic};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use std::collections::{BTreeMap, BTreeSet};

/// Most cores of a machine whose sets are all tried.
const CORES_MAX: usize = 12;

/// Facts about one core, as the oracle sees them.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: Option<u32>,
    llc: u32,
    far: bool,
    remote: bool,
    from_device: u64,
    from_memory: u64,
}

/// Key of a set of cores: the smallest is the best.
type Key = ([usize; 3], usize, u64, u64, u64, usize, u64, (i128, u128));

/// Returns the bytes that a node offers; `None` if unknown.
fn offered(machine: &Machine, taken: &Taken, node: u32) -> Option<u64> {
    let node = &machine.nodes()[node as usize];
    if !open_nodes(machine, taken).contains(&node.os) {
        return Some(0);
    }
    unheld(taken, node)
}

/// Returns the free memory of a node without the part that others hold; `None` if unknown.
fn unheld(taken: &Taken, node: &crate::topology::Node) -> Option<u64> {
    let held = taken.held_memory.get(&node.os).map_or(0, |held| *held);
    let free = taken.free_memory.get(&node.os).copied().or(node.bytes)?;
    Some(free - held.min(free))
}

/// Returns the nodes with free memory; those with any memory if all are full.
fn open_nodes(machine: &Machine, taken: &Taken) -> BTreeSet<OsNode> {
    let any_memory = machine.nodes().iter().any(|node| node.bytes != Some(0));
    let may = |node: &&crate::topology::Node| {
        (node.bytes != Some(0) || !any_memory)
            && taken.mems.as_ref().is_none_or(|mems| mems.contains(node.os))
    };
    let may_use: Vec<_> = machine.nodes().iter().filter(may).collect();
    let free: BTreeSet<OsNode> = may_use
        .iter()
        .filter(|node| match (unheld(taken, node), node.bytes) {
            (Some(free), Some(bytes)) => bytes == 0 || free as f64 >= bytes as f64 * 0.02,
            _ => true,
        })
        .map(|node| node.os)
        .collect();
    if free.is_empty() { may_use.iter().map(|node| node.os).collect() } else { free }
}

fn places(machine: &Machine, request: &Request, taken: &Taken) -> BTreeMap<u32, Place> {
    let open = open_nodes(machine, taken);
    let device: BTreeSet<u32> = request
        .near
        .iter()
        .flat_map(|near| near.cpus.iter())
        .map(|cpu| machine.core(machine.core_of(machine.pu(cpu).unwrap())).node.unwrap().0)
        .collect();
    let distance = |from: u32, to: u32| u64::from(machine.distance(NodeId(from), NodeId(to)));
    let mut places = BTreeMap::new();
    for (at, core) in (0..).zip(machine.cores()) {
        let cpus = machine.cpus_of(&core.pus);
        if cpus.intersects(&taken.held) {
            continue;
        }
        let node = core.node.map(|node| node.0);
        let far = request.near.as_ref().is_some_and(|near| !near.cpus.intersects(&cpus));
        let memory = (0..).zip(machine.nodes()).filter(|(_, node)| open.contains(&node.os));
        let local = node.is_some_and(|node| open.contains(&machine.nodes()[node as usize].os));
        let home = node.expect("machines of the oracle have a node for each core");
        places.insert(
            at,
            Place {
                node,
                llc: core.llc.0,
                far,
                remote: !open.is_empty() && !local,
                from_device: if far { device.iter().map(|&to| distance(home, to)).min().unwrap() } else { 0 },
                from_memory: memory.map(|(to, _): (u32, _)| distance(home, to)).min().unwrap_or(0),
            },
        );
    }
    places
}

/// Returns the key of a set of cores.
fn key(machine: &Machine, request: &Request, taken: &Taken, cores: &[Place]) -> Key {
    let class = |place: &Place| (place.far, place.remote);
    let count = |far: bool, remote: bool| cores.iter().filter(|place| class(place) == (far, remote)).count();
    let last = cores.iter().map(class).max().unwrap();
    let part: Vec<&Place> = cores.iter().filter(|place| class(place) == last).collect();
    let nodes: BTreeMap<u32, &Place> = part.iter().map(|place| (place.node.unwrap(), *place)).collect();
    let all: BTreeSet<u32> = cores.iter().filter_map(|place| place.node).collect();
    let asked = request.memory.size.map_or(0, |size| u128::from(size.0));
    let room: Option<u128> = all.iter().map(|&node| offered(machine, taken, node).map(u128::from)).sum();
    let lack = room.map_or(0, |room| asked.saturating_sub(room));
    let mut spread = 0;
    for &a in nodes.keys() {
        for (&b, _) in nodes.range(a + 1..) {
            spread += u64::from(machine.distance(NodeId(a), NodeId(b)))
                + u64::from(machine.distance(NodeId(b), NodeId(a)));
        }
    }
    (
        [count(true, false) + count(true, true), count(false, true), count(true, true)],
        nodes.len(),
        nodes.values().map(|place| place.from_device).sum(),
        u64::try_from(lack).unwrap(),
        nodes.values().map(|place| place.from_memory).sum(),
        part.iter().map(|place| place.llc).collect::<BTreeSet<_>>().len(),
        spread,
        speed(machine, &nodes.keys().copied().collect::<Vec<_>>()),
    )
}

/// Returns the negative bandwidth of some nodes, and their latency; 0 for what some node with cores
/// lacks.
fn speed(machine: &Machine, nodes: &[u32]) -> (i128, u128) {
    let used = machine.cores().iter().filter_map(|core| core.node).collect::<BTreeSet<_>>();
    let node = |at: u32| &machine.nodes()[at as usize];
    let (mut bandwidth, mut latency) = (0, 0);
    if used.iter().all(|at| node(at.0).bandwidth.is_some()) {
        bandwidth = nodes.iter().map(|&at| i128::from(node(at).bandwidth.unwrap())).sum();
    }
    if used.iter().all(|at| node(at.0).latency.is_some()) {
        latency = nodes.iter().map(|&at| u128::from(node(at).latency.unwrap())).sum();
    }
    (-bandwidth, latency)
}

/// Returns the smallest key of all sets of `n` cores.
fn best(machine: &Machine, request: &Request, taken: &Taken, n: usize) -> Option<Key> {
    let all: Vec<Place> = places(machine, request, taken).into_values().collect();
    assert!(all.len() <= CORES_MAX);
    let sets = (0u32..1 << all.len()).filter(|set| set.count_ones() as usize == n);
    sets.map(|set| {
        let cores: Vec<Place> = (0..all.len()).filter(|at| set >> at & 1 == 1).map(|at| all[at]).collect();
        key(machine, request, taken, &cores)
    })
    .min()
}

/// Raw data of a case: levels, bytes and free memory of each node, distances, held cores, the
/// device's node, a count and an amount of memory.
type Case = ((u32, u32, u32), [u8; 4], [u8; 4], u64, u16, Option<u8>, usize, u64);

fn case() -> impl proptest::strategy::Strategy<Value = Case> {
    (
        prop::sample::select(vec![(2u32, 1u32, 3u32), (3, 1, 3), (3, 2, 2), (4, 1, 3), (2, 2, 3), (4, 1, 2)]),
        any::<[u8; 4]>(),
        any::<[u8; 4]>(),
        any::<u64>(),
        any::<u16>(),
        prop::option::of(0u8..4),
        1usize..9,
        0u64..60,
    )
}

/// Returns a machine with memoryless, full and unequal nodes, a request and an occupancy.
fn situate(case: Case) -> (Machine, Request, Taken) {
    let ((numa, l3, core), bytes, free, far, held, device, n, size) = case;
    let text = format!("numa:{numa} l3:{l3} core:{core}");
    let mut parts = parse_synthetic(&text).unwrap().parts().clone();
    for (node, bytes) in parts.nodes.iter_mut().zip(bytes) {
        node.bytes = match bytes {
            0..=60 => Some(0),
            61..=80 => None,
            _ => Some(u64::from(bytes)),
        };
    }
    let numa = numa as usize;
    // Distances of a multiple of two, symmetric or not.
    let mut bits = far;
    for from in 0..numa {
        for to in 0..numa {
            bits = bits.rotate_left(5);
            parts.distances.push(if from == to { 10 } else { 12 + 2 * u32::try_from(bits % 7).unwrap() });
        }
    }
    // Speeds of all nodes, of some, or of none.
    let speeds = far.rotate_right(7);
    for at in 0..numa {
        let value = |salt: u32| {
            (speeds.rotate_right(salt + 6 * at as u32) & 7 != 0).then_some(1 + (speeds >> (2 * at) & 3))
        };
        let node = OsNode::from_index(at);
        if speeds & 0x300 != 0 {
            parts.memory_speeds.push(MemorySpeed { node, bandwidth: value(0), latency: value(3) });
        }
    }
    let machine = Machine::build(parts).unwrap();
    let full = |(at, free): (usize, u8)| {
        let bytes = machine.nodes().get(at)?.bytes?;
        let free = match free {
            0..=90 => return None, // not examined
            91..=150 => 0,
            _ => bytes * u64::from(free - 150) / 110,
        };
        Some((OsNode::from_index(at), free))
    };
    let near = device.map(|node| {
        let node = usize::from(node) % numa;
        let cores = &machine.nodes()[node].cores;
        // Near to a whole node, or to a part of it.
        let cores = if far & 1 == 1 { &cores[..cores.len().div_ceil(2)] } else { &cores[..] };
        let cpus = cores.iter().flat_map(|core| machine.core(*core).pus.clone());
        NearDevice { name: "gpu:0".to_owned(), cpus: cpus.map(OsCpu).collect(), each: Vec::new() }
    });
    let request = Request {
        amount: Amount::Cores(u32::try_from(n).unwrap()),
        memory: MemoryRequest { size: (size > 0).then_some(MemorySize(size * 7)), ..Default::default() },
        near,
        ..Request::default()
    };
    let held: CpuSet = machine.cpus().iter().filter(|cpu| held >> cpu.0 & 1 == 1 && cpu.0 % 3 == 1).collect();
    let free_memory = (0..numa).zip(free).filter_map(full).collect();
    // Others hold memory on some nodes: a part of it, all, or more than there is.
    let holds = |at: usize| far >> (8 * at) & 3 == 0;
    let held_memory = (0..numa).filter(|&at| holds(at)).map(|at| (OsNode::from_index(at), far >> 32 & 0xff));
    let held_memory = held_memory.collect();
    let taken = Taken { held, free_memory, held_memory, ..Taken::nothing(machine.cpus()) };
    (machine, request, taken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_set_of_cores_is_better_than_the_plan(case in case()) {
        let (machine, mut request, taken) = situate(case);
        let Amount::Cores(n) = request.amount else { unreachable!() };
        let made = match plan(&machine, &request, &taken) {
            Err(PlaceError::NoRoom { .. }) => {
                // All nodes together do not have it.
                let all: Option<u64> =
                    (0..machine.nodes().len()).map(|at| offered(&machine, &taken, at as u32)).sum();
                prop_assert!(all.is_some_and(|all| all < request.memory.size.unwrap().0), "{all:?}");
                request.memory.size = None;
                return Ok(());
            }
            Err(_) => {
                prop_assert_eq!(best(&machine, &request, &taken, n as usize), None);
                return Ok(());
            }
            Ok(made) => made,
        };
        let places = places(&machine, &request, &taken);
        let chosen: BTreeMap<u32, Place> =
            made.slots.iter().map(|slot| (slot.core.0, places[&slot.core.0])).collect();
        let own = key(&machine, &request, &taken, &chosen.into_values().collect::<Vec<_>>());
        prop_assert_eq!(Some(own), best(&machine, &request, &taken, n as usize), "{:?}", made);
        let findings = check(&machine, &request, &taken, &made);
        prop_assert!(findings.is_empty(), "{:?}\n{:?}", findings, made);
        // The nodes of the policy have the requested memory.
        if let Some(size) = request.memory.size.filter(|_| made.memory.policy.takes_nodes()) {
            let nodes = made.memory.nodes.iter().map(|os| {
                let at = machine.nodes().iter().position(|node| node.os == os).unwrap();
                unheld(&taken, &machine.nodes()[at]).unwrap_or(u64::MAX / 8)
            });
            prop_assert!(nodes.sum::<u64>() >= size.0, "{:?}", made);
        }
        // The plan holds the requested memory, to the byte.
        let held: u64 = made.memory_hold.iter().map(|memory| memory.bytes).sum();
        prop_assert_eq!(held, request.memory.size.map_or(0, |size| size.0), "{:?}", made);
    }
}
