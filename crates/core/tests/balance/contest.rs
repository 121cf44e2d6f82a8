//! `auto` against all others, in the scenarios it is made for.

use crate::fluid::{Fluid, Kernel, Wait};
use crate::run::{run, settings};
use trimtab_core::balance::Kind;

fn scenarios() -> Vec<(String, Fluid)> {
    let mut all = Vec::new();
    for kernel in [Kernel::Keeps, Kernel::Rotates] {
        for wait in [Wait::Sleep, Wait::Yield, Wait::Spin] {
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
fn auto_is_never_much_worse_than_the_best() {
    for (name, fluid) in scenarios() {
        if !name.contains(&std::env::var("ONLY").unwrap_or_default()) {
            continue;
        }
        eprintln!("{name}");
        let ratio = |kind| run(fluid.clone(), kind, &settings(100, 1)).ratio;
        let others = [Kind::Float, Kind::Pinned, Kind::Speed, Kind::Exchange, Kind::Nudge].map(ratio);
        let auto = run(fluid.clone(), Kind::Auto, &settings(100, 1));
        let best = others.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "{} {name:40} auto {:.3} best {best:.3} | {:.3?} moves {} {:?}",
            if auto.ratio > best * 1.01 { "!!" } else { "  " },
            auto.ratio,
            others,
            auto.moves,
            auto.findings
        );
    }
}

#[test]
fn probe() {
    let fluid = Fluid::new(2, 2, Wait::Spin, Kernel::Rotates).long(2.0).hog(0, false);
    let machine = crate::run::machine(&fluid);
    crate::run::run_with(fluid, &machine, Kind::Auto, &settings(100, 1), &mut |step| {
        println!(
            "{:.3} {:?} {:?}",
            step.seen.at.0 as f64 / 1e9,
            step.seen
                .threads
                .iter()
                .map(|t| (t.cpu.map(|c| c.0), t.rates.map(|r| (r.run * 100.0) as i32)))
                .collect::<Vec<_>>(),
            step.turn
                .decisions
                .iter()
                .map(|d| format!("{} {:?} {}", d.thread, d.act.to(), d.reason))
                .collect::<Vec<_>>()
        );
        trimtab_core::drive::Go::On
    });
}
