//! Nested STREAM: teams of threads bound by `Y,scatter,Z,subscatter`, and left to the kernel. Seed 004.

use super::draft::{Draft, LOAD, machine, scenario};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::model::Model;
use crate::program::mixes::nested_stream;
use crate::program::{Body, Pages, Program};
use crate::published::{self, Value};
use std::collections::BTreeMap;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const REGIONS: u32 = 10;
/// Of each thread in each region: some fifty milliseconds of the machine's time, and far more where memory is far.
const WORK: Span = Span::from_ms(3);

/// A machine of the table: its domains of a team, cores in each, and how far apart a team's threads are.
struct Row {
    key: &'static str,
    name: &'static str,
    domain: u32,
    stride: u32,
    teams: &'static [(u32, u32)],
}

const SMALL: &[(u32, u32)] = &[(1, 1), (1, 4), (4, 1), (4, 4)];
const LARGE: &[(u32, u32)] = &[(1, 1), (1, 4), (4, 1), (4, 4), (6, 1), (6, 4), (13, 1), (13, 4)];
const ROWS: [Row; 3] = [
    Row { key: "barcelona", name: "barcelona-8356", domain: 4, stride: 1, teams: SMALL },
    Row { key: "tigerton", name: "tigerton-x7350", domain: 4, stride: 1, teams: SMALL },
    Row { key: "scalemp", name: "scalemp-e5420", domain: 8, stride: 2, teams: LARGE },
];

/// What runs on every machine beside a benchmark, of its kernel and its services: on one CPU in eight for 2 ms, 25 times a second at most
/// (estimated: half a percent of the machine). It displaces threads, which the kernel then moves away from their memory.
fn housekeeping(model: &Model) -> Program {
    let threads = (model.machine.pu_count() as u32).div_ceil(8);
    let duty = Some((Span::from_ms(2), Span::from_ms(40)));
    Program { body: Body::Hog { duty }, ..Program::hog("housekeeping", threads) }
}

/// Each team on a socket or board of its own, its threads spread inside.
fn places(row: &Row, outer: u32, inner: u32) -> Vec<CpuSet> {
    let one = |cpu: u32| std::iter::once(OsCpu(cpu)).collect::<CpuSet>();
    (0..outer * inner).map(|at| one(at / inner * row.domain + at % inner * row.stride)).collect()
}

pub(super) fn stream() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "stream",
        "Nested STREAM, Y x Z threads, bound by Y,scatter,Z,subscatter and unbound: memory bandwidth",
        "seed 004, table of nested STREAM",
        ["teams x threads", "GB/s"],
    );
    let mut found: BTreeMap<&str, (Measure, &Value)> = BTreeMap::new();
    for row in &ROWS {
        let model = machine(row.name)?;
        for how in ["unbound", "bound"] {
            for &(outer, inner) in row.teams {
                let list = (how == "bound").then(|| places(row, outer, inner));
                let mut program = nested_stream(outer, inner, REGIONS, WORK, list);
                if how == "unbound" && outer > 1 && inner > 1 {
                    // The runtime takes other threads of its pool for each inner team: who sweeps an array is not who touched it first.
                    program.footprint.pages = Pages::Interleave;
                }
                let x = format!("{outer}x{inner}");
                let scenario = scenario(&model, LOAD, vec![program, housekeeping(&model)])?;
                let cell = draft.cell(
                    &format!("{} {how} {x}", row.name),
                    scenario,
                    Metric::Bandwidth,
                    if how == "bound" { 1 } else { 3 },
                );
                draft.point(format!("{} {how}", row.key), &x, &cell);
                let key = format!("stream/{}/{how}/{x}", row.key);
                let value = published::find(&key).ok_or_else(|| FigureError::Key(key.clone()))?;
                draft.beside(&key, cell.clone())?;
                found.insert(value.key, (cell, value));
            }
        }
    }
    // Bound against unbound, wherever the table tells them apart.
    for row in &ROWS {
        for &(outer, inner) in row.teams.iter().skip(1) {
            let of =
                |how: &str| found.get(format!("stream/{}/{how}/{outer}x{inner}", row.key).as_str()).cloned();
            let (Some((bound, said)), Some((free, told))) = (of("bound"), of("unbound")) else { continue };
            let (word, left, right) =
                if said.value > told.value { ("better", &bound, &free) } else { ("worse", &free, &bound) };
            let what = format!("{}, {outer}x{inner}: bound is {word} than unbound", row.key);
            let gap = (said.value / told.value).max(told.value / said.value);
            let relation = if gap > 1.0 + super::SLACK { Relation::Above } else { Relation::Alike };
            draft.claim(what, "seed 004, table of nested STREAM", left, relation, right);
        }
    }
    Ok(draft.done(&[
        "Unbound teams: the kernel of 2.6.28 places threads when they are born and moves them by queue lengths; the studies' kernels are not named.",
    ]))
}
