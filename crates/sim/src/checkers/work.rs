//! Checker of work: given work is done, no more and no less, and no faster than the machine is.
//!
//! Bounds: a thread's work done and left equals its requested work, to a nanosecond of each
//! segment, which is the clock's resolution, and a millionth, which is the error of adding
//! fractions. The work done between two scenes is no more than the running time times the speed of
//! the fastest core. A program that ended by itself did the work of its body.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::program::{Body, ProgramSpec};
use crate::world::{Activity, ThreadView};

/// Relative tolerance: a nanosecond per millisecond of work, because segments end at whole
/// nanoseconds.
const WORK_TOLERANCE: f64 = 1e-6;

/// Checker of work.
#[derive(Debug)]
pub(crate) struct WorkChecker;

impl Checker for WorkChecker {
    fn inspect(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        for thread in &now.threads {
            let stopped = now.programs.get(thread.program).is_some_and(|program| program.stopped);
            if let Some(text) = unbalanced(thread, stopped) {
                found.add(Invariant::Work, Some(ThreadKey::of(thread)), text);
            }
        }
        for (then, now) in now.since(before) {
            let (did, ran) = (now.done - then.done, now.run.less(then.run).0 as f64);
            if did > ran * terms.fastest * (1.0 + WORK_TOLERANCE) + 2.0 {
                let text = format!("did {did:.0} ns of work in {ran:.0} ns on CPUs");
                found.add(Invariant::Work, Some(ThreadKey::of(now)), text);
            }
        }
        for (at, (program, given)) in now.programs.iter().zip(&terms.programs).enumerate() {
            let over_now =
                program.ended.is_some() && before.programs.get(at).is_none_or(|then| then.ended.is_none());
            if over_now && !program.stopped {
                whole(at, given, now, found);
            }
        }
    }
}

fn unbalanced(thread: &ThreadView, stopped: bool) -> Option<String> {
    if !thread.left.is_finite() || (stopped && thread.activity == Activity::Over) {
        return None;
    }
    let off = thread.done + thread.left - thread.asked;
    let text = || {
        format!("has {:.0} ns of work done and {:.0} left of {:.0}", thread.done, thread.left, thread.asked)
    };
    (off.abs() > thread.asked * WORK_TOLERANCE + 2.0).then(text)
}

/// Checks that a program that ended did all of its work.
fn whole(at: usize, given: &ProgramSpec, now: &Scene, found: &mut ViolationLog) {
    let mut add = |text: String| found.add(Invariant::Work, Some(ThreadKey { program: at, rank: 0 }), text);
    let of = || now.threads.iter().filter(|thread| thread.program == at);
    if of().any(|thread| thread.activity != Activity::Over) {
        add("is not over, and its program is".to_owned());
    }
    let born = now.programs[at].born;
    let threads = u64::from(given.threads);
    let expected = match given.body {
        Body::Spmd { work, jitter, .. } => {
            Some((threads, threads as f64 * work.0 as f64)).filter(|_| jitter == 0.0)
        }
        Body::Nested { inner, regions, work } => {
            let each = f64::from(regions.max(1)) * work.0 as f64;
            let threads = threads * u64::from(inner);
            Some((threads, threads as f64 * each))
        }
        Body::Teams { regions, work, .. } => Some((threads, f64::from(regions.max(1)) * work.0 as f64)),
        // The work of one job is drawn.
        Body::Churn { jobs: Some(jobs), .. } if u64::from(born) != u64::from(jobs) => {
            add(format!("is one of {born} jobs, not of {jobs}"));
            None
        }
        Body::Churn { .. } | Body::Hog { .. } => None,
    };
    let Some((threads, work)) = expected else { return };
    let done: f64 = of().map(|thread| thread.done).sum();
    if u64::from(born) != threads || (done - work).abs() > work * 1e-5 + 2.0 * threads as f64 {
        add(format!("is one of {born} that did {done:.0} ns of work, not of {threads} for {work:.0}"));
    }
}
