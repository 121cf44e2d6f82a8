//! Checker of time: the threads' run time equals the CPUs' busy time, and each moment of a thread
//! is run, wait or sleep.
//!
//! Bounds: none; these are sums of whole nanoseconds and hold exactly. A thread that never slept
//! between two scenes ran or waited all the time between them; one that slept, no longer than that.

use super::scene::ready;
use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::world::Activity;
use trimtab_core::time::Span;

/// Checker of time.
#[derive(Debug)]
pub(crate) struct TimeChecker;

impl Checker for TimeChecker {
    fn inspect(&mut self, _terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        let busy: Span = now.busy.iter().map(|(_, busy)| *busy).sum();
        let alive: Span = now.alive().map(|thread| thread.run).sum();
        let ran = now.counters.ran + alive;
        if busy != ran {
            let text = format!("CPUs were busy for {} ns, and threads ran for {} ns", busy.0, ran.0);
            found.add(Invariant::Time, None, text);
        }
        let wall = now.at.since(before.at);
        for ((cpu, then), (_, now)) in before.busy.iter().zip(&now.busy) {
            if *now < *then || now.less(*then) > wall {
                let text = format!("CPU {cpu} was busy for {} in {wall}", now.less(*then));
                found.add(Invariant::Time, None, text);
            }
        }
        for (then, now) in now.since(before) {
            let spent = Span(now.run.less(then.run).0 + now.wait.less(then.wait).0);
            let awake =
                ready(then) && now.sleeps == then.sleeps && (ready(now) || now.activity == Activity::Over);
            let wrong = match now.activity {
                // The thread ended in between.
                Activity::Over => spent > wall,
                _ if awake => spent != wall,
                _ => spent > wall,
            };
            if wrong {
                let text = format!("ran and waited for {} ns of {} ns", spent.0, wall.0);
                found.add(Invariant::Time, Some(ThreadKey::of(now)), text);
            }
        }
    }
}
