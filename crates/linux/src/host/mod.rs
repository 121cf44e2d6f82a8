//! Host for the live machine: finds threads as they appear, reads their counters, sets their masks
//! and gives the masks back.
//!
//! [`Live`] consists of parts. Each part owns its state and receives from the others the facts it
//! needs. The parts that read do not use the part that sets masks, so that another host may be
//! built from the readers alone.
//!
//! | part | work |
//! |---|---|
//! | [`Discovery`] | roots, processes and threads as they come and go; calls a [`ThreadListener`] |
//! | [`Sampler`] | the kernel's counters of threads and CPUs |
//! | [`CounterReader`] | hardware counters, or the nodes where memory lies |
//! | `constraints` | the CPUs that cpusets, quotas and a loaded scheduler leave usable |
//! | `affinity` | sets masks and gives them back, after a kill through the [`affinity_journal`] |
//! | `page_migration` | brings memory to another node in parallel with the samples |
//! | `audit` | the results of a run when it is over |
//!
//! A host compares nothing and chooses nothing: its caller selects the values to read, and
//! decisions are made elsewhere.
//!
//! Properties:
//! - Every thread that still has our mask gets its own mask back: at [`Live::restore`], when the
//!   value is dropped, and, if this process is killed, by
//!   [`affinity_journal::restore_left_behind`].
//! - A mask that others set is respected: a thread that we moved is reported as set by others and
//!   never moved again; for a thread that we did not move, the new mask becomes its home. Both are
//!   noticed some 100 ms after the thread has run with the mask.
//! - Events of a single thread (it ended, it may not be moved) are outcomes and never errors.
//! - Work per sample and descriptors are bounded, whatever the programs do. Descriptors use at most
//!   half of the limit of this process (raise the soft limit of open files to read more threads
//!   cheaply; programs started later inherit it).
//! - A thread that only its cpuset binds is bound by the cpuset alone again at the end: a cpuset
//!   that grows later widens it (`home`).
//! - CPUs that the kernel withholds for a while (a cpuset, a CPU that goes offline) stay in the
//!   stored masks: a home is reported as far as it is granted, and comes back with the CPUs. Each
//!   program has the limits of its own group.
//! - In a virtual machine only the threads of its CPUs are moved.
//! - A thread is reported at most once per sample, with its latest state; a thread that comes and
//!   goes within a sample is not reported.

mod affinity;
pub mod affinity_journal;
mod audit;
mod clock;
mod constraints;
mod counter_reader;
mod discovery;
mod error;
mod home;
mod page_migration;
mod parts;
mod procfs;
mod sampler;
mod stop;
mod waiter;

pub use affinity::Restored;
pub use affinity_journal::{AffinityJournal, Guard, JournalError};
pub use audit::{Audit, MemoryAudit, ThreadAudit};
pub use counter_reader::CounterReader;
pub use discovery::{
    Discovery, DiscoveryOptions, Interest, ProcessOrigin, Root, RootFacts, RootId, Silent, ThreadListener,
    ThreadTable, Watch, WatchedThread,
};
pub use error::LiveError;
pub use procfs::{DescriptorBudget, Procfs};
pub use sampler::{ReadAtOnce, Sampler, ThreadReading, Unread};
pub use stop::Stopper;

use crate::perf::{Choice, Standing};
use crate::process::Tid;
use clock::Clock;
use parts::Parts;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trimtab_core::balance::{Decision, Outcome, Wanted};
use trimtab_core::counter_budget::CounterThrottle;
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, Sample, ThreadInfo};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use waiter::Waiter;

/// Maximal number of passes over the threads that were created while masks were given back. Chosen:
/// each pass finds only the threads created during the previous one.
const RESTORE_PASSES: u32 = 4;
/// The same limit for the end of one root.
const UNWATCH_PASSES: u32 = 2;

/// Options of a live host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Shortest time between two searches for children; longer if searching would cost too much.
    pub find_every: Span,
    /// Journal of masks, for the case that this process is killed, and against two balancers of one
    /// program.
    pub keep: Option<AffinityJournal>,
    /// Masks of the programs' threads count as set on purpose, even if they equal the cpuset: a
    /// cpuset that grows does not widen them.
    pub bound: bool,
    /// Threads are only watched and never moved, so programs of other users can be watched too.
    /// Among several programs, those that may not be read are left out and counted.
    pub hands_off: bool,
    /// The roots are tags: they are added and removed during the watch ([`Live::watch`],
    /// [`Live::unwatch`]), a thread that no tag covers is left alone, and the watch does not end
    /// with the last tag.
    pub tags: bool,
    /// Maximal number of descriptors that are kept for threads; `None` for half of the limit of
    /// this process.
    pub descriptors: Option<usize>,
    /// Whether threads of large processes may be read all at once, by a program inside the kernel.
    pub at_once: bool,
    /// Events that hardware counts for threads, if a policy wants counts.
    pub counting: Choice,
    /// Limits that keep counting cheap; `None` for limits derived from its cost on this machine.
    pub thrift: Option<CounterThrottle>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            find_every: Span::from_ms(200),
            keep: None,
            bound: false,
            hands_off: false,
            tags: false,
            descriptors: None,
            at_once: true,
            counting: Choice::Auto,
            thrift: None,
        }
    }
}

/// State of the watch besides its samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Number of threads watched now.
    pub threads: usize,
    /// Number of programs that were requested together with others, and that this process may not
    /// read.
    pub unreadable: usize,
    /// Number of processes watched now.
    pub processes: usize,
    /// Number of descriptors kept for threads.
    pub descriptors: usize,
    /// Whether the kernel counts the time that threads wait for a CPU.
    pub counts_waiting: bool,
    /// Whether threads of large processes are read all at once.
    pub at_once: ReadAtOnce,
    /// Name of the scheduler that is loaded into the kernel.
    pub scheduler: Option<String>,
    /// Reason why no journal of masks is kept any more: one warning.
    pub keeper_fault: Option<String>,
    /// Reason why no guardian gives masks back at once if this process is killed: one note.
    pub guard_fault: Option<String>,
    /// Reason why the latest query for the CPUs of a virtual machine failed: the vCPUs known before
    /// stay watched.
    pub vm_fault: Option<String>,
    /// Time for which the machine was suspended during the watch.
    pub suspended: Span,
    /// Longest delay of a sample after its due time: the machine was too busy to run this process.
    /// Rates are correct nevertheless.
    pub latest: Span,
    /// Number of samples that came more than ten intervals late.
    pub late: u64,
}

/// Live host: watches programs and moves their threads.
#[derive(Debug)]
pub struct Live {
    clock: Clock,
    waiter: Waiter,
    discovery: Discovery,
    parts: Parts,
    /// CPU time of this thread up to the last sample.
    worked: Option<Span>,
    suspended: Span,
}

impl Live {
    /// Starts to watch. `usable` are the CPUs that threads may be moved to; `proc` is the mount
    /// point of procfs.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn new(proc: &Path, roots: &[Root], usable: &CpuSet) -> Result<Self, LiveError> {
        Self::with(proc, roots, usable, HostOptions::default())
    }

    /// Starts to watch with these options.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn with(
        proc: &Path,
        roots: &[Root],
        usable: &CpuSet,
        options: HostOptions,
    ) -> Result<Self, LiveError> {
        if roots.is_empty() && !options.tags {
            return Err(LiveError::Nothing);
        }
        let proc = Arc::new(Procfs::open(proc)?);
        let waiter = Waiter::new()?;
        let budget = DescriptorBudget::of_this_process(options.descriptors);
        let HostOptions { find_every, hands_off, tags, .. } = options;
        let how = DiscoveryOptions { find_every, hands_off, tags };
        let mut live = Self {
            clock: Clock::new(),
            waiter,
            discovery: Discovery::new(proc.clone(), budget.clone(), how),
            parts: Parts::new(&proc, &budget, usable, options),
            worked: None,
            suspended: Span::ZERO,
        };
        live.discovery.begin(roots, &mut live.parts)?;
        Ok(live)
    }

    /// Returns a handle that ends the watch, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.waiter.stopper()
    }

    /// Returns whether threads of large processes are read all at once.
    pub fn at_once(&self) -> ReadAtOnce {
        self.parts.sampler.at_once()
    }

    /// Returns the state of the watch besides its samples.
    pub fn facts(&self) -> Facts {
        let (discovery, parts) = (&self.discovery, &self.parts);
        Facts {
            threads: discovery.table().threads.len(),
            unreadable: discovery.unreadable(),
            processes: discovery.table().processes.len(),
            descriptors: parts.budget.used(),
            counts_waiting: parts.sampler.counts_waiting(),
            at_once: parts.sampler.at_once(),
            scheduler: parts.constraints.scheduler().map(str::to_owned),
            keeper_fault: parts.affinity.journal_fault().map(str::to_owned),
            guard_fault: parts.affinity.journal().and_then(AffinityJournal::guard_fault),
            vm_fault: discovery.vm_fault().map(str::to_owned),
            suspended: self.suspended,
            latest: self.waiter.latest(),
            late: self.waiter.late(),
        }
    }

    /// Starts to watch one more root.
    ///
    /// # Errors
    /// [`LiveError`]: the root does not exist, has ended, or is not ours to move.
    pub fn watch(&mut self, root: &Root, how: Watch) -> Result<RootId, LiveError> {
        let id = self.discovery.watch(root, how, &mut self.parts)?;
        if let Err(error) = self.discovery.is_meant(root, how.start) {
            self.unwatch(id);
            return Err(error);
        }
        self.discovery.find_next(id);
        Ok(id)
    }

    /// Ends the watch of a root. When this returns, a thread that no other root covers has its own
    /// mask again, unless others set the mask meanwhile or the kernel refuses. The same holds for
    /// threads that inherited a mask of ours meanwhile.
    pub fn unwatch(&mut self, id: RootId) -> Restored {
        self.parts.released = Restored::default();
        let Some(meant) = self.discovery.unwatch(id, &mut self.parts) else { return Restored::default() };
        let restored = std::mem::take(&mut self.parts.released);
        self.parts.affinity.forget_root(id);
        // Threads created meanwhile by threads that still had our masks get their own masks when
        // they are found.
        for _ in 0..UNWATCH_PASSES {
            if !self.parts.affinity.has_given(meant.iter().copied()) {
                break;
            }
            self.discovery.find_born(&meant, &mut self.parts);
            self.find(self.clock.now());
        }
        self.discovery.drop_unmeant(&mut self.parts);
        restored
    }

    /// Returns the state of the roots, ascending.
    pub fn roots(&self) -> Vec<RootFacts> {
        let roots = self.discovery.roots().into_iter();
        roots.map(|root| RootFacts { moves: self.parts.affinity.moves(root.id), ..root }).collect()
    }

    /// Returns the roots that cover a thread, ascending.
    pub fn roots_of(&self, id: ThreadId) -> impl Iterator<Item = RootId> + '_ {
        let table = self.discovery.table();
        let thread = table.thread(id);
        let process = thread.and_then(|thread| Some((table.processes.get(&thread.pid)?, thread.tid)));
        process.into_iter().flat_map(|(process, tid)| process.meant_by(tid))
    }

    /// Returns the masks that threads have by their own will or their program's.
    pub fn homes(&self) -> BTreeMap<Tid, CpuSet> {
        let home = |id: ThreadId| self.parts.affinity.home(id).cloned();
        self.discovery.table().threads().filter_map(|(id, thread)| Some((thread.tid, home(id)?))).collect()
    }

    /// Returns the number of threads that are tagged now.
    pub fn tagged(&self) -> usize {
        let threads = self.discovery.table().threads();
        threads.filter(|(_, thread)| thread.interest == Interest::Tagged).count()
    }

    /// Returns which events can be counted here and why no more; `None` as long as no counts were
    /// requested.
    pub fn counting(&self) -> Option<&Standing> {
        self.parts.counters.standing()
    }

    /// Returns the number of threads with open counters.
    pub fn counted_threads(&self) -> usize {
        self.parts.counters.counted_threads()
    }

    /// Returns the CPU time used by page migration so far, which is not part of the cost of
    /// samples.
    pub fn fetching_cost(&self) -> Span {
        self.parts.pages.cost()
    }

    /// Reads the data of an audit for everything that lives now: switches, migrations, pages. To be
    /// called every few seconds, and before the programs end; the last values read count.
    pub fn look_closely(&mut self) {
        self.parts.look_closely(self.discovery.table());
    }

    /// Clears the kernel's marks of touched pages, so that the next call of [`Live::look_closely`]
    /// shows the pages touched since. Costs each process a walk through its page tables, and costs
    /// the processor setting the marks again.
    pub fn forget_touched(&mut self) {
        self.parts.forget_touched(self.discovery.table());
    }

    /// Returns the audit of the run so far.
    pub fn audit(&self) -> Audit {
        self.parts.audit.audit()
    }

    /// Gives every thread that still has our mask its own mask back. Afterwards no mask of ours is
    /// left until a thread is moved again.
    pub fn restore(&mut self) -> Restored {
        let mut restored = self.parts.restore(self.discovery.table());
        // Threads that were created meanwhile by threads that still had our masks have our masks
        // too.
        for _ in 0..RESTORE_PASSES {
            if !self.parts.affinity.has_given(self.discovery.table().processes()) {
                break;
            }
            self.discovery.find_all_next();
            self.find(self.clock.now());
            let more = self.parts.restore(self.discovery.table());
            restored = restored.and(more);
            if more == Restored::default() {
                break;
            }
        }
        self.parts.affinity.finish_records(self.discovery.table());
        restored
    }

    /// Searches for new threads and for threads that have ended.
    fn find(&mut self, now: Moment) {
        let untaken = self.discovery.find(now, &mut self.parts);
        if untaken > 0 {
            self.parts.news.notices.push(Notice::Unread(untaken));
        }
        if self.discovery.is_full_at(now) {
            self.parts.tidy_up(now, &self.discovery);
        }
    }

    /// Reads the requested counters, now.
    fn sample(&mut self, wanted: &Wanted) -> Sample {
        let at = self.clock.now();
        let worked = Clock::worked();
        let before = self.worked.replace(worked).filter(|before| *before <= worked);
        self.parts.news.at = at;
        self.parts.news.cost = before.map(|before| worked.less(before));
        if let Some(span) = self.clock.slept() {
            self.suspended = self.suspended + span;
            self.parts.news.notices.push(Notice::ClockJump(span));
        }
        self.parts.refresh_constraints(at, self.discovery.table());
        let known: Vec<ThreadId> = self.discovery.table().threads.keys().copied().collect();
        self.parts.read_at_once(self.discovery.table(), wanted);
        let mut unread = self.read_threads(&known, wanted);
        self.find(at);
        let new = self.discovery.table().new_threads();
        let new: Vec<ThreadId> = new.filter(|id| known.binary_search(id).is_err()).collect();
        unread += self.read_threads(&new, wanted);
        if unread > 0 {
            self.parts.news.notices.push(Notice::Unread(unread));
        }
        let full = self.discovery.is_full_at(at);
        let mut sample = self.parts.complete(wanted, full, self.discovery.table());
        let table = &self.discovery.table().threads;
        // The latest report of each thread that lives.
        let last: BTreeMap<ThreadId, ThreadInfo> =
            sample.news.drain(..).map(|info| (info.id, info)).collect();
        sample.news.extend(last.into_values().filter(|info| table.contains_key(&info.id)));
        sample.threads.sort_unstable_by_key(|read| read.id);
        // Some threads were read and then turned out to have ended.
        sample.threads.retain(|read| table.contains_key(&read.id));
        self.discovery.told();
        sample
    }

    /// Reads these threads; returns the number of threads that could not be read.
    fn read_threads(&mut self, ids: &[ThreadId], wanted: &Wanted) -> u32 {
        let Self { discovery, parts, .. } = self;
        let mut unread = 0;
        for &id in ids {
            let Some(thread) = discovery.table().thread(id) else { continue };
            if thread.interest == Interest::Untagged {
                continue;
            }
            match parts.read(id, thread, wanted) {
                Ok(None) => {}
                Ok(Some(stat)) => discovery.update_name(id, &stat, parts),
                Err(Unread::Gone) => discovery.end_thread(id, parts),
                Err(Unread::Trouble) => unread += 1,
            }
        }
        unread
    }
}

impl Host for Live {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        Ok(self.sample(wanted))
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        let table = self.discovery.table();
        Ok(decisions.iter().map(|decision| self.parts.carry_out(decision, table)).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        self.waiter.wait_until(until, &self.clock, &mut self.discovery)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.parts.stop_migrations();
        self.restore();
    }
}
