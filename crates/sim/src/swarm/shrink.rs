//! Shrinking of a failing draft: parts that are not needed to break the same invariant are left
//! out.
//!
//! Idea: a list of simpler drafts, the greatest simplifications first. The first one that still
//! breaks the invariant is taken, and its own simpler drafts are tried, until none breaks it. Each
//! is strictly simpler, so the search ends; it is stopped after [`RUNS_MAX`] runs in any case.

use super::draft::{Draft, DraftMachine};
use super::{DraftRun, run};
use crate::checkers::Violation;
use crate::faults::Faults;
use crate::program::{Bind, Body, Footprint, ProgramSpec, WaitMode};
use crate::scenario::{Happening, ScenarioEvent};
use trimtab_core::balance::Settings;
use trimtab_core::time::{Moment, Span};

/// Highest number of simpler drafts that are run.
const RUNS_MAX: usize = 1_500;

/// Shrunk draft.
#[derive(Clone, PartialEq, Debug)]
pub struct Shrunk {
    /// The draft that is left.
    pub draft: Draft,
    /// Its violations.
    pub violations: Vec<Violation>,
    /// Number of simpler drafts that were tried.
    pub tried: usize,
    /// Whether the search ran to its end.
    pub whole: bool,
}

/// Returns the smallest draft found that breaks the first invariant that this one breaks, with all
/// its violations. Before each run, `go` is asked whether there is time for it.
pub fn shrink(draft: &Draft, violations: &[Violation], go: &dyn Fn() -> bool) -> Shrunk {
    shrink_by(draft, violations, &run, go)
}

pub(super) fn shrink_by(
    draft: &Draft,
    violations: &[Violation],
    run: &dyn Fn(&Draft) -> DraftRun,
    go: &dyn Fn() -> bool,
) -> Shrunk {
    let (mut best, mut violations) = (draft.clone(), violations.to_vec());
    let (mut tried, mut whole) = (0, true);
    let Some(invariant) = violations.first().map(|violation| violation.invariant) else {
        return Shrunk { draft: best, violations, tried, whole };
    };
    'simpler: loop {
        for simpler in simpler(&best, &violations) {
            if tried >= RUNS_MAX {
                break 'simpler;
            }
            if simpler == best {
                continue;
            }
            if !go() {
                whole = false;
                break 'simpler;
            }
            tried += 1;
            let found = run(&simpler).violations;
            if found.iter().any(|violation| violation.invariant == invariant) {
                (best, violations) = (simpler, found);
                continue 'simpler;
            }
        }
        break;
    }
    Shrunk { draft: best, violations, tried, whole }
}

/// Returns drafts that are simpler than this one.
fn simpler(draft: &Draft, violations: &[Violation]) -> Vec<Draft> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Draft)| {
        let mut simpler = draft.clone();
        change(&mut simpler);
        all.push(simpler);
    };
    if let Some(first) = violations.iter().map(|violation| violation.at).min() {
        let end = Moment(first.0 / 100_000_000 * 100_000_000 + 100_000_000);
        add(&|draft| shorten(draft, end));
    }
    add(&|draft| draft.events.clear());
    add(&|draft| draft.faults = Faults { until: draft.faults.until, ..Faults::default() });
    add(&|draft| draft.arrivals.clear());
    for at in 0..draft.programs.len() {
        add(&|draft| without(draft, at));
    }
    for ground in smaller(draft.ground) {
        add(&|draft| draft.ground = ground);
    }
    for at in 0..draft.events.len() {
        add(&|draft| without_event(draft, at));
        if let Happening::Start(program) = &draft.events[at].what {
            for change in plainer(program) {
                let what = Happening::Start(Box::new(change));
                add(&|draft| {
                    draft.events[at] = ScenarioEvent { what: what.clone(), ..draft.events[at].clone() }
                });
            }
        }
    }
    add(&|draft| draft.policy = None);
    let plain = |settings: &Settings| Settings { interval: settings.interval, ..Settings::default() };
    add(&|draft| draft.policy = draft.policy.as_ref().map(|(kind, settings)| (*kind, plain(settings))));
    for part in faults(&draft.faults) {
        add(&|draft| draft.faults = part);
    }
    add(&|draft| draft.memory = false);
    for (at, program) in draft.programs.iter().enumerate() {
        for change in plainer(program) {
            add(&|draft| draft.programs[at].clone_from(&change));
        }
    }
    add(&|draft| draft.kernel = "linux-6.12");
    add(&|draft| draft.seed = 1);
    all
}

/// Sets an earlier end, and drops the parts that would come only after it.
fn shorten(draft: &mut Draft, end: Moment) {
    draft.end = draft.end.min(end);
    let end = draft.end;
    while let Some(at) = draft.events.iter().position(|event| event.at >= end) {
        without_event(draft, at);
    }
    while let Some(at) = draft.programs.iter().position(|program| program.start >= end) {
        without(draft, at);
    }
    draft.arrivals.retain(|arrivals| Moment(0) + arrivals.every <= end);
}

/// Removes an event. If it starts a program, the programs started later move up by one place.
fn without_event(draft: &mut Draft, at: usize) {
    let starts = |event: &&ScenarioEvent| matches!(event.what, Happening::Start(_));
    let before = draft.events[..at].iter().filter(starts).count();
    if starts(&&draft.events.remove(at)) {
        forget(draft, draft.programs.len() + before);
    }
}

/// Removes a program; those after it move up by one place.
fn without(draft: &mut Draft, at: usize) {
    draft.programs.remove(at);
    forget(draft, at);
}

/// Drops the stops of a removed program; the programs after it move up by one place.
fn forget(draft: &mut Draft, at: usize) {
    draft.events.retain(|event| event.what != Happening::Stop(at));
    for event in &mut draft.events {
        if let Happening::Stop(other) = &mut event.what
            && *other > at
        {
            *other -= 1;
        }
    }
}

fn smaller(ground: DraftMachine) -> Vec<DraftMachine> {
    let far = !matches!(ground, DraftMachine::Made { far: false, .. });
    let made = |nodes, caches, cores, smt, slow| DraftMachine::Made { nodes, caches, cores, smt, slow, far };
    let DraftMachine::Made { nodes, caches, cores, smt, slow, .. } = ground else {
        return vec![
            made(1, 1, 2, 1, None),
            made(1, 1, 4, 1, None),
            made(2, 1, 2, 1, None),
            made(1, 1, 2, 2, None),
            made(2, 2, 4, 1, None),
            made(4, 2, 4, 2, None),
        ];
    };
    let mut all = vec![
        made(1, 1, 1, 1, None),
        DraftMachine::Made { nodes, caches, cores, smt, slow, far: false },
        made(1, 1, 2, 1, slow),
        made(nodes, caches, cores, smt, None),
        made(1, caches, cores, smt, slow),
        made(nodes, 1, cores, smt, slow),
        made(nodes, caches, cores, 1, slow),
        made(nodes, caches, cores.div_ceil(2), smt, slow),
        made(nodes.div_ceil(2), caches, cores, smt, slow),
        made((nodes - 1).max(1), caches, cores, smt, slow),
        made(nodes, caches, (cores - 1).max(1), smt, slow),
    ];
    // A draft never grows.
    let count = |ground: &DraftMachine| match *ground {
        DraftMachine::Made { nodes, caches, cores, smt, slow, far } => {
            (nodes * caches * cores * smt, nodes + caches + smt, u32::from(slow.is_some()) + u32::from(far))
        }
        DraftMachine::Shipped(_) => (u32::MAX, 0, 0),
    };
    all.retain(|other| count(other) < count(&ground));
    all
}

fn faults(faults: &Faults) -> [Faults; 6] {
    let faults = *faults;
    [
        Faults { lost: 0.0, ..faults },
        Faults { stale: 0.0, ..faults },
        Faults { refused: 0.0, ..faults },
        Faults { delayed: 0.0, ..faults },
        Faults { late: Span::ZERO, ..faults },
        Faults { jumps: 0.0, ..faults },
    ]
}

/// Returns plainer programs than this one.
fn plainer(program: &ProgramSpec) -> Vec<ProgramSpec> {
    let own = || program.clone();
    let mut all = vec![
        ProgramSpec { bind: Bind::Free, mask: None, weight: 1024, group: 0, start: Moment(0), ..own() },
        ProgramSpec { footprint: Footprint::default(), ..own() },
        ProgramSpec { bind: Bind::Free, ..own() },
        ProgramSpec { mask: None, ..own() },
        ProgramSpec { weight: 1024, ..own() },
        ProgramSpec { group: 0, ..own() },
        ProgramSpec { start: Moment(0), ..own() },
    ];
    if program.wait != WaitMode::Spin {
        all.push(ProgramSpec {
            wait: if program.wait == WaitMode::Sleep { WaitMode::Spin } else { WaitMode::Sleep },
            ..own()
        });
    }
    for threads in [1, program.threads.div_ceil(2), program.threads.saturating_sub(1)] {
        if (1..program.threads).contains(&threads) {
            all.push(ProgramSpec { threads, ..own() });
        }
    }
    let bodies: Vec<Body> = match program.body {
        Body::Spmd { work, interval, imbalance, jitter } => vec![
            Body::Spmd { work, interval: None, imbalance: 0.0, jitter: 0.0 },
            Body::Spmd { work, interval, imbalance: 0.0, jitter: 0.0 },
            Body::Spmd { work, interval, imbalance: 0.0, jitter },
            Body::Spmd { work, interval, imbalance, jitter: 0.0 },
        ],
        Body::Nested { inner, regions, work } => vec![
            Body::Spmd {
                work: Span(work.0 * u64::from(regions)),
                interval: None,
                imbalance: 0.0,
                jitter: 0.0,
            },
            Body::Nested { inner: 1, regions, work },
            Body::Nested { inner: inner.div_ceil(2), regions, work },
            Body::Nested { inner, regions: regions.div_ceil(2), work },
        ],
        Body::Teams { regions, work, pause, hold } => vec![
            Body::Spmd {
                work: Span((work.0 * u64::from(regions) / u64::from(program.threads)).max(1)),
                interval: None,
                imbalance: 0.0,
                jitter: 0.0,
            },
            Body::Teams { regions, work, pause, hold: None },
            Body::Teams { regions, work, pause: None, hold },
            Body::Teams { regions: regions.div_ceil(2), work, pause, hold },
        ],
        Body::Hog { .. } => vec![Body::Hog { duty: None }],
        Body::Churn { at_once, work, jobs } => vec![
            Body::Hog { duty: None },
            Body::Churn { at_once: 1, work, jobs },
            Body::Churn { at_once: at_once.div_ceil(2), work, jobs },
            Body::Churn { at_once, work, jobs: jobs.map(|jobs| jobs.div_ceil(2)) },
        ],
    };
    all.extend(bodies.into_iter().map(|body| ProgramSpec { body, ..own() }));
    all
}
