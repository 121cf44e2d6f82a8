//! What a command is, by looking at its file.
//!
//! The launcher wants to know, before it starts a program, which of its means can reach it: a preloaded library reaches
//! dynamic programs that are not privileged; thread counts go to runtimes by name; a managed runtime moves its threads
//! itself. All of this is read from a few hundred bytes of the file, however large it is.
//!
//! The file is not trusted: it may be damaged, or made to mislead. The worst that follows is a wrong answer.

mod elf;
mod facts;
mod mention;
mod resolve;
mod script;

pub use elf::{Binary, Linkage, WordSize};
pub use resolve::{ResolveError, resolve};
pub use trimtab_launch::Family;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How much of a file's beginning is read: the kernel itself looks at 256 bytes for `#!`, and a page holds the headers
/// of nearly every program.
const HEAD_BYTES: usize = 4096;

/// A command, looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Program {
    /// What would be executed.
    pub path: PathBuf,
    /// What kind of file it is.
    pub kind: Kind,
    /// For a script, the program that will read it: the one named after `#!`, seen through `env`. `None` when there is no
    /// such program.
    pub interpreter: Option<PathBuf>,
    /// The executable that will run, the program's own or its interpreter's. `None` when it cannot be read or makes no
    /// sense: then nothing is known about it.
    pub binary: Option<Binary>,
    /// The kind of program, by its name or its interpreter's.
    pub family: Option<Family>,
    /// Why the loader will ignore `LD_PRELOAD` and the like. By the file alone: somebody who already has the privilege
    /// that the file gives runs it as any other program.
    pub secure_exec: Option<SecureExec>,
}

/// What kind of file a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An ELF executable.
    Elf,
    /// A text that starts with `#!`.
    Script,
    /// Something else: exec will refuse it, and shells will try to read it as a script of theirs.
    Other,
    /// A file that may be executed but not read.
    Unreadable,
}

/// What makes a program run with more privilege than its user.
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

/// A file could not be looked at.
#[derive(Debug, Error)]
#[error("cannot look at {}: {source}", path.display())]
pub struct LookError {
    /// The file.
    pub path: PathBuf,
    /// What the kernel answered.
    pub source: std::io::Error,
}

impl Program {
    /// Looks at a file that [`resolve()`] found. `search_path` is the text of `PATH`, for scripts that ask `env` for their
    /// interpreter.
    ///
    /// # Errors
    /// The file is gone or cannot be opened for another reason than its permissions.
    pub fn look(path: &Path, search_path: Option<&OsStr>) -> Result<Self, LookError> {
        let seen =
            Seen::look(path).map_err(|errno| LookError { path: path.to_owned(), source: errno.into() })?;
        let own_family = family_of(path);
        if seen.kind != Kind::Script {
            let Seen { kind, binary, secure_exec, .. } = seen;
            let path = path.to_owned();
            return Ok(Self { path, kind, interpreter: None, binary, family: own_family, secure_exec });
        }
        // The kernel ignores the set-id bits of a script; those of its interpreter count.
        let interpreter = script::interpreter(&seen.head).and_then(|command| command.find(search_path));
        let reader = interpreter.as_deref().and_then(|path| Seen::look(path).ok());
        let (binary, secure_exec) = reader.map_or((None, None), |reader| (reader.binary, reader.secure_exec));
        let family = own_family.or_else(|| family_of(interpreter.as_deref()?));
        Ok(Self { path: path.to_owned(), kind: Kind::Script, interpreter, binary, family, secure_exec })
    }

    /// Whether its file contains a word, as it does the name of a function that it calls; `None` when that cannot be told,
    /// which it is not of a file longer than `bytes`.
    pub fn mentions(&self, word: &str, bytes: usize) -> Option<bool> {
        mention::mentions(&self.path, word.as_bytes(), bytes)
    }

    /// Whether a library can be preloaded into what will run: a dynamic program without privilege. `None` when it cannot
    /// be told.
    pub fn takes_preload(&self) -> Option<bool> {
        if self.secure_exec.is_some() {
            return Some(false);
        }
        self.binary.as_ref().map(|binary| binary.linkage() == Linkage::Dynamic)
    }
}

/// The family of a file, by its name or, failing that, by the name of the file it links to.
fn family_of(path: &Path) -> Option<Family> {
    let by_name = |path: &Path| Family::of_name(path.file_name()?.to_str()?);
    by_name(path).or_else(|| by_name(&std::fs::canonicalize(path).ok()?))
}

/// One file, whatever it is to the command.
struct Seen {
    kind: Kind,
    /// Its beginning; empty when it was not read.
    head: Vec<u8>,
    binary: Option<Binary>,
    secure_exec: Option<SecureExec>,
}

impl Seen {
    fn look(path: &Path) -> Result<Self, Errno> {
        let unread = |kind, secure_exec| Self { kind, head: Vec::new(), binary: None, secure_exec };
        // Not blocking, for what is not a file after all.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::ACCESS) => {
                let mode = rustix::fs::stat(path)?.st_mode;
                return Ok(unread(Kind::Unreadable, secure_exec(path, mode)));
            }
            Err(errno) => return Err(errno),
        };
        let meta = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
            return Ok(unread(Kind::Other, None));
        }
        let mut head = vec![0; HEAD_BYTES];
        // A file on a disk is read short only at its end.
        let length = rustix::io::pread(&file, &mut head[..], 0)?;
        head.truncate(length);
        let kind = match &head[..] {
            [b'#', b'!', ..] => Kind::Script,
            [0x7f, b'E', b'L', b'F', ..] => Kind::Elf,
            _ => Kind::Other,
        };
        let bytes = u64::try_from(meta.st_size).unwrap_or(0);
        let binary = if kind == Kind::Elf { Binary::read(file.into(), bytes, &head) } else { None };
        Ok(Self { kind, head, binary, secure_exec: secure_exec(path, meta.st_mode) })
    }
}

fn secure_exec(path: &Path, mode: u32) -> Option<SecureExec> {
    const SET_UID: u32 = 0o4000;
    // Without the group's x the bit once meant something else (mandatory locks) and gives nothing.
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
