//! Restore of the masks that a killed balancer could not give back.

use super::{Entries, Entry, Folder, JournalError, LOCKED_BYTES, Lines, contents, is_plain, namespace};
use crate::host::constraints::GroupLimits;
use crate::ledger::{LedgerView, Location};
use crate::process::{self, Pid, StartTime, Tid};
use crate::sys::affinity;
use crate::sys::lock::{LockKind, try_lock};
use crate::text;
use rustix::fs::{AtFlags, RawDir, fstat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;

/// Maximal number of records that are read by their names alone: a user who fills the directory
/// with names must not delay a restore. Beyond the limit, records of living processes are read.
/// Chosen.
const RECORDS_MAX: usize = 4_096;
/// Maximal number of searches for threads that were created while masks were given back. Chosen:
/// each pass finds only the threads created during the previous one.
const PASSES_MAX: u32 = 8;
/// Maximal number of names that are listed. Chosen.
const LISTED_MAX: usize = 65_536;
/// Room for the names of one call: more than a thousand, as programs leave in `/dev/shm`.
const LIST_BYTES: usize = 64 << 10;

/// A record that was found, with its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftBehind {
    /// The process of the moved threads.
    pub pid: Pid,
    /// The process that moved them, according to the record.
    pub balancer: Option<Pid>,
    /// Socket of the balancer, if it is a service.
    pub socket: Option<PathBuf>,
    /// Outcome.
    pub end: LeftEnd,
}

/// Outcome of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeftEnd {
    /// The balancer has ended, and the masks that it could not give back were given back.
    Restored {
        /// Threads that have their own mask again.
        given_back: u32,
        /// Threads that had another mask than the one they were given; not changed.
        changed: u32,
        /// Threads that have ended.
        vanished: u32,
        /// Threads that this process may not change.
        refused: u32,
    },
    /// The balancer lives.
    InUse,
    /// The record belongs to this user; it is not trusted, or this process may not carry it out.
    Foreign(u32),
    /// The file is not a record, or belongs to another process-id namespace.
    Unreadable,
}

/// Gives threads back the masks that killed balancers did not restore. With `only`, reads records
/// of this process, of the tree that begins with it, or made by it. A record is removed when
/// everything that still can be given back was given back; a record of threads that this process
/// may not change stays for a process that may.
///
/// # Errors
/// [`JournalError`]: there is no place for records, or the place cannot be listed.
pub fn restore_left_behind(
    location: &Location,
    proc: &Path,
    only: Option<Pid>,
) -> Result<Vec<LeftBehind>, JournalError> {
    restore_in(Folder::find(location)?, location, proc, only)
}

/// Does the same for all records. An open ledger of this location saves the search for the
/// directory.
///
/// # Errors
/// As [`restore_left_behind`].
pub fn restore_beside(
    ledger: &LedgerView,
    location: &Location,
    proc: &Path,
) -> Result<Vec<LeftBehind>, JournalError> {
    let scratch = ledger.scratch().map_or_else(|| location.scratch(), Ok)?;
    restore_in(Folder::of(scratch), location, proc, None)
}

fn restore_in(
    shared: Folder,
    location: &Location,
    proc: &Path,
    only: Option<Pid>,
) -> Result<Vec<LeftBehind>, JournalError> {
    let of_root = location.of_root().and_then(|path| shared.opened_of_root(path));
    let namespace = LazyCell::new(|| namespace(proc));
    let mut ends = Vec::new();
    let mut restore = |folder: &Folder, found: Vec<(Pid, StartTime)>| {
        for process in found {
            ends.extend(restore_one(folder, proc, *namespace, process, only));
        }
    };
    if let Some(folder) = of_root {
        let found = list(&folder, proc);
        // Most of the time it is empty, and then its owner does not matter.
        if !found.as_ref().is_ok_and(Vec::is_empty) && folder.is_roots_alone() {
            restore(&folder, found?);
        }
    }
    restore(&shared, list(&shared, proc)?);
    ends.sort_by_key(|end| end.pid);
    Ok(ends)
}

/// Returns the processes that have records in a folder: first our own, up to the limit, then those
/// of other users. If not all names could be read, records of living processes are found through
/// the processes: names made by other users never prevent that a record is found.
fn list(folder: &Folder, proc: &Path) -> Result<Vec<(Pid, StartTime)>, JournalError> {
    let failed = |error| folder.failed("listing", "", error);
    let list = folder.directory.list().map_err(failed)?;
    let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
    let mut entries = RawDir::new(list.as_fd(), &mut buffer);
    let (mut found, mut names) = (Vec::new(), 0);
    let euid = LazyCell::new(|| geteuid().as_raw());
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(failed)?;
        names += 1;
        if names > LISTED_MAX {
            break;
        }
        // The folder may contain many files of other programs.
        if !entry.file_name().to_bytes().starts_with(folder.stem.as_bytes()) {
            continue;
        }
        let Some((pid, start)) = entry.file_name().to_str().ok().and_then(|name| folder.process(name)) else {
            continue;
        };
        let stat = statat(&*folder.directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        found.push((stat.map_or(true, |stat| stat.st_uid != *euid), pid, start));
    }
    found.sort_unstable();
    let all = names <= LISTED_MAX && found.len() <= RECORDS_MAX;
    found.truncate(RECORDS_MAX);
    let mut found: BTreeSet<(Pid, StartTime)> =
        found.into_iter().map(|(_, pid, start)| (pid, start)).collect();
    if !all {
        let living = process::all(proc).unwrap_or_default().into_iter();
        let living = living.filter_map(|pid| Some((pid, process::stat(proc, pid).ok()?.start)));
        let is_there = |&(pid, start): &(Pid, StartTime)| {
            statat(&*folder.directory, folder.name(pid, start), AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        found.extend(living.filter(is_there));
    }
    Ok(found.into_iter().collect())
}

fn restore_one(
    folder: &Folder,
    proc: &Path,
    namespace: u64,
    (pid, start): (Pid, StartTime),
    only: Option<Pid>,
) -> Option<LeftBehind> {
    let about = |balancer, end| Some(LeftBehind { pid, balancer, socket: None, end });
    let asked = only == Some(pid);
    let name = folder.name(pid, start);
    // It may not be opened, was removed meanwhile, or is not a file: reported only to a caller that
    // named it.
    let file = match folder.open(&name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return None,
        Err(_) if asked => return about(None, LeftEnd::Unreadable),
        Err(_) => return None,
    };
    let stat = fstat(&file).ok()?;
    let euid = geteuid();
    if !is_plain(&stat) {
        return if asked { about(None, LeftEnd::Unreadable) } else { None };
    }
    if stat.st_uid != euid.as_raw() && !euid.is_root() {
        return if asked { about(None, LeftEnd::Foreign(stat.st_uid)) } else { None };
    }
    let lines = contents(&file, &stat).and_then(|text| Lines::decode(&text));
    let Some(Lines { header, .. }) = lines else {
        // Killed between making the file and writing its first line, before anything was moved.
        if try_lock(file.as_fd(), LOCKED_BYTES, LockKind::Write).is_ok_and(|ours| ours) {
            let _ = unlinkat(&*folder.directory, &name, AtFlags::empty());
        }
        return if asked { about(None, LeftEnd::Unreadable) } else { None };
    };
    if only.is_some_and(|only| ![pid, header.root, header.balancer].contains(&only)) {
        return None;
    }
    let balancer = Some(header.balancer);
    if header.namespace != namespace {
        return about(balancer, LeftEnd::Unreadable);
    }
    if !try_lock(file.as_fd(), LOCKED_BYTES, LockKind::Write).ok()? {
        return Some(LeftBehind { pid, balancer, socket: header.socket, end: LeftEnd::InUse });
    }
    // Read again, now that no other process writes.
    let stat = fstat(&file).ok().filter(is_plain)?;
    let lines = contents(&file, &stat).and_then(|text| Lines::decode(&text))?;
    let owner = (stat.st_uid != 0 && euid.is_root()).then_some(stat.st_uid);
    let mut threads: Vec<(Pid, Tid, Entry)> =
        lines.threads.iter().map(|(tid, entry)| (pid, *tid, entry.clone())).collect();
    let mut giving = RestoreRun::new(proc, owner);
    let mut seen = BTreeSet::new();
    // The threads of the record come first: the search for others reads the whole process.
    for _ in 0..=PASSES_MAX {
        for (pid, tid, entry) in threads.drain(..) {
            giving.restore(pid, tid, &entry);
            seen.insert((tid, entry.start));
        }
        threads = born_since(folder, proc, pid, &lines.threads, &seen);
        if threads.is_empty() {
            break;
        }
    }
    if giving.refused == 0 {
        // Best effort; a record of threads that have their own masks does no harm.
        let _ = unlinkat(&*folder.directory, &name, AtFlags::empty());
    }
    about(balancer, giving.end())
}

/// Restore in progress, with its counts.
struct RestoreRun<'a> {
    proc: &'a Path,
    /// Only threads of this user, if root restores on a user's behalf.
    owner: Option<u32>,
    limits: GroupLimits,
    given_back: u32,
    changed: u32,
    vanished: u32,
    refused: u32,
}

impl<'a> RestoreRun<'a> {
    fn new(proc: &'a Path, owner: Option<u32>) -> Self {
        let limits = GroupLimits::new(proc.parent().unwrap_or(Path::new("/")), &CpuSet::new());
        Self { proc, owner, limits, given_back: 0, changed: 0, vanished: 0, refused: 0 }
    }

    fn restore(&mut self, pid: Pid, tid: Tid, entry: &Entry) {
        let is_it = process::thread_stat(self.proc, pid, tid).is_ok_and(|stat| stat.start == entry.start);
        let now = affinity::get(Some(tid)).ok().filter(|_| is_it);
        let group = now.as_ref().and_then(|_| self.limits.group_of_thread(pid, tid));
        let mut granted = || self.limits.granted(group?);
        let count = match now {
            None => &mut self.vanished,
            // Even if the present mask equals the own mask, the kernel may have cut it from a mask
            // of ours, which the kernel still stores: then the own mask is set nevertheless.
            // A mask that is exactly the given one needs no look at the cpuset.
            Some(now) if !entry.gave(&now, None) && !entry.gave(&now, granted().as_ref()) => {
                if now == entry.home {
                    return;
                }
                &mut self.changed
            }
            Some(_) => {
                let theirs = self.owner.is_none_or(|owner| belongs_to(self.proc, pid, tid, owner));
                let given = if theirs { entry.own().give(tid, granted) } else { Err(Errno::PERM) };
                match given {
                    Ok(()) => &mut self.given_back,
                    Err(Errno::SRCH) => &mut self.vanished,
                    Err(_) => &mut self.refused,
                }
            }
        };
        *count += 1;
    }

    fn end(self) -> LeftEnd {
        let Self { given_back, changed, vanished, refused, .. } = self;
        LeftEnd::Restored { given_back, changed, vanished, refused }
    }
}

/// Returns whether a thread belongs to a user.
pub(super) fn belongs_to(proc: &Path, pid: Pid, tid: Tid, owner: u32) -> bool {
    process::thread_status(proc, pid, tid).is_ok_and(|status| status.uid == owner)
}

/// Returns threads that no record names, of the process and of its children without a record of
/// their own. Born to a thread that was moved, they have its mask, and should have its own mask.
/// Threads in `seen` were handled before.
fn born_since(
    folder: &Folder,
    proc: &Path,
    pid: Pid,
    threads: &Entries,
    seen: &BTreeSet<(Tid, StartTime)>,
) -> Vec<(Pid, Tid, Entry)> {
    let mut born = Vec::new();
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&member) = family.get(at) {
        at += 1;
        let noted = member != pid
            && process::stat(proc, member)
                .is_ok_and(|stat| folder.open(&folder.name(member, stat.start)).is_ok());
        for tid in process::threads(proc, member).unwrap_or_default() {
            if family.len() < RECORDS_MAX {
                let children = text::read(&proc.join(format!("{member}/task/{tid}/children")));
                let children = children.unwrap_or_default();
                family.extend(text::words(&children).filter_map(text::number).map(Pid));
            }
            if noted {
                continue;
            }
            let entry = affinity::get(Some(tid)).ok().and_then(|now| {
                let from = threads.values().find(|entry| entry.gave(&now, None))?;
                let start = process::thread_stat(proc, member, tid).ok()?.start;
                let known = threads.get(&tid).is_some_and(|entry| member == pid && entry.start == start);
                (!known && !seen.contains(&(tid, start))).then(|| Entry { start, ..from.clone() })
            });
            born.extend(entry.map(|entry| (member, tid, entry)));
        }
    }
    born
}
