//! Tests of placement by memory and by devices.

use crate::check::{PlanFinding, check};
use crate::ids::OsNode;
use crate::place::*;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Machine, parse_synthetic};

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
        let device = NearDevice { name: "nic:eth0".to_owned(), cpus: cpus(at) };
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
    let device = NearDevice { name: "gpu:0".to_owned(), cpus: cpus("4-7") };
    let near = Request { near: Some(device), ..ask("2", None) };
    let findings = check(&machine, &near, &free, &plain);
    assert!(matches!(findings[..], [PlanFinding::FarFromDevice { .. }]), "{findings:?}");
    // Nothing better was free.
    let held = Taken { held: cpus("4-7"), ..free };
    assert_eq!(check(&machine, &near, &held, &plain), []);
}
