//! Figure of the points that the study of bias random migration leaves open (seed 002): what each of
//! them does to the published gain and variation.
//!
//! Unit: a *state*, which is a work of domain 0, a start of the threads, and whether Xen spreads
//! running virtual CPUs. Under the rule Xen never spreads, so that the last point concerns credit
//! alone. The rule is read in the three ways of [`BiasReading`], with its readiness bounded.

use super::draft::{Contestant, Draft, machine};
use super::migration::{
    BRM, CREDIT, HOST_SLEEP, MigrationRuns, PAPER, RUNS_PER_CELL, STILL, Workload, nodes, workloads,
};
use super::{Figure, FigureError, Measure, Metric};
use crate::program::{Bind, PagePlacement, ProgramSpec};
use std::sync::Arc;
use trimtab_core::balance::BiasReading;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

/// Runs of a cell whose threads begin where the table says.
const FIXED_START_RUNS: u32 = 3;
/// Two workloads that gain most from their placement, one that gains nothing, and three between.
const WORKLOADS: [&str; 6] = ["micro 64M", "micro 128M", "cg", "ep", "milc", "mixed"];
/// Domain 0: none; one that works a millisecond every two seconds; one that works ten times as
/// often.
const HOSTS: [(&str, Option<Span>); 3] =
    [("no", None), ("idle", Some(HOST_SLEEP)), ("busy", Some(Span(HOST_SLEEP.0 / 10)))];

/// CPUs on which the four threads begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Xen puts them on sockets in turn.
    Xen,
    /// This number on the node of the memory, the others on the other node.
    Near(usize),
    /// A free CPU of the machine, drawn for each.
    Drawn,
}

const STARTS: [(&str, Start); 5] = [
    ("Xen's", Start::Xen),
    ("4:0", Start::Near(4)),
    ("2:2", Start::Near(2)),
    ("0:4", Start::Near(0)),
    ("drawn", Start::Drawn),
];

/// Rule against credit: a reading of the published rule, or `brm`.
#[derive(Clone, Copy)]
enum Rule {
    Published(BiasReading),
    Brm,
}

const RULES: [(&str, Rule); 4] = [
    ("stayed", Rule::Published(BiasReading::Stayed)),
    ("zeroed", Rule::Published(BiasReading::Zeroed)),
    ("least", Rule::Published(BiasReading::Least)),
    ("brm", Rule::Brm),
];

const NOTES: &[&str] = &[
    "A row is a state: the work of domain 0, the start of the threads by node (memory's node first), and whether credit spreads.",
    "Of each rule: the mean of six workloads' times over credit's, the best of them, and the mean of their deviations in per cent; of credit: the highest deviation.",
    "The published rule keeps its readiness from 0 to 100. \"stayed\", \"zeroed\" and \"least\" are readings of the node to which it moves: the last one that was best while the thread was there (at first the next node, or node 0), and the one with the least remembered penalty.",
    "The study: up to 31.7 % better than Xen, close to hand-optimised, 2 % variation at most on average; Xen's variation fills charts with axes to 12, 20 and 10 %.",
];

/// Returns the starts of a workload's threads, program by program.
fn begun(work: &Workload, start: Start, nodes: &[CpuSet]) -> Vec<ProgramSpec> {
    let all = nodes.iter().fold(CpuSet::new(), |all, node| all.union(node));
    let mut thread = 0..;
    let mut place = || {
        let at = thread.next().unwrap_or(0_usize);
        match start {
            Start::Near(near) => nodes[usize::from(at >= near)].clone(),
            Start::Xen | Start::Drawn => all.clone(),
        }
    };
    let begin = |program: &ProgramSpec| {
        let places: Arc<[CpuSet]> = (0..program.threads).map(|_| place()).collect();
        let bind = if start == Start::Xen { Bind::Free } else { Bind::BeginOn(places) };
        ProgramSpec { bind, ..program.clone() }
    };
    work.programs.iter().map(begin).collect()
}

/// Cells of one contestant in one state, one for each workload.
struct Row {
    times: Vec<Measure>,
    deviations: Vec<Measure>,
}

/// Adds the cells of a contestant in a state.
fn row(
    bench: &mut MigrationRuns,
    works: &[Workload],
    state: &str,
    start: Start,
    of: (&str, Contestant, Option<BiasReading>),
) -> Result<Row, FigureError> {
    let (name, contestant, reading) = of;
    let runs = if start == Start::Drawn { RUNS_PER_CELL } else { FIXED_START_RUNS };
    let mut row = Row { times: Vec::new(), deviations: Vec::new() };
    for work in works {
        let mut scenario = bench.scenario(contestant, begun(work, start, &bench.nodes))?;
        if let (Some((_, settings)), Some(reading)) = (&mut scenario.policy, reading) {
            settings.penalty.bounded = true;
            settings.penalty.bias = reading;
        }
        let label = format!("{}, {state}, {name}", work.name);
        let time = bench.draft.cell(&label, scenario, Metric::Mean, runs);
        if let Measure::FigureCell(at) = time {
            row.deviations.push(Measure::Deviation(at));
        }
        row.times.push(time);
    }
    Ok(row)
}

/// Returns the figure of the points that are left open.
pub(super) fn readings() -> Result<Figure, FigureError> {
    let draft = Draft::new(
        "migration-readings",
        "Bias random migration: what the study leaves open",
        "seed 002, improving performance, reducing variation",
        ["domain 0, start, credit", "time over credit's; deviation in per cent"],
    );
    let model = machine("westmere-e5620")?;
    let mut bench = MigrationRuns { draft, nodes: nodes(&model, false), model, host: None };
    let mut works = workloads(PagePlacement::Node(0))?;
    works.retain(|work| WORKLOADS.contains(&work.name.as_str()));
    for (host, sleep) in HOSTS {
        bench.host = sleep;
        let mut hand = Vec::new();
        for work in &works {
            let named = Workload { name: format!("{}, {host} domain 0", work.name), ..work.clone() };
            hand.push(bench.hand(&named)?);
        }
        for (begin, start) in STARTS {
            let state = format!("{host}, {begin}");
            let mut rules = Vec::new();
            for (name, rule) in RULES {
                let (contestant, reading) = match rule {
                    Rule::Published(reading) => (PAPER, Some(reading)),
                    Rule::Brm => (BRM, None),
                };
                let of = (name, contestant, reading);
                rules.push((name, row(&mut bench, &works, &state, start, of)?));
            }
            for (spreads, credit) in [("spreads", CREDIT), ("stays", STILL)] {
                let of = (credit.name, credit, None);
                let credit = row(&mut bench, &works, &state, start, of)?;
                points(&mut bench.draft, &format!("{state}, {spreads}"), &credit, &rules, &hand);
            }
        }
    }
    Ok(bench.draft.done(NOTES))
}

/// Adds the points of a state.
fn points(draft: &mut Draft, x: &str, credit: &Row, rules: &[(&str, Row)], hand: &[Measure]) {
    let over = |times: &[Measure]| -> Vec<Measure> {
        times.iter().zip(&credit.times).map(|(time, credit)| time.over(credit)).collect()
    };
    for (name, rule) in rules {
        let times = over(&rule.times);
        draft.point(format!("{name}: mean"), x, &Measure::Mean(times.clone()));
        draft.point(format!("{name}: best"), x, &Measure::Lowest(times));
        draft.point(format!("{name}: deviation"), x, &Measure::Average(rule.deviations.clone()));
    }
    draft.point("hand-optimised: mean", x, &Measure::Mean(over(hand)));
    draft.point("hand-optimised: best", x, &Measure::Lowest(over(hand)));
    draft.point("credit: highest deviation", x, &Measure::Highest(credit.deviations.clone()));
}
