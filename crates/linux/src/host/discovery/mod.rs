//! Discovery of processes and threads as they appear.
//!
//! Problem: threads are created at any moment, and listing all of them in every sample would be the
//! largest cost. Idea: use cheap queries first. Was any task made on this machine since the last
//! sample (`loadavg` ends with the number of the newest)? Has the number of a process's threads
//! changed (its folder has a link for each)? The third query, lists of children, takes a file for
//! each thread, and is made only as often as a fixed share of one CPU allows.
//!
//! Properties: work per sample is bounded for any program: a bounded number of new threads is
//! added, the rest by the next sample; the time spent on lists of children and members is a fixed
//! share of a CPU, for each user ([`pace`]); a process that was found stays found, even when its
//! parent ends. Known gaps: discovery cannot assign a process to the roots if it is created and its
//! parent ends between two samples, nor children of a thread beyond the first
//! [`processes::LISTS_MAX`] of its process.
//!
//! Discovery reads procfs and control groups and changes nothing on the machine. It reports its
//! findings to the other parts of a host through [`ThreadListener`], and uses none of them: a host
//! with another method of placing threads can use it unchanged.

mod ends;
mod listener;
mod members;
mod pace;
mod processes;
mod roots;
mod tags;
mod thread_table;
mod threads;
mod vcpu_threads;
mod virtual_machines;

pub use listener::{ProcessOrigin, Silent, ThreadListener};
pub use roots::{Root, RootId};
pub use tags::{RootFacts, Watch};
pub use thread_table::{Interest, ThreadTable, WatchedThread};

use super::error::LiveError;
use super::procfs::{self, DescriptorBudget, Procfs};
use crate::process::{self, Pid, Stat};
use crate::text;
use pace::{Owner, Round};
use roots::Watched;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::ProgramInfo;
use trimtab_core::time::{Moment, Span};

/// Period of full searches, which list everything without regard to the cheap queries.
const FULL_PERIOD: Span = Span::from_ms(5_000);
/// Maximal number of names of threads that are read in each full search, in turn: names are only
/// for display.
const NAMES_PER_SEARCH: usize = 256;

/// Options of discovery.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryOptions {
    /// Shortest time between two searches for children; longer if searching would cost too much.
    pub find_every: Span,
    /// Threads are only watched, so no right to move them is needed.
    pub hands_off: bool,
    /// The roots are tags: they come and go, and the watch does not end with the last tag.
    pub tags: bool,
}

/// State of the search.
#[derive(Debug, Default)]
struct Search {
    /// Number of the task that was made last on this machine.
    newest: Option<u32>,
    loadavg: Option<OwnedFd>,
    /// If roots are tags, each user's threads have rounds of their own.
    rounds: BTreeMap<Owner, Round>,
    /// Processes that were covered by a root since the last sample.
    fresh: Vec<(Owner, Pid)>,
    full_at: Option<Moment>,
    /// Number of threads that were listed and not added.
    untaken: u32,
    /// Whether the kernel lacks lists of children.
    no_lists: bool,
}

/// The part of a host that finds threads.
#[derive(Debug)]
pub struct Discovery {
    proc: Arc<Procfs>,
    budget: DescriptorBudget,
    options: DiscoveryOptions,
    table: ThreadTable,
    search: Search,
    /// Position of the thread at which the next reading of names continues.
    next_named: usize,
    /// Time of the last check for ends that the kernel does not signal.
    blind_at: Option<Moment>,
    /// Number of roots that may not be read, of several that are only watched.
    unreadable: usize,
    /// Reason why the latest query for the CPUs of a virtual machine failed.
    vm_fault: Option<String>,
}

impl Discovery {
    /// Makes a discovery without roots.
    pub fn new(proc: Arc<Procfs>, budget: DescriptorBudget, options: DiscoveryOptions) -> Self {
        Self {
            proc,
            budget,
            options,
            table: ThreadTable::default(),
            search: Search::default(),
            next_named: 0,
            blind_at: None,
            unreadable: 0,
            vm_fault: None,
        }
    }

    /// Adds all processes that these roots name and their descendants, before the first sample.
    /// Each root is a program.
    ///
    /// # Errors
    /// [`LiveError`]: a root does not exist, has ended, or is not ours to move; or, of several that
    /// are only watched, none may be read.
    pub fn begin(&mut self, roots: &[Root], listener: &mut dyn ThreadListener) -> Result<(), LiveError> {
        let mut problem = None;
        for root in roots {
            match self.examine(root) {
                Ok(watched) => {
                    let program = self.table.next_program();
                    self.table.add_root(Watched { program, ..watched });
                }
                Err(error) if self.options.hands_off && error.is_refused() => {
                    self.unreadable += 1;
                    problem.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(problem) = problem.filter(|_| self.table.roots.is_empty()) {
            return Err(problem);
        }
        for id in self.table.roots.keys().copied().collect::<Vec<_>>() {
            self.take_root(id, listener)?;
        }
        self.find_children(None, listener);
        Ok(())
    }

    fn examine(&self, root: &Root) -> Result<Watched, LiveError> {
        Watched::new(self.proc.path(), root, self.proc.shares_numbers(), self.options.hands_off)
    }

    /// Returns the roots, processes and threads under watch.
    pub fn table(&self) -> &ThreadTable {
        &self.table
    }

    /// Marks all known threads as reported by a sample: threads found from now on are new.
    pub fn told(&mut self) {
        self.table.told();
    }

    /// Returns the number of roots that may not be read.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Returns the reason why the latest query for the CPUs of a virtual machine failed.
    pub fn vm_fault(&self) -> Option<&str> {
        self.vm_fault.as_deref()
    }

    /// Searches for new threads and for threads that have ended; returns the number of threads that
    /// were seen and not added.
    pub fn find(&mut self, now: Moment, listener: &mut dyn ThreadListener) -> u32 {
        self.take_vcpu_news(listener);
        let newest = self.newest_task();
        let full = self.search.full_at.is_none_or(|at| now.since(at) >= FULL_PERIOD);
        let made = newest.is_none() || newest != self.search.newest || full;
        self.search.newest = newest;
        if full {
            self.search.full_at = Some(now);
        }
        self.find_processes(now, made, listener);
        if made || self.search.untaken > 0 || self.table.processes.values().any(|process| process.stale) {
            self.find_threads(now, full, listener);
        }
        let beyond = self.table.processes.values().map(|process| process.beyond);
        let untaken = beyond.fold(self.search.untaken, u32::saturating_add);
        if full {
            self.refresh_names(listener);
        }
        untaken
    }

    /// Returns the number of the task that was made last on this machine.
    fn newest_task(&mut self) -> Option<u32> {
        let mut buffer = [0; 128];
        if self.search.loadavg.is_none() {
            self.search.loadavg = procfs::open(self.proc.folder(), "loadavg").ok();
        }
        let file = self.search.loadavg.as_ref()?;
        procfs::read_start(file, &mut buffer).ok().and_then(last_made)
    }

    /// Returns whether everything was listed at this moment.
    pub fn is_full_at(&self, now: Moment) -> bool {
        self.search.full_at == Some(now)
    }

    /// Makes the next search a full one, at any cost.
    pub fn find_all_next(&mut self) {
        self.search = Search { no_lists: self.search.no_lists, ..Search::default() };
    }

    /// Reads names again: programs rename their threads, and a process that calls exec becomes
    /// another program.
    fn refresh_names(&mut self, listener: &mut dyn ThreadListener) {
        let ids: Vec<ThreadId> = self.table.threads.keys().copied().collect();
        let count = ids.len().min(NAMES_PER_SEARCH);
        for step in 0..count {
            let id = ids[(self.next_named + step) % ids.len()];
            let Some(thread) = self.table.threads.get(&id) else { continue };
            match process::thread_stat(self.proc.path(), thread.pid, thread.tid) {
                Ok(stat) => self.update_name(id, &stat, listener),
                Err(error) if error.is_gone() => self.end_thread(id, listener),
                Err(_) => {}
            }
        }
        self.next_named = self.next_named.wrapping_add(count);
    }

    /// Updates the name of a thread from its stat line, which may belong to another thread with the
    /// same number.
    pub fn update_name(&mut self, id: ThreadId, stat: &Stat, listener: &mut dyn ThreadListener) {
        let Some(thread) = self.table.threads.get_mut(&id) else { return };
        if thread.start != stat.start {
            return self.end_thread(id, listener);
        }
        let alone = self.table.processes.get(&thread.pid).is_some_and(|process| process.only.is_some());
        if alone || thread.name == stat.comm {
            return;
        }
        thread.name.clone_from(&stat.comm);
        let (pid, program) = (thread.pid, thread.program);
        let leads = pid.main_thread() == thread.tid
            && self.table.roots.values().any(|w| w.program == program && w.root == Root::Tree(pid));
        if leads {
            listener.program_named(ProgramInfo { id: program, pid: pid.0, name: stat.comm.clone() });
        }
        listener.thread_renamed(&self.table, id);
    }
}

/// Parses the number of the newest task from `loadavg`.
fn last_made(loadavg: &[u8]) -> Option<u32> {
    text::words(loadavg).nth(4).and_then(text::number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_task_ends_the_line() {
        assert_eq!(last_made(b"0.00 0.01 0.05 1/120 4711\n"), Some(4711));
        assert_eq!(last_made(b"0.00 0.01"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = last_made(&bytes);
        }
    }
}
