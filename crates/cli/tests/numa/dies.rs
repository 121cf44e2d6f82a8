//! Nodes of several last-level caches.

use crate::masks::mask;
use crate::pages;
use crate::shape::{Cpus, Shape};
use crate::util::{Sandbox, skip};
use std::collections::BTreeSet;

/// Returns the machine and its caches per node, if nodes have several.
fn divided() -> Option<Shape> {
    let shape = Shape::here()?;
    if shape.caches.len() <= shape.homes().len() {
        skip("this machine's nodes have one last-level cache each");
        return None;
    }
    Some(shape)
}

/// Returns the caches of these CPUs.
fn caches<'s>(shape: &'s Shape, mask: &Cpus) -> BTreeSet<&'s Cpus> {
    shape.caches.iter().filter(|cache| !cache.is_disjoint(mask)).collect()
}

#[test]
fn a_request_that_fits_under_a_cache_stays_there() {
    let shape = given!(divided());
    let sandbox = Sandbox::new();
    let cores = shape.first_threads(shape.caches.first().unwrap()).len();
    for options in ["-c l3".to_owned(), format!("-c {cores}")] {
        let mask = mask(&sandbox, &options);
        let caches = caches(&shape, &mask);
        assert_eq!(caches.len(), 1, "{options}: {mask:?}");
        assert_eq!(mask, shape.first_threads(caches.first().unwrap()), "{options}");
    }
}

#[test]
fn two_caches_are_of_one_node() {
    let shape = given!(divided());
    let sandbox = Sandbox::new();
    let mask = mask(&sandbox, "-c 2xl3");
    assert_eq!((caches(&shape, &mask).len(), shape.nodes_of(&mask).len()), (2, 1), "{mask:?}");
}

#[test]
fn one_core_of_every_cache() {
    let shape = given!(divided());
    let sandbox = Sandbox::new();
    let mask = mask(&sandbox, "-c 1/l3");
    assert_eq!((mask.len(), caches(&shape, &mask).len()), (shape.caches.len(), shape.caches.len()));
}

#[test]
fn scattered_threads_go_to_other_nodes_first_and_then_to_other_caches() {
    let shape = given!(divided());
    let sandbox = Sandbox::new();
    let (nodes, all) = (shape.homes().len(), shape.caches.len());
    let call = sandbox.run(&format!("-c {all} -s scatter"));
    let threads = given!(pages::threads(call, all));
    let cpus: Vec<u32> = threads.iter().map(|thread| thread.cpu).collect();
    let first: Cpus = cpus[..nodes].iter().copied().collect();
    assert_eq!(shape.nodes_of(&first).len(), nodes, "{cpus:?}");
    assert_eq!(caches(&shape, &cpus.iter().copied().collect()).len(), all, "{cpus:?}");
}
