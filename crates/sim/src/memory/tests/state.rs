//! Properties of the memory model on any machine.

use super::MemoryRig;
use crate::memory::EPOCH_PERIOD_MAX;
use crate::program::{Footprint, PagePlacement};
use proptest::prelude::*;
use trimtab_core::ids::{Id, NodeId, Pu};
use trimtab_core::time::{Moment, Span};

fn hungry(set: u64) -> Footprint {
    Footprint { working_set: set, misses: 20.0, parallelism: 2.0, ..Footprint::default() }
}

#[test]
fn threads_without_misses_cost_nothing() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let thread = bench.run(0, &Footprint::default(), 0);
    // A shared set that no thread writes has no effect either.
    bench.run(0, &Footprint { shared: 4096, ..Footprint::default() }, 1);
    assert_eq!((bench.memory.rate(thread), bench.memory.next()), (1.0, None));
    bench.memory.off_cpu(Moment(5), thread);
    bench.memory.remove(Moment(5), thread);
    assert_eq!(bench.memory.next(), None);
    // Threads that were never added run at full speed too.
    bench.memory.on_cpu(Moment(9), 77, Pu(3));
    assert_eq!(bench.memory.rate(77), 1.0);
    bench.memory.off_cpu(Moment(10), 77);
}

#[test]
fn epochs_become_rare_when_nothing_changes_and_stop_when_no_thread_runs() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let thread = bench.run(0, &hungry(1 << 20), 0);
    bench.pass(1_000, thread);
    let due = bench.memory.next().unwrap();
    assert!(due.since(bench.now) <= EPOCH_PERIOD_MAX);
    let mut changed = Vec::new();
    bench.memory.epoch(due, &mut changed);
    assert_eq!(bench.memory.next(), Some(due + EPOCH_PERIOD_MAX));
    assert!(changed.is_empty());
    bench.memory.off_cpu(due + Span(7), thread);
    assert_eq!(bench.memory.next(), None);
}

#[test]
fn a_moved_thread_is_slow_until_its_new_cache_is_warm_and_finds_its_old_cache_warm() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let thread = bench.run(0, &hungry(8 << 20), 0);
    let warm = bench.settled(thread);
    bench.memory.off_cpu(bench.now, thread);
    bench.memory.on_cpu(bench.now, thread, Pu(8));
    let cold = bench.pass(1, thread);
    assert!(cold < 0.7 * warm, "cold {cold}, warm {warm}");
    let away = bench.settled(thread);
    assert!((away / warm - 1.0).abs() < 0.01, "a set that fits does not notice where its pages are");
    bench.memory.off_cpu(bench.now, thread);
    bench.memory.on_cpu(bench.now, thread, Pu(0));
    let back = bench.pass(1, thread);
    assert!(back > 0.9 * warm, "what it left was still there: {back} of {warm}");
}

#[test]
fn cached_data_of_an_absent_thread_is_evicted_by_the_next_one() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let first = bench.run(0, &hungry(8 << 20), 0);
    bench.settled(first);
    bench.memory.off_cpu(bench.now, first);
    let second = bench.run(1, &hungry(64 << 20), 1);
    bench.pass(500, second);
    bench.memory.off_cpu(bench.now, second);
    bench.memory.on_cpu(bench.now, first, Pu(0));
    assert!(bench.memory.held(first) < 1e6, "{}", bench.memory.held(first));
}

#[test]
fn pages_lie_where_they_were_put_and_can_be_moved() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let set = |pages| Footprint { pages, ..hungry(64 << 20) };
    let touched = bench.run(0, &set(PagePlacement::FirstTouch), 8);
    let master = bench.run(0, &set(PagePlacement::Master), 1);
    let spread = bench.run(0, &set(PagePlacement::Interleave), 2);
    let fixed = bench.run(0, &set(PagePlacement::Node(0)), 9);
    assert_eq!(bench.memory.pages(touched), [(NodeId(1), 1.0)]);
    assert_eq!(bench.memory.pages(master), [(NodeId(1), 1.0)]);
    assert_eq!(bench.memory.pages(spread), [(NodeId(0), 0.5), (NodeId(1), 0.5)]);
    assert_eq!(bench.memory.pages(fixed), [(NodeId(0), 1.0)]);
    let far = bench.settled(fixed);
    let cost = bench.memory.move_pages(bench.now, fixed, NodeId(1), 1.0);
    assert!(cost > Span::from_ms(10) && cost < Span::from_ms(100), "{cost}");
    assert!(bench.settled(fixed) > 1.05 * far);
    assert_eq!(bench.memory.pages(fixed), [(NodeId(1), 1.0)]);
    assert_eq!(bench.memory.move_pages(bench.now, fixed, NodeId(1), 1.0), Span::ZERO);
    assert_eq!(bench.memory.move_pages(bench.now, fixed, NodeId(0), f64::NAN), Span::ZERO);
}

#[test]
fn a_busy_sibling_slows_the_core_but_hides_waiting() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let chase = Footprint { working_set: 256 << 20, misses: 20.0, parallelism: 1.0, ..Footprint::default() };
    let alone = bench.run(0, &chase, 0);
    let slow = bench.settled(alone);
    bench.run(1, &Footprint::default(), 1);
    // The core gives it 0.625 of its speed, but this does not matter while the thread waits.
    let beside = bench.settled(alone);
    assert!(beside > slow, "{beside} against {slow}");
    assert!(beside * 0.625 > 0.75 * slow, "{beside} against {slow}");
}

#[test]
fn counters_match_the_simulated_events() {
    let mut bench = MemoryRig::new("westmere-e5620");
    let thread = bench.run(0, &Footprint { pages: PagePlacement::Node(1), ..hungry(64 << 20) }, 0);
    let work = bench.pass(500, thread);
    let running = bench.memory.counts(bench.now, thread);
    bench.memory.off_cpu(bench.now, thread);
    let counts = bench.memory.counts(bench.now, thread);
    assert_eq!(running, counts, "leaving its CPU counts nothing");
    let later = bench.memory.counts(bench.now + Span::from_ms(9), thread);
    assert_eq!(later, counts, "nor does not being on one");
    assert!((counts.requests / (work * 1000.0 * 20.0) - 1.0).abs() < 0.01, "{counts:?} for {work} ms");
    assert!((counts.waited_ns / (500e6 - work * 1e6) - 1.0).abs() < 0.01, "{counts:?}");
    assert_eq!(counts.local, 0.0);
    assert!(counts.remote > 0.5 * counts.requests && counts.remote <= counts.requests);
}

#[derive(Clone, Debug)]
enum MemoryStep {
    On(usize, usize),
    Off(usize),
    Epoch(u64),
    Pages(usize, u32, f64),
}

fn steps() -> impl Strategy<Value = Vec<MemoryStep>> {
    let step = prop_oneof![
        3 => (0..12usize, 0..16usize).prop_map(|(thread, pu)| MemoryStep::On(thread, pu)),
        2 => (0..12usize).prop_map(MemoryStep::Off),
        4 => (0..3_000_000u64).prop_map(MemoryStep::Epoch),
        1 => (0..12usize, 0..3u32, -0.5..1.5f64).prop_map(|(thread, node, part)| MemoryStep::Pages(thread, node, part)),
    ];
    proptest::collection::vec(step, 0..120)
}

fn footprints() -> impl Strategy<Value = Vec<Footprint>> {
    let footprint = (0..1u64 << 27, 0.0..200.0f64, 0.5..16.0f64, 0.1..3.0f64, 0..1u64 << 17, 0.0..50.0f64)
        .prop_map(|(working_set, misses, parallelism, locality, shared, shared_writes)| Footprint {
            working_set,
            misses,
            parallelism,
            locality,
            shared,
            shared_writes,
            pages: PagePlacement::FirstTouch,
        });
    proptest::collection::vec(footprint, 12)
}

proptest! {
    #[test]
    fn rates_and_holdings_stay_possible_and_equal_runs_are_equal(footprints in footprints(), steps in steps()) {
        let run = || {
            let mut bench = MemoryRig::new("nehalem-e5530");
            for (thread, footprint) in footprints.iter().enumerate() {
                bench.memory.add(thread, thread % 3, footprint);
            }
            let (mut on, mut used) = (vec![None; 12], [false; 16]);
            let mut seen = Vec::new();
            for step in &steps {
                match *step {
                    MemoryStep::On(thread, pu) if on[thread].is_none() && !used[pu] => {
                        bench.memory.on_cpu(bench.now, thread, Pu::from_index(pu));
                        (on[thread], used[pu]) = (Some(pu), true);
                    }
                    MemoryStep::Off(thread) => {
                        if let Some(pu) = on[thread].take() {
                            bench.memory.off_cpu(bench.now, thread);
                            used[pu] = false;
                        }
                    }
                    MemoryStep::Epoch(ns) => {
                        bench.now = bench.now + Span(ns);
                        let mut changed = Vec::new();
                        bench.memory.epoch(bench.now, &mut changed);
                        seen.extend(changed.iter().map(|&thread| thread as f64));
                    }
                    MemoryStep::Pages(thread, node, part) => {
                        bench.memory.move_pages(bench.now, thread, NodeId(node), part);
                    }
                    MemoryStep::On(..) => {}
                }
                for thread in 0..12 {
                    let rate = bench.memory.rate(thread);
                    assert!(rate > 0.0 && rate <= 1.0, "{rate}");
                    let held = bench.memory.held(thread);
                    assert!((0.0..=8.0 * 1048576.0 + 1.0).contains(&held), "{held}");
                    let pages: f64 = bench.memory.pages(thread).iter().map(|&(_, part)| part).sum();
                    assert!(pages == 0.0 || (pages - 1.0).abs() < 1e-6, "{pages}");
                    seen.extend([rate, held]);
                }
                for llc in &bench.memory.llcs {
                    assert!((0.0..=8.0 * 1048576.0 + 1.0).contains(&llc.parked), "{}", llc.parked);
                }
                assert_eq!(bench.memory.next().is_some(), on.iter().enumerate().any(|(thread, on)| on.is_some() && bench.memory.task(thread).is_some()));
            }
            seen
        };
        let (one, two) = (run(), run());
        assert!(one.iter().zip(&two).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
