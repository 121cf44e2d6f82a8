//! `--nest`: each team of a nested OpenMP program on one node, its threads on that node's cores,
//! its pages in that node's memory.

use crate::cpusets::without_a_node;
use crate::masks::bound;
use crate::pages::{self, Thread};
use crate::shape::Shape;
use crate::util::{Call, Sandbox};
use std::collections::BTreeSet;

/// Returns the threads of `outer` teams of `inner` threads, in a call that sets these sizes.
fn teams(call: Call<'_>, outer: usize, inner: usize) -> Option<Vec<Thread>> {
    Some(pages::threads_of(&pages::teams("gcc")?, call, outer, inner))
}

/// Asserts that each team is on its own node, in this order, every thread on its own core, and its
/// pages with it.
#[track_caller]
fn assert_teams_are_on(nodes: &[u32], shape: &Shape, threads: &[Thread]) {
    let cpus = bound(threads);
    assert_eq!(shape.first_threads(&cpus.into_iter().collect()).len(), threads.len(), "two on one core");
    for (team, node) in threads.chunks(threads.len() / nodes.len()).zip(nodes) {
        let own = BTreeSet::from([*node]);
        for thread in team {
            assert_eq!(shape.nodes_of(&thread.mask), own, "not with its team: {thread:?}");
            assert_eq!(thread.nodes, own, "its pages are elsewhere: {thread:?} of {threads:?}");
        }
    }
}

#[test]
fn each_team_is_in_a_node_of_its_own() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    for compiler in ["gcc", "clang"] {
        let Some(program) = pages::teams(compiler) else { continue };
        let call = sandbox.run(&format!("--nest {},scatter,2,subcompact", homes.len()));
        assert_teams_are_on(&homes, &shape, &pages::threads_of(&program, call, homes.len(), 2));
    }
}

#[test]
fn each_team_of_a_shape_that_only_a_variable_states_is_in_a_node_of_its_own() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    for compiler in ["gcc", "clang"] {
        let Some(program) = pages::teams(compiler) else { continue };
        let call = sandbox.run("").env("OMP_NUM_THREADS", format!("{},2", homes.len()));
        assert_teams_are_on(&homes, &shape, &pages::threads_of(&program, call, homes.len(), 2));
    }
}

#[test]
fn teams_that_fill_their_nodes_do_not_straddle_them() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    let inner = homes.iter().map(|&node| shape.of_node(node).len()).min().unwrap();
    for strategy in ["subcompact", "subscatter"] {
        let call = sandbox.run(&format!("--nest {},scatter,{inner},{strategy}", homes.len()));
        assert_teams_are_on(&homes, &shape, &given!(teams(call, homes.len(), inner)));
    }
}

#[test]
fn compact_teams_share_a_node_while_it_has_room() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let inner = shape.of_node(shape.homes()[0]).len() / 2;
    let call = sandbox.run(&format!("--nest 2,compact,{inner},subcompact"));
    let threads = given!(teams(call, 2, inner));
    let first = shape.node_of(threads[0].cpu);
    assert_teams_are_on(&[first; 2], &shape, &threads);
}

#[test]
fn a_variable_says_the_same() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    let spec = format!("{},scatter,2,subcompact", homes.len());
    let call = sandbox.run("").env("OMP_NESTING_TEAM_SIZE", spec);
    assert_teams_are_on(&homes, &shape, &given!(teams(call, homes.len(), 2)));
}

#[test]
fn teams_keep_out_of_a_withheld_node() {
    let (shape, withheld, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let rest: Vec<u32> = shape.homes().into_iter().filter(|&node| node != withheld).collect();
    let call = sandbox.run(&format!("--nest {},scatter,2,subcompact", rest.len()));
    assert_teams_are_on(&rest, &shape, &given!(teams(group.inside(call), rest.len(), 2)));
}

#[test]
fn teams_keep_out_of_a_held_node() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    let list: Vec<String> = shape.nodes[&homes[0]].cpus.iter().map(u32::to_string).collect();
    let _held = sandbox.hold(&format!("--cpus {}", list.join(",")));
    let rest = &homes[1..];
    let call = sandbox.run(&format!("-q --nest {},scatter,2,subcompact", rest.len()));
    assert_teams_are_on(rest, &shape, &given!(teams(call, rest.len(), 2)));
}
