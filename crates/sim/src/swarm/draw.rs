//! Random drafts: machines, kernels, programs, policies and faults, drawn from a seed.
//!
//! Each purpose draws from a stream of its own, so one more draw for one purpose does not change
//! the others.

use super::draft::{Draft, DraftMachine};
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::shipped::SHIPPED;
use crate::program::mixes::walk;
use crate::program::{Bind, Body, Footprint, PagePlacement, ProgramSpec, WaitMode};
use crate::rng::Rng;
use crate::scenario::{Arrivals, Happening, ScenarioEvent};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::ids::OsCpu;
use trimtab_core::observe::Metric;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Size class of machines and runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Up to 8 CPUs, some seconds: for tests.
    Small,
    /// Up to 8 nodes of several caches, and the machines that are shipped with trimtab.
    Any,
}

/// Number of windows in which the balance must settle, plus one.
const SETTLING_WINDOWS: u64 = 6;

/// Draws draft number `number` of a seed.
pub fn draw(seed: u64, number: u64, size: Size) -> Draft {
    let rng = Rng::new(seed).nth(number);
    let mut policy = policy(&mut rng.fork("policy"));
    let mut far = rng.fork("far");
    if let Some((_, settings)) =
        policy.as_mut().filter(|(kind, _)| kind.by_penalty() && chance(&mut far, 0.5))
    {
        settings.interval = Span::from_ms(10);
    }
    // Policies of the uncore penalty are mostly run on machines where memory is far, and sometimes
    // on others.
    let stalls = policy.as_ref().is_some_and(|(kind, _)| kind.by_penalty()) && chance(&mut far, 0.8);
    let ground = match ground(&mut rng.fork("machine"), size) {
        DraftMachine::Made { nodes, caches, cores, smt, slow, .. } if stalls => {
            DraftMachine::Made { nodes: nodes.max(2), caches, cores: cores.min(4), smt, slow, far: true }
        }
        other => other,
    };
    let cpus = ground.model().machine.cpus();
    let mut plan = rng.fork("plan");
    let settle = Span::from_ms(between(&mut plan, 300, 2_000));
    let interval =
        policy.as_ref().map_or(Span::from_ms(50), |(_, settings): &(Kind, Settings)| settings.interval);
    let window = Span::from_ms(1_000).max(interval.times(20.0));
    let end = Moment(0) + settle + Span(SETTLING_WINDOWS * window.0);
    let mut programs = programs(&mut rng.fork("programs"), &cpus, settle, end);
    let mut budget = rng.fork("budget");
    if chance(&mut budget, 0.15) {
        programs.extend(processes_of_hold(&mut budget, &cpus, settle));
    }
    let events = if chance(&mut plan, 0.5) {
        events(&mut rng.fork("events"), &cpus, settle, programs.len())
    } else {
        Vec::new()
    };
    let arrivals = if chance(&mut plan, 0.1) {
        let program = program(&mut rng.fork("arrivals"), &cpus, settle, Span::from_ms(300));
        let every = Span::from_ms(between(&mut plan, 50, 500));
        vec![Arrivals { program: ProgramSpec { name: "job".to_owned(), ..program }, every, most: 20 }]
    } else {
        Vec::new()
    };
    let faults = if policy.is_some() && chance(&mut plan, 0.6) {
        faults(&mut rng.fork("faults"), Moment(0) + settle)
    } else {
        Faults::default()
    };
    let memory = chance(&mut plan, 0.2) || stalls;
    for program in programs.iter_mut().filter(|_| stalls) {
        if chance(&mut far, 0.7) {
            let pages =
                pick(&mut far, &[PagePlacement::FirstTouch, PagePlacement::Node(0), PagePlacement::Node(1)]);
            program.footprint = Footprint { pages, ..walk(pick(&mut far, &[1 << 22, 1 << 24, 1 << 26])) };
        }
    }
    if !memory {
        for program in &mut programs {
            program.footprint = Footprint::default();
        }
    }
    let kernel = pick(&mut rng.fork("kernel"), &Kernel::PRESETS);
    Draft {
        ground,
        memory,
        kernel,
        programs,
        arrivals,
        policy,
        events,
        faults,
        end,
        // Numbers in a scenario file are signed.
        seed: rng.fork("seed").draw() >> 33,
    }
}

fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}

fn chance(rng: &mut Rng, often: f64) -> bool {
    rng.unit() < often
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn ground(rng: &mut Rng, size: Size) -> DraftMachine {
    let slow = chance(rng, 0.2).then(|| pick(rng, &[0.3, 0.5, 0.8]));
    let small = |rng: &mut Rng| {
        let (nodes, caches, smt) = (pick(rng, &[1, 1, 2]), pick(rng, &[1, 1, 2]), pick(rng, &[1, 1, 2]));
        let most = u64::from(8 / (nodes * caches * smt));
        (nodes, caches, between(rng, 1, most.min(6)) as u32, smt)
    };
    let (nodes, caches, cores, smt) = match size {
        Size::Small => small(rng),
        Size::Any if chance(rng, 0.6) => small(rng),
        Size::Any if chance(rng, 0.3) => {
            // Machines of hundreds of CPUs are for other tests.
            let fit: Vec<&str> = SHIPPED
                .iter()
                .filter(|shipped| shipped.model().is_ok_and(|model| model.machine.pu_count() <= 64))
                .map(|shipped| shipped.name)
                .collect();
            return DraftMachine::Shipped(pick(rng, &fit));
        }
        Size::Any => (
            between(rng, 1, 8) as u32,
            between(rng, 1, 2) as u32,
            between(rng, 1, 4) as u32,
            pick(rng, &[1, 1, 2]),
        ),
    };
    DraftMachine::Made { nodes, caches, cores, smt, slow, far: false }
}

fn policy(rng: &mut Rng) -> Option<(Kind, Settings)> {
    if chance(rng, 0.1) {
        return None;
    }
    let seed = rng.draw() >> 33;
    let settings = Settings {
        seed,
        free: seed.is_multiple_of(2),
        interval: Span::from_ms(pick(rng, &[20, 50, 50, 100])),
        metric: if chance(rng, 0.15) { Metric::CpuShare } else { Metric::RunWait },
        threshold: 0.9,
        across_nodes: chance(rng, 0.4),
        ..Settings::default()
    };
    let kind = if chance(rng, 0.3) { Kind::Auto } else { pick(rng, &Kind::ALL) };
    Some((kind, settings))
}

fn subset(rng: &mut Rng, cpus: &CpuSet) -> CpuSet {
    let all: Vec<OsCpu> = cpus.iter().collect();
    let some: CpuSet = all.iter().copied().filter(|_| chance(rng, 0.5)).collect();
    if some.is_empty() { std::iter::once(pick(rng, &all)).collect() } else { some }
}

fn programs(rng: &mut Rng, cpus: &CpuSet, settle: Span, end: Moment) -> Vec<ProgramSpec> {
    let count = pick(rng, &[1, 1, 1, 2, 2, 3, 4]);
    let lasts = end.since(Moment(0));
    (0..count)
        .map(|at| {
            let mut rng = rng.nth(at);
            let work =
                if chance(&mut rng, 0.6) { lasts } else { Span::from_ms(between(&mut rng, 50, 3_000)) };
            ProgramSpec { name: format!("p{at}"), ..program(&mut rng, cpus, settle, work) }
        })
        .collect()
}

/// Draws processes that share the budget of one hold.
fn processes_of_hold(rng: &mut Rng, cpus: &CpuSet, settle: Span) -> Vec<ProgramSpec> {
    let mask = if chance(rng, 0.5) { Some(subset(rng, cpus)) } else { None };
    let cores = mask.as_ref().map_or(cpus.len(), CpuSet::len) as u64;
    (0..between(rng, 2, 4))
        .map(|at| {
            let work = Span::from_us(pick(rng, &[50, 500, 5_000, 40_000]));
            let pause = chance(rng, 0.6).then(|| Span::from_us(pick(rng, &[300, 9_000, 50_000, 400_000])));
            let most = Span::from_ms(between(rng, 100, 3_000)).0 / (work.0 + pause.unwrap_or(Span::ZERO).0);
            let regions = most.clamp(1, 3_000) as u32;
            let threads = between(rng, 1, 2 * cores) as u32;
            let wait = pick(rng, &[WaitMode::Spin, WaitMode::Yield, WaitMode::Sleep]);
            let name = format!("h{at}");
            ProgramSpec {
                body: Body::Teams { regions, work, pause, hold: Some(1) },
                mask: mask.clone(),
                start: Moment(if chance(rng, 0.5) { rng.below(settle.0) } else { 0 }),
                ..ProgramSpec::spmd(&name, threads, Span::ZERO, wait)
            }
        })
        .collect()
}

fn program(rng: &mut Rng, cpus: &CpuSet, settle: Span, work: Span) -> ProgramSpec {
    let count = cpus.len() as u64;
    let most = match rng.below(4) {
        0 => count,
        1 => count + 1,
        2 => 2 * count,
        _ => 3,
    };
    let threads = between(rng, 1, most) as u32;
    let wait = match rng.below(4) {
        0 => WaitMode::Spin,
        1 => WaitMode::Yield,
        2 => WaitMode::Sleep,
        _ => WaitMode::SpinThenSleep(Span::from_us(pick(rng, &[10, 1_000, 200_000]))),
    };
    let mut program = ProgramSpec::spmd("", threads, work, wait);
    let hog = chance(rng, 0.2);
    program.body = match rng.below(if hog { 1 } else { 10 }) {
        _ if hog => {
            let duty =
                |rng: &mut Rng| (Span::from_ms(between(rng, 1, 300)), Span::from_ms(between(rng, 1, 300)));
            Body::Hog { duty: chance(rng, 0.5).then(|| duty(rng)) }
        }
        0 => Body::Churn {
            at_once: threads.min(8),
            work: Span::from_ms(between(rng, 2, 100)),
            jobs: chance(rng, 0.7).then(|| between(rng, 1, 300) as u32),
        },
        1 => {
            let inner = between(rng, 1, 4) as u32;
            let each = Span::from_ms(between(rng, 1, 40));
            program.threads = program.threads.div_ceil(inner);
            Body::Nested { inner, regions: (work.0 / each.0).clamp(1, 500) as u32, work: each }
        }
        _ => Body::Spmd {
            work,
            interval: chance(rng, 0.7).then(|| Span::from_ms(pick(rng, &[1, 3, 10, 30, 100, 400]))),
            imbalance: pick(rng, &[0.0, 0.0, 0.1, 0.5]),
            jitter: pick(rng, &[0.0, 0.0, 0.05, 0.3]),
        },
    };
    program.balanced = !chance(rng, if hog { 0.7 } else { 0.05 });
    if chance(rng, 0.2) {
        program.mask = Some(subset(rng, cpus));
    }
    if chance(rng, 0.15) {
        program.bind = match rng.below(4) {
            0 => Bind::Close,
            1 => Bind::Spread,
            2 => Bind::BeginOn((0..between(rng, 1, 3)).map(|_| subset(rng, cpus)).collect()),
            _ => Bind::List((0..between(rng, 1, 3)).map(|_| subset(rng, cpus)).collect()),
        };
    }
    if chance(rng, 0.1) {
        // Nice 5, -5 and 10.
        program.weight = pick(rng, &[335, 3_121, 110]);
    }
    program.group = rng.below(3) as u32;
    if chance(rng, 0.3) {
        program.start = Moment(rng.below(settle.0));
    }
    program.footprint = Footprint {
        working_set: pick(rng, &[1 << 16, 1 << 22, 1 << 27]),
        misses: pick(rng, &[0.1, 3.0, 20.0]),
        shared: pick(rng, &[0, 0, 1 << 16]),
        shared_writes: pick(rng, &[0.0, 0.0, 1.0]),
        pages: pick(
            rng,
            &[
                PagePlacement::FirstTouch,
                PagePlacement::Master,
                PagePlacement::Interleave,
                PagePlacement::Node(0),
            ],
        ),
        ..Footprint::default()
    };
    program
}

/// Draws CPUs that vanish and return, and hogs that start and stop; at the end, most often, the
/// machine is as at the start.
fn events(rng: &mut Rng, cpus: &CpuSet, settle: Span, programs: usize) -> Vec<ScenarioEvent> {
    let mut events = Vec::new();
    for number in 0..between(rng, 1, 5) {
        let at = Moment(rng.below(settle.0));
        let what = match rng.below(6) {
            0 => {
                let hog = ProgramSpec::hog(&format!("hog {number}"), between(rng, 1, 3) as u32);
                let body = Body::Churn { at_once: 3, work: Span::from_ms(10), jobs: Some(50) };
                let body = if chance(rng, 0.3) { body } else { hog.body.clone() };
                let mask = chance(rng, 0.5).then(|| subset(rng, cpus));
                Happening::Start(Box::new(ProgramSpec { mask, body, ..hog }))
            }
            1 if chance(rng, 0.5) => Happening::Stop(rng.below(programs as u64) as usize),
            _ => Happening::Usable(subset(rng, cpus)),
        };
        events.push(ScenarioEvent { at, what });
    }
    if chance(rng, 0.7) {
        events.push(ScenarioEvent { at: Moment(settle.0), what: Happening::Usable(cpus.clone()) });
    }
    events.sort_by_key(|event| event.at);
    events
}

fn faults(rng: &mut Rng, until: Moment) -> Faults {
    let some = |rng: &mut Rng, most: f64| if chance(rng, 0.5) { most * rng.unit() } else { 0.0 };
    Faults {
        lost: some(rng, 0.4),
        stale: some(rng, 0.4),
        refused: some(rng, 0.4),
        delayed: some(rng, 0.4),
        late: Span(some(rng, 5e7) as u64),
        jumps: some(rng, 0.05),
        until: Some(until),
    }
}
