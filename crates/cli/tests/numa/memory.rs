//! `--mem`: the policy in the program, and the nodes that the pages it touches really come from.

use crate::pages::{self, PAGES_TOUCHED, Seen};
use crate::shape::{Shape, testbed};
use crate::util::{Sandbox, need};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Pages of page tables and the like, which come by the same policy and shift the round.
const OTHER_PAGES_MAX: u32 = 6;

/// Asserts that the pages came from these nodes in this proportion.
#[track_caller]
pub(crate) fn assert_dealt(seen: &Seen, weights: &BTreeMap<u32, u32>) {
    let sum: u32 = weights.values().sum();
    assert_eq!(seen.nodes(), weights.keys().copied().collect(), "{seen:?}");
    for (node, weight) in weights {
        let (got, wanted) = (seen.pages[node], PAGES_TOUCHED * weight / sum);
        assert!(
            got.abs_diff(wanted) <= OTHER_PAGES_MAX,
            "node {node} gave {got} pages, not {wanted}: {seen:?}"
        );
    }
}

fn evenly(nodes: impl IntoIterator<Item = u32>) -> BTreeMap<u32, u32> {
    nodes.into_iter().map(|node| (node, 1)).collect()
}

/// Asserts that the policy is this one, and that all pages came from one node.
#[track_caller]
pub(crate) fn assert_all_on(seen: &Seen, policy: &str, node: u32) {
    assert_eq!(seen.policy, (policy.to_owned(), BTreeSet::from([node])), "{seen:?}");
    assert_eq!(seen.pages, BTreeMap::from([(node, PAGES_TOUCHED)]), "{seen:?}");
}

#[test]
fn memory_comes_from_the_node_of_the_cores() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    for node in shape.homes() {
        let cpu = shape.of_node(node).pop_first().unwrap();
        let seen = given!(pages::seen(sandbox.run(&format!("--cpus {cpu}"))));
        assert_eq!(seen.mask, BTreeSet::from([cpu]));
        assert_all_on(&seen, "preferred", node);
    }
}

#[test]
fn a_run_over_all_nodes_prefers_them_all() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let seen = given!(pages::seen(sandbox.run("-c 100%")));
    let homes: BTreeSet<u32> = shape.homes().into_iter().collect();
    assert_eq!(seen.policy, ("preferred-many".to_owned(), homes.clone()), "{seen:?}");
    assert!(seen.nodes().is_subset(&homes), "{seen:?}");
}

#[test]
fn local_is_where_it_is_touched() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let node = *shape.homes().last().unwrap();
    let cpu = shape.of_node(node).pop_last().unwrap();
    let seen = given!(pages::seen(sandbox.run(&format!("--cpus {cpu} --mem local"))));
    assert_eq!(seen.policy, ("local".to_owned(), BTreeSet::new()));
    assert_eq!(seen.pages, BTreeMap::from([(node, PAGES_TOUCHED)]));
}

#[test]
fn every_thread_touches_memory_of_its_own_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let count = shape.homes().len();
    for policy in ["auto", "local"] {
        let call = sandbox.run(&format!("-c 2/node -s scatter --mem {policy}"));
        for thread in given!(pages::threads(call, 2 * count)) {
            assert_eq!(thread.nodes, BTreeSet::from([shape.node_of(thread.cpu)]), "{policy}: {thread:?}");
        }
    }
}

#[test]
fn bound_and_interleaved_memory_comes_from_the_plans_nodes() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes: BTreeSet<u32> = shape.homes().into_iter().collect();
    let seen = given!(pages::seen(sandbox.run("-c 1/node --mem interleave")));
    assert_eq!(seen.policy, ("interleave".to_owned(), homes.clone()), "{seen:?}");
    assert_dealt(&seen, &evenly(homes.clone()));
    let seen = given!(pages::seen(sandbox.run("-c 1/node --mem bind")));
    assert_eq!(seen.policy, ("bind".to_owned(), homes.clone()), "{seen:?}");
    assert!(seen.nodes().is_subset(&homes), "{seen:?}");
    let node = shape.homes()[1];
    let cpu = shape.of_node(node).pop_first().unwrap();
    let seen = given!(pages::seen(sandbox.run(&format!("--cpus {cpu} --mem bind"))));
    assert_all_on(&seen, "bind", node);
}

#[test]
fn named_nodes_need_not_be_those_of_the_cores() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let (home, away) = (shape.homes()[0], shape.homes()[1]);
    let cpu = shape.of_node(home).pop_first().unwrap();
    for policy in ["bind", "preferred"] {
        let call = sandbox.run(&format!("--cpus {cpu} --mem {policy}:{away}"));
        let seen = given!(pages::seen(call));
        assert_eq!(seen.mask, BTreeSet::from([cpu]));
        assert_all_on(&seen, policy, away);
    }
    let seen = given!(pages::seen(sandbox.run(&format!("--cpus {cpu} --mem interleave:{home},{away}"))));
    assert_dealt(&seen, &evenly([home, away]));
}

#[test]
fn none_leaves_things_alone() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let node = shape.homes()[1];
    let cpu = shape.of_node(node).pop_first().unwrap();
    let seen = given!(pages::seen(sandbox.run(&format!("--cpus {cpu} --mem none"))));
    assert_eq!(seen.policy, ("default".to_owned(), BTreeSet::new()));
    // An inherited policy too.
    let numactl = need!(crate::util::installed("numactl"), "numactl is not installed");
    let call = sandbox.run(&format!("--cpus {cpu} --mem none"));
    let through = [numactl.display().to_string(), format!("--membind={}", shape.homes()[0])];
    let seen = given!(pages::seen(call.through(through)));
    assert_all_on(&seen, "bind", shape.homes()[0]);
}

#[test]
fn weighted_memory_follows_the_systems_weights_where_the_kernel_has_any() {
    let shape = given!(Shape::here());
    given!(testbed());
    let folder = "/sys/kernel/mm/mempolicy/weighted_interleave";
    let sandbox = Sandbox::new();
    let (home, away) = (shape.homes()[0], shape.homes()[1]);
    if fs::metadata(folder).is_err() {
        let call = sandbox.run(&format!("-c 1 --mem weighted:{home},{away}"));
        let call = call.arg(given!(pages::program())).arg(PAGES_TOUCHED.to_string());
        let said = call.ends().warns(&["weighted refused: needs Linux 6.9", "interleave on node"]);
        return assert_dealt(&pages::parse(&said), &evenly([home, away]));
    }
    for weights in [[3, 1], [1, 4]] {
        for (node, weight) in [home, away].into_iter().zip(weights) {
            fs::write(format!("{folder}/node{node}"), weight.to_string()).unwrap();
        }
        let call = sandbox.run(&format!("-c 1 --mem weighted:{home},{away}"));
        let seen = given!(pages::seen(call));
        assert_eq!(seen.policy.0, "weighted", "{seen:?}");
        assert_dealt(&seen, &[home, away].into_iter().zip(weights).collect());
    }
}

#[test]
fn a_node_that_does_not_exist_is_refused() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let none = shape.nodes.keys().last().unwrap() + 1;
    let refused = sandbox.run(&format!("-c 1 --mem bind:{none}")).arg("true").ends();
    refused.fails(125, &[&format!("memory nodes {none} do not exist"), "usable"]);
}

#[test]
fn full_nodes_spill_over_when_preferred_and_fail_when_bound() {
    let shape = given!(Shape::here());
    given!(testbed());
    let program = given!(pages::program());
    let sandbox = Sandbox::alone();
    let (home, away) = (shape.homes()[0], shape.homes()[1]);
    let cpu = shape.of_node(home).pop_first().unwrap();
    // More pages than the node has, and fewer than the node and its neighbour have together.
    let count = (shape.nodes[&away].kib / 4 + 4096).to_string();
    let run = |policy: &str| {
        let call = sandbox.run(&format!("--cpus {cpu} --mem {policy}:{away}"));
        call.arg(&program).arg(&count).ends()
    };
    let seen = pages::parse(&run("preferred").ok());
    assert!(seen.pages.len() > 1 && seen.pages.contains_key(&away), "{seen:?}");
    let bound = run("bind");
    assert!(bound.code != Some(0), "more pages than the node has came from it: {bound}");
}
