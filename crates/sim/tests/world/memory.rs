//! Memory under the world: where threads run decides how long they take.

use crate::run::{END, kernel};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_sim::memory::Memory;
use trimtab_sim::model::shipped;
use trimtab_sim::program::{Bind, Footprint, Pages, Program, Wait};
use trimtab_sim::world::World;

/// How long four threads with this footprint take for a second of work each, bound to these CPUs.
fn takes(footprint: Footprint, cpus: &str) -> f64 {
    let model = shipped::find("westmere-e5620").unwrap().unwrap();
    let memory = Memory::new(&model);
    let list: CpuSet = cpus.parse().unwrap();
    let mut program = Program::spmd("walk", 4, Span::from_ms(1000), Wait::Sleep).every(Span::from_ms(10));
    program.footprint = footprint;
    program.bind = Bind::List(list.iter().map(|cpu| CpuSet::from_iter([cpu])).collect());
    let mut world = World::with(model, &kernel("linux-6.12", 16), vec![program], 1, memory);
    world.run(END);
    world.makespan(0).unwrap().seconds()
}

#[test]
fn caches_and_nodes_decide_between_the_same_placements() {
    let quiet = Footprint::default();
    let compute = takes(quiet, "0,2,4,6");
    // Two busy cores of a package turn up further than four; nothing else differs.
    assert!((compute / takes(quiet, "0,2,8,10") - 1.11 / 1.06).abs() < 0.01);
    let walk = |set: u64, pages| Footprint {
        working_set: set,
        misses: 20.0,
        parallelism: 1.0,
        pages,
        ..Footprint::default()
    };
    // Four megabytes each: two sockets have the room, one has not.
    let near = walk(4 << 20, Pages::FirstTouch);
    assert!(takes(near, "0,2,4,6") > 1.1 * takes(near, "0,2,8,10"));
    // Far more than any cache, all on the first node: away from it is worse.
    let far = walk(256 << 20, Pages::Node(0));
    assert!(takes(far, "0,2,8,10") > 1.1 * takes(far, "0,2,4,6"));
    // And waiting is longer than work alone.
    assert!(takes(far, "0,2,4,6") > 1.5 * compute);
}

#[test]
fn equal_worlds_run_equally() {
    let footprint = Footprint {
        working_set: 16 << 20,
        misses: 30.0,
        shared: 4096,
        shared_writes: 1.0,
        ..Footprint::default()
    };
    assert_eq!(takes(footprint, "0,2,8,10").to_bits(), takes(footprint, "0,2,8,10").to_bits());
}
