//! Nodes with memory and without CPUs: found, distinguished from ordinary ones, and used only when
//! named.

use crate::found::covered;
use crate::memory::{assert_all_on, assert_dealt};
use crate::pages;
use crate::shape::{Shape, file, ordered, testbed};
use crate::util::{Sandbox, need};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn memory_only() -> Option<(Shape, Vec<u32>)> {
    let shape = Shape::here()?;
    let nodes = shape.memory_only();
    if nodes.is_empty() {
        crate::util::skip("this machine has no node with only memory");
        return None;
    }
    Some((shape, nodes))
}

/// Returns the bandwidth that the firmware reports from the nearest CPUs to a node, in MB/s.
fn bandwidth(node: u32) -> Option<u64> {
    file(&format!("/sys/devices/system/node/node{node}/access0/initiators/read_bandwidth")).parse().ok()
}

#[test]
fn their_kind_comes_from_the_firmware() {
    let (shape, nodes) = given!(memory_only());
    let sandbox = Sandbox::new();
    let said = sandbox.trimtab("topo --json --survey none").ends().ok();
    let topo: Value = serde_json::from_str(&said).unwrap();
    let machine = &topo["machine"];
    let ordinary = need!(
        shape.homes().into_iter().filter_map(bandwidth).max(),
        "this machine's firmware says nothing of bandwidths"
    );
    let mut tiers: BTreeMap<String, usize> = BTreeMap::new();
    for number in nodes {
        let all = machine["nodes"].as_array().unwrap();
        let node = all.iter().find(|node| node["os"] == number).unwrap();
        let promised = bandwidth(number).unwrap();
        let wanted = if promised >= 2 * ordinary { "hbm" } else { "other" };
        assert_eq!(node["tier"], wanted, "node {number}: {promised} MB/s, ordinary ones {ordinary}");
        *tiers.entry(wanted.to_owned()).or_default() += 1;
        // It is nearest to the CPUs of the node at the least distance.
        let near = shape.nodes_of(&covered(machine, node));
        let least = shape.homes().into_iter().map(|home| shape.distance(home, number)).min();
        assert!(near.iter().any(|&home| Some(shape.distance(home, number)) == least), "{number}: {near:?}");
        let text = sandbox.trimtab("topo").ends().ok();
        assert!(text.contains("no cores, nearest to node"), "{text}");
    }
    if let Ok(topology) = std::env::var("TRIMTAB_TESTBED") {
        let count = |tier: &str| tiers.get(tier).copied().unwrap_or_default();
        assert_eq!(count("other"), ordered(&topology, "mem", 0));
        assert_eq!(count("hbm"), ordered(&topology, "hbm", 0));
    }
}

#[test]
fn no_memory_comes_from_them_by_default() {
    let (shape, _) = given!(memory_only());
    let sandbox = Sandbox::new();
    let homes: BTreeSet<u32> = shape.homes().into_iter().collect();
    for policy in ["auto", "interleave", "bind"] {
        let seen = given!(pages::seen(sandbox.run(&format!("-c 100% --mem {policy}"))));
        assert_eq!(seen.policy.1, homes, "{policy}");
        assert!(seen.nodes().is_subset(&homes), "{policy}: {seen:?}");
    }
}

#[test]
fn they_hold_memory_bound_to_their_number() {
    let (shape, nodes) = given!(memory_only());
    let sandbox = Sandbox::new();
    let (home, away) = (shape.homes()[0], nodes[0]);
    for policy in ["bind", "preferred"] {
        let seen = given!(pages::seen(sandbox.run(&format!("-c 1 --mem {policy}:{away}"))));
        assert_all_on(&seen, policy, away);
    }
    let seen = given!(pages::seen(sandbox.run(&format!("-c 1 --mem interleave:{home},{away}"))));
    assert_dealt(&seen, &BTreeMap::from([(home, 1), (away, 1)]));
}

#[test]
fn fast_memory_is_had_by_name() {
    let (_, nodes) = given!(memory_only());
    let topology = given!(testbed());
    let sandbox = Sandbox::new();
    if ordered(&topology, "hbm", 0) == 0 {
        let refused = sandbox.run("-c 1 --mem preferred:hbm").arg("true").ends();
        refused.fails(125, &["this machine has no HBM node"]);
        return;
    }
    // Nodes with high bandwidth come last.
    let fast = *nodes.last().unwrap();
    for policy in ["bind", "preferred"] {
        let seen = given!(pages::seen(sandbox.run(&format!("-c 1 --mem {policy}:hbm"))));
        assert_all_on(&seen, policy, fast);
    }
}
