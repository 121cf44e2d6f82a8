//! Threads that are kept in their unit while a move from or to that unit is on trial.
//!
//! Problem: the kernel compensates a move by migrating another unbound thread. The effect of that
//! migration is then mistaken for an effect of the trial, and no placement shows its true value.
//!
//! Idea: before the measurement starts, the unbound computing threads of the trial's units are
//! bound to their present unit. They are released when no trial has needed that for
//! [`LINGER_TIME`]: trials follow each other, and masks need not change with each. But a stalling
//! thread in a unit where a move was kept stays bound like the moved thread: the kept state
//! includes all these threads, and a kernel that spreads threads would undo it with the next
//! unbound one.
//!
//! Properties: binding moves no thread, so it does not use the limit of moves. A thread that may
//! not be moved is not bound. A thread that a trial moves leaves this list.

use super::super::thread_state::Binding;
use super::super::{Decision, Reason};
use super::thread_stats::ThreadStats;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::time::{Moment, Span};
use std::collections::BTreeMap;

/// Time for which threads stay bound after the last trial that needed it.
const LINGER_TIME: Span = Span::from_ms(1_000);

/// Bound threads, and the time at which each was last needed.
#[derive(Debug, Default)]
pub(super) struct TrialPins {
    kept: BTreeMap<ThreadId, Moment>,
}

impl TrialPins {
    /// Binds the unbound computing threads of these units to their unit.
    pub(super) fn pin(
        &mut self,
        stats: &mut ThreadStats,
        seen: &Observation<'_>,
        units: &[u16],
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (i, view) in seen.threads.iter().enumerate() {
            let Some(unit) = stats.unit(i).filter(|unit| units.contains(unit)) else { continue };
            let loose = !matches!(stats.thread(i).binding, Binding::Within(_)) && stats.thread(i).active();
            let room = stats.room(i, unit);
            if loose && stats.may_yield(i, view) && !room.is_empty() {
                decisions.push(stats.context.table.keep_within(i, unit, room, Reason::Steady));
                self.kept.insert(view.id(), seen.at);
            }
        }
        decisions
    }

    /// Releases threads that no trial needs any more.
    pub(super) fn unpin(&mut self, stats: &mut ThreadStats, at: Moment, busy: &[u16]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.kept.retain(|id, needed| {
            let Some(i) = stats.find(*id) else { return false };
            let thread = stats.thread(i);
            let unit = match thread.binding {
                Binding::Within(unit) => unit,
                // The outcome is not known yet.
                _ => return thread.waits(),
            };
            if busy.contains(&unit) {
                *needed = at;
            }
            if at.since(*needed) < LINGER_TIME || !stats.movable(i) {
                return true;
            }
            decisions.push(stats.context.table.release(i, Reason::Done));
            false
        });
        decisions
    }

    /// Records that a move from or to these units was kept: stalling threads there stay bound.
    pub(super) fn stay(&mut self, stats: &ThreadStats, units: &[u16]) {
        let there = |id: &ThreadId| {
            let unit = stats.find(*id).and_then(|i| stats.unit(i));
            unit.is_some_and(|unit| units.contains(&unit)) && stats.weighs(*id)
        };
        self.kept.retain(|id, _| !there(id));
    }

    /// Removes a thread that a trial moves.
    pub(super) fn remove(&mut self, id: ThreadId) {
        self.kept.remove(&id);
    }

    /// Removes all threads, after they were released.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Returns the number of bound threads.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether a thread is bound only for trials.
    pub(super) fn holds(&self, id: ThreadId) -> bool {
        self.kept.contains_key(&id)
    }
}
