//! Affinity writer: sets the masks of threads, gives each thread its own mask back, and respects
//! masks that others set.
//!
//! Unit: a thread. Its *home* is its own mask. Its *held* mask is the last one that we set and that
//! is still in effect.
//!
//! The writer keeps the masks, and their record in the journal, for each thread and process under
//! watch. It uses the readers of the host (the number of each thread, the CPUs that the kernel
//! grants it), and no reader uses the writer.

mod given;
mod restored;
mod upkeep;

pub use restored::Restored;

use super::affinity_journal::{AffinityJournal, ClaimOutcome, Entry, MaskRecord};
use super::constraints::{self, Constraints, is_gone};
use super::discovery::{Interest, RootId, ThreadTable};
use super::home::Home;
use super::procfs::Procfs;
use super::sampler::Sampler;
use crate::process::{self, Pid, StartTime, Tid};
use crate::sys::affinity;
use given::Given;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::ids::{OsCpu, ThreadId};
use trimtab_core::observe::{Left, Sample, ThreadInfo};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;

/// The mask of one thread, and whether it may be changed.
#[derive(Debug)]
struct Binding {
    /// Its own mask.
    home: Home,
    /// The mask that we gave the thread and that it should still have.
    held: Option<CpuSet>,
    /// Whether we ever moved the thread.
    moved: bool,
    /// Reason why this balancer may not move the thread, apart from a loaded scheduler.
    left: Option<Left>,
    /// The mask was compared with the expected one, and the thread has not run since: it cannot
    /// have bound itself.
    compared: bool,
}

impl Binding {
    /// Returns the mask that the thread should have now.
    fn expected(&self) -> &CpuSet {
        self.held.as_ref().unwrap_or(&self.home.cpus)
    }
}

/// State of a process with threads that may be moved.
#[derive(Debug)]
struct MovableProcess {
    start: StartTime,
    /// The record of its masks, from the first move on.
    record: Option<MaskRecord>,
    /// No record can be kept of the process; no further attempt is made.
    unkept: bool,
    /// Another balancer handles the process.
    balancer: Option<u32>,
    /// The masks that its threads were given.
    given: Given,
}

/// The readers that the writer uses, and the sample in which it reports changes, for the length of
/// a call.
pub(super) struct Surroundings<'a> {
    pub(super) table: &'a ThreadTable,
    pub(super) constraints: &'a mut Constraints,
    pub(super) sampler: &'a mut Sampler,
    pub(super) news: &'a mut Sample,
}

/// Options of the writer.
#[derive(Debug)]
pub(super) struct WriterOptions {
    /// The journal of masks, for the case that this process is killed, and against two balancers of
    /// one program.
    pub(super) journal: Option<AffinityJournal>,
    /// Masks that equal the cpuset were set on purpose: a cpuset that grows does not widen them.
    pub(super) bound: bool,
    /// No thread is moved.
    pub(super) hands_off: bool,
}

/// The part of a host that sets masks.
#[derive(Debug)]
pub(super) struct AffinityWriter {
    proc: Arc<Procfs>,
    options: WriterOptions,
    threads: BTreeMap<ThreadId, Binding>,
    processes: BTreeMap<Pid, MovableProcess>,
    /// Time of the last comparison of masks with the expected ones.
    compared_at: Option<Moment>,
    journal_fault: Option<String>,
    /// Number of moves of the threads that each root covers.
    moves: BTreeMap<RootId, u64>,
}

impl AffinityWriter {
    pub(super) fn new(proc: Arc<Procfs>, options: WriterOptions) -> Self {
        let (threads, processes, moves) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { proc, options, threads, processes, compared_at: None, journal_fault: None, moves }
    }

    /// Returns the reason why no record of masks, or of one process's masks, is kept any more.
    pub(super) fn journal_fault(&self) -> Option<&str> {
        self.journal_fault.as_deref()
    }

    /// Returns the journal, if one is kept.
    pub(super) fn journal(&self) -> Option<&AffinityJournal> {
        self.options.journal.as_ref()
    }

    /// Returns the mask that a thread should have now.
    pub(super) fn expected(&self, id: ThreadId) -> Option<&CpuSet> {
        self.threads.get(&id).map(Binding::expected)
    }

    /// Returns the CPU to which a thread is bound, if it is bound to a single one.
    pub(super) fn only_cpu(&self, id: ThreadId) -> Option<OsCpu> {
        let mask = self.expected(id)?;
        mask.first().filter(|first| mask.last() == Some(*first))
    }

    /// Returns a thread's own mask.
    pub(super) fn home(&self, id: ThreadId) -> Option<&CpuSet> {
        self.threads.get(&id).map(|binding| &binding.home.cpus)
    }

    /// Returns the reason why a thread is not ours to move, apart from a loaded scheduler.
    pub(super) fn left(&self, id: ThreadId) -> Option<&Left> {
        self.threads.get(&id)?.left.as_ref()
    }

    /// Reports a thread in the next sample; the report replaces earlier ones.
    pub(super) fn report(&self, id: ThreadId, around: &mut Surroundings<'_>) {
        let Some(thread) = around.table.threads.get(&id) else { return };
        let Some(binding) = self.threads.get(&id) else { return };
        let active = around.constraints.active(id, thread.pid);
        let loaded = around.constraints.scheduler().map(|name| Left::Scheduler(name.to_owned()));
        around.news.news.push(ThreadInfo {
            id,
            program: thread.program,
            pid: thread.pid.0,
            tid: thread.tid.0,
            name: thread.name.clone(),
            home: binding.home.cut(active),
            left: loaded
                .or_else(|| binding.left.clone())
                .or_else(|| (!thread.interest.is_wanted()).then_some(Left::Asked)),
            tagged: thread.interest == Interest::Tagged,
        });
    }

    /// Reads the present mask of a thread.
    pub(super) fn mask(&self, pid: Pid, tid: Tid) -> Result<CpuSet, Errno> {
        if self.proc.shares_numbers() {
            affinity::get(Some(tid))
        } else {
            // To the kernel, these numbers mean other tasks than in this procfs.
            process::thread_status(self.proc.path(), pid, tid)
                .map(|status| status.cpus)
                .map_err(|error| if error.is_gone() { Errno::SRCH } else { Errno::IO })
        }
    }

    /// Returns whether a thread may be moved, as far as is known without a system call.
    pub(super) fn may_move(&self, id: ThreadId, constraints: &Constraints) -> Result<(), Settled> {
        if !self.proc.shares_numbers() || constraints.scheduler().is_some() {
            return Err(Settled::Refused(Refusal::Other));
        }
        match self.left(id) {
            None => Ok(()),
            Some(Left::Refused) => Err(Settled::Refused(Refusal::Permission)),
            Some(Left::MovedItself | Left::MovedByOthers) => Err(Settled::Refused(Refusal::MovedMeanwhile)),
            Some(_) => Err(Settled::Refused(Refusal::Other)),
        }
    }

    /// Releases a thread after its user lost the right to have it moved, and refuses to move it
    /// from now on.
    pub(super) fn refuse(&mut self, id: ThreadId, around: &mut Surroundings<'_>) -> Settled {
        // Best effort: a mask that is refused now is given back at the end.
        let _ = self.release(id, around);
        self.leave(id, Left::Refused, around);
        Settled::Refused(Refusal::Permission)
    }

    fn leave(&mut self, id: ThreadId, why: Left, around: &mut Surroundings<'_>) {
        if let Some(binding) = self.threads.get_mut(&id) {
            binding.left = Some(why);
            self.report(id, around);
        }
    }

    /// Sets the mask that a decision requests. The thread is known to be the same, and
    /// [`Self::may_move`] to allow it.
    pub(super) fn carry_out(
        &mut self,
        id: ThreadId,
        act: &Act,
        around: &mut Surroundings<'_>,
    ) -> Result<Settled, Settled> {
        let Some(thread) = around.table.threads.get(&id) else { return Err(Settled::Vanished) };
        let (pid, tid) = (thread.pid, thread.tid);
        if act.to().is_some() {
            self.claim(pid, around)?;
        }
        let now = self.mask(pid, tid).map_err(|errno| self.refusal(id, errno, around))?;
        if self.was_set(id, now, around) {
            return Err(Settled::Refused(Refusal::MovedMeanwhile));
        }
        let target = match act.to() {
            None => return self.release_decided(id, around),
            Some(to) => to.intersection(&around.constraints.usable_for(id, pid)),
        };
        if target.is_empty() {
            return Err(Settled::Refused(Refusal::Cpus));
        }
        let Some(binding) = self.threads.get(&id) else { return Err(Settled::Vanished) };
        if binding.home.follows && target == binding.home.cut(around.constraints.active(id, pid)) {
            // A mask of all its CPUs is not set: it would confine the thread when the cpuset grows.
            let home = binding.home.clone();
            if binding.held.is_some() {
                return self.release_decided(id, around);
            }
            let given = give(id, (pid, tid), &home, around);
            return given.map(|()| Settled::Applied).map_err(|errno| self.refusal(id, errno, around));
        }
        self.count_move((pid, tid), around.table);
        self.note(id, (pid, tid), &target, around.table);
        if let Err(errno) = affinity::set(Some(tid), &target) {
            self.note_what_is(id, (pid, tid), around.table);
            return Err(self.refusal(id, errno, around));
        }
        if matches!(act, Act::Nudge(_)) {
            self.give_expected(id, (pid, tid), around).map_err(|errno| self.refusal(id, errno, around))?;
            if let Some(binding) = self.threads.get_mut(&id) {
                binding.moved = true;
            }
            self.note_what_is(id, (pid, tid), around.table);
            return Ok(Settled::Applied);
        }
        // The kernel drops CPUs that its cpuset withholds: the mask in effect counts as held.
        let took = affinity::get(Some(tid)).unwrap_or_else(|_| target.clone());
        if took != target {
            self.note(id, (pid, tid), &took, around.table);
        }
        if let Some(binding) = self.threads.get_mut(&id) {
            binding.moved = true;
            binding.held = (took != binding.home.cpus).then_some(took);
        }
        Ok(Settled::Applied)
    }

    /// Counts a move of a thread, for all roots that cover it.
    fn count_move(&mut self, (pid, tid): (Pid, Tid), table: &ThreadTable) {
        let Some(process) = table.processes.get(&pid) else { return };
        for root in process.meant_by(tid) {
            *self.moves.entry(root).or_insert(0) += 1;
        }
    }

    /// Returns the number of moves of the threads that a root covers.
    pub(super) fn moves(&self, root: RootId) -> u64 {
        self.moves.get(&root).copied().unwrap_or(0)
    }

    /// Removes a root that is no longer watched.
    pub(super) fn forget_root(&mut self, root: RootId) {
        self.moves.remove(&root);
    }

    /// Carries out a decision to release a thread.
    fn release_decided(&mut self, id: ThreadId, around: &mut Surroundings<'_>) -> Result<Settled, Settled> {
        match self.release(id, around) {
            Ok(true) => Ok(Settled::Applied),
            Ok(false) => Err(Settled::Refused(Refusal::MovedMeanwhile)),
            Err(errno) => Err(self.refusal(id, errno, around)),
        }
    }

    /// Returns whether another program, or the thread itself, set its mask, which is `now`, since
    /// the last known state. Such a mask is respected from now on, and reported.
    fn was_set(&mut self, id: ThreadId, mut now: CpuSet, around: &mut Surroundings<'_>) -> bool {
        let Some(thread) = around.table.threads.get(&id) else { return false };
        let (pid, tid) = (thread.pid, thread.tid);
        if self.is_expected(id, pid, &now, around) {
            return false;
        }
        // The kernel may have set it, because the CPUs it allows changed since the last reading.
        if around.constraints.is_alone(id) {
            self.regroup_thread(id, around);
        } else {
            self.regroup(pid, around);
        }
        self.refresh_grants(around);
        if let Ok(again) = self.mask(pid, tid) {
            now = again;
        }
        if self.is_expected(id, pid, &now, around) {
            return false;
        }
        let home = self.home_seen(id, pid, now.clone(), around);
        let Some(binding) = self.threads.get_mut(&id) else { return false };
        if binding.moved {
            binding.held = None;
            binding.left = Some(Left::MovedItself);
            binding.home = Home::own(now);
            self.forget_in_record(pid, tid);
        } else {
            // Its program set the mask before we ever moved the thread: this mask is its home.
            binding.home = home;
        }
        self.report(id, around);
        true
    }

    /// Returns whether this is the mask that a thread should have, as far as the kernel grants it.
    fn is_expected(&self, id: ThreadId, pid: Pid, now: &CpuSet, around: &Surroundings<'_>) -> bool {
        let active = around.constraints.active(id, pid);
        self.expected(id).is_some_and(|expected| constraints::is_cut(now, expected, active))
    }

    /// Returns the home of a thread that has this mask by its own will.
    fn home_seen(&self, id: ThreadId, pid: Pid, now: CpuSet, around: &mut Surroundings<'_>) -> Home {
        if self.options.bound {
            return Home::own(now);
        }
        let group = around.constraints.group_of(id, pid);
        let granted = around.constraints.granted(group);
        Home::seen(now, granted.as_ref())
    }

    /// Gives a thread the mask that it had until just now.
    fn give_expected(
        &self,
        id: ThreadId,
        (pid, tid): (Pid, Tid),
        around: &mut Surroundings<'_>,
    ) -> Result<(), Errno> {
        let Some(binding) = self.threads.get(&id) else { return Err(Errno::SRCH) };
        let home = binding.held.clone().map_or_else(|| binding.home.clone(), Home::own);
        give(id, (pid, tid), &home, around)
    }

    /// Translates the kernel's answer to a decision. A thread that may not be moved is not tried
    /// again.
    fn refusal(&mut self, id: ThreadId, errno: Errno, around: &mut Surroundings<'_>) -> Settled {
        match errno {
            Errno::SRCH | Errno::NOENT => return Settled::Vanished,
            Errno::INVAL => return Settled::Refused(Refusal::Cpus),
            Errno::PERM | Errno::ACCESS => {}
            _ => return Settled::Refused(Refusal::Other),
        }
        self.leave(id, Left::Refused, around);
        Settled::Refused(Refusal::Permission)
    }

    /// Makes sure that no other balancer handles the process, and that a record is kept.
    fn claim(&mut self, pid: Pid, around: &mut Surroundings<'_>) -> Result<(), Settled> {
        let Some(custody) = self.processes.get_mut(&pid) else { return Err(Settled::Vanished) };
        let Some(journal) =
            self.options.journal.as_ref().filter(|_| custody.record.is_none() && !custody.unkept)
        else {
            return Ok(());
        };
        match journal.claim(pid, custody.start, around.table.tree_of(pid)) {
            Ok(ClaimOutcome::Ours(record)) => {
                // Masks that a killed balancer left must be restored by this one now.
                let mut taken_over = Vec::new();
                for id in around.table.threads_of(pid) {
                    let Some(thread) = around.table.threads.get(&id) else { continue };
                    let Some(binding) = self.threads.get_mut(&id) else { continue };
                    let active = around.constraints.active(id, pid);
                    if let Some(entry) = record.entry(thread.tid, thread.start, &binding.home.cpus)
                        && binding.held.is_none()
                        && entry.gave(&binding.home.cpus, active)
                    {
                        binding.held = Some(std::mem::replace(&mut binding.home, entry.own()).cpus);
                        binding.moved = true;
                        taken_over.push(id);
                    }
                }
                custody.record = Some(record);
                for id in taken_over {
                    self.report(id, around);
                }
                Ok(())
            }
            Ok(ClaimOutcome::Others(balancer)) => {
                custody.balancer = Some(balancer);
                for id in around.table.threads_of(pid) {
                    self.leave(id, Left::Balancer(balancer), around);
                }
                Err(Settled::Refused(Refusal::Other))
            }
            Err(fault) => {
                // Reported once; balancing continues. Records of other processes are kept as
                // before: any user may have made this one file name.
                self.journal_fault.get_or_insert_with(|| fault.to_string());
                custody.unkept = true;
                Ok(())
            }
        }
    }

    /// Records the mask that a thread is about to get.
    fn note(&mut self, id: ThreadId, (pid, tid): (Pid, Tid), held: &CpuSet, table: &ThreadTable) {
        let Some(start) = table.threads.get(&id).map(|thread| thread.start) else { return };
        let Some(binding) = self.threads.get(&id) else { return };
        let Home { cpus, follows } = binding.home.clone();
        let entry = Entry { start, home: cpus, follows, held: held.clone(), before: None };
        let Some(custody) = self.processes.get_mut(&pid) else { return };
        custody.given.add(held, &binding.home);
        if let Some(record) = custody.record.as_mut()
            && let Err(fault) = record.note(tid, entry)
        {
            self.journal_fault.get_or_insert_with(|| fault.to_string());
        }
    }

    /// Updates the record to the lasting state, after a temporary one.
    fn note_what_is(&mut self, id: ThreadId, (pid, tid): (Pid, Tid), table: &ThreadTable) {
        match self.threads.get(&id).map(|binding| binding.held.clone()) {
            Some(Some(held)) => self.note(id, (pid, tid), &held, table),
            Some(None) => self.forget_in_record(pid, tid),
            None => {}
        }
    }

    fn forget_in_record(&mut self, pid: Pid, tid: Tid) {
        if let Some(record) = self.processes.get_mut(&pid).and_then(|custody| custody.record.as_mut()) {
            record.forget(tid);
        }
    }

    /// Gives a thread its own mask back; returns false when the thread no longer had ours.
    fn release(&mut self, id: ThreadId, around: &mut Surroundings<'_>) -> Result<bool, Errno> {
        let Some(thread) = around.table.threads.get(&id) else { return Err(Errno::SRCH) };
        let Some(binding) = self.threads.get(&id) else { return Err(Errno::SRCH) };
        if binding.held.is_none() {
            return Ok(true);
        }
        let (pid, tid, home) = (thread.pid, thread.tid, binding.home.clone());
        let given = self.give_back(id, (pid, tid), &home, around);
        if given.is_err_and(is_gone)
            && let Some(binding) = self.threads.get_mut(&id)
        {
            // The thread has ended, and our mask with it.
            binding.held = None;
        }
        given
    }

    fn give_back(
        &mut self,
        id: ThreadId,
        (pid, tid): (Pid, Tid),
        home: &Home,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Errno> {
        let Some(thread) = around.table.threads.get(&id) else { return Err(Errno::SRCH) };
        if !around.sampler.is_same(id, thread) {
            return Err(Errno::SRCH);
        }
        let now = self.mask(pid, tid)?;
        if self.was_set(id, now, around) {
            return Ok(false);
        }
        give(id, (pid, tid), home, around)?;
        if let Some(binding) = self.threads.get_mut(&id) {
            binding.held = None;
        }
        self.forget_in_record(pid, tid);
        Ok(true)
    }
}

/// Gives a thread a mask as its own.
fn give(
    id: ThreadId,
    (pid, tid): (Pid, Tid),
    home: &Home,
    around: &mut Surroundings<'_>,
) -> Result<(), Errno> {
    let group = around.constraints.group_of(id, pid);
    home.give(tid, || around.constraints.granted(group))
}
