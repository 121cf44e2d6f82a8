//! Figures of bias random migration against Xen's credit scheduler and the best static placement
//! (seed 002), and of the policies here that are derived from it.
//!
//! The virtual machine's memory is on node 0, because Xen 4.0 fills the node of the first virtual
//! CPU before any other; the study does not state it. Hyper-threading is off up to eight threads
//! ("future work: considering simultaneous multithreading").

use super::draft::{Contestant, Draft, LOAD, machine, profile, scenario};
use super::placements::{all, name};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::model::Model;
use crate::observer_cost::{BARE, ObserverCost, TICK};
use crate::program::mixes::micro;
use crate::program::{Bind, Body, PagePlacement, ProgramSpec, WaitMode, jobs};
use crate::scenario::{Happening, Scenario, ScenarioEvent};
use trimtab_core::balance::Kind;
use trimtab_core::ids::{Id, OsCpu};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Core;

/// Runs of each cell, and of cells with contestants that are not in the study.
pub(super) const RUNS_PER_CELL: u32 = 10;
const CONTROL_RUNS: u32 = 5;
const MIB: u64 = 1 << 20;
/// Work of each thread of the list walks, the jobs and the benchmarks, some of which are shorter:
/// with waits, ten seconds to a minute in all.
const WALK_WORK: Span = Span::from_ms(2_500);
const JOB_WORK: Span = Span::from_ms(8_000);
const BENCHMARK_WORK: Span = Span::from_ms(20_000);

pub(super) const CREDIT: Contestant = Contestant { name: "credit", kernel: "xen-4.0", ..LOAD };
pub(super) const PAPER: Contestant = Contestant { name: "brm-paper", policy: Some(Kind::BrmPaper), ..CREDIT };
pub(super) const BRM: Contestant = Contestant { name: "brm", policy: Some(Kind::Brm), ..CREDIT };
/// The published rule with its readiness limited to 0 to 100.
const BOUNDED: Contestant = Contestant { name: "brm-paper, bounded", ..PAPER };
/// Controls: credit without the part that the policies replace, and `brm` with that part.
pub(super) const STILL: Contestant = Contestant { name: "credit, spread off", ..CREDIT };
const BESIDE: Contestant = Contestant { name: "brm, spread on", ..BRM };
const SERIAL: Contestant = Contestant { name: "serial", policy: Some(Kind::Serial), ..CREDIT };

const PLACE: &str = "seed 002, improving performance";
const VARIATION: &str = "seed 002, reducing variation: on average no more than 2 %";
const OVERHEAD: &str = "seed 002, overhead";

/// Returns the cost of a contestant's samples.
pub(super) fn observer_cost(of: Contestant) -> ObserverCost {
    match of.policy {
        None => ObserverCost::default(),
        Some(Kind::BrmPaper) => TICK,
        Some(_) => BARE,
    }
}

/// Time that a virtual CPU of domain 0 sleeps, at least, between two milliseconds of work
/// (estimated: the timers and back ends of an idle host).
pub(super) const HOST_SLEEP: Span = Span::from_ms(1_900);

/// Returns domain 0: a virtual CPU on each used CPU, which works for a millisecond and sleeps for
/// this time or up to 14 % longer, not all at once. A virtual CPU that runs there is preempted, and
/// an idle CPU steals it.
pub(super) fn host(cpus: &CpuSet, sleep: Span) -> Vec<ProgramSpec> {
    let one = |(at, cpu): (u64, OsCpu)| {
        let sleep = Span(sleep.0 / 1_900 * (1_900 + 37 * (at % 8)));
        let duty = Some((Span::from_us(1_000), sleep));
        let start = Moment(0) + Span::from_ms(130 * (at % 16) + 11);
        let mask = Some(std::iter::once(cpu).collect());
        ProgramSpec { body: Body::Hog { duty }, start, mask, ..ProgramSpec::hog(&format!("dom0 {at}"), 1) }
    };
    (0..).zip(cpus.iter()).map(one).collect()
}

/// Switches Xen's own choice of a CPU off for policies of the uncore penalty. Bias random migration
/// replaces that choice, which would undo its moves.
pub(super) fn published(scenario: &mut Scenario) {
    if scenario.policy.as_ref().is_some_and(|(kind, _)| kind.by_penalty()) {
        scenario.kernel.spread = false;
    }
}

/// Workload of the study.
#[derive(Clone)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) programs: Vec<ProgramSpec>,
    /// Kind of each thread.
    pub(super) kinds: Vec<usize>,
}

pub(super) struct MigrationRuns {
    pub(super) draft: Draft,
    pub(super) model: Model,
    /// Used CPUs of each node.
    pub(super) nodes: Vec<CpuSet>,
    /// How long a domain 0 sleeps that takes CPUs occasionally; `None`: there is none.
    pub(super) host: Option<Span>,
}

impl MigrationRuns {
    pub(super) fn scenario(
        &self,
        of: Contestant,
        programs: Vec<ProgramSpec>,
    ) -> Result<Scenario, FigureError> {
        let mut scenario = scenario(&self.model, of, programs)?;
        scenario.observer_cost = observer_cost(of);
        published(&mut scenario);
        if let Some((_, settings)) = scenario.policy.as_mut().filter(|_| of == BOUNDED) {
            settings.penalty.bounded = true;
        }
        let used = self.nodes.iter().fold(CpuSet::new(), |all, node| all.union(node));
        if of == STILL || of == BESIDE {
            scenario.kernel.spread = of == BESIDE;
        }
        if let Some(sleep) = self.host {
            scenario.programs.extend(host(&used, sleep));
        }
        if used.len() < self.model.machine.pu_count() {
            scenario.events.push(ScenarioEvent { at: Moment(0), what: Happening::Usable(used) });
        }
        Ok(scenario)
    }

    /// Adds the time of a workload under a contestant.
    fn time(&mut self, work: &Workload, of: Contestant, runs: u32) -> Result<Measure, FigureError> {
        let scenario = self.scenario(of, work.programs.clone())?;
        Ok(self.draft.cell(&format!("{} {}", work.name, of.name), scenario, Metric::Mean, runs))
    }

    /// Adds the time of a workload under the best static placement.
    pub(super) fn hand(&mut self, work: &Workload) -> Result<Measure, FigureError> {
        let room = self.nodes.first().map_or(0, CpuSet::len);
        let mut times = Vec::new();
        for placement in all(&work.kinds, self.nodes.len(), room) {
            let mut programs = work.programs.clone();
            let mut places = placement.iter().map(|&node| self.nodes[node].clone());
            for program in &mut programs {
                program.bind = Bind::List(places.by_ref().take(program.threads as usize).collect());
            }
            let scenario = self.scenario(CREDIT, programs)?;
            let label = format!("{} bound {}", work.name, name(&placement, &work.kinds, self.nodes.len()));
            times.push(self.draft.cell(&label, scenario, Metric::Mean, 1));
        }
        Ok(Measure::Lowest(times))
    }
}

/// Returns the first hardware thread of each core, or all of them, by node.
pub(super) fn nodes(model: &Model, all: bool) -> Vec<CpuSet> {
    let machine = &model.machine;
    let cpus = |node: usize| {
        let cores = machine.cores().iter().filter(|core| core.node.is_some_and(|at| at.index() == node));
        let used = |core: &Core| if all { core.pus.clone() } else { core.pus.start..core.pus.start + 1 };
        cores.flat_map(used).map(|pu| machine.os(Id::from_index(pu as usize))).collect()
    };
    (0..machine.nodes().len()).map(cpus).collect()
}

/// Returns the seed's workloads, with the memory on these pages.
pub(super) fn workloads(pages: PagePlacement) -> Result<Vec<Workload>, FigureError> {
    let mut all = Vec::new();
    for size in [4, 8, 16, 32, 64, 128] {
        // The share is that of the figure of several factors: three of a hundred steps.
        let mut program = micro(4, WALK_WORK, size * MIB, 128 << 10, 0.03);
        program.footprint.pages = pages;
        all.push(Workload { name: format!("micro {size}M"), programs: vec![program], kinds: vec![0; 4] });
    }
    for name in ["lu", "sp", "ft", "ua", "bt", "cg", "ep", "mg"] {
        all.push(parallel(name, 4, pages)?);
    }
    for name in ["soplex", "mcf", "milc", "sphinx3"] {
        let programs = jobs::four(Some(name), JOB_WORK, pages);
        all.push(Workload { name: name.to_owned(), programs, kinds: vec![0; 4] });
    }
    let programs = jobs::four(None, JOB_WORK, pages);
    all.push(Workload { name: "mixed".to_owned(), programs, kinds: vec![0, 1, 2, 3] });
    Ok(all)
}

/// Returns a benchmark of this number of threads, which busy-wait.
fn parallel(name: &str, threads: u32, pages: PagePlacement) -> Result<Workload, FigureError> {
    let most = BENCHMARK_WORK.seconds() * f64::from(threads) / 16.0;
    let mut program = profile(name)?.program(threads, WaitMode::Spin, most);
    program.footprint.pages = pages;
    Ok(Workload { name: name.to_owned(), programs: vec![program], kinds: vec![0; threads as usize] })
}

/// Returns the seed's three charts of performance and of variation, and its overhead.
pub(super) fn migration() -> Result<Figure, FigureError> {
    let draft = Draft::new(
        "migration",
        "Bias random migration of four threads on two Xeon E5620: time over the credit scheduler's",
        "seed 002, improving performance, reducing variation, overhead",
        ["workload", "time over credit's; deviation and overhead in per cent"],
    );
    let model = machine("westmere-e5620")?;
    let mut bench = MigrationRuns { draft, nodes: nodes(&model, false), model, host: Some(HOST_SLEEP) };
    // Times of the rule to the letter, of the rule with bounds, and of the best placement.
    let mut found: [Vec<Measure>; 3] = Default::default();
    let mut deviations: [Vec<Measure>; 2] = Default::default();
    let works = workloads(PagePlacement::Node(0))?;
    let mut spread = Vec::new();
    for work in &works {
        let credit = bench.time(work, CREDIT, RUNS_PER_CELL)?;
        for of in [PAPER, BOUNDED, BRM, SERIAL] {
            let time = bench.time(work, of, RUNS_PER_CELL)?;
            bench.draft.point(of.name, &work.name, &time.over(&credit));
            if let Measure::FigureCell(at) = time {
                spread.push((of.name, work.name.clone(), Measure::Deviation(at)));
            }
            if let Some(at) = [PAPER, BOUNDED].iter().position(|rule| *rule == of) {
                found[at].push(time.over(&credit));
            }
        }
        for of in [STILL, BESIDE] {
            let time = bench.time(work, of, CONTROL_RUNS)?;
            bench.draft.point(of.name, &work.name, &time.over(&credit));
        }
        if let Measure::FigureCell(at) = credit {
            spread.push((CREDIT.name, work.name.clone(), Measure::Deviation(at)));
        }
        let hand = bench.hand(work)?.over(&credit);
        bench.draft.point("hand-optimised", &work.name, &hand);
        found[2].push(hand);
    }
    for (of, work, deviation) in spread {
        if let Some(at) = [PAPER, BOUNDED].iter().position(|rule| rule.name == of) {
            deviations[at].push(deviation.clone());
        }
        bench.draft.point(format!("{of}, deviation"), work, &deviation);
    }
    let [letter, bounded, hand] = found;
    bench.draft.beside("migration/best", Measure::Lowest(bounded.clone()))?;
    let best = Measure::Mean(hand);
    let rules = [(PAPER.name, letter), (BOUNDED.name, bounded)];
    for ((rule, times), deviations) in rules.into_iter().zip(deviations) {
        let (mean, one) = (Measure::Mean(times), Measure::Given(1.0));
        let claim = |what: &str| format!("{what} ({rule})");
        let draft = &mut bench.draft;
        let what = claim("BRM outperforms Xen: mean of all workloads");
        draft.claim(what, PLACE, &one, Relation::Above, &mean);
        let what = claim("BRM performs closely to hand-optimised: mean of all");
        draft.claim(what, PLACE, &mean, Relation::Alike, &best);
        let (what, two) = (claim("BRM varies by 2 % at most: mean of all"), Measure::Given(2.0));
        draft.claim(what, VARIATION, &two, Relation::AtLeast, &Measure::Average(deviations));
    }
    alone(&mut bench, &works)?;
    overhead(&mut bench)?;
    Ok(bench.draft.done(NOTES))
}

/// Adds the same without domain 0, which takes CPUs briefly.
fn alone(bench: &mut MigrationRuns, works: &[Workload]) -> Result<(), FigureError> {
    bench.host = None;
    let mut deviations = Vec::new();
    for work in works {
        let name = format!("{}, alone", work.name);
        let work = Workload { name, programs: work.programs.clone(), kinds: work.kinds.clone() };
        let x = work.name.trim_end_matches(", alone");
        let credit = bench.time(&work, CREDIT, CONTROL_RUNS)?;
        for of in [BOUNDED, BRM, SERIAL] {
            let time = bench.time(&work, of, CONTROL_RUNS)?;
            bench.draft.point(format!("{}, no domain 0", of.name), x, &time.over(&credit));
        }
        let hand = bench.hand(&work)?.over(&credit);
        bench.draft.point("hand-optimised, no domain 0", x, &hand);
        if let Measure::FigureCell(at) = credit {
            deviations.push((x.to_owned(), Measure::Deviation(at)));
        }
    }
    for (x, deviation) in deviations {
        bench.draft.point("credit, no domain 0, deviation", x, &deviation);
    }
    bench.host = Some(HOST_SLEEP);
    Ok(())
}

const NOTES: &[&str] = &[
    "The virtual machine's memory lies on node 0: Xen 4.0 fills the node of the first virtual CPU; the text does not say where it lay.",
    "Heights of bars are drawn only: the text gives the best gain, the bound on the mean variation, and the overheads.",
    "Domain 0 has a virtual CPU on each core, which works for a millisecond every two seconds (estimated): whoever it preempts is stolen by an idle core of either socket. Without such thefts the published rule never explores: its bias is where it is.",
    "Under all four policies Xen does not spread running virtual CPUs over sockets: migration takes the place of that pick. What that alone costs, and brm beside a scheduler that spreads, are controls.",
    "By the source of Xen 4.0 (__runq_tickle) a virtual CPU that may run on one CPU alone calls no other when it wakes: with domain 0's bound (dom0_vcpus_pin) nobody is stolen. The runs without a domain 0 stand for that.",
    "brm-paper is the letter of the slides; bounded keeps its readiness from 0 to 100. Published orders are judged on both, the best gain on the second.",
    "The cost of the published rule is h n (n + 1) / 2 a tick for each of n threads; h is calibrated on 6.4 % at eight threads. brm and serial pay for a daemon: 10 us a look and 3 us a thread.",
];

/// Adds the cost of sampling for a program that gains from no placement, with 2 to 16 threads.
fn overhead(bench: &mut MigrationRuns) -> Result<(), FigureError> {
    let few = bench.nodes.clone();
    let mut parts = Vec::new();
    for threads in [2, 4, 8, 16] {
        bench.nodes = if threads > 8 { nodes(&bench.model, true) } else { few.clone() };
        let mut work = parallel("ep", threads, PagePlacement::Node(0))?;
        work.name = format!("ep, {threads} threads");
        let credit = bench.time(&work, CREDIT, RUNS_PER_CELL)?;
        let still = bench.time(&work, STILL, RUNS_PER_CELL)?;
        for of in [BOUNDED, BRM, SERIAL] {
            let scenario = bench.scenario(of, work.programs.clone())?;
            let label = format!("{} {}", work.name, of.name);
            let time = bench.draft.cell(&label, scenario.clone(), Metric::Mean, RUNS_PER_CELL);
            let part = bench.draft.cell(&format!("{label} looks"), scenario, Metric::Overhead, 1);
            bench.draft.point(format!("{}, ep", of.name), threads, &time.over(&credit));
            bench.draft.point(format!("{}, ep, over spread off", of.name), threads, &time.over(&still));
            bench.draft.point(format!("{}, looks of the threads' time", of.name), threads, &part);
            if of == BOUNDED {
                parts.push(part);
            }
        }
    }
    bench.nodes = few;
    let [two, four, eight, sixteen] = &parts[..] else { return Ok(()) };
    bench.draft.beside("migration/overhead/8", eight.clone())?;
    let bound = Measure::Given(2.0);
    bench.draft.claim("less than 2 % overhead with 2 threads", OVERHEAD, &bound, Relation::AtLeast, two);
    bench.draft.claim("less than 2 % overhead with 4 threads", OVERHEAD, &bound, Relation::AtLeast, four);
    bench.draft.claim("16 threads are problematic", OVERHEAD, sixteen, Relation::Above, eight);
    Ok(())
}
