//! Costs that do not depend on how busy the machine is that runs the tests: events, not seconds.

use crate::run::kernel;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::parse_synthetic;
use trimtab_sim::model::Model;
use trimtab_sim::program::{ProgramSpec, WaitMode};
use trimtab_sim::world::{RunCounters, World};

fn counted(text: &str, threads: u32, every: u64, wait: WaitMode, ms: u64) -> RunCounters {
    let machine = parse_synthetic(text).unwrap();
    let kernel = kernel("linux-6.12", machine.pu_count());
    let program =
        ProgramSpec::spmd("spmd", threads, Span::from_ms(1_000_000), wait).every(Span::from_ms(every));
    let mut world = World::new(Model::plain(machine), &kernel, vec![program], 1);
    world.run(Moment(ms * 1_000_000));
    world.counters()
}

#[test]
fn events_per_cpu_do_not_grow_with_the_machine() {
    for wait in [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin] {
        let per_cpu =
            |text: &str, cpus: u32| counted(text, 4 * cpus, 10, wait, 500).events as f64 / f64::from(cpus);
        let small = per_cpu("pack:1 numa:1 l3:1 core:16 pu:1", 16);
        let large = per_cpu("pack:8 numa:1 l3:2 core:16 pu:1", 256);
        println!("{wait:?}: {small:.0} events per CPU on 16, {large:.0} on 256");
        assert!(large < 2.0 * small, "{wait:?}");
    }
}

#[test]
fn polling_is_no_event() {
    // A minute of polls on the CPU is three events per thread and barrier, not a million calls.
    for wait in [WaitMode::Yield, WaitMode::Spin] {
        let counters = counted("core:4 pu:1", 4, 10, wait, 60_000);
        let barriers = counters.barriers;
        assert!(barriers > 5_990);
        assert!(counters.events < 8 * 4 * barriers, "{wait:?} {counters:?}");
    }
}
