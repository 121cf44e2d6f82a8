//! What a balancer leaves for the case that it is killed: which threads it moved, and how they were before.
//!
//! Problem: masks outlive whoever set them. A balancer that ends gives them back; one that is killed with SIGKILL cannot. And two
//! balancers of one program would undo each other's work without end. Idea: a file for each process whose threads are
//! moved, `balance-PID-START`, made and locked (an open-file-description lock, which the kernel takes back with the process)
//! before the first move. Locked, it says that the process is looked after. Unlocked, it says what must be given back.
//!
//! Properties: a record is private to its user; names that others made are never written to and never believed, and cost no
//! more than one warning; only threads that are the same (number and start) and that still have the mask that they were given
//! are given theirs back; what was noted is never lost to a kill while a record is written anew, since that is another file that
//! takes the name; whether a record is locked is asked and never tried; root restores a user's record only on that user's own threads.
//!
//! Users' records are in a directory that all can write, root's in one of its own where the machine has room for that. Whoever claims
//! a process makes and locks the own record first and looks into the other directory then: of two who do so at the same moment at
//! least one sees the other. Root takes over what a user's balancer left of that user's threads. Known gap: whoever can make files in
//! the shared directory can make the one that another user would, and then nothing is kept for that process, and only for that one.

mod guard;
mod left;
mod lines;

pub use guard::{Guard, GuardError, stand};
pub use left::{LeftBehind, LeftEnd, restore_left_behind};
pub use lines::{Entry, Header, Lines};

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

/// No record is larger: 16,384 threads with masks of some hundred characters.
const BYTES_MAX: u64 = 8 << 20;
/// A record that has grown to this, and to four times what it would take anew, is written anew. Chosen.
const ANEW_BYTES: u64 = 64 << 10;
/// How often a name may come and go before that is called interference. Chosen: an honest race needs two.
const ATTEMPTS: u32 = 8;
/// How long a lock is waited for, each time, whose holder is no balancer: who gives masks back has it for a moment. Chosen.
const PAUSE: Duration = Duration::from_millis(2);
/// The byte that is locked.
const LOCKED: std::ops::Range<u64> = 0..1;

/// Why no record is kept. The balancing goes on; only a killed balancer's masks are then not given back.
#[derive(Debug, Error)]
pub enum JournalError {
    /// There is no place for records.
    #[error("no record of masks is kept: {0}")]
    Place(#[from] LedgerError),
    /// This process cannot be named.
    #[error("no record of masks is kept: {0}")]
    Own(#[from] ReadError),
    /// A call failed.
    #[error("no record of masks is kept: {attempt} {}: {source}", path.display())]
    Io {
        /// What was attempted, to be read before the path.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something else stands there.
    #[error("no record of masks is kept: {} belongs to user {uid} or is no plain file; its owner or root should remove it", path.display())]
    Squatted {
        /// The name.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It keeps changing.
    #[error("no record of masks is kept: {} keeps appearing and vanishing", path.display())]
    Unsettled {
        /// The name.
        path: PathBuf,
    },
    /// It would be too large.
    #[error("no record of masks is kept: {} would be larger than 8 MiB", path.display())]
    Large {
        /// The name.
        path: PathBuf,
    },
}

/// Keeps the records of one balancer.
#[derive(Clone, Debug)]
pub struct AffinityJournal {
    /// Where ours are.
    folder: Folder,
    /// Where users' are.
    shared: Folder,
    /// Where root's are, if not there too.
    of_root: Option<PathBuf>,
    own: (Pid, StartTime),
    namespace: u64,
    proc: PathBuf,
    /// Where this process listens, if it is a service.
    socket: Option<PathBuf>,
    /// Who gives masks back if this process is killed.
    guard: Option<Arc<Guard>>,
}

/// Where records are.
#[derive(Clone, Debug)]
struct Folder {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    stem: String,
}

/// What became of the wish to balance a process.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is ours.
    Ours(Record),
    /// This process balances it; 0 where its number cannot be read.
    Others(u32),
}

impl Folder {
    fn find(location: &Location) -> Result<Self, JournalError> {
        let scratch = location.scratch()?;
        let stem = format!("{}.balance-", scratch.stem);
        Ok(Self { directory: Arc::new(scratch.directory), path: scratch.path, stem })
    }

    /// Root's own, if it is there and nobody else can make files in it.
    fn of_root(&self, path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty()).ok()?;
        let stat = fstat(&directory).ok()?;
        let fit = stat.st_uid == 0 && stat.st_mode & 0o022 == 0;
        fit.then(|| Self { directory: Arc::new(directory), path: path.to_owned(), stem: self.stem.clone() })
    }

    /// The same, made if it is not there.
    fn make_of_root(&self, path: &Path) -> Option<Self> {
        // Where it cannot be made, all records are in the shared one.
        let _ = mkdirat(CWD, path, Mode::from_raw_mode(0o755));
        self.of_root(path)
    }

    fn name(&self, pid: Pid, start: StartTime) -> String {
        format!("{}{pid}-{}", self.stem, start.0)
    }

    /// The process that a file's name stands for.
    fn process(&self, name: &str) -> Option<(Pid, StartTime)> {
        let (pid, start) = name.strip_prefix(&self.stem)?.split_once('-')?;
        let (pid, start) = (Pid(pid.parse().ok()?), StartTime(start.parse().ok()?));
        (self.name(pid, start) == name).then_some((pid, start))
    }

    fn failed(&self, attempt: &'static str, name: &str, error: impl Into<io::Error>) -> JournalError {
        JournalError::Io { attempt, path: self.path.join(name), source: error.into() }
    }

    /// A file that is there.
    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(&self.directory, name, flags, Mode::empty())
    }
}

/// Whether a file may be a record: plain, known by one name only.
fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1
}

/// The process-id namespace of this process, if `proc` shows it.
fn namespace(proc: &Path) -> u64 {
    std::fs::metadata(proc.join("self/ns/pid")).map_or(0, |meta| meta.ino())
}

/// What a file holds, at most [`BYTES_MAX`].
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
    /// A keeper for this process in the ledger's directory. `proc` is where procfs is mounted.
    ///
    /// # Errors
    /// [`JournalError`]: one warning, and the balancing goes on without.
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

    /// With a guardian, which is started before the first mask is set.
    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guard = Some(Arc::new(guard));
        self
    }

    /// As that of a service that listens at this socket.
    #[must_use]
    pub fn serving(mut self, socket: &Path) -> Self {
        self.socket = Some(socket.to_owned());
        self
    }

    /// Makes sure that the guardian lives, if there is to be one and it was started.
    pub(super) fn tend(&self) {
        if let Some(guard) = &self.guard {
            guard.tend();
        }
    }

    /// Why there is no guardian, if there should be one.
    pub(super) fn guard_fault(&self) -> Option<String> {
        self.guard.as_ref()?.fault()
    }

    /// The guardian's process, if it runs.
    pub(super) fn guardian(&self) -> Option<Pid> {
        self.guard.as_ref()?.pid()
    }

    /// Where records are that are not with ours, if there are such.
    fn elsewhere(&self) -> Option<Folder> {
        if self.folder.path != self.shared.path {
            return Some(self.shared.clone());
        }
        // Looked for each time: it comes with the first balancer of root's.
        self.shared.of_root(self.of_root.as_deref()?)
    }

    /// Who balances this process now, if another does; 0 where its number cannot be read.
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
        // Left behind by a killed one, or being restored: nobody's.
        conflict(file.as_fd(), LOCKED).ok()??;
        match header(&file, &stat) {
            Some(header) => self.lives(&header).then_some(header.balancer.0),
            None => Some(0),
        }
    }

    /// Whether what a record's owner says of this process counts: ours, root's, and to root those of the process's user.
    fn is_believed(&self, stat: &Stat, pid: Pid) -> bool {
        [0, geteuid().as_raw()].contains(&stat.st_uid) || self.is_its_users(stat, pid)
    }

    /// Whether a record is of the process's user, and that is for root to judge.
    fn is_its_users(&self, stat: &Stat, pid: Pid) -> bool {
        let owner = || std::fs::metadata(self.proc.join(pid.to_string())).map(|meta| meta.uid());
        geteuid().is_root() && owner().is_ok_and(|owner| owner == stat.st_uid)
    }

    /// Whether the balancer that a record names is there; one of another namespace cannot be looked for.
    fn lives(&self, header: &Header) -> bool {
        header.namespace != self.namespace
            || process::stat(&self.proc, header.balancer).is_ok_and(|stat| stat.start == header.start)
    }

    /// Whether a record that is not ours to open is one of root's that is in use. The kernel lists all locks by their files.
    fn is_held_by_root(&self, folder: &Folder, name: &str) -> bool {
        let Ok(stat) = statat(&*folder.directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        if stat.st_uid != 0 || !is_plain(&stat) {
            return false;
        }
        let file = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
        // Where they are not listed, it is better not to move what root may be moving.
        text::read(&self.proc.join("locks"))
            .map_or(true, |locks| text::words(&locks).any(|word| word == file.as_bytes()))
    }

    /// Claims a process, before any of its threads is moved.
    pub(super) fn claim(&self, pid: Pid, start: StartTime, root: Pid) -> Result<Claim, JournalError> {
        let name = self.folder.name(pid, start);
        let (file, stat) = match self.lock(&name, pid, start)? {
            Locked::Ours(file, stat) => (file, stat),
            Locked::Others(balancer) => return Ok(Claim::Others(balancer)),
        };
        let mut left = self.left_in(&file, &stat, pid);
        // Only now that ours is locked: who looks for ours after this sees it.
        if let Some(folder) = self.elsewhere() {
            if let Some(balancer) = self.balancer_in(&folder, pid, start) {
                if left.is_none_or(|left| left.threads.is_empty()) && stat.st_uid == geteuid().as_raw() {
                    let _ = unlinkat(&*self.folder.directory, &name, AtFlags::empty());
                }
                return Ok(Claim::Others(balancer));
            }
            if let Some(theirs) = self.take_over(&folder, &name, pid) {
                // What we noted ourselves is the later.
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
        Ok(Claim::Ours(record))
    }

    /// The record's file, made if it is not there, and locked.
    fn lock(&self, name: &str, pid: Pid, start: StartTime) -> Result<Locked, JournalError> {
        let path = self.folder.path.join(name);
        let mut holder = None;
        for _ in 0..ATTEMPTS {
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
                continue; // removed since
            }
            let ours = [0, geteuid().as_raw()].contains(&stat.st_uid);
            if !is_plain(&stat) || !(ours || self.is_its_users(&stat, pid)) {
                let held = is_plain(&stat) && self.balancer_in(&self.folder, pid, start).is_some();
                return if held {
                    Ok(Locked::Others(header(&file, &stat).map_or(0, |header| header.balancer.0)))
                } else {
                    Err(JournalError::Squatted { path, uid: stat.st_uid })
                };
            }
            match try_lock(file.as_fd(), LOCKED, LockKind::Write) {
                Ok(true) => {}
                Ok(false) => {
                    let named = header(&file, &stat);
                    let balancer = named.as_ref().map_or(0, |header| header.balancer.0);
                    if named.is_some_and(|header| self.lives(&header)) {
                        return Ok(Locked::Others(balancer));
                    }
                    // Somebody who restores it, or who has not said yet who it is.
                    holder = Some(balancer);
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => return Err(self.folder.failed("locking", name, error)),
            }
            // Whoever had the lock before may have removed the name; then it is nobody's file any more.
            let stat = fstat(&file).map_err(|error| failed("looking at", error))?;
            if stat.st_nlink == 0 {
                continue;
            }
            return Ok(Locked::Ours(file, stat));
        }
        holder.map(Locked::Others).ok_or(JournalError::Unsettled { path })
    }

    /// What a killed balancer left in a file that is locked. A user's record counts for that user's threads.
    fn left_in(&self, file: &OwnedFd, stat: &Stat, pid: Pid) -> Option<Lines> {
        let lines = contents(file, stat).and_then(|text| Lines::decode(&text));
        let mut lines = lines.filter(|lines| lines.header.namespace == self.namespace)?;
        if stat.st_uid != geteuid().as_raw() && stat.st_uid != 0 {
            lines.threads.retain(|tid, _| left::is_theirs(&self.proc, pid, *tid, stat.st_uid));
        }
        Some(lines)
    }

    /// What a killed balancer left in the other folder, if that is for us to give back; there it is gone then.
    fn take_over(&self, folder: &Folder, name: &str, pid: Pid) -> Option<Lines> {
        let file = folder.open(name).ok()?;
        let stat = fstat(&file).ok().filter(is_plain)?;
        let ours = stat.st_uid == geteuid().as_raw() || self.is_its_users(&stat, pid);
        if !ours || !try_lock(file.as_fd(), LOCKED, LockKind::Write).ok()? {
            return None;
        }
        let stat = fstat(&file).ok().filter(is_plain)?;
        let lines = self.left_in(&file, &stat, pid)?;
        // Best effort, both: as long as the name is there, it should say nothing more.
        let _ = ftruncate(&file, 0);
        let _ = unlinkat(&*folder.directory, name, AtFlags::empty());
        Some(lines)
    }

    /// Begins a record in a file that is locked. What a killed balancer left is taken over: its threads' own masks are those
    /// that it found, not those that it set.
    fn begin(
        &self,
        file: OwnedFd,
        stat: &Stat,
        name: String,
        root: Pid,
        left: Option<Lines>,
    ) -> Result<Record, JournalError> {
        let generation = left.as_ref().map_or(0, |lines| lines.header.generation.wrapping_add(1));
        let ((balancer, start), socket) = (self.own, self.socket.clone());
        let header = Header { generation, balancer, start, namespace: self.namespace, root, socket };
        let threads = left.map(|lines| lines.threads).unwrap_or_default();
        let mut record =
            Record { file, folder: self.folder.clone(), name, lines: Lines { header, threads }, end: 0 };
        // In its owner's file we write nothing that we will believe.
        let theirs = ![0, geteuid().as_raw()].contains(&stat.st_uid);
        if record.lines.threads.is_empty() && !theirs {
            // Nothing that could be lost.
            record.write_here()?;
        } else {
            record.write_anew()?;
        }
        Ok(record)
    }
}

/// A record's file, locked by us or looked after by another.
enum Locked {
    Ours(OwnedFd, Stat),
    Others(u32),
}

/// Who has a record, by its own account.
fn header(file: &OwnedFd, stat: &Stat) -> Option<Header> {
    contents(file, stat).and_then(|text| Lines::decode(&text)).map(|lines| lines.header)
}

/// The record of one process, ours as long as this lives.
#[derive(Debug)]
pub(super) struct Record {
    file: OwnedFd,
    folder: Folder,
    name: String,
    lines: Lines,
    end: u64,
}

impl Record {
    /// What a balancer before us found, of threads that it did not give back; of one born since, by the mask that it was born with.
    pub(super) fn entry(&self, tid: Tid, start: StartTime, mask: &CpuSet) -> Option<&Entry> {
        let noted = self.lines.threads.get(&tid).filter(|entry| entry.start == start);
        noted.or_else(|| self.lines.threads.values().find(|entry| entry.gave(mask, None)))
    }

    /// Writes down what will be done to a thread, before it is done.
    pub(super) fn note(&mut self, tid: Tid, entry: Entry) -> Result<(), JournalError> {
        let noted = self.lines.threads.get(&tid);
        let entry = entry.after(noted);
        if noted == Some(&entry) {
            return Ok(());
        }
        let line = entry.encode(self.lines.header.generation, tid);
        self.lines.threads.insert(tid, entry);
        // Two lines a thread.
        let anew = 256 + self.lines.threads.len() as u64 * 2 * (line.len() as u64 + 16);
        if self.end > ANEW_BYTES && self.end > 4 * anew && self.write_anew().is_ok() {
            return Ok(());
        }
        self.append(&line)
    }

    /// A thread has ended: its number and start will not come again.
    pub(super) fn ended(&mut self, tid: Tid) {
        self.lines.threads.remove(&tid);
    }

    /// A thread has its own mask back.
    pub(super) fn forget(&mut self, tid: Tid) {
        let Some(entry) = self.lines.threads.remove(&tid) else { return };
        let held = entry.home.clone();
        let line = Entry { held, before: None, ..entry }.encode(self.lines.header.generation, tid);
        // Best effort: what is not written leaves a line about a thread that no longer has that mask.
        let _ = self.append(&line);
    }

    /// Everything was given back: nothing remains to be kept.
    pub(super) fn finish(self) {
        // Best effort: a record without a lock whose threads all have their own masks does no harm.
        let _ = unlinkat(&*self.folder.directory, &self.name, AtFlags::empty());
    }

    fn append(&mut self, line: &str) -> Result<(), JournalError> {
        self.write(&self.file, self.end, line.as_bytes())?;
        self.end += line.len() as u64;
        Ok(())
    }

    /// Writes all of it from the start. Longer lines of before that stay behind are of no generation that counts.
    fn write_here(&mut self) -> Result<(), JournalError> {
        let text = self.lines.encode();
        self.write(&self.file, 0, text.as_bytes())?;
        self.end = text.len() as u64;
        Ok(())
    }

    /// Writes all of it to another file, which then takes the name: killed at any moment, one of the two is there and whole.
    fn write_anew(&mut self) -> Result<(), JournalError> {
        let mut lines = self.lines.clone();
        lines.header.generation = lines.header.generation.wrapping_add(1);
        let (text, new) = (lines.encode(), format!("{}.new", self.name));
        let directory = &*self.folder.directory;
        let failed = |attempt, error: io::Error| self.folder.failed(attempt, &new, error);
        // Left there by one that was killed just then.
        let _ = unlinkat(directory, &new, AtFlags::empty());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed("making", error.into()))?;
        // Locked before it has the name, so that the name is never seen without a lock.
        let made = try_lock(file.as_fd(), LOCKED, LockKind::Write)
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
        // Beyond the limit of this process the kernel does not just refuse, it kills us (SIGXFSZ).
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

/// Threads by number: what is to be given back.
type Entries = BTreeMap<Tid, Entry>;

#[cfg(test)]
mod tests;
