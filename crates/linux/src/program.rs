//! Properties of a command, read from its file.
//!
//! Before the launcher starts a program, it must determine which of its means can reach the
//! program: a preloaded library reaches dynamic programs that are not privileged, thread counts go
//! to runtimes by name, and a managed runtime moves its threads itself. All of this is read from a
//! few hundred bytes of the file, whatever its size.
//!
//! The file is not trusted: it may be damaged, or made to mislead. The worst consequence is a wrong
//! answer.

pub mod build;
mod elf;
mod facts;
mod mention;
mod resolve;
mod script;

pub use elf::{Binary, Linkage, WordSize};
pub use resolve::{ResolveError, resolve};
pub use trimtab_launch::Family;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes read from the beginning of a file: the kernel itself reads 256 bytes for `#!`, and a page
/// holds the headers of nearly every program.
const HEAD_BYTES: usize = 4096;

/// A command and the properties of its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Program {
    /// The path to execute.
    pub path: PathBuf,
    /// The kind of file.
    pub kind: FileKind,
    /// For a script, the program that will read it: the one named after `#!`, or the one that `env`
    /// would start. `None` if that program does not exist.
    pub interpreter: Option<PathBuf>,
    /// The executable that will run, the program's own or its interpreter's. `None` if it cannot be
    /// read or parsed: then nothing is known about it.
    pub binary: Option<Binary>,
    /// The kind of program, by its name or its interpreter's.
    pub family: Option<Family>,
    /// Reason why the loader will ignore `LD_PRELOAD` and the like. By the file alone: for a user
    /// who already has the privilege that the file gives, it runs as any other program.
    pub secure_exec: Option<SecureExec>,
}

/// Kind of a command's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// An ELF executable.
    Elf,
    /// A text that starts with `#!`.
    Script,
    /// Any other file: exec will refuse it, and shells will try to read it as a shell script.
    Other,
    /// A file that may be executed but not read.
    Unreadable,
}

/// Property of a file that makes a program run with more privilege than its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecureExec {
    /// The set-user-id bit.
    SetUid,
    /// The set-group-id bit.
    SetGid,
    /// File capabilities.
    Capabilities,
}

/// A file could not be inspected.
#[derive(Debug, Error)]
#[error("cannot inspect {}: {source}", path.display())]
pub struct InspectError {
    /// The file.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: std::io::Error,
}

impl Program {
    /// Inspects a file that [`resolve()`] found. `search_path` is the text of `PATH`, for scripts
    /// that find their interpreter by `env`.
    ///
    /// # Errors
    /// The file is gone or cannot be opened for another reason than its permissions.
    pub fn look(path: &Path, search_path: Option<&OsStr>) -> Result<Self, InspectError> {
        let seen = InspectedFile::look(path)
            .map_err(|errno| InspectError { path: path.to_owned(), source: errno.into() })?;
        Ok(Self::of(path, seen, search_path))
    }

    /// Finds the file that a command means, as [`resolve()`], and inspects it. The file is opened
    /// once for both.
    ///
    /// # Errors
    /// No file can be executed, or the one that can cannot be read.
    pub fn find(command: &OsStr, search_path: Option<&OsStr>) -> Result<Self, ResolveError> {
        let executable = |path: &Path| {
            // Only a regular file is opened: a writer would notice that a FIFO is.
            let meta = resolve::check(path)?;
            OpenedFile::open(path, Some(meta)).map_err(|errno| ResolveError::of(path, errno))
        };
        let (path, opened) = resolve::search(command, search_path, executable)?;
        let seen = InspectedFile::of(&path, opened).map_err(|errno| ResolveError::of(&path, errno))?;
        Ok(Self::of(&path, seen, search_path))
    }

    fn of(path: &Path, seen: InspectedFile, search_path: Option<&OsStr>) -> Self {
        let own_family = family_of(path, seen.is_link);
        if seen.kind != FileKind::Script {
            let InspectedFile { kind, binary, secure_exec, .. } = seen;
            let path = path.to_owned();
            return Self { path, kind, interpreter: None, binary, family: own_family, secure_exec };
        }
        // The kernel ignores the set-id bits of a script; those of its interpreter count.
        let interpreter = script::interpreter(&seen.head).and_then(|command| command.find(search_path));
        let reader = interpreter.as_deref().and_then(|path| InspectedFile::look(path).ok());
        let is_link = reader.as_ref().is_some_and(|reader| reader.is_link);
        let (binary, secure_exec) = reader.map_or((None, None), |reader| (reader.binary, reader.secure_exec));
        let family = own_family.or_else(|| family_of(interpreter.as_deref()?, is_link));
        Self { path: path.to_owned(), kind: FileKind::Script, interpreter, binary, family, secure_exec }
    }

    /// Returns whether its file contains a word, as it contains the name of a function that it
    /// calls; `None` if unknown: the file is longer than `bytes` or cannot be read.
    pub fn mentions(&self, word: &str, bytes: usize) -> Option<bool> {
        mention::mentions(&self.path, word.as_bytes(), bytes)
    }

    /// Returns whether a library can be preloaded into the executable that will run: a dynamic
    /// program without privilege. `None` if unknown.
    pub fn takes_preload(&self) -> Option<bool> {
        if self.secure_exec.is_some() {
            return Some(false);
        }
        self.binary.as_ref().map(|binary| binary.linkage() == Linkage::Dynamic)
    }
}

/// Returns the family of a file, by its name or, failing that, by the name of the file it links to.
/// A file that is not a link has no other name, whatever links lead to its folder.
fn family_of(path: &Path, is_link: bool) -> Option<Family> {
    let by_name = |path: &Path| Family::of_name(path.file_name()?.to_str()?);
    by_name(path).or_else(|| is_link.then(|| by_name(&std::fs::canonicalize(path).ok()?)).flatten())
}

/// One file, whatever its role for the command.
struct InspectedFile {
    kind: FileKind,
    /// Whether its path names a link to it.
    is_link: bool,
    /// Its beginning; empty if it was not read.
    head: Vec<u8>,
    binary: Option<Binary>,
    secure_exec: Option<SecureExec>,
}

/// An open file, before it is read.
struct OpenedFile {
    /// `None` if it may not be read.
    file: Option<OwnedFd>,
    /// Whether its path names a link to it.
    is_link: bool,
    /// Its kind and permissions.
    mode: u32,
    /// Its length.
    bytes: u64,
}

impl OpenedFile {
    /// Opens a file, of which `meta` is read unless it is known.
    fn open(path: &Path, meta: Option<Stat>) -> Result<Self, Errno> {
        // Opened without blocking, in case the path is not a regular file.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let (is_link, opened) = match rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::LOOP) => (true, rustix::fs::open(path, flags, Mode::empty())),
            opened => (false, opened),
        };
        let file = match opened {
            Err(Errno::ACCESS) => None,
            opened => Some(opened?),
        };
        let read = || file.as_ref().map_or_else(|| rustix::fs::stat(path), rustix::fs::fstat);
        let meta = meta.map_or_else(read, Ok)?;
        let bytes = u64::try_from(meta.st_size).unwrap_or(0);
        Ok(Self { file, is_link, mode: meta.st_mode, bytes })
    }
}

impl InspectedFile {
    fn look(path: &Path) -> Result<Self, Errno> {
        Self::of(path, OpenedFile::open(path, None)?)
    }

    fn of(path: &Path, opened: OpenedFile) -> Result<Self, Errno> {
        let OpenedFile { file, is_link, mode, bytes } = opened;
        let unread = |kind, secure_exec| Self { kind, is_link, head: Vec::new(), binary: None, secure_exec };
        let Some(file) = file else { return Ok(unread(FileKind::Unreadable, secure_exec(path, mode))) };
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return Ok(unread(FileKind::Other, None));
        }
        let mut head = vec![0; HEAD_BYTES];
        // A read of a disk file is short only at its end.
        let length = rustix::io::pread(&file, &mut head[..], 0)?;
        head.truncate(length);
        let kind = match &head[..] {
            [b'#', b'!', ..] => FileKind::Script,
            [0x7f, b'E', b'L', b'F', ..] => FileKind::Elf,
            _ => FileKind::Other,
        };
        let binary = if kind == FileKind::Elf { Binary::read(file.into(), bytes, &head) } else { None };
        Ok(Self { kind, is_link, head, binary, secure_exec: secure_exec(path, mode) })
    }
}

fn secure_exec(path: &Path, mode: u32) -> Option<SecureExec> {
    const SET_UID: u32 = 0o4000;
    // Without the group's x the bit once had another meaning (mandatory locks) and gives nothing.
    const SET_GID: u32 = 0o2010;
    if mode & SET_UID != 0 {
        return Some(SecureExec::SetUid);
    }
    if mode & SET_GID == SET_GID {
        return Some(SecureExec::SetGid);
    }
    // The longest version of the attribute takes 24 bytes.
    let mut value = [0u8; 64];
    let capabilities = rustix::fs::getxattr(path, c"security.capability", &mut value);
    matches!(capabilities, Ok(1..) | Err(Errno::RANGE)).then_some(SecureExec::Capabilities)
}
