//! Checker of trips: the policy moves no thread to another CPU and back if there is nothing to
//! gain.
//!
//! There is nothing to gain if all cores are equal and no balanced thread has waited for a CPU, by
//! a fiftieth of the time that it ran, since the thread left the CPU to which it returns. Taking
//! turns on crowded CPUs is not such a trip: threads wait there.
//!
//! A trip during which a thread started, ended or slept is not judged either: a sleeping thread has
//! no speed, so the load of its CPU is known only by the CPU's own counter, in steps of 10 ms. The
//! paper's own metric, the share of all time, takes a sleeping thread for a slow one; its moves are
//! not judged.
//!
//! Bound: three such trips a thread, and one more every five seconds, counted from a second after
//! the last change of the load and the last fault: a policy may be wrong for as long as it uses old
//! readings.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use std::collections::BTreeMap;
use trimtab_core::balance::{Decision, Reason};
use trimtab_core::drive::Step;
use trimtab_core::ids::{OsCpu, ThreadId};
use trimtab_core::time::{Moment, Span};

/// Time for which old readings may still count.
const OLD_READINGS_SPAN: Span = Span::from_ms(1_000);
/// Number of trips without gain that are allowed from the start.
const TRIPS_FORGIVEN: u64 = 3;
/// Period after which one more such trip is allowed.
const FORGIVENESS_PERIOD: Span = Span::from_ms(5_000);
/// Waiting below this share of the running time counts as none.
const WAIT_SHARE_IGNORED: f64 = 0.02;

/// Run time, wait time and number of sleeps of all balanced threads.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    run: Span,
    wait: Span,
    sleeps: u64,
}

impl Spent {
    /// Returns whether no thread waited, or slept, since an earlier time.
    fn smoothly(self, since: Self) -> bool {
        let (ran, waited) = (self.run.less(since.run), self.wait.less(since.wait));
        self.sleeps == since.sleeps && waited.seconds() < WAIT_SHARE_IGNORED * ran.seconds()
    }
}

/// CPU that a thread left, and the sums when it left.
#[derive(Clone, Copy, Debug)]
struct Departure {
    cpu: OsCpu,
    spent: Spent,
}

/// Checker of trips.
#[derive(Debug, Default)]
pub(crate) struct TripsChecker {
    /// By thread: its present CPU, and the one before.
    places: BTreeMap<ThreadId, (OsCpu, Option<Departure>)>,
    vain: BTreeMap<ThreadId, u64>,
    /// By thread: its identity and CPU; and the sums of all threads.
    seen: BTreeMap<ThreadId, (ThreadKey, OsCpu)>,
    spent: Spent,
    at: Moment,
}

/// Returns whether a decision is for balance, and not a start, a response to the machine or a
/// correction.
pub(crate) fn balances(decision: &Decision) -> bool {
    matches!(
        decision.reason,
        Reason::Slow { .. } | Reason::Behind { .. } | Reason::Ahead { .. } | Reason::Room { .. }
    )
}

impl Checker for TripsChecker {
    fn inspect(&mut self, _terms: &Terms, before: &Scene, now: &Scene, _found: &mut ViolationLog) {
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
                self.seen.insert(id, (ThreadKey::of(thread), thread.cpu));
            }
        }
        // A thread that started or ended in between is not accounted for, so this is not a time
        // without gain.
        if !before.alive().map(ThreadKey::of).eq(now.alive().map(ThreadKey::of)) {
            *sleeps += 1;
        }
    }

    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut ViolationLog) {
        for decision in &step.turn.decisions {
            let single = decision.act.to().filter(|to| to.len() == 1).and_then(|to| to.first());
            let Some(to) = single else { continue };
            let Some(&(key, on)) = self.seen.get(&decision.thread) else { continue };
            let (from, before) = self.places.get(&decision.thread).copied().unwrap_or((on, None));
            if from == to {
                continue;
            }
            let back = before.is_some_and(|left| left.cpu == to && self.spent.smoothly(left.spent));
            let fair = terms.even && terms.counts_waits();
            let counts = back && balances(decision) && fair && self.at >= terms.calm + OLD_READINGS_SPAN;
            if counts {
                let vain = self.vain.entry(decision.thread).or_default();
                *vain += 1;
                let long = self.at.since(terms.calm);
                if *vain > TRIPS_FORGIVEN + long.0 / FORGIVENESS_PERIOD.0 {
                    let text = format!(
                        "goes back from CPU {from} to {to}, its {vain}th trip without a benefit in {long}: {}",
                        decision.reason
                    );
                    found.add(Invariant::Trips, Some(key), text);
                }
            }
            self.places.insert(decision.thread, (to, Some(Departure { cpu: from, spent: self.spent })));
        }
    }
}
