//! Host for the live machine: threads are found as they appear, their counters read, their masks
//! set and given back.
//!
//! [`Live`] is made of parts. Each owns what it keeps and is told by the others what it needs;
//! those that read do not know the one that sets masks, so that another host may be made of them
//! alone.
//!
//! | part | work |
//! |---|---|
//! | [`Discovery`] | roots, processes and threads as they come and go; tells a [`ThreadListener`] |
//! | [`Sampler`] | the kernel's counters of threads and CPUs |
//! | [`CounterReader`] | hardware counters, or where memory lies |
//! | `constraints` | what cpusets, quotas and a loaded scheduler leave of the machine |
//! | `affinity` | sets masks and gives them back, with the [`affinity_journal`] for the case of a kill |
//! | `page_migration` | brings memory to another node beside the looks |
//! | `audit` | what is to be said of a run when it is over |
//!
//! A host compares nothing and chooses nothing: what to read is asked of it, what to do is decided
//! elsewhere.
//!
//! Properties:
//! - Every thread whose mask is still ours gets its own back: at [`Live::restore`], when the value
//!   is dropped, and, if this process is killed, by [`affinity_journal::restore_left_behind`].
//! - A mask that others set is respected: a thread that we moved is reported as left alone and
//!   never touched again; one that we did not is at home where it was put. Both are seen some 100
//!   ms after the thread has run with it.
//! - What concerns one thread (it ended, it may not be moved) is an outcome and never an error.
//! - Work for each look and descriptors are bounded, whatever the programs do; half of what this
//!   process may open is the most (raise the soft limit of open files to read more threads cheaply;
//!   programs started later inherit it).
//! - A thread that only its cpuset binds is in the end bound by that alone again: a cpuset that
//!   grows later widens it (`home`).
//! - CPUs that the kernel withholds for a while (a cpuset, a CPU that goes offline) are not
//!   forgotten: a home is told as far as it is granted, and comes back with the CPUs. Each program
//!   has the limits of its own group.
//! - Of a virtual machine only the threads of its CPUs are moved.
//! - A thread is told once a look at most, with the last that is known; of one that came and went
//!   within a look nothing is told.

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
    Discovery, DiscoveryOptions, Interest, Origin, Root, RootFacts, RootId, Silent, Thread, ThreadListener,
    ThreadTable, Watch,
};
pub use error::LiveError;
pub use procfs::{DescriptorBudget, Procfs};
pub use sampler::{Reading, Sampler, Unread};
pub use stop::Stopper;

use crate::perf::{Choice, Standing};
use crate::process::Tid;
use clock::Clock;
use parts::Parts;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trimtab_core::balance::{Decision, Outcome, Wanted};
use trimtab_core::counter_budget::Thrift;
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, Sample, ThreadInfo};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use waiter::Waiter;

/// Passes over the threads that were born while masks were given back. Chosen: each finds only
/// those born during the one before.
const RESTORE_PASSES: u32 = 4;
/// The same where one root ends.
const UNWATCH_PASSES: u32 = 2;

/// Options of the watching.
#[derive(Clone, Debug)]
pub struct Options {
    /// Children are looked for no more often than this, and less often where that would cost too
    /// much.
    pub find_every: Span,
    /// Keeps a record of masks, for the case that this process is killed, and against two balancers
    /// of one program.
    pub keep: Option<AffinityJournal>,
    /// The masks of the programs' threads were set on purpose, also those that equal the cpuset: a
    /// cpuset that grows does not widen them.
    pub bound: bool,
    /// Threads are only watched: none is moved, so that programs of others can be watched too. Of
    /// several, those that cannot even be looked at are left out and counted.
    pub hands_off: bool,
    /// The roots are tags: they come and go while it is watched ([`Live::watch`],
    /// [`Live::unwatch`]), a thread that none of them means is left alone, and the watching does
    /// not end with the last of them.
    pub tags: bool,
    /// Descriptors that are kept for threads, at most; `None` for half of what this process may
    /// open.
    pub descriptors: Option<usize>,
    /// Events that hardware is to count of threads, where a policy wants that.
    pub counting: Choice,
    /// How counting is kept cheap; `None` for what follows from its price here.
    pub thrift: Option<Thrift>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            find_every: Span::from_ms(200),
            keep: None,
            bound: false,
            hands_off: false,
            tags: false,
            descriptors: None,
            counting: Choice::Auto,
            thrift: None,
        }
    }
}

/// What else is known about the watching.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Threads watched now.
    pub threads: usize,
    /// Programs that were to be watched besides others, and that we may not even look at.
    pub unreadable: usize,
    /// Processes watched now.
    pub processes: usize,
    /// Descriptors kept for threads.
    pub descriptors: usize,
    /// Whether the kernel counts the time that threads wait for a CPU.
    pub counts_waiting: bool,
    /// The scheduler that is loaded into the kernel.
    pub scheduler: Option<String>,
    /// Why no record of masks is kept any more: one warning.
    pub keeper_fault: Option<String>,
    /// Why nothing gives masks back at once if this process is killed: one note.
    pub guard_fault: Option<String>,
    /// Why the CPUs of a virtual machine could not be asked for again, the last time: those that
    /// were known are watched on.
    pub vm_fault: Option<String>,
    /// How long the machine was suspended while we watched.
    pub suspended: Span,
    /// The latest that a look came after its time: the machine was too busy to let us run. Rates
    /// are right all the same.
    pub latest: Span,
    /// Looks that came more than ten intervals late.
    pub late: u64,
}

/// Watches programs and moves their threads.
#[derive(Debug)]
pub struct Live {
    clock: Clock,
    waiter: Waiter,
    discovery: Discovery,
    parts: Parts,
    /// The CPU time of this thread up to the last look.
    worked: Option<Span>,
    suspended: Span,
}

impl Live {
    /// Begins to watch. `usable` are the CPUs that threads may be moved to; `proc` is where procfs
    /// is mounted.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn new(proc: &Path, roots: &[Root], usable: &CpuSet) -> Result<Self, LiveError> {
        Self::with(proc, roots, usable, Options::default())
    }

    /// Begins to watch, with these options.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn with(proc: &Path, roots: &[Root], usable: &CpuSet, options: Options) -> Result<Self, LiveError> {
        if roots.is_empty() && !options.tags {
            return Err(LiveError::Nothing);
        }
        let proc = Arc::new(Procfs::open(proc)?);
        let waiter = Waiter::new()?;
        let budget = DescriptorBudget::of_this_process(options.descriptors);
        let Options { find_every, hands_off, tags, .. } = options;
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

    /// Something that ends the watching, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.waiter.stopper()
    }

    /// What else is known about the watching.
    pub fn facts(&self) -> Facts {
        let (discovery, parts) = (&self.discovery, &self.parts);
        Facts {
            threads: discovery.table().threads.len(),
            unreadable: discovery.unreadable(),
            processes: discovery.table().processes.len(),
            descriptors: parts.budget.used(),
            counts_waiting: parts.sampler.counts_waiting(),
            scheduler: parts.constraints.scheduler().map(str::to_owned),
            keeper_fault: parts.affinity.journal_fault().map(str::to_owned),
            guard_fault: parts.affinity.journal().and_then(AffinityJournal::guard_fault),
            vm_fault: discovery.vm_fault().map(str::to_owned),
            suspended: self.suspended,
            latest: self.waiter.latest(),
            late: self.waiter.late(),
        }
    }

    /// Begins to watch one more root.
    ///
    /// # Errors
    /// [`LiveError`]: it is not there, has ended, or is not ours to move.
    pub fn watch(&mut self, root: &Root, how: Watch) -> Result<RootId, LiveError> {
        let id = self.discovery.watch(root, how, &mut self.parts)?;
        if let Err(error) = self.discovery.is_meant(root, how.start) {
            self.unwatch(id);
            return Err(error);
        }
        self.discovery.find_next(id);
        Ok(id)
    }

    /// Ends the watching of a root. A thread that no other root means has its own mask again when
    /// this returns, unless others set it since or the kernel refuses; threads born with a mask of
    /// ours meanwhile too.
    pub fn unwatch(&mut self, id: RootId) -> Restored {
        self.parts.released = Restored::default();
        let Some(meant) = self.discovery.unwatch(id, &mut self.parts) else { return Restored::default() };
        let restored = std::mem::take(&mut self.parts.released);
        self.parts.affinity.forget_root(id);
        // What was born meanwhile of threads that still had our masks gets its own when it is
        // found.
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

    /// What is known of the roots, ascending.
    pub fn roots(&self) -> Vec<RootFacts> {
        let roots = self.discovery.roots().into_iter();
        roots.map(|root| RootFacts { moves: self.parts.affinity.moves(root.id), ..root }).collect()
    }

    /// The masks that threads have by their own, or their program's, will.
    pub fn homes(&self) -> BTreeMap<Tid, CpuSet> {
        let home = |id: ThreadId| self.parts.affinity.home(id).cloned();
        self.discovery.table().threads().filter_map(|(id, thread)| Some((thread.tid, home(id)?))).collect()
    }

    /// Threads that are tagged now.
    pub fn tagged(&self) -> usize {
        let threads = self.discovery.table().threads();
        threads.filter(|(_, thread)| thread.interest == Interest::Tagged).count()
    }

    /// What can be counted here and why not more; `None` as long as counts were not wanted.
    pub fn counting(&self) -> Option<&Standing> {
        self.parts.counters.standing()
    }

    /// Threads whose counters are open now.
    pub fn counted_threads(&self) -> usize {
        self.parts.counters.counted_threads()
    }

    /// The CPU time that bringing memory took so far, which is not part of what looks cost.
    pub fn fetching_cost(&self) -> Span {
        self.parts.pages.cost()
    }

    /// Reads what an audit wants of all that lives now: switches, migrations, pages. To be called
    /// every few seconds, and before the programs end; what was read last of each counts.
    pub fn look_closely(&mut self) {
        self.parts.look_closely(self.discovery.table());
    }

    /// Takes away the kernel's marks of touched pages, so that the next close look tells what was
    /// touched since. Costs each process a walk through its page tables, and the processor the
    /// marks again.
    pub fn forget_touched(&mut self) {
        self.parts.forget_touched(self.discovery.table());
    }

    /// All that is known about the run by now.
    pub fn audit(&self) -> Audit {
        self.parts.audit.audit()
    }

    /// Gives every thread that still has our mask its own back. Until it is moved again, nothing of
    /// ours is left.
    pub fn restore(&mut self) -> Restored {
        let mut restored = self.parts.restore(self.discovery.table());
        // Threads that were born meanwhile, of those that still had our masks, have them too.
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

    /// Looks for threads that are new and threads that have ended.
    fn find(&mut self, now: Moment) {
        let untaken = self.discovery.find(now, &mut self.parts);
        if untaken > 0 {
            self.parts.news.notices.push(Notice::Unread(untaken));
        }
        if self.discovery.is_full_at(now) {
            self.parts.tidy_up(now, &self.discovery);
        }
    }

    /// Reads what is wanted, now.
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
        self.parts.look_at_constraints(at, self.discovery.table());
        let known: Vec<ThreadId> = self.discovery.table().threads.keys().copied().collect();
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
        // The last that was told of each thread that lives.
        let last: BTreeMap<ThreadId, ThreadInfo> =
            sample.news.drain(..).map(|info| (info.id, info)).collect();
        sample.news.extend(last.into_values().filter(|info| table.contains_key(&info.id)));
        sample.threads.sort_unstable_by_key(|read| read.id);
        // Some were read and then turned out to have ended.
        sample.threads.retain(|read| table.contains_key(&read.id));
        self.discovery.told();
        sample
    }

    /// Reads these threads; how many could not be read.
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
