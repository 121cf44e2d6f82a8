//! Counts of restored masks, and the passes over all threads that give masks back.

use super::{AffinityWriter, Surroundings};
use crate::host::constraints::is_gone;
use crate::host::discovery::ThreadTable;
use crate::process::Pid;
use trimtab_core::ids::ThreadId;

/// Outcome of giving masks back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Threads that have their own mask again.
    pub given_back: u32,
    /// Threads with a mask that others set since; not changed.
    pub changed: u32,
    /// Threads that had ended.
    pub vanished: u32,
    /// Threads for which the kernel refused to give the mask back.
    pub refused: u32,
}

impl Restored {
    /// Adds another pass over the same threads: a thread that was refused is tried, and counted,
    /// again.
    pub(in crate::host) fn and(self, more: Self) -> Self {
        Self {
            given_back: self.given_back + more.given_back,
            changed: self.changed + more.changed,
            vanished: self.vanished + more.vanished,
            refused: more.refused,
        }
    }

    /// Counts the outcome for one thread.
    fn count(&mut self, end: Result<bool, rustix::io::Errno>) {
        let count = match end {
            Ok(true) => &mut self.given_back,
            Ok(false) => &mut self.changed,
            Err(errno) if is_gone(errno) => &mut self.vanished,
            Err(_) => &mut self.refused,
        };
        *count += 1;
    }
}

impl AffinityWriter {
    /// Gives every thread that still has our mask its own mask back.
    pub(in crate::host) fn restore(&mut self, around: &mut Surroundings<'_>) -> Restored {
        let mut restored = Restored::default();
        let held = self.threads.iter().filter(|(_, binding)| binding.held.is_some());
        let held: Vec<ThreadId> = held.map(|(id, _)| *id).collect();
        for id in held {
            let end = self.release(id, around);
            restored.count(end);
        }
        restored
    }

    /// Gives one thread its own mask back; `restored` counts the outcome.
    pub(in crate::host) fn restore_one(
        &mut self,
        id: ThreadId,
        restored: &mut Restored,
        around: &mut Surroundings<'_>,
    ) {
        if self.threads.get(&id).is_some_and(|binding| binding.held.is_some()) {
            let end = self.release(id, around);
            restored.count(end);
        }
    }

    /// Returns whether a thread in any of these processes inherited or may inherit a mask of ours.
    pub(in crate::host) fn has_given(&self, mut processes: impl Iterator<Item = Pid>) -> bool {
        processes.any(|pid| self.processes.get(&pid).is_some_and(|custody| !custody.given.is_empty()))
    }

    /// Ends the records. Records of processes in which a mask could not be given back stay, for the
    /// next balancer or a restore.
    pub(in crate::host) fn finish_records(&mut self, table: &ThreadTable) {
        for pid in table.processes() {
            let ours = self.still_ours(pid, table);
            let Some(custody) = self.processes.get_mut(&pid) else { continue };
            custody.given.clear();
            if let Some(record) = custody.record.take()
                && !ours
            {
                record.finish();
            }
        }
    }

    /// Returns whether a thread of a process still has a mask of ours.
    pub(super) fn still_ours(&self, pid: Pid, table: &ThreadTable) -> bool {
        let held = |id: &ThreadId| self.threads.get(id).is_some_and(|binding| binding.held.is_some());
        table.threads_of(pid).iter().any(held)
    }
}
