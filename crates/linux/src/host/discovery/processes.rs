//! Search for processes: those that the roots name, members of control groups, and the children of
//! processes under watch.

use super::listener::{ProcessOrigin, ThreadListener};
use super::members::group_members;
use super::pace::Owner;
use super::roots::{Root, RootId, is_of};
use super::thread_table::Process;
use super::vcpu_threads::Only;
use super::{Discovery, LiveError};
use crate::host::procfs;
use crate::process::{self, Pid, Stat};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::ProgramInfo;

/// Maximal number of lists of children that are read for one process.
pub(super) const LISTS_MAX: usize = 4_096;

impl Discovery {
    /// Adds the processes that a root names.
    pub(super) fn take_root(
        &mut self,
        id: RootId,
        listener: &mut dyn ThreadListener,
    ) -> Result<(), LiveError> {
        let Some(watched) = self.table.roots.get(&id) else { return Ok(()) };
        let (root, program) = (watched.root.clone(), watched.program);
        let (pid, name) = match root {
            Root::Tree(pid) | Root::Thread(pid, _) => {
                let stat = match process::stat(self.proc.path(), pid) {
                    Err(_) if self.options.hands_off && self.table.roots.len() > 1 => {
                        // Ended since it was chosen: one of several roots that are only watched.
                        if let Some(watched) = self.table.roots.get_mut(&id) {
                            watched.ended = true;
                        }
                        return Ok(());
                    }
                    stat => stat?,
                };
                if self.table.processes.get(&pid).is_some_and(|known| known.start != stat.start) {
                    self.end_process(pid, listener);
                }
                if self.table.add_process(pid, stat.start, program) {
                    listener.process_found(&self.table, pid, ProcessOrigin::Root);
                }
                self.cover(pid, id, listener);
                (pid.0, stat.comm)
            }
            Root::Vm(vm) => {
                if self.table.add_process(vm.pid, vm.start, program) {
                    if let Some(process) = self.table.processes.get_mut(&vm.pid) {
                        process.only = Some(Only::of(&vm.vcpus));
                    }
                    listener.process_found(&self.table, vm.pid, ProcessOrigin::VirtualMachine);
                }
                self.cover(vm.pid, id, listener);
                (vm.pid.0, text::printable(vm.name.as_bytes()))
            }
            Root::Cgroup(path) => {
                let members = group_members(&path)
                    .map_err(|source| LiveError::NoGroup { path: path.clone(), source: source.into() })?;
                if members.is_empty() && !self.options.tags {
                    return Err(LiveError::EmptyGroup(path));
                }
                self.add_members(&members, id, listener);
                let name = path.file_name().unwrap_or(path.as_os_str());
                let first = self.table.processes.keys().next().map_or(0, |pid| pid.0);
                (first, text::printable(name.as_encoded_bytes()))
            }
        };
        listener.program_named(ProgramInfo { id: program, pid, name });
        Ok(())
    }

    /// Adds the members of the groups that are watched for a user. Each group is listed once,
    /// however many roots name it.
    pub(super) fn find_groups(&mut self, owner: Owner, listener: &mut dyn ThreadListener) {
        let mut groups: BTreeMap<PathBuf, Vec<RootId>> = BTreeMap::new();
        for (id, watched) in self.table.roots.iter().filter(|(_, watched)| watched.only == owner) {
            if let Root::Cgroup(path) = &watched.root {
                groups.entry(path.clone()).or_default().push(*id);
            }
        }
        for (path, ids) in groups {
            let members = group_members(&path).unwrap_or_default();
            for id in ids {
                self.add_members(&members, id, listener);
            }
        }
    }

    pub(super) fn add_members(
        &mut self,
        members: &BTreeSet<Pid>,
        id: RootId,
        listener: &mut dyn ThreadListener,
    ) {
        let root = self.table.roots.get(&id);
        let Some((program, only)) = root.map(|watched| (watched.program, watched.only)) else { return };
        for &pid in members {
            if Self::is_own(pid, listener) {
                continue;
            }
            if let Some(process) = self.table.processes.get(&pid) {
                if !process.covers.contains_key(&id) {
                    self.cover(pid, id, listener);
                }
                continue;
            }
            if self.is_full(only) {
                return;
            }
            if only.is_some_and(|uid| !is_of(self.proc.path(), pid, pid.main_thread(), uid)) {
                continue;
            }
            if let Ok(stat) = process::stat(self.proc.path(), pid)
                && !stat.kernel_thread
                && self.table.add_process(pid, stat.start, program)
            {
                listener.process_found(&self.table, pid, ProcessOrigin::Group);
                self.cover(pid, id, listener);
            }
        }
    }

    /// Marks this process as covered by a root, unless the root covers only another user's threads.
    pub(super) fn cover(&mut self, pid: Pid, id: RootId, listener: &mut dyn ThreadListener) {
        let Some(watched) = self.table.roots.get(&id) else { return };
        let thread = watched.thread();
        if watched.only.is_some_and(|uid| !is_of(self.proc.path(), pid, pid.main_thread(), uid)) {
            return;
        }
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        if process.covers.insert(id, thread) != Some(thread) {
            self.update_interest(pid, listener);
        }
    }

    /// Adds all descendants of the processes that are watched for a user.
    pub(super) fn find_children(&mut self, owner: Owner, listener: &mut dyn ThreadListener) {
        let of = |(_, process): &(&Pid, &Process)| self.owner(process) == owner;
        let whole = self.table.processes.iter().filter(|(_, process)| process.only.is_none());
        let from = whole.filter(of).map(|(pid, _)| *pid).collect();
        self.find_children_from(from, listener);
    }

    /// Adds all descendants of these processes.
    pub(super) fn find_children_from(&mut self, mut from: Vec<Pid>, listener: &mut dyn ThreadListener) {
        while let Some(pid) = from.pop().filter(|_| !self.search.no_lists) {
            let whole = self.table.processes.get(&pid).filter(|process| process.only.is_none());
            let Some(program) = whole.map(|process| process.program) else { continue };
            for child in self.children_of(pid) {
                if self.adopt(child, pid, program, listener) {
                    from.push(child);
                }
            }
        }
        if self.search.no_lists {
            self.find_children_by_parents(listener);
        }
    }

    /// Returns the children of a process from its threads' lists.
    fn children_of(&mut self, pid: Pid) -> Vec<Pid> {
        let threads = process::threads(self.proc.path(), pid).unwrap_or_default();
        let mut children = Vec::new();
        let mut buffer = vec![0; 4 << 10];
        for tid in threads.into_iter().take(LISTS_MAX) {
            let Ok(file) = procfs::open(self.proc.folder(), &format!("{pid}/task/{tid}/children")) else {
                // If the thread exists without the file, the kernel has no lists of children.
                let there = process::thread_stat(self.proc.path(), pid, tid).is_ok();
                self.search.no_lists |= there;
                continue;
            };
            if text::read_into(&file, &mut buffer).is_ok() {
                children.extend(text::words(&buffer).filter_map(text::number).map(Pid));
            }
        }
        children
    }

    /// Finds children on a kernel without such lists: every process of the machine names its
    /// parent.
    fn find_children_by_parents(&mut self, listener: &mut dyn ThreadListener) {
        let Ok(entries) = std::fs::read_dir(self.proc.path()) else { return };
        let parents: BTreeMap<Pid, Pid> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
            .filter_map(|pid| Some((pid, process::stat(self.proc.path(), pid).ok()?.parent)))
            .collect();
        loop {
            let before = self.table.processes.len();
            for (&pid, &parent) in &parents {
                let of = self.table.processes.get(&parent).filter(|process| process.only.is_none());
                if let Some(program) = of.map(|process| process.program) {
                    self.adopt(pid, parent, program, listener);
                }
            }
            if self.table.processes.len() == before {
                return;
            }
        }
    }

    /// Returns whether a process is part of this program.
    pub(super) fn is_own(pid: Pid, listener: &dyn ThreadListener) -> bool {
        pid == Pid::own() || listener.is_own(pid)
    }

    /// Takes a child in; returns whether it is new.
    fn adopt(
        &mut self,
        child: Pid,
        parent: Pid,
        program: ProgramId,
        listener: &mut dyn ThreadListener,
    ) -> bool {
        if Self::is_own(child, listener) || self.table.processes.contains_key(&child) {
            return false;
        }
        let Some(of) = self.table.processes.get(&parent) else { return false };
        let owner = self.owner(of);
        let whole = !self.options.tags || of.covers.values().any(Option::is_none);
        // If no root covers the process as a whole, only the children that the listener wants are
        // added.
        if !(whole || listener.wants_child(child, parent)) || self.is_full(owner) {
            return false;
        }
        match process::stat(self.proc.path(), child) {
            Ok(Stat { parent: seen, kernel_thread: false, start, .. }) if seen == parent => {
                // A root that covers one thread of the parent does not cover its children.
                let all: Vec<RootId> =
                    of.covers.iter().filter(|(_, thread)| thread.is_none()).map(|(id, _)| *id).collect();
                let new = self.table.add_process(child, start, program);
                listener.process_found(&self.table, child, ProcessOrigin::ChildOf(parent));
                for id in all {
                    self.cover(child, id, listener);
                }
                new
            }
            _ => false,
        }
    }
}
