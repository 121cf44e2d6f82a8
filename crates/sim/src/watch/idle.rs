//! Idleness: no CPU rests beside a thread that waits, has work to do, and may come to it.
//!
//! Bound: what the kernel's own rule takes to see it. A kernel that pins leaves CPUs idle for ever: none. Those by rounds and by
//! credits pull at the next tick, but a CPU that found nobody looks up to 16 ticks later: 20 ticks. Fair ones look at the widest domain after twice
//! its width in milliseconds (8 of the kernels of 2008) while idle, take a thread that just ran only after two vain looks, and of all idle CPUs of a group
//! the first one looks for all: 20 ticks and five such intervals for each CPU that may be before it in the row, but at most a
//! second.

use super::{Checker, Found, Law, Scene, Terms, Who};
use crate::kernel::Kind;
use crate::world::Activity;
use std::collections::BTreeMap;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// The checker: who waits, since when, and which CPUs that it may come to have rested ever since.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    waiting: BTreeMap<Who, (Moment, CpuSet)>,
}

/// The bound; `None` where there is none.
fn bound(terms: &Terms) -> Option<Span> {
    let kernel = &terms.kernel;
    let ticks = kernel.tick.times(20.0);
    let cpus = terms.machine.pu_count() as u64;
    let widest = match kernel.kind {
        Kind::Pinned => return None,
        Kind::Dwrr | Kind::Credit => return Some(ticks),
        Kind::Load => 8 * kernel.balance.0,
        Kind::Eevdf => cpus * kernel.balance.0,
    };
    let looks = Span(10 * widest.max(kernel.tick.0));
    Some((ticks + looks).times(cpus as f64).min(Span::from_ms(1_000)).max(ticks + looks))
}

impl Checker for Idle {
    fn look(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut Found) {
        let Some(bound) = bound(terms) else { return };
        let rested = now.rested(before);
        let mut waiting = BTreeMap::new();
        for (then, thread) in now.since(before) {
            let waits = then.activity == Activity::Queued
                && thread.activity == Activity::Queued
                && thread.slices == then.slices
                && thread.left > 0.0;
            if !waits || rested.is_empty() {
                continue;
            }
            let who = Who::of(thread);
            let (since, cpus) = match self.waiting.remove(&who) {
                Some((since, cpus)) => (since, cpus.intersection(&rested)),
                None => (before.at, then.mask.intersection(&rested)),
            };
            let cpus = cpus.intersection(&thread.mask);
            if cpus.is_empty() {
                continue;
            }
            let long = now.at.since(since);
            if long > bound {
                let text = format!("waits on CPU {} for {long} while CPUs {cpus} rest: {bound}", thread.cpu);
                found.add(Law::Idle, Some(who), text);
            }
            waiting.insert(who, (since, cpus));
        }
        self.waiting = waiting;
    }
}
