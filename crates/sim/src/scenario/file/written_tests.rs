//! Tests that every written scenario is read as the same.

use super::tests::{SMALL, one, open};
use super::*;
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::observer_cost::ObserverCost;
use crate::program::{Bind, Body, Footprint, PagePlacement, ProgramSpec, WaitMode};
use crate::scenario::{Arrivals, Happening, ScenarioEvent};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use trimtab_core::balance::{BiasReading, Candidates, Kind, PenaltySettings, Settings};
use trimtab_core::observe::Metric;
use trimtab_core::penalty::{Index, Mean};
use trimtab_core::topology::parse_synthetic;

fn span(low: u64, high: u64) -> impl Strategy<Value = Span> {
    (low..=high, prop_oneof![Just(1_000_000_u64), Just(1_000), Just(1)])
        .prop_map(move |(time, grain)| Span((time / grain * grain).max(low)))
}

/// Returns machines that are shipped, plain, changed, and given whole.
fn model() -> impl Strategy<Value = Model> {
    let shipped = crate::model::shipped::SHIPPED.len();
    let shape = prop_oneof![
        (0..shipped).prop_map(|at| crate::model::shipped::SHIPPED[at].model().unwrap()),
        (1..3_u32, 1..3_u32, 1..5_u32, 1..3_u32).prop_map(|(packs, nodes, cores, pus)| {
            let text = format!("pack:{packs} numa:{nodes} core:{cores} pu:{pus}");
            Model::plain(parse_synthetic(&text).unwrap())
        }),
    ];
    (shape, 0..4, 0.1..4.0_f64, any::<bool>()).prop_map(|(mut model, change, value, renamed)| {
        match change {
            1 => model.speeds[0] = value,
            2 => model = model.free(),
            3 => {
                model.memory.local_ns = 100.0 * value;
                model.turbo.factors = vec![value + 1.0, value];
            }
            _ => {}
        }
        if renamed {
            let mut parts = model.machine.parts().clone();
            parts.name = "another \"name\"".to_owned();
            model.machine = trimtab_core::topology::Machine::build(parts).unwrap();
        }
        model
    })
}

fn wait() -> impl Strategy<Value = WaitMode> {
    prop_oneof![
        Just(WaitMode::Spin),
        Just(WaitMode::Yield),
        Just(WaitMode::Sleep),
        span(0, 1_000_000_000).prop_map(WaitMode::SpinThenSleep)
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let work = || span(1_000, 10_000_000_000);
    prop_oneof![
        (work(), of(work()), -0.9..0.9_f64, 0.0..1.0_f64)
            .prop_map(|(work, interval, imbalance, jitter)| Body::Spmd { work, interval, imbalance, jitter }),
        (1..9_u32, 1..1000_u32, work()).prop_map(|(inner, regions, work)| Body::Nested {
            inner,
            regions,
            work
        }),
        (1..1000_u32, work(), of(work()), of(any::<u32>()))
            .prop_map(|(regions, work, pause, hold)| Body::Teams { regions, work, pause, hold }),
        of((work(), work())).prop_map(|duty| Body::Hog { duty }),
        (1..9_u32, work(), of(1..u32::MAX)).prop_map(|(at_once, work, jobs)| Body::Churn {
            at_once,
            work,
            jobs
        }),
    ]
}

fn footprint() -> impl Strategy<Value = Footprint> {
    let pages = prop_oneof![
        Just(PagePlacement::FirstTouch),
        Just(PagePlacement::Master),
        Just(PagePlacement::Interleave),
        Just(PagePlacement::Node(0))
    ];
    prop_oneof![
        Just(Footprint::default()),
        (0..1_u64 << 40, 0.0..1e4, 1.0..128.0, 0.01..100.0, 0..1_u64 << 40, 0.0..1e4, pages).prop_map(
            |(working_set, misses, parallelism, locality, shared, shared_writes, pages)| Footprint {
                working_set,
                misses,
                parallelism,
                locality,
                shared,
                shared_writes,
                pages
            }
        )
    ]
}

fn program() -> impl Strategy<Value = ProgramSpec> {
    let cpu = || Just("0".parse::<CpuSet>().unwrap());
    let bind = prop_oneof![
        Just(Bind::Free),
        Just(Bind::Close),
        Just(Bind::Spread),
        vec(cpu(), 1..3).prop_map(|list| Bind::List(list.into())),
        vec(cpu(), 1..3).prop_map(|list| Bind::BeginOn(list.into()))
    ];
    let what = ("[a-z\"\\\\ \u{e9}\n.]{0,8}", 1..9_u32, body(), footprint(), wait(), of(cpu()), bind);
    (what, any::<bool>(), 15..88_761_u32, any::<u32>()).prop_map(
        |((name, threads, body, footprint, wait, mask, bind), balanced, weight, group)| ProgramSpec {
            name,
            start: Moment(0),
            threads,
            body,
            footprint,
            wait,
            mask,
            bind,
            balanced,
            weight,
            group,
        },
    )
}

fn policy() -> impl Strategy<Value = (Kind, Settings)> {
    let metric = prop_oneof![Just(Metric::RunWait), Just(Metric::CpuShare)];
    let kind = 0..Kind::ALL.len();
    let flags = (any::<bool>(), any::<bool>());
    (kind, any::<u64>(), span(1_000_000, 1_000_000_000), metric, 0.01..1.0_f64, flags, penalty()).prop_map(
        |(kind, seed, interval, metric, threshold, (across_nodes, free), penalty)| {
            (Kind::ALL[kind], Settings { seed, interval, metric, threshold, across_nodes, free, penalty })
        },
    )
}

fn penalty() -> impl Strategy<Value = PenaltySettings> {
    let index = of(select(Index::ALL.to_vec()));
    let mean = of(select(Mean::ALL.to_vec()));
    let numbers = (0.0..0.9_f64, 0.0001..1.0_f64, of(0.0..1e6_f64));
    (index, mean, select(Candidates::ALL.to_vec()), any::<bool>(), numbers).prop_map(
        |(index, mean, candidates, move_memory, (margin, budget, moves))| PenaltySettings {
            index,
            mean,
            candidates,
            move_memory,
            margin,
            budget,
            moves,
            bounded: move_memory,
            bias: if move_memory { BiasReading::Least } else { BiasReading::Zeroed },
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let kernel = (0..Kernel::PRESETS.len(), of((span(10_000, 1_000_000_000), any::<bool>(), 1..1000_u32)));
    let programs = vec((program(), span(0, 1_000_000_000)), 1..4);
    let arrivals = vec((program(), span(1_000, 1_000_000_000), 1..1000_u32), 0..2);
    let happening = prop_oneof![
        Just(Happening::Usable("0".parse().unwrap())),
        program().prop_map(|program| Happening::Start(Box::new(program))),
        Just(Happening::Stop(0))
    ];
    let events = vec((span(0, 1_000_000_000), happening), 0..4);
    let chance = || prop_oneof![Just(0.0), 0.0..1.0_f64];
    let faults =
        (chance(), chance(), chance(), chance(), chance(), span(0, 1_000_000_000), of(0..u64::MAX >> 20));
    let rest = (of(policy()), events, faults, span(1_000, 86_400_000_000_000), any::<u64>(), any::<bool>());
    ("[a-z ]{0,8}", model(), kernel, programs, arrivals, rest).prop_map(
        |(
            name,
            model,
            (preset, changed),
            programs,
            arrivals,
            (policy, events, faults, end, seed, memory),
        )| {
            let mut kernel = Kernel::preset(Kernel::PRESETS[preset], model.machine.pu_count()).unwrap();
            if let Some((slice, pull, busy)) = changed {
                (kernel.slice, kernel.idle_pull, kernel.busy_factor) = (slice, pull, busy);
            }
            let mut events: Vec<ScenarioEvent> = events
                .into_iter()
                .map(|(at, what)| ScenarioEvent { at: Moment(at.0 % end.0), what })
                .collect();
            events.sort_by_key(|event| event.at);
            let (lost, stale, refused, delayed, jumps, late, until) = faults;
            Scenario {
                name,
                model,
                memory,
                kernel,
                // All names differ.
                programs: (0..)
                    .zip(programs)
                    .map(|(at, (program, start))| ProgramSpec {
                        name: format!("{}{at}", program.name),
                        start: Moment(start.0 % end.0),
                        ..program
                    })
                    .collect(),
                arrivals: arrivals
                    .into_iter()
                    .map(|(program, every, most)| Arrivals { program, every: every.min(end), most })
                    .collect(),
                observer_cost: policy.as_ref().map_or_else(ObserverCost::default, |_| ObserverCost {
                    each: Span(seed % 1_000_000),
                    thread: Span(seed % 7_000),
                    pair: Span(seed % 11),
                    inside: memory,
                    noise: lost,
                }),
                policy,
                events,
                faults: Faults { lost, stale, refused, delayed, late, jumps, until: until.map(Moment) },
                end: Moment(end.0),
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_written_scenario_is_read_back_as_the_same(scenario in scenario()) {
        let text = write(&scenario);
        let text = text.unwrap_or_else(|error| panic!("{error}"));
        prop_assert_eq!(one(&text, &[]), scenario);
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "(machine = 'core:2'\n)?(\\[\\[program\\]\\]\n)?[a-z\\[\\]=\"' .0-9\n-]{0,80}") {
        let _ = open(&text, &["policy=[speed]"]);
        let _ = open(SMALL, &[&text]);
    }
}
