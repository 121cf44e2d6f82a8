//! Journal of the masks that a balancer changed, for the case that the balancer is killed.
//!
//! Problem: masks outlive the process that set them. A balancer that ends gives them back; a
//! balancer that is killed with SIGKILL cannot. Moreover, two balancers of one program would undo
//! each other's work without end. Idea: the journal has a file for each process with moved threads,
//! its *record* `balance-PID-START`. The record is made and locked (an open-file-description lock,
//! which the kernel releases with the process) before the first move. A locked record means that
//! the process is being balanced. An unlocked record lists the masks that must be given back.
//!
//! Properties: a record is private to its user. Files made by other users are never written to and
//! never trusted, and cause at most one warning. A mask is given back only to the same thread
//! (number and start time), and only if the thread still has the mask that it was given. A kill
//! while a record is rewritten loses no entry, since another file is written and then gets the
//! name. Whether a record is locked is queried and never tested by locking. Root restores a user's
//! record only on that user's own threads.
//!
//! Users' records are in a directory that all users can write, root's in a directory of its own if
//! the machine has room for that. A balancer that claims a process makes and locks its own record
//! first and reads the other directory then: of two that do so at the same moment at least one sees
//! the other. Root takes over the entries that a user's balancer left for that user's threads.
//! Known gap: a user who can make files in the shared directory can make the file that another user
//! would make; then no record is kept for that process, and only for that one.

mod guard;
mod left;
mod lines;

pub use guard::{Guard, GuardError, stand};
pub use left::{LeftBehind, LeftEnd, restore_beside, restore_left_behind};
pub use lines::{Entry, Header, Lines};

use crate::ledger::directory::OpenDirectory;
use crate::ledger::place::Scratch;
use crate::ledger::{LedgerError, Location};
use crate::process::{self, Pid, StartTime, Tid};
use crate::sys::lock::{LockKind, conflict, try_lock};
use crate::text::{self, ReadError};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, ftruncate, major, minor, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, geteuid, getrlimit};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use trimtab_core::set::CpuSet;

/// Maximal size of a record, in bytes: 16,384 threads with masks of some hundred characters.
const BYTES_MAX: u64 = 8 << 20;
/// Size in bytes from which a record is rewritten, if it also is four times as large as a fresh
/// one. Chosen.
const REWRITE_BYTES_MIN: u64 = 64 << 10;
/// Number of times a name may appear and vanish before the cause is called interference. Chosen: an
/// honest race needs two.
const ATTEMPTS_MAX: u32 = 8;
/// Pause before another attempt at a lock that no balancer holds: a process that gives masks back
/// has it for a moment. Chosen.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(2);
/// The byte that is locked.
const LOCKED_BYTES: std::ops::Range<u64> = 0..1;

/// Reason why no record is kept. Balancing continues; only, a killed balancer's masks are then not
/// given back.
#[derive(Debug, Error)]
pub enum JournalError {
    /// No directory can hold records.
    #[error("no record of masks is kept: {0}")]
    Place(#[from] LedgerError),
    /// The start time of this process cannot be read.
    #[error("no record of masks is kept: {0}")]
    Own(#[from] ReadError),
    /// A call failed.
    #[error("no record of masks is kept: {attempt} {}: {source}", path.display())]
    Io {
        /// The attempted action, as text before the path.
        attempt: &'static str,
        /// The path it was done on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another user's file, or another kind of file, has the name.
    #[error("no record of masks is kept: {} belongs to user {uid} or is not a plain file; its owner or root should remove it", path.display())]
    Squatted {
        /// The path.
        path: PathBuf,
        /// Owner of the file.
        uid: u32,
    },
    /// The name keeps appearing and vanishing.
    #[error("no record of masks is kept: {} keeps appearing and vanishing", path.display())]
    Unsettled {
        /// The path.
        path: PathBuf,
    },
    /// The record would be too large.
    #[error("no record of masks is kept: {} would be larger than 8 MiB", path.display())]
    Large {
        /// The path.
        path: PathBuf,
    },
}

/// Journal of one balancer.
#[derive(Clone, Debug)]
pub struct AffinityJournal {
    /// Folder of our records.
    folder: Folder,
    /// Folder of users' records.
    shared: Folder,
    /// Folder of root's records, if it is another one.
    of_root: Option<PathBuf>,
    own: (Pid, StartTime),
    namespace: u64,
    proc: PathBuf,
    /// Socket of this process, if it is a service.
    socket: Option<PathBuf>,
    /// Guardian that gives masks back if this process is killed.
    guard: Option<Arc<Guard>>,
}

/// A folder of records.
#[derive(Clone, Debug)]
struct Folder {
    directory: Arc<OpenDirectory>,
    path: PathBuf,
    stem: String,
}

/// Outcome of claiming a process.
#[derive(Debug)]
pub(super) enum ClaimOutcome {
    /// The process is ours.
    Ours(MaskRecord),
    /// This other process balances it; 0 if its number cannot be read.
    Others(u32),
}

impl Folder {
    fn find(location: &Location) -> Result<Self, JournalError> {
        Ok(Self::of(location.scratch()?))
    }

    fn of(Scratch { directory, path, stem }: Scratch) -> Self {
        Self { directory, path, stem: format!("{stem}.balance-") }
    }

    /// Opens root's own folder, if it exists and only root can make files in it.
    fn of_root(&self, path: &Path) -> Option<Self> {
        self.opened_of_root(path).filter(Self::is_roots_alone)
    }

    /// Opens root's own folder, whatever its owner is.
    fn opened_of_root(&self, path: &Path) -> Option<Self> {
        let directory = OpenDirectory::open(path, OFlags::NOFOLLOW).ok()?;
        Some(Self { directory: Arc::new(directory), path: path.to_owned(), stem: self.stem.clone() })
    }

    /// Returns whether only root can make files in it.
    fn is_roots_alone(&self) -> bool {
        fstat(&*self.directory).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0)
    }

    /// Opens root's own folder, and makes it if it does not exist.
    fn make_of_root(&self, path: &Path) -> Option<Self> {
        // If it cannot be made, all records are in the shared folder.
        let _ = mkdirat(CWD, path, Mode::from_raw_mode(0o755));
        self.of_root(path)
    }

    fn name(&self, pid: Pid, start: StartTime) -> String {
        format!("{}{pid}-{}", self.stem, start.0)
    }

    /// Returns the process that a file's name identifies.
    fn process(&self, name: &str) -> Option<(Pid, StartTime)> {
        let (pid, start) = name.strip_prefix(&self.stem)?.split_once('-')?;
        let (pid, start) = (Pid(pid.parse().ok()?), StartTime(start.parse().ok()?));
        (self.name(pid, start) == name).then_some((pid, start))
    }

    fn failed(&self, attempt: &'static str, name: &str, error: impl Into<io::Error>) -> JournalError {
        JournalError::Io { attempt, path: self.path.join(name), source: error.into() }
    }

    /// Opens an existing file.
    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(&self.directory, name, flags, Mode::empty())
    }
}

/// Returns whether a file may be a record: a regular file with a single name.
fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1
}

/// Returns the process-id namespace of this process, if `proc` shows it; else 0.
fn namespace(proc: &Path) -> u64 {
    std::fs::metadata(proc.join("self/ns/pid")).map_or(0, |meta| meta.ino())
}

/// Reads the content of a file, at most [`BYTES_MAX`].
fn contents(file: &OwnedFd, stat: &Stat) -> Option<Vec<u8>> {
    let length = u64::try_from(stat.st_size).ok().filter(|length| *length <= BYTES_MAX)?;
    let mut text = vec![0; usize::try_from(length).ok()?];
    let mut filled = 0;
    while filled < text.len() {
        match rustix::io::pread(file, &mut text[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    text.truncate(filled);
    Some(text)
}

impl AffinityJournal {
    /// Opens a journal for this process in the ledger's directory. `proc` is the mount point of
    /// procfs.
    ///
    /// # Errors
    /// [`JournalError`]: the caller warns once, and balancing continues without a journal.
    pub fn open(location: &Location, proc: &Path) -> Result<Self, JournalError> {
        let shared = Folder::find(location)?;
        let of_root = location.of_root().map(Path::to_owned);
        let own = of_root.as_deref().filter(|_| geteuid().is_root());
        let folder = own.and_then(|path| shared.make_of_root(path)).unwrap_or_else(|| shared.clone());
        let start = process::stat(proc, Pid::own())?.start;
        let (own, namespace) = ((Pid::own(), start), namespace(proc));
        let proc = proc.to_owned();
        Ok(Self { folder, shared, of_root, own, namespace, proc, socket: None, guard: None })
    }

    /// Adds a guardian, which is started before the first mask is set.
    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guard = Some(Arc::new(guard));
        self
    }

    /// Marks the journal as that of a service that listens at this socket.
    #[must_use]
    pub fn serving(mut self, socket: &Path) -> Self {
        self.socket = Some(socket.to_owned());
        self
    }

    /// Replaces the guardian if it was started and has ended.
    pub(super) fn tend(&self) {
        if let Some(guard) = &self.guard {
            guard.tend();
        }
    }

    /// Returns the reason for the lack of a guardian, if there should be one.
    pub(super) fn guard_fault(&self) -> Option<String> {
        self.guard.as_ref()?.fault()
    }

    /// Returns the guardian's process, if it runs.
    pub(super) fn guardian(&self) -> Option<Pid> {
        self.guard.as_ref()?.pid()
    }

    /// Returns the folder of records that are not with ours, if there is one.
    fn elsewhere(&self) -> Option<Folder> {
        if self.folder.path != self.shared.path {
            return Some(self.shared.clone());
        }
        // Opened each time: it comes with the first balancer of root's.
        self.shared.of_root(self.of_root.as_deref()?)
    }

    /// Returns the process that balances this process now, if another does; 0 if its number cannot
    /// be read.
    pub(super) fn balancer(&self, pid: Pid, start: StartTime) -> Option<u32> {
        let here = self.balancer_in(&self.folder, pid, start);
        here.or_else(|| self.balancer_in(&self.elsewhere()?, pid, start))
    }

    fn balancer_in(&self, folder: &Folder, pid: Pid, start: StartTime) -> Option<u32> {
        let name = folder.name(pid, start);
        let file = match folder.open(&name) {
            Ok(file) => file,
            Err(Errno::ACCESS) => return self.is_held_by_root(folder, &name).then_some(0),
            Err(_) => return None,
        };
        let stat = fstat(&file).ok().filter(is_plain)?;
        if !self.is_believed(&stat, pid) {
            return None;
        }
        // Left behind by a killed balancer, or being restored: no balancer.
        conflict(file.as_fd(), LOCKED_BYTES).ok()??;
        match header(&file, &stat) {
            Some(header) => self.lives(&header).then_some(header.balancer.0),
            None => Some(0),
        }
    }

    /// Returns whether a record with this owner counts for this process: records of our own user
    /// and of root do, and to root those of the process's user.
    fn is_believed(&self, stat: &Stat, pid: Pid) -> bool {
        [0, geteuid().as_raw()].contains(&stat.st_uid) || self.is_process_owners(stat, pid)
    }

    /// Returns whether a record belongs to the process's user, and we are root.
    fn is_process_owners(&self, stat: &Stat, pid: Pid) -> bool {
        let owner = || std::fs::metadata(self.proc.join(pid.to_string())).map(|meta| meta.uid());
        geteuid().is_root() && owner().is_ok_and(|owner| owner == stat.st_uid)
    }

    /// Returns whether the balancer that a record names exists; a balancer of another namespace
    /// cannot be checked and counts as existing.
    fn lives(&self, header: &Header) -> bool {
        header.namespace != self.namespace
            || process::stat(&self.proc, header.balancer).is_ok_and(|stat| stat.start == header.start)
    }

    /// Returns whether a record that is not ours to open is a record of root's that is in use. The
    /// kernel lists all locks by their files.
    fn is_held_by_root(&self, folder: &Folder, name: &str) -> bool {
        let Ok(stat) = statat(&*folder.directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        if stat.st_uid != 0 || !is_plain(&stat) {
            return false;
        }
        let file = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
        // If locks are not listed, threads that root may be moving are not moved.
        text::read(&self.proc.join("locks"))
            .map_or(true, |locks| text::words(&locks).any(|word| word == file.as_bytes()))
    }

    /// Claims a process, before any of its threads is moved.
    pub(super) fn claim(&self, pid: Pid, start: StartTime, root: Pid) -> Result<ClaimOutcome, JournalError> {
        let name = self.folder.name(pid, start);
        let (file, stat) = match self.lock(&name, pid, start)? {
            Locked::Ours(file, stat) => (file, stat),
            Locked::Others(balancer) => return Ok(ClaimOutcome::Others(balancer)),
        };
        let mut left = self.left_in(&file, &stat, pid);
        // Not earlier than our lock: a balancer that checks for ours after this point sees it.
        if let Some(folder) = self.elsewhere() {
            if let Some(balancer) = self.balancer_in(&folder, pid, start) {
                if left.is_none_or(|left| left.threads.is_empty()) && stat.st_uid == geteuid().as_raw() {
                    let _ = unlinkat(&*self.folder.directory, &name, AtFlags::empty());
                }
                return Ok(ClaimOutcome::Others(balancer));
            }
            if let Some(theirs) = self.take_over(&folder, &name, pid) {
                // Our own entries are the later ones.
                let ours = left.take();
                let mut threads = theirs.threads;
                threads.extend(ours.iter().flat_map(|lines| lines.threads.clone()));
                let header = ours.map_or(theirs.header, |lines| lines.header);
                left = Some(Lines { header, threads });
            }
        }
        let record = self.begin(file, &stat, name, root, left)?;
        if let Some(guard) = &self.guard {
            guard.start();
        }
        Ok(ClaimOutcome::Ours(record))
    }

    /// Opens and locks the record's file, and makes it if it does not exist.
    fn lock(&self, name: &str, pid: Pid, start: StartTime) -> Result<Locked, JournalError> {
        let path = self.folder.path.join(name);
        let mut holder = None;
        for _ in 0..ATTEMPTS_MAX {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let file = match openat(&*self.folder.directory, name, flags, mode) {
                Ok(file) => file,
                Err(Errno::EXIST) => match self.folder.open(name) {
                    Ok(file) => file,
                    Err(Errno::NOENT) => continue,
                    Err(Errno::ACCESS) if self.is_held_by_root(&self.folder, name) => {
                        return Ok(Locked::Others(0));
                    }
                    Err(Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                        let uid = std::fs::symlink_metadata(&path).map_or(0, |meta| meta.uid());
                        return Err(JournalError::Squatted { path, uid });
                    }
                    Err(error) => return Err(self.folder.failed("opening", name, error)),
                },
                Err(error) => return Err(self.folder.failed("making", name, error)),
            };
            let failed = |attempt, error: Errno| self.folder.failed(attempt, name, error);
            let stat = fstat(&file).map_err(|error| failed("looking at", error))?;
            if stat.st_nlink == 0 {
                continue; // removed meanwhile
            }
            let ours = [0, geteuid().as_raw()].contains(&stat.st_uid);
            if !is_plain(&stat) || !(ours || self.is_process_owners(&stat, pid)) {
                let held = is_plain(&stat) && self.balancer_in(&self.folder, pid, start).is_some();
                return if held {
                    Ok(Locked::Others(header(&file, &stat).map_or(0, |header| header.balancer.0)))
                } else {
                    Err(JournalError::Squatted { path, uid: stat.st_uid })
                };
            }
            match try_lock(file.as_fd(), LOCKED_BYTES, LockKind::Write) {
                Ok(true) => {}
                Ok(false) => {
                    let named = header(&file, &stat);
                    let balancer = named.as_ref().map_or(0, |header| header.balancer.0);
                    if named.is_some_and(|header| self.lives(&header)) {
                        return Ok(Locked::Others(balancer));
                    }
                    // A process that restores it, or one that has not written its header yet.
                    holder = Some(balancer);
                    std::thread::sleep(LOCK_RETRY_PAUSE);
                    continue;
                }
                Err(error) => return Err(self.folder.failed("locking", name, error)),
            }
            // The previous holder of the lock may have removed the name; then the file is
            // abandoned.
            let stat = fstat(&file).map_err(|error| failed("looking at", error))?;
            if stat.st_nlink == 0 {
                continue;
            }
            return Ok(Locked::Ours(file, stat));
        }
        holder.map(Locked::Others).ok_or(JournalError::Unsettled { path })
    }

    /// Returns the entries that a killed balancer left in a locked file. A user's record counts for
    /// that user's threads.
    fn left_in(&self, file: &OwnedFd, stat: &Stat, pid: Pid) -> Option<Lines> {
        let lines = contents(file, stat).and_then(|text| Lines::decode(&text));
        let mut lines = lines.filter(|lines| lines.header.namespace == self.namespace)?;
        if stat.st_uid != geteuid().as_raw() && stat.st_uid != 0 {
            lines.threads.retain(|tid, _| left::belongs_to(&self.proc, pid, *tid, stat.st_uid));
        }
        Some(lines)
    }

    /// Takes over the entries that a killed balancer left in the other folder, if they are ours to
    /// give back, and removes them there.
    fn take_over(&self, folder: &Folder, name: &str, pid: Pid) -> Option<Lines> {
        let file = folder.open(name).ok()?;
        let stat = fstat(&file).ok().filter(is_plain)?;
        let ours = stat.st_uid == geteuid().as_raw() || self.is_process_owners(&stat, pid);
        if !ours || !try_lock(file.as_fd(), LOCKED_BYTES, LockKind::Write).ok()? {
            return None;
        }
        let stat = fstat(&file).ok().filter(is_plain)?;
        let lines = self.left_in(&file, &stat, pid)?;
        // Best effort, both: as long as the name exists, the file should have no entry any more.
        let _ = ftruncate(&file, 0);
        let _ = unlinkat(&*folder.directory, name, AtFlags::empty());
        Some(lines)
    }

    /// Begins a record in a locked file. Entries that a killed balancer left are taken over: its
    /// threads' own masks are those that it found, not those that it set.
    fn begin(
        &self,
        file: OwnedFd,
        stat: &Stat,
        name: String,
        root: Pid,
        left: Option<Lines>,
    ) -> Result<MaskRecord, JournalError> {
        let generation = left.as_ref().map_or(0, |lines| lines.header.generation.wrapping_add(1));
        let ((balancer, start), socket) = (self.own, self.socket.clone());
        let header = Header { generation, balancer, start, namespace: self.namespace, root, socket };
        let threads = left.map(|lines| lines.threads).unwrap_or_default();
        let mut record =
            MaskRecord { file, folder: self.folder.clone(), name, lines: Lines { header, threads }, end: 0 };
        // A file that its user can change must not get entries that will be trusted later: those go
        // to a file of our own.
        let theirs = ![0, geteuid().as_raw()].contains(&stat.st_uid);
        if record.lines.threads.is_empty() && !theirs {
            // No entry could be lost.
            record.write_here()?;
        } else {
            record.write_anew()?;
        }
        Ok(record)
    }
}

/// A record's file, locked by us or by another balancer.
enum Locked {
    Ours(OwnedFd, Stat),
    Others(u32),
}

/// Reads the header of a record, which is a claim.
fn header(file: &OwnedFd, stat: &Stat) -> Option<Header> {
    contents(file, stat).and_then(|text| Lines::decode(&text)).map(|lines| lines.header)
}

/// The record of one process. Ours as long as this value lives.
#[derive(Debug)]
pub(super) struct MaskRecord {
    file: OwnedFd,
    folder: Folder,
    name: String,
    lines: Lines,
    end: u64,
}

impl MaskRecord {
    /// Returns the entry of an earlier balancer that did not give this thread's mask back; for a
    /// thread created since, the entry with the mask that it inherited.
    pub(super) fn entry(&self, tid: Tid, start: StartTime, mask: &CpuSet) -> Option<&Entry> {
        let noted = self.lines.threads.get(&tid).filter(|entry| entry.start == start);
        noted.or_else(|| self.lines.threads.values().find(|entry| entry.gave(mask, None)))
    }

    /// Records a change of a thread's mask before the change is made.
    pub(super) fn note(&mut self, tid: Tid, entry: Entry) -> Result<(), JournalError> {
        let noted = self.lines.threads.get(&tid);
        let entry = entry.after(noted);
        if noted == Some(&entry) {
            return Ok(());
        }
        let line = entry.encode(self.lines.header.generation, tid);
        self.lines.threads.insert(tid, entry);
        // Two lines per thread.
        let anew = 256 + self.lines.threads.len() as u64 * 2 * (line.len() as u64 + 16);
        if self.end > REWRITE_BYTES_MIN && self.end > 4 * anew && self.write_anew().is_ok() {
            return Ok(());
        }
        self.append(&line)
    }

    /// Removes a thread that has ended: its number and start time will not come again.
    pub(super) fn ended(&mut self, tid: Tid) {
        self.lines.threads.remove(&tid);
    }

    /// Records that a thread has its own mask again.
    pub(super) fn forget(&mut self, tid: Tid) {
        let Some(entry) = self.lines.threads.remove(&tid) else { return };
        let held = entry.home.clone();
        let line = Entry { held, before: None, ..entry }.encode(self.lines.header.generation, tid);
        // Best effort: if the line is not written, the record has a line about a thread that no
        // longer has that mask.
        let _ = self.append(&line);
    }

    /// Removes the record after everything was given back.
    pub(super) fn finish(self) {
        // Best effort: a record without a lock, of threads that all have their own masks, does no
        // harm.
        let _ = unlinkat(&*self.folder.directory, &self.name, AtFlags::empty());
    }

    fn append(&mut self, line: &str) -> Result<(), JournalError> {
        self.write(&self.file, self.end, line.as_bytes())?;
        self.end += line.len() as u64;
        Ok(())
    }

    /// Rewrites all of the record from its start. Lines of earlier, longer content that stay behind
    /// belong to no generation that counts.
    fn write_here(&mut self) -> Result<(), JournalError> {
        let text = self.lines.encode();
        self.write(&self.file, 0, text.as_bytes())?;
        self.end = text.len() as u64;
        Ok(())
    }

    /// Writes all of the record to another file, which then takes the name: after a kill at any
    /// moment, one of the two files is there and complete.
    fn write_anew(&mut self) -> Result<(), JournalError> {
        let mut lines = self.lines.clone();
        lines.header.generation = lines.header.generation.wrapping_add(1);
        let (text, new) = (lines.encode(), format!("{}.new", self.name));
        let directory = &*self.folder.directory;
        let failed = |attempt, error: io::Error| self.folder.failed(attempt, &new, error);
        // A balancer that was killed at this point left it.
        let _ = unlinkat(directory, &new, AtFlags::empty());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed("making", error.into()))?;
        // Locked before it has the name, so the name never belongs to a file without a lock.
        let made = try_lock(file.as_fd(), LOCKED_BYTES, LockKind::Write)
            .map_err(|error| failed("locking", error))
            .and_then(|_| self.write(&file, 0, text.as_bytes()))
            .and_then(|()| {
                renameat(directory, &new, directory, &self.name)
                    .map_err(|error| failed("renaming", error.into()))
            });
        if made.is_err() {
            let _ = unlinkat(directory, &new, AtFlags::empty());
        }
        made?;
        (self.file, self.lines, self.end) = (file, lines, text.len() as u64);
        Ok(())
    }

    fn write(&self, file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), JournalError> {
        let end = at + bytes.len() as u64;
        // Beyond the limit of this process the kernel does not only refuse: it kills the process
        // (SIGXFSZ).
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if end > BYTES_MAX || end > limit {
            return Err(JournalError::Large { path: self.folder.path.join(&self.name) });
        }
        while !bytes.is_empty() {
            match pwrite(file, bytes, at) {
                Ok(0) => return Err(self.folder.failed("writing", &self.name, Errno::NOSPC)),
                Ok(written) => {
                    at += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.folder.failed("writing", &self.name, error)),
            }
        }
        Ok(())
    }
}

/// Entries of masks that are to be given back, by thread number.
type Entries = BTreeMap<Tid, Entry>;

#[cfg(test)]
mod tests;
