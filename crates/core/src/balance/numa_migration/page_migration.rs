//! Page migration: memory follows threads that stayed where they were moved, if the user wants
//! that.
//!
//! Problem: a thread that leaves its node leaves its memory behind, and distance cancels the gain
//! of the move. But moving memory costs far more than moving a thread.
//!
//! Idea: memory is moved only after a move that was kept for [`STAY_TIME_MIN`], only when all
//! computing threads of the process are on that node, and only once for each time that they gather
//! there.
//!
//! Properties: nothing is moved unless the user requests it. A host that refuses is not asked again
//! for that process.

use super::super::{Decision, Reason, Refusal, Settled};
use super::thread_stats::ThreadStats;
use crate::ids::{OsNode, ThreadId};
use crate::observe::Observation;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Time for which a moved thread must have stayed.
const STAY_TIME_MIN: Span = Span::from_ms(1_000);

/// Memory of processes, as far as this policy moved it.
#[derive(Debug, Default)]
pub(super) struct PageMigrations {
    /// Threads with a kept move, and the time at which it was kept.
    kept: BTreeMap<ThreadId, Moment>,
    /// Node to which the memory of each process was moved.
    at: BTreeMap<u32, OsNode>,
    asked: BTreeMap<ThreadId, u32>,
    refused: BTreeSet<u32>,
}

impl PageMigrations {
    /// Records that a move was kept.
    pub(super) fn kept(&mut self, id: ThreadId, at: Moment) {
        self.kept.insert(id, at);
    }

    /// Records that no thread is kept in a unit any more.
    pub(super) fn let_go(&mut self) {
        self.kept.clear();
    }

    /// Processes the outcomes of earlier requests.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) {
        for outcome in seen.outcomes {
            if let Some(pid) = self.asked.get(&outcome.thread).copied() {
                if outcome.end != Settled::Pending {
                    self.asked.remove(&outcome.thread);
                }
                if let Settled::Refused(Refusal::Memory | Refusal::Permission) = outcome.end {
                    self.refused.insert(pid);
                }
            }
        }
        for id in seen.gone {
            self.kept.remove(id);
            self.asked.remove(id);
        }
        let alive = |pid: &u32| seen.threads.iter().any(|view| view.info.pid == *pid);
        if !seen.gone.is_empty() {
            self.refused.retain(alive);
            self.at.retain(|pid, _| alive(pid));
        }
    }

    /// Returns the next memory to move, one process per sample, with the unit of its thread.
    /// Threads of `busy` units are on trial and are skipped.
    pub(super) fn next(
        &mut self,
        stats: &mut ThreadStats,
        seen: &Observation<'_>,
        busy: &[u16],
    ) -> Option<(Decision, u16)> {
        let due: Vec<ThreadId> = self
            .kept
            .iter()
            .filter(|(_, at)| seen.at.since(**at) >= STAY_TIME_MIN)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some((i, unit)) = stats.find(id).and_then(|i| Some((i, stats.unit(i)?))) else {
                self.kept.remove(&id);
                continue;
            };
            if busy.contains(&unit) || !stats.movable(i) || stats.thread(i).stale {
                continue;
            }
            let pid = seen.threads[i].info.pid;
            // Another thread of the process has just arrived.
            let fresh = |(other, at): (&ThreadId, &Moment)| {
                seen.at.since(*at) < STAY_TIME_MIN
                    && seen.thread(*other).is_some_and(|view| view.info.pid == pid)
            };
            if self.kept.iter().any(fresh) {
                continue;
            }
            self.kept.remove(&id);
            let Some(node) = stats.units.all[usize::from(unit)].node else { continue };
            let elsewhere = (0..stats.len()).any(|j| {
                let there = stats.unit(j).and_then(|unit| stats.units.all[usize::from(unit)].node);
                seen.threads[j].info.pid == pid && stats.thread(j).active() && there != Some(node)
            });
            if elsewhere || self.refused.contains(&pid) || self.at.get(&pid) == Some(&node) {
                continue;
            }
            self.at.insert(pid, node);
            self.asked.insert(id, pid);
            return Some((stats.context.table.migrate_pages(i, node, Reason::Stayed), unit));
        }
        None
    }
}
