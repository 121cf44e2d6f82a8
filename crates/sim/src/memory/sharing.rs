//! Shared lines that several threads of a program write: each write fetches the line from its last
//! writer.
//!
//! Unit: nanoseconds a write. Idea: the last writer is one of the running threads; its distance
//! decides the transfer time. A thread finds its own line again only if the lines are not
//! contended; if they are, all other threads have had the line in between. A line can be at one
//! place only, so a line is a server, and waiting for it is a queue like any other (see
//! [`queues`](super::queues)).

use super::{Memory, Task};
use std::collections::BTreeMap;

/// Threads of one program that write shared lines.
#[derive(Clone, Debug)]
pub(super) struct WriterTeam {
    /// Threads on a CPU, in the order of their arrival.
    pub(super) running: Vec<usize>,
    /// Queue for the lines.
    pub(super) resource: usize,
    /// Busy share of the lines.
    pub(super) busy: f64,
    /// Mean cost of a write, ns.
    pub(super) mean: f64,
}

impl Memory {
    /// Computes the cost of a write for each running thread of each program, without waiting.
    pub(super) fn settle_sharing(&mut self) {
        for team in self.teams.values_mut() {
            let mut cores: BTreeMap<usize, f64> = BTreeMap::new();
            let mut llcs: BTreeMap<usize, f64> = BTreeMap::new();
            for task in team.running.iter().filter_map(|&thread| self.tasks[thread].as_deref()) {
                *cores.entry(task.core).or_default() += 1.0;
                *llcs.entry(task.llc).or_default() += 1.0;
            }
            let count = team.running.len() as f64;
            // From every cache to the other writers' caches: once for each pair of caches, not of
            // threads.
            let far: BTreeMap<usize, f64> = llcs
                .keys()
                .map(|&from| {
                    let others = llcs.iter().filter(|&(&to, _)| to != from);
                    (from, others.map(|(&to, &writers)| writers * self.layout.far(from, to)).sum())
                })
                .collect();
            let own = (1.0 - team.busy) / count;
            let mut sum = 0.0;
            for &thread in &team.running {
                let Some(task) = self.tasks[thread].as_deref_mut() else { continue };
                let near = (llcs[&task.llc] - cores[&task.core]) * self.layout.transfer_ns;
                task.transfer =
                    if count > 1.0 { (1.0 - own) * (near + far[&task.llc]) / (count - 1.0) } else { 0.0 };
                sum += task.transfer;
            }
            team.mean = if count > 0.0 { sum / count } else { 0.0 };
        }
    }

    /// Lets a running thread queue for its program's lines.
    pub(super) fn share(&mut self, slot: usize, thread: usize) {
        let Some(task) = self.tasks[thread].as_deref() else { return };
        if let Some(team) = task.writes().and_then(|_| self.teams.get(&task.program)) {
            self.queues.serve(team.resource, team.mean);
            self.queues.uses(slot, team.resource, task.written, task.written * task.transfer, 1.0);
        }
    }
}

impl Task {
    /// Returns the writes to shared lines per nanosecond of work; `None` if there are none.
    pub(super) fn writes(&self) -> Option<f64> {
        (self.written > 0.0).then_some(self.written)
    }
}
