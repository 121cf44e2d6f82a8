//! Opening and creation of the ledger's files. Opening does not trust the file's maker; creation
//! makes the files usable for all users.
//!
//! An existing file is opened without `O_CREAT`: with `fs.protected_regular` the kernel refuses
//! `O_CREAT` on another user's file in a sticky directory even if the file exists and its mode
//! allows access. A missing file is made under a private name, opened to all past the umask, and
//! only then given its name, so no process ever finds a half-made file.

use super::error::{Fault, FoundFile, LedgerError};
use super::listing::{Identity, Listing};
use super::place::{LedgerDirectory, LedgerPart, kind_in_words};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fstat, ftruncate, openat, renameat_with,
    statat, unlinkat,
};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

/// Purpose for which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Reading only.
    Read,
    /// Taking CPUs.
    Write,
}

/// An opened file of the ledger.
#[derive(Debug)]
pub(super) struct LedgerFile {
    pub(super) descriptor: OwnedFd,
    pub(super) identity: Identity,
    /// The file is not empty: it contains [`PREDECESSORS`].
    pub(super) has_predecessors: bool,
}

/// Outcome of opening a name.
pub(super) enum Opened {
    Yes(LedgerFile),
    /// The file exists, but this process may not open it.
    Closed(Identity, LedgerError),
    Absent,
}

/// Number of times a name may appear and vanish before the cause is called interference. Chosen: an
/// honest race needs two.
const ATTEMPTS_MAX: u32 = 16;

/// Content of a lock file as long as there may be holds on deleted files that had its name before.
/// Only the presence of content counts; the words are for readers of the file.
const PREDECESSORS: &[u8] =
    b"An earlier ledger here was deleted while CPUs were held; /proc/locks still lists them.\n";

impl LedgerDirectory {
    /// Opens an existing file.
    pub(super) fn open(&self, part: LedgerPart, access: Access) -> Result<Opened, LedgerError> {
        let name = self.name(part);
        let access_flag = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        // NONBLOCK: opening a named pipe must not wait for its other end. NOCTTY: a terminal must
        // not become our controlling terminal.
        let flags = access_flag | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let refused =
            |stat: &Stat, fault| LedgerError::Refused { path: self.path(part), found: found(stat), fault };
        match openat(&*self.directory, &name, flags, Mode::empty()) {
            Ok(descriptor) => {
                let stat = fstat(&descriptor).map_err(|error| self.failed("looking at", part, error))?;
                if stat.st_nlink == 0 {
                    return Ok(Opened::Absent); // deleted after the open
                }
                if let Some(fault) = fault(&stat, access) {
                    return Err(refused(&stat, fault));
                }
                let (identity, has_predecessors) = (Identity::of(&stat), stat.st_size != 0);
                Ok(Opened::Yes(LedgerFile { descriptor, identity, has_predecessors }))
            }
            Err(Errno::NOENT) => Ok(Opened::Absent),
            // Links, directories, sockets and closed files each fail with their own error: check
            // which kind of file is there.
            Err(error) => match statat(&*self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => match fault(&stat, access) {
                    Some(fault @ (Fault::Kind | Fault::Linked)) => Err(refused(&stat, fault)),
                    fault if error == Errno::ACCESS || error == Errno::PERM => Ok(Opened::Closed(
                        Identity::of(&stat),
                        refused(&stat, fault.unwrap_or(Fault::Denied)),
                    )),
                    _ => Err(self.failed("opening", part, error)),
                },
                Err(Errno::NOENT) => Ok(Opened::Absent),
                Err(_) => Err(self.failed("opening", part, error)),
            },
        }
    }

    /// Opens a file for taking CPUs, and makes it first if it does not exist.
    pub(super) fn open_or_create(&self, part: LedgerPart) -> Result<LedgerFile, LedgerError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.open(part, Access::Write)? {
                Opened::Yes(file) => return Ok(file),
                Opened::Closed(_, error) => return Err(error),
                Opened::Absent => self.create(part)?,
            }
        }
        Err(LedgerError::Unsettled { path: self.path(part) })
    }

    /// Opens the same file once more, for a description of its own.
    pub(super) fn reopen(&self, part: LedgerPart, identity: Identity) -> Result<OwnedFd, LedgerError> {
        match self.open(part, Access::Write)? {
            Opened::Yes(file) if file.identity == identity => Ok(file.descriptor),
            Opened::Closed(_, error) => Err(error),
            Opened::Yes(_) | Opened::Absent => Err(LedgerError::Replaced { path: self.path(part) }),
        }
    }

    /// Checks that the name still belongs to this very file.
    pub(super) fn confirm(&self, part: LedgerPart, identity: Identity) -> Result<(), LedgerError> {
        match statat(&*self.directory, self.name(part), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if Identity::of(&stat) == identity => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(LedgerError::Replaced { path: self.path(part) }),
            Err(error) => Err(self.failed("looking at", part, error)),
        }
    }

    pub(super) fn failed(
        &self,
        attempt: &'static str,
        part: LedgerPart,
        error: impl Into<io::Error>,
    ) -> LedgerError {
        LedgerError::Io { attempt, path: self.path(part), source: error.into() }
    }

    /// Makes the file. If another process makes it at the same time, the result is the same.
    fn create(&self, part: LedgerPart) -> Result<(), LedgerError> {
        let failed = |error| self.failed("creating", part, error);
        // The time in the name avoids a collision with a leftover of a killed process that had our
        // pid, or with a squatter.
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let temporary = format!(".{}.{}.{nanoseconds}", self.name(part), process::id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&*self.directory, &temporary, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(()), // the caller tries again, under another name
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => return Err(self.closed(part, error)),
            Err(error) => return Err(failed(error)),
        };
        let named = fchmod(&file, Mode::from_raw_mode(0o666))
            .and_then(|()| if part == LedgerPart::Locks { mark(&file) } else { Ok(()) })
            .and_then(|()| {
                renameat_with(
                    &*self.directory,
                    &temporary,
                    &*self.directory,
                    self.name(part),
                    RenameFlags::NOREPLACE,
                )
            });
        match named {
            Ok(()) => {
                self.forget_predecessors(part, &file);
                Ok(())
            }
            Err(error) => {
                // Best effort: the leftover is an empty file that does no harm.
                let _ = unlinkat(&*self.directory, &temporary, AtFlags::empty());
                if error == Errno::EXIST { Ok(()) } else { Err(failed(error)) }
            }
        }
    }

    /// Removes the mark from a new file when no holds on deleted ones are left. Must be done after
    /// the file has its name and not before: from then on no taking on another file is confirmed,
    /// so holds on other files can only end. A process that opens the file in between, or after a
    /// creator that was interrupted before this step, searches for such holds and finds none, which
    /// is harmless.
    fn forget_predecessors(&self, part: LedgerPart, file: &OwnedFd) {
        let Ok(stat) = fstat(file) else { return };
        if part == LedgerPart::Locks
            && Listing::of_system(&self.proc_root).lost(self.tag, Identity::of(&stat)).is_empty()
        {
            let _ = ftruncate(file, 0);
        }
    }
}

fn mark(file: &OwnedFd) -> Result<(), Errno> {
    // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < PREDECESSORS.len() as u64) {
        return Err(Errno::FBIG);
    }
    pwrite(file, PREDECESSORS, 0).map(drop)
}

fn fault(stat: &Stat, access: Access) -> Option<Fault> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some(Fault::Kind)
    } else if stat.st_nlink > 1 {
        Some(Fault::Linked)
    } else if access == Access::Write && stat.st_mode & 0o666 != 0o666 {
        Some(Fault::Private)
    } else {
        None
    }
}

#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn found(stat: &Stat) -> FoundFile {
    FoundFile {
        kind: kind_in_words(stat.st_mode),
        uid: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        links: u64::from(stat.st_nlink),
    }
}
