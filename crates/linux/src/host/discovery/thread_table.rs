//! Table of the roots, processes and threads under watch.
//!
//! Discovery alone changes it. The other parts of a host read it, and keep their state of a thread
//! under the thread's number, which is never used again.

use super::roots::{Root, RootId, Watched, is_of};
use super::vcpu_threads::Only;
use crate::process::{Pid, StartTime, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::{ProgramId, ThreadId};

/// Interest of the roots in a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Without tags: every thread under watch may be moved.
    Any,
    /// The thread is tagged.
    Tagged,
    /// The thread is not tagged, and is watched only because it may inherit masks of tagged
    /// threads.
    Untagged,
}

impl Interest {
    /// Returns whether the roots want the thread moved.
    pub fn is_wanted(self) -> bool {
        self != Self::Untagged
    }
}

/// A thread under watch.
#[derive(Clone, Debug)]
pub struct WatchedThread {
    /// The program to which it counts.
    pub program: ProgramId,
    /// Whether the roots want it moved.
    pub interest: Interest,
    /// Its process.
    pub pid: Pid,
    /// Its number in the kernel.
    pub tid: Tid,
    /// Start time: together with the number, it identifies the thread permanently.
    pub start: StartTime,
    /// Its name, printable; for a vCPU's thread, the name of the vCPU.
    pub name: String,
}

/// A process under watch.
#[derive(Debug)]
pub(in crate::host) struct Process {
    pub(in crate::host) start: StartTime,
    pub(super) program: ProgramId,
    /// The roots that cover the process, or one thread of it.
    pub(in crate::host) covers: BTreeMap<RootId, Option<Tid>>,
    pub(in crate::host) threads: BTreeMap<Tid, ThreadId>,
    /// Number of links of its folder of threads at the last listing: two more than threads.
    pub(super) links: Option<u64>,
    /// Whether a thread of it has ended since, or some threads were not added.
    pub(in crate::host) stale: bool,
    /// Number of its threads that are not added, since its user has too many.
    pub(super) beyond: u32,
    /// Whether the leader has ended and other threads live on: the leader's number stays listed.
    pub(super) headless: bool,
    /// The watched threads, if not all are watched.
    pub(in crate::host) only: Option<Only>,
}

impl Process {
    /// Returns the roots that cover this thread.
    pub(in crate::host) fn meant_by(&self, tid: Tid) -> impl Iterator<Item = RootId> + '_ {
        self.covers.iter().filter(move |(_, only)| only.is_none_or(|only| only == tid)).map(|(id, _)| *id)
    }

    /// Returns the interest in one of its threads.
    pub(super) fn interest(&self, tid: Tid, tags: bool) -> Interest {
        match (tags, self.meant_by(tid).next()) {
            (false, _) => Interest::Any,
            (true, Some(_)) => Interest::Tagged,
            (true, None) => Interest::Untagged,
        }
    }
}

/// All roots, processes and threads under watch.
#[derive(Debug, Default)]
pub struct ThreadTable {
    pub(super) roots: BTreeMap<RootId, Watched>,
    pub(in crate::host) threads: BTreeMap<ThreadId, WatchedThread>,
    pub(in crate::host) processes: BTreeMap<Pid, Process>,
    next_root: u32,
    next_thread: u32,
    /// Threads from this number on are new since the last sample was reported.
    first_unreported: ThreadId,
}

impl ThreadTable {
    /// Returns the threads, ascending by their numbers.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &WatchedThread)> {
        self.threads.iter().map(|(id, thread)| (*id, thread))
    }

    /// Returns one thread.
    pub fn thread(&self, id: ThreadId) -> Option<&WatchedThread> {
        self.threads.get(&id)
    }

    /// Returns the processes, ascending.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// Returns the threads that are new since the last sample was reported.
    pub fn new_threads(&self) -> impl Iterator<Item = ThreadId> {
        self.threads.range(self.first_unreported..).map(|(id, _)| *id)
    }

    pub(super) fn add_root(&mut self, watched: Watched) -> RootId {
        let id = RootId(self.next_root);
        self.next_root = self.next_root.saturating_add(1);
        self.roots.insert(id, watched);
        id
    }

    /// Returns the program of the next root, if each root is a program.
    pub(super) fn next_program(&self) -> ProgramId {
        ProgramId(self.next_root)
    }

    /// Takes a process in; returns false if it was in already.
    pub(super) fn add_process(&mut self, pid: Pid, start: StartTime, program: ProgramId) -> bool {
        if self.processes.get(&pid).is_some_and(|process| process.start == start) {
            return false;
        }
        self.processes.insert(
            pid,
            Process {
                start,
                program,
                covers: BTreeMap::new(),
                threads: BTreeMap::new(),
                links: None,
                stale: true,
                beyond: 0,
                headless: false,
                only: None,
            },
        );
        true
    }

    /// Marks all known threads as reported.
    pub(super) fn told(&mut self) {
        self.first_unreported = ThreadId(self.next_thread);
    }

    /// Returns whether a thread was reported before.
    pub(super) fn was_reported(&self, id: ThreadId) -> bool {
        id < self.first_unreported
    }

    /// Adds a thread of a known process.
    pub(super) fn add_thread(&mut self, thread: WatchedThread) -> ThreadId {
        let id = ThreadId(self.next_thread);
        self.next_thread = self.next_thread.saturating_add(1);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.insert(thread.tid, id);
        }
        self.threads.insert(id, thread);
        id
    }

    /// Removes the thread that was added last, because it had ended already.
    pub(super) fn retract_thread(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.remove(&id)
            && let Some(process) = self.processes.get_mut(&thread.pid)
        {
            process.threads.remove(&thread.tid);
        }
        self.next_thread = id.0;
    }

    /// Removes a thread that has ended.
    pub(super) fn remove_thread(&mut self, id: ThreadId) -> Option<WatchedThread> {
        let thread = self.threads.remove(&id)?;
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.remove(&thread.tid);
            process.stale = true;
        }
        Some(thread)
    }

    /// Returns a process that this root covers.
    pub(super) fn member_of(&self, root: RootId) -> Option<Pid> {
        let of = |process: &Process| process.covers.contains_key(&root);
        self.processes.iter().find(|(_, process)| of(process)).map(|(pid, _)| *pid)
    }

    /// Returns whether a thread is known to have ended: its process's threads were all listed, and
    /// it was not among them.
    pub(super) fn has_ended(&self, pid: Pid, tid: Tid) -> bool {
        let listed = self.processes.get(&pid).filter(|process| process.links.is_some() && !process.stale);
        listed.is_some_and(|process| !process.threads.contains_key(&tid))
    }

    /// Returns the threads of a process.
    pub(in crate::host) fn threads_of(&self, pid: Pid) -> BTreeSet<ThreadId> {
        let process = self.processes.get(&pid);
        process.map(|process| process.threads.values().copied().collect()).unwrap_or_default()
    }

    /// Returns whether only some threads of a process are watched, as for a virtual machine.
    pub(in crate::host) fn is_virtual_machine(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.only.is_some())
    }

    /// Returns the root process of the tree that contains this one; the process itself, if no tree
    /// does.
    pub(in crate::host) fn tree_of(&self, pid: Pid) -> Pid {
        let covers = self.processes.get(&pid).map(|process| &process.covers);
        let tree = |id: &RootId| match self.roots.get(id)?.root {
            Root::Tree(root) => Some(root),
            Root::Thread(..) | Root::Cgroup(_) | Root::Vm(_) => None,
        };
        covers.and_then(|covers| covers.keys().find_map(tree)).unwrap_or(pid)
    }

    /// Returns whether a thread still belongs to a user for whom it is covered. A user's program
    /// may have become another user's; then it is not the first user's to move any more than other
    /// threads are.
    pub(in crate::host) fn is_still_owned(&self, proc: &Path, thread: &WatchedThread) -> bool {
        let Some(process) = self.processes.get(&thread.pid) else { return false };
        let roots = process.meant_by(thread.tid).filter_map(|id| self.roots.get(&id));
        let users: BTreeSet<Option<u32>> = roots.map(|root| root.only).collect();
        users.contains(&None)
            || users.is_empty()
            || users.into_iter().flatten().any(|uid| is_of(proc, thread.pid, thread.tid, uid))
    }
}
