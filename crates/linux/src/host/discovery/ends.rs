//! Ends of roots: which have ended, and the descriptors that wake a host at an end.

use super::Discovery;
use super::members::group_members;
use super::roots::{Root, RootId, Watched};
use crate::process::{self, Pid, State};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use trimtab_core::time::{Moment, Span};

/// Time between two checks for the end of tags without a signal of the kernel. Chosen.
const TAG_CHECK_PERIOD: Span = Span::from_ms(500);

impl Discovery {
    /// Checks which roots have ended; returns whether all have, and no others can come.
    pub fn is_over(&mut self, now: Moment) -> bool {
        // There may be thousands of tags without a signal of the kernel at their end.
        let looks = !self.options.tags || self.blind_at.is_none_or(|at| now.since(at) >= TAG_CHECK_PERIOD);
        if looks {
            self.blind_at = Some(now);
        }
        let ended: Vec<(RootId, bool)> =
            self.table.roots.iter().map(|(id, root)| (*id, self.has_ended(*id, root, looks))).collect();
        for (id, ended) in ended {
            if let Some(root) = self.table.roots.get_mut(&id) {
                root.ended = ended;
            }
        }
        !self.options.tags && self.table.roots.values().all(|root| root.ended)
    }

    /// Returns whether a root has ended. For a root without a descriptor of its process, this is
    /// checked only if `looks`.
    fn has_ended(&self, id: RootId, root: &Watched, looks: bool) -> bool {
        let mut ended = root.ended;
        let pid = match &root.root {
            Root::Tree(pid) => *pid,
            Root::Thread(pid, tid) => {
                ended |= self.table.has_ended(*pid, *tid);
                *pid
            }
            Root::Vm(vm) => vm.pid,
            // As long as one of its known members lives, the group need not be listed.
            Root::Cgroup(_) if self.table.member_of(id).is_some_and(|pid| lives(self.proc.path(), pid)) => {
                return false;
            }
            // A group that was removed has no members either.
            Root::Cgroup(path) => {
                // An empty group may be filled again, which a service waits for.
                let empty = !self.options.tags && group_members(path).is_ok_and(|members| members.is_empty());
                return empty || !path.exists();
            }
        };
        if !ended && root.ends.is_none() && looks {
            // A later process with the same number is recognised by the table, not here; the table
            // then has no threads.
            ended = match process::stat(self.proc.path(), pid) {
                Ok(stat) => stat.state == State::Zombie && stat.threads <= 1,
                Err(error) => error.is_gone(),
            };
        }
        ended
    }

    /// Returns the living roots that wake a poll at their end, each with its descriptor.
    pub fn ends(&self) -> Vec<(RootId, BorrowedFd<'_>)> {
        let living = self.table.roots.iter().filter(|(_, root)| !root.ended);
        living.filter_map(|(id, root)| Some((*id, root.ends.as_ref()?.as_fd()))).collect()
    }

    /// Returns whether a living root wakes no poll at its end, so that the end must be
    /// polled for.
    pub fn is_blind(&self) -> bool {
        let unseen = |root: &Watched| !root.ended && root.ends.is_none();
        !self.options.tags && self.table.roots.values().any(unseen)
    }

    /// Marks a root as ended because its descriptor reported the end of its process.
    pub fn root_ended(&mut self, id: RootId) {
        if let Some(root) = self.table.roots.get_mut(&id) {
            root.ended = true;
        }
    }
}

/// Returns whether a process lives, as far as can be seen.
fn lives(proc: &Path, pid: Pid) -> bool {
    process::stat(proc, pid).is_ok_and(|stat| stat.state != State::Zombie)
}
