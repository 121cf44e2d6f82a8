//! Starvation: a thread that has work to do and is ready runs in the end.
//!
//! Bound: a tenth of a second, and four rounds of everybody on its CPU, each with the longest turn the kernel knows (its slice, its
//! latency, its tick), weighed by how much heavier others are. Rounds and credits go round the whole machine, so there everybody counts; so
//! do all of a session where sessions share. Xen's credits are dealt over the whole machine whatever masks say, and wakers with credit go first: on
//! a CPU to which many are confined the rest may wait for ever, there as here, and while any mask confines anybody nothing is promised. Who only polls for others may be passed over for as long as they compute.

use super::{Checker, Found, Invariant, Scene, Terms, Who};
use crate::kernel::Kind;
use crate::world::Activity;
use std::collections::BTreeMap;
use trimtab_core::time::{Moment, Span};

/// Beside the rounds: moves, and hardware that vanishes, start a wait anew.
const LEAST: Span = Span::from_ms(100);

/// Rounds: one that is owed to others, one of theirs and one of who came meanwhile, and one for rounding up to ticks.
const ROUNDS: f64 = 4.0;

/// The checker: since when each thread waits, and the most that wanted its CPU meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Starving {
    waiting: BTreeMap<Who, (Moment, usize)>,
}

fn bound(terms: &Terms, crowd: usize) -> Span {
    LEAST + terms.turn().times(ROUNDS * (1 + crowd) as f64 * terms.weights)
}

impl Checker for Starving {
    fn look(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut Found) {
        let mut waiting = BTreeMap::new();
        if terms.kernel.kind == Kind::Credit && now.alive().any(|thread| !now.usable.is_subset(&thread.mask))
        {
            self.waiting = waiting;
            return;
        }
        let all: usize = now.loads.iter().map(|(_, load)| load).sum();
        let whole = terms.kernel.groups || matches!(terms.kernel.kind, Kind::Dwrr | Kind::Credit);
        for (then, thread) in now.since(before) {
            let waits = then.activity == Activity::Queued
                && thread.activity == Activity::Queued
                && thread.slices == then.slices
                && thread.left > 0.0;
            if !waits {
                continue;
            }
            let who = Who::of(thread);
            let here = now.loads.iter().find(|(cpu, _)| *cpu == thread.cpu).map_or(0, |(_, load)| *load);
            let crowd = if whole { all } else { here };
            let (since, crowd) = match self.waiting.get(&who) {
                Some((since, most)) => (*since, crowd.max(*most)),
                None => (before.at, crowd),
            };
            let (long, bound) = (now.at.since(since), bound(terms, crowd));
            if long > bound {
                let text = format!("waits for {long} on CPU {} among {crowd}: {bound}", thread.cpu);
                found.add(Invariant::Starving, Some(who), text);
            }
            waiting.insert(who, (since, crowd));
        }
        self.waiting = waiting;
    }
}
