//! `--nest`: the teams of a nested OpenMP program each on a node, their threads on cores of it, their pages in its memory.

use crate::masks::bound;
use crate::pages::{self, Thread};
use crate::shape::Shape;
use crate::util::{Sandbox, skip};
use std::collections::BTreeSet;

/// The threads of as many teams of two as there are nodes, under such a map.
fn teams(sandbox: &Sandbox, shape: &Shape, inner: usize, strategy: &str) -> Option<Vec<Thread>> {
    let help = sandbox.trimtab("run --help").ends().ok();
    if !help.contains("--nest") {
        skip("this trimtab has no --nest");
        return None;
    }
    let outer = shape.homes().len();
    pages::threads(sandbox.run(&format!("--nest {outer},scatter,{inner},{strategy}")), outer, inner)
}

/// That every team is in a node of its own, every thread on a core of its own, and its pages with it.
#[track_caller]
fn assert_a_node_each(shape: &Shape, threads: &[Thread], inner: usize) {
    let mut nodes = BTreeSet::new();
    for team in threads.chunks(inner) {
        let cpus = bound(team).into_iter().collect();
        let own = shape.nodes_of(&cpus);
        assert_eq!(own.len(), 1, "a team is in several nodes: {team:?}");
        assert!(nodes.insert(own.clone()), "two teams are in one node: {threads:?}");
        for thread in team {
            assert_eq!(thread.nodes, own, "its pages are elsewhere: {thread:?}");
        }
        assert_eq!(shape.first_threads(&cpus).len(), inner, "two on one core: {team:?}");
    }
    bound(threads);
    assert_eq!(nodes.len(), shape.homes().len());
}

#[test]
fn each_team_is_in_a_node_of_its_own() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let threads = given!(teams(&sandbox, &shape, 2, "subcompact"));
    assert_a_node_each(&shape, &threads, 2);
}

#[test]
fn teams_that_fill_their_nodes_do_not_straddle_them() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let inner = shape.homes().into_iter().map(|node| shape.of_node(node).len()).min().unwrap();
    for strategy in ["subcompact", "subscatter"] {
        let threads = given!(teams(&sandbox, &shape, inner, strategy));
        assert_a_node_each(&shape, &threads, inner);
    }
}

#[test]
fn teams_are_in_the_order_of_the_nodes() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let threads = given!(teams(&sandbox, &shape, 2, "subcompact"));
    for (team, node) in threads.chunks(2).zip(shape.homes()) {
        assert_eq!(shape.node_of(team[0].cpu), node, "{threads:?}");
    }
}
