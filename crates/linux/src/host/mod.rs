//! The live machine as a [`Host`]: threads found as they appear, their counters read, their masks set and given back.
//!
//! A host compares nothing and chooses nothing: what to read is asked of it, what to do is decided elsewhere.
//!
//! Unit: a thread. Its *home* is its own mask, its *held* mask the one that was last asked for and is still there.
//!
//! Properties:
//! - Every thread whose mask is still ours gets its own back: at [`Live::restore`], when the value is dropped, and, if this
//!   process is killed, by [`affinity_journal::restore_left_behind`].
//! - A mask that somebody else set is respected: a thread that we moved is reported as left alone and never touched again; one
//!   that we did not is at home where it was put. Both are seen some 100 ms after the thread has run with it.
//! - What concerns one thread (it ended, it may not be moved) is an outcome and never an error.
//! - Work for each look and descriptors are bounded, whatever the programs do; half of what this process may open is the most
//!   (raise the soft limit of open files to read more threads cheaply; programs started later inherit it).
//! - A thread born of one that was moved inherits our mask; it is known by that mask and gets the own mask of whoever made it
//!   as soon as it is found; where that may be one of several which differ, its process's first thread's. Known gap: one that binds
//!   itself to the very same CPUs before it is found is taken for such.
//! - A thread that only its cpuset binds is in the end bound by that alone again: a cpuset that grows later widens it (`home`).
//! - CPUs that the kernel withholds for a while (a cpuset, a CPU that goes offline) are not forgotten: a home is told as far as it
//!   is granted, and comes back with the CPUs. Each program has the bounds of its own group.
//! - Suspended, stopped and traced threads stay listed, with counters that stand still; so are the CPUs of a virtual machine that is paused.
//! - Of a virtual machine only the threads of its CPUs are moved.
//! - Memory is brought to another node beside the looks, in small steps, and never where its program said where it is to be.

mod affinity;
pub mod affinity_journal;
mod audit;
mod clock;
mod constraints;
mod counter_reader;
mod discovery;
mod error;
mod page_migration;
mod procfs;
mod sampler;
mod stop;

pub use affinity::Restored;
pub use affinity_journal::{Guard, Keeper, KeeperError};
pub use audit::{Audit, MemoryAudit, ThreadAudit};
pub use discovery::roots::{Root, RootId};
pub use discovery::tags::{RootFacts, Watch};
pub use error::LiveError;
pub use stop::Stopper;

use crate::perf::Choice;
use crate::process::Pid;
use crate::text::ReadError;
use audit::Auditor;
use clock::Clock;
use constraints::Bounds;
use counter_reader::Counting;
use discovery::Finder;
use discovery::roots::Watched;
use discovery::thread_table::Table;
use page_migration::Fetching;
use procfs::Budget;
use sampler::counters::Source;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use trimtab_core::balance::{Decision, Outcome, Wanted};
use trimtab_core::counting::Thrift;
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::{ProgramInfo, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Children are looked for no more often than this, and less often where that would cost too much.
    pub find_every: Span,
    /// Keeps a record of masks, for the case that this process is killed, and against two balancers of one program.
    pub keep: Option<Keeper>,
    /// The masks of the programs' threads were set on purpose, also those that equal the cpuset: a cpuset that grows does not widen them.
    pub bound: bool,
    /// Threads are only watched: none is moved, so that programs of others can be watched too. Of several, those that cannot even be
    /// looked at are left out and counted.
    pub hands_off: bool,
    /// The roots are tags: they come and go while it is watched ([`Live::watch`], [`Live::unwatch`]), what none of them means is left
    /// alone, and the watching does not end with the last of them.
    pub tags: bool,
    /// At most so many descriptors are kept for threads; `None` for half of what this process may open.
    pub descriptors: Option<usize>,
    /// What hardware is to count of threads, where a policy wants that.
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
    /// Why the CPUs of a virtual machine could not be asked for again, the last time: those that were known are watched on.
    pub vm_fault: Option<String>,
    /// How long the machine was suspended while we watched.
    pub suspended: Span,
    /// The latest that a look came after its time: the machine was too busy to let us run. Rates are right all the same.
    pub latest: Span,
    /// Looks that came more than ten intervals late.
    pub late: u64,
}

/// Watches programs and moves their threads.
#[derive(Debug)]
pub struct Live {
    proc: PathBuf,
    folder: OwnedFd,
    options: Options,
    own_namespace: bool,
    source: Source,
    budget: Budget,
    clock: Clock,
    /// The work of this thread up to the last look.
    worked: Option<Span>,
    stopper: Stopper,
    roots: BTreeMap<RootId, Watched>,
    next_root: u32,
    table: Table,
    bounds: Bounds,
    finder: Finder,
    counting: Counting,
    fetching: Fetching,
    refreshed: usize,
    placed: usize,
    told_usable: CpuSet,
    audit: Auditor,
    new_programs: Vec<ProgramInfo>,
    /// News and notices of moving, for the next sample.
    later: Sample,
    stat_file: Option<OwnedFd>,
    masks_at: Option<Moment>,
    /// When ends were looked for of which the kernel does not wake us.
    blind_at: Option<Moment>,
    text: Vec<u8>,
    keeper_fault: Option<String>,
    vm_fault: Option<String>,
    suspended: Span,
    latest: Span,
    late: u64,
    unreadable: usize,
}

impl Live {
    /// Begins to watch. `usable` are the CPUs that threads may be moved to; `proc` is where procfs is mounted.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn new(proc: &Path, roots: &[Root], usable: &CpuSet) -> Result<Self, LiveError> {
        Self::with(proc, roots, usable, Options::default())
    }

    /// Begins to watch, in a way of one's own.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn with(proc: &Path, roots: &[Root], usable: &CpuSet, options: Options) -> Result<Self, LiveError> {
        if roots.is_empty() && !options.tags {
            return Err(LiveError::Nothing);
        }
        let folder = procfs::open_folder(proc).map_err(|errno| ReadError::io(proc, errno))?;
        let stopper = Stopper::new().map_err(|errno| LiveError::System {
            attempt: "making an event to be woken by",
            source: errno.into(),
        })?;
        let own = std::fs::read_link(proc.join("self")).ok();
        let own_namespace = own.is_some_and(|own| own.as_os_str() == Pid::own().to_string().as_str());
        let mut budget = Budget::of_this_process();
        if let Some(most) = options.descriptors {
            budget.lower_to(most);
        }
        let root = proc.parent().unwrap_or(Path::new("/"));
        let mut live = Self {
            proc: proc.to_owned(),
            source: Source::of(folder.as_fd()),
            folder,
            own_namespace,
            budget,
            clock: Clock::new(),
            worked: None,
            stopper,
            roots: BTreeMap::new(),
            next_root: 0,
            table: Table::default(),
            bounds: Bounds::new(root, usable),
            finder: Finder::default(),
            counting: Counting::new(&options, root.join("sys")),
            fetching: Fetching::default(),
            refreshed: 0,
            placed: 0,
            told_usable: usable.clone(),
            audit: Auditor::default(),
            new_programs: Vec::new(),
            later: Sample::default(),
            stat_file: None,
            masks_at: None,
            blind_at: None,
            text: Vec::new(),
            keeper_fault: None,
            vm_fault: None,
            suspended: Span::ZERO,
            latest: Span::ZERO,
            late: 0,
            unreadable: 0,
            options,
        };
        let mut problem = None;
        for root in roots {
            match Watched::new(proc, root, own_namespace, live.options.hands_off) {
                Ok(watched) => {
                    let program = ProgramId(live.next_root);
                    live.add_root(Watched { program, ..watched });
                }
                Err(error) if live.options.hands_off && error.is_refused() => {
                    live.unreadable += 1;
                    problem.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(problem) = problem.filter(|_| live.roots.is_empty()) {
            return Err(problem);
        }
        live.find_first()?;
        Ok(live)
    }

    /// Something that ends the watching, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What else is known about the watching.
    pub fn facts(&self) -> Facts {
        Facts {
            threads: self.table.threads.len(),
            unreadable: self.unreadable,
            processes: self.table.processes.len(),
            descriptors: self.budget.used(),
            counts_waiting: self.source == Source::Schedstat,
            scheduler: self.bounds.scheduler().map(str::to_owned),
            keeper_fault: self.keeper_fault.clone(),
            guard_fault: self.options.keep.as_ref().and_then(Keeper::guard_fault),
            vm_fault: self.vm_fault.clone(),
            suspended: self.suspended,
            latest: self.latest,
            late: self.late,
        }
    }
}

impl Host for Live {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        Ok(self.sample(wanted))
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        Ok(decisions.iter().map(|decision| self.carry_out(decision)).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        self.wait_until(until)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end_fetches();
        self.restore();
    }
}
