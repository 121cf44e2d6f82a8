//! Setting masks, and giving them back.

pub(in crate::host) mod home;

use crate::host::affinity::home::Home;
use crate::host::affinity_journal::{Claim, Entry};
use crate::host::constraints::{self, GroupId, is_gone};
use crate::host::discovery::thread_table::{Thread, Wish};
use crate::host::{Live, Root};
use crate::process::{self, Pid, Tid};
use crate::sys::affinity;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use trimtab_core::balance::{Act, Decision, Outcome, Refusal, Settled};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Left, Sample};
use trimtab_core::set::CpuSet;

/// What became of the masks that were ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Threads that have their own mask again.
    pub given_back: u32,
    /// Threads whose mask somebody else had set since: left as they are.
    pub changed: u32,
    /// Threads that had ended.
    pub vanished: u32,
    /// Threads whose mask the kernel did not let us give back.
    pub refused: u32,
}

/// So often threads are looked for that were born while masks were given back. Chosen: each pass finds only what was born
/// during the one before.
const PASSES: u32 = 4;

impl Restored {
    /// With another pass over the same threads: who was refused is asked, and counted, again.
    pub(in crate::host) fn and(self, more: Self) -> Self {
        Self {
            given_back: self.given_back + more.given_back,
            changed: self.changed + more.changed,
            vanished: self.vanished + more.vanished,
            refused: more.refused,
        }
    }
}

impl Live {
    /// Gives every thread that still has our mask its own back. Until it is moved again, nothing of ours is left.
    pub fn restore(&mut self) -> Restored {
        let mut restored = self.restore_threads();
        // Threads that were born meanwhile, of those that still had our masks, have them too.
        for _ in 0..PASSES {
            if self.table.processes.values().all(|process| process.given.is_empty()) {
                break;
            }
            let mut sample = std::mem::take(&mut self.later);
            self.find_all_next();
            self.find(self.clock.now(), &mut sample);
            self.later = sample;
            let more = self.restore_threads();
            restored = restored.and(more);
            if more == Restored::default() {
                break;
            }
        }
        for pid in self.table.processes.keys().copied().collect::<Vec<_>>() {
            let ours = self.table.still_ours(pid);
            let Some(process) = self.table.processes.get_mut(&pid) else { continue };
            process.given.clear();
            // What could not be given back stays noted.
            if let Some(record) = process.record.take()
                && !ours
            {
                record.finish();
            }
        }
        restored
    }

    pub(in crate::host) fn restore_threads(&mut self) -> Restored {
        let mut restored = Restored::default();
        let held: Vec<ThreadId> = self
            .table
            .threads
            .iter()
            .filter(|(_, thread)| thread.held.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in held {
            let count = match self.release(id) {
                Ok(true) => &mut restored.given_back,
                Ok(false) => &mut restored.changed,
                Err(errno) if is_gone(errno) => &mut restored.vanished,
                Err(_) => &mut restored.refused,
            };
            *count += 1;
        }
        restored
    }

    /// The mask of a thread now.
    pub(in crate::host) fn mask(&self, pid: Pid, tid: Tid) -> Result<CpuSet, Errno> {
        if self.own_namespace {
            affinity::get(Some(tid))
        } else {
            // Numbers mean other tasks to the kernel than in this procfs.
            process::thread_status(&self.proc, pid, tid)
                .map(|status| status.cpus)
                .map_err(|error| if error.is_gone() { Errno::SRCH } else { Errno::IO })
        }
    }

    /// Carries one decision out.
    pub(in crate::host) fn carry_out(&mut self, decision: &Decision) -> Outcome {
        let end = self.act(decision.thread, &decision.act).unwrap_or_else(|end| end);
        Outcome { thread: decision.thread, end }
    }

    fn act(&mut self, id: ThreadId, act: &Act) -> Result<Settled, Settled> {
        let Some(thread) = self.table.threads.get(&id) else { return Err(Settled::Vanished) };
        let (pid, tid) = (thread.pid, thread.tid);
        if !self.own_namespace {
            return Err(Settled::Refused(Refusal::Other));
        }
        if self.bounds.scheduler().is_some() {
            return Err(Settled::Refused(Refusal::Other));
        }
        match thread.left {
            None => {}
            Some(Left::Refused) => return Err(Settled::Refused(Refusal::Permission)),
            Some(Left::MovedItself | Left::MovedByOthers) => {
                return Err(Settled::Refused(Refusal::MovedMeanwhile));
            }
            Some(_) => return Err(Settled::Refused(Refusal::Other)),
        }
        if thread.wish == Wish::Untagged {
            return Err(Settled::Refused(Refusal::Other));
        }
        self.is_same(id)?;
        self.is_still_theirs(id)?;
        if let Act::Fetch(node) = act {
            return Ok(self.fetch(id, pid, *node));
        }
        if act.to().is_some() {
            self.claim(pid)?;
        }
        let now = self.mask(pid, tid).map_err(|errno| self.refusal(id, errno))?;
        let mut sample = std::mem::take(&mut self.later);
        let was_set = self.was_set(id, now, &mut sample);
        self.later = sample;
        if was_set {
            return Err(Settled::Refused(Refusal::MovedMeanwhile));
        }
        let target = match act.to() {
            None => return self.release_decided(id),
            Some(to) => to.intersection(&self.bounds.usable_in(self.table.group_of(id))),
        };
        if target.is_empty() {
            return Err(Settled::Refused(Refusal::Cpus));
        }
        let Some(thread) = self.table.threads.get(&id) else { return Err(Settled::Vanished) };
        if thread.home.follows && target == thread.home.cut(self.active(id)) {
            // All that it has is no mask to be set: it would hold the thread back when the cpuset grows.
            let home = thread.home.clone();
            if thread.held.is_some() {
                return self.release_decided(id);
            }
            let given = self.give(id, tid, &home).map_err(|errno| self.refusal(id, errno));
            return given.map(|()| Settled::Applied);
        }
        self.count_move(pid, tid);
        self.note(id, &target);
        if let Err(errno) = affinity::set(Some(tid), &target) {
            self.note_what_is(id);
            return Err(self.refusal(id, errno));
        }
        if matches!(act, Act::Nudge(_)) {
            self.give_expected(id, tid).map_err(|errno| self.refusal(id, errno))?;
            if let Some(thread) = self.table.threads.get_mut(&id) {
                thread.moved = true;
            }
            self.note_what_is(id);
            return Ok(Settled::Applied);
        }
        // The kernel drops CPUs that its cpuset withholds: what took effect is what is held.
        let took = affinity::get(Some(tid)).unwrap_or_else(|_| target.clone());
        if took != target {
            self.note(id, &took);
        }
        if let Some(thread) = self.table.threads.get_mut(&id) {
            thread.moved = true;
            thread.held = (took != thread.home.cpus).then_some(took);
        }
        Ok(Settled::Applied)
    }

    /// Carries out a decision to let a thread go.
    fn release_decided(&mut self, id: ThreadId) -> Result<Settled, Settled> {
        match self.release(id) {
            Ok(true) => Ok(Settled::Applied),
            Ok(false) => Err(Settled::Refused(Refusal::MovedMeanwhile)),
            Err(errno) => Err(self.refusal(id, errno)),
        }
    }

    /// Makes sure that the number still is this thread's.
    fn is_same(&mut self, id: ThreadId) -> Result<(), Settled> {
        let Some(thread) = self.table.threads.get_mut(&id) else { return Err(Settled::Vanished) };
        let (pid, tid, start) = (thread.pid, thread.tid, thread.start);
        let same = if thread.files.tell_who() {
            thread.files.counters(self.folder.as_fd(), (pid, tid), self.source, &mut self.budget).is_ok()
        } else {
            process::thread_stat(&self.proc, pid, tid).is_ok_and(|stat| stat.start == start)
        };
        if same { Ok(()) } else { Err(Settled::Vanished) }
    }

    /// Whether somebody set a thread's mask, which is `now`, since we last knew it; then that is respected from now on, and told.
    pub(in crate::host) fn was_set(&mut self, id: ThreadId, mut now: CpuSet, sample: &mut Sample) -> bool {
        let Some(thread) = self.table.threads.get(&id) else { return false };
        let (pid, alone) = (thread.pid, thread.group.is_some());
        if self.is_expected(id, &now) {
            return false;
        }
        // Perhaps the kernel did it, because what it allows changed since we looked.
        if alone {
            self.place_vcpu(id, sample);
        } else {
            self.place(pid, sample);
        }
        self.look_at_usable(sample);
        let Some(thread) = self.table.threads.get(&id) else { return false };
        if let Ok(again) = self.mask(pid, thread.tid) {
            now = again;
        }
        if self.is_expected(id, &now) {
            return false;
        }
        let home = self.home_seen(id, now.clone());
        let Some(thread) = self.table.threads.get_mut(&id) else { return false };
        if thread.moved {
            thread.held = None;
            thread.left = Some(Left::MovedItself);
            thread.home = Home::own(now);
            self.forget_in_record(id);
        } else {
            // Before we ever touched it, its program set itself up: that is where it is at home.
            thread.home = home;
        }
        self.tell(id, sample);
        true
    }

    /// The CPUs that the kernel grants a thread now.
    fn active(&self, id: ThreadId) -> Option<&CpuSet> {
        self.bounds.active(self.table.group_of(id))
    }

    /// Whether this is the mask that a thread should have, as far as the kernel grants it.
    fn is_expected(&self, id: ThreadId, now: &CpuSet) -> bool {
        let thread = self.table.threads.get(&id);
        thread.is_some_and(|thread| constraints::is_cut(now, thread.expected(), self.active(id)))
    }

    /// The home of a thread that has this mask by its own will.
    pub(in crate::host) fn home_seen(&mut self, id: ThreadId, now: CpuSet) -> Home {
        if self.options.bound {
            return Home::own(now);
        }
        let granted = self.bounds.granted(self.table.group_of(id));
        Home::seen(now, granted.as_ref())
    }

    /// Gives a thread its own mask.
    pub(in crate::host) fn give(&mut self, id: ThreadId, tid: Tid, home: &Home) -> Result<(), Errno> {
        let group = self.table.group_of(id);
        home.give(tid, || self.bounds.granted(group))
    }

    /// Gives a thread the mask that it had until just now.
    fn give_expected(&mut self, id: ThreadId, tid: Tid) -> Result<(), Errno> {
        let Some(thread) = self.table.threads.get(&id) else { return Err(Errno::SRCH) };
        let home = thread.held.clone().map_or_else(|| thread.home.clone(), Home::own);
        self.give(id, tid, &home)
    }

    /// What the kernel's answer means for a decision. A thread that may not be moved is not tried again.
    fn refusal(&mut self, id: ThreadId, errno: Errno) -> Settled {
        match errno {
            Errno::SRCH | Errno::NOENT => return Settled::Vanished,
            Errno::INVAL => return Settled::Refused(Refusal::Cpus),
            Errno::PERM | Errno::ACCESS => {}
            _ => return Settled::Refused(Refusal::Other),
        }
        if let Some(thread) = self.table.threads.get_mut(&id) {
            thread.left = Some(Left::Refused);
            self.tell_later(id);
        }
        Settled::Refused(Refusal::Permission)
    }

    /// Makes sure that nobody else balances the process, and that a record is kept.
    pub(in crate::host) fn claim(&mut self, pid: Pid) -> Result<(), Settled> {
        let Some(process) = self.table.processes.get_mut(&pid) else { return Err(Settled::Vanished) };
        let Some(keep) = self.options.keep.as_ref().filter(|_| process.record.is_none() && !process.unkept)
        else {
            return Ok(());
        };
        let root = process.covers.keys().find_map(|id| match self.roots.get(id)?.root {
            Root::Tree(root) => Some(root),
            _ => None,
        });
        let root = root.unwrap_or(pid);
        match keep.claim(pid, process.start, root) {
            Ok(Claim::Ours(record)) => {
                // What a killed balancer left is ours to give back now.
                let of_all = process.group;
                let mut taken_over = Vec::new();
                for id in process.threads.values() {
                    let Some(thread) = self.table.threads.get_mut(id) else { continue };
                    let active = self.bounds.active(thread.group.unwrap_or(of_all));
                    if let Some(entry) = record.entry(thread.tid, thread.start, &thread.home.cpus)
                        && thread.held.is_none()
                        && entry.gave(&thread.home.cpus, active)
                    {
                        thread.held = Some(std::mem::replace(&mut thread.home, entry.own()).cpus);
                        thread.moved = true;
                        taken_over.push(*id);
                    }
                }
                process.record = Some(record);
                for id in taken_over {
                    self.tell_later(id);
                }
                Ok(())
            }
            Ok(Claim::Others(balancer)) => {
                process.balancer = Some(balancer);
                let ids: Vec<ThreadId> = process.threads.values().copied().collect();
                for id in ids {
                    if let Some(thread) = self.table.threads.get_mut(&id) {
                        thread.left = Some(Left::Balancer(balancer));
                    }
                    self.tell_later(id);
                }
                Err(Settled::Refused(Refusal::Other))
            }
            Err(fault) => {
                // Said once; the balancing goes on. Others' records are kept as before: anybody may have made this one name.
                self.keeper_fault.get_or_insert_with(|| fault.to_string());
                process.unkept = true;
                Ok(())
            }
        }
    }

    pub(in crate::host) fn note(&mut self, id: ThreadId, held: &CpuSet) {
        let Some(thread) = self.table.threads.get(&id) else { return };
        let Home { cpus, follows } = thread.home.clone();
        let entry = Entry { start: thread.start, home: cpus, follows, held: held.clone(), before: None };
        let (pid, tid) = (thread.pid, thread.tid);
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        process.given.add(held, &thread.home);
        if let Some(record) = process.record.as_mut()
            && let Err(fault) = record.note(tid, entry)
        {
            self.keeper_fault.get_or_insert_with(|| fault.to_string());
        }
    }

    /// The record says what is so from now on, not what was for a moment.
    fn note_what_is(&mut self, id: ThreadId) {
        match self.table.threads.get(&id).map(|thread| thread.held.clone()) {
            Some(Some(held)) => self.note(id, &held),
            Some(None) => self.forget_in_record(id),
            None => {}
        }
    }

    pub(in crate::host) fn forget_in_record(&mut self, id: ThreadId) {
        let Some(Thread { pid, tid, .. }) = self.table.threads.get(&id) else { return };
        let (pid, tid) = (*pid, *tid);
        if let Some(record) = self.table.processes.get_mut(&pid).and_then(|process| process.record.as_mut()) {
            record.forget(tid);
        }
    }

    /// Gives a thread its own mask back; false when it no longer had ours.
    pub(in crate::host) fn release(&mut self, id: ThreadId) -> Result<bool, Errno> {
        let Some(thread) = self.table.threads.get(&id) else { return Err(Errno::SRCH) };
        let (pid, tid) = (thread.pid, thread.tid);
        if thread.held.is_none() {
            return Ok(true);
        }
        let home = thread.home.clone();
        let given = self.give_back(id, pid, tid, &home);
        if given.is_err_and(is_gone)
            && let Some(thread) = self.table.threads.get_mut(&id)
        {
            // Nothing of ours is left of it.
            thread.held = None;
        }
        given
    }

    fn give_back(&mut self, id: ThreadId, pid: Pid, tid: Tid, home: &Home) -> Result<bool, Errno> {
        if self.is_same(id).is_err() {
            return Err(Errno::SRCH);
        }
        let now = self.mask(pid, tid)?;
        let mut sample = std::mem::take(&mut self.later);
        let was_set = self.was_set(id, now, &mut sample);
        self.later = sample;
        if was_set {
            return Ok(false);
        }
        self.give(id, tid, home)?;
        if let Some(thread) = self.table.threads.get_mut(&id) {
            thread.held = None;
        }
        self.forget_in_record(id);
        Ok(true)
    }

    /// The CPUs that the kernel allows threads of a group changed from `before`, and it changed masks. What was a thread's own stays so,
    /// also where less is granted now, and comes back with the CPUs.
    pub(in crate::host) fn rebase(
        &mut self,
        ids: &BTreeSet<ThreadId>,
        group: GroupId,
        before: &CpuSet,
        sample: &mut Sample,
    ) {
        let active = self.bounds.active(group).cloned();
        let grown = active.as_ref().is_some_and(|active| !active.is_subset(before));
        for &id in ids {
            let Some(thread) = self.table.threads.get(&id) else { continue };
            let Ok(now) = self.mask(thread.pid, thread.tid) else { continue };
            let seen = self.home_seen(id, now.clone());
            let Some(thread) = self.table.threads.get_mut(&id) else { continue };
            let told = thread.home.cut(Some(before));
            let active = active.as_ref();
            let all = active == Some(&now);
            let ours = thread.held.as_ref().map(|held| constraints::is_cut(&now, held, active));
            if ours.is_some_and(|cut| cut || all)
                && let Some(active) = active.filter(|_| thread.home.follows)
            {
                // Bound by nothing but the bounds: more of them is more for it.
                thread.home.cpus = thread.home.cpus.union(active);
            }
            match ours {
                Some(true) => {}
                // Kernels before 6.2 forget what was asked for, and give all that they allow.
                Some(false) if all => {
                    thread.held = (now != thread.home.cut(active)).then(|| now.clone());
                }
                // Somebody else's, which is found when masks are compared.
                Some(false) => continue,
                None if constraints::is_cut(&now, &thread.home.cpus, active) => {
                    // One that stays behind when its cpuset grows has a mask of its own, which equalled the cpuset.
                    thread.home.follows &= all || !grown;
                }
                None => thread.home = seen,
            }
            if thread.home.cut(active) != told {
                self.tell(id, sample);
            }
        }
    }

    /// News that the next sample will tell.
    pub(in crate::host) fn tell_later(&mut self, id: ThreadId) {
        let mut scratch = std::mem::take(&mut self.later);
        self.tell(id, &mut scratch);
        self.later = scratch;
    }
}
