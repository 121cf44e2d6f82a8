//! Roots that come and go while the machine is watched.
//!
//! Problem: a service is told of threads one by one, by people who do not know of each other; the
//! same thread may be meant twice, and must be left alone when no root means it any more, though it
//! is still watched because others are. Idea: each process remembers which roots mean it, or one
//! thread of it; the interest in a thread follows from that, and changes when a root comes or goes.

use super::listener::ThreadListener;
use super::roots::{Root, RootId, Watched};
use super::thread_table::Interest;
use super::{Discovery, LiveError};
use crate::process::{self, Pid, StartTime};
use std::collections::BTreeMap;
use trimtab_core::ids::{ProgramId, ThreadId};

/// How a root is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The program that its threads are of.
    pub program: ProgramId,
    /// Only threads of this user are meant.
    pub only: Option<u32>,
    /// When the process, or the one thread that is meant, started; another with its number is not
    /// meant.
    pub start: Option<StartTime>,
}

/// What is known of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootFacts {
    /// Which.
    pub id: RootId,
    /// Whether what it names has ended.
    pub ended: bool,
    /// Threads that it means now.
    pub threads: u32,
    /// Moves of its threads so far; 0 where the host moves none.
    pub moves: u64,
}

impl Discovery {
    /// Begins to watch one more root. [`Self::is_meant`] and [`Self::find_next`] are to follow.
    ///
    /// # Errors
    /// [`LiveError`]: it is not there, has ended, or is not ours to move.
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
        // However many are tagged, descriptors remain for what is done with them; without one its
        // end is seen a little later.
        watched.ends = watched.ends.filter(|_| self.budget.take_spare());
        let id = self.table.add_root(Watched { program: how.program, only: how.only, ..watched });
        if let Err(error) = self.take_root(id, listener) {
            self.drop_root(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Makes sure that the process that a root names is the one that started then: its number may
    /// become another's at any moment.
    ///
    /// # Errors
    /// [`LiveError::NoProcess`]: it is another one.
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

    /// Forgets a root; whether it was there.
    fn drop_root(&mut self, id: RootId) -> bool {
        let watched = self.table.roots.remove(&id);
        if watched.as_ref().is_some_and(|watched| watched.ends.is_some()) {
            self.budget.give_back();
        }
        watched.is_some()
    }

    /// Ends the watching of a root: the processes that it meant; `None` where there is no such
    /// root. [`Self::drop_unmeant`] is to follow.
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

    /// Forgets processes that no root means. Those that were found because one of their ancestors
    /// is meant will be found again.
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

    /// The roots that mean a process are others than before.
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

    /// The roots, ascending.
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
