//! Figure of nested STREAM: teams of threads bound by `Y,scatter,Z,subscatter`, and left to the
//! kernel. Seed 004.

use super::draft::{Draft, LOAD, machine, scenario};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::program::PagePlacement;
use crate::program::mixes::nested_stream;
use crate::published::{self, PublishedValue};
use std::collections::BTreeMap;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const REGION_COUNT: u32 = 4;
/// Work of each thread in each region: some fifty milliseconds of the machine's time, and far more
/// if memory is far.
const REGION_WORK: Span = Span::from_ms(3);

/// Machine of the table: the cores of a team's domain, and the distance between a team's threads.
struct StreamMachine {
    key: &'static str,
    name: &'static str,
    domain: u32,
    stride: u32,
    teams: &'static [(u32, u32)],
}

const SMALL: &[(u32, u32)] = &[(1, 1), (1, 4), (4, 1), (4, 4)];
const LARGE: &[(u32, u32)] = &[(1, 1), (1, 4), (4, 1), (4, 4), (6, 1), (6, 4), (13, 1), (13, 4)];
const MACHINES: [StreamMachine; 3] = [
    StreamMachine { key: "barcelona", name: "barcelona-8356", domain: 4, stride: 1, teams: SMALL },
    StreamMachine { key: "tigerton", name: "tigerton-x7350", domain: 4, stride: 1, teams: SMALL },
    StreamMachine { key: "scalemp", name: "scalemp-e5420", domain: 8, stride: 2, teams: LARGE },
];

/// Returns CPUs that put each team on a socket or board of its own, with its threads spread inside.
fn places(row: &StreamMachine, outer: u32, inner: u32) -> Vec<CpuSet> {
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
    let mut found: BTreeMap<&str, (Measure, &PublishedValue)> = BTreeMap::new();
    for row in &MACHINES {
        let model = machine(row.name)?;
        for how in ["unbound", "bound"] {
            for &(outer, inner) in row.teams {
                let list = (how == "bound").then(|| places(row, outer, inner));
                let mut program = nested_stream(outer, inner, REGION_COUNT, REGION_WORK, list);
                if how == "unbound" && outer > 1 && inner > 1 {
                    // The runtime takes other threads of its pool for each inner team, so the
                    // thread that sweeps an array is not the one that touched it first.
                    program.footprint.pages = PagePlacement::Interleave;
                }
                let x = format!("{outer}x{inner}");
                let scenario = scenario(&model, LOAD, vec![program])?;
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
    // Compares bound with unbound, if the table shows a difference.
    for row in &MACHINES {
        for &(outer, inner) in row.teams.iter().skip(1) {
            let of =
                |how: &str| found.get(format!("stream/{}/{how}/{outer}x{inner}", row.key).as_str()).cloned();
            let (Some((bound, said)), Some((free, told))) = (of("bound"), of("unbound")) else { continue };
            let (word, left, right) =
                if said.value > told.value { ("better", &bound, &free) } else { ("worse", &free, &bound) };
            let what = format!("{}, {outer}x{inner}: bound is {word} than unbound", row.key);
            let gap = (said.value / told.value).max(told.value / said.value);
            let relation = if gap > 1.0 + super::ORDER_SLACK { Relation::Above } else { Relation::Alike };
            draft.claim(what, "seed 004, table of nested STREAM", left, relation, right);
        }
    }
    Ok(draft.done(&[
        "Bound with four threads on a socket or board: the model reaches what the controllers give, the machines less. Conflicts of pages in the memory chips (Barcelona) and the work of vSMP itself on each board (ScaleMP) are missing.",
        "Unbound: threads are spread when they are born, first touch their memory where they are, and nothing moves them while cores are idle. The table says that this did not hold, least of all with many boards. Who ran where is not in it; kernels, services and the order in which the runtime makes and wakes its threads are not modelled.",
        "Unbound teams of several threads: the runtime takes other threads of its pool for each team, so pages lie anywhere (interleaved). A line from another board takes 2 us (estimated); the table says it was slower.",
    ]))
}
