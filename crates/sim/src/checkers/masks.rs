//! Masks: no thread is outside its own, each is what was decided last, and in the end all are as they were.
//!
//! Policies are not asked to give masks back at their end: the host does that, here as live. So while a run goes on this checks what the
//! policy decided, its releases included, and in the end the host's book of whose mask it set and how it found it, through moves that were refused, done
//! late or lost with their CPUs.
//!
//! Bounds: none. A thread none of whose CPUs may be used may run anywhere, as Linux lets it. A decision holds from when the host says that
//! it was applied. Threads that nobody looks after keep the mask with which they were born.

use super::scene::ready;
use super::{Checker, Found, Invariant, Scene, Terms, Who};
use std::collections::BTreeMap;
use trimtab_core::balance::{Act, Decision, Outcome, Settled};
use trimtab_core::drive::Step;
use trimtab_core::ids::ThreadId;
use trimtab_core::set::CpuSet;

/// What is known of a thread.
#[derive(Clone, Debug)]
struct Mask {
    home: CpuSet,
    expected: CpuSet,
}

/// The checker.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    masks: BTreeMap<Who, Mask>,
    numbers: BTreeMap<ThreadId, Who>,
    pending: BTreeMap<ThreadId, Act>,
}

impl Masks {
    fn applied(&mut self, thread: ThreadId, act: &Act, machine: &CpuSet) {
        let Some(mask) = self.numbers.get(&thread).and_then(|who| self.masks.get_mut(who)) else { return };
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

impl Checker for Masks {
    fn look(&mut self, _terms: &Terms, _before: &Scene, now: &Scene, found: &mut Found) {
        for thread in now.alive() {
            let who = Who::of(thread);
            if let Some(id) = thread.id {
                self.numbers.insert(id, who);
            }
            let mask = self
                .masks
                .entry(who)
                .or_insert_with(|| Mask { home: thread.mask.clone(), expected: thread.mask.clone() });
            if thread.mask != mask.expected {
                let text = format!("has the mask {}, not {}", thread.mask, mask.expected);
                found.add(Invariant::Masks, Some(who), text);
            }
            if !ready(thread) {
                continue;
            }
            if !now.usable.contains(thread.cpu) {
                let text = format!("is on CPU {}, usable are {}", thread.cpu, now.usable);
                found.add(Invariant::Masks, Some(who), text);
            } else if !thread.mask.contains(thread.cpu) && thread.mask.intersects(&now.usable) {
                let text = format!("is on CPU {}, outside its mask {}", thread.cpu, thread.mask);
                found.add(Invariant::Masks, Some(who), text);
            }
        }
    }

    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut Found) {
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

    fn end(&mut self, _terms: &Terms, now: &Scene, found: &mut Found) {
        for thread in now.alive() {
            let who = Who::of(thread);
            if let Some(mask) = self.masks.get(&who).filter(|mask| mask.home != thread.mask) {
                let text = format!("is left with the mask {} in the end, not {}", thread.mask, mask.home);
                found.add(Invariant::Masks, Some(who), text);
            }
        }
    }
}
