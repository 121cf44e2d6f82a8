//! Roots that are added and removed during the watch.
//!
//! Problem: a service receives threads one by one, from independent users. Several roots may cover
//! the same thread. The thread must be left alone when no root covers it any more, even if it is
//! still watched because of other roots. Idea: each process has a list of the roots that cover it,
//! or one thread of it; the interest in a thread follows from these roots, and changes when a root
//! is added or removed.

use super::listener::ThreadListener;
use super::roots::{Root, RootId, Watched};
use super::thread_table::Interest;
use super::{Discovery, LiveError};
use crate::process::{self, Pid, StartTime};
use std::collections::BTreeMap;
use trimtab_core::ids::{ProgramId, ThreadId};

/// Conditions of watching a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The program of its threads.
    pub program: ProgramId,
    /// If set, the root covers only threads of this user.
    pub only: Option<u32>,
    /// Start time of the process, or of the single covered thread; a later one with the same number
    /// is not covered.
    pub start: Option<StartTime>,
}

/// State of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootFacts {
    /// The root.
    pub id: RootId,
    /// Whether everything that the root names has ended.
    pub ended: bool,
    /// Number of threads that it covers now.
    pub threads: u32,
    /// Number of moves of its threads so far; 0 for a host that moves none.
    pub moves: u64,
}

impl Discovery {
    /// Starts to watch one more root. [`Self::is_meant`] and [`Self::find_next`] must follow.
    ///
    /// # Errors
    /// [`LiveError`]: the root does not exist, has ended, or is not ours to move.
    pub fn watch(
        &mut self,
        root: &Root,
        how: Watch,
        listener: &mut dyn ThreadListener,
    ) -> Result<RootId, LiveError> {
        let mut watched = self.examine(root)?;
        let proc = self.proc.path();
        let start = match root {
            Root::Tree(pid) => Some((*pid, process::stat(proc, *pid)?.start)),
            Root::Thread(pid, tid) => Some((*pid, process::thread_stat(proc, *pid, *tid)?.start)),
            Root::Vm(vm) => Some((vm.pid, vm.start)),
            Root::Cgroup(_) => None,
        };
        if let (Some((pid, start)), Some(meant)) = (start, how.start)
            && start != meant
        {
            return Err(LiveError::NoProcess(pid));
        }
        // Some descriptors are reserved for the work on roots; for a root without a descriptor, the
        // end is noticed a little later.
        watched.ends = watched.ends.filter(|_| self.budget.take_spare());
        let id = self.table.add_root(Watched { program: how.program, only: how.only, ..watched });
        if let Err(error) = self.take_root(id, listener) {
            self.drop_root(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Checks that the process that a root names is the one that started at `start`: its number may
    /// become another process's at any moment.
    ///
    /// # Errors
    /// [`LiveError::NoProcess`]: it is another process.
    pub fn is_meant(&self, root: &Root, start: Option<StartTime>) -> Result<(), LiveError> {
        match (root, start) {
            (Root::Tree(pid), Some(meant))
                if self.table.processes.get(pid).is_none_or(|process| process.start != meant) =>
            {
                Err(LiveError::NoProcess(*pid))
            }
            _ => Ok(()),
        }
    }

    /// Removes a root; returns whether it existed.
    fn drop_root(&mut self, id: RootId) -> bool {
        let watched = self.table.roots.remove(&id);
        if watched.as_ref().is_some_and(|watched| watched.ends.is_some()) {
            self.budget.give_back();
        }
        watched.is_some()
    }

    /// Ends the watch of a root. Returns the processes that it covered; `None` if the root does not
    /// exist. [`Self::drop_unmeant`] must follow.
    pub fn unwatch(&mut self, id: RootId, listener: &mut dyn ThreadListener) -> Option<Vec<Pid>> {
        if !self.drop_root(id) {
            return None;
        }
        let processes = self.table.processes.iter_mut();
        let meant: Vec<Pid> =
            processes.filter_map(|(pid, process)| process.covers.remove(&id).map(|_| *pid)).collect();
        for pid in &meant {
            self.update_interest(*pid, listener);
        }
        Some(meant)
    }

    /// Removes processes that no root covers. Processes with a covered ancestor will be found
    /// again.
    pub fn drop_unmeant(&mut self, listener: &mut dyn ThreadListener) {
        let unmeant = self.table.processes.iter().filter(|(_, process)| process.covers.is_empty());
        let gone: Vec<Pid> = unmeant.map(|(pid, _)| *pid).collect();
        for pid in gone {
            listener.process_dropped(&self.table, pid);
            for id in self.table.threads_of(pid) {
                self.end_thread(id, listener);
            }
            self.table.processes.remove(&pid);
        }
        self.find_again();
    }

    /// Updates the interest in a process's threads after the roots that cover it have changed.
    pub(super) fn update_interest(&mut self, pid: Pid, listener: &mut dyn ThreadListener) {
        if !self.options.tags {
            return;
        }
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        let programs = process.covers.keys().filter_map(|id| Some(self.table.roots.get(id)?.program));
        let programs: Vec<ProgramId> = programs.collect();
        if let Some(first) = programs.first().filter(|_| !programs.contains(&process.program)) {
            process.program = *first;
        }
        let program = process.program;
        let interests: Vec<(ThreadId, Interest)> =
            process.threads.iter().map(|(tid, id)| (*id, process.interest(*tid, true))).collect();
        for (id, interest) in interests {
            let Some(thread) = self.table.threads.get_mut(&id) else { continue };
            if (thread.interest, thread.program) == (interest, program) {
                continue;
            }
            (thread.interest, thread.program) = (interest, program);
            listener.interest_changed(&self.table, id);
        }
    }

    /// Returns the state of the roots, ascending.
    pub fn roots(&self) -> Vec<RootFacts> {
        let fact = |id: RootId, root: &Watched| RootFacts { id, ended: root.ended, threads: 0, moves: 0 };
        let mut facts: BTreeMap<RootId, RootFacts> =
            self.table.roots.iter().map(|(id, root)| (*id, fact(*id, root))).collect();
        for process in self.table.processes.values() {
            for (id, only) in &process.covers {
                let threads = match only {
                    Some(tid) => usize::from(process.threads.contains_key(tid)),
                    None => process.threads.len(),
                };
                if let Some(facts) = facts.get_mut(id) {
                    facts.threads = facts.threads.saturating_add(u32::try_from(threads).unwrap_or(u32::MAX));
                }
            }
        }
        facts.into_values().collect()
    }
}
