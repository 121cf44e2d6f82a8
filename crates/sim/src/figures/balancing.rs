//! Speed balancing against the kernel's own balancing, fixed places and round slices: seed 001 and the analysis behind it.

use super::draft::{
    Contestant, DWRR, Draft, LOAD, PINNED, SPEED, first, machine, on_first, profile, scenario,
};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::model::Model;
use crate::program::{Program, Wait};
use trimtab_core::time::Span;

const RUNS: u32 = 3;
const WAITS: [(&str, Wait); 2] = [("SLEEP", Wait::Sleep), ("YIELD", Wait::Yield)];

const BETTER: &str =
    "Load Balancing on Speed, abstract: better than Linux load balancing in all cases considered";
const AS_DWRR: &str = "Load Balancing on Speed, abstract: comparable to or better than DWRR";
const EVENLY: &str =
    "Load Balancing on Speed, EP, as recalled: PINNED good where 16 is a multiple of the cores";
const RULE: &str = "Load Balancing on Speed, EP, as recalled: SPEED near ideal at every core count, PINNED only where the threads divide";

/// How long 16 threads took over how long one core would take: the speed-up.
fn speed_up(of: &Measure, serial: f64) -> Measure {
    Measure::Given(serial).over(of)
}

/// EP with 16 threads on 2 to 16 cores.
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
                        RUNS,
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
        "The O(1) kernel below DWRR is modelled by its round slices only.",
    ]))
}

/// What the texts say of one core count on Tigerton, of SPEED, LOAD, PINNED and DWRR.
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

/// Three threads on two cores, and 17 on 16.
fn few(draft: &mut Draft) -> Result<(), FigureError> {
    let model = machine("tigerton-e7310")?;
    // Long against the interval of 100 ms, as the analysis assumes.
    let work = Span::from_ms(20_000);
    let time =
        |draft: &mut Draft, of: Contestant, threads: u32, cores: u32| -> Result<Measure, FigureError> {
            let program = Program::spmd("equal", threads, work, Wait::Yield);
            let label = format!("{threads} on {cores} {}", of.name);
            let cell = draft.cell(
                &label,
                on_first(scenario(&model, of, vec![program])?, cores),
                Metric::Makespan(0),
                RUNS,
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

/// Benchmarks with barriers, 16 threads on fewer cores.
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
            let speed =
                |draft: &mut Draft, of: Contestant, how: &str, wait: Wait| -> Result<Measure, FigureError> {
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
            let yielding = speed(&mut draft, SPEED, "YIELD", Wait::Yield)?;
            let load = speed(&mut draft, LOAD, "YIELD", Wait::Yield)?;
            speed(&mut draft, LOAD, "SLEEP", Wait::Sleep)?;
            let pinned = speed(&mut draft, PINNED, "YIELD", Wait::Yield)?;
            let says = |than: &str| format!("{name}, {cores} cores: SPEED-YIELD at least as fast as {than}");
            draft.claim(says("LOAD-YIELD"), BETTER, &yielding, Relation::AtLeast, &load);
            draft.claim(says("PINNED-YIELD"), RULE, &yielding, Relation::AtLeast, &pinned);
        }
    }
    Ok(draft.done(&[
        "One second of each thread's work is run: iterations are alike.",
        "Between barriers closer than the balancer's interval no balancer gains: SPEED is then as PINNED, and LOAD with SLEEP is better than both, as measured live too.",
    ]))
}

/// EP beside a program that computes for ever on core 0.
pub(super) fn hog() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "hog",
        "EP.C, one thread a core, beside a hog bound to core 0, and beside make -j 16: time over alone",
        "Load Balancing on Speed, competing workloads (in words)",
        ["setting", "time over alone"],
    );
    let ep = profile("ep")?;
    let model: Model = machine("tigerton-e7310")?;
    let place =
        "Load Balancing on Speed, competing workloads: SPEED ahead of both, PINNED halves beside a bound hog";
    let run = |draft: &mut Draft,
               of: Contestant,
               beside: Option<Program>,
               label: &str|
     -> Result<Measure, FigureError> {
        let mut programs = vec![ep.program(16, Wait::Yield, f64::INFINITY)];
        programs.extend(beside);
        let label = format!("{label} {}", of.name);
        Ok(draft.cell(&label, scenario(&model, of, programs)?, Metric::Makespan(0), RUNS))
    };
    for (label, beside) in [
        ("hog", Program::hog("hog", 1).on(first(1))),
        (
            "make",
            Program { footprint: crate::program::Footprint::default(), ..crate::program::mixes::make(16) },
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
        draft.claim(format!("{label}: SPEED loses no more than LOAD"), place, load, Relation::AtLeast, speed);
        draft.claim(
            format!("{label}: SPEED loses no more than PINNED"),
            place,
            pinned,
            Relation::AtLeast,
            speed,
        );
        if label == "hog" {
            draft.claim("hog: PINNED halves", place, pinned, Relation::Alike, &Measure::Given(2.0));
        }
    }
    Ok(draft.done(&["The compilations use no memory here: the text says nothing of theirs."]))
}
