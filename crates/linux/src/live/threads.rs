//! The threads and processes that are watched, each with a number that is never used again.

use super::bounds::{GroupId, cut};
use super::counters::{CounterFile, Counters};
use super::files::Budget;
use super::keeper::Record;
use crate::process::{Pid, StartTime, Tid};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::ids::{OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{Left, ThreadInfo};
use trimtab_core::set::CpuSet;

/// A thread that is watched.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) program: ProgramId,
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    pub(super) start: StartTime,
    pub(super) name: String,
    /// Its own mask, also where the kernel does not grant all of it now.
    pub(super) home: CpuSet,
    /// The mask that we gave it and that it should still have.
    pub(super) held: Option<CpuSet>,
    /// Whether we ever moved it.
    pub(super) moved: bool,
    /// Why it is not ours to move, but for a loaded scheduler.
    pub(super) left: Option<Left>,
    pub(super) file: CounterFile,
    pub(super) last: Option<Counters>,
    pub(super) voluntary: Option<u64>,
    /// For how many looks its counters have not moved.
    pub(super) still: u32,
    /// Its mask was compared with what it should be, and it has not run since: it cannot have bound itself.
    pub(super) compared: bool,
    /// Whether it was ready to run when that was last asked.
    pub(super) ready: Option<bool>,
    pub(super) cpu: Option<OsCpu>,
}

impl Thread {
    /// The mask it should have now.
    pub(super) fn expected(&self) -> &CpuSet {
        self.held.as_ref().unwrap_or(&self.home)
    }

    /// The only CPU it may run on, if it is only one.
    pub(super) fn only_cpu(&self) -> Option<OsCpu> {
        let mask = self.expected();
        mask.first().filter(|first| mask.last() == Some(*first))
    }

    /// Where it runs, as far as is known without looking.
    pub(super) fn place(&self) -> Option<OsCpu> {
        self.only_cpu().or(self.cpu)
    }

    /// What is told of it; `active` are the CPUs that the kernel grants now.
    pub(super) fn info(&self, id: ThreadId, scheduler: Option<&str>, active: Option<&CpuSet>) -> ThreadInfo {
        ThreadInfo {
            id,
            program: self.program,
            pid: self.pid.0,
            tid: self.tid.0,
            name: self.name.clone(),
            home: cut(&self.home, active),
            left: scheduler.map(|name| Left::Scheduler(name.to_owned())).or_else(|| self.left.clone()),
        }
    }
}

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) start: StartTime,
    pub(super) program: ProgramId,
    pub(super) threads: BTreeMap<Tid, ThreadId>,
    /// How many links its folder of threads had when it was last listed: two more than threads.
    pub(super) links: Option<u64>,
    /// Whether a thread of it has ended since, or some were not taken in.
    pub(super) stale: bool,
    /// The leader has ended and others live on: its number stays listed.
    pub(super) headless: bool,
    /// The record of its masks, from the first move on.
    pub(super) record: Option<Record>,
    /// The bounds it lives in.
    pub(super) group: GroupId,
    /// Another balancer looks after it.
    pub(super) balancer: Option<u32>,
    /// The masks that its threads were given last, each with the own mask of whom it was given to. A thread that is born
    /// inherits its maker's mask, and with it what is ours to take back.
    pub(super) given: BTreeMap<CpuSet, CpuSet>,
}

/// So many different masks are remembered for a process. Chosen: a mask for each CPU of a large machine.
const GIVEN_MAX: usize = 1_024;

impl Process {
    /// Remembers that a thread with this own mask was given that one.
    pub(super) fn gave(&mut self, held: &CpuSet, home: &CpuSet) {
        if held == home || self.given.get(held) == Some(home) {
            return;
        }
        if self.given.len() >= GIVEN_MAX {
            self.given.clear();
        }
        self.given.insert(held.clone(), home.clone());
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) threads: BTreeMap<ThreadId, Thread>,
    pub(super) processes: BTreeMap<Pid, Process>,
    next: u32,
    /// Threads from this number on are new since the last sample was told.
    pub(super) untold: ThreadId,
}

impl Table {
    /// Whether a process was taken in, or is.
    pub(super) fn add_process(&mut self, pid: Pid, start: StartTime, program: ProgramId) -> bool {
        if self.processes.get(&pid).is_some_and(|process| process.start == start) {
            return false;
        }
        self.processes.insert(
            pid,
            Process {
                start,
                program,
                threads: BTreeMap::new(),
                links: None,
                stale: true,
                headless: false,
                record: None,
                group: GroupId::default(),
                balancer: None,
                given: BTreeMap::new(),
            },
        );
        true
    }

    /// All that is known has been told.
    pub(super) fn told(&mut self) {
        self.untold = ThreadId(self.next);
    }

    /// Takes a thread of a known process in.
    pub(super) fn add_thread(&mut self, thread: Thread) -> ThreadId {
        let id = ThreadId(self.next);
        self.next = self.next.saturating_add(1);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.insert(thread.tid, id);
        }
        self.threads.insert(id, thread);
        id
    }

    /// Forgets a thread that has ended.
    pub(super) fn remove_thread(&mut self, id: ThreadId, budget: &mut Budget) -> Option<Thread> {
        let mut thread = self.threads.remove(&id)?;
        thread.file.close(budget);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.remove(&thread.tid);
            process.stale = true;
        }
        Some(thread)
    }

    /// Forgets a process that has ended; its threads were forgotten before.
    pub(super) fn remove_process(&mut self, pid: Pid) -> Option<Process> {
        self.processes.remove(&pid)
    }

    /// The bounds that a process lives in.
    pub(super) fn group(&self, pid: Pid) -> GroupId {
        self.processes.get(&pid).map_or_else(GroupId::default, |process| process.group)
    }

    /// All bounds that anybody lives in.
    pub(super) fn groups(&self) -> BTreeSet<GroupId> {
        self.processes.values().map(|process| process.group).collect()
    }

    /// The threads of a process.
    pub(super) fn threads_of(&self, pid: Pid) -> BTreeSet<ThreadId> {
        self.processes
            .get(&pid)
            .map(|process| process.threads.values().copied().collect())
            .unwrap_or_default()
    }
}
