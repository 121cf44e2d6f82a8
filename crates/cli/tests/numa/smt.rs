//! Cores of several hardware threads on several nodes: whole cores by default, their threads on
//! request.

use crate::masks::mask;
use crate::shape::{Cpus, Shape};
use crate::util::{MASK, Sandbox, cpus, skip};

fn threaded() -> Option<Shape> {
    let shape = Shape::here()?;
    if shape.cores.iter().all(|core| core.len() == 1) {
        skip("this machine's cores have one hardware thread each");
        return None;
    }
    Some(shape)
}

#[test]
fn a_run_gets_one_thread_of_each_core_and_holds_them_all() {
    let shape = given!(threaded());
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c node").sh(&format!("{MASK}; exec cat")).begins();
    let mask = cpus(&running.line());
    let node = shape.node_of(*mask.first().unwrap());
    assert_eq!(mask, shape.of_node(node));
    let held: Cpus = sandbox.held();
    assert_eq!(held, shape.nodes[&node].cpus, "siblings are not held");
    // The siblings are not available to other runs.
    let sibling = shape.nodes[&node].cpus.difference(&mask).next().unwrap();
    sandbox.run(&format!("--cpus {sibling}")).arg("true").ends().fails(124, &["held by"]);
    running.ends().ok();
}

#[test]
fn all_threads_of_the_cores_on_request() {
    let shape = given!(threaded());
    let sandbox = Sandbox::new();
    let threads = shape.cores.iter().map(Cpus::len).max().unwrap();
    for how in ["all".to_owned(), threads.to_string()] {
        let mask = mask(&sandbox, &format!("-c node --smt {how}"));
        let node = shape.node_of(*mask.first().unwrap());
        assert_eq!(mask, shape.nodes[&node].cpus, "--smt {how}");
    }
    let mask = mask(&sandbox, "-c 1 --smt all");
    assert!(shape.cores.contains(&mask), "{mask:?} is no core");
}

#[test]
fn counts_are_of_cores() {
    let shape = given!(threaded());
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 100%").sh("nproc").ends().ok();
    assert_eq!(said, shape.cores.len().to_string());
    let said = sandbox.run("-c 100% --smt all").sh("nproc").ends().ok();
    assert_eq!(said, shape.cpus().len().to_string());
}
