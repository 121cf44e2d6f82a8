//! Decisions about threads, with their outcomes.

use super::ThreadAccount;
use crate::balance::{Act, Outcome, Reason, Settled};
use crate::drive::Step;
use crate::ids::{OsCpu, ThreadId};
use crate::time::Moment;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// A decision about a thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Move {
    /// Moment of the decision.
    #[serde(rename = "at_ns")]
    pub at: Moment,
    /// Thread that the decision is about.
    pub thread: ThreadId,
    /// Thread number of the kernel; `None` for a thread that was never described.
    pub tid: Option<u32>,
    /// Name of the thread.
    pub name: String,
    /// CPU on which the thread was last seen.
    pub from: Option<OsCpu>,
    /// Decided action.
    pub act: Act,
    /// Reason of the policy.
    pub reason: Reason,
    /// Share by which the slowest thread is expected to progress faster.
    pub gain: Option<f64>,
    /// Outcome of the decision.
    pub end: Settled,
}

/// The latest moves, and the number of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    latest: VecDeque<Move>,
    decided: u64,
}

impl Moves {
    pub(super) fn latest(&self) -> impl DoubleEndedIterator<Item = &Move> {
        self.latest.iter()
    }

    pub(super) fn decided(&self) -> u64 {
        self.decided
    }

    /// Records the outcomes of earlier decisions. An outcome belongs to the oldest open decision
    /// about its thread.
    pub(super) fn settle(&mut self, settled: &[Outcome], threads: &mut BTreeMap<ThreadId, ThreadAccount>) {
        for outcome in settled {
            let mut open = self.latest.iter_mut();
            let open = open.find(|one| one.thread == outcome.thread && one.end == Settled::Pending);
            if let Some(one) = open {
                one.end = outcome.end;
                count(threads, outcome);
            }
        }
    }

    /// Records the decisions of a step. A decision without an outcome is open.
    pub(super) fn add(
        &mut self,
        step: &Step<'_>,
        threads: &mut BTreeMap<ThreadId, ThreadAccount>,
        keep: usize,
    ) {
        for (at, decision) in step.turn.decisions.iter().enumerate() {
            let end = step.outcomes.get(at).filter(|outcome| outcome.thread == decision.thread);
            let end = end.map_or(Settled::Pending, |outcome| outcome.end);
            let thread = threads.get(&decision.thread);
            self.decided += 1;
            if self.latest.len() >= keep.max(1) {
                self.latest.pop_front();
            }
            self.latest.push_back(Move {
                at: step.seen.at,
                thread: decision.thread,
                tid: thread.map(|thread| thread.info.tid),
                name: thread.map(|thread| thread.info.name.clone()).unwrap_or_default(),
                from: thread.and_then(|thread| thread.cpu),
                act: decision.act.clone(),
                reason: decision.reason.clone(),
                gain: decision.gain,
                end,
            });
            count(threads, &Outcome { thread: decision.thread, end });
        }
    }
}

fn count(threads: &mut BTreeMap<ThreadId, ThreadAccount>, outcome: &Outcome) {
    if outcome.end == Settled::Applied
        && let Some(thread) = threads.get_mut(&outcome.thread)
    {
        thread.moves += 1;
    }
}
