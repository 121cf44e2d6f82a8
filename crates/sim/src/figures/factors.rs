//! Costs of one factor and of several together: the micro-benchmark of seed 002 on two Xeon E5620.

use super::draft::{Draft, LOAD, machine, scenario};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::model::Model;
use crate::program::mixes::micro;
use crate::program::{Bind, PagePlacement, ProgramSpec};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const SIZES: [u64; 6] = [4, 8, 16, 32, 64, 128];
const THREAD_WORK: Span = Span::from_ms(300);
const MIB: u64 = 1 << 20;

/// First hardware threads of the cores of both sockets; their numbers are two apart.
const SOCKETS: [[u32; 4]; 2] = [[0, 2, 4, 6], [8, 10, 12, 14]];

fn bound(mut program: ProgramSpec, cpus: &[u32]) -> ProgramSpec {
    program.bind =
        Bind::List(cpus.iter().map(|&cpu| std::iter::once(OsCpu(cpu)).collect::<CpuSet>()).collect());
    program
}

struct FactorRuns {
    draft: Draft,
    model: Model,
}

impl FactorRuns {
    fn time(&mut self, label: String, program: ProgramSpec, cpus: &[u32]) -> Result<Measure, FigureError> {
        let scenario = scenario(&self.model, LOAD, vec![bound(program, cpus)])?;
        Ok(self.draft.cell(&label, scenario, Metric::Makespan(0), 1))
    }

    /// Adds a program's times on one socket and on two.
    fn pair(
        &mut self,
        label: &str,
        program: &ProgramSpec,
        one: &[u32],
        two: &[u32],
    ) -> Result<[Measure; 2], FigureError> {
        let first = self.time(format!("{label} one socket"), program.clone(), one)?;
        let second = self.time(format!("{label} two sockets"), program.clone(), two)?;
        Ok([first, second])
    }
}

/// Returns the CPUs of the threads on one socket, and on both in turn.
fn places(threads: u32) -> [Vec<u32>; 2] {
    let one = (0..threads as usize).map(|at| SOCKETS[0][at % 4]).collect();
    let two = (0..threads as usize).map(|at| SOCKETS[at % 2][at / 2 % 4]).collect();
    [one, two]
}

pub(super) fn factors() -> Result<Figure, FigureError> {
    let draft = Draft::new(
        "factors",
        "Micro-benchmark on two Xeon E5620: what remote memory, a shared cache and shared lines cost, alone and together",
        "seed 002, single factor (a) to (c), multiple factors (a) to (c)",
        ["bytes or threads", "time over the other placement"],
    );
    let mut bench = FactorRuns { draft, model: machine("westmere-e5620")? };
    locality(&mut bench)?;
    contention(&mut bench)?;
    lines(&mut bench)?;
    several(&mut bench)?;
    Ok(bench.draft.done(&[
        "The text gives the curves' shapes in words; heights are drawn only.",
        "A step of a list is taken to be 5 ns; a thread adds to a shared line at each step where nothing is private, and at shared / private x 32 of its steps otherwise: the text does not say how often.",
    ]))
}

fn locality(bench: &mut FactorRuns) -> Result<(), FigureError> {
    let place = "seed 002, single factor (a)";
    let mut before: Option<Measure> = None;
    for size in SIZES {
        let mut time = |node: u32| {
            let mut program = micro(1, THREAD_WORK, size * MIB, 0, 0.0);
            program.footprint.pages = PagePlacement::Node(node);
            bench.time(format!("locality {size}M node {node}"), program, &[0])
        };
        let (local, remote) = (time(0)?, time(1)?);
        let ratio = remote.over(&local);
        bench.draft.point("1a remote over local", format!("{size}M"), &ratio);
        let says = |what: &str| format!("one thread, {size} MB: {what}");
        if size < 12 {
            bench.draft.claim(
                says("remote access does not hurt below the LLC"),
                place,
                &remote,
                Relation::Alike,
                &local,
            );
            bench.draft.beside(&format!("factors/locality/{size}M"), ratio.clone())?;
        } else {
            bench.draft.claim(
                says("remote access hurts beyond the LLC"),
                place,
                &remote,
                Relation::Above,
                &local,
            );
            if let Some(before) = before.filter(|_| size > 16) {
                bench.draft.claim(
                    says("and more than with half of it"),
                    place,
                    &ratio,
                    Relation::AtLeast,
                    &before,
                );
            }
        }
        before = Some(ratio);
    }
    Ok(())
}

fn contention(bench: &mut FactorRuns) -> Result<(), FigureError> {
    let place = "seed 002, single factor (b)";
    let [one, two] = places(4);
    let mut before: Option<Measure> = None;
    for size in SIZES {
        let [shared, separate] = bench.pair(
            &format!("contention {size}M"),
            &micro(4, THREAD_WORK, size * MIB, 0, 0.0),
            &one,
            &two,
        )?;
        let ratio = shared.over(&separate);
        bench.draft.point("1b one LLC over two", format!("{size}M"), &ratio);
        let says = |what: &str| format!("four threads, {size} MB each: {what}");
        bench.draft.claim(says("one LLC no faster than two"), place, &shared, Relation::AtLeast, &separate);
        if let Some(before) = before.filter(|_| size > 16) {
            bench.draft.claim(
                says("contention no worse than with half of it"),
                place,
                &before,
                Relation::AtLeast,
                &ratio,
            );
        }
        before = Some(ratio);
    }
    Ok(())
}

fn lines(bench: &mut FactorRuns) -> Result<(), FigureError> {
    let place = "seed 002, single factor (c)";
    let mut curve = Vec::new();
    for threads in [1, 2, 4, 6, 8, 10, 12] {
        let [one, two] = places(threads);
        let program = micro(threads, Span::from_ms(50), 0, 64, 1.0);
        let [within, across] = bench.pair(&format!("line {threads}"), &program, &one, &two)?;
        let ratio = across.over(&within);
        bench.draft.point("1c across over within sockets", threads, &ratio);
        if threads == 1 {
            bench.draft.beside("factors/sharing/1", ratio.clone())?;
        } else {
            let what = format!("{threads} threads on one line: across sockets no faster than within");
            bench.draft.claim(what, place, &across, Relation::AtLeast, &within);
        }
        curve.push(ratio);
    }
    let (first, few, last) = (curve[0].clone(), Measure::Highest(curve[1..3].to_vec()), curve[6].clone());
    bench.draft.claim(
        "the overhead across sockets increases initially",
        place,
        &few,
        Relation::Above,
        &first,
    );
    bench.draft.claim("and decreases as more threads are used", place, &few, Relation::Above, &last);
    Ok(())
}

fn several(bench: &mut FactorRuns) -> Result<(), FigureError> {
    let place = "seed 002, multiple factors: the dominant factor determines performance, and switches";
    let [one, two] = places(4);
    let on_node_0 = |mut program: ProgramSpec| {
        program.footprint.pages = PagePlacement::Node(0);
        program
    };
    let mut curves: [Vec<Measure>; 3] = Default::default();
    for size in SIZES {
        let program = on_node_0(micro(4, THREAD_WORK, size * MIB, 0, 0.0));
        let [intra, inter] = bench.pair(&format!("locality and contention {size}M"), &program, &one, &two)?;
        let ratio = inter.over(&intra);
        bench.draft.point("2a inter over intra", format!("{size}M"), &ratio);
        curves[0].push(ratio);
    }
    // A private set of 4 MB; in each round over a thirty-second part of it, every shared line is
    // written once.
    for size in SIZES {
        let (private, shared) = (4 * MIB, size << 10);
        let share = shared as f64 / private as f64 * 32.0;
        let program = micro(4, THREAD_WORK, private, shared, share);
        let [intra, inter] = bench.pair(&format!("contention and lines {size}K"), &program, &one, &two)?;
        let ratio = inter.over(&intra);
        bench.draft.point("2b inter over intra", format!("{size}K"), &ratio);
        curves[1].push(ratio);
    }
    for size in SIZES {
        let program = on_node_0(micro(4, THREAD_WORK, size * MIB, 128 << 10, 0.03));
        let [intra, inter] = bench.pair(&format!("all three {size}M"), &program, &one, &two)?;
        let ratio = inter.over(&intra);
        bench.draft.point("2c inter over intra", format!("{size}M"), &ratio);
        curves[2].push(ratio);
    }
    let same = Measure::Given(1.0);
    for (at, (label, small, large)) in [
        (
            "locality and contention",
            "contention for the LLC decides at small sets",
            "remote memory decides at 128 MB",
        ),
        (
            "contention and shared lines",
            "contention for the LLC decides with 4 KB shared",
            "shared lines decide with 128 KB",
        ),
        ("all three", "", "remote memory and shared lines decide at 128 MB"),
    ]
    .into_iter()
    .enumerate()
    {
        let lowest = Measure::Lowest(curves[at][..2].to_vec());
        if !small.is_empty() {
            bench.draft.claim(format!("{label}: {small}"), place, &same, Relation::Above, &lowest);
        }
        bench.draft.claim(format!("{label}: {large}"), place, &curves[at][5], Relation::Above, &same);
    }
    Ok(())
}
