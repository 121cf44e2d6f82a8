//! Checker of idleness: no CPU is idle while a thread waits that has work to do and may run there.
//!
//! The condition is that the CPU is idle and that, in each scene, some thread waits that may run
//! there. On a crowded CPU the threads take turns, so each waits only briefly.
//!
//! Bound: the time that the kernel's own rule takes to notice. A kernel that pins has no bound,
//! because it leaves CPUs idle for the whole run. Kernels by rounds and by credits pull at the next
//! tick; but a CPU that found no thread searches again up to 4 ticks later, and may find none again
//! if the waiting thread only waits for others: 20 ticks. Fair kernels balance the widest domain
//! after twice its width in milliseconds (8 for the kernels of 2008) while idle, take a thread that
//! just ran only after two failed searches, and of all idle CPUs of a group the first one searches
//! for all: 20 ticks and five such intervals for each CPU that may come before this one, but at
//! most a second.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::kernel::SchedulerKind;
use crate::world::{Activity, ThreadView};
use std::collections::BTreeMap;
use trimtab_core::ids::OsCpu;
use trimtab_core::time::{Moment, Span};

/// Checker of idleness: since when each CPU has been idle while a thread could have run there.
#[derive(Debug, Default)]
pub(crate) struct IdleChecker {
    resting: BTreeMap<OsCpu, Moment>,
}

/// Returns the bound; `None` if there is none.
fn bound(terms: &Terms) -> Option<Span> {
    let kernel = &terms.kernel;
    let ticks = kernel.tick.times(20.0);
    let cpus = terms.machine.pu_count() as u64;
    let widest = match kernel.kind {
        SchedulerKind::Pinned => return None,
        SchedulerKind::Dwrr | SchedulerKind::Credit => return Some(ticks),
        SchedulerKind::Load => 8 * kernel.balance.0,
        SchedulerKind::Eevdf => cpus * kernel.balance.0,
    };
    let searches = Span(10 * widest.max(kernel.tick.0));
    Some((ticks + searches).times(cpus as f64).min(Span::from_ms(1_000)).max(ticks + searches))
}

impl Checker for IdleChecker {
    fn inspect(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        let Some(bound) = bound(terms) else { return };
        let rested = now.rested(before);
        let mut resting = BTreeMap::new();
        if !rested.is_empty() {
            let crowded = |cpu: OsCpu| {
                let load =
                    |scene: &Scene| scene.loads.iter().find(|(at, _)| *at == cpu).map(|(_, load)| *load);
                load(before) > Some(1) && load(now) > Some(1)
            };
            let waits = |thread: &ThreadView| thread.activity == Activity::Queued && thread.left > 0.0;
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
                found.add(Invariant::Idle, Some(ThreadKey::of(thread)), text);
            }
        }
        self.resting = resting.into_iter().map(|(cpu, (_, since))| (cpu, since)).collect();
    }
}
