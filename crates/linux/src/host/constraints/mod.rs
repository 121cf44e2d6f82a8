//! Constraints on the threads under watch: the CPUs that the kernel grants each group of processes,
//! quotas, and a loaded scheduler.
//!
//! [`GroupLimits`] reads the files; [`Constraints`] knows which process, and which virtual CPU, is
//! in which group. It only reads: what follows for masks is a [`Regrant`], which the caller carries
//! out.

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

/// Processes that are asked for their groups each time that is due. Chosen: some 10 us each, each
/// second.
const REGROUPED_MAX: usize = 128;

/// Threads for which the kernel grants other CPUs than before.
#[derive(Debug)]
pub(super) struct Regrant {
    pub(super) threads: BTreeSet<ThreadId>,
    /// The group that they are in now.
    pub(super) group: GroupId,
    /// The CPUs that were granted before.
    pub(super) before: CpuSet,
}

/// A process, or one virtual CPU, whose group is to be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Member {
    Process(Pid),
    Vcpu(ThreadId),
}

/// The limits, and which of them holds for which thread.
#[derive(Debug)]
pub(super) struct Constraints {
    limits: GroupLimits,
    processes: BTreeMap<Pid, GroupId>,
    /// Threads with a group of their own: virtual CPUs, and threads that a root names one by one.
    threads: BTreeMap<ThreadId, GroupId>,
    /// The member to go on with when groups are asked for next.
    next_member: usize,
    /// The usable CPUs as they were last told.
    told_usable: CpuSet,
}

impl Constraints {
    /// `root` holds `proc` and `sys`; `given` are the CPUs that the caller wants used.
    pub(super) fn new(root: &Path, given: &CpuSet) -> Self {
        Self {
            limits: GroupLimits::new(root, given),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            next_member: 0,
            told_usable: given.clone(),
        }
    }

    /// The group of a process.
    pub(super) fn group(&self, pid: Pid) -> GroupId {
        self.processes.get(&pid).copied().unwrap_or_default()
    }

    /// The group of a thread of this process.
    pub(super) fn group_of(&self, id: ThreadId, pid: Pid) -> GroupId {
        self.threads.get(&id).copied().unwrap_or_else(|| self.group(pid))
    }

    /// Whether a thread has a group of its own.
    pub(super) fn is_alone(&self, id: ThreadId) -> bool {
        self.threads.contains_key(&id)
    }

    /// All groups with members.
    fn groups(&self, table: &ThreadTable) -> BTreeSet<GroupId> {
        let whole = table.processes.iter().filter(|(_, process)| process.only.is_none());
        whole.map(|(pid, _)| self.group(*pid)).chain(self.threads.values().copied()).collect()
    }

    /// Looks up the group of a process that was just taken in.
    pub(super) fn join(&mut self, pid: Pid) {
        if let Some(group) = self.limits.group_of(pid) {
            self.processes.insert(pid, group);
        }
    }

    /// A child is taken to be in its parent's group.
    pub(super) fn inherit(&mut self, child: Pid, parent: Pid) {
        self.processes.insert(child, self.group(parent));
    }

    pub(super) fn forget_process(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    pub(super) fn forget_thread(&mut self, id: ThreadId) {
        self.threads.remove(&id);
    }

    /// Looks up the group of a process; its threads, if they are granted other CPUs there.
    pub(super) fn regroup(&mut self, pid: Pid, table: &ThreadTable) -> Option<Regrant> {
        let group = self.limits.group_of(pid)?;
        table.processes.get(&pid)?;
        let before = self.processes.insert(pid, group).unwrap_or_default();
        self.moved(table.threads_of(pid), before, group, table)
    }

    /// The same for a thread with a group of its own.
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
        // A group that is new has not been looked at.
        self.limits.look(&self.groups(table));
        let before = before.filter(|before| self.limits.active(group) != Some(before))?;
        Some(Regrant { threads, group, before })
    }

    /// The next members to ask for their groups, in turn; [`Self::asked_groups`] is to follow.
    pub(super) fn next_members(&mut self, table: &ThreadTable) -> Vec<Member> {
        // Of virtual machines each CPU, else each process.
        let whole = table.processes.iter().filter(|(_, process)| process.only.is_none());
        let whole = whole.map(|(pid, _)| Member::Process(*pid));
        let members: Vec<Member> = whole.chain(self.threads.keys().map(|id| Member::Vcpu(*id))).collect();
        let count = members.len().min(REGROUPED_MAX);
        let from = self.next_member;
        self.next_member = from.wrapping_add(count);
        (0..count).map(|step| members[(from + step) % members.len()]).collect()
    }

    /// Groups were asked for: those without members are forgotten.
    pub(super) fn asked_groups(&mut self, table: &ThreadTable) {
        self.limits.keep_groups(&self.groups(table));
    }

    /// Whether groups, quotas and the loaded scheduler are due to be looked at. Groups that led
    /// somewhere else meanwhile are then found.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        let due = self.limits.is_due(now);
        if due {
            self.limits.forget_groups();
        }
        due
    }

    /// Reads the lists of CPUs: the threads that are granted others than before.
    pub(super) fn look(&mut self, table: &ThreadTable) -> Vec<Regrant> {
        let changed = self.limits.look(&self.groups(table));
        let threads_in = |group: GroupId| {
            let of = |id: &ThreadId, pid: Pid| self.group_of(*id, pid) == group;
            table.threads.iter().filter(|(id, thread)| of(id, thread.pid)).map(|(id, _)| *id).collect()
        };
        let regrant = |Changed { group, before }| Regrant { threads: threads_in(group), group, before };
        changed.into_iter().map(regrant).collect()
    }

    /// The usable CPUs, if they are others than were told last.
    pub(super) fn news(&mut self) -> Option<CpuSet> {
        let usable = self.limits.usable();
        let changed = *usable != self.told_usable;
        changed.then(|| {
            self.told_usable = usable.clone();
            self.told_usable.clone()
        })
    }

    /// The CPUs that the kernel lets a thread use; `None` where that cannot be read.
    pub(super) fn active(&self, id: ThreadId, pid: Pid) -> Option<&CpuSet> {
        self.limits.active(self.group_of(id, pid))
    }

    /// The CPUs that the kernel lets members of this group use.
    pub(super) fn active_in(&self, group: GroupId) -> Option<&CpuSet> {
        self.limits.active(group)
    }

    /// The CPUs that a thread may be moved to.
    pub(super) fn usable_for(&self, id: ThreadId, pid: Pid) -> CpuSet {
        self.limits.usable_in(self.group_of(id, pid))
    }

    /// The CPUs that the kernel grants a group at this moment.
    pub(super) fn granted(&mut self, group: GroupId) -> Option<CpuSet> {
        self.limits.granted(group)
    }

    /// The group of a thread that is not under watch.
    pub(super) fn group_of_other(&mut self, pid: Pid, tid: Tid) -> Option<GroupId> {
        self.limits.group_of_thread(pid, tid)
    }

    /// The scheduler that is loaded into the kernel.
    pub(super) fn scheduler(&self) -> Option<&str> {
        self.limits.scheduler()
    }

    /// Looks whether the loaded scheduler changed.
    pub(super) fn look_at_scheduler(&mut self) -> bool {
        self.limits.look_at_scheduler()
    }

    /// The time that quotas kept the programs off their CPUs, if there is a quota.
    pub(super) fn throttled(&mut self) -> Option<Span> {
        self.limits.throttled()
    }
}
