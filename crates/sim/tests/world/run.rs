//! Runs of worlds, with and without policies.

use trimtab_core::balance::{Kind, Settings, policy};
use trimtab_core::drive::{Go, Step, drive};
use trimtab_core::observe::Observer;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_sim::host::Simulated;
use trimtab_sim::kernel::Kernel;
use trimtab_sim::model::Model;
use trimtab_sim::program::{ProgramSpec, WaitMode};
use trimtab_sim::world::World;

/// Latest end of a run; longer than any here.
pub(crate) const END: Moment = Moment(600_000_000_000);

/// Cores that share a cache.
pub(crate) fn cores(count: usize) -> Machine {
    parse_synthetic(&format!("numa:1 l3:1 core:{count} pu:1")).unwrap()
}

/// Returns a kernel by its name, for this number of CPUs.
pub(crate) fn kernel(name: &str, cpus: usize) -> Kernel {
    Kernel::preset(name, cpus).unwrap()
}

/// Returns an SPMD program of threads of one second, with barriers.
pub(crate) fn spmd(threads: u32, every: Option<u64>, wait: WaitMode) -> ProgramSpec {
    let program = ProgramSpec::spmd("spmd", threads, Span::from_ms(1000), wait);
    match every {
        Some(ms) => program.every(Span::from_ms(ms)),
        None => program,
    }
}

/// Runs a world to its end.
pub(crate) fn alone(model: Model, kernel: &Kernel, programs: Vec<ProgramSpec>, seed: u64) -> World {
    let mut world = World::new(model, kernel, programs, seed);
    world.run(END);
    assert!(world.over(), "it never ended");
    world
}

/// Runs a world to its end under a policy.
pub(crate) fn driven(
    model: Model,
    kernel: &Kernel,
    programs: Vec<ProgramSpec>,
    kind: Kind,
    settings: &Settings,
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) -> World {
    let machine = model.machine.clone();
    let mut host = Simulated::new(World::new(model, kernel, programs, settings.seed), END);
    let mut policy = policy(kind, &machine, settings);
    let mut observer = Observer::new(machine.cpus());
    drive(&mut host, policy.as_mut(), &mut observer, watch).unwrap_or_else(|never| match never {});
    assert!(host.world().over(), "it never ended");
    host.into_world()
}

/// Returns the time that the first program took, over the time of fair shares of `threads` threads
/// of a second on this number of cores.
pub(crate) fn ratio(world: &World, threads: usize, cores: usize) -> f64 {
    world.makespan(0).unwrap().seconds() * cores as f64 / threads as f64
}

/// Returns the median.
pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
