//! The threads and processes that are watched, each with a number that is never used again.

use crate::host::affinity::home::Home;
use crate::host::affinity_journal::Record;
use crate::host::constraints::GroupId;
use crate::host::counter_reader::Counted;
use crate::host::discovery::roots::RootId;
use crate::host::discovery::vcpu_threads::Only;
use crate::host::procfs::Budget;
use crate::host::sampler::counters::{Counters, Files};
use crate::perf::Recipe;
use crate::process::{Pid, StartTime, Tid};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::ids::{OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{Left, ThreadInfo};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;

/// What is wanted of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) enum Wish {
    /// All that is watched may be moved: there are no tags.
    Any,
    /// It is tagged.
    Tagged,
    /// It is not, and is looked at only because it may inherit masks of those that are.
    Untagged,
}

impl Wish {
    /// Whether it may be moved, as far as that is asked for.
    pub(in crate::host) fn is_wanted(self) -> bool {
        self != Self::Untagged
    }
}

/// A thread that is watched.
#[derive(Debug)]
pub(in crate::host) struct Thread {
    pub(in crate::host) program: ProgramId,
    pub(in crate::host) wish: Wish,
    pub(in crate::host) pid: Pid,
    pub(in crate::host) tid: Tid,
    pub(in crate::host) start: StartTime,
    pub(in crate::host) name: String,
    /// Its own mask.
    pub(in crate::host) home: Home,
    /// The mask that we gave it and that it should still have.
    pub(in crate::host) held: Option<CpuSet>,
    /// Whether we ever moved it.
    pub(in crate::host) moved: bool,
    /// Why it is not ours to move, but for a loaded scheduler.
    pub(in crate::host) left: Option<Left>,
    pub(in crate::host) files: Files,
    pub(in crate::host) last: Option<Counters>,
    /// What hardware counts of it.
    pub(in crate::host) counted: Counted,
    pub(in crate::host) voluntary: Option<u64>,
    /// For how many looks its counters have not moved.
    pub(in crate::host) still: u32,
    /// Its mask was compared with what it should be, and it has not run since: it cannot have bound itself.
    pub(in crate::host) compared: bool,
    /// Whether it was ready to run when that was last asked.
    pub(in crate::host) ready: Option<bool>,
    pub(in crate::host) cpu: Option<OsCpu>,
    /// That was looked up, and it has not been put on a CPU since: it is still there.
    pub(in crate::host) placed: bool,
    /// The bounds it lives in, where it has others than its process may have.
    pub(in crate::host) group: Option<GroupId>,
}

impl Thread {
    /// The mask it should have now.
    pub(in crate::host) fn expected(&self) -> &CpuSet {
        self.held.as_ref().unwrap_or(&self.home.cpus)
    }

    /// The only CPU it may run on, if it is only one.
    pub(in crate::host) fn only_cpu(&self) -> Option<OsCpu> {
        let mask = self.expected();
        mask.first().filter(|first| mask.last() == Some(*first))
    }

    /// Where it runs, as far as is known without looking.
    pub(in crate::host) fn place(&self) -> Option<OsCpu> {
        self.only_cpu().or(self.cpu)
    }

    /// What is told of it; `active` are the CPUs that the kernel grants now.
    pub(in crate::host) fn info(
        &self,
        id: ThreadId,
        scheduler: Option<&str>,
        active: Option<&CpuSet>,
    ) -> ThreadInfo {
        ThreadInfo {
            id,
            program: self.program,
            pid: self.pid.0,
            tid: self.tid.0,
            name: self.name.clone(),
            home: self.home.cut(active),
            left: scheduler
                .map(|name| Left::Scheduler(name.to_owned()))
                .or_else(|| self.left.clone())
                .or_else(|| (self.wish == Wish::Untagged).then_some(Left::Asked)),
            tagged: self.wish == Wish::Tagged,
        }
    }
}

/// A process that is watched.
#[derive(Debug)]
pub(in crate::host) struct Process {
    pub(in crate::host) start: StartTime,
    pub(in crate::host) program: ProgramId,
    /// The roots that mean it, or one thread of it.
    pub(in crate::host) covers: BTreeMap<RootId, Option<Tid>>,
    pub(in crate::host) threads: BTreeMap<Tid, ThreadId>,
    /// How many links its folder of threads had when it was last listed: two more than threads.
    pub(in crate::host) links: Option<u64>,
    /// Whether a thread of it has ended since, or some were not taken in.
    pub(in crate::host) stale: bool,
    /// So many of its threads are not taken in, since its user has too many.
    pub(in crate::host) beyond: u32,
    /// The leader has ended and others live on: its number stays listed.
    pub(in crate::host) headless: bool,
    /// The record of its masks, from the first move on.
    pub(in crate::host) record: Option<Record>,
    /// None can be kept of this one: it is not tried again.
    pub(in crate::host) unkept: bool,
    /// The bounds it lives in.
    pub(in crate::host) group: GroupId,
    /// Another balancer looks after it.
    pub(in crate::host) balancer: Option<u32>,
    /// The masks that its threads were given. A thread that is born inherits its maker's mask, and with it what is ours to take
    /// back.
    pub(in crate::host) given: Given,
    /// The threads that are watched, where not all are.
    pub(in crate::host) only: Option<Only>,
}

impl Process {
    /// The roots that mean this thread.
    pub(in crate::host) fn meant_by(&self, tid: Tid) -> impl Iterator<Item = RootId> + '_ {
        self.covers.iter().filter(move |(_, only)| only.is_none_or(|only| only == tid)).map(|(id, _)| *id)
    }

    /// What is wanted of one of its threads.
    pub(in crate::host) fn wish(&self, tid: Tid, tags: bool) -> Wish {
        match (tags, self.meant_by(tid).next()) {
            (false, _) => Wish::Any,
            (true, Some(_)) => Wish::Tagged,
            (true, None) => Wish::Untagged,
        }
    }
}

/// Masks that were given to threads, each with the own masks of whom it was given to, until nobody who was born with one can still
/// be found.
#[derive(Clone, Debug, Default)]
pub(in crate::host) struct Given(BTreeMap<CpuSet, Was>);

/// Whose a mask was.
#[derive(Clone, Debug, Default)]
struct Was {
    homes: BTreeSet<Home>,
    /// When it was first seen that nobody holds it any more.
    free_since: Option<Moment>,
}

/// So many different masks are remembered for a process. Chosen: a mask for each CPU of a large machine.
const GIVEN_MAX: usize = 1_024;
/// So many different own masks are remembered for each. Chosen: who has more, has bound each thread by itself.
const HOMES_MAX: usize = 64;

impl Given {
    /// Remembers that a thread with this own mask is given that one.
    pub(in crate::host) fn add(&mut self, held: &CpuSet, home: &Home) {
        if *held == home.cpus || (self.0.len() >= GIVEN_MAX && !self.0.contains_key(held)) {
            return;
        }
        let was = self.0.entry(held.clone()).or_default();
        was.free_since = None;
        if was.homes.len() < HOMES_MAX {
            was.homes.insert(home.clone());
        }
    }

    /// The own masks of those to whom this one was given.
    pub(in crate::host) fn homes(&self, mask: &CpuSet) -> Option<&BTreeSet<Home>> {
        self.0.get(mask).map(|was| &was.homes)
    }

    /// Forgets masks that nobody has held since before all threads and children were last looked for, at `searched`: whoever was born
    /// with one is known. All threads were listed just now.
    pub(in crate::host) fn forget(
        &mut self,
        now: Moment,
        searched: Option<Moment>,
        held: &BTreeSet<&CpuSet>,
    ) {
        self.0.retain(|mask, was| {
            let free = !held.contains(mask);
            was.free_since = free.then(|| was.free_since.unwrap_or(now));
            was.free_since.is_none_or(|since| searched.is_none_or(|searched| searched <= since))
        });
    }

    pub(in crate::host) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::host) fn clear(&mut self) {
        self.0.clear();
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::host) struct Table {
    pub(in crate::host) threads: BTreeMap<ThreadId, Thread>,
    pub(in crate::host) processes: BTreeMap<Pid, Process>,
    next: u32,
    /// Threads from this number on are new since the last sample was told.
    pub(in crate::host) untold: ThreadId,
}

impl Table {
    /// Whether a process was taken in, or is.
    pub(in crate::host) fn add_process(&mut self, pid: Pid, start: StartTime, program: ProgramId) -> bool {
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
                record: None,
                unkept: false,
                group: GroupId::default(),
                balancer: None,
                given: Given::default(),
                only: None,
            },
        );
        true
    }

    /// All that is known has been told.
    pub(in crate::host) fn told(&mut self) {
        self.untold = ThreadId(self.next);
    }

    /// Takes a thread of a known process in.
    pub(in crate::host) fn add_thread(&mut self, thread: Thread) -> ThreadId {
        let id = ThreadId(self.next);
        self.next = self.next.saturating_add(1);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.insert(thread.tid, id);
        }
        self.threads.insert(id, thread);
        id
    }

    /// Forgets a thread that has ended; `recipe` is what its counters were opened for.
    pub(in crate::host) fn remove_thread(
        &mut self,
        id: ThreadId,
        recipe: Option<&Recipe>,
        budget: &mut Budget,
    ) -> Option<Thread> {
        let mut thread = self.threads.remove(&id)?;
        thread.files.close(budget);
        thread.counted.close(recipe, budget);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads.remove(&thread.tid);
            process.stale = true;
        }
        Some(thread)
    }

    /// Forgets a process that has ended; its threads were forgotten before.
    pub(in crate::host) fn remove_process(&mut self, pid: Pid) -> Option<Process> {
        self.processes.remove(&pid)
    }

    /// Whether a thread of a process still has a mask of ours.
    pub(in crate::host) fn still_ours(&self, pid: Pid) -> bool {
        let held = |id: &ThreadId| self.threads.get(id).is_some_and(|thread| thread.held.is_some());
        self.processes.get(&pid).is_some_and(|process| process.threads.values().any(held))
    }

    /// The own mask of whoever made a thread that was born with this mask, if that was given to any. Where it was given to several
    /// that differ, the first thread is taken for the maker, and otherwise those that are most.
    pub(in crate::host) fn inherited(&self, pid: Pid, mask: &CpuSet) -> Option<Home> {
        let process = self.processes.get(&pid)?;
        let homes = process.given.homes(mask)?;
        let of = |id: &ThreadId| self.threads.get(id).map(|thread| &thread.home);
        let first = process.threads.get(&pid.main_thread()).and_then(of).filter(|home| homes.contains(home));
        let most = || {
            homes.iter().max_by_key(|home| process.threads.values().filter(|id| of(id) == Some(home)).count())
        };
        first.or_else(most).cloned()
    }

    /// Forgets given masks that no newborn can have.
    pub(in crate::host) fn forget_given(&mut self, now: Moment, searched: Option<Moment>) {
        for process in
            self.processes.values_mut().filter(|process| !process.stale && !process.given.is_empty())
        {
            let threads = process.threads.values().filter_map(|id| self.threads.get(id));
            let held: BTreeSet<&CpuSet> = threads.filter_map(|thread| thread.held.as_ref()).collect();
            process.given.forget(now, searched, &held);
        }
    }

    /// The bounds that a process lives in.
    pub(in crate::host) fn group(&self, pid: Pid) -> GroupId {
        self.processes.get(&pid).map_or_else(GroupId::default, |process| process.group)
    }

    /// The bounds that a thread lives in.
    pub(in crate::host) fn group_of(&self, id: ThreadId) -> GroupId {
        let thread = self.threads.get(&id);
        thread.map_or_else(GroupId::default, |thread| thread.group.unwrap_or_else(|| self.group(thread.pid)))
    }

    /// All bounds that anybody lives in.
    pub(in crate::host) fn groups(&self) -> BTreeSet<GroupId> {
        let whole = self.processes.values().filter(|process| process.only.is_none());
        let alone = self.threads.values().filter_map(|thread| thread.group);
        whole.map(|process| process.group).chain(alone).collect()
    }

    /// The threads that live in these bounds.
    pub(in crate::host) fn threads_in(&self, group: GroupId) -> BTreeSet<ThreadId> {
        self.threads.keys().copied().filter(|id| self.group_of(*id) == group).collect()
    }

    /// A process that this root means.
    pub(in crate::host) fn member_of(&self, root: RootId) -> Option<Pid> {
        let of = |process: &Process| process.covers.contains_key(&root);
        self.processes.iter().find(|(_, process)| of(process)).map(|(pid, _)| *pid)
    }

    /// Whether a thread is known to have ended: its process's threads were all listed, and it was not among them.
    pub(in crate::host) fn has_ended(&self, pid: Pid, tid: Tid) -> bool {
        let listed = self.processes.get(&pid).filter(|process| process.links.is_some() && !process.stale);
        listed.is_some_and(|process| !process.threads.contains_key(&tid))
    }

    /// The threads of a process.
    pub(in crate::host) fn threads_of(&self, pid: Pid) -> BTreeSet<ThreadId> {
        self.processes
            .get(&pid)
            .map(|process| process.threads.values().copied().collect())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn given_masks_are_forgotten_when_nobody_can_be_born_with_them_any_more() {
        let (one, home) = (set("1"), Home::own(set("0-3")));
        let held = BTreeSet::from([&one]);
        let mut given = Given::default();
        given.add(&home.cpus, &home);
        assert!(given.is_empty(), "its own is not given");
        given.add(&one, &home);
        given.forget(Moment(10), Some(Moment(9)), &held);
        assert_eq!(given.homes(&one), Some(&BTreeSet::from([home.clone()])));
        // Let go; a child of before may not have been found yet.
        given.forget(Moment(20), Some(Moment(19)), &BTreeSet::new());
        given.forget(Moment(30), Some(Moment(19)), &BTreeSet::new());
        assert!(!given.is_empty(), "children were not looked for since");
        // Held again, it begins anew.
        given.forget(Moment(40), Some(Moment(39)), &held);
        given.forget(Moment(50), Some(Moment(49)), &BTreeSet::new());
        assert!(!given.is_empty());
        given.forget(Moment(60), Some(Moment(59)), &BTreeSet::new());
        assert!(given.is_empty());
        // However many there are, memory is bounded.
        for at in 0..u32::try_from(2 * GIVEN_MAX).unwrap() {
            given.add(&[OsCpu(at)].into_iter().collect(), &home);
            given.add(&one, &Home::own([OsCpu(at), OsCpu(9_000)].into_iter().collect()));
        }
        assert!(given.0.len() <= GIVEN_MAX && given.0.values().all(|was| was.homes.len() <= HOMES_MAX));
    }
}
