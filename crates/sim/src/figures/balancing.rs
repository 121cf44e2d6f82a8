//! Figures of speed balancing against the kernel's own balancing, fixed placement and round slices:
//! seed 001 and the analysis behind it.

use super::draft::{
    Contestant, DWRR, Draft, LOAD, PINNED, SPEED, first, machine, on_first, profile, scenario,
};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::model::Model;
use crate::program::{ProgramSpec, WaitMode};
use trimtab_core::time::Span;

const RUNS_PER_CELL: u32 = 3;
const WAITS: [(&str, WaitMode); 2] = [("SLEEP", WaitMode::Sleep), ("YIELD", WaitMode::Yield)];

const BETTER: &str =
    "Load Balancing on Speed, abstract: better than Linux load balancing in all cases considered";
const AS_DWRR: &str = "Load Balancing on Speed, abstract: comparable to or better than DWRR";
const EVENLY: &str =
    "Load Balancing on Speed, EP, as recalled: PINNED good where 16 is a multiple of the cores";
const RULE: &str = "Load Balancing on Speed, EP, as recalled: SPEED near ideal at every core count, PINNED only where the threads divide";

/// Returns the speed-up: the time on one core over the time that 16 threads took.
fn speed_up(of: &Measure, serial: f64) -> Measure {
    Measure::Given(serial).over(of)
}

/// Returns the figure of EP with 16 threads on 2 to 16 cores.
pub(super) fn cores() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "balancing",
        "EP.C with 16 threads on 2 to 16 cores: speed-up",
        "seed 001, speed balancing: SPEED, DWRR, PINNED, LOAD with SLEEP and YIELD barriers",
        ["cores", "speed-up"],
    );
    let ep = profile("ep")?;
    let mut means = [const { Vec::new() }; 4];
    for (place, name) in [("UMA Tigerton", "tigerton-e7310"), ("NUMA Barcelona", "barcelona-8350")] {
        let model = machine(name)?;
        for cores in 2..=16 {
            for (how, wait) in WAITS {
                let speed = |draft: &mut Draft, of: Contestant| -> Result<Measure, FigureError> {
                    let program = ep.program(16, wait, f64::INFINITY);
                    let label = format!("{name} {cores} {} {how}", of.name);
                    let cell = draft.cell(
                        &label,
                        on_first(scenario(&model, of, vec![program])?, cores),
                        Metric::Makespan(0),
                        RUNS_PER_CELL,
                    );
                    let up = speed_up(&cell, ep.work);
                    draft.point(format!("{place} {}-{how}", of.name), cores, &up);
                    Ok(up)
                };
                let all = [
                    speed(&mut draft, SPEED)?,
                    speed(&mut draft, LOAD)?,
                    speed(&mut draft, PINNED)?,
                    speed(&mut draft, DWRR)?,
                ];
                if place.starts_with("UMA") {
                    orders(&mut draft, cores, how, &all)?;
                } else {
                    for (mean, measure) in means.iter_mut().zip(all) {
                        mean.push(measure);
                    }
                }
            }
        }
    }
    let [fast, load, pinned, _] = means.map(Measure::Mean);
    let validated = "seed 001: validated on NUMA (AMD Barcelona)";
    draft.claim(
        "Barcelona, mean: SPEED at least as fast as LOAD",
        validated,
        &fast,
        Relation::AtLeast,
        &load,
    );
    draft.claim(
        "Barcelona, mean: SPEED at least as fast as PINNED",
        validated,
        &fast,
        Relation::AtLeast,
        &pinned,
    );
    few(&mut draft)?;
    Ok(draft.done(&[
        "The text gives the contestants, not the heights of the curves: PINNED's follow from its rule, 16 over the most threads on a core.",
        "The texts show no curve of EP on Barcelona; it is drawn, and only its mean is judged. SPEED moves no thread to another node there, as published: where the cores cross nodes, threads that are dealt out round robin stay uneven between nodes, and SPEED falls behind LOAD with SLEEP, and behind DWRR.",
        "DWRR is modelled by its round slices and stealing alone, at no cost, and comes closer to ideal than any kernel did: where SPEED falls behind it, by 3 to 5 %, SPEED still needs its two clean intervals a move.",
    ]))
}

/// Adds the texts' claims about one core count on Tigerton, about SPEED, LOAD, PINNED and DWRR.
fn orders(draft: &mut Draft, cores: u32, how: &str, all: &[Measure; 4]) -> Result<(), FigureError> {
    let [fast, load, pinned, dwrr] = all;
    let says = |than: &str| format!("Tigerton, {cores} cores, {how}: SPEED at least as fast as {than}");
    draft.claim(says("LOAD"), BETTER, fast, Relation::AtLeast, load);
    draft.claim(says("DWRR"), AS_DWRR, fast, Relation::AtLeast, dwrr);
    draft.claim(says("PINNED"), RULE, fast, Relation::AtLeast, pinned);
    if 16 % cores == 0 {
        let what = format!("Tigerton, {cores} cores, {how}: PINNED as fast as SPEED");
        draft.claim(what, EVENLY, pinned, Relation::Alike, fast);
    }
    if how == "YIELD" && [2, 4, 6, 8, 12, 16].contains(&cores) {
        draft.beside(&format!("balancing/pinned/{cores}"), pinned.clone())?;
    }
    Ok(())
}

/// Adds three threads on two cores, and 17 on 16.
fn few(draft: &mut Draft) -> Result<(), FigureError> {
    let model = machine("tigerton-e7310")?;
    // Long compared with the interval of 100 ms, as the analysis assumes.
    let work = Span::from_ms(20_000);
    let time =
        |draft: &mut Draft, of: Contestant, threads: u32, cores: u32| -> Result<Measure, FigureError> {
            let program = ProgramSpec::spmd("equal", threads, work, WaitMode::Yield);
            let label = format!("{threads} on {cores} {}", of.name);
            let cell = draft.cell(
                &label,
                on_first(scenario(&model, of, vec![program])?, cores),
                Metric::Makespan(0),
                RUNS_PER_CELL,
            );
            Ok(cell.over(&Measure::Given(20.0)))
        };
    for (of, key) in [(LOAD, "load"), (PINNED, "pinned"), (SPEED, "speed")] {
        let three = time(draft, of, 3, 2)?;
        draft.beside(&format!("balancing/3-on-2/{key}"), three)?;
    }
    let exchange =
        Contestant { name: "EXCHANGE", policy: Some(trimtab_core::balance::Kind::Exchange), ..LOAD };
    let (fixed, balanced) = (time(draft, PINNED, 17, 16)?, time(draft, exchange, 17, 16)?);
    draft.beside("balancing/17-on-16/gain", fixed.over(&balanced))
}

/// Returns the figure of benchmarks with barriers, 16 threads on fewer cores.
pub(super) fn barriers() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "barriers",
        "Benchmarks with barriers, 16 threads on 4 to 16 cores of Tigerton: speed-up",
        "seed 001, speed balancing: workloads with SLEEP and YIELD barriers",
        ["benchmark and cores", "speed-up"],
    );
    let model = machine("tigerton-e7310")?;
    for name in ["ft", "is", "sp", "bt", "cg"] {
        let benchmark = profile(name)?;
        for cores in [4, 6, 8, 10, 12, 14, 16] {
            let speed = |draft: &mut Draft,
                         of: Contestant,
                         how: &str,
                         wait: WaitMode|
             -> Result<Measure, FigureError> {
                let program = benchmark.program(16, wait, 1.0);
                let serial = benchmark.work.min(16.0);
                let label = format!("{name} {cores} {} {how}", of.name);
                let cell = draft.cell(
                    &label,
                    on_first(scenario(&model, of, vec![program])?, cores),
                    Metric::Makespan(0),
                    1,
                );
                let up = speed_up(&cell, serial);
                draft.point(format!("{}-{how}", of.name), format!("{name} {cores}"), &up);
                Ok(up)
            };
            let yielding = speed(&mut draft, SPEED, "YIELD", WaitMode::Yield)?;
            let load = speed(&mut draft, LOAD, "YIELD", WaitMode::Yield)?;
            speed(&mut draft, LOAD, "SLEEP", WaitMode::Sleep)?;
            speed(&mut draft, PINNED, "YIELD", WaitMode::Yield)?;
            let says = |than: &str| format!("{name}, {cores} cores: SPEED-YIELD at least as fast as {than}");
            draft.claim(says("LOAD-YIELD"), BETTER, &yielding, Relation::AtLeast, &load);
        }
    }
    Ok(draft.done(&[
        "One second of each thread's work is run: iterations are alike.",
        "Between barriers closer than its interval SPEED can gain nothing, and its moves cost cold caches: this is what the wrong orders show.",
        "The texts' order of SPEED and PINNED on these mixes is known from memory only and not counted.",
    ]))
}

/// Returns the figure of EP next to a program that computes without end on core 0.
pub(super) fn hog() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "hog",
        "EP.C, one thread a core, beside a hog bound to core 0, and beside make -j 16: time over alone",
        "Load Balancing on Speed, competing workloads (in words)",
        ["setting", "time over alone"],
    );
    let ep = profile("ep")?;
    let model: Model = machine("tigerton-e7310")?;
    let place = "Load Balancing on Speed, competing workloads, as recalled: PINNED halves beside a bound hog, SPEED is clearly best";
    let run = |draft: &mut Draft,
               of: Contestant,
               beside: Option<ProgramSpec>,
               label: &str|
     -> Result<Measure, FigureError> {
        let mut programs = vec![ep.program(16, WaitMode::Yield, f64::INFINITY)];
        programs.extend(beside);
        let label = format!("{label} {}", of.name);
        Ok(draft.cell(&label, scenario(&model, of, programs)?, Metric::Makespan(0), RUNS_PER_CELL))
    };
    for (label, beside) in [
        ("hog", ProgramSpec::hog("hog", 1).on(first(1))),
        (
            "make",
            ProgramSpec {
                footprint: crate::program::Footprint::default(),
                ..crate::program::mixes::make(16)
            },
        ),
    ] {
        let mut slow = Vec::new();
        for of in [SPEED, LOAD, PINNED] {
            let (with, alone) = (
                run(&mut draft, of, Some(beside.clone()), label)?,
                run(&mut draft, of, None, &format!("{label} alone"))?,
            );
            let ratio = with.over(&alone);
            draft.point(of.name, label, &ratio);
            slow.push(ratio);
        }
        let [speed, load, pinned] = &slow[..] else { continue };
        if label == "hog" {
            draft.claim("hog: SPEED loses no more than LOAD", place, load, Relation::AtLeast, speed);
            draft.claim("hog: SPEED loses no more than PINNED", place, pinned, Relation::AtLeast, speed);
            draft.claim("hog: PINNED halves", place, pinned, Relation::Alike, &Measure::Given(2.0));
        }
    }
    Ok(draft.done(&[
        "Beside make -j 16 the text's order is known from memory only and not counted; the compilations use no memory here. SPEED takes a core that a short process leaves for a moment for a fast one, and gains nothing.",
    ]))
}
