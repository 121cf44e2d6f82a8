//! Invariants of every policy on every machine, under any events.

use crate::fluid::{Fluid, FluidEvent, Kernel, WaitMode};
use crate::run::{run, run_with, settings};
use proptest::prelude::*;
use trimtab_core::balance::Kind;
use trimtab_core::drive::Go;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::parse_synthetic;

/// Non-empty sets of the CPUs of a machine of eight.
fn cpus() -> impl Strategy<Value = CpuSet> {
    (1u64..256).prop_map(|bits| CpuSet::from_words(vec![bits]))
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    threads: Vec<(f64, f64, CpuSet)>,
    hogs: Vec<(usize, bool)>,
    events: Vec<(f64, FluidEvent)>,
    wait: WaitMode,
    kernel: Kernel,
    barrier: Option<f64>,
    lossy: Option<u64>,
    refuses: Option<u64>,
    pub(crate) across_nodes: bool,
    free: bool,
    counted: bool,
    pub(crate) seed: u64,
}

pub(crate) fn worlds() -> impl Strategy<Value = World> {
    let home = prop_oneof![2 => Just("0-7".parse::<CpuSet>().unwrap()), 1 => cpus()];
    let thread = (0.05..0.5f64, prop_oneof![3 => Just(0.0), 1 => 0.0..0.5f64], home);
    let event = prop_oneof![cpus().prop_map(FluidEvent::Usable), (0usize..10).prop_map(FluidEvent::End)];
    let events = prop::collection::vec((0.0..1.0f64, event), 0..4);
    let wait = prop_oneof![Just(WaitMode::Spin), Just(WaitMode::Yield), Just(WaitMode::Sleep)];
    let kernel = prop_oneof![Just(Kernel::Keeps), Just(Kernel::Rotates)];
    (
        (
            prop::collection::vec(thread, 1..11),
            prop::collection::vec((0usize..8, any::<bool>()), 0..3),
            events,
        ),
        (wait, kernel, prop::option::of(0.01..0.1f64), prop::option::of(2u64..9), prop::option::of(2u64..9)),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<u64>()),
    )
        .prop_map(
            |(
                (threads, hogs, mut events),
                (wait, kernel, barrier, lossy, refuses),
                (across_nodes, free, counted, seed),
            )| {
                events.sort_by(|a, b| a.0.total_cmp(&b.0));
                events.retain(|(_, event)| !matches!(event, FluidEvent::End(at) if *at >= threads.len()));
                World {
                    threads,
                    hogs,
                    events,
                    wait,
                    kernel,
                    barrier,
                    lossy,
                    refuses,
                    across_nodes,
                    free,
                    counted,
                    seed,
                }
            },
        )
}

pub(crate) fn model(world: &World) -> Fluid {
    let mut fluid = Fluid::new(0, 8, world.wait, world.kernel);
    fluid.barrier = world.barrier;
    for (at, (work, born, home)) in world.threads.iter().enumerate() {
        let core = home.iter().nth(at % home.len()).unwrap_or(OsCpu(0));
        fluid.thread(*work, *born, home.clone(), core.0 as usize);
    }
    for (core, pinned) in &world.hogs {
        fluid = fluid.hog(*core, *pinned);
    }
    fluid.events.clone_from(&world.events);
    (fluid.lossy, fluid.refuses) = (world.lossy, world.refuses);
    fluid.counted = world.counted.then_some(world.seed);
    fluid
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The checker runs over every turn of every run: only living and movable threads are moved,
    /// within their usable masks; no thread is left on a lost CPU; no exchange is half done. Every
    /// run ends.
    #[test]
    fn every_turn_is_lawful(world in worlds(), kind in prop::sample::select(Kind::ALL.to_vec())) {
        let machine = parse_synthetic("numa:2 l3:2 core:2 pu:1").unwrap();
        let settings = trimtab_core::balance::Settings { across_nodes: world.across_nodes, free: world.free, ..settings(50, world.seed) };
        run_with(model(&world), &machine, kind, &settings, &mut |_| Go::On);
    }

    /// The same with threads that suffer differently on every core and memory policies that move
    /// them: with time enough for many moves, on machines of several kinds.
    #[test]
    fn moving_for_memory_is_lawful(
        mut world in worlds(),
        kind in prop::sample::select(Kind::BY_PENALTY.to_vec()),
        machine in prop::sample::select(vec!["numa:2 l3:2 core:2 pu:1", "numa:8 core:1 pu:1", "numa:2 core:2 pu:2", "l3:4 core:2 pu:1"]),
        interval in prop::sample::select(vec![10_u64, 50]),
    ) {
        let machine = parse_synthetic(machine).unwrap();
        world.counted = true;
        world.threads.iter_mut().for_each(|(work, _, _)| *work *= 8.0);
        world.events.iter_mut().for_each(|(at, _)| *at *= 4.0);
        let fluid = model(&world);
        let settings = trimtab_core::balance::Settings { across_nodes: world.across_nodes, free: world.free, ..settings(interval, world.seed) };
        run_with(fluid, &machine, kind, &settings, &mut |_| Go::On);
    }

    /// If load is constant and even, nothing moves except in the initial placement.
    #[test]
    fn policies_settle(each in 1usize..4, cores in 1usize..7, seed in any::<u64>(), kind in prop::sample::select(Kind::ALL.to_vec())) {
        let threads = each * cores;
        let ran = run(Fluid::new(threads, cores, WaitMode::Spin, Kernel::Rotates).long(2.0), kind, &settings(50, seed));
        prop_assert!(ran.moves <= threads as u64, "{} moves of {} threads on {}", ran.moves, threads, cores);
        prop_assert!((ran.ratio - 1.0).abs() < 1e-3);
    }
}
