//! Every strategy on every captured machine and on large synthetic ones: the independent checker
//! finds no fault, and a naive oracle finds nothing better. Pictures of plans are snapshots, so
//! that a change of policy is reviewed as a change of pictures.
//!
//! The captured machines are not part of the repository; see `corpus.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{captured, synthetic};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::check::check;
use trimtab_core::hash::fnv1a;
use trimtab_core::ids::{Id, NodeId, OsCpu, OsNode};
use trimtab_core::place::{
    Amount, DealtDevice, KindChoice, MemoryRequest, MemorySize, NearDevice, PlaceError, Plan, Request, Shape,
    Slot, Smt, Strategy, Stride, Taken, deal, part, plan,
};
use trimtab_core::set::{CpuSet, NodeSet};
use trimtab_core::topology::{
    Core, DeviceKind, Level, Machine, Marks, MemorySpeed, Node, NodePart, draw, each_device,
};

fn strategies() -> Vec<Strategy> {
    let mut strategies = vec![Strategy::Compact, Strategy::Scatter, Strategy::Balanced];
    let strides = [
        Stride::Every(2),
        Stride::Every(3),
        Stride::OnePer(Level::L2),
        Stride::OnePer(Level::L3),
        Stride::OnePerFpu,
    ];
    strategies.extend(strides.map(Strategy::Stride));
    strategies
}

/// Returns amounts that make sense on a machine with this number of cores.
fn amounts(cores: usize) -> Vec<Amount> {
    let cores = u32::try_from(cores).unwrap();
    let mut amounts: Vec<Amount> = [1, 2, cores / 3, cores / 2, cores - 1, cores]
        .into_iter()
        .filter(|&n| n > 0)
        .map(Amount::Cores)
        .collect();
    amounts.extend([Amount::Auto, Amount::Percent(30)]);
    for level in Level::ALL {
        amounts.push(Amount::Shape(Shape { units: Some(1), per: None, level }));
        amounts.push(Amount::Shape(Shape { units: Some(2), per: Some(2), level }));
        amounts.push(Amount::Shape(Shape { units: None, per: Some(1), level }));
    }
    amounts
}

/// Returns three states of a machine: nothing taken; scattered cores held and busy; one node held
/// and half of the rest allowed.
fn surroundings(machine: &Machine, seed: u8) -> Vec<Taken> {
    let cpus = machine.cpus();
    let pick = |salt: u8, share: u64| -> CpuSet {
        cpus.iter().filter(|cpu| mix(&[seed, salt], cpu.0) % 100 < share).collect()
    };
    let (held, busy, allowed) = (pick(1, 20), pick(2, 30), pick(3, 60));
    let first_node: CpuSet = cpus
        .iter()
        .filter(|&cpu| machine.nodes_of(&[cpu].into_iter().collect()).first().map(|node| node.0) == Some(0))
        .collect();
    vec![
        Taken::nothing(cpus.clone()),
        Taken { held, busy: busy.iter().map(|cpu| (cpu, 600)).collect(), ..Taken::nothing(cpus) },
        Taken { held: first_node.intersection(&allowed), ..Taken::nothing(allowed) },
    ]
}

/// Scrambles a number; equal salts give equal results, everywhere.
fn mix(salt: &[u8], number: u32) -> u64 {
    let bytes = salt.iter().copied().chain(number.to_le_bytes());
    fnv1a(bytes) >> 20
}

/// Every request on every machine in every state: plans are checked, refusals are counted.
#[test]
fn every_plan_on_every_machine_is_right() {
    let mut planned = 0;
    for (at, (name, machine)) in captured().into_iter().chain(synthetic()).enumerate() {
        // The checker is deliberately naive; on thousands of CPUs fewer requests suffice.
        let step = 1 + machine.pu_count() / 200;
        for taken in surroundings(&machine, u8::try_from(at).unwrap()) {
            let mut turn = 0;
            for strategy in strategies() {
                for amount in amounts(machine.cores().len()) {
                    for smt in [Smt::Threads(1), Smt::Threads(2), Smt::All] {
                        turn += 1;
                        if turn % step != 0 {
                            continue;
                        }
                        let kind = if turn % 2 == 0 { KindChoice::One } else { KindChoice::Any };
                        let request = Request {
                            amount,
                            strategy,
                            smt,
                            kind,
                            or_fewer: turn % 5 == 0,
                            ..Request::default()
                        };
                        let Ok(made) = plan(&machine, &request, &taken) else { continue };
                        let findings = check(&machine, &request, &taken, &made);
                        assert!(findings.is_empty(), "{name}: {request:?}\n{findings:?}\n{made:?}");
                        assert_eq!(Ok(made), plan(&machine, &request, &taken), "{name}: not deterministic");
                        planned += 1;
                    }
                }
            }
        }
    }
    assert!(planned > 3_000, "{planned}");
}

/// Returns whether a cache's cores have memory of their own, if any core has.
fn has_memory(machine: &Machine, node: Option<NodeId>) -> bool {
    machine.nodes().is_empty() || node.is_some_and(|node| machine.nodes()[node.index()].bytes != Some(0))
}

/// Returns the fewest nodes, and within them the fewest caches, that can hold `n` free cores, by
/// trying every set of nodes. Only cores with memory of their own count: this rule comes before the
/// minimum.
fn fewest(machine: &Machine, taken: &Taken, n: usize) -> Option<(usize, usize)> {
    let mut caches: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for llc in machine.llcs().iter().filter(|llc| has_memory(machine, llc.node)) {
        let free = |core: &u32| {
            let cpus = machine.cpus_of(&machine.cores()[*core as usize].pus);
            cpus.intersects(&taken.allowed) && !cpus.intersection(&taken.allowed).intersects(&taken.held)
        };
        caches
            .entry(llc.node.map_or(u32::MAX, |node| node.0))
            .or_default()
            .push(llc.cores.clone().filter(free).count());
    }
    let nodes: Vec<&Vec<usize>> = caches.values().collect();
    let mut best = None;
    for set in 0u32..1 << nodes.len() {
        let mut sizes: Vec<usize> =
            (0..nodes.len()).filter(|at| set >> at & 1 == 1).flat_map(|at| nodes[at].clone()).collect();
        if sizes.iter().sum::<usize>() < n {
            continue;
        }
        sizes.sort_unstable();
        let mut left = n;
        let mut count = 0;
        while left > 0 {
            left = left.saturating_sub(sizes.pop().unwrap());
            count += 1;
        }
        best = best.into_iter().chain([(set.count_ones() as usize, count)]).min();
    }
    best
}

#[test]
fn compact_is_never_beaten_on_nodes_and_caches() {
    let mut compared = 0;
    for (at, (name, machine)) in captured().into_iter().chain(synthetic()).enumerate() {
        if machine.nodes().len() > 12 || machine.kinds().len() > 1 {
            continue; // too many sets to try; and the oracle does not know the constraint of one core kind
        }
        for taken in surroundings(&machine, u8::try_from(at + 100).unwrap()) {
            let taken = Taken { busy: BTreeMap::new(), ..taken };
            for n in [1, 2, 3, 5, 8, 13, 24, 40] {
                let request = Request { amount: Amount::Cores(n), ..Request::default() };
                let Ok(made) = plan(&machine, &request, &taken) else {
                    assert_eq!(
                        fewest(&machine, &taken, n as usize).filter(|_| n as usize <= machine.cores().len()),
                        None,
                        "{name}: {n} cores refused"
                    );
                    continue;
                };
                let home = |slot: &Slot| machine.core(slot.core).node;
                if made.slots.iter().any(|slot| !has_memory(&machine, home(slot))) {
                    assert_eq!(
                        fewest(&machine, &taken, n as usize),
                        None,
                        "{name}: {n} cores, some without memory"
                    );
                    continue;
                }
                let nodes: BTreeSet<_> = made.slots.iter().map(|slot| slot.node).collect();
                let llcs: BTreeSet<_> = made.slots.iter().map(|slot| slot.llc).collect();
                assert_eq!(
                    Some((nodes.len(), llcs.len())),
                    fewest(&machine, &taken, n as usize),
                    "{name}: {n} cores"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Returns variants of a machine: nodes without memory, a missing node, and unequal nodes.
fn variants(machine: &Machine, seed: u8) -> Vec<Machine> {
    let nodes = machine.parts().nodes.len();
    let with = |change: &dyn Fn(usize) -> Option<u64>, missing: Option<usize>| {
        let mut parts = machine.parts().clone();
        for (at, node) in parts.nodes.iter_mut().enumerate() {
            node.bytes = change(at).or(node.bytes);
        }
        if let Some(missing) = missing {
            parts.nodes.remove(missing);
            let kept = |at: &usize| at % nodes != missing && at / nodes != missing;
            let all = std::mem::take(&mut parts.distances).into_iter().enumerate();
            parts.distances = all.filter(|(at, _)| kept(at)).map(|(_, distance)| distance).collect();
        }
        Machine::build(parts).unwrap()
    };
    let random = |at: usize, salt: u8| mix(&[seed, salt], u32::try_from(at).unwrap());
    let mut variants = vec![
        with(&|at| Some(if random(at, 1).is_multiple_of(3) { 0 } else { 64 << 30 }), None),
        with(&|at| Some((1 + random(at, 2) % 64) << 30), None),
    ];
    // Speeds of all nodes, or of all but one.
    let mut parts = machine.parts().clone();
    let speed = |(at, node): (usize, &NodePart)| MemorySpeed {
        node: node.os,
        bandwidth: (!seed.is_multiple_of(3) || at > 0).then(|| 1 + random(at, 9) % 4),
        latency: Some(1 + random(at, 10) % 4),
    };
    parts.memory_speeds = parts.nodes.iter().enumerate().map(speed).collect();
    parts.nodes.iter_mut().for_each(|node| node.bytes = Some(64 << 30));
    variants.push(Machine::build(parts).unwrap());
    if nodes > 1 {
        let missing = usize::try_from(random(0, 3)).unwrap() % nodes;
        variants.push(with(&|_| Some(64 << 30), Some(missing)));
    }
    variants
}

/// Returns free memory for about half of the nodes; about a quarter of these is full.
fn some_free(machine: &Machine, seed: u8) -> BTreeMap<OsNode, u64> {
    let random = |os: OsNode, salt: u8| mix(&[seed, salt], os.0);
    let examined = machine.nodes().iter().filter(|node| random(node.os, 4).is_multiple_of(2));
    let free = |node: &Node| {
        let share = if random(node.os, 5).is_multiple_of(4) { 0 } else { random(node.os, 6) % 100 };
        Some((node.os, node.bytes? / 100 * share))
    };
    examined.filter_map(free).collect()
}

/// Returns memory that others hold on about a third of the nodes.
fn some_held(machine: &Machine, seed: u8) -> BTreeMap<OsNode, u64> {
    let random = |os: OsNode, salt: u8| mix(&[seed, salt], os.0);
    let holding = machine.nodes().iter().filter(|node| random(node.os, 7).is_multiple_of(3));
    holding.map(|node| (node.os, (random(node.os, 8) % 40) << 30)).collect()
}

/// Requests for memory and devices, on machines with memoryless, missing, unequal and full nodes,
/// and with nodes of which others hold memory: plans pass the checker, and refusals for memory are
/// true.
#[test]
fn plans_by_memory_and_devices_are_right_on_every_machine() {
    let (mut planned, mut refused) = (0, 0);
    for (at, (name, machine)) in captured().into_iter().chain(synthetic()).enumerate() {
        let seed = u8::try_from(at).unwrap();
        if machine.pu_count() > 400 {
            continue; // the checker is naive
        }
        for machine in variants(&machine, seed) {
            let taken = Taken {
                free_memory: some_free(&machine, seed),
                held_memory: some_held(&machine, seed),
                ..surroundings(&machine, seed).remove(1)
            };
            let devices = machine.devices().iter().step_by(5).map(|device| {
                Some(NearDevice { name: device.name.clone(), cpus: device.cpus.clone(), each: Vec::new() })
            });
            let devices: Vec<_> = devices.chain([None]).collect();
            let mut turn = 0;
            for amount in amounts(machine.cores().len()) {
                for strategy in strategies() {
                    turn += 1;
                    let size = [None, Some(1), Some(20), Some(90), Some(300)][turn % 5];
                    let size = size.map(|gib: u64| MemorySize(gib << 30));
                    let memory = MemoryRequest { size, ..MemoryRequest::default() };
                    let near = devices[turn % devices.len()].clone();
                    let request = Request { amount, strategy, memory, near, ..Request::default() };
                    match plan(&machine, &request, &taken) {
                        Ok(made) => {
                            let findings = check(&machine, &request, &taken, &made);
                            assert!(findings.is_empty(), "{name}: {request:?}\n{findings:?}\n{made:?}");
                            let held: u64 = made.memory_hold.iter().map(|memory| memory.bytes).sum();
                            assert_eq!(held, size.map_or(0, |size| size.0), "{name}: {made:?}");
                            planned += 1;
                        }
                        Err(PlaceError::NoRoom { asked, .. }) => {
                            let room = |node: &Node| {
                                let free = taken.free_memory.get(&node.os).copied().or(node.bytes).unwrap();
                                free.saturating_sub(taken.held_memory.get(&node.os).copied().unwrap_or(0))
                            };
                            let with_cores = machine.nodes().iter().filter(|node| !node.cores.is_empty());
                            let room: u64 = with_cores.map(room).sum();
                            // A full node's memory, less than a fiftieth of 64 GiB, does not count.
                            let lost = machine.nodes().len() as u64 * (64 << 30) / 50;
                            assert!(room < asked.0 + lost, "{name}: {room} {asked}");
                            refused += 1;
                        }
                        Err(_) => {}
                    }
                }
            }
        }
    }
    assert!(planned > 300 && refused > 20, "{planned} {refused}");
}

/// On every machine with devices, cores near each device come first.
#[test]
fn near_a_device_means_its_cpus_first() {
    let mut tried = 0;
    for (name, machine) in captured() {
        let taken = Taken::nothing(machine.cpus());
        for device in machine.devices().iter().filter(|device| !device.cpus.is_empty()) {
            let near = |core: &Core| machine.cpus_of(&core.pus).intersects(&device.cpus);
            let count = machine.cores().iter().filter(|core| near(core)).count();
            for n in [1, count / 2, count, count + 1, count + 5] {
                let request = Request {
                    amount: Amount::Cores(u32::try_from(n).unwrap()),
                    near: Some(NearDevice {
                        name: device.name.clone(),
                        cpus: device.cpus.clone(),
                        each: Vec::new(),
                    }),
                    kind: KindChoice::Any,
                    ..Request::default()
                };
                let Ok(made) = plan(&machine, &request, &taken) else { continue };
                let inside = made.slots.iter().filter(|slot| near(machine.core(slot.core))).count();
                assert_eq!(inside, n.min(count), "{name}: {n} near {device:?}: {made:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 50 || captured().is_empty(), "{tried}");
}

/// On every machine with accelerators, each rank has as many cores near its own as any distribution
/// of equally many cores could give it: no two ranks would both gain by an exchange, and no free
/// core is nearer. On a machine with crossed numbers, rank by rank.
#[test]
fn ranks_get_the_cores_near_their_accelerators() {
    let mut tried = 0;
    for (name, machine) in captured() {
        let each = each_device(&machine, DeviceKind::Gpu);
        let dealt: Vec<DealtDevice> = (0..)
            .zip(&each)
            .map(|(index, (number, device))| DealtDevice {
                name: format!("gpu:{number}"),
                cpus: device.cpus.clone(),
                vendor: device.vendor,
                index,
            })
            .collect();
        if dealt.iter().all(|device| device.cpus.is_empty()) {
            continue;
        }
        let request = Request { kind: KindChoice::Any, smt: Smt::All, ..Request::default() };
        let whole = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        let counts = [2, 3, u32::try_from(dealt.len()).unwrap(), 16];
        // More ranks than cores share cores in turn.
        for of in counts.into_iter().filter(|&of| machine.cores().len() >= of as usize) {
            let parts: Vec<Plan> = (0..of).map(|rank| part(&machine, &whole, rank, of, &dealt)).collect();
            let near = |rank: usize| deal::near(deal::of_rank(&dealt, u32::try_from(rank).unwrap(), of));
            let union = parts.iter().fold(CpuSet::new(), |all, part| all.union(&part.mask));
            assert_eq!(union, whole.mask, "{name}: {of}");
            for (a, b) in (0..parts.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let gains = |own: usize, other: usize| {
                    parts[own].mask.difference(&near(own)).intersects(&near(other).difference(&near(own)))
                };
                assert!(!(gains(a, b) && gains(b, a)), "{name}: {of}: ranks {a} and {b}");
            }
            tried += 1;
        }
        if name == "eas-tioga" {
            for (rank, device) in (0..).zip(&dealt) {
                let own = part(&machine, &whole, rank, 8, &dealt);
                assert_eq!(own.mask, device.cpus, "rank {rank}");
            }
        }
    }
    assert!(tried > 8 || captured().is_empty(), "{tried}");
}

/// The node that a request for memory gets is one that has it, by trying every set of nodes.
#[test]
fn compact_lacks_the_least_memory_of_all_sets_of_as_many_nodes() {
    let mut compared = 0;
    for (at, (name, machine)) in captured().into_iter().chain(synthetic()).enumerate() {
        let with_cores: Vec<&Node> = machine.nodes().iter().filter(|node| !node.cores.is_empty()).collect();
        if with_cores.len() < 2 || with_cores.len() > 12 || machine.kinds().len() > 1 {
            continue;
        }
        let seed = u8::try_from(at + 50).unwrap();
        let free: BTreeMap<OsNode, u64> =
            with_cores.iter().map(|node| (node.os, 4 + mix(&[seed], node.os.0) % 60)).collect();
        let taken = Taken { free_memory: free.clone(), ..Taken::nothing(machine.cpus()) };
        // Amounts of a few bytes count as full for a machine that reports real ones.
        let mut parts = machine.parts().clone();
        parts.nodes.iter_mut().for_each(|node| node.bytes = Some(100));
        let machine = Machine::build(parts).unwrap();
        for n in [1, 2, 5, 13, 24, 40] {
            for size in [1, 30, 50, 70, 120] {
                let memory = MemoryRequest { size: Some(MemorySize(size)), ..MemoryRequest::default() };
                let request = Request { amount: Amount::Cores(n), memory, ..Request::default() };
                let Ok(made) = plan(&machine, &request, &taken) else { continue };
                if made.slots.iter().any(|slot| slot.node.is_none()) {
                    continue; // all cores with a node are used; nothing was chosen among nodes
                }
                let room = |nodes: &NodeSet| nodes.iter().map(|os| free[&os]).sum::<u64>();
                let best = (1u32..1 << with_cores.len())
                    .filter(|set| set.count_ones() as usize == made.nodes.len())
                    .map(|set| (0..with_cores.len()).filter(|at| set >> at & 1 == 1).collect::<Vec<_>>())
                    .filter(|set| {
                        set.iter().map(|&at| with_cores[at].cores.len()).sum::<usize>() >= n as usize
                    })
                    .map(|set| size.saturating_sub(room(&set.iter().map(|&at| with_cores[at].os).collect())))
                    .min();
                assert_eq!(Some(size.saturating_sub(room(&made.nodes))), best, "{name}: {n} cores, {size}");
                assert!(room(&made.memory.nodes) >= size, "{name}: {n} cores, {size}: {made:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

fn picture(machine: &Machine, request: &Request, taken: &Taken) -> String {
    match plan(machine, request, taken) {
        Ok(made) => format!(
            "{}\n{}",
            words(&made),
            draw::grid(machine, &Marks::around(machine, taken).with_plan(&made), 100)
        ),
        Err(error) => format!("refused: {error}\n"),
    }
}

fn words(plan: &Plan) -> String {
    let slots: Vec<String> = plan.slots.iter().map(|slot| slot.cpu.to_string()).collect();
    let reasons: Vec<String> = plan.reasons.iter().map(|reason| format!("  {reason}\n")).collect();
    format!("slots {}\n{}", slots.join(" "), reasons.concat())
}

#[test]
fn pictures_of_plans() {
    let machines: BTreeMap<String, Machine> = captured().into_iter().collect();
    let requests = [
        ("epyc-corona", "8", "compact"),
        ("epyc-corona", "8", "scatter"),
        ("epyc-corona-p2", "4xl3", "compact"),
        ("64amd64-4s2n4ca2co", "8", "stride:fpu"),
        ("64amd64-4s2n4ca2co", "2/node", "balanced"),
        ("20em64t-hybrid-1p6c2t+2ca4co1t", "6", "compact"),
        ("20em64t-hybrid-1p6c2t+2ca4co1t", "8", "compact"),
        ("nvidia-dgx-gb10", "auto", "compact"),
        ("knl-snc4-flat-hwloc1", "16", "stride:l2"),
        ("offline-cpu0-node0", "5", "compact"),
        ("28intel64-2p2g7c-CoDgroups.v1tov2", "14", "compact"),
        ("memorysidecaches", "2x5/node", "compact"),
    ];
    for (name, amount, strategy) in requests {
        let Some(machine) = machines.get(name) else { continue };
        let request = Request {
            amount: amount.parse().unwrap(),
            strategy: strategy.parse().unwrap(),
            ..Request::default()
        };
        let some_held: CpuSet = machine.cpus().iter().take(3).chain([OsCpu::from_index(9)]).collect();
        let taken = Taken { held: some_held.intersection(&machine.cpus()), ..Taken::nothing(machine.cpus()) };
        let title = format!("{name}-{amount}-{strategy}").replace(['/', ':', '%', '+', '.'], "_");
        insta::assert_snapshot!(title, picture(machine, &request, &taken));
    }
}
