//! Tests of `auto` against all other policies, in the scenarios for which it is made.

use crate::fluid::{Fluid, Kernel, WaitMode};
use crate::run::{freeing, run, settings};
use trimtab_core::balance::Kind;

fn scenarios() -> Vec<(String, Fluid)> {
    let mut all = Vec::new();
    for kernel in [Kernel::Keeps, Kernel::Rotates] {
        for wait in [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin] {
            for (threads, cores) in
                [(3, 2), (5, 2), (7, 2), (4, 2), (2, 2), (5, 4), (9, 8), (17, 16), (33, 16)]
            {
                let fluid = Fluid::new(threads, cores, wait, kernel).long(2.0);
                all.push((format!("{threads}/{cores} {wait:?} {kernel:?}"), fluid.clone()));
                all.push((format!("{threads}/{cores} {wait:?} {kernel:?} bound"), fluid.bound()));
            }
            for (threads, cores) in [(2, 2), (3, 2), (4, 4), (8, 8)] {
                for pinned in [false, true] {
                    let fluid = Fluid::new(threads, cores, wait, kernel).long(2.0).hog(0, pinned);
                    all.push((format!("{threads}/{cores} {wait:?} {kernel:?} hog pinned {pinned}"), fluid));
                }
            }
            for barrier in [0.001, 0.01, 0.1] {
                for (threads, cores) in [(3, 2), (5, 4)] {
                    let fluid = Fluid::new(threads, cores, wait, kernel).long(2.0).every(barrier);
                    all.push((
                        format!("{threads}/{cores} {wait:?} {kernel:?} every {barrier}"),
                        fluid.clone(),
                    ));
                    all.push((
                        format!("{threads}/{cores} {wait:?} {kernel:?} every {barrier} bound"),
                        fluid.bound(),
                    ));
                }
            }
            for (threads, speeds) in
                [(2, vec![1.0, 0.5]), (4, vec![1.0, 1.0, 0.5, 0.5]), (5, vec![1.0, 1.0, 0.5, 0.5])]
            {
                let mut fluid = Fluid::new(threads, speeds.len(), wait, kernel).long(2.0);
                fluid.speeds = speeds;
                all.push((format!("{threads} {wait:?} {kernel:?} asymmetric {:?}", fluid.speeds), fluid));
            }
        }
    }
    all
}

#[test]
fn auto_is_never_worse_than_the_best_by_more_than_watching_costs() {
    for (name, fluid) in scenarios() {
        let ratio = |kind| run(fluid.clone(), kind, &settings(100, 1)).ratio;
        let others = [Kind::Float, Kind::Pinned, Kind::Speed, Kind::Exchange, Kind::Nudge].map(ratio);
        let best = others.iter().copied().fold(f64::INFINITY, f64::min);
        let auto = run(fluid.clone(), Kind::Auto, &settings(100, 1));
        // More threads than cores can outnumber a hog on its core, and get more than a fair share:
        // this is not required.
        let best = if fluid.threads.len() > fluid.speeds.len() { best.max(1.0) } else { best };
        // A quarter of a second of watching, of two: a twentieth of the cost of a hog while it is
        // not fenced in.
        assert!(
            auto.ratio < 1.02 * best,
            "{name}: auto {:.3}, others {others:.3?}, {} moves, {:?}",
            auto.ratio,
            auto.moves,
            auto.findings
        );
    }
}

#[test]
fn auto_keeps_its_guarantees() {
    let auto = |fluid: Fluid| run(fluid.long(1.0), Kind::Auto, &freeing(100, 1)).ratio;
    for kernel in [Kernel::Keeps, Kernel::Rotates] {
        for wait in [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin] {
            let most = if wait == WaitMode::Spin { 1.04 } else { 1.02 };
            for threads in [3, 5, 7] {
                let ratio = auto(Fluid::new(threads, 2, wait, kernel));
                assert!(ratio <= most, "{threads} on 2, {wait:?}, {kernel:?}: {ratio}");
                let ratio = auto(Fluid::new(threads, 2, wait, kernel).bound());
                assert!(ratio <= 1.05, "{threads} on 2 bound, {wait:?}, {kernel:?}: {ratio}");
            }
        }
    }
    for wait in [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin] {
        for pinned in [false, true] {
            let fluid = Fluid::new(2, 2, wait, Kernel::Rotates).hog(0, pinned);
            let ratio = run(fluid.long(2.0), Kind::Auto, &settings(100, 1)).ratio;
            assert!(ratio <= 0.92, "two threads and a hog, pinned {pinned}, {wait:?}: {ratio}");
        }
    }
}
