//! Upkeep of masks as threads start and end, as others set masks, and as the kernel grants other
//! CPUs.
//!
//! A thread created by one that was moved inherits our mask and is recognised by it. It gets the
//! own mask of its parent thread as soon as it is found. If the parent may be one of several
//! threads with different own masks, it gets the own mask of the process's first thread. Known gap:
//! a thread that binds itself to exactly the same CPUs before it is found is treated as such a
//! child.

use super::{AffinityWriter, Binding, MovableProcess, Surroundings};
use crate::host::constraints::{self, Member, Regrant};
use crate::host::discovery::{Interest, ThreadTable};
use crate::host::home::Home;
use crate::process::{Pid, Stat, Tid};
use crate::sys::affinity;
use std::collections::BTreeSet;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Left, Notice};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Time between two comparisons of masks with the expected ones.
const COMPARE_PERIOD: Span = Span::from_ms(90);

impl AffinityWriter {
    /// Adds a new process. The child of another process inherits the masks that its parent's
    /// threads were given.
    pub(in crate::host) fn process_found(&mut self, table: &ThreadTable, pid: Pid, parent: Option<Pid>) {
        let Some(process) = table.processes.get(&pid) else { return };
        let parent = parent.and_then(|parent| self.processes.get(&parent));
        let given = parent.map(|parent| parent.given.clone()).unwrap_or_default();
        let start = process.start;
        self.processes
            .insert(pid, MovableProcess { start, record: None, unkept: false, balancer: None, given });
    }

    /// Returns whether a child was created with a mask that a thread of its parent was given.
    pub(in crate::host) fn was_born_with_ours(&self, child: Pid, parent: Pid) -> bool {
        let Some(parent) = self.processes.get(&parent) else { return false };
        let mask = || self.mask(child, child.main_thread());
        !parent.given.is_empty() && mask().is_ok_and(|mask| parent.given.homes(&mask).is_some())
    }

    /// Adds a new thread; returns false if it has ended already.
    pub(in crate::host) fn thread_found(
        &mut self,
        id: ThreadId,
        stat: &Stat,
        around: &mut Surroundings<'_>,
    ) -> bool {
        let Some(thread) = around.table.threads.get(&id) else { return false };
        let (pid, tid) = (thread.pid, thread.tid);
        let Ok(mask) = self.mask(pid, tid) else { return false };
        let Some(process) = around.table.processes.get(&pid) else { return false };
        let first = process.threads.len() == 1;
        // vCPUs have groups of their own, whole processes have one.
        let alone = process.only.is_some() || process.covers.values().any(|only| *only == Some(tid));
        if first {
            self.regroup(pid, around);
        }
        let left = self.left_of(pid, first, stat);
        // If a thread that we moved created it, our mask would count as its own.
        let inherited = self.inherited(pid, &mask, around.table).filter(|_| left.is_none());
        let group = around.constraints.group(pid);
        let (home, held) = match inherited.clone() {
            // At once: policies do not see the inherited mask, and would treat the thread as one
            // that may run anywhere.
            Some(own) if own.give(tid, || around.constraints.granted(group)).is_ok() => (own, None),
            Some(own) => (own, Some(mask.clone())),
            None => (Home::own(mask.clone()), None),
        };
        let moved = held.is_some();
        self.threads.insert(id, Binding { home, held: held.clone(), moved, left, compared: false });
        if alone {
            self.regroup_thread(id, around);
        }
        if inherited.is_none() {
            // Only now is it known which limits apply to the thread.
            let home = self.home_seen(id, pid, mask, around);
            if let Some(binding) = self.threads.get_mut(&id) {
                binding.home = home;
            }
        }
        if let Some(held) = held
            && self.claim(pid, around).is_ok()
        {
            self.note(id, (pid, tid), &held, around.table);
        }
        self.report(id, around);
        true
    }

    /// Returns the reason why a newly found thread is not ours to move.
    fn left_of(&mut self, pid: Pid, first: bool, stat: &Stat) -> Option<Left> {
        let custody = self.processes.get_mut(&pid);
        let balancer = custody.and_then(|custody| {
            if first && custody.balancer.is_none() && custody.record.is_none() {
                let journal = self.options.journal.as_ref();
                custody.balancer = journal.and_then(|journal| journal.balancer(pid, custody.start));
            }
            custody.balancer
        });
        match balancer {
            _ if stat.fixed || stat.kernel_thread => Some(Left::Refused),
            Some(balancer) => Some(Left::Balancer(balancer)),
            None => self.options.hands_off.then_some(Left::Asked),
        }
    }

    /// Returns the own mask of the parent of a thread that was created with this mask, if the mask
    /// was given to any thread. If it was given to threads with different own masks, the first
    /// thread is taken for the parent, and otherwise the own mask that most threads have is
    /// returned.
    fn inherited(&self, pid: Pid, mask: &CpuSet, table: &ThreadTable) -> Option<Home> {
        let homes = self.processes.get(&pid)?.given.homes(mask)?;
        let process = table.processes.get(&pid)?;
        let of = |id: &ThreadId| self.threads.get(id).map(|binding| &binding.home);
        let first = process.threads.get(&pid.main_thread()).and_then(of).filter(|home| homes.contains(home));
        let most = || {
            homes.iter().max_by_key(|home| process.threads.values().filter(|id| of(id) == Some(home)).count())
        };
        first.or_else(most).cloned()
    }

    /// Handles an unwatched thread that was created beside vCPUs: if it inherited a mask of ours,
    /// it gets the own mask of its parent thread.
    pub(in crate::host) fn bystander_found(&mut self, pid: Pid, tid: Tid, around: &mut Surroundings<'_>) {
        if self.proc.shares_numbers()
            && let Ok(mask) = affinity::get(Some(tid))
            && let Some(own) = self.inherited(pid, &mask, around.table)
        {
            let group = around.constraints.group_of_other(pid, tid);
            // On failure it has ended, or this process may not move it.
            let _ = own.give(tid, || around.constraints.granted(group?));
        }
    }

    /// Removes a thread that has ended.
    pub(in crate::host) fn thread_ended(&mut self, id: ThreadId, pid: Pid, tid: Tid) {
        self.threads.remove(&id);
        if let Some(record) = self.processes.get_mut(&pid).and_then(|custody| custody.record.as_mut()) {
            record.ended(tid);
        }
    }

    /// Removes a process that has ended.
    pub(in crate::host) fn process_ended(&mut self, pid: Pid) {
        if let Some(record) = self.processes.remove(&pid).and_then(|custody| custody.record) {
            record.finish();
        }
    }

    /// Removes a process that still lives. Its record stays if a mask could not be given back in
    /// it.
    pub(in crate::host) fn process_dropped(&mut self, pid: Pid, table: &ThreadTable) {
        let ours = self.still_ours(pid, table);
        if let Some(record) = self.processes.remove(&pid).and_then(|custody| custody.record)
            && !ours
        {
            record.finish();
        }
    }

    /// Updates the permission: a thread refused for one user's tag may be granted for another's.
    pub(in crate::host) fn interest_changed(&mut self, id: ThreadId, interest: Interest) {
        if let Some(binding) = self.threads.get_mut(&id)
            && binding.left == Some(Left::Refused)
            && interest == Interest::Tagged
        {
            binding.left = None;
        }
    }

    /// Notes that a thread has run: it may have bound itself.
    pub(in crate::host) fn has_run(&mut self, id: ThreadId) {
        if let Some(binding) = self.threads.get_mut(&id) {
            binding.compared = false;
        }
    }

    /// Checks whether other balancers have ended.
    pub(in crate::host) fn refresh_balancers(&mut self, around: &mut Surroundings<'_>) {
        let Some(journal) = &self.options.journal else { return };
        journal.tend();
        let mut free = BTreeSet::new();
        for (pid, custody) in &mut self.processes {
            if custody.balancer.is_some() && journal.balancer(*pid, custody.start).is_none() {
                custody.balancer = None;
                free.extend(around.table.threads_of(*pid));
            }
        }
        for id in free {
            if let Some(binding) = self.threads.get_mut(&id)
                && matches!(binding.left, Some(Left::Balancer(_)))
            {
                binding.left = None;
            }
            self.report(id, around);
        }
    }

    /// Drops given masks that no new thread can have: all threads were listed just now, and all
    /// children were known at `searched`.
    pub(in crate::host) fn forget_given(
        &mut self,
        now: Moment,
        searched: Option<Moment>,
        table: &ThreadTable,
    ) {
        for (pid, process) in table.processes.iter().filter(|(_, process)| !process.stale) {
            let Some(custody) = self.processes.get_mut(pid).filter(|custody| !custody.given.is_empty())
            else {
                continue;
            };
            let bindings = process.threads.values().filter_map(|id| self.threads.get(id));
            let held: BTreeSet<&CpuSet> = bindings.filter_map(|binding| binding.held.as_ref()).collect();
            custody.given.forget(now, searched, &held);
        }
    }

    /// Compares masks with the expected ones: for threads that ran since, some ten times a second;
    /// for `all` in a full search.
    pub(in crate::host) fn compare(&mut self, at: Moment, all: bool, around: &mut Surroundings<'_>) {
        // A mask is checked before each move too; checking all of them is half of the cost of a
        // short sample. A thread that binds itself has to run to do so. A mask that others set on a
        // sleeping thread matters when the thread wakes, and is found then, or in a full search.
        if !all && self.compared_at.is_some_and(|last| at.since(last) < COMPARE_PERIOD) {
            return;
        }
        self.compared_at = Some(at);
        let due = self.threads.iter().filter(|(_, binding)| all || !binding.compared);
        let due: Vec<ThreadId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let Some(thread) = around.table.threads.get(&id) else { continue };
            let Ok(now) = self.mask(thread.pid, thread.tid) else { continue };
            if !self.was_set(id, now, around)
                && let Some(binding) = self.threads.get_mut(&id)
            {
                binding.compared = true;
            }
        }
    }

    /// Reads the groups of processes and vCPUs, some at a time.
    pub(in crate::host) fn refresh_groups(&mut self, around: &mut Surroundings<'_>) {
        for member in around.constraints.next_members(around.table) {
            match member {
                Member::Process(pid) => self.regroup(pid, around),
                Member::Vcpu(id) => self.regroup_thread(id, around),
            }
        }
        around.constraints.forget_empty_groups(around.table);
    }

    /// Reads the group of a process.
    pub(super) fn regroup(&mut self, pid: Pid, around: &mut Surroundings<'_>) {
        if let Some(regrant) = around.constraints.regroup(pid, around.table) {
            self.rebase(&regrant, around);
        }
    }

    /// Reads the group of a thread that has one of its own.
    pub(super) fn regroup_thread(&mut self, id: ThreadId, around: &mut Surroundings<'_>) {
        if let Some(regrant) = around.constraints.regroup_thread(id, around.table) {
            self.rebase(&regrant, around);
        }
    }

    /// Reads the CPUs that may be used; if they changed, updates masks that no program set.
    pub(in crate::host) fn refresh_grants(&mut self, around: &mut Surroundings<'_>) {
        for regrant in around.constraints.read_lists(around.table) {
            self.rebase(&regrant, around);
        }
        if let Some(usable) = around.constraints.news() {
            around.news.notices.push(Notice::Usable(usable));
        }
    }

    /// Updates masks after the kernel granted threads other CPUs and changed masks. A thread's own
    /// mask stays its own even while less is granted, and comes back with the CPUs.
    fn rebase(&mut self, regrant: &Regrant, around: &mut Surroundings<'_>) {
        let Regrant { threads, group, before } = regrant;
        let active = around.constraints.active_in(*group).cloned();
        let grown = active.as_ref().is_some_and(|active| !active.is_subset(before));
        for &id in threads {
            let Some(thread) = around.table.threads.get(&id) else { continue };
            let Ok(now) = self.mask(thread.pid, thread.tid) else { continue };
            let seen = self.home_seen(id, thread.pid, now.clone(), around);
            let Some(binding) = self.threads.get_mut(&id) else { continue };
            let told = binding.home.cut(Some(before));
            let active = active.as_ref();
            let all = active == Some(&now);
            let ours = binding.held.as_ref().map(|held| constraints::is_cut(&now, held, active));
            if ours.is_some_and(|cut| cut || all)
                && let Some(active) = active.filter(|_| binding.home.follows)
            {
                // Only the cpuset binds it: a larger cpuset is a larger home.
                binding.home.cpus = binding.home.cpus.union(active);
            }
            match ours {
                Some(true) => {}
                // Kernels before 6.2 do not store the requested mask, and give all CPUs that they
                // allow.
                Some(false) if all => {
                    binding.held = (now != binding.home.cut(active)).then(|| now.clone());
                }
                // Set by others, which is found when masks are compared.
                Some(false) => continue,
                None if constraints::is_cut(&now, &binding.home.cpus, active) => {
                    // A thread that stays behind when its cpuset grows has a mask of its own, which
                    // equalled the cpuset.
                    binding.home.follows &= all || !grown;
                }
                None => binding.home = seen,
            }
            if binding.home.cut(active) != told {
                self.report(id, around);
            }
        }
    }
}
