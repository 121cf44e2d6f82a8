//! Roots that come and go while the machine is watched.
//!
//! Problem: a daemon is told of threads one by one, by people who do not know of each other; the same thread may be meant twice, and must
//! be left alone when nobody means it any more, though it is still watched for the sake of others. Idea: each process remembers which
//! roots mean it, or one thread of it; what is wanted of a thread follows from that, and changes when a root comes or goes.
//!
//! Properties: a thread that nobody means any more has its own mask again when [`Live::unwatch`] returns, unless somebody else set it
//! since or the kernel refuses; what was born with a mask of ours meanwhile too; a root for one user never moves a thread that has become
//! another's, also where we could.

use crate::host::affinity::Restored;
use crate::host::discovery::roots::{RootId, Watched, is_of};
use crate::host::discovery::thread_table::Wish;
use crate::host::error::LiveError;
use crate::host::{Live, Root};
use crate::process::{self, Pid, StartTime, Tid};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::balance::{Refusal, Settled};
use trimtab_core::ids::{ProgramId, ThreadId};
use trimtab_core::observe::Left;
use trimtab_core::set::CpuSet;

/// So often threads are looked for that were born while masks were given back. Chosen: each pass finds only what was born
/// during the one before.
const PASSES: u32 = 2;

/// How a root is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The program that its threads are of.
    pub program: ProgramId,
    /// Only threads of this user are meant.
    pub only: Option<u32>,
    /// When the process, or the one thread that is meant, started; another with its number is not meant.
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
    /// How often they were moved.
    pub moves: u64,
}

impl Live {
    pub(in crate::host) fn add_root(&mut self, watched: Watched) -> RootId {
        let id = RootId(self.next_root);
        self.next_root = self.next_root.saturating_add(1);
        self.roots.insert(id, watched);
        id
    }

    /// Begins to watch one more root.
    ///
    /// # Errors
    /// [`LiveError`]: it is not there, has ended, or is not ours to move.
    pub fn watch(&mut self, root: &Root, how: Watch) -> Result<RootId, LiveError> {
        let mut watched = Watched::new(&self.proc, root, self.own_namespace, self.options.hands_off)?;
        let start = match root {
            Root::Tree(pid) => Some((*pid, process::stat(&self.proc, *pid)?.start)),
            Root::Thread(pid, tid) => Some((*pid, process::thread_stat(&self.proc, *pid, *tid)?.start)),
            Root::Vm(vm) => Some((vm.pid, vm.start)),
            Root::Cgroup(_) => None,
        };
        if let (Some((pid, start)), Some(meant)) = (start, how.start)
            && start != meant
        {
            return Err(LiveError::NoProcess(pid));
        }
        // However many are tagged, descriptors remain for what is done with them; without one its end is seen a little later.
        watched.ends = watched.ends.filter(|_| self.budget.take_spare());
        let id = self.add_root(Watched { program: how.program, only: how.only, ..watched });
        if let Err(error) = self.take_root(id) {
            self.drop_root(id);
            return Err(error);
        }
        // Its number may have become another's while we looked.
        if let (Root::Tree(pid), Some(meant)) = (root, how.start)
            && self.table.processes.get(pid).is_none_or(|process| process.start != meant)
        {
            self.unwatch(id);
            return Err(LiveError::NoProcess(*pid));
        }
        self.find_next(id);
        Ok(id)
    }

    /// Forgets a root; whether it was there.
    fn drop_root(&mut self, id: RootId) -> bool {
        let watched = self.roots.remove(&id);
        if watched.as_ref().is_some_and(|watched| watched.ends.is_some()) {
            self.budget.give_back();
        }
        watched.is_some()
    }

    /// Ends the watching of a root: threads that no other root means get their own masks back.
    pub fn unwatch(&mut self, id: RootId) -> Restored {
        if !self.drop_root(id) {
            return Restored::default();
        }
        let meant: Vec<Pid> = self
            .table
            .processes
            .iter_mut()
            .filter_map(|(pid, process)| process.covers.remove(&id).map(|_| *pid))
            .collect();
        let mut restored = Restored::default();
        for pid in &meant {
            let one = self.wish_anew(*pid);
            // These are other processes, not another pass over the same.
            let refused = restored.refused + one.refused;
            restored = Restored { refused, ..restored.and(one) };
        }
        // What was born meanwhile of threads that still had our masks gets its own when it is found.
        for _ in 0..PASSES {
            if meant.iter().all(|pid| self.table.processes.get(pid).is_none_or(|p| p.given.is_empty())) {
                break;
            }
            self.find_born(&meant);
        }
        self.let_go();
        restored
    }

    /// Forgets processes that nobody means. Those that were found because one of their ancestors is meant will be found again. The records of
    /// those in which a mask could not be given back are left to whoever can.
    fn let_go(&mut self) {
        let unmeant = self.table.processes.iter().filter(|(_, process)| process.covers.is_empty());
        let gone: Vec<Pid> = unmeant.map(|(pid, _)| *pid).collect();
        let mut sample = std::mem::take(&mut self.later);
        for pid in gone {
            let ours = self.table.still_ours(pid);
            for id in self.table.threads_of(pid) {
                self.end_thread(id, &mut sample);
            }
            if let Some(record) = self.table.remove_process(pid).and_then(|process| process.record)
                && !ours
            {
                record.finish();
            }
        }
        self.later = sample;
        self.find_again();
    }

    /// What is wanted of a process's threads may have changed; those that are left alone from now on get their own masks back.
    pub(in crate::host) fn wish_anew(&mut self, pid: Pid) -> Restored {
        let mut restored = Restored::default();
        if !self.options.tags {
            return restored;
        }
        let Some(process) = self.table.processes.get_mut(&pid) else { return restored };
        let programs = process.covers.keys().filter_map(|id| Some(self.roots.get(id)?.program));
        let programs: Vec<ProgramId> = programs.collect();
        if let Some(first) = programs.first().filter(|_| !programs.contains(&process.program)) {
            process.program = *first;
        }
        let program = process.program;
        let wishes: Vec<(ThreadId, Wish)> =
            process.threads.iter().map(|(tid, id)| (*id, process.wish(*tid, true))).collect();
        for (id, wish) in wishes {
            let Some(thread) = self.table.threads.get_mut(&id) else { continue };
            if (thread.wish, thread.program) == (wish, program) {
                continue;
            }
            thread.program = program;
            thread.wish = wish;
            // Refused for one, it may be granted for another.
            if thread.left == Some(Left::Refused) && wish == Wish::Tagged {
                thread.left = None;
            }
            if wish == Wish::Untagged && thread.held.is_some() {
                let count = match self.release(id) {
                    Ok(true) => &mut restored.given_back,
                    Ok(false) => &mut restored.changed,
                    Err(errno) if crate::host::constraints::is_gone(errno) => &mut restored.vanished,
                    Err(_) => &mut restored.refused,
                };
                *count += 1;
            }
            self.tell_later(id);
        }
        restored
    }

    /// A thread that is meant only as a user's must be that user's still: programs that it runs may have become another's, and are
    /// then no more this user's to move than any other.
    pub(in crate::host) fn is_still_theirs(&mut self, id: ThreadId) -> Result<(), Settled> {
        let Some(thread) = self.table.threads.get(&id) else { return Err(Settled::Vanished) };
        let (pid, tid) = (thread.pid, thread.tid);
        let Some(process) = self.table.processes.get(&pid) else { return Err(Settled::Vanished) };
        let only: BTreeSet<Option<u32>> =
            process.meant_by(tid).filter_map(|id| self.roots.get(&id)).map(|root| root.only).collect();
        if only.contains(&None) || only.is_empty() {
            return Ok(());
        }
        if only.into_iter().flatten().any(|uid| is_of(&self.proc, pid, tid, uid)) {
            return Ok(());
        }
        // Best effort: what is refused now is given back at the end.
        let _ = self.release(id);
        if let Some(thread) = self.table.threads.get_mut(&id) {
            thread.left = Some(Left::Refused);
        }
        self.tell_later(id);
        Err(Settled::Refused(Refusal::Permission))
    }

    /// A thread is moved, for all who mean it.
    pub(in crate::host) fn count_move(&mut self, pid: Pid, tid: Tid) {
        let Some(process) = self.table.processes.get(&pid) else { return };
        for id in process.meant_by(tid) {
            if let Some(root) = self.roots.get_mut(&id) {
                root.moves += 1;
            }
        }
    }

    /// What is known of the roots, ascending.
    pub fn roots(&self) -> Vec<RootFacts> {
        let mut facts: BTreeMap<RootId, RootFacts> = self
            .roots
            .iter()
            .map(|(id, root)| (*id, RootFacts { id: *id, ended: root.ended, threads: 0, moves: root.moves }))
            .collect();
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

    /// The masks that threads have by their own, or their program's, will.
    pub fn homes(&self) -> BTreeMap<Tid, CpuSet> {
        self.table.threads.values().map(|thread| (thread.tid, thread.home.cpus.clone())).collect()
    }

    /// How many threads are tagged now.
    pub fn tagged(&self) -> usize {
        self.table.threads.values().filter(|thread| thread.wish == Wish::Tagged).count()
    }
}
