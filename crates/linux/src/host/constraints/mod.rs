//! Constraints on the threads under watch: the CPUs that the kernel grants each group of processes,
//! quotas, and a loaded scheduler.
//!
//! [`GroupLimits`] reads the files; [`Constraints`] has the group of each process and of each vCPU.
//! It only reads: the consequence for masks is a [`Regrant`], which the caller carries out.

mod group_limits;

pub(super) use group_limits::{GroupId, GroupLimits, cut, is_cut, is_gone};

use super::discovery::ThreadTable;
use crate::process::{Pid, Tid};
use group_limits::Changed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::ThreadId;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Maximal number of members for which groups are read at one time. Chosen: some 10 us each, each
/// second.
const REGROUPED_MAX: usize = 128;

/// Threads for which the CPUs granted by the kernel have changed.
#[derive(Debug)]
pub(super) struct Regrant {
    pub(super) threads: BTreeSet<ThreadId>,
    /// Their present group.
    pub(super) group: GroupId,
    /// The CPUs that were granted before.
    pub(super) before: CpuSet,
}

/// A process or a single vCPU, as a member of a group that is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Member {
    Process(Pid),
    Vcpu(ThreadId),
}

/// The limits, and the group of each thread to which they apply.
#[derive(Debug)]
pub(super) struct Constraints {
    limits: GroupLimits,
    processes: BTreeMap<Pid, GroupId>,
    /// Threads with a group of their own: vCPUs, and threads that a root names one by one.
    threads: BTreeMap<ThreadId, GroupId>,
    /// Position of the member at which the next reading of groups continues.
    next_member: usize,
    /// The usable CPUs as last reported.
    reported_usable: CpuSet,
}

impl Constraints {
    /// Makes constraints. `root` contains `proc` and `sys`; `given` are the CPUs that the caller
    /// wants used.
    pub(super) fn new(root: &Path, given: &CpuSet) -> Self {
        Self {
            limits: GroupLimits::new(root, given),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            next_member: 0,
            reported_usable: given.clone(),
        }
    }

    /// Returns the group of a process.
    pub(super) fn group(&self, pid: Pid) -> GroupId {
        self.processes.get(&pid).copied().unwrap_or_default()
    }

    /// Returns the group of a thread of this process.
    pub(super) fn group_of(&self, id: ThreadId, pid: Pid) -> GroupId {
        self.threads.get(&id).copied().unwrap_or_else(|| self.group(pid))
    }

    /// Returns whether a thread has a group of its own.
    pub(super) fn is_alone(&self, id: ThreadId) -> bool {
        self.threads.contains_key(&id)
    }

    /// Returns all groups with members.
    fn groups(&self, table: &ThreadTable) -> BTreeSet<GroupId> {
        let whole = table.processes.iter().filter(|(_, process)| process.only.is_none());
        whole.map(|(pid, _)| self.group(*pid)).chain(self.threads.values().copied()).collect()
    }

    /// Reads the group of a newly found process.
    pub(super) fn join(&mut self, pid: Pid) {
        if let Some(group) = self.limits.group_of(pid) {
            self.processes.insert(pid, group);
        }
    }

    /// Assigns a child to its parent's group.
    pub(super) fn inherit(&mut self, child: Pid, parent: Pid) {
        self.processes.insert(child, self.group(parent));
    }

    pub(super) fn forget_process(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    pub(super) fn forget_thread(&mut self, id: ThreadId) {
        self.threads.remove(&id);
    }

    /// Reads the group of a process; returns its threads if the kernel grants them other CPUs
    /// there.
    pub(super) fn regroup(&mut self, pid: Pid, table: &ThreadTable) -> Option<Regrant> {
        let group = self.limits.group_of(pid)?;
        table.processes.get(&pid)?;
        let before = self.processes.insert(pid, group).unwrap_or_default();
        self.moved(table.threads_of(pid), before, group, table)
    }

    /// Does the same as [`Self::regroup`] for a thread with a group of its own.
    pub(super) fn regroup_thread(&mut self, id: ThreadId, table: &ThreadTable) -> Option<Regrant> {
        let thread = table.threads.get(&id)?;
        let group = self.limits.group_of_thread(thread.pid, thread.tid)?;
        let before = self.group_of(id, thread.pid);
        self.threads.insert(id, group);
        self.moved(BTreeSet::from([id]), before, group, table)
    }

    fn moved(
        &mut self,
        threads: BTreeSet<ThreadId>,
        before: GroupId,
        group: GroupId,
        table: &ThreadTable,
    ) -> Option<Regrant> {
        if before == group {
            return None;
        }
        let before = self.limits.active(before).cloned();
        // A new group has not been read yet.
        self.limits.read_lists(&self.groups(table));
        let before = before.filter(|before| self.limits.active(group) != Some(before))?;
        Some(Regrant { threads, group, before })
    }

    /// Returns the next members for which groups are to be read, in turn;
    /// [`Self::forget_empty_groups`] must follow.
    pub(super) fn next_members(&mut self, table: &ThreadTable) -> Vec<Member> {
        // Each vCPU of a virtual machine, else each process.
        let whole = table.processes.iter().filter(|(_, process)| process.only.is_none());
        let whole = whole.map(|(pid, _)| Member::Process(*pid));
        let members: Vec<Member> = whole.chain(self.threads.keys().map(|id| Member::Vcpu(*id))).collect();
        let count = members.len().min(REGROUPED_MAX);
        let from = self.next_member;
        self.next_member = from.wrapping_add(count);
        (0..count).map(|step| members[(from + step) % members.len()]).collect()
    }

    /// Removes the groups without members, after groups were read.
    pub(super) fn forget_empty_groups(&mut self, table: &ThreadTable) {
        self.limits.keep_groups(&self.groups(table));
    }

    /// Returns whether groups, quotas and the loaded scheduler are due to be read. Groups
    /// that lead to other files by now are then found again.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        let due = self.limits.is_due(now);
        if due {
            self.limits.forget_groups();
        }
        due
    }

    /// Reads the lists of CPUs; returns the threads for which the granted CPUs changed.
    pub(super) fn read_lists(&mut self, table: &ThreadTable) -> Vec<Regrant> {
        let changed = self.limits.read_lists(&self.groups(table));
        let threads_in = |group: GroupId| {
            let of = |id: &ThreadId, pid: Pid| self.group_of(*id, pid) == group;
            table.threads.iter().filter(|(id, thread)| of(id, thread.pid)).map(|(id, _)| *id).collect()
        };
        let regrant = |Changed { group, before }| Regrant { threads: threads_in(group), group, before };
        changed.into_iter().map(regrant).collect()
    }

    /// Returns the usable CPUs if they differ from the last report.
    pub(super) fn news(&mut self) -> Option<CpuSet> {
        let usable = self.limits.usable();
        let changed = *usable != self.reported_usable;
        changed.then(|| {
            self.reported_usable = usable.clone();
            self.reported_usable.clone()
        })
    }

    /// Returns the CPUs that the kernel lets a thread use; `None` if they cannot be read.
    pub(super) fn active(&self, id: ThreadId, pid: Pid) -> Option<&CpuSet> {
        self.limits.active(self.group_of(id, pid))
    }

    /// Returns the CPUs that the kernel lets members of this group use.
    pub(super) fn active_in(&self, group: GroupId) -> Option<&CpuSet> {
        self.limits.active(group)
    }

    /// Returns the CPUs that a thread may be moved to.
    pub(super) fn usable_for(&self, id: ThreadId, pid: Pid) -> CpuSet {
        self.limits.usable_in(self.group_of(id, pid))
    }

    /// Reads the CPUs that the kernel grants a group at this moment.
    pub(super) fn granted(&mut self, group: GroupId) -> Option<CpuSet> {
        self.limits.granted(group)
    }

    /// Reads the group of a thread that is not under watch.
    pub(super) fn group_of_other(&mut self, pid: Pid, tid: Tid) -> Option<GroupId> {
        self.limits.group_of_thread(pid, tid)
    }

    /// Returns the name of the scheduler that is loaded into the kernel.
    pub(super) fn scheduler(&self) -> Option<&str> {
        self.limits.scheduler()
    }

    /// Reads the loaded scheduler; returns whether it changed.
    pub(super) fn read_scheduler(&mut self) -> bool {
        self.limits.read_scheduler()
    }

    /// Returns the time for which quotas kept the programs off their CPUs, if there is a quota.
    pub(super) fn throttled(&mut self) -> Option<Span> {
        self.limits.throttled()
    }
}
