//! Table of the roots, processes and threads under watch.
//!
//! Discovery alone changes it. The other parts of a host read it, and keep what they know of a
//! thread under its number, which is never used again.

use super::roots::{Root, RootId, Watched, is_of};
use super::vcpu_threads::Only;
use crate::process::{Pid, StartTime, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::{ProgramId, ThreadId};

/// Interest of the roots in a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// There are no tags: every thread under watch may be moved.
    Any,
    /// It is tagged.
    Tagged,
    /// It is not tagged, and is watched only because it may inherit masks of threads that are.
    Untagged,
}

impl Interest {
    /// Whether the roots want it moved.
    pub fn is_wanted(self) -> bool {
        self != Self::Untagged
    }
}

/// A thread under watch.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The program that it is counted to.
    pub program: ProgramId,
    /// Whether the roots want it moved.
    pub interest: Interest,
    /// Its process.
    pub pid: Pid,
    /// Its number in the kernel.
    pub tid: Tid,
    /// When it started: with the number, this names it for good.
    pub start: StartTime,
    /// Its name, printable; of a virtual CPU, the CPU's.
    pub name: String,
}

/// A process under watch.
#[derive(Debug)]
pub(in crate::host) struct Process {
    pub(in crate::host) start: StartTime,
    pub(super) program: ProgramId,
    /// The roots that mean it, or one thread of it.
    pub(in crate::host) covers: BTreeMap<RootId, Option<Tid>>,
    pub(in crate::host) threads: BTreeMap<Tid, ThreadId>,
    /// The links that its folder of threads had when it was last listed: two more than threads.
    pub(super) links: Option<u64>,
    /// Whether a thread of it has ended since, or some were not taken in.
    pub(in crate::host) stale: bool,
    /// Its threads that are not taken in, since its user has too many.
    pub(super) beyond: u32,
    /// The leader has ended and others live on: its number stays listed.
    pub(super) headless: bool,
    /// The threads that are watched, where not all are.
    pub(in crate::host) only: Option<Only>,
}

impl Process {
    /// The roots that mean this thread.
    pub(in crate::host) fn meant_by(&self, tid: Tid) -> impl Iterator<Item = RootId> + '_ {
        self.covers.iter().filter(move |(_, only)| only.is_none_or(|only| only == tid)).map(|(id, _)| *id)
    }

    /// The interest in one of its threads.
    pub(super) fn interest(&self, tid: Tid, tags: bool) -> Interest {
        match (tags, self.meant_by(tid).next()) {
            (false, _) => Interest::Any,
            (true, Some(_)) => Interest::Tagged,
            (true, None) => Interest::Untagged,
        }
    }
}

/// All that is under watch.
#[derive(Debug, Default)]
pub struct ThreadTable {
    pub(super) roots: BTreeMap<RootId, Watched>,
    pub(in crate::host) threads: BTreeMap<ThreadId, Thread>,
    pub(in crate::host) processes: BTreeMap<Pid, Process>,
    next_root: u32,
    next_thread: u32,
    /// Threads from this number on are new since the last sample was told.
    untold: ThreadId,
}

impl ThreadTable {
    /// The threads, ascending by their numbers.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &Thread)> {
        self.threads.iter().map(|(id, thread)| (*id, thread))
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(&id)
    }

    /// The processes, ascending.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// Threads that are new since the last sample was told.
    pub fn new_threads(&self) -> impl Iterator<Item = ThreadId> {
        self.threads.range(self.untold..).map(|(id, _)| *id)
    }

    pub(super) fn add_root(&mut self, watched: Watched) -> RootId {
        let id = RootId(self.next_root);
        self.next_root = self.next_root.saturating_add(1);
        self.roots.insert(id, watched);
        id
    }

    /// The program of the next root, where each root is a program.
    pub(super) fn next_program(&self) -> ProgramId {
        ProgramId(self.next_root)
    }

    /// Takes a process in; false where it was in already.
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

    /// All threads that are known have been told.
    pub(super) fn told(&mut self) {
        self.untold = ThreadId(self.next_thread);
    }

    /// Whether a thread was told before.
    pub(super) fn was_told(&self, id: ThreadId) -> bool {
        id < self.untold
    }

    /// Takes a thread of a known process in.
    pub(super) fn add_thread(&mut self, thread: Thread) -> ThreadId {
        let id = ThreadId(self.next_thread);
        self.next_thread = self.next_thread.saturating_add(1);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.insert(thread.tid, id);
        }
        self.threads.insert(id, thread);
        id
    }

    /// Takes the thread back that was added last: it had ended already.
    pub(super) fn retract_thread(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.remove(&id)
            && let Some(process) = self.processes.get_mut(&thread.pid)
        {
            process.threads.remove(&thread.tid);
        }
        self.next_thread = id.0;
    }

    /// Forgets a thread that has ended.
    pub(super) fn remove_thread(&mut self, id: ThreadId) -> Option<Thread> {
        let thread = self.threads.remove(&id)?;
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.remove(&thread.tid);
            process.stale = true;
        }
        Some(thread)
    }

    /// A process that this root means.
    pub(super) fn member_of(&self, root: RootId) -> Option<Pid> {
        let of = |process: &Process| process.covers.contains_key(&root);
        self.processes.iter().find(|(_, process)| of(process)).map(|(pid, _)| *pid)
    }

    /// Whether a thread is known to have ended: its process's threads were all listed, and it was
    /// not among them.
    pub(super) fn has_ended(&self, pid: Pid, tid: Tid) -> bool {
        let listed = self.processes.get(&pid).filter(|process| process.links.is_some() && !process.stale);
        listed.is_some_and(|process| !process.threads.contains_key(&tid))
    }

    /// The threads of a process.
    pub(in crate::host) fn threads_of(&self, pid: Pid) -> BTreeSet<ThreadId> {
        let process = self.processes.get(&pid);
        process.map(|process| process.threads.values().copied().collect()).unwrap_or_default()
    }

    /// Whether of a process only some threads are watched, as of a virtual machine only its CPUs.
    pub(in crate::host) fn is_virtual_machine(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.only.is_some())
    }

    /// The process whose tree this one was found in; itself, if it is in none.
    pub(in crate::host) fn tree_of(&self, pid: Pid) -> Pid {
        let covers = self.processes.get(&pid).map(|process| &process.covers);
        let tree = |id: &RootId| match self.roots.get(id)?.root {
            Root::Tree(root) => Some(root),
            Root::Thread(..) | Root::Cgroup(_) | Root::Vm(_) => None,
        };
        covers.and_then(|covers| covers.keys().find_map(tree)).unwrap_or(pid)
    }

    /// Whether a thread still belongs to a user for whom it is meant. Programs that a user runs may
    /// have become another user's, and are then no more that user's to move than any other.
    pub(in crate::host) fn is_still_owned(&self, proc: &Path, thread: &Thread) -> bool {
        let Some(process) = self.processes.get(&thread.pid) else { return false };
        let roots = process.meant_by(thread.tid).filter_map(|id| self.roots.get(&id));
        let users: BTreeSet<Option<u32>> = roots.map(|root| root.only).collect();
        users.contains(&None)
            || users.is_empty()
            || users.into_iter().flatten().any(|uid| is_of(proc, thread.pid, thread.tid, uid))
    }
}
