//! A failing draft made small: whatever is not needed for the same law to be broken is left out.
//!
//! Idea: a list of simpler drafts, the greatest simplifications first; the first one that still breaks the law is taken, and its own simpler
//! drafts are tried, until none breaks it. Each is strictly simpler, so it ends; it is stopped after [`RUNS`] runs in any case.

use super::draft::{Draft, Ground};
use super::{Run, run};
use crate::faults::Faults;
use crate::program::{Bind, Body, Footprint, Program, Wait};
use crate::scenario::{Event, Happening};
use crate::watch::{Law, Violation};
use trimtab_core::balance::Settings;
use trimtab_core::time::{Moment, Span};

/// So many simpler drafts are run at most.
const RUNS: usize = 1_500;

/// A draft, made small.
#[derive(Clone, PartialEq, Debug)]
pub struct Shrunk {
    /// What is left.
    pub draft: Draft,
    /// What it violates.
    pub violations: Vec<Violation>,
    /// How many simpler drafts were tried.
    pub tried: usize,
}

/// The smallest draft found that breaks the law as this one does.
pub fn shrink(draft: &Draft, law: Law) -> Shrunk {
    shrink_by(draft, law, &run)
}

pub(super) fn shrink_by(draft: &Draft, law: Law, run: &dyn Fn(&Draft) -> Run) -> Shrunk {
    let mut best = draft.clone();
    let mut violations = run(&best).violations;
    let mut tried = 0;
    'simpler: loop {
        for simpler in simpler(&best, &violations) {
            if tried >= RUNS {
                break 'simpler;
            }
            if simpler == best {
                continue;
            }
            tried += 1;
            let found = run(&simpler).violations;
            if found.iter().any(|violation| violation.law == law) {
                (best, violations) = (simpler, found);
                continue 'simpler;
            }
        }
        break;
    }
    Shrunk { draft: best, violations, tried }
}

/// Drafts that are simpler than this one.
fn simpler(draft: &Draft, violations: &[Violation]) -> Vec<Draft> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Draft)| {
        let mut simpler = draft.clone();
        change(&mut simpler);
        all.push(simpler);
    };
    if let Some(first) = violations.iter().map(|violation| violation.at).min() {
        let end = Moment(first.0 / 100_000_000 * 100_000_000 + 100_000_000);
        add(&|draft| draft.end = draft.end.min(end));
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
        add(&|draft| drop(draft.events.remove(at)));
        if let Happening::Start(program) = &draft.events[at].what {
            for change in plainer(program) {
                let what = Happening::Start(Box::new(change));
                add(&|draft| draft.events[at] = Event { what: what.clone(), ..draft.events[at].clone() });
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

/// Without a program; those after it are one place nearer.
fn without(draft: &mut Draft, at: usize) {
    draft.programs.remove(at);
    draft.events.retain(|event| event.what != Happening::Stop(at));
    for event in &mut draft.events {
        if let Happening::Stop(other) = &mut event.what
            && *other > at
        {
            *other -= 1;
        }
    }
}

fn smaller(ground: Ground) -> Vec<Ground> {
    let far = !matches!(ground, Ground::Made { far: false, .. });
    let made = |nodes, caches, cores, smt, slow| Ground::Made { nodes, caches, cores, smt, slow, far };
    let Ground::Made { nodes, caches, cores, smt, slow, .. } = ground else {
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
        Ground::Made { nodes, caches, cores, smt, slow, far: false },
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
    // Never back to something larger.
    let count = |ground: &Ground| match *ground {
        Ground::Made { nodes, caches, cores, smt, slow, far } => {
            (nodes * caches * cores * smt, nodes + caches + smt, u32::from(slow.is_some()) + u32::from(far))
        }
        Ground::Shipped(_) => (u32::MAX, 0, 0),
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

/// Plainer programs than this one.
fn plainer(program: &Program) -> Vec<Program> {
    let own = || program.clone();
    let mut all = vec![
        Program { bind: Bind::Free, mask: None, weight: 1024, group: 0, start: Moment(0), ..own() },
        Program { footprint: Footprint::default(), ..own() },
        Program { bind: Bind::Free, ..own() },
        Program { mask: None, ..own() },
        Program { weight: 1024, ..own() },
        Program { group: 0, ..own() },
        Program { start: Moment(0), ..own() },
    ];
    if program.wait != Wait::Spin {
        all.push(Program {
            wait: if program.wait == Wait::Sleep { Wait::Spin } else { Wait::Sleep },
            ..own()
        });
    }
    for threads in [1, program.threads.div_ceil(2), program.threads.saturating_sub(1)] {
        if (1..program.threads).contains(&threads) {
            all.push(Program { threads, ..own() });
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
        Body::Hog { .. } => vec![Body::Hog { duty: None }],
        Body::Churn { at_once, work, jobs } => vec![
            Body::Hog { duty: None },
            Body::Churn { at_once: 1, work, jobs },
            Body::Churn { at_once: at_once.div_ceil(2), work, jobs },
            Body::Churn { at_once, work, jobs: jobs.map(|jobs| jobs.div_ceil(2)) },
        ],
    };
    all.extend(bodies.into_iter().map(|body| Program { body, ..own() }));
    all
}
