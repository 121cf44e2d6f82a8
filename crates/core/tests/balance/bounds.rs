//! Tests of every policy against the bounds of arithmetic, with a kernel that moves no thread.

use crate::fluid::{Fluid, Kernel, WaitMode};
use crate::run::{median, run, settings};
use trimtab_core::balance::Kind;

const WAITS: [WaitMode; 3] = [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin];

fn even(threads: usize, cores: usize, wait: WaitMode) -> Fluid {
    Fluid::new(threads, cores, wait, Kernel::Keeps)
}

/// Returns ⌈N/M⌉·M/N, the exact price of never moving.
fn price(threads: usize, cores: usize) -> f64 {
    (threads.div_ceil(cores) * cores) as f64 / threads as f64
}

#[test]
fn pinned_pays_the_whole_price() {
    for (threads, cores) in [(3, 2), (5, 2), (7, 2), (5, 4), (9, 8), (17, 16), (31, 16), (33, 16)] {
        for wait in WAITS {
            let ratio = run(even(threads, cores, wait), Kind::Pinned, &settings(100, 0)).ratio;
            assert!((ratio - price(threads, cores)).abs() < 1e-6, "{threads} on {cores}, {wait:?}: {ratio}");
        }
    }
}

#[test]
fn a_core_of_the_model_is_shared_as_the_reference_says() {
    // The independent fluid model that the notes quote: kernels that only pull into idle cores.
    for (threads, cores, wait, ratio) in [
        (3, 2, WaitMode::Sleep, 1.0),
        (3, 2, WaitMode::Yield, 1.333_333),
        (5, 4, WaitMode::Sleep, 1.2),
        (17, 16, WaitMode::Sleep, 1.411_765),
        (33, 16, WaitMode::Sleep, 1.131_313),
        (33, 16, WaitMode::Spin, 1.454_545),
    ] {
        let found = run(even(threads, cores, wait), Kind::Float, &settings(50, 0)).ratio;
        assert!((found - ratio).abs() < 1e-3, "{threads} on {cores}, {wait:?}: {found}, not {ratio}");
    }
}

#[test]
fn exchange_is_within_a_fiftieth_of_the_ideal() {
    for (threads, cores) in [(3, 2), (5, 2), (7, 2), (5, 4), (9, 8), (17, 16), (31, 16), (33, 16)] {
        for wait in WAITS {
            let ratio = run(even(threads, cores, wait), Kind::Exchange, &settings(50, 0)).ratio;
            // A spinner that is done takes its core's share until the next period.
            let most = if wait == WaitMode::Spin { 1.025 } else { 1.02 };
            assert!(ratio < most, "{threads} on {cores}, {wait:?}: {ratio}");
        }
    }
}

#[test]
fn speed_is_as_near_to_the_ideal_as_the_reference() {
    // Medians over seeds at B = T/20 of the independent model, and a margin of four hundredths for
    // the grid of wake-ups.
    for (threads, cores, wait, reference) in [
        (3, 2, WaitMode::Sleep, 1.005),
        (3, 2, WaitMode::Yield, 1.011),
        (3, 2, WaitMode::Spin, 1.025),
        (5, 2, WaitMode::Spin, 1.009),
        (7, 2, WaitMode::Spin, 1.008),
        (5, 4, WaitMode::Yield, 1.071),
        (5, 4, WaitMode::Spin, 1.078),
        (9, 8, WaitMode::Spin, 1.129),
        (17, 16, WaitMode::Yield, 1.113),
        (33, 16, WaitMode::Spin, 1.054),
    ] {
        let ratio = median(&even(threads, cores, wait), Kind::Speed, 50);
        assert!(ratio < reference + 0.04, "{threads} on {cores}, {wait:?}: {ratio}, reference {reference}");
    }
}

#[test]
fn the_threshold_leaves_a_tenth_and_less_alone() {
    let ran = run(even(31, 16, WaitMode::Yield), Kind::Speed, &settings(50, 1));
    assert!((ran.ratio - price(31, 16)).abs() < 1e-3, "{}", ran.ratio);
    assert!(ran.moves <= 33, "the dealing, and waiters at the end that have no speed: {}", ran.moves);
}

#[test]
fn nudge_does_as_well_where_the_kernel_keeps_hands_off() {
    for (threads, cores) in [(3, 2), (5, 4)] {
        let fluid = even(threads, cores, WaitMode::Yield);
        let (nudge, speed) = (median(&fluid, Kind::Nudge, 50), median(&fluid, Kind::Speed, 50));
        assert!(nudge < speed + 0.03, "{threads} on {cores}: {nudge} against {speed}");
    }
}

#[test]
fn a_pinned_hog_is_shared_by_all() {
    for (threads, cores) in [(2, 2), (4, 4), (16, 16)] {
        let fluid = even(threads, cores, WaitMode::Yield).hog(0, true);
        let fair = (threads + 1) as f64 / cores as f64;
        let pinned = run(fluid.clone(), Kind::Pinned, &settings(50, 0)).ratio;
        assert!((pinned - 2.0 / fair).abs() < 1e-3, "the one beside the hog has half a core: {pinned}");
        let best = (threads as f64 / (cores as f64 - 0.5)) / fair;
        let exchange = run(fluid.clone(), Kind::Exchange, &settings(50, 0)).ratio;
        assert!(exchange < best + 0.06, "{threads} on {cores}: {exchange}, ideal {best}");
        assert!(exchange < 1.0, "{threads} on {cores}: {exchange} of the fair share");
        let speed = median(&fluid, Kind::Speed, 50);
        assert!(speed < 1.1, "{threads} on {cores}: {speed}");
    }
}

#[test]
fn cores_of_different_speed_are_taken_in_turns() {
    for (threads, speeds) in
        [(2, vec![1.0, 0.5]), (4, vec![1.0, 1.0, 0.5, 0.5]), (6, vec![1.0, 1.0, 0.4, 0.4])]
    {
        let mut fluid = Fluid::new(threads, speeds.len(), WaitMode::Spin, Kernel::Keeps);
        fluid.speeds = speeds;
        let pinned = run(fluid.clone(), Kind::Pinned, &settings(50, 0)).ratio;
        let exchange = run(fluid.clone(), Kind::Exchange, &settings(50, 0)).ratio;
        let speed = median(&fluid, Kind::Speed, 50);
        assert!(exchange < 1.03, "{threads}: {exchange}, pinned {pinned}");
        assert!(speed < pinned && speed < 1.2, "{threads}: {speed}, pinned {pinned}");
    }
}
