//! Figure of the points that the study of bias random migration leaves open (seed 002): what each
//! of them does to the published gain and variation; and all workloads in the state in which credit
//! varies as published.
//!
//! Unit: a *state*, which is a work of domain 0, a start of the threads, and whether Xen spreads
//! running virtual CPUs. Under the rule Xen never spreads, so that the last point concerns credit
//! alone. The rule is read in the three ways of [`BiasReading`], with its readiness bounded.

use super::draft::{Contestant, Draft, machine};
use super::migration::{
    BRM, CREDIT, HOST_SLEEP, MigrationRuns, PAPER, RUNS_PER_CELL, STILL, Workload, nodes, workloads,
};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::program::{Bind, PagePlacement, ProgramSpec};
use std::sync::Arc;
use trimtab_core::balance::BiasReading;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const IMPROVING: &str = "seed 002, improving performance";
const REDUCING: &str = "seed 002, reducing variation";

/// Runs of a cell with threads that begin where the table says.
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
    "Rows of 19 workloads are the state in which credit varies as in the study's charts: a domain 0 that takes no CPU, as one that is bound does not, threads that begin anywhere, and credit that lets them stay. It was chosen for that, so that the orders below are no predictions. 31.7 % better performance is 0.76 of the time.",
    "A row is a state: the work of domain 0, the start of the threads by node (memory's node first), and whether credit spreads.",
    "Of each rule: the mean of six workloads' times over credit's, the best of them, and the mean of their deviations in per cent; of credit: the highest deviation.",
    "The published rule keeps its readiness from 0 to 100. \"stayed\", \"zeroed\" and \"least\" are readings of the node to which it moves: the last one that was best while the thread was there (at first the next node, or node 0), and the one with the least remembered penalty. \"zeroed\" keeps every thread on node 0 for ever, where the memory of all workloads lies here.",
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
    whole(&mut bench)?;
    Ok(bench.draft.done(NOTES))
}

/// Adds all workloads in the state in which credit varies as published, and judges the orders.
fn whole(bench: &mut MigrationRuns) -> Result<(), FigureError> {
    bench.host = None;
    let works = workloads(PagePlacement::Node(0))?;
    let state = format!("no, drawn, {} workloads", works.len());
    let mut hand = Vec::new();
    for work in &works {
        hand.push(bench.hand(&Workload { name: format!("{}, {state}", work.name), ..work.clone() })?);
    }
    let mut rules = Vec::new();
    for (name, contestant, reading) in [
        ("zeroed", PAPER, Some(BiasReading::Zeroed)),
        ("least", PAPER, Some(BiasReading::Least)),
        ("brm", BRM, None),
    ] {
        rules.push((name, row(bench, &works, &state, Start::Drawn, (name, contestant, reading))?));
    }
    for (spreads, credit) in [("spreads", CREDIT), ("stays", STILL)] {
        let credit = row(bench, &works, &state, Start::Drawn, (credit.name, credit, None))?;
        points(&mut bench.draft, &format!("{state}, {spreads}"), &credit, &rules, &hand);
        if spreads == "stays" {
            for (name, rule) in &rules {
                orders(&mut bench.draft, name, &credit, rule, &hand);
            }
        }
    }
    Ok(())
}

/// Adds the published orders, judged on a rule. The state was chosen by them.
fn orders(draft: &mut Draft, name: &str, credit: &Row, rule: &Row, hand: &[Measure]) {
    let over = |times: &[Measure]| {
        Measure::Mean(times.iter().zip(&credit.times).map(|(time, credit)| time.over(credit)).collect())
    };
    let (one, two, mean) = (Measure::Given(1.0), Measure::Given(2.0), over(&rule.times));
    let varies = Measure::Average(rule.deviations.clone());
    let credit_varies = Measure::Average(credit.deviations.clone());
    let mut claim = |what: &str, place, left: &Measure, relation, right: &Measure| {
        draft.claim(format!("{what} ({name})"), place, left, relation, right);
        draft.chosen_by_last();
    };
    claim("BRM outperforms Xen: mean of all workloads", IMPROVING, &one, Relation::Above, &mean);
    claim(
        "BRM performs closely to hand-optimised: mean of all",
        IMPROVING,
        &mean,
        Relation::Alike,
        &over(hand),
    );
    claim("BRM varies by 2 % at most: mean of all", REDUCING, &two, Relation::AtLeast, &varies);
    claim("BRM varies less than Xen: mean of all", REDUCING, &credit_varies, Relation::Above, &varies);
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
