//! Trips: nobody is moved from a CPU to another and back by the policy while there is nothing to be gained by it.
//!
//! There is nothing to gain where all cores are alike and no thread that the policy looks after has waited for a CPU, by a fiftieth of the
//! time that it ran, since the thread left the CPU to which it comes back. To take turns on crowded CPUs is no trip for nothing: somebody waits there.
//!
//! Nor is judged a trip during which somebody came, went or slept: who sleeps has no speed, so its CPU is known by what its own counter says, in steps of 10 ms.
//! The paper's own metric, the share of all time, takes who sleeps for slow; what it does then is not judged.
//!
//! Bound: three such trips a thread, and one more every five seconds, counted from a second after the last change of the load
//! and the last fault: a policy may be wrong for as long as it believes readings that were.

use super::{Checker, Found, Invariant, Scene, Terms, Who};
use std::collections::BTreeMap;
use trimtab_core::balance::{Decision, Reason};
use trimtab_core::drive::Step;
use trimtab_core::ids::{OsCpu, ThreadId};
use trimtab_core::time::{Moment, Span};

/// So long what was believed before may still count.
const GRACE: Span = Span::from_ms(1_000);
/// Trips for nothing that are forgiven ...
const FORGIVEN: u64 = 3;
/// ... and how often one more is.
const EACH: Span = Span::from_ms(5_000);
/// Waiting below this part of the running time is none.
const NOTHING: f64 = 0.02;

/// What all that are looked after have run and waited, and how often they slept.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    run: Span,
    wait: Span,
    sleeps: u64,
}

impl Spent {
    /// Whether nobody waited, or slept, since an earlier time.
    fn smoothly(self, since: Self) -> bool {
        let (ran, waited) = (self.run.less(since.run), self.wait.less(since.wait));
        self.sleeps == since.sleeps && waited.seconds() < NOTHING * ran.seconds()
    }
}

/// Where a thread was, and what all had spent when it left.
#[derive(Clone, Copy, Debug)]
struct Left {
    cpu: OsCpu,
    spent: Spent,
}

/// The checker.
#[derive(Debug, Default)]
pub(crate) struct Trips {
    /// By thread: where it is, where it was before.
    places: BTreeMap<ThreadId, (OsCpu, Option<Left>)>,
    vain: BTreeMap<ThreadId, u64>,
    /// By thread its place in the world, and what all have run and waited.
    seen: BTreeMap<ThreadId, (Who, OsCpu)>,
    spent: Spent,
    at: Moment,
}

/// Whether a decision is one to balance, and not to begin, to follow the machine or to put right.
pub(crate) fn balances(decision: &Decision) -> bool {
    matches!(
        decision.reason,
        Reason::Slow { .. } | Reason::Behind { .. } | Reason::Ahead { .. } | Reason::Room { .. }
    )
}

impl Checker for Trips {
    fn look(&mut self, _terms: &Terms, before: &Scene, now: &Scene, _found: &mut Found) {
        self.at = now.at;
        self.seen.clear();
        let Spent { run, wait, sleeps } = &mut self.spent;
        for (then, now) in now.since(before).filter(|(_, now)| now.id.is_some()) {
            *run = *run + now.run.less(then.run);
            *wait = *wait + now.wait.less(then.wait);
            *sleeps += now.sleeps.saturating_sub(then.sleeps);
        }
        for thread in &now.threads {
            if let Some(id) = thread.id {
                self.seen.insert(id, (Who::of(thread), thread.cpu));
            }
        }
        // Whoever came or went in between is not accounted for: that is no time in which nothing was to be gained.
        if !before.alive().map(Who::of).eq(now.alive().map(Who::of)) {
            *sleeps += 1;
        }
    }

    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut Found) {
        for decision in &step.turn.decisions {
            let single = decision.act.to().filter(|to| to.len() == 1).and_then(|to| to.first());
            let Some(to) = single else { continue };
            let Some(&(who, on)) = self.seen.get(&decision.thread) else { continue };
            let (from, before) = self.places.get(&decision.thread).copied().unwrap_or((on, None));
            if from == to {
                continue;
            }
            let back = before.is_some_and(|left| left.cpu == to && self.spent.smoothly(left.spent));
            let fair = terms.even && terms.counts_waits();
            let counts = back && balances(decision) && fair && self.at >= terms.calm + GRACE;
            if counts {
                let vain = self.vain.entry(decision.thread).or_default();
                *vain += 1;
                let long = self.at.since(terms.calm);
                if *vain > FORGIVEN + long.0 / EACH.0 {
                    let text = format!(
                        "goes back from CPU {from} to {to}, its {vain}th trip for nothing in {long}: {}",
                        decision.reason
                    );
                    found.add(Invariant::Trips, Some(who), text);
                }
            }
            self.places.insert(decision.thread, (to, Some(Left { cpu: from, spent: self.spent })));
        }
    }
}
