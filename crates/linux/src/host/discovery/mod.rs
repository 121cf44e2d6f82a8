//! Finding processes and threads as they appear.
//!
//! Problem: threads are born at any moment, and listing everything at every look costs more than all else. Idea: ask three
//! cheap questions first. Was any task made on this machine since the last look (`loadavg` ends with the number of the
//! newest)? Has the number of a process's threads changed (its folder has a link for each)? And lists of children, which take a
//! file for each thread, are read only as often as a fixed share of one CPU allows.
//!
//! Properties: work per look is bounded, whatever the program does: so many new threads are taken in, the others by the next
//! look; the time spent on lists of children and members is a fixed share of a CPU, for each user ([`pace`](pace)); what was found
//! stays found, also when its parent ends. Known gaps: a process that is born and whose parent ends
//! between two looks is not seen to belong to us, and neither are children of a thread beyond the first [`LISTS_MAX`] of its process.

pub(in crate::host) mod members;
mod pace;
pub(in crate::host) mod roots;
pub(in crate::host) mod tags;
pub(in crate::host) mod thread_table;
mod upkeep;
pub(in crate::host) mod vcpu_threads;

use crate::host::affinity::home::Home;
use crate::host::clock::Clock;
use crate::host::counter_reader::Counted;
use crate::host::discovery::members::group_members;
use crate::host::discovery::pace::{LIST_SHARE, Round, Whose};
use crate::host::discovery::roots::{RootId, is_of};
use crate::host::discovery::thread_table::{Process, Thread};
use crate::host::discovery::vcpu_threads::Only;
use crate::host::error::LiveError;
use crate::host::procfs;
use crate::host::sampler::counters::{self, Files};
use crate::host::{Keeper, Live, Root};
use crate::process::{self, Pid, Stat, State, Tid};
use crate::text::{self, ReadError};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::{Left, Notice, ProgramInfo, Sample};
use trimtab_core::time::{Moment, Span};

/// So many new threads are taken in at one look; each costs some 15 us. Chosen.
const NEW_MAX: usize = 2_048;
/// So many are watched at once; more are only counted. Chosen: twice the largest machine's.
const WATCHED_MAX: usize = 32_768;
/// The children of so many threads of a process are looked for.
const LISTS_MAX: usize = 4_096;
/// Everything is listed anew so often, whatever the cheap questions say.
const FULL: Span = Span::from_ms(5_000);
/// When what was looked for last.
#[derive(Debug, Default)]
pub(in crate::host) struct Finder {
    newest: Option<u32>,
    loadavg: Option<OwnedFd>,
    /// Where roots are tags, each user's threads have rounds of their own.
    pub(in crate::host) rounds: BTreeMap<Whose, Round>,
    /// Processes that are meant since the last look.
    pub(in crate::host) fresh: Vec<(Whose, Pid)>,
    full_at: Option<Moment>,
    /// Threads that were listed and not taken in.
    untaken: u32,
    /// The kernel has no lists of children.
    no_lists: bool,
}

impl Finder {
    /// Whether everything was listed anew at this moment.
    pub(in crate::host) fn is_full_at(&self, now: Moment) -> bool {
        self.full_at == Some(now)
    }
}

impl Live {
    /// Takes in all that there is now, before the first look.
    pub(in crate::host) fn find_first(&mut self) -> Result<(), LiveError> {
        for id in self.roots.keys().copied().collect::<Vec<_>>() {
            self.take_root(id)?;
        }
        self.find_children(None);
        Ok(())
    }

    /// Takes in what a root names.
    pub(in crate::host) fn take_root(&mut self, id: RootId) -> Result<(), LiveError> {
        let Some(watched) = self.roots.get(&id) else { return Ok(()) };
        let (root, program) = (watched.root.clone(), watched.program);
        let (pid, name) = match root {
            Root::Tree(pid) | Root::Thread(pid, _) => {
                let stat = match process::stat(&self.proc, pid) {
                    Err(_) if self.options.hands_off && self.roots.len() > 1 => {
                        // Gone since it was chosen: one of several that are only watched.
                        if let Some(watched) = self.roots.get_mut(&id) {
                            watched.ended = true;
                        }
                        return Ok(());
                    }
                    stat => stat?,
                };
                if self.table.processes.get(&pid).is_some_and(|known| known.start != stat.start) {
                    let mut sample = std::mem::take(&mut self.later);
                    self.end_process(pid, &mut sample);
                    self.later = sample;
                }
                if self.table.add_process(pid, stat.start, program) {
                    self.place_first(pid);
                }
                self.cover(pid, id);
                (pid.0, stat.comm)
            }
            Root::Vm(vm) => {
                if self.table.add_process(vm.pid, vm.start, program)
                    && let Some(process) = self.table.processes.get_mut(&vm.pid)
                {
                    process.only = Some(Only::of(&vm.vcpus));
                }
                self.cover(vm.pid, id);
                (vm.pid.0, text::printable(vm.name.as_bytes()))
            }
            Root::Cgroup(path) => {
                let members = group_members(&path)
                    .map_err(|source| LiveError::NoGroup { path: path.clone(), source: source.into() })?;
                if members.is_empty() && !self.options.tags {
                    return Err(LiveError::EmptyGroup(path));
                }
                self.add_members(&members, id);
                let name = path.file_name().unwrap_or(path.as_os_str());
                let first = self.table.processes.keys().next().map_or(0, |pid| pid.0);
                (first, text::printable(name.as_encoded_bytes()))
            }
        };
        self.new_programs.push(ProgramInfo { id: program, pid, name });
        Ok(())
    }

    /// In which group a process that was just taken in is.
    fn place_first(&mut self, pid: Pid) {
        if self.options.tags
            && let Some(group) = self.bounds.group_of(pid)
            && let Some(process) = self.table.processes.get_mut(&pid)
        {
            process.group = group;
        }
    }

    /// A root means this process, unless it means only another user's.
    pub(in crate::host) fn cover(&mut self, pid: Pid, id: RootId) {
        let Some(watched) = self.roots.get(&id) else { return };
        let thread = watched.thread();
        if watched.only.is_some_and(|uid| !is_of(&self.proc, pid, pid.main_thread(), uid)) {
            return;
        }
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        if process.covers.insert(id, thread) != Some(thread) {
            self.wish_anew(pid);
        }
    }

    /// Looks for what is new and what has ended, and tells the sample.
    pub(in crate::host) fn find(&mut self, now: Moment, sample: &mut Sample) {
        sample.programs.append(&mut self.new_programs);
        self.hear_of_vcpus();
        let mut buffer = [0; 128];
        if self.finder.loadavg.is_none() {
            self.finder.loadavg = procfs::open(&self.folder, "loadavg").ok();
        }
        let file = self.finder.loadavg.as_ref();
        let newest = file.and_then(|file| procfs::read_start(file, &mut buffer).ok());
        let newest = newest.and_then(counters::last_made);
        let full = self.finder.full_at.is_none_or(|at| now.since(at) >= FULL);
        let made = newest.is_none() || newest != self.finder.newest || full;
        self.finder.newest = newest;
        if full {
            self.finder.full_at = Some(now);
        }
        self.find_processes(now, made);
        if made || self.finder.untaken > 0 || self.table.processes.values().any(|process| process.stale) {
            self.find_threads(now, full, sample);
        }
        let beyond = self.table.processes.values().map(|process| process.beyond);
        let untaken = beyond.fold(self.finder.untaken, u32::saturating_add);
        if untaken > 0 {
            sample.notices.push(Notice::Unread(untaken));
        }
        if full {
            self.refresh(sample);
            self.table.forget_given(now, self.finder.searched());
        }
    }

    /// The children of all that is watched for somebody, theirs, and so on.
    pub(in crate::host) fn find_children(&mut self, whose: Whose) {
        let of = |(_, process): &(&Pid, &Process)| self.whose(process) == whose;
        let from = self.with_children().filter(of).map(|(pid, _)| *pid).collect();
        self.find_children_from(from);
    }

    /// The children of these, theirs, and so on.
    pub(in crate::host) fn find_children_from(&mut self, mut from: Vec<Pid>) {
        while let Some(pid) = from.pop().filter(|_| !self.finder.no_lists) {
            let whole = self.table.processes.get(&pid).filter(|process| process.only.is_none());
            let Some(program) = whole.map(|process| process.program) else { continue };
            for child in self.children_of(pid) {
                if self.adopt(child, pid, program) {
                    from.push(child);
                }
            }
        }
        if self.finder.no_lists {
            self.find_children_by_parents();
        }
    }

    /// The processes whose children belong to them: those that are watched as a whole.
    fn with_children(&self) -> impl Iterator<Item = (&Pid, &Process)> {
        self.table.processes.iter().filter(|(_, process)| process.only.is_none())
    }

    /// The children of a process by its threads' lists.
    fn children_of(&mut self, pid: Pid) -> Vec<Pid> {
        let threads = process::threads(&self.proc, pid).unwrap_or_default();
        let mut children = Vec::new();
        let mut buffer = vec![0; 4 << 10];
        for tid in threads.into_iter().take(LISTS_MAX) {
            let Ok(file) = procfs::open(&self.folder, &format!("{pid}/task/{tid}/children")) else {
                // Without the file although the thread is there, the kernel has none.
                let there = process::thread_stat(&self.proc, pid, tid).is_ok();
                self.finder.no_lists |= there;
                continue;
            };
            if text::read_into(&file, &mut buffer).is_ok() {
                children.extend(text::words(&buffer).filter_map(text::number).map(Pid));
            }
        }
        children
    }

    fn find_children_by_parents(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.proc) else { return };
        let parents: BTreeMap<Pid, Pid> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
            .filter_map(|pid| Some((pid, process::stat(&self.proc, pid).ok()?.parent)))
            .collect();
        loop {
            let before = self.table.processes.len();
            for (&pid, &parent) in &parents {
                let of = self.table.processes.get(&parent).filter(|process| process.only.is_none());
                if let Some(program) = of.map(|process| process.program) {
                    self.adopt(pid, parent, program);
                }
            }
            if self.table.processes.len() == before {
                return;
            }
        }
    }

    /// Whether a process is this one or its guardian.
    pub(in crate::host) fn is_own(&self, pid: Pid) -> bool {
        pid == Pid::own() || self.options.keep.as_ref().and_then(Keeper::guardian) == Some(pid)
    }

    /// Takes a child in; whether it is new.
    fn adopt(&mut self, child: Pid, parent: Pid, program: ProgramId) -> bool {
        if self.is_own(child) || self.table.processes.contains_key(&child) {
            return false;
        }
        let whose = self.table.processes.get(&parent).and_then(|parent| self.whose(parent));
        if !self.is_of_interest(child, parent) || self.is_full(whose) {
            return false;
        }
        match process::stat(&self.proc, child) {
            Ok(Stat { parent: seen, kernel_thread: false, start, .. }) if seen == parent => {
                let given =
                    self.table.processes.get(&parent).map(|parent| parent.given.clone()).unwrap_or_default();
                let group = self.table.group(parent);
                let covers = self.table.processes.get(&parent).map(|parent| parent.covers.clone());
                let new = self.table.add_process(child, start, program);
                if let Some(process) = self.table.processes.get_mut(&child) {
                    (process.given, process.group) = (given, group);
                }
                // Who means one thread of the parent does not mean its children.
                let all = covers.unwrap_or_default().into_iter().filter(|(_, thread)| thread.is_none());
                for (id, _) in all {
                    self.cover(child, id);
                }
                new
            }
            _ => false,
        }
    }

    /// Whether a child is to be watched: of a process that is not meant as a whole, only those that were born with a mask of ours.
    fn is_of_interest(&self, child: Pid, parent: Pid) -> bool {
        let Some(parent) = self.table.processes.get(&parent) else { return false };
        let meant = !self.options.tags || parent.covers.values().any(Option::is_none);
        let ours = || {
            let mask = self.mask(child, child.main_thread());
            mask.is_ok_and(|mask| parent.given.homes(&mask).is_some())
        };
        meant || (!parent.given.is_empty() && ours())
    }

    /// Lists the threads of processes whose number of threads changed.
    fn find_threads(&mut self, now: Moment, full: bool, sample: &mut Sample) {
        let pids: Vec<Pid> = self.table.processes.keys().copied().collect();
        let mut room = NEW_MAX;
        let mut theirs: BTreeMap<Whose, (usize, Span)> = BTreeMap::new();
        self.finder.untaken = 0;
        for pid in pids {
            let path = self.proc.join(format!("{pid}/task"));
            let links = links(&path);
            let Some(process) = self.table.processes.get(&pid) else { continue };
            match links {
                Ok(links) if process.links == Some(links) && !process.stale && !full => continue,
                Ok(links) => {
                    let whose = self.whose(process);
                    let round = self.finder.rounds.get(&whose).filter(|_| whose.is_some());
                    if round.is_some_and(|round| now < round.threads_next) {
                        continue;
                    }
                    let begin = Clock::worked();
                    let (mut left, spent) =
                        theirs.get(&whose).copied().unwrap_or_else(|| (self.left(whose), Span::ZERO));
                    self.list_threads(pid, links, (&mut room, &mut left), sample);
                    theirs.insert(whose, (left, spent + Clock::worked().less(begin)));
                }
                Err(Errno::NOENT | Errno::SRCH) => self.end_process(pid, sample),
                Err(_) => self.finder.untaken += 1,
            }
        }
        for (whose, (_, cost)) in theirs {
            if let Some(round) = self.finder.rounds.get_mut(&whose) {
                round.threads_next = now + Span(cost.0.saturating_mul(LIST_SHARE));
            }
        }
    }

    /// Lists a process's threads, and takes in as many new ones as there is room at this look, and for whose they are.
    pub(in crate::host) fn list_threads(
        &mut self,
        pid: Pid,
        links: u64,
        (room, theirs): (&mut usize, &mut usize),
        sample: &mut Sample,
    ) {
        let listed = match process::threads(&self.proc, pid) {
            Ok(listed) => listed,
            Err(error) if is_gone(&error) => return self.end_process(pid, sample),
            Err(_) => {
                self.finder.untaken += 1;
                return;
            }
        };
        // Another process with its number, or one that has ended and is still listed?
        let stat = process::stat(&self.proc, pid);
        let Some(process) = self.table.processes.get(&pid) else { return };
        match stat {
            Ok(stat) if stat.start != process.start => return self.end_process(pid, sample),
            Ok(stat) if stat.state == State::Zombie && stat.threads <= 1 => {
                return self.end_process(pid, sample);
            }
            Ok(stat) => {
                let headless = stat.state == State::Zombie;
                if let Some(process) = self.table.processes.get_mut(&pid) {
                    process.headless = headless;
                }
            }
            Err(error) if is_gone(&error) => return self.end_process(pid, sample),
            Err(_) => {
                self.finder.untaken += 1;
                return;
            }
        }
        let listed = self.select(pid, listed);
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        let leader = process.headless.then(|| pid.main_thread());
        let listed: BTreeSet<Tid> = listed.into_iter().filter(|tid| Some(*tid) != leader).collect();
        let ended: Vec<_> =
            process.threads.iter().filter(|(tid, _)| !listed.contains(tid)).map(|(_, id)| *id).collect();
        let new: Vec<Tid> = listed.into_iter().filter(|tid| !process.threads.contains_key(tid)).collect();
        process.links = Some(links);
        process.stale = false;
        for id in ended {
            self.end_thread(id, sample);
        }
        let (mut left_over, mut beyond) = (0, 0);
        for tid in new {
            if *theirs == 0 {
                beyond += 1;
            } else if *room == 0 || self.table.threads.len() >= WATCHED_MAX {
                left_over += 1;
            } else if self.take_in(pid, tid, sample) {
                (*room, *theirs) = (*room - 1, *theirs - 1);
            }
        }
        self.finder.untaken += left_over;
        if let Some(process) = self.table.processes.get_mut(&pid) {
            process.stale = left_over > 0;
            // For these there is no room before others end: they are not listed over and over for that.
            process.beyond = beyond;
        }
    }

    /// Takes a thread in; false when it has ended already.
    fn take_in(&mut self, pid: Pid, tid: Tid, sample: &mut Sample) -> bool {
        let Ok(stat) = process::thread_stat(&self.proc, pid, tid) else { return false };
        let Ok(mask) = self.mask(pid, tid) else { return false };
        if self.table.processes.get(&pid).is_some_and(|process| process.threads.is_empty()) {
            self.place(pid, sample);
        }
        let Some(process) = self.table.processes.get_mut(&pid) else { return false };
        let name = match &process.only {
            None => stat.comm,
            Some(only) => match only.name(tid, stat.start) {
                Some(name) => name.to_owned(),
                // Another thread has the number of one that was a virtual CPU.
                None => return false,
            },
        };
        // CPUs of machines have groups of their own, whole processes have one.
        let alone = process.only.is_some() || process.covers.values().any(|only| *only == Some(tid));
        if process.threads.is_empty() && process.balancer.is_none() && process.record.is_none() {
            process.balancer = self.options.keep.as_ref().and_then(|keep| keep.balancer(pid, process.start));
        }
        let left = match process.balancer {
            _ if stat.fixed || stat.kernel_thread => Some(Left::Refused),
            Some(balancer) => Some(Left::Balancer(balancer)),
            None => self.options.hands_off.then_some(Left::Asked),
        };
        let program = process.program;
        let wish = process.wish(tid, self.options.tags);
        // Born of a thread that we moved, it has our mask for its own.
        let inherited = self.table.inherited(pid, &mask).filter(|_| left.is_none());
        let group = self.table.group(pid);
        let (home, held) = match inherited.clone() {
            // At once: policies know nothing of it, and would take it for a thread that may run anywhere.
            Some(own) if own.give(tid, || self.bounds.granted(group)).is_ok() => (own, None),
            Some(own) => (own, Some(mask.clone())),
            None => (Home::own(mask.clone()), None),
        };
        let id = self.table.add_thread(Thread {
            program,
            wish,
            pid,
            tid,
            start: stat.start,
            name,
            moved: held.is_some(),
            home,
            held: held.clone(),
            left,
            files: Files::default(),
            last: None,
            counted: Counted::default(),
            voluntary: None,
            still: 0,
            ready: None,
            cpu: None,
            placed: false,
            compared: false,
            group: None,
        });
        if alone {
            self.place_vcpu(id, sample);
        }
        if inherited.is_none() {
            // Now that it is known which bounds it lives in.
            let home = self.home_seen(id, mask);
            if let Some(thread) = self.table.threads.get_mut(&id) {
                thread.home = home;
            }
        }
        if let Some(held) = held
            && self.claim(pid).is_ok()
        {
            self.note(id, &held);
        }
        self.tell(id, sample);
        true
    }

    /// Looks for all that is new at the next look, whatever that costs.
    pub(in crate::host) fn find_all_next(&mut self) {
        self.finder = Finder { no_lists: self.finder.no_lists, ..Finder::default() };
    }

    /// Looks for what was born of these, now, whatever that costs.
    pub(in crate::host) fn find_born(&mut self, of: &[Pid]) {
        for pid in of {
            if let Some(process) = self.table.processes.get_mut(pid) {
                process.stale = true;
            }
        }
        for round in self.finder.rounds.values_mut() {
            round.threads_next = Moment::default();
        }
        self.find_children_from(of.to_vec());
        let mut sample = std::mem::take(&mut self.later);
        self.find(self.clock.now(), &mut sample);
        self.later = sample;
    }
}

/// How many links a folder has.
#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn links(path: &Path) -> Result<u64, Errno> {
    rustix::fs::stat(path).map(|stat| u64::from(stat.st_nlink))
}

/// Whether a process or thread is gone.
pub(in crate::host) fn is_gone(error: &ReadError) -> bool {
    error.is_gone()
}
