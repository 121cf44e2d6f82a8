//! Finding processes and threads as they appear.
//!
//! Problem: threads are born at any moment, and listing everything at every look costs more than all else. Idea: ask three
//! cheap questions first. Was any task made on this machine since the last look (`loadavg` ends with the number of the
//! newest)? Has the number of a process's threads changed (its folder has a link for each)? And lists of children, which take a
//! file for each thread, are read only as often as a fixed share of one CPU allows.
//!
//! Properties: work per look is bounded, whatever the program does: so many new threads are taken in, the others by the next
//! look; the time spent on lists of children is at most one part in [`SHARE`] of a CPU; what was found stays found, also when its
//! parent ends. Known gap: a process that is born and whose parent ends between two looks is not seen to belong to us.

use super::clock::Clock;
use super::counters::{self, Files};
use super::counting::Counted;
use super::error::LiveError;
use super::guests::Only;
use super::roots::{RootId, is_of};
use super::threads::{Process, Thread};
use super::{Live, Root, files};
use crate::process::{self, Pid, Stat, State, Tid};
use crate::sys::affinity;
use crate::text::{self, ReadError};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::{Left, Notice, ProgramInfo, Sample};
use trimtab_core::time::{Moment, Span};

/// So many new threads are taken in at one look; each costs some 15 us. Chosen.
const NEW_MAX: usize = 2_048;
/// So many are watched at once; more are only counted. Chosen: twice the largest machine's.
const WATCHED_MAX: usize = 32_768;
/// Looking for children takes at most one part in this many of a CPU.
const SHARE: u64 = 1_000;
/// Everything is listed anew so often, whatever the cheap questions say.
const FULL: Span = Span::from_ms(5_000);
/// Groups below a group deeper than this are not looked for.
const DEPTH_MAX: usize = 32;

/// When what was looked for last.
#[derive(Debug, Default)]
pub(super) struct Finder {
    newest: Option<u32>,
    loadavg: Option<OwnedFd>,
    children_at: Option<Moment>,
    /// No earlier than this.
    children_next: Moment,
    full_at: Option<Moment>,
    /// Threads that were listed and not taken in.
    untaken: u32,
    /// The kernel has no lists of children.
    no_lists: bool,
}

impl Finder {
    /// Whether everything was listed anew at this moment.
    pub(super) fn is_full_at(&self, now: Moment) -> bool {
        self.full_at == Some(now)
    }
}

impl Live {
    /// Takes in all that there is now, before the first look.
    pub(super) fn find_first(&mut self) -> Result<(), LiveError> {
        for id in self.roots.keys().copied().collect::<Vec<_>>() {
            self.take_root(id)?;
        }
        self.find_children();
        Ok(())
    }

    /// Takes in what a root names.
    pub(super) fn take_root(&mut self, id: RootId) -> Result<(), LiveError> {
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
                let members = group_members(&path, 0)
                    .map_err(|source| LiveError::NoGroup { path: path.clone(), source: source.into() })?;
                if members.is_empty() && !self.options.tags {
                    return Err(LiveError::EmptyGroup(path));
                }
                self.add_members(members, id);
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
    fn cover(&mut self, pid: Pid, id: RootId) {
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
    pub(super) fn find(&mut self, now: Moment, sample: &mut Sample) {
        sample.programs.append(&mut self.new_programs);
        self.hear_of_vcpus();
        let mut buffer = [0; 128];
        if self.finder.loadavg.is_none() {
            self.finder.loadavg = files::open(&self.folder, "loadavg").ok();
        }
        let file = self.finder.loadavg.as_ref();
        let newest = file.and_then(|file| files::read_start(file, &mut buffer).ok());
        let newest = newest.and_then(counters::last_made);
        let full = self.finder.full_at.is_none_or(|at| now.since(at) >= FULL);
        let made = newest.is_none() || newest != self.finder.newest || full;
        self.finder.newest = newest;
        if full {
            self.finder.full_at = Some(now);
        }
        let due = now >= self.finder.children_next
            && self.finder.children_at.is_none_or(|at| now.since(at) >= self.options.find_every);
        if (made || self.finder.children_at.is_none()) && due {
            let begin = Clock::worked();
            self.find_groups();
            self.find_children();
            let cost = Clock::worked().less(begin);
            self.finder.children_at = Some(now);
            self.finder.children_next = now + Span(cost.0.saturating_mul(SHARE));
        } else if !made && due {
            // Processes can be moved into a group without being made.
            self.find_groups();
            self.finder.children_at = Some(now);
        } else if made {
            // Not now, but what was made must not be forgotten.
            self.finder.newest = None;
        }
        if made || self.finder.untaken > 0 || self.table.processes.values().any(|process| process.stale) {
            self.find_threads(full, sample);
        }
        if self.finder.untaken > 0 {
            sample.notices.push(Notice::Unread(self.finder.untaken));
        }
        if full {
            self.refresh(sample);
            self.table.forget_given(now, self.finder.children_at);
        }
    }

    fn find_groups(&mut self) {
        let groups: Vec<(RootId, PathBuf)> = self
            .roots
            .iter()
            .filter_map(|(id, watched)| match &watched.root {
                Root::Cgroup(path) => Some((*id, path.clone())),
                _ => None,
            })
            .collect();
        for (id, path) in groups {
            self.add_members(group_members(&path, 0).unwrap_or_default(), id);
        }
    }

    fn add_members(&mut self, members: BTreeSet<Pid>, id: RootId) {
        let Some((program, only)) = self.roots.get(&id).map(|watched| (watched.program, watched.only)) else {
            return;
        };
        for pid in members {
            if pid == Pid::own() {
                continue;
            }
            if let Some(process) = self.table.processes.get(&pid) {
                if !process.covers.contains_key(&id) {
                    self.cover(pid, id);
                }
                continue;
            }
            if only.is_some_and(|uid| !is_of(&self.proc, pid, pid.main_thread(), uid)) {
                continue;
            }
            if let Ok(stat) = process::stat(&self.proc, pid)
                && !stat.kernel_thread
                && self.table.add_process(pid, stat.start, program)
            {
                if let Some(group) = self.bounds.group_of(pid)
                    && let Some(process) = self.table.processes.get_mut(&pid)
                {
                    process.group = group;
                }
                self.cover(pid, id);
            }
        }
    }

    /// The children of all that is watched, theirs, and so on.
    fn find_children(&mut self) {
        if !self.finder.no_lists {
            let mut from: Vec<(Pid, ProgramId)> =
                self.with_children().map(|(pid, process)| (*pid, process.program)).collect();
            while let Some((pid, program)) = from.pop() {
                for child in self.children_of(pid) {
                    if self.adopt(child, pid, program) {
                        from.push((child, program));
                    }
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
        for tid in threads {
            let Ok(file) = files::open(&self.folder, &format!("{pid}/task/{tid}/children")) else {
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

    /// Takes a child in; whether it is new.
    fn adopt(&mut self, child: Pid, parent: Pid, program: ProgramId) -> bool {
        if child == Pid::own() || self.table.processes.contains_key(&child) {
            return false;
        }
        if !self.is_of_interest(child, parent) {
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
    fn find_threads(&mut self, full: bool, sample: &mut Sample) {
        let pids: Vec<Pid> = self.table.processes.keys().copied().collect();
        let mut room = NEW_MAX;
        self.finder.untaken = 0;
        for pid in pids {
            let path = self.proc.join(format!("{pid}/task"));
            let links = links(&path);
            let Some(process) = self.table.processes.get(&pid) else { continue };
            match links {
                Ok(links) if process.links == Some(links) && !process.stale && !full => continue,
                Ok(links) => self.list_threads(pid, links, &mut room, sample),
                Err(Errno::NOENT | Errno::SRCH) => self.end_process(pid, sample),
                Err(_) => self.finder.untaken += 1,
            }
        }
    }

    fn list_threads(&mut self, pid: Pid, links: u64, room: &mut usize, sample: &mut Sample) {
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
        let mut left_over = 0;
        for tid in new {
            if *room == 0 || self.table.threads.len() >= WATCHED_MAX {
                left_over += 1;
            } else if self.take_in(pid, tid, sample) {
                *room -= 1;
            }
        }
        self.finder.untaken += left_over;
        if let Some(process) = self.table.processes.get_mut(&pid) {
            process.stale = left_over > 0;
        }
    }

    /// Takes a thread in; false when it has ended already.
    fn take_in(&mut self, pid: Pid, tid: Tid, sample: &mut Sample) -> bool {
        let Ok(stat) = process::thread_stat(&self.proc, pid, tid) else { return false };
        let Ok(home) = self.mask(pid, tid) else { return false };
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
        let inherited = self.table.inherited(pid, &home).filter(|_| left.is_none());
        let (home, held) = match inherited {
            // At once: policies know nothing of it, and would take it for a thread that may run anywhere.
            Some(own) if affinity::set(Some(tid), &own).is_ok() => (own, None),
            Some(own) => (own, Some(home)),
            None => (home, None),
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
            compared: false,
            group: None,
        });
        if alone {
            self.place_vcpu(id, sample);
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
    pub(super) fn find_all_next(&mut self) {
        self.finder = Finder { no_lists: self.finder.no_lists, ..Finder::default() };
    }
}

/// How many links a folder has.
#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn links(path: &Path) -> Result<u64, Errno> {
    rustix::fs::stat(path).map(|stat| u64::from(stat.st_nlink))
}

/// Whether a process or thread is gone.
pub(super) fn is_gone(error: &ReadError) -> bool {
    error.is_gone()
}

/// The processes of a group and of all below it.
pub(super) fn group_members(path: &Path, depth: usize) -> Result<BTreeSet<Pid>, Errno> {
    let mut members = BTreeSet::new();
    let file = |path: &Path| -> Result<Vec<u8>, Errno> {
        let name = path.join("cgroup.procs");
        let mut text = Vec::new();
        let file = files::open(rustix::fs::CWD, name.to_str().ok_or(Errno::ILSEQ)?)?;
        text::read_into(&file, &mut text)?;
        Ok(text)
    };
    match file(path) {
        Ok(text) => {
            members.extend(text::words(&text).filter_map(text::number).map(Pid).filter(|pid| pid.0 != 0))
        }
        // A threaded group: its processes are listed above it.
        Err(Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    if depth < DEPTH_MAX
        && let Ok(entries) = std::fs::read_dir(path)
    {
        let below: BTreeSet<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        for path in below {
            // One that vanishes meanwhile has nobody in it.
            members.extend(group_members(&path, depth + 1).unwrap_or_default());
        }
    }
    Ok(members)
}
