//! Tests of placement by memory and by devices.

use crate::check::{PlanFinding, check};
use crate::ids::OsNode;
use crate::place::*;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{CachePart, Level, Machine, MemorySpeed, parse_synthetic};

fn machine(text: &str) -> Machine {
    parse_synthetic(text).unwrap()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn ask(amount: &str, size: Option<&str>) -> Request {
    let size = size.map(|size| size.parse().unwrap());
    Request {
        amount: amount.parse().unwrap(),
        memory: MemoryRequest { size, ..MemoryRequest::default() },
        ..Request::default()
    }
}

/// Returns an occupancy with this free memory in GiB on the first nodes; `None` for a node that was
/// not examined.
fn with_free(machine: &Machine, gib: &[Option<u64>]) -> Taken {
    let free = (0..).map(OsNode).zip(gib).filter_map(|(node, gib)| Some((node, (*gib)? << 30)));
    Taken { free_memory: free.collect(), ..Taken::nothing(machine.cpus()) }
}

fn good(machine: &Machine, request: &Request, taken: &Taken) -> Plan {
    let plan = plan(machine, request, taken).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    assert_eq!(check(machine, request, taken, &plan), [], "{request:?}\n{plan:#?}");
    plan
}

fn reasons(plan: &Plan) -> String {
    plan.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_node_whose_memory_is_in_use_is_taken_last() {
    let machine = machine("numa:2(memory=64GB) core:4");
    let taken = with_free(&machine, &[Some(1), Some(60)]);
    for strategy in [Strategy::Compact, Strategy::Scatter, Strategy::Balanced] {
        let request = Request { strategy, ..ask("3", None) };
        let plan = good(&machine, &request, &taken);
        assert!(plan.mask.is_subset(&cpus("4-7")), "{strategy}: {}", plan.mask);
        assert!(reasons(&plan).contains("avoided CPUs 0-3: the memory of node 0 is in use"));
    }
    let more = good(&machine, &ask("5", None), &taken);
    assert_eq!((more.mask.to_string().as_str(), more.memory.nodes.to_string().as_str()), ("0,4-7", "1"));
    assert!(reasons(&more).contains("uses CPUs 0 although the memory of node 0 is in use"));
    // Two percent are enough to count as free, and if all nodes are full, they do not differ.
    let little = with_free(&machine, &[Some(2), Some(60)]);
    assert_eq!(good(&machine, &ask("3", None), &little).mask, cpus("0-2"));
    let none = good(&machine, &ask("3", None), &with_free(&machine, &[Some(0), Some(1)]));
    assert_eq!((none.mask, none.memory.nodes.to_string()), (cpus("0-2"), "0".to_owned()));
    // A node that the user names is used in any case.
    let mut named = ask("3", None);
    named.memory = "bind:0".parse().unwrap();
    assert_eq!(good(&machine, &named, &taken).memory.nodes.to_string(), "0");
}

#[test]
fn requested_memory_decides_between_nodes_and_adds_the_nearest() {
    let machine = machine("pack:2 numa:2(memory=64GB) core:4");
    let taken = with_free(&machine, &[Some(10), Some(30), Some(50), None]);
    for (size, mask, nodes, why) in [
        ("8G", "0-3", "0", "8 GiB of memory asked for: node 0 has 10 GiB"),
        ("20G", "4-7", "1", "node 1 has 30 GiB"),
        ("50G", "8-11", "2", "node 2 has 50 GiB"),
        ("60G", "12-15", "3", "node 3 has 64 GiB"),
        ("70G", "12-15", "2-3", "but node 3 has 64 GiB: node 2 is added, the nearest with more"),
        ("150G", "12-15", "0-3", "node 0-2 is added"),
    ] {
        let plan = good(&machine, &ask("4", Some(size)), &taken);
        assert_eq!((&plan.mask, plan.memory.nodes.to_string().as_str()), (&cpus(mask), nodes), "{size}");
        assert!(reasons(&plan).contains(why), "{size}: {}", reasons(&plan));
        let more =
            reasons(&plan).ends_with("the nodes of the cores chosen, and the nearest with more memory");
        assert_eq!(more, nodes.len() > 1, "{size}: {}", reasons(&plan));
    }
    // Two nodes in any case: the pair that has it.
    assert_eq!(good(&machine, &ask("8", Some("90G")), &taken).mask, cpus("8-15"));
    let error = plan(&machine, &ask("4", Some("155G")), &taken).unwrap_err();
    assert_eq!(
        error.to_string(),
        "155 GiB of memory asked for (--mem-size), 154 GiB can be had now on nodes 0-3; ask for less, name other nodes with --mem, or try again when other programs have ended"
    );
    assert!(!error.passes());
}

#[test]
fn named_nodes_are_not_extended_and_memory_only_nodes_not_added() {
    let machine = machine("numa:2(memory=64GB) [numa(memory=16GB tier=hbm)] core:4");
    let free = Taken::nothing(machine.cpus());
    let with = |mem: &str, size: &str| {
        let mut request = ask("2", Some(size));
        request.memory = MemoryRequest { size: request.memory.size, ..mem.parse().unwrap() };
        plan(&machine, &request, &free)
    };
    let hbm = with("preferred:hbm", "16G").unwrap();
    assert_eq!(hbm.memory.nodes.to_string(), "2");
    assert!(matches!(with("preferred:hbm", "17G"), Err(PlaceError::NoRoom { .. })));
    assert!(matches!(with("bind:1", "65G"), Err(PlaceError::NoRoom { .. })));
    assert_eq!(with("bind", "100G").unwrap().memory.nodes.to_string(), "0-1");
    assert!(matches!(with("auto", "129G"), Err(PlaceError::NoRoom { .. })));
    assert!(with("none", "128G").unwrap().memory.nodes.is_empty());
}

#[test]
fn an_unknown_amount_of_memory_is_not_taken_for_none() {
    let machine = machine("numa:2 core:4");
    let plan = good(&machine, &ask("4", Some("1T")), &Taken::nothing(machine.cpus()));
    assert_eq!(plan.memory.nodes.to_string(), "0");
    assert!(reasons(&plan).contains("the amount that is available is not known"));
}

/// Four nodes with distances of a ring of dies; the first and third have no memory, and only the
/// fourth is near the third.
fn ring() -> Machine {
    let mut parts = machine("numa:4(memory=8GB) core:2").parts().clone();
    parts.nodes[0].bytes = Some(0);
    parts.nodes[2].bytes = Some(0);
    parts.distances = vec![10, 28, 16, 28, 28, 10, 28, 16, 16, 28, 10, 14, 28, 16, 14, 10];
    Machine::build(parts).unwrap()
}

#[test]
fn of_the_cores_without_memory_the_nearest_to_some_are_taken() {
    let machine = ring();
    let free = Taken::nothing(machine.cpus());
    assert_eq!(good(&machine, &ask("4", None), &free).mask, cpus("2-3,6-7"));
    assert_eq!(good(&machine, &ask("5", None), &free).mask, cpus("2-4,6-7"));
    let only = Request { cpus: Some(cpus("0-1,4-5")), ..ask("2", None) };
    assert_eq!(good(&machine, &only, &free).mask, cpus("4-5"));
}

#[test]
fn cores_near_a_device_come_first_and_then_the_nearest_to_it() {
    let machine = ring();
    let free = Taken::nothing(machine.cpus());
    let near = |at: &str, amount: &str| {
        let device = NearDevice { name: "nic:eth0".to_owned(), cpus: cpus(at), each: Vec::new() };
        good(&machine, &Request { near: Some(device), ..ask(amount, None) }, &free)
    };
    let two = near("4-5", "2");
    assert_eq!(two.mask, cpus("4-5"));
    assert!(reasons(&two).contains("all near nic:eth0"));
    let three = near("4-5", "3");
    assert_eq!(three.mask, cpus("4-6"));
    assert!(reasons(&three).contains("CPUs 6 are not near nic:eth0: the cores near it do not suffice"));
    // A device without a place changes nothing.
    assert_eq!(near("", "2").mask, cpus("2-3"));
}

#[test]
fn the_checker_rejects_plans_that_ignore_memory_and_devices() {
    let machine = machine("numa:2(memory=64GB) core:4");
    let free = Taken::nothing(machine.cpus());
    let plain = plan(&machine, &ask("2", None), &free).unwrap();
    assert_eq!(plain.mask, cpus("0-1"));
    let full = with_free(&machine, &[Some(0), Some(60)]);
    let findings = check(&machine, &ask("2", None), &full, &plain);
    assert!(matches!(findings[..], [PlanFinding::NoLocalMemory { .. }]), "{findings:?}");
    let tight = with_free(&machine, &[Some(10), Some(60)]);
    let sized = ask("2", Some("20G"));
    let findings = check(&machine, &sized, &tight, &plain);
    assert!(matches!(findings[..], [PlanFinding::NoRoom { asked, .. }] if asked == 20 << 30), "{findings:?}");
    let both = Plan {
        memory: MemoryPlan { policy: MemoryPolicy::PreferredMany, nodes: "0-1".parse::<NodeSet>().unwrap() },
        ..plain.clone()
    };
    let findings = check(&machine, &sized, &tight, &both);
    assert!(matches!(&findings[..], [PlanFinding::RoomElsewhere { other: OsNode(1), .. }]), "{findings:?}");
    let device = NearDevice { name: "gpu:0".to_owned(), cpus: cpus("4-7"), each: Vec::new() };
    let near = Request { near: Some(device), ..ask("2", None) };
    let findings = check(&machine, &near, &free, &plain);
    assert!(matches!(findings[..], [PlanFinding::FarFromDevice { .. }]), "{findings:?}");
    // Nothing better was free.
    let held = Taken { held: cpus("4-7"), ..free };
    assert_eq!(check(&machine, &near, &held, &plain), []);
}

#[test]
fn memory_that_others_hold_is_not_planned_again() {
    let machine = machine("pack:2 numa:1(memory=64GB) core:4");
    let gib = |gib: &[(u32, u64)]| gib.iter().map(|&(node, gib)| (OsNode(node), gib << 30)).collect();
    let taken = Taken { held_memory: gib(&[(0, 48)]), ..with_free(&machine, &[Some(60), Some(60)]) };
    let plan = good(&machine, &ask("4", Some("40G")), &taken);
    assert_eq!((&plan.mask, plan.memory.nodes.to_string().as_str()), (&cpus("4-7"), "1"));
    assert_eq!(plan.memory_hold, [NodeMemory { node: OsNode(1), bytes: 40 << 30 }]);
    assert!(
        reasons(&plan).contains("others hold memory that they do not use yet: 48 GiB on node 0 (trimtab ps)"),
        "{}",
        reasons(&plan)
    );
    // Without an amount, the hold matters only if it leaves nothing.
    assert_eq!(good(&machine, &ask("4", None), &taken).mask, cpus("0-3"));
    let all = Taken { held_memory: gib(&[(0, 64)]), ..taken.clone() };
    assert_eq!(good(&machine, &ask("4", None), &all).mask, cpus("4-7"));

    let refused =
        |size: &str, taken: &Taken| super::plan(&machine, &ask("4", Some(size)), taken).unwrap_err();
    let error = refused("80G", &taken);
    assert!(error.passes(), "others end");
    assert_eq!(
        error.to_string(),
        "80 GiB of memory asked for (--mem-size), 72 GiB can be had now on nodes 0-1, and others hold 48 GiB there that they do not use yet (see trimtab ps); wait with --wait, ask for less, or name other nodes with --mem"
    );
    assert!(!refused("121G", &taken).passes(), "no end of a hold suffices");
    // More is held than there is: nothing can be had, and nothing is subtracted twice.
    let more = Taken { held_memory: gib(&[(0, 100), (1, 100)]), ..taken };
    assert!(
        refused("1G", &more).to_string().contains("0 B can be had now on nodes 0-1, and others hold 120 GiB")
    );
}

#[test]
fn a_run_holds_the_memory_that_it_asked_for() {
    let machine = machine("pack:2 numa:2(memory=64GB) core:4");
    let taken = with_free(&machine, &[Some(10), Some(30), Some(50), None]);
    let held = |amount: &str, size: &str, mem: &str| {
        let mut request = ask(amount, Some(size));
        request.memory = MemoryRequest { size: request.memory.size, ..mem.parse().unwrap() };
        let plan = good(&machine, &request, &taken);
        plan.memory_hold.iter().map(|memory| (memory.node.0, memory.bytes >> 30)).collect::<Vec<_>>()
    };
    assert_eq!(held("4", "20G", "auto"), [(1, 20)]);
    // The node of the cores is full before the kernel takes another one.
    assert_eq!(held("4", "70G", "auto"), [(2, 6), (3, 64)]);
    assert_eq!(held("8", "90G", "auto"), [(2, 45), (3, 45)]);
    assert_eq!(held("4", "40G", "interleave:0,1"), [(0, 10), (1, 30)]);
    assert_eq!(held("4", "70G", "interleave"), [(2, 35), (3, 35)]);
    assert_eq!(held("4", "20G", "none"), [(1, 20)]);
    assert_eq!(good(&machine, &ask("4", None), &taken).memory_hold, []);
    // One node: no policy is set, and the memory is held nevertheless.
    let one = super::machine("core:4");
    let plan = good(&one, &ask("2", Some("1G")), &Taken::nothing(one.cpus()));
    assert_eq!(plan.memory.policy, MemoryPolicy::None);
}

/// Two packages with two nodes each, of which each has another speed.
fn unequal_speeds(change: &dyn Fn(&mut Vec<MemorySpeed>)) -> Machine {
    let mut parts = machine("pack:2 numa:2(memory=64GB) l3:2 core:4").parts().clone();
    let speed = |(node, bandwidth, latency)| MemorySpeed {
        node: OsNode(node),
        bandwidth: Some(bandwidth),
        latency: Some(latency),
    };
    parts.memory_speeds = [(0, 100, 90), (1, 200, 90), (2, 200, 80), (3, 200, 85)].map(speed).to_vec();
    change(&mut parts.memory_speeds);
    Machine::build(parts).unwrap()
}

#[test]
fn of_equally_good_nodes_the_one_with_the_fastest_memory_is_taken() {
    let machine = unequal_speeds(&|_| {});
    let free = Taken::nothing(machine.cpus());
    assert_eq!(good(&machine, &ask("4", None), &free).mask, cpus("16-19"));
    // Fewer caches and a shorter way come before speed, and so does a free core.
    let held = |list: &str| Taken { held: cpus(list), ..free.clone() };
    assert_eq!(good(&machine, &ask("4", None), &held("16,20,24,28")).mask, cpus("8-11"));
    assert_eq!(good(&machine, &ask("16", None), &free).mask, cpus("16-31"));
    let busy = |list: &str| cpus(list).iter().map(|cpu| (cpu, 900)).collect();
    let some_busy = Taken { busy: busy("16-23"), ..free.clone() };
    assert_eq!(good(&machine, &ask("4", None), &some_busy).mask, cpus("24-27"));
    // The checker sees a node that is slower for no reason.
    let slow = Request { cpus: Some(cpus("0-3")), ..ask("4", None) };
    let plan = good(&machine, &slow, &free);
    let findings = check(&machine, &ask("4", None), &free, &plan);
    assert!(
        matches!(findings[..], [PlanFinding::SlowerMemory { node: OsNode(0), other: OsNode(1) }]),
        "{findings:?}"
    );
}

#[test]
fn a_speed_that_is_not_known_is_not_zero() {
    // Without the speed of one node, or with a zero in its place, nodes do not differ.
    for change in [
        &(|speeds: &mut Vec<MemorySpeed>| speeds.truncate(3)) as &dyn Fn(&mut Vec<MemorySpeed>),
        &|speeds| speeds.clear(),
        &|speeds| speeds[3].bandwidth = None,
        &|speeds| speeds[3].bandwidth = Some(0),
    ] {
        let machine = unequal_speeds(&|speeds| {
            change(speeds);
            speeds.iter_mut().for_each(|speed| speed.latency = None);
        });
        let free = Taken::nothing(machine.cpus());
        assert_eq!(good(&machine, &ask("4", None), &free).mask, cpus("0-3"));
    }
    // Latencies count where only bandwidths are missing.
    let machine = unequal_speeds(&|speeds| speeds[0].bandwidth = None);
    assert_eq!(good(&machine, &ask("4", None), &Taken::nothing(machine.cpus())).mask, cpus("16-19"));
}

/// A processor with two dies of eight cores, of which the second has a stacked cache.
fn stacked() -> Machine {
    let mut parts = machine("pack:1 numa:1(memory=64GB) l3:2 core:8 pu:2").parts().clone();
    let cache =
        |first, mebibytes: u64| CachePart { level: Level::L3, first, count: 16, bytes: mebibytes << 20 };
    parts.caches = vec![cache(0, 32), cache(16, 96)];
    Machine::build(parts).unwrap()
}

#[test]
fn cores_below_the_largest_cache_can_be_asked_for() {
    let machine = stacked();
    let free = Taken::nothing(machine.cpus());
    let largest = |amount: &str| Request { kind: KindChoice::LargestCache, ..ask(amount, None) };
    assert_eq!(machine.largest_cache(), Some(cpus("16-31")));
    // Without the option, the first die is as good as the other.
    assert!(good(&machine, &ask("8", None), &free).mask.is_subset(&cpus("0-15")));
    let plan = good(&machine, &largest("8"), &free);
    assert!(plan.mask.is_subset(&cpus("16-31")) && plan.slots.len() == 8, "{}", plan.mask);
    assert!(
        reasons(&plan)
            .contains("only cores with the largest last-level cache, 96 MiB: 8 cores have a smaller one"),
        "{}",
        reasons(&plan)
    );
    assert_eq!(good(&machine, &largest("auto"), &free).slots.len(), 8);
    assert_eq!(good(&machine, &largest("50%"), &free).slots.len(), 4);
    let error = super::plan(&machine, &largest("9"), &free).unwrap_err().to_string();
    assert!(error.starts_with("9 cores asked for, but only 8 cores may be used here"), "{error}");
    let named = Request { cpus: Some(cpus("0-3")), ..largest("2") };
    let error = super::plan(&machine, &named, &free).unwrap_err().to_string();
    assert!(error.contains("CPUs 16-31 have the largest last-level cache, and --cpus names none"), "{error}");
    // The checker sees cores with the smaller one.
    let small = good(&machine, &ask("4", None), &free);
    let findings = check(&machine, &largest("4"), &free, &small);
    assert!(findings.iter().any(|finding| matches!(finding, PlanFinding::SmallerCache(_))), "{findings:?}");
}

#[test]
fn caches_of_unknown_size_are_not_taken_for_small_ones() {
    let largest = |machine: &Machine| {
        let request = Request { kind: KindChoice::LargestCache, ..ask("4", None) };
        super::plan(machine, &request, &Taken::nothing(machine.cpus()))
    };
    let mut parts = stacked().parts().clone();
    parts.caches.pop();
    let error = largest(&Machine::build(parts).unwrap()).unwrap_err();
    assert_eq!(error, PlaceError::CachesUnknown);
    assert!(error.to_string().contains("the sizes of the last-level caches are not known here"));
    // Equal caches exclude nothing.
    let mut parts = stacked().parts().clone();
    parts.caches[0].bytes = parts.caches[1].bytes;
    let plan = largest(&Machine::build(parts).unwrap()).unwrap();
    assert!(
        reasons(&plan).contains("all last-level caches have the same size, 96 MiB"),
        "{}",
        reasons(&plan)
    );
}
