//! Comparison of the model with measurements: programs on two CPUs under Linux 6.12 and 6.1, in a
//! quiet virtual machine.
//!
//! Figures are makespans over fair shares, medians; the measured ones are of the project's own
//! experiments.

use crate::run::{alone, cores, driven, kernel, median, ratio, spmd};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::drive::Go;
use trimtab_core::time::Span;
use trimtab_sim::model::Model;
use trimtab_sim::program::{Bind, Body, ProgramSpec, WaitMode};

const HYBRID: WaitMode = WaitMode::SpinThenSleep(Span::from_us(50));

struct MeasuredRow {
    kernel: &'static str,
    threads: u32,
    hogs: u32,
    every: Option<u64>,
    wait: WaitMode,
    pinned: bool,
    measured: f64,
}

fn rows() -> Vec<MeasuredRow> {
    let row = |kernel, threads, hogs, every, wait, pinned, measured| MeasuredRow {
        kernel,
        threads,
        hogs,
        every,
        wait,
        pinned,
        measured,
    };
    let (new, old) = ("linux-6.12", "linux-6.1");
    let (spin, lazy, sleep) = (WaitMode::Spin, WaitMode::Yield, WaitMode::Sleep);
    vec![
        row(new, 3, 0, None, sleep, false, 1.01),
        row(new, 3, 0, None, lazy, false, 1.03),
        row(new, 3, 0, None, spin, false, 1.11),
        row(old, 3, 0, None, sleep, false, 1.03),
        row(old, 3, 0, None, lazy, false, 1.07),
        row(old, 3, 0, None, spin, false, 1.06),
        row(new, 3, 0, None, sleep, true, 1.28),
        row(new, 3, 0, None, lazy, true, 1.31),
        row(new, 3, 0, None, spin, true, 1.45),
        row(new, 5, 0, None, lazy, false, 1.01),
        row(new, 7, 0, None, lazy, false, 1.01),
        row(new, 3, 0, Some(1), spin, false, 2.94),
        row(new, 3, 0, Some(1), lazy, false, 1.38),
        row(new, 3, 0, Some(1), sleep, false, 1.40),
        row(new, 3, 0, Some(1), HYBRID, false, 1.50),
        row(new, 3, 0, Some(10), spin, false, 1.46),
        row(new, 3, 0, Some(10), lazy, false, 1.28),
        row(new, 3, 0, Some(10), sleep, false, 1.13),
        row(new, 3, 0, Some(10), HYBRID, false, 1.15),
        row(new, 3, 0, Some(100), spin, false, 1.33),
        row(new, 3, 0, Some(100), lazy, false, 1.09),
        row(new, 3, 0, Some(100), sleep, false, 1.06),
        row(new, 3, 0, Some(100), HYBRID, false, 1.07),
        row(old, 3, 0, Some(1), spin, false, 3.92),
        row(old, 3, 0, Some(1), lazy, false, 1.39),
        row(old, 3, 0, Some(1), sleep, false, 1.42),
        row(old, 3, 0, Some(10), spin, false, 1.43),
        row(old, 3, 0, Some(10), lazy, false, 1.34),
        row(old, 3, 0, Some(10), sleep, false, 1.18),
        row(old, 3, 0, Some(100), spin, false, 1.26),
        row(old, 3, 0, Some(100), lazy, false, 1.26),
        row(old, 3, 0, Some(100), sleep, false, 1.09),
        row(new, 3, 0, Some(1), lazy, true, 1.51),
        row(new, 3, 0, Some(10), spin, true, 1.51),
        row(new, 3, 0, Some(10), sleep, true, 1.30),
        row(new, 3, 0, Some(100), sleep, true, 1.36),
        row(new, 4, 0, Some(1), spin, false, 2.48),
        row(new, 4, 0, Some(1), lazy, false, 1.17),
        row(new, 4, 0, Some(1), sleep, false, 1.25),
        row(new, 4, 0, Some(1), HYBRID, false, 1.20),
        row(new, 4, 0, Some(10), spin, false, 1.25),
        row(new, 4, 0, Some(10), lazy, false, 1.21),
        row(new, 4, 0, Some(10), sleep, false, 1.07),
        row(new, 4, 0, Some(10), HYBRID, false, 1.10),
        row(new, 4, 0, Some(100), spin, false, 1.13),
        row(new, 4, 0, Some(100), lazy, false, 1.04),
        row(new, 4, 0, Some(100), sleep, false, 1.02),
        row(new, 2, 1, Some(1), spin, false, 1.81),
        row(new, 2, 1, Some(1), lazy, false, 1.50),
        row(new, 2, 1, Some(1), sleep, false, 1.40),
        row(new, 2, 1, Some(10), spin, false, 1.41),
        row(new, 2, 1, Some(10), lazy, false, 1.34),
        row(new, 2, 1, Some(10), sleep, false, 1.30),
        row(new, 2, 1, Some(100), spin, false, 1.15),
        row(new, 2, 1, Some(100), lazy, false, 1.11),
        row(new, 2, 1, Some(100), sleep, false, 1.08),
        row(new, 2, 1, None, sleep, false, 1.02),
        row(new, 2, 1, None, lazy, false, 1.05),
        row(new, 2, 1, None, spin, false, 1.05),
        row(new, 2, 1, None, sleep, true, 0.89),
        row(new, 2, 1, None, lazy, true, 0.90),
        row(new, 2, 1, None, spin, true, 0.93),
    ]
}

fn modelled(row: &MeasuredRow) -> f64 {
    let one = |seed| {
        let bind = if row.pinned { Bind::Close } else { Bind::Free };
        let mut program = spmd(row.threads, row.every, row.wait).bound(bind);
        if let Body::Spmd { jitter, .. } = &mut program.body {
            *jitter = 0.02;
        }
        // A guest is never fully quiet: timers, workers of the kernel, its shell.
        let duty = Some((Span::from_us(100), Span::from_ms(20)));
        let mut programs =
            vec![program, ProgramSpec { body: Body::Hog { duty }, ..ProgramSpec::hog("guest", 2) }];
        if row.hogs > 0 {
            programs.push(ProgramSpec::hog("hog", row.hogs));
        }
        let world = alone(Model::plain(cores(2)), &kernel(row.kernel, 2), programs, seed);
        ratio(&world, (row.threads + row.hogs) as usize, 2)
    };
    median((0..9).map(one).collect())
}

#[test]
fn the_model_has_the_order_of_the_measurements() {
    let rows = rows();
    let ours: Vec<f64> = rows.iter().map(modelled).collect();
    let mut errors = Vec::new();
    for (row, ours) in rows.iter().zip(&ours) {
        let error = ours / row.measured - 1.0;
        errors.push(error.abs());
        println!(
            "{:10} {}+{} every {:>6} {:28} {:6} measured {:.2} model {:.2} {:+.0} %",
            row.kernel,
            row.threads,
            row.hogs,
            row.every.map_or("-".to_owned(), |ms| format!("{ms} ms")),
            format!("{:?}", row.wait),
            if row.pinned { "pinned" } else { "free" },
            row.measured,
            ours,
            100.0 * error
        );
    }
    println!("median error {:.1} %", 100.0 * median(errors.clone()));
    let (mut right, mut pairs) = (0, 0);
    for a in 0..rows.len() {
        for b in 0..a {
            // Differences within the spread of the measurements define no order.
            if (rows[a].measured / rows[b].measured).ln().abs() > 0.08 {
                pairs += 1;
                right += i32::from((ours[a] > ours[b]) == (rows[a].measured > rows[b].measured));
            }
        }
    }
    println!("{right} of {pairs} pairs in order");
    assert!(median(errors) < 0.08);
    assert!(f64::from(right) / f64::from(pairs) > 0.9);
}

#[test]
fn policies_over_the_model() {
    for kind in [Kind::Float, Kind::Pinned, Kind::Speed, Kind::Exchange, Kind::Nudge, Kind::Auto] {
        for wait in [WaitMode::Sleep, WaitMode::Yield, WaitMode::Spin] {
            let one = |seed| {
                let settings = Settings { seed, ..Settings::default() };
                let programs = vec![spmd(3, None, wait)];
                let model = Model::plain(cores(2));
                let kernel = kernel("linux-6.12", 2);
                let world = driven(model, &kernel, programs, kind, &settings, &mut |_| Go::On);
                ratio(&world, 3, 2)
            };
            println!("{kind} {wait:?} {:.2}", median((0..9).map(one).collect()));
        }
    }
}
