//! Benchmark of planning, by machine size and strategy.
//!
//! Unit: one call of `place::plan`. The machines are synthetic: L3s of eight cores, private
//! second-level caches, two hardware threads a core, eight nodes (or 64). Half of the cores are
//! held, in a pattern without a period that fits the caches, and about one free core in eight is
//! busy, so the number of free cores differs from cache to cache, and no shortcut for whole or
//! empty units applies. Goal: under 10 ms at 4,096 hardware threads, and no worse than n log n.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use trimtab_core::ids::{Id, OsCpu, Pu};
use trimtab_core::place::nesting::{Map, Nest, Tree};
use trimtab_core::place::{Amount, Request, Shape, Strategy, Stride, Taken, plan};
use trimtab_core::topology::{Core, Level, Machine, parse_synthetic};

const SIZES: [u32; 5] = [64, 256, 1_024, 4_096, 16_384];

/// Creates a machine of `pus` hardware threads over up to `nodes` nodes, with held and busy cores.
fn situation(pus: u32, nodes: u32) -> (Machine, Taken) {
    let cores = pus / 2;
    let per_l3 = 8.min(cores / nodes);
    let caches = cores / nodes / per_l3;
    let text = format!("numa:{nodes} l3:{caches} l2:{per_l3} core:1 pu:2(far)");
    let machine = parse_synthetic(&text).expect("the description is made of counts above 0");
    let mut taken = Taken::nothing(machine.cpus());
    for (at, core) in (0u32..).zip(machine.cores()) {
        // Fibonacci hashing: evenly spread, and without a period that caches or nodes could share.
        let roll = at.wrapping_mul(2_654_435_769) >> 16;
        let cpus = core.pus.clone().map(|pu| machine.os(Pu(pu)));
        match roll % 16 {
            0..8 => taken.held.extend(cpus),
            8 => taken.busy.extend(cpus.map(|cpu| (cpu, 300))),
            _ => {
                taken.busy.extend(cpus.map(|cpu: OsCpu| (cpu, u16::from(cpu.index().is_multiple_of(2)) * 20)))
            }
        }
    }
    (machine, taken)
}

/// Requests for half of the free cores (compact, scattered, and one per second-level cache), for
/// nearly all of them, and for two whole caches; two caches are freed for the last.
fn requests(machine: &Machine, taken: &Taken) -> [(&'static str, Request); 5] {
    let held = |core: &&Core| machine.cpus_of(&core.pus).intersects(&taken.held);
    let free = machine.cores().len() - machine.cores().iter().filter(held).count();
    let cores = |share: usize, strategy| {
        let cores = u32::try_from(free * share / 100).unwrap_or(u32::MAX);
        Request { amount: Amount::Cores(cores), strategy, ..Request::default() }
    };
    let shape = Amount::Shape(Shape { units: Some(2), per: None, level: Level::L3 });
    [
        ("compact", cores(50, Strategy::Compact)),
        ("compact, nearly all", cores(95, Strategy::Compact)),
        ("scatter", cores(50, Strategy::Scatter)),
        ("stride:l2", cores(50, Strategy::Stride(Stride::OnePer(Level::L2)))),
        ("2xl3", Request { amount: shape, ..Request::default() }),
    ]
}

fn planning(criterion: &mut Criterion) {
    for nodes in [8, 64] {
        let mut group = criterion.benchmark_group(format!("{nodes} nodes"));
        for pus in SIZES.into_iter().filter(|pus| pus / 2 >= nodes) {
            let (machine, taken) = situation(pus, nodes);
            group.throughput(Throughput::Elements(u64::from(pus)));
            for (name, request) in requests(&machine, &taken) {
                let mut taken = taken.clone();
                if matches!(request.amount, Amount::Shape(_)) {
                    let caches = machine.llcs().len();
                    for at in [caches / 3, caches / 2 + 1] {
                        let cores = machine.llcs()[at.min(caches - 1)].cores.clone();
                        let pus = cores.flat_map(|core| machine.cores()[core as usize].pus.clone());
                        for pu in pus {
                            taken.held.remove(machine.os(Pu(pu)));
                        }
                    }
                }
                plan(&machine, &request, &taken).expect("the request can be met");
                group.bench_function(BenchmarkId::new(name, pus), |bencher| {
                    bencher.iter(|| plan(black_box(&machine), black_box(&request), black_box(&taken)));
                });
            }
        }
        group.finish();
    }
}

/// Measures one map of nested teams. Goal: 64 teams of 64 threads on 4,096 hardware threads under
/// 20 ms.
fn nesting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("nested teams");
    for (pus, outer, inner) in [(256u32, 16, 16), (1_024, 32, 32), (4_096, 64, 64)] {
        let machine =
            parse_synthetic(&format!("numa:8 l3:{} core:8 pu:1", pus / 64)).expect("counts above 0");
        let tree = Tree::new(&machine, &machine.cpus()).expect("the machine has CPUs");
        group.throughput(Throughput::Elements(u64::from(pus)));
        for strategies in [["scatter", "subcompact"], ["scatter", "subscatter"], ["scatter", "scatter"]] {
            let text = format!("{outer},{},{inner},{}", strategies[0], strategies[1]);
            let nest = text.parse::<Nest>().expect("a well-formed text").resolve(&tree);
            group.bench_function(BenchmarkId::new(strategies.join(" "), pus), |bencher| {
                bencher.iter(|| Map::new(black_box(&tree), &nest, &nest.sizes()));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = planning, nesting
}
criterion_main!(benches);
