//! Holds as the kernel alone shows them: the locks of open descriptors, and the processes that have
//! these descriptors.
//!
//! The records beside the locks are a claim that any user can write. A privileged process that acts
//! on holds must not read them: it reads which descriptions lock which bytes. That takes the right
//! to read other users' descriptors (root).

use super::error::LedgerError;
use super::layout::HoldId;
use super::level::Level;
use super::listing::{Identity, Listing};
use super::map::LockTable;
use super::view::LedgerView;
use crate::sys::lock::{ByteLock, LockKind};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};
use trimtab_core::set::CpuSet;

/// A hold with facts of the kernel alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProvenHold {
    /// The number that its description locks.
    pub id: HoldId,
    /// The CPUs that its description locks exclusively.
    pub exclusive: CpuSet,
    /// The CPUs that its description shares.
    pub shared: CpuSet,
    /// The processes that have a descriptor of the description.
    pub lockers: Vec<u32>,
}

impl LedgerView {
    /// Returns the holds of a level. Reads the descriptors of all processes. A description with
    /// locks of CPUs and without the number of a hold is a launch in progress, or none of ours, and
    /// is left out.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`].
    pub fn proven(&self, level: Level, within: &CpuSet) -> Result<Vec<ProvenHold>, LedgerError> {
        let mut found: BTreeMap<(HoldId, Option<String>), ProvenHold> = BTreeMap::new();
        let entries = fs::read_dir(&self.place.proc_root).into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            for locks in self.locks_of(pid) {
                let Some(id) = HoldId::locked(&locks, self.place.tag) else { continue };
                let map = self.place.map(LockTable::Listed(&locks), level, within)?;
                if map.exclusive.is_empty() && map.shared.is_empty() {
                    continue;
                }
                // A number that is locked exclusively has one description; its CPUs may differ
                // between two readings because the hold is being resized. A number that is shared
                // may have several: those of a job's ranks have the same CPUs.
                let is_unique = locks
                    .iter()
                    .any(|lock| lock.kind == LockKind::Write && lock.bytes == id.byte(self.place.tag));
                let cpus = (!is_unique).then(|| format!("{} {}", map.exclusive, map.shared));
                let (exclusive, shared) = (map.exclusive, map.shared);
                let hold = found.entry((id, cpus)).or_insert_with(|| ProvenHold {
                    id,
                    exclusive: CpuSet::new(),
                    shared: CpuSet::new(),
                    lockers: Vec::new(),
                });
                (hold.exclusive, hold.shared) = (exclusive, shared);
                if hold.lockers.last() != Some(&pid) {
                    hold.lockers.push(pid);
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// Returns the locks of the ledger that a process has, by descriptor. Each descriptor is copied
    /// and looked at: a file of another device may have the same inode number, and a number of a
    /// descriptor may name another file a moment later.
    fn locks_of(&self, pid: u32) -> Vec<Vec<ByteLock>> {
        let proc_root = &self.place.proc_root;
        let numbers = Listing::descriptors_with(proc_root, pid, self.identity);
        if numbers.is_empty() {
            return Vec::new();
        }
        let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let Some(process) = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return Vec::new();
        };
        let copies = numbers.into_iter().filter_map(|number| {
            let copy = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
            (Identity::of(&rustix::fs::fstat(&copy).ok()?) == self.identity).then_some(copy)
        });
        let locks =
            copies.map(|copy| Listing::of_descriptor(proc_root, copy.as_raw_fd()).of_inode(self.identity));
        locks.filter(|locks| !locks.is_empty()).collect()
    }

    /// Returns whether the ledger's file and its folder are root's, and no other user can replace
    /// them.
    ///
    /// # Errors
    /// The file or the folder cannot be looked at.
    pub fn is_of_root(&self) -> io::Result<bool> {
        let path = self.path();
        let file = fs::symlink_metadata(&path)?;
        let folder = fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
        let replaceable = folder.mode() & 0o022 != 0 && folder.mode() & 0o1000 == 0;
        let present = file.ino() == self.identity.inode;
        Ok(present && file.uid() == 0 && folder.uid() == 0 && !replaceable)
    }

    /// Returns whether a hold with this number lives and all of these CPUs are locked exclusively,
    /// by any process. A program that closed the descriptors which it does not know still has the
    /// locks, by a mapping, and no descriptor shows them.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`], [`LedgerError::Io`].
    pub fn vouches(&self, number: u64, level: Level, cpus: &CpuSet) -> Result<bool, LedgerError> {
        let Some(id) = HoldId::new(number) else { return Ok(false) };
        Ok(!cpus.is_empty() && self.is_alive(id)? && cpus.is_subset(&self.map(level, cpus)?.exclusive))
    }
}
