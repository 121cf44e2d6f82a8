//! The ledger over nodes: runs keep apart, a third one waits or is refused, and a killed run gives
//! its node back.

use crate::masks::mask;
use crate::shape::{Cpus, Shape};
use crate::util::{MASK, Sandbox, cpus, eventually};
use rustix::process::Signal;
use std::collections::BTreeSet;

#[test]
fn nodes_are_shared_out_and_a_killed_run_gives_its_own_back() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let mut runs: Vec<_> = shape.homes().iter().map(|_| sandbox.hold("-c node")).collect();
    let masks: Vec<Cpus> = runs.iter_mut().map(|run| cpus(&run.line())).collect();
    let wanted: BTreeSet<Cpus> = shape.homes().into_iter().map(|node| shape.of_node(node)).collect();
    assert_eq!(masks.iter().cloned().collect::<BTreeSet<_>>(), wanted, "not a node each");
    assert_eq!(sandbox.held(), shape.cpus());
    for options in ["-c node", "-c 1"] {
        sandbox.run(options).arg("true").ends().fails(124, &["--wait", "trimtab"]);
    }
    let mut waiting = sandbox.run("-c node --wait").sh(MASK).begins();
    eventually("it stands in line", || sandbox.ps()["waiting"] == 1);
    assert!(waiting.lives());
    let killed = runs.remove(1);
    killed.signal(Signal::KILL);
    drop(killed.ends());
    assert_eq!(cpus(&waiting.ends().ok()), masks[1], "not the node that became free");
    for run in runs {
        run.ends().ok();
    }
    sandbox.until_free();
}

#[test]
fn a_partly_held_node_is_no_free_one() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let homes = shape.homes();
    let partly = homes[0];
    let cpu = shape.of_node(partly).pop_first().unwrap();
    let _held = sandbox.hold(&format!("--cpus {cpu}"));
    let node = mask(&sandbox, "-c node");
    assert!(!shape.nodes_of(&node).contains(&partly), "{node:?}");
    // A request for the cores of a whole node gets them together, on another node.
    let count = shape.cores_of_largest();
    let together = mask(&sandbox, &format!("-c {count}"));
    assert_eq!(shape.nodes_of(&together).len(), 1, "{together:?}");
    assert!(!shape.nodes_of(&together).contains(&partly), "{together:?}");
    // The rest of the node is filled before another node is used.
    let rest = mask(&sandbox, &format!("-c {}", shape.of_node(partly).len() - 1));
    assert_eq!(shape.nodes_of(&rest), BTreeSet::from([partly]), "{rest:?}");
    let refused = sandbox.run(&format!("-c {}xnode", homes.len())).arg("true").ends();
    refused.fails(124, &[&format!("{} can be had now", homes.len() - 1), "--wait"]);
}

#[test]
fn inner_runs_divide_the_nodes_of_the_outer() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    let script = format!(
        r#""$T" run --survey none -c node -- sh -c '{0}; exec "$T" run --survey none -c 1 -- sh -c "$0"' "$1""#,
        MASK.replace('\'', "'\\''")
    );
    // The outer run has two nodes, the middle run one of them, the innermost a core of that.
    let said = sandbox.run("-c 2xnode").args(["sh", "-c", &script, "sh", MASK]).ends().ok();
    let [node, core] = said.lines().map(cpus).collect::<Vec<_>>().try_into().unwrap();
    assert!(shape.homes().into_iter().any(|home| shape.of_node(home) == node), "{said}");
    assert!(core.len() == 1 && core.is_subset(&node), "{said}");
}
