//! CPUs of a program, as the program itself reports them: whole nodes, near nodes, threads placed
//! round-robin.

use crate::pages::{self, Thread};
use crate::shape::{Cpus, Shape};
use crate::util::{MASK, Sandbox, c, cpus, need};
use std::collections::BTreeSet;

/// Returns the mask of a program that is run with these options.
#[track_caller]
pub(crate) fn mask(sandbox: &Sandbox, options: &str) -> Cpus {
    cpus(&sandbox.run(options).sh(MASK).ends().ok())
}

/// Returns the CPUs that the threads of one OpenMP team are bound to, in order; each thread must
/// have its own.
#[track_caller]
pub(crate) fn bound(threads: &[Thread]) -> Vec<u32> {
    let cpus: Vec<u32> = threads.iter().map(|thread| thread.cpu).collect();
    for thread in threads {
        assert_eq!(thread.mask, BTreeSet::from([thread.cpu]), "not bound to one CPU: {threads:?}");
    }
    assert_eq!(cpus.iter().collect::<BTreeSet<_>>().len(), cpus.len(), "two on one CPU: {threads:?}");
    cpus
}

#[test]
fn a_node_is_a_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let mask = mask(&sandbox, "-c node");
    let nodes = shape.nodes_of(&mask);
    assert_eq!(nodes.len(), 1, "{mask:?}");
    assert_eq!(mask, shape.of_node(*nodes.first().unwrap()));
}

#[test]
fn a_request_that_fits_into_a_node_stays_in_one() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    for count in [1, shape.cores_of_largest()] {
        let mask = mask(&sandbox, &format!("-c {count}"));
        assert_eq!((mask.len(), shape.nodes_of(&mask).len()), (count, 1), "{mask:?}");
    }
}

#[test]
fn a_request_for_two_nodes_gets_near_ones() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    let ways = homes.iter().flat_map(|&from| homes.iter().map(move |&to| (from, to)));
    let nearest = ways.filter(|(from, to)| from != to).map(|(from, to)| shape.distance(from, to)).min();
    for count in [shape.cores_of_largest() + 1, 2 * shape.cores_of_largest()] {
        let mask = mask(&sandbox, &format!("-c {count}"));
        let nodes: Vec<u32> = shape.nodes_of(&mask).into_iter().collect();
        assert_eq!((mask.len(), nodes.len()), (count, 2), "{mask:?}");
        assert_eq!(Some(shape.distance(nodes[0], nodes[1])), nearest, "{mask:?}");
    }
}

#[test]
fn so_many_on_every_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    for strategy in ["compact", "scatter", "balanced"] {
        let mask = mask(&sandbox, &format!("-c 2/node -s {strategy}"));
        for node in shape.homes() {
            let here = mask.intersection(&shape.of_node(node)).count();
            assert_eq!(here, 2, "{strategy}: {mask:?} has not two of node {node}");
        }
    }
}

#[test]
fn scattered_threads_are_dealt_round_the_nodes() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let count = shape.homes().len();
    let threads = given!(pages::threads(sandbox.run("-c 2/node -s scatter"), 2 * count));
    let nodes: Vec<u32> = bound(&threads).into_iter().map(|cpu| shape.node_of(cpu)).collect();
    for round in nodes.chunks(count) {
        assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), shape.homes().into_iter().collect());
    }
    assert_eq!(nodes[..count], nodes[count..], "the second round is not in the first one's order");
}

#[test]
fn balanced_neighbours_are_on_one_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let count = shape.homes().len();
    let threads = given!(pages::threads(sandbox.run("-c 2/node -s balanced"), 2 * count));
    let nodes: Vec<u32> = bound(&threads).into_iter().map(|cpu| shape.node_of(cpu)).collect();
    for pair in nodes.chunks(2) {
        assert_eq!(pair[0], pair[1], "{nodes:?}");
    }
    assert_eq!(nodes.iter().copied().collect::<BTreeSet<_>>(), shape.homes().into_iter().collect());
}

#[test]
fn compact_threads_fill_one_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let count = shape.of_node(shape.homes()[0]).len();
    let threads = given!(pages::threads(sandbox.run(&format!("-c {count}")), count));
    let cpus: Cpus = bound(&threads).into_iter().collect();
    assert_eq!(shape.nodes_of(&cpus).len(), 1, "{threads:?}");
}

#[test]
fn other_threads_are_created_on_slots_of_different_nodes() {
    let shape = given!(Shape::here());
    let program = need!(c("pthreads.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 2/node -s scatter").arg(&program).ends().ok();
    // Three threads, each on one CPU, besides the initial thread that keeps the first slot.
    let born: Vec<Cpus> = said
        .lines()
        .filter_map(|line| line.strip_prefix("mask "))
        .map(|line| cpus(line.split(' ').next().unwrap()))
        .collect();
    assert!(born.len() == 3 && born.iter().all(|mask| mask.len() == 1), "{said}");
    let all: Cpus = born.into_iter().flatten().collect();
    assert_eq!(all.len(), 3, "two on one CPU: {said}");
    assert!(shape.nodes_of(&all).len() > 1, "{said}");
}

#[test]
fn plans_in_other_tools_formats_do_the_same() {
    let shape = given!(Shape::here());
    let numactl = need!(crate::util::installed("numactl"), "numactl is not installed");
    let sandbox = Sandbox::new();
    let node = *shape.homes().last().unwrap();
    let list: Vec<String> = shape.of_node(node).iter().map(u32::to_string).collect();
    let options = format!("--cpus {} --mem bind", list.join(","));
    let line = sandbox.trimtab(&format!("plan --survey none --format numactl {options}")).ends().ok();
    let words = line.strip_prefix("numactl ").unwrap_or_else(|| panic!("{line}"));
    // Run by a plain shell.
    let program = given!(pages::program());
    let script = format!("exec {} {words} {} {}", numactl.display(), program.display(), pages::PAGES_TOUCHED);
    let theirs = pages::parse(&sandbox.shell(&script).ends().ok());
    let ours = given!(pages::seen(sandbox.run(&options)));
    assert_eq!(
        (&ours.mask, &ours.policy, &ours.pages),
        (&theirs.mask, &theirs.policy, &theirs.pages),
        "{line}"
    );
}
