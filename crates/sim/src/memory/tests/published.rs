//! Tests against published results on machines whose files do not use them: the single- and
//! multi-factor curves of the study of bias random migration (seed 002), of which the text gives
//! shapes, not numbers; and STREAM in nested teams (seed 004), of which it gives numbers.

use super::MemoryRig;
use crate::program::mixes::STREAM;
use crate::program::{Footprint, PagePlacement};

const SIZES: [u64; 8] = [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20];

/// Returns a walk through a random list: each step needs the previous one, and misses the private
/// caches if the list is longer than they are.
fn walk(set: u64) -> Footprint {
    // A step alone takes about five nanoseconds of work, for an addition and a hit.
    Footprint { working_set: set, misses: 200.0, parallelism: 1.0, ..Footprint::default() }
}

/// Returns the time that the first of the threads takes for the same work, over its time alone.
fn time(threads: &[(usize, Footprint)]) -> f64 {
    let mut bench = MemoryRig::new("westmere-e5620");
    let started: Vec<usize> = threads.iter().map(|(pu, footprint)| bench.run(0, footprint, *pu)).collect();
    1.0 / bench.settled(started[0])
}

fn penalties(of: impl Fn(u64) -> f64) -> Vec<f64> {
    SIZES.iter().map(|&set| of(set)).collect()
}

#[test]
fn remote_memory_slows_down_only_beyond_the_cache_and_then_increasingly() {
    let penalty = penalties(|set| {
        let at = |node| time(&[(0, Footprint { pages: PagePlacement::Node(node), ..walk(set) })]);
        at(1) / at(0)
    });
    for (set, penalty) in SIZES.iter().zip(&penalty).take(4) {
        assert!((penalty - 1.0).abs() < 0.01, "{set} fits in 12 MB: {penalty}");
    }
    assert!(penalty[4..].windows(2).all(|pair| pair[1] > pair[0]), "{penalty:?}");
    assert!(penalty[4] > 1.1 && penalty[7] > 1.3 && penalty[7] < 1.6, "{penalty:?}");
}

#[test]
fn sharing_the_cache_slows_down_where_the_sets_stop_fitting_and_less_beyond() {
    let penalty = penalties(|set| {
        let on = |pus: [usize; 4]| time(&pus.map(|pu| (pu, walk(set))));
        on([0, 2, 4, 6]) / on([0, 2, 8, 10])
    });
    // Four sets of 2 MB fit in 12 MB.
    assert!(penalty[..2].iter().all(|penalty| (penalty - 1.0).abs() < 0.01), "{penalty:?}");
    let worst = penalty.iter().copied().fold(0.0, f64::max);
    let at = penalty.iter().position(|&penalty| penalty == worst).unwrap();
    assert!((2..=4).contains(&at) && worst > 1.2, "{penalty:?}");
    assert!(penalty[at..].windows(2).all(|pair| pair[1] < pair[0]), "fades: {penalty:?}");
    assert!(penalty[7] < 1.1, "{penalty:?}");
}

#[test]
fn writing_one_line_from_two_sockets_costs_more_at_first_and_then_less() {
    // One line, nothing else: an addition of some nanoseconds between the writes.
    let line = Footprint { shared: 64, shared_writes: 200.0, ..Footprint::default() };
    // More threads than cores take turns: the relevant time is that of one write of each.
    let round = |threads: usize, pus: &[usize]| {
        let mut bench = MemoryRig::new("westmere-e5620");
        let running: Vec<usize> = pus.iter().take(threads).map(|&pu| bench.run(0, &line, pu)).collect();
        bench.settled(running[0]);
        threads as f64 / running.iter().map(|&thread| bench.memory.rate(thread)).sum::<f64>()
    };
    let overhead =
        |threads: usize| round(threads, &[0, 8, 2, 10, 4, 12, 6, 14]) / round(threads, &[0, 2, 4, 6]);
    assert_eq!(overhead(1), 1.0);
    let curve: Vec<f64> = [1, 2, 4, 6, 8, 10, 12].map(overhead).to_vec();
    let worst = curve.iter().copied().fold(0.0, f64::max);
    let at = curve.iter().position(|&overhead| overhead == worst).unwrap();
    assert!(worst > 1.5, "{curve:?}");
    assert!((1..=2).contains(&at), "rises at first: {curve:?}");
    assert!(curve[at..].windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "then falls: {curve:?}");
    assert!(curve[4] < 0.8 * worst && curve[6] > 1.0, "{curve:?}");
}

#[test]
fn the_dominant_factor_switches_with_the_working_set() {
    // Four threads with data on node 0: together there, or half of them away with a cache of their
    // own.
    let ratio = penalties(|set| {
        let on = |pus: [usize; 4]| {
            let threads = pus.map(|pu| (pu, Footprint { pages: PagePlacement::Node(0), ..walk(set) }));
            // The slowest decides, which is the last of the threads.
            let reversed: Vec<_> = threads.into_iter().rev().collect();
            time(&reversed)
        };
        on([0, 2, 4, 6]) / on([0, 2, 8, 10])
    });
    assert!((ratio[0] - 1.0).abs() < 0.01, "{ratio:?}");
    assert!(ratio[2] > 1.1, "contention for the cache decides at 4 MB: {ratio:?}");
    assert!(ratio[7] < 0.85, "remote memory decides at 128 MB: {ratio:?}");
}

#[test]
fn the_dominant_factor_depends_on_the_shared_resource() {
    // A fixed private set of 4 MB; in each round over a part of it, every line of a shared set is
    // written once. The text does not give the length of a round; a thirty-second part is assumed.
    let ratio: Vec<f64> = [4u64, 8, 16, 32, 64, 128]
        .into_iter()
        .map(|kilobytes| {
            let shared = kilobytes << 10;
            let part = shared as f64 / (4 << 20) as f64;
            let writes = 200.0 * part * 32.0;
            let footprint = Footprint { shared, shared_writes: writes, ..walk(4 << 20) };
            let on = |pus: [usize; 4]| time(&pus.map(|pu| (pu, footprint)));
            on([0, 2, 4, 6]) / on([0, 2, 8, 10])
        })
        .collect();
    assert!(ratio[0] > 1.1, "contention for the cache decides where little is shared: {ratio:?}");
    assert!(ratio[5] < 1.0, "sharing decides where much is: {ratio:?}");
    assert!(ratio.windows(2).all(|pair| pair[1] < pair[0]), "{ratio:?}");
}

/// Returns the bandwidth of threads on these hardware threads together, GB/s.
fn stream(machine: &str, pus: &[usize]) -> f64 {
    let mut bench = MemoryRig::new(machine);
    let threads: Vec<usize> = pus.iter().enumerate().map(|(at, &pu)| bench.run(at, &STREAM, pu)).collect();
    bench.settled(threads[0]);
    threads.iter().map(|&thread| bench.memory.bandwidth(thread)).sum()
}

fn close(machine: &str, pus: &[usize], published: f64, within: f64) {
    let found = stream(machine, pus);
    assert!((found / published - 1.0).abs() < within, "{machine} {pus:?}: {found:.2}, published {published}");
}

#[test]
fn stream_reaches_the_bandwidth_of_the_calibration() {
    let all: Vec<usize> = (0..16).collect();
    close("barcelona-8356", &[0], 4.4, 0.05);
    close("barcelona-8356", &[0, 1, 2, 3], 7.6, 0.05);
    close("barcelona-8356", &[0, 4, 8, 12], 15.8, 0.05);
    close("tigerton-x7350", &[0], 2.3, 0.05);
    close("tigerton-x7350", &[0, 1, 2, 3], 3.0, 0.05);
    close("tigerton-x7350", &all, 8.5, 0.05);
    close("scalemp-e5420", &[0], 3.8, 0.05);
    close("scalemp-e5420", &[0, 1, 2, 3], 5.9, 0.05);
}

#[test]
fn stream_held_out() {
    // Bound, one thread on each socket or board: the sum of the single bandwidths, up to the
    // machine's limit.
    close("tigerton-x7350", &[0, 4, 8, 12], 8.2, 0.15);
    close("scalemp-e5420", &[0, 8, 16, 24], 14.4, 0.10);
    close("scalemp-e5420", &[0, 8, 16, 24, 32, 40], 20.4, 0.15);
    close("scalemp-e5420", &(0..13).map(|board| board * 8).collect::<Vec<_>>(), 43.0, 0.20);
}

#[test]
fn stream_held_out_and_missed() {
    // Four threads on each socket or board get less together than in the model: pages conflict in
    // the memory, and vSMP's own work on each board takes part of the bandwidth. Neither is in the
    // model. The order is right: they never get more than the model allows.
    let all: Vec<usize> = (0..16).collect();
    let found = stream("barcelona-8356", &all);
    assert!(found > 13.1 && found < 1.4 * 13.1, "{found}");
    let boards = |count: usize| -> Vec<usize> { (0..count * 4).map(|at| at / 4 * 8 + at % 4).collect() };
    for (count, published) in [(4, 18.8), (6, 15.8), (13, 27.8)] {
        let found = stream("scalemp-e5420", &boards(count));
        assert!(found > published, "{count} boards: {found}, published {published}");
    }
}
