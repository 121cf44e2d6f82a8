//! Lists of threads: new threads are added, ended threads are reported and removed.
//!
//! Property: a number that meanwhile belongs to another thread ends the thread that had it before.

use super::Discovery;
use super::listener::ThreadListener;
use super::pace::Owner;
use super::thread_table::WatchedThread;
use crate::host::clock::Clock;
use crate::process::{self, Pid, State, Tid};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::ThreadId;
use trimtab_core::sampling_budget::LISTING_THREADS;
use trimtab_core::time::{Moment, Span};

/// Maximal number of new threads that are added by one sample; each costs some 15 us. Chosen.
const NEW_MAX: usize = 2_048;
/// Maximal number of threads under watch; further threads are only counted. Chosen: twice the
/// largest machine's.
const WATCHED_MAX: usize = 32_768;

impl Discovery {
    /// Lists the threads of each process if their number changed.
    pub(super) fn find_threads(&mut self, now: Moment, full: bool, listener: &mut dyn ThreadListener) {
        let pids: Vec<Pid> = self.table.processes.keys().copied().collect();
        let mut room = NEW_MAX;
        let mut theirs: BTreeMap<Owner, (usize, Span)> = BTreeMap::new();
        self.search.untaken = 0;
        for pid in pids {
            let path = self.proc.path().join(format!("{pid}/task"));
            let links = links(&path);
            let Some(process) = self.table.processes.get(&pid) else { continue };
            match links {
                Ok(links) if process.links == Some(links) && !process.stale && !full => continue,
                Ok(links) => {
                    let owner = self.owner(process);
                    let round = self.search.rounds.get(&owner).filter(|_| owner.is_some());
                    if round.is_some_and(|round| now < round.threads_next) {
                        continue;
                    }
                    let begin = Clock::worked();
                    let (mut left, spent) =
                        theirs.get(&owner).copied().unwrap_or_else(|| (self.left(owner), Span::ZERO));
                    self.list_threads(pid, links, (&mut room, &mut left), listener);
                    theirs.insert(owner, (left, spent + Clock::worked().less(begin)));
                }
                Err(Errno::NOENT | Errno::SRCH) => self.end_process(pid, listener),
                Err(_) => self.search.untaken += 1,
            }
        }
        for (owner, (_, cost)) in theirs {
            if let Some(round) = self.search.rounds.get_mut(&owner) {
                round.threads_next = now + LISTING_THREADS.payoff(cost);
            }
        }
    }

    /// Lists a process's threads, and adds new threads up to the room in this sample and the room
    /// of their user.
    pub(super) fn list_threads(
        &mut self,
        pid: Pid,
        links: u64,
        (room, theirs): (&mut usize, &mut usize),
        listener: &mut dyn ThreadListener,
    ) {
        let listed = match process::threads(self.proc.path(), pid) {
            Ok(listed) => listed,
            Err(error) if error.is_gone() => return self.end_process(pid, listener),
            Err(_) => {
                self.search.untaken += 1;
                return;
            }
        };
        if !self.is_still_there(pid, listener) {
            return;
        }
        let listed = self.select(pid, listed, listener);
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        let leader = process.headless.then(|| pid.main_thread());
        let listed: BTreeSet<Tid> = listed.into_iter().filter(|tid| Some(*tid) != leader).collect();
        let ended: Vec<_> =
            process.threads.iter().filter(|(tid, _)| !listed.contains(tid)).map(|(_, id)| *id).collect();
        let new: Vec<Tid> = listed.into_iter().filter(|tid| !process.threads.contains_key(tid)).collect();
        process.links = Some(links);
        process.stale = false;
        for id in ended {
            self.end_thread(id, listener);
        }
        let (mut left_over, mut beyond) = (0, 0);
        for tid in new {
            if *theirs == 0 {
                beyond += 1;
            } else if *room == 0 || self.table.threads.len() >= WATCHED_MAX {
                left_over += 1;
            } else if self.take_in(pid, tid, listener) {
                (*room, *theirs) = (*room - 1, *theirs - 1);
            }
        }
        self.search.untaken += left_over;
        if let Some(process) = self.table.processes.get_mut(&pid) {
            process.stale = left_over > 0;
            // There is no room for these before others end: the process is not listed over and over
            // for them.
            process.beyond = beyond;
        }
    }

    /// Returns whether a process is the known one with this number, and has not ended while it is
    /// still listed.
    fn is_still_there(&mut self, pid: Pid, listener: &mut dyn ThreadListener) -> bool {
        let stat = process::stat(self.proc.path(), pid);
        let Some(process) = self.table.processes.get_mut(&pid) else { return false };
        match stat {
            Ok(stat) if stat.start != process.start || (stat.state == State::Zombie && stat.threads <= 1) => {
                self.end_process(pid, listener);
                false
            }
            Ok(stat) => {
                process.headless = stat.state == State::Zombie;
                true
            }
            Err(error) if error.is_gone() => {
                self.end_process(pid, listener);
                false
            }
            Err(_) => {
                self.search.untaken += 1;
                false
            }
        }
    }

    /// Takes a thread in; returns false when it has ended already.
    fn take_in(&mut self, pid: Pid, tid: Tid, listener: &mut dyn ThreadListener) -> bool {
        let Ok(stat) = process::thread_stat(self.proc.path(), pid, tid) else { return false };
        let Some(process) = self.table.processes.get(&pid) else { return false };
        let name = match &process.only {
            None => stat.comm.clone(),
            Some(only) => match only.name(tid, stat.start) {
                Some(name) => name.to_owned(),
                // Another thread has the number of a former vCPU.
                None => return false,
            },
        };
        let (program, interest) = (process.program, process.interest(tid, self.options.tags));
        let id =
            self.table.add_thread(WatchedThread { program, interest, pid, tid, start: stat.start, name });
        let taken = listener.thread_found(&self.table, id, &stat);
        if !taken {
            self.table.retract_thread(id);
        }
        taken
    }

    /// Searches for new threads and children of these processes, now and at any cost; the next
    /// search takes the threads in.
    pub fn find_born(&mut self, of: &[Pid], listener: &mut dyn ThreadListener) {
        for pid in of {
            if let Some(process) = self.table.processes.get_mut(pid) {
                process.stale = true;
            }
        }
        for round in self.search.rounds.values_mut() {
            round.threads_next = Moment::default();
        }
        self.find_children_from(of.to_vec(), listener);
    }

    /// Removes a thread that has ended.
    pub fn end_thread(&mut self, id: ThreadId, listener: &mut dyn ThreadListener) {
        let told = self.table.was_reported(id);
        if let Some(thread) = self.table.remove_thread(id) {
            listener.thread_ended(id, &thread, told);
        }
    }

    /// Removes a process that has ended, and all its threads.
    pub(super) fn end_process(&mut self, pid: Pid, listener: &mut dyn ThreadListener) {
        for id in self.table.threads_of(pid) {
            self.end_thread(id, listener);
        }
        self.table.processes.remove(&pid);
        listener.process_ended(pid);
    }
}

/// Returns the number of links of a folder.
#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn links(path: &Path) -> Result<u64, Errno> {
    rustix::fs::stat(path).map(|stat| u64::from(stat.st_nlink))
}
