//! Cost of a simulated second, by the size of the machine and the programs on it.
//!
//! Throughput is events, including wake-ups: a tenth of a second of a scenario is run after the
//! programs have started, and its events are counted beforehand. Goals: two million events a second
//! on one core; 16 cores for 60 s with a barrier every 10 ms in less than 2 s; 4,096 threads on
//! 1,024 cores for 10 s in less than 60 s; the cost of an event grows no faster than the logarithm
//! of the machine's size.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::parse_synthetic;
use trimtab_sim::kernel::Kernel;
use trimtab_sim::model::Model;
use trimtab_sim::program::{Body, ProgramSpec, WaitMode};
use trimtab_sim::world::World;

/// Returns a scenario's world: cores, threads, milliseconds between barriers, the threads' way of
/// waiting.
fn world(cores: usize, threads: u32, every: u64, wait: WaitMode, kernel: &str) -> World {
    let caches = (cores / 16).max(1);
    let text = format!("pack:{} numa:1 l3:{} core:{} pu:1", caches.div_ceil(8), caches.min(8), cores.min(16));
    let machine = parse_synthetic(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let kernel = Kernel::preset(kernel, cores).unwrap_or_else(|error| panic!("{error}"));
    let mut program =
        ProgramSpec::spmd("spmd", threads, Span::from_ms(3_600_000), wait).every(Span::from_ms(every));
    if let Body::Spmd { jitter, .. } = &mut program.body {
        *jitter = 0.05;
    }
    let mut world = World::new(Model::plain(machine), &kernel, vec![program], 1);
    world.run(Moment(100_000_000));
    world
}

fn simulating(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulated_100_ms");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let span = Moment(200_000_000);
    let cases = [
        ("sleep", WaitMode::Sleep, "linux-6.12"),
        ("yield", WaitMode::Yield, "linux-6.12"),
        ("spin", WaitMode::Spin, "linux-6.12"),
        ("load", WaitMode::Sleep, "linux-2.6.28"),
        ("dwrr", WaitMode::Sleep, "dwrr-2.6.22"),
    ];
    for (cores, threads) in [(16, 64), (128, 512), (1_024, 4_096)] {
        for (name, wait, kernel) in cases {
            let make = || world(cores, threads, 10, wait, kernel);
            let events = |world: &World| world.counters().events + world.counters().wakes;
            let mut counted = make();
            let before = events(&counted);
            counted.run(span);
            group.throughput(Throughput::Elements(events(&counted) - before));
            group.bench_function(BenchmarkId::new(name, cores), |bencher| {
                bencher.iter_batched(
                    make,
                    |mut world| {
                        world.run(span);
                        world
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

fn a_minute(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a_minute_on_16_cores");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, wait) in [("sleep", WaitMode::Sleep), ("yield", WaitMode::Yield), ("spin", WaitMode::Spin)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || world(16, 16, 10, wait, "linux-6.12"),
                |mut world| {
                    world.run(Moment(60_000_000_000));
                    world
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, simulating, a_minute);
criterion_main!(benches);
