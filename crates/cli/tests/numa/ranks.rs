//! Ranks of an MPI job on a machine of several nodes: one node per rank if there are enough, with
//! its memory.

use crate::pages;
use crate::shape::{Cpus, Shape};
use crate::util::{Sandbox, installed, need};
use std::collections::BTreeSet;

/// Asserts that each rank got its own node, and memory there.
#[track_caller]
fn assert_a_node_each(shape: &Shape, said: &str, saids: usize) {
    let ranks: Vec<_> =
        said.split("mask ").skip(1).map(|rank| pages::parse(&format!("mask {rank}"))).collect();
    assert_eq!(ranks.len(), saids, "{said}");
    let masks: BTreeSet<Cpus> = ranks.iter().map(|rank| rank.mask.clone()).collect();
    let nodes: BTreeSet<Cpus> = shape.homes().into_iter().map(|node| shape.of_node(node)).collect();
    assert_eq!(masks, nodes, "{said}");
    for rank in ranks {
        let own = shape.nodes_of(&rank.mask);
        assert_eq!((&rank.policy.1, &rank.nodes()), (&own, &own), "{rank:?}");
    }
}

#[test]
fn ranks_get_a_node_each() {
    let shape = given!(Shape::here());
    let program = given!(pages::program());
    let sandbox = Sandbox::new();
    let count = shape.homes().len();
    // Variables as Hydra sets them; all live at once, as ranks do.
    let runs: Vec<_> = (0..count)
        .map(|rank| {
            let call = sandbox.run(&format!("-c {}", shape.cores.len()));
            let call = call.env("MPI_LOCALRANKID", rank.to_string());
            let call = call.env("MPI_LOCALNRANKS", count.to_string());
            let script = "\"$1\" 64; exec cat";
            call.args(["sh", "-c", script, "sh"]).arg(&program).begins()
        })
        .collect();
    let said: Vec<String> = runs
        .into_iter()
        .map(|mut run| {
            run.lines(3);
            run
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|run| run.ends().ok())
        .collect();
    assert_a_node_each(&shape, &said.join("\n"), count);
    sandbox.until_free();
}

#[test]
fn ranks_of_mpich_get_a_node_each() {
    let shape = given!(Shape::here());
    let program = given!(pages::program());
    let mpiexec =
        need!(installed("mpiexec.mpich").or_else(|| installed("mpiexec.hydra")), "MPICH is not installed");
    let sandbox = Sandbox::new();
    let count = shape.homes().len().to_string();
    // The output of a rank is written in one piece.
    let script = r#"said=$("$1" 64); echo "$said""#;
    let call = sandbox.run("-c 100%").args(["sh", "-c", script, "sh"]).arg(&program);
    let said = call.through([mpiexec.to_str().unwrap(), "-n", &count]).ends().ok();
    assert_a_node_each(&shape, &said, shape.homes().len());
    sandbox.until_free();
}

#[test]
fn ranks_of_mpich_inside_a_hold_are_bound_by_the_cores_of_the_hold() {
    let shape = given!(Shape::here());
    let mpiexec =
        need!(installed("mpiexec.mpich").or_else(|| installed("mpiexec.hydra")), "MPICH is not installed");
    let sandbox = Sandbox::new();
    // The last core of each node: Hydra would begin with the first core of the machine.
    let held: Vec<u32> =
        shape.homes().into_iter().filter_map(|node| shape.of_node(node).last().copied()).collect();
    let list: Vec<String> = held.iter().map(ToString::to_string).collect();
    let count = held.len().to_string();
    let mask = "while read -r key list; do case $key in Cpus_allowed_list:) echo \"$list\";; esac; done </proc/self/status";
    let call = sandbox.run(&format!("-q --cpus {}", list.join(",")));
    let call = call.args([mpiexec.to_str().unwrap(), "-n", &count, "-bind-to", "core", "sh", "-c", mask]);
    let said = call.ends().ok();
    let masks: BTreeSet<u32> = said.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(masks, held.into_iter().collect(), "{said}");
    sandbox.until_free();
}
