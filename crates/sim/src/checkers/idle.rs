//! Idleness: no CPU rests beside a thread that waits, has work to do, and may come to it.
//!
//! What counts is that the CPU rests and that at each look somebody waits who may come: on a crowded CPU they take turns, so that
//! each waits only a moment.
//!
//! Bound: what the kernel's own rule takes to see it. A kernel that pins leaves CPUs idle for ever: none. Those by rounds and by
//! credits pull at the next tick, but a CPU that found nobody looks up to 4 ticks later, and may do so in vain when who waits just waits for others: 20 ticks. Fair ones look at the widest domain after twice
//! its width in milliseconds (8 of the kernels of 2008) while idle, take a thread that just ran only after two vain looks, and of all idle CPUs of a group
//! the first one looks for all: 20 ticks and five such intervals for each CPU that may be before it in the row, but at most a
//! second.

use super::{Checker, Found, Invariant, Scene, Terms, Who};
use crate::kernel::Kind;
use crate::world::{Activity, ThreadSeen};
use std::collections::BTreeMap;
use trimtab_core::ids::OsCpu;
use trimtab_core::time::{Moment, Span};

/// The checker: since when each CPU has rested while somebody could have come.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    resting: BTreeMap<OsCpu, Moment>,
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
        let mut resting = BTreeMap::new();
        if !rested.is_empty() {
            let crowded = |cpu: OsCpu| {
                let load =
                    |scene: &Scene| scene.loads.iter().find(|(at, _)| *at == cpu).map(|(_, load)| *load);
                load(before) > Some(1) && load(now) > Some(1)
            };
            let waits = |thread: &ThreadSeen| thread.activity == Activity::Queued && thread.left > 0.0;
            for thread in now.threads.iter().filter(|thread| waits(thread) && crowded(thread.cpu)) {
                for cpu in thread.mask.intersection(&rested).iter() {
                    resting
                        .entry(cpu)
                        .or_insert((thread, self.resting.get(&cpu).copied().unwrap_or(before.at)));
                }
            }
        }
        for (cpu, (thread, since)) in &resting {
            let long = now.at.since(*since);
            if long > bound {
                let text = format!("waits on CPU {} while CPU {cpu} rests for {long}: {bound}", thread.cpu);
                found.add(Invariant::Idle, Some(Who::of(thread)), text);
            }
        }
        self.resting = resting.into_iter().map(|(cpu, (_, since))| (cpu, since)).collect();
    }
}
