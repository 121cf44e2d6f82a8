//! Memory follows threads that stayed where they were moved, if the user wants that.
//!
//! Problem: a thread that leaves its node leaves its memory behind, and what was gained by moving is lost again to distance; but moving
//! memory costs far more than moving a thread. Idea: only after a move that was kept for [`STAYED`], only when all threads of the process
//! that compute are on that node, and only once for each time that they come there together.
//!
//! Properties: nothing is fetched unless asked for; a host that refuses is not asked again for that process.

use super::super::{Decision, Reason, Refusal, Settled};
use super::herd::Herd;
use crate::ids::{OsNode, ThreadId};
use crate::observe::Observation;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// For how long a thread must have stayed.
const STAYED: Span = Span::from_ms(1_000);

/// Whose memory is where, as far as we brought it there.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    /// Threads whose move was kept, and when.
    kept: BTreeMap<ThreadId, Moment>,
    /// Where the memory of processes was brought to.
    at: BTreeMap<u32, OsNode>,
    asked: BTreeMap<ThreadId, u32>,
    refused: BTreeSet<u32>,
}

impl Fetches {
    /// A move was kept.
    pub(super) fn kept(&mut self, id: ThreadId, at: Moment) {
        self.kept.insert(id, at);
    }

    /// Nobody is kept anywhere any more.
    pub(super) fn let_go(&mut self) {
        self.kept.clear();
    }

    /// What became of earlier ones.
    pub(super) fn look(&mut self, seen: &Observation<'_>) {
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

    /// The next memory to bring, one process a look. Threads of `busy` units are on trial.
    pub(super) fn next(
        &mut self,
        herd: &mut Herd,
        seen: &Observation<'_>,
        busy: &[u16],
    ) -> Option<(Decision, u16)> {
        let due: Vec<ThreadId> =
            self.kept.iter().filter(|(_, at)| seen.at.since(**at) >= STAYED).map(|(id, _)| *id).collect();
        for id in due {
            let Some((i, unit)) = herd.find(id).and_then(|i| Some((i, herd.unit(i)?))) else {
                self.kept.remove(&id);
                continue;
            };
            if busy.contains(&unit) || !herd.movable(i) || herd.sitter(i).stale {
                continue;
            }
            let pid = seen.threads[i].info.pid;
            // Another of its process has just come.
            let fresh = |(other, at): (&ThreadId, &Moment)| {
                seen.at.since(*at) < STAYED && seen.thread(*other).is_some_and(|view| view.info.pid == pid)
            };
            if self.kept.iter().any(fresh) {
                continue;
            }
            self.kept.remove(&id);
            let Some(node) = herd.units.all[usize::from(unit)].node else { continue };
            let elsewhere = (0..herd.len()).any(|j| {
                let there = herd.unit(j).and_then(|unit| herd.units.all[usize::from(unit)].node);
                seen.threads[j].info.pid == pid && herd.sitter(j).active() && there != Some(node)
            });
            if elsewhere || self.refused.contains(&pid) || self.at.get(&pid) == Some(&node) {
                continue;
            }
            self.at.insert(pid, node);
            self.asked.insert(id, pid);
            return Some((herd.base.seating.fetch(i, node, Reason::Stayed), unit));
        }
        None
    }
}
