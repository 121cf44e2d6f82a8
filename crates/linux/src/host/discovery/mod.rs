//! Discovery of processes and threads as they appear.
//!
//! Problem: threads are born at any moment, and listing everything at every look costs more than
//! all else. Idea: ask three cheap questions first. Was any task made on this machine since the
//! last look (`loadavg` ends with the number of the newest)? Has the number of a process's threads
//! changed (its folder has a link for each)? And lists of children, which take a file for each
//! thread, are read only as often as a fixed share of one CPU allows.
//!
//! Properties: work per look is bounded, whatever the program does: a bounded number of new threads
//! is taken in, the others by the next look; the time spent on lists of children and members is a
//! fixed share of a CPU, for each user ([`pace`]); a process that was found stays found, also when
//! its parent ends. Known gaps: a process that is born and whose parent ends between two looks is
//! not seen to belong to the roots, and neither are children of a thread beyond the first
//! [`processes::LISTS_MAX`] of its process.
//!
//! Discovery reads procfs and control groups and changes nothing on the machine. It tells the other
//! parts of a host what it finds through [`ThreadListener`], and uses none of them: a host with
//! another way to place threads takes it as it is.

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

pub use listener::{Origin, Silent, ThreadListener};
pub use roots::{Root, RootId};
pub use tags::{RootFacts, Watch};
pub use thread_table::{Interest, Thread, ThreadTable};

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

/// Everything is listed again after this time, whatever the cheap questions say.
const FULL_PERIOD: Span = Span::from_ms(5_000);
/// Threads whose names are looked at in each full search, in turn: names are for people.
const NAMES_PER_SEARCH: usize = 256;

/// Options of discovery.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryOptions {
    /// Children are looked for no more often than this, and less often where that would cost too
    /// much.
    pub find_every: Span,
    /// Threads are only watched, so no right to move them is needed.
    pub hands_off: bool,
    /// The roots are tags: they come and go, and the watching does not end with the last of them.
    pub tags: bool,
}

/// Progress of the search.
#[derive(Debug, Default)]
struct Search {
    /// The number of the task that was made last on this machine.
    newest: Option<u32>,
    loadavg: Option<OwnedFd>,
    /// Where roots are tags, each user's threads have rounds of their own.
    rounds: BTreeMap<Owner, Round>,
    /// Processes that are meant since the last look.
    fresh: Vec<(Owner, Pid)>,
    full_at: Option<Moment>,
    /// Threads that were listed and not taken in.
    untaken: u32,
    /// The kernel has no lists of children.
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
    /// The thread to go on with when names are looked at next.
    next_named: usize,
    /// When ends were looked for of which the kernel does not wake us.
    blind_at: Option<Moment>,
    /// Roots that may not be looked at, of several that are only watched.
    unreadable: usize,
    /// Why the CPUs of a virtual machine could not be asked for again, the last time.
    vm_fault: Option<String>,
}

impl Discovery {
    /// Discovery of nothing yet.
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

    /// Takes in all that these roots name and all that came of it, before the first look. Each root
    /// is a program.
    ///
    /// # Errors
    /// [`LiveError`]: a root is not there, has ended, or is not ours to move; of several that are
    /// only watched, all may not be looked at.
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

    /// The roots, processes and threads under watch.
    pub fn table(&self) -> &ThreadTable {
        &self.table
    }

    /// The sample that names all known threads is told: threads found from now on are new.
    pub fn told(&mut self) {
        self.table.told();
    }

    /// Roots that may not be looked at.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Why the CPUs of a virtual machine could not be asked for again, the last time.
    pub fn vm_fault(&self) -> Option<&str> {
        self.vm_fault.as_deref()
    }

    /// Looks for threads that are new and threads that have ended; how many were seen and not taken
    /// in.
    pub fn find(&mut self, now: Moment, listener: &mut dyn ThreadListener) -> u32 {
        self.hear_of_vcpus(listener);
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

    /// The number of the task that was made last on this machine.
    fn newest_task(&mut self) -> Option<u32> {
        let mut buffer = [0; 128];
        if self.search.loadavg.is_none() {
            self.search.loadavg = procfs::open(self.proc.folder(), "loadavg").ok();
        }
        let file = self.search.loadavg.as_ref()?;
        procfs::read_start(file, &mut buffer).ok().and_then(last_made)
    }

    /// Whether everything was listed again at this moment.
    pub fn is_full_at(&self, now: Moment) -> bool {
        self.search.full_at == Some(now)
    }

    /// Looks for all that is new at the next look, whatever that costs.
    pub fn find_all_next(&mut self) {
        self.search = Search { no_lists: self.search.no_lists, ..Search::default() };
    }

    /// Looks whether names changed: programs rename their threads, and a process that calls exec
    /// becomes another program.
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

    /// Takes the name of a thread from its stat line, which may be that of another thread with its
    /// number.
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

/// The number of the newest task, from `loadavg`.
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
