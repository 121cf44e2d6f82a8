//! Checker of masks: no thread is outside its mask, each mask is as last decided, and at the end
//! all are restored.
//!
//! Policies do not give masks back at their end: the host does, here as on a live machine. So
//! during a run this checks the policy's decisions, including its releases. At the end it checks
//! the host's record of changed masks and their former values, for moves that were refused, applied
//! late or lost with their CPUs.
//!
//! Bounds: none. If none of a thread's CPUs is usable, the thread may run on any CPU, as Linux lets
//! it. A decision holds from the time at which the host reports that it was applied. Threads that
//! no policy balances keep the mask with which they were created.

use super::scene::ready;
use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use std::collections::BTreeMap;
use trimtab_core::balance::{Act, Decision, Outcome, Settled};
use trimtab_core::drive::Step;
use trimtab_core::ids::ThreadId;
use trimtab_core::set::CpuSet;

/// Masks of a thread: its own, and the expected one.
#[derive(Clone, Debug)]
struct Mask {
    home: CpuSet,
    expected: CpuSet,
}

/// Checker of masks.
#[derive(Debug, Default)]
pub(crate) struct MasksChecker {
    masks: BTreeMap<ThreadKey, Mask>,
    numbers: BTreeMap<ThreadId, ThreadKey>,
    pending: BTreeMap<ThreadId, Act>,
}

impl MasksChecker {
    fn applied(&mut self, thread: ThreadId, act: &Act, machine: &CpuSet) {
        let Some(mask) = self.numbers.get(&thread).and_then(|key| self.masks.get_mut(key)) else { return };
        match act {
            Act::Confine(to) => mask.expected = to.intersection(machine),
            Act::Release => mask.expected = mask.home.clone(),
            Act::Nudge(_) | Act::Fetch(_) => {}
        }
    }

    fn settle(&mut self, outcome: &Outcome, act: Option<Act>, machine: &CpuSet) {
        match (outcome.end, act) {
            (Settled::Applied, Some(act)) => self.applied(outcome.thread, &act, machine),
            (Settled::Pending, Some(act)) => {
                self.pending.insert(outcome.thread, act);
            }
            _ => {}
        }
    }
}

impl Checker for MasksChecker {
    fn inspect(&mut self, _terms: &Terms, _before: &Scene, now: &Scene, found: &mut ViolationLog) {
        for thread in now.alive() {
            let key = ThreadKey::of(thread);
            if let Some(id) = thread.id {
                self.numbers.insert(id, key);
            }
            let mask = self
                .masks
                .entry(key)
                .or_insert_with(|| Mask { home: thread.mask.clone(), expected: thread.mask.clone() });
            if thread.mask != mask.expected {
                let text = format!("has the mask {}, not {}", thread.mask, mask.expected);
                found.add(Invariant::Masks, Some(key), text);
            }
            if !ready(thread) {
                continue;
            }
            if !now.usable.contains(thread.cpu) {
                let text = format!("is on CPU {}, usable are {}", thread.cpu, now.usable);
                found.add(Invariant::Masks, Some(key), text);
            } else if !thread.mask.contains(thread.cpu) && thread.mask.intersects(&now.usable) {
                let text = format!("is on CPU {}, outside its mask {}", thread.cpu, thread.mask);
                found.add(Invariant::Masks, Some(key), text);
            }
        }
    }

    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut ViolationLog) {
        let machine = terms.machine.cpus();
        for outcome in &step.sample.settled {
            let act = self.pending.remove(&outcome.thread);
            self.settle(outcome, act, &machine);
        }
        let told = step.outcomes.iter().map(|outcome| outcome.thread);
        if !told.eq(step.turn.decisions.iter().map(|decision| decision.thread)) {
            found.add(Invariant::Masks, None, "not every decision has its outcome, in order".to_owned());
        }
        for (Decision { act, .. }, outcome) in step.turn.decisions.iter().zip(step.outcomes) {
            self.settle(outcome, Some(act.clone()), &machine);
        }
    }

    fn end(&mut self, _terms: &Terms, now: &Scene, found: &mut ViolationLog) {
        for thread in now.alive() {
            let key = ThreadKey::of(thread);
            if let Some(mask) = self.masks.get(&key).filter(|mask| mask.home != thread.mask) {
                let text = format!("is left with the mask {} in the end, not {}", thread.mask, mask.home);
                found.add(Invariant::Masks, Some(key), text);
            }
        }
    }
}
