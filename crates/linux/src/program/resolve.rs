//! Resolution of the word a user typed to the file that exec would run.
//!
//! As execvp(3): a word with a slash is a path. Any other is searched in the directories of `PATH`,
//! an empty one being the current directory. A file that may not be executed is skipped as long as
//! another directory may have the program, and so is a directory that cannot be examined, such as
//! one of a file system that is gone: shells pass over it too. The search ends at a file that
//! cannot be examined for another reason, such as a lack of memory: a program of the same name must
//! not take its place.

use rustix::fs::{Access, FileType, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Directories that the C library searches when there is no `PATH`.
const DEFAULT_SEARCH_PATH: &str = "/bin:/usr/bin";

/// Reason why a command cannot be run.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The file does not exist.
    #[error("{}: no such file", path.display())]
    NoSuchFile {
        /// The path that was given.
        path: PathBuf,
    },
    /// No directory of the search path has such a file.
    #[error("{}: not found in PATH", command.display())]
    NotInPath {
        /// The word that was given.
        command: OsString,
    },
    /// The file exists, but it is not executable by this user, or on a file system mounted
    /// `noexec`.
    #[error("{}: not executable", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// It is a directory.
    #[error("{}: is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file could not be checked.
    #[error("{}: {source}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl ResolveError {
    /// Returns the exit status that shells and `env` give for it: 127 for a command that is not
    /// found, 126 for one that cannot be executed.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoSuchFile { .. } | Self::NotInPath { .. } => 127,
            Self::NotExecutable { .. } | Self::Directory { .. } | Self::Unknown { .. } => 126,
        }
    }
}

/// Returns the file that `command` means, given the text of `PATH` (`None` when it is not set).
///
/// # Errors
/// No file can be executed.
pub fn resolve(command: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, ResolveError> {
    search(command, search_path, check).map(|(path, _)| path)
}

/// Returns the first file that `command` may mean and that passes a check, with its result.
pub(super) fn search<T>(
    command: &OsStr,
    search_path: Option<&OsStr>,
    check: impl Fn(&Path) -> Result<T, ResolveError>,
) -> Result<(PathBuf, T), ResolveError> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return check(&path).map(|seen| (path, seen));
    }
    let not_found = || ResolveError::NotInPath { command: command.to_owned() };
    if command.is_empty() {
        return Err(not_found());
    }
    let mut obstacle = None;
    for dir in search_path.unwrap_or(DEFAULT_SEARCH_PATH.as_ref()).as_bytes().split(|&byte| byte == b':') {
        let dir = if dir.is_empty() { b"." } else { dir };
        let path = Path::new(OsStr::from_bytes(dir)).join(command);
        match check(&path) {
            Ok(seen) => return Ok((path, seen)),
            Err(ResolveError::NoSuchFile { .. }) => {}
            Err(error) if error.is_passed_over() => obstacle = obstacle.or(Some(error)),
            Err(_) if !can_be_examined(dir) => {}
            Err(error) => return Err(error),
        }
    }
    Err(obstacle.unwrap_or_else(not_found))
}

fn can_be_examined(dir: &[u8]) -> bool {
    rustix::fs::stat(Path::new(OsStr::from_bytes(dir))).is_ok()
}

/// Checks whether exec would accept this file, and returns its known properties. The file is not
/// opened.
pub(super) fn check(path: &Path) -> Result<Stat, ResolveError> {
    let refused = |errno: Errno| ResolveError::of(path, errno);
    let meta = rustix::fs::stat(path).map_err(refused)?;
    ResolveError::by_kind(path, meta.st_mode)?;
    rustix::fs::access(path, Access::EXEC_OK).map_err(refused)?;
    Ok(meta)
}

impl ResolveError {
    /// Makes the error for a file at which a call failed.
    pub(super) fn of(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NoSuchFile { path },
            Errno::ACCESS => Self::NotExecutable { path },
            errno => Self::Unknown { path, source: errno.into() },
        }
    }

    /// Returns whether a search goes on after this error, as that of execvp(3).
    fn is_passed_over(&self) -> bool {
        let Self::Unknown { source, .. } = self else { return true };
        // A file system that is gone, and a folder whose name is too long.
        let passed = [Errno::STALE, Errno::NODEV, Errno::TIMEDOUT, Errno::NAMETOOLONG];
        passed.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// Refuses a file that is not a regular one.
    fn by_kind(path: &Path, mode: u32) -> Result<(), Self> {
        match FileType::from_raw_mode(mode) {
            FileType::Directory => Err(Self::Directory { path: path.to_owned() }),
            FileType::RegularFile => Ok(()),
            _ => Err(Self::NotExecutable { path: path.to_owned() }),
        }
    }
}
