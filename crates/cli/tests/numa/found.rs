//! Nodes, caches, cores and distances that trimtab finds, compared with those that the kernel
//! reports.

use crate::shape::{Cpus, Shape, file, ordered, testbed};
use crate::util::{Sandbox, cpus, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The machine, read once for all tests.
fn topo(sandbox: &Sandbox) -> &'static Value {
    static FOUND: OnceLock<Value> = OnceLock::new();
    FOUND.get_or_init(|| {
        let said = sandbox.trimtab("topo --json --survey none").ends().ok();
        let topo: Value = serde_json::from_str(&said).unwrap();
        topo["machine"].clone()
    })
}

/// Returns the CPUs of a range of PUs.
pub(crate) fn covered(machine: &Value, part: &Value) -> Cpus {
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let (first, count) = (number(&part["first"]), number(&part["count"]));
    let pus = &machine["pus"].as_array().unwrap()[first..first + count];
    pus.iter().map(|pu| u32::try_from(pu.as_u64().unwrap()).unwrap()).collect()
}

fn domains(machine: &Value, level: &str) -> BTreeSet<Cpus> {
    let all = machine["domains"].as_array().unwrap().iter();
    all.filter(|domain| domain["level"] == level).map(|domain| covered(machine, domain)).collect()
}

/// Without this test, the others could all pass on a machine that is simpler than the intended one.
#[test]
fn the_guest_has_the_requested_topology() {
    let topology = given!(testbed());
    let shape = given!(Shape::here());
    let homes = ordered(&topology, "n", 1);
    let caches = ordered(&topology, "d", 1);
    let cores = ordered(&topology, "c", 1);
    let threads = ordered(&topology, "t", 1);
    assert_eq!(shape.homes().len(), homes, "nodes with CPUs");
    assert_eq!(
        shape.memory_only().len(),
        ordered(&topology, "mem", 0) + ordered(&topology, "hbm", 0),
        "nodes with memory only"
    );
    assert_eq!(shape.caches.len(), homes * caches, "last-level caches");
    assert_eq!(shape.cores.len(), homes * caches * cores, "cores");
    assert_eq!(shape.cpus().len(), homes * caches * cores * threads, "CPUs");
}

#[test]
fn nodes_are_the_kernels() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let machine = topo(&sandbox);
    let nodes = machine["nodes"].as_array().unwrap();
    let numbers: Vec<u64> = nodes.iter().map(|node| node["os"].as_u64().unwrap()).collect();
    assert_eq!(numbers, shape.nodes.keys().map(|&number| u64::from(number)).collect::<Vec<_>>());
    for (node, (number, wanted)) in nodes.iter().zip(&shape.nodes) {
        assert_eq!(node["has_cpus"], !wanted.cpus.is_empty(), "node {number}");
        assert_eq!(node["bytes"], wanted.kib * 1024, "node {number}");
        if !wanted.cpus.is_empty() {
            assert_eq!(covered(machine, node), wanted.cpus, "node {number}");
            assert_eq!(node["tier"], "dram", "node {number}");
        }
    }
}

#[test]
fn distances_are_the_kernels() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let machine = topo(&sandbox);
    let found: Vec<u64> =
        machine["distances"].as_array().unwrap().iter().map(|way| way.as_u64().unwrap()).collect();
    let wanted: Vec<u64> =
        shape.nodes.values().flat_map(|node| node.distances.iter().map(|&way| u64::from(way))).collect();
    assert_eq!(found, wanted);
}

#[test]
fn cores_and_caches_are_the_kernels() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let machine = topo(&sandbox);
    assert_eq!(domains(machine, "core"), shape.cores);
    assert_eq!(domains(machine, "l3"), shape.caches);
}

#[test]
fn doctor_sees_that_the_kernel_moves_pages() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let said = sandbox.trimtab("doctor").ends().out();
    assert!(said.contains(&format!("{} NUMA nodes", shape.nodes.len())), "{said}");
    match file("/proc/sys/kernel/numa_balancing").as_str() {
        "0" => assert!(
            said.contains("note  NUMA balancing: off") && said.contains("nothing brings memory to threads"),
            "{said}"
        ),
        "" => skip("this kernel balances no pages"),
        mode => assert!(
            said.contains(&format!("ok    NUMA balancing: on (mode {mode})")) && !said.contains("FAULT NUMA"),
            "{said}"
        ),
    }
}

#[test]
fn a_plan_says_which_nodes_it_is_on() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    for node in shape.homes() {
        let cpu = shape.of_node(node).pop_last().unwrap();
        let plan = &sandbox.plan(&format!("--cpus {cpu}"))["plan"];
        assert_eq!(plan["nodes"], node.to_string());
        assert_eq!(plan["slots"][0]["node"], node);
    }
    let all = sandbox.plan("-c 100%");
    assert_eq!(cpus(all["plan"]["nodes"].as_str().unwrap()), shape.homes().into_iter().collect());
}
