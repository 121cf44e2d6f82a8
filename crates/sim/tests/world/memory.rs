//! Tests of memory under the world: placement decides the time that threads take.

use crate::run::{END, kernel};
use trimtab_core::balance::{Act, Decision, Reason, Refusal, Settled, Wanted};
use trimtab_core::counts::Rung;
use trimtab_core::drive::Host;
use trimtab_core::ids::{OsNode, ThreadId};
use trimtab_core::observe::{Notice, Observer};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_sim::host::Simulated;
use trimtab_sim::memory::Memory;
use trimtab_sim::model::shipped;
use trimtab_sim::program::{Bind, Footprint, PagePlacement, ProgramSpec, WaitMode};
use trimtab_sim::world::World;

/// Returns the time that four threads with this footprint take for a second of work each, bound to
/// these CPUs.
fn takes(footprint: Footprint, cpus: &str) -> f64 {
    let model = shipped::find("westmere-e5620").unwrap().unwrap();
    let memory = Memory::new(&model);
    let list: CpuSet = cpus.parse().unwrap();
    let mut program =
        ProgramSpec::spmd("walk", 4, Span::from_ms(1000), WaitMode::Sleep).every(Span::from_ms(10));
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
    // Two busy cores of a package have a higher turbo than four; nothing else differs.
    assert!((compute / takes(quiet, "0,2,8,10") - 1.11 / 1.06).abs() < 0.01);
    let walk = |set: u64, pages| Footprint {
        working_set: set,
        misses: 20.0,
        parallelism: 1.0,
        pages,
        ..Footprint::default()
    };
    // Four megabytes each: two sockets have the room, one does not.
    let near = walk(4 << 20, PagePlacement::FirstTouch);
    assert!(takes(near, "0,2,4,6") > 1.1 * takes(near, "0,2,8,10"));
    // Far more than any cache, all on the first node: running away from it is worse.
    let far = walk(256 << 20, PagePlacement::Node(0));
    assert!(takes(far, "0,2,8,10") > 1.1 * takes(far, "0,2,4,6"));
    // Waiting takes longer than the work alone.
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

#[test]
fn counters_show_where_a_thread_stalls_and_memory_can_be_brought_after_it() {
    let model = shipped::find("westmere-e5620").unwrap().unwrap();
    let memory = Memory::new(&model);
    let mut program = ProgramSpec::spmd("walk", 1, Span::from_ms(60_000), WaitMode::Spin);
    program.footprint = Footprint {
        working_set: 256 << 20,
        misses: 20.0,
        parallelism: 2.0,
        pages: PagePlacement::Node(1),
        ..Footprint::default()
    };
    program.bind = Bind::List(std::iter::once("0".parse().unwrap()).collect());
    let world = World::with(model, &kernel("linux-6.12", 16), vec![program], 1, memory);
    let mut observer = Observer::new(world.usable());
    let mut host = Simulated::new(world, END);
    let wanted = Wanted { counts: true, ..Wanted::default() };
    let mut sample_at = |host: &mut Simulated<Memory>, ms: u64| {
        host.wait(Moment(ms * 1_000_000)).unwrap();
        let sample = host.observe(&wanted).unwrap();
        let told = sample.notices.contains(&Notice::Counting(Rung::Exact));
        observer.take(&sample, &[]);
        (observer.observation().threads.first().and_then(|thread| thread.counted), told)
    };
    let (first, told) = sample_at(&mut host, 10);
    assert!(first.is_none() && told, "one reading is no difference");
    let (far, told) = sample_at(&mut host, 103);
    let far = far.unwrap();
    assert!(!told, "said once");
    assert_eq!(far.far_share(), Some(1.0));
    // Half of 40 cycles to the LLC, 67 ns more, and 38 to the other socket; the LLC holds little of
    // the set.
    let (penalty, share) = (far.penalty().unwrap(), far.share().unwrap());
    assert!((50.0..65.0).contains(&penalty), "{penalty}");
    assert!(share > 0.4, "{share}");
    let fetch = |node| Decision {
        thread: ThreadId(0),
        act: Act::Fetch(OsNode(node)),
        reason: Reason::Start,
        gain: None,
    };
    let outcomes = host.apply(&[fetch(7), fetch(0)]).unwrap();
    let ends: Vec<Settled> = outcomes.iter().map(|outcome| outcome.end).collect();
    assert_eq!(ends, [Settled::Refused(Refusal::Memory), Settled::Applied]);
    // The thread does not run while 256 MB are moved.
    let _moving = sample_at(&mut host, 1_500);
    let near = sample_at(&mut host, 1_600).0.unwrap();
    assert_eq!(near.far_share(), Some(0.0));
    assert!(near.penalty().unwrap() < 0.8 * penalty, "{near:?}");
}
