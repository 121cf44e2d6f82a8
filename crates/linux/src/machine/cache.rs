//! Cache files, kept between starts: of the model, and of other readings of this boot.
//!
//! A cache file is read once and trusted only if the caller or root wrote it and no other user
//! could. It is replaced atomically and never repaired: a file that does not decode is overwritten.

use super::codec::MAX_BYTES;
use super::key::{Key, KeyError};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest number of drafts with one process number, of processes at work or killed while writing.
const MAX_DRAFTS: u32 = 64;

/// Reason why a model could not be kept for the next start.
#[derive(Debug, Error)]
pub enum CacheFault {
    /// The running machine has no key.
    #[error(transparent)]
    NoKey(KeyError),
    /// Root runs with another user's home, as under `sudo`: files of root in it would hinder that
    /// user later.
    #[error("{} belongs to user {owner}, and this process runs as root", folder.display())]
    ForeignFolder {
        /// The directory.
        folder: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Writing failed.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file or directory that could not be written.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns the file of a boot in a cache directory: `machine.3f`, by the first two digits of the
/// boot id, or `devices.3f` for a model with devices.
///
/// With a single file, computers that share a home directory, and boots, would overwrite each
/// other's model at every start. Boot ids are random, so two of them rarely meet in one of the 256
/// files, and there are never more files than that.
pub fn slot(folder: &Path, key: &Key, devices: bool) -> PathBuf {
    let digits: String = key.boot().chars().filter(char::is_ascii_hexdigit).take(2).collect();
    folder.join(format!("{}.{digits}", if devices { "devices" } else { "machine" }))
}

/// Returns the bytes of a cache file that only this user or root can have written.
pub(crate) fn read(file: &Path) -> Option<Vec<u8>> {
    // O_NONBLOCK: a FIFO at this path must not block the start.
    let mut open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(file)
        .ok()?;
    let about = open.metadata().ok()?;
    let owned = about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw();
    let sealed = about.mode() & 0o022 == 0;
    let size = usize::try_from(about.len()).ok().filter(|&size| size <= MAX_BYTES)?;
    if !about.is_file() || !owned || !sealed {
        return None;
    }
    let mut bytes = vec![0; size];
    // Replaced files are whole, so a file that shrinks meanwhile was not written by trimtab.
    open.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Replaces `file` by `bytes`, wholly or not at all.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> Result<(), CacheFault> {
    let fault = |path: &Path, source| CacheFault::Write { path: path.to_owned(), source };
    let Some(folder) = file.parent() else {
        return Err(fault(file, io::ErrorKind::InvalidInput.into()));
    };
    if rustix::process::geteuid().is_root() {
        let (folder, owner) = nearest(folder).map_err(|source| fault(folder, source))?;
        if owner != 0 {
            return Err(CacheFault::ForeignFolder { folder: folder.to_owned(), owner });
        }
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| fault(folder, source))?;
    let (draft, mut open) = draft(folder).map_err(|source| fault(folder, source))?;
    open.write_all(bytes).and_then(|()| fs::rename(&draft, file)).map_err(|source| {
        let _ = fs::remove_file(&draft);
        fault(file, source)
    })
}

/// Returns the folder, or its nearest ancestor that exists, and its owner.
fn nearest(folder: &Path) -> io::Result<(&Path, u32)> {
    let mut missing = io::ErrorKind::NotFound.into();
    for folder in folder.ancestors() {
        match fs::metadata(folder) {
            Ok(about) => return Ok((folder, about.uid())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
            Err(error) => return Err(error),
        }
    }
    Err(missing)
}

/// Creates a new file in `folder`. A process in another container may have the same number, so the
/// name is tried, not trusted. A draft of another process is never removed, since that process
/// would then rename this one's half-written draft into place.
fn draft(folder: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let path = folder.join(format!(".machine.{}.{number}", std::process::id()));
        let flags = libc::O_NOFOLLOW;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_DRAFTS => number += 1,
            other => return other.map(|open| (path, open)),
        }
    }
}
