//! Checker of starvation: a ready thread with work to do runs within a bounded time.
//!
//! Bound: a tenth of a second, and four rounds of all threads on its CPU, each with the longest
//! turn that the kernel allows (its slice, its latency, its tick), times the ratio of the weights.
//! Rounds and credits concern the whole machine, so all threads of the machine count there; if
//! sessions share, all threads of a session count. Xen's credits are distributed over the whole
//! machine regardless of masks, and woken threads with credit run first. If many threads are
//! confined to a CPU, some may wait there without end, in Xen as here; so nothing is checked while
//! any mask confines a thread. A thread that only polls for others may be passed over for as long
//! as they compute.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::kernel::SchedulerKind;
use crate::world::Activity;
use std::collections::BTreeMap;
use trimtab_core::time::{Moment, Span};

/// Part of the bound besides the rounds: moves, and hardware that vanishes, restart a wait.
const WAIT_BASE: Span = Span::from_ms(100);

/// Rounds: one that is owed to others, one of theirs, one of the threads that arrived meanwhile,
/// and one for rounding up to ticks.
const ROUNDS_MAX: f64 = 4.0;

/// Checker of starvation: since when each thread waits, and the most threads that wanted its CPU
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct StarvingChecker {
    waiting: BTreeMap<ThreadKey, (Moment, usize)>,
}

fn bound(terms: &Terms, crowd: usize) -> Span {
    WAIT_BASE + terms.turn().times(ROUNDS_MAX * (1 + crowd) as f64 * terms.weights)
}

impl Checker for StarvingChecker {
    fn inspect(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        let mut waiting = BTreeMap::new();
        if terms.kernel.kind == SchedulerKind::Credit
            && now.alive().any(|thread| !now.usable.is_subset(&thread.mask))
        {
            self.waiting = waiting;
            return;
        }
        let all: usize = now.loads.iter().map(|(_, load)| load).sum();
        let whole =
            terms.kernel.groups || matches!(terms.kernel.kind, SchedulerKind::Dwrr | SchedulerKind::Credit);
        for (then, thread) in now.since(before) {
            let waits = then.activity == Activity::Queued
                && thread.activity == Activity::Queued
                && thread.slices == then.slices
                && thread.left > 0.0;
            if !waits {
                continue;
            }
            let key = ThreadKey::of(thread);
            let here = now.loads.iter().find(|(cpu, _)| *cpu == thread.cpu).map_or(0, |(_, load)| *load);
            let crowd = if whole { all } else { here };
            let (since, crowd) = match self.waiting.get(&key) {
                Some((since, most)) => (*since, crowd.max(*most)),
                None => (before.at, crowd),
            };
            let (long, bound) = (now.at.since(since), bound(terms, crowd));
            if long > bound {
                let text = format!("waits for {long} on CPU {} among {crowd}: {bound}", thread.cpu);
                found.add(Invariant::Starving, Some(key), text);
            }
            waiting.insert(key, (since, crowd));
        }
        self.waiting = waiting;
    }
}
