//! Who is kept where it is while a move from or to its unit is on trial.
//!
//! Problem: a kernel makes good what is moved, with a thread that nobody keeps anywhere; what that costs or brings is then taken
//! for the trial's doing, and no placement ever shows what it is worth. Idea: before anything is measured, threads of the trial's units
//! that compute and are loose are kept in the unit where they are, and let go when no trial has needed that for [`LINGERS`]:
//! trials follow each other, and masks need not go to and fro with each. But who stalls in a unit where a move was kept stays there like
//! who was moved: what was found to be good is all of them together, and a kernel that spreads threads would undo it with the next one that
//! is loose.
//!
//! Properties: nobody is moved by it, so it is not paid for with moves; who may not be moved is not kept; who is put somewhere by a
//! trial is no more of these.

use super::super::sitter::Standing;
use super::super::{Decision, Reason};
use super::herd::Herd;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::time::{Moment, Span};
use std::collections::BTreeMap;

/// For how long who was kept stays so.
const LINGERS: Span = Span::from_ms(1_000);

/// Who is kept, and when that was last needed.
#[derive(Debug, Default)]
pub(super) struct Fences {
    kept: BTreeMap<ThreadId, Moment>,
}

impl Fences {
    /// Keeps who is loose in these units.
    pub(super) fn raise(&mut self, herd: &mut Herd, seen: &Observation<'_>, units: &[u16]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (i, view) in seen.threads.iter().enumerate() {
            let Some(unit) = herd.unit(i).filter(|unit| units.contains(unit)) else { continue };
            let loose = !matches!(herd.sitter(i).standing, Standing::Within(_)) && herd.sitter(i).active();
            let room = herd.room(i, unit);
            if loose && herd.may_yield(i, view) && !room.is_empty() {
                decisions.push(herd.base.seating.keep_within(i, unit, room, Reason::Steady));
                self.kept.insert(view.id(), seen.at);
            }
        }
        decisions
    }

    /// Lets go whom no trial needs any more.
    pub(super) fn lower(&mut self, herd: &mut Herd, at: Moment, busy: &[u16]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.kept.retain(|id, needed| {
            let Some(i) = herd.find(*id) else { return false };
            let sitter = herd.sitter(i);
            let unit = match sitter.standing {
                Standing::Within(unit) => unit,
                // It is not known yet what became of it.
                _ => return sitter.waits(),
            };
            if busy.contains(&unit) {
                *needed = at;
            }
            if at.since(*needed) < LINGERS || !herd.movable(i) {
                return true;
            }
            decisions.push(herd.base.seating.release(i, Reason::Done));
            false
        });
        decisions
    }

    /// A move from or to these units was kept: who stalls there belongs to what was found good.
    pub(super) fn stay(&mut self, herd: &Herd, units: &[u16]) {
        let there = |id: &ThreadId| {
            let unit = herd.find(*id).and_then(|i| herd.unit(i));
            unit.is_some_and(|unit| units.contains(&unit)) && herd.weighs(*id)
        };
        self.kept.retain(|id, _| !there(id));
    }

    /// A trial puts it somewhere.
    pub(super) fn remove(&mut self, id: ThreadId) {
        self.kept.remove(&id);
    }

    /// All were let go.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether this one is kept for trials alone.
    pub(super) fn holds(&self, id: ThreadId) -> bool {
        self.kept.contains_key(&id)
    }
}
