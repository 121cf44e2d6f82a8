//! Place of the ledger: one directory that all programs on the machine find by the same rules.
//!
//! Two users with different directories do not see each other's holds, so the choice depends only
//! on facts that are equal for all users: the directories that exist, their owner and mode, whether
//! their mount is read-only. The first that is fit by these criteria is *the* place. A failure
//! inside it is an error and never a reason to use the next directory, which the other users would
//! not use.

use super::directory::OpenDirectory;
use super::error::{LedgerError, PassedOver};
use super::layout::Tag;
use crate::text::ReadError;
use rustix::fs::{FileType, OFlags, Stat, StatVfsMountFlags, fstat, fstatvfs};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Id of this run of the kernel, as 32 hexadecimal digits. Part of the names of the ledger's files,
/// since their statements about processes mean nothing after a reboot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootId(String);

impl BootId {
    const HEX_DIGITS: usize = 32;

    /// Reads the boot id under a `/proc`.
    ///
    /// # Errors
    /// [`LedgerError::Io`] or [`LedgerError::BootId`] when `/proc` does not exist or is not a
    /// procfs.
    pub fn read(proc_root: &Path) -> Result<Self, LedgerError> {
        let path = proc_root.join("sys/kernel/random/boot_id");
        match crate::boot::id(&path) {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Self::parse(&text).ok_or(LedgerError::BootId { path, found: text })
            }
            Err(error) => {
                let source = match error {
                    ReadError::Io { source, .. } => source,
                    other => io::Error::other(other),
                };
                Err(LedgerError::Io { attempt: "reading the boot id from", path, source })
            }
        }
    }

    /// Parses a boot id from text, with dashes as the kernel writes it or without.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|&letter| letter != '-').collect();
        let whole = digits.len() == Self::HEX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| Self(digits.to_ascii_lowercase()))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Directories in which to search for the ledger.
#[derive(Clone, Debug)]
pub struct Location {
    candidates: Vec<DirectoryCandidate>,
    boot: BootId,
    proc_root: PathBuf,
    of_root: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct DirectoryCandidate {
    path: PathBuf,
    kind: DirectoryKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirectoryKind {
    /// Named by the user, who is responsible for it.
    Named,
    /// Made for the ledger by a package; when it exists, it is the one to use.
    Packaged,
    /// A directory for temporary files of all users.
    Shared,
}

/// Directory made by a package's tmpfiles rule; the documentation of [`super`] has the rule.
const PACKAGED_DIRECTORY: &str = "run/trimtab";

/// Directory of root's own records of masks. Only root can make names in it, as `/run` is root's.
const ROOT_DIRECTORY: &str = "run/trimtab-balance";

/// World-writable directories in memory that every user has; the one that containers most often
/// share comes first. `/run/lock` is for root only on some distributions, and `/tmp` may be private
/// to a service.
const SHARED_DIRECTORIES: [&str; 3] = ["dev/shm", "run/lock", "tmp"];

impl Location {
    /// Makes a location of the one named directory and no other.
    pub fn named(directory: &Path, boot: BootId) -> Self {
        let candidates = vec![DirectoryCandidate { path: directory.to_owned(), kind: DirectoryKind::Named }];
        Self { candidates, boot, proc_root: "/proc".into(), of_root: None }
    }

    /// Makes a location of the usual directories under `root`, which is `/` outside of tests:
    /// `run/trimtab` when it exists, else the first of `dev/shm`, `run/lock`, `tmp` that is sticky,
    /// writable for all users and not on a read-only mount.
    pub fn usual(root: &Path, boot: BootId) -> Self {
        let packaged =
            DirectoryCandidate { path: root.join(PACKAGED_DIRECTORY), kind: DirectoryKind::Packaged };
        let shared = SHARED_DIRECTORIES
            .iter()
            .map(|name| DirectoryCandidate { path: root.join(name), kind: DirectoryKind::Shared });
        Self {
            candidates: std::iter::once(packaged).chain(shared).collect(),
            boot,
            proc_root: "/proc".into(),
            of_root: Some(root.join(ROOT_DIRECTORY)),
        }
    }

    /// Returns the same location with another `/proc`.
    #[must_use]
    pub fn with_proc(mut self, proc_root: &Path) -> Self {
        self.proc_root = proc_root.to_owned();
        self
    }

    /// Opens the directory that the rules above select.
    pub(super) fn find(&self) -> Result<LedgerDirectory, LedgerError> {
        self.select(Mounts::Checked)
    }

    /// Opens the directory that the rules above select where no mount is read-only. If a file in it
    /// can be opened for writing, as every start does, its mount is not, and this is the directory
    /// of [`Self::find`]. One case differs: a lock file that is bound into a `/dev/shm` that is
    /// read-only can be written, and [`Self::find`] passes over its directory.
    pub(super) fn find_writable(&self) -> Result<LedgerDirectory, LedgerError> {
        self.select(Mounts::Writable)
    }

    fn select(&self, mounts: Mounts) -> Result<LedgerDirectory, LedgerError> {
        let mut tried = Vec::new();
        for DirectoryCandidate { path, kind } in &self.candidates {
            let judged = |directory: Directory| Ok((directory.verdict(*kind, mounts)?, directory));
            match Directory::open(path).and_then(judged) {
                Ok((DirectoryVerdict::Fit, Directory { opened, stat })) => {
                    let stem = format!("trimtab-{}", self.boot);
                    return Ok(LedgerDirectory {
                        directory: Arc::new(opened),
                        kind: *kind,
                        path: path.clone(),
                        tag: Tag::of(stat.st_dev, stat.st_ino, &stem),
                        stem,
                        proc_root: self.proc_root.clone(),
                    });
                }
                Ok((DirectoryVerdict::Unfit(found), directory)) if *kind == DirectoryKind::Packaged => {
                    let found =
                        format!("{found} (uid {}, mode {:04o})", directory.stat.st_uid, directory.mode());
                    let remedy = "root should own it, and nobody else write to it unless it is sticky; \
                                  or set TRIMTAB_LEDGER";
                    return Err(LedgerError::Directory { path: path.clone(), found, remedy });
                }
                Ok((DirectoryVerdict::Unfit(found), _)) => {
                    tried.push(PassedOver { path: path.clone(), reason: found.to_owned() });
                }
                // The directory is absent. Whether these two directories exist is the same for all
                // users.
                Err(Errno::NOENT) if *kind == DirectoryKind::Packaged => {}
                Err(Errno::NOTDIR) if *kind == DirectoryKind::Packaged && !path.exists() => {}
                Err(error) if *kind == DirectoryKind::Shared => {
                    tried.push(PassedOver { path: path.clone(), reason: io::Error::from(error).to_string() });
                }
                Err(error) => {
                    let found = io::Error::from(error).to_string();
                    let remedy =
                        "make it a directory that all users can enter, or choose another with TRIMTAB_LEDGER";
                    return Err(LedgerError::Directory { path: path.clone(), found, remedy });
                }
            }
        }
        Err(LedgerError::NoPlace { tried })
    }

    /// Returns root's own directory for files of single users; `None` for a named location,
    /// which serves all users. The directory need not exist.
    pub(crate) fn of_root(&self) -> Option<&Path> {
        self.of_root.as_deref()
    }

    /// Opens the directory for files of single users. It is chosen by the same rules, but without
    /// the package's directory, in which ordinary users cannot make files.
    pub(crate) fn scratch(&self) -> Result<Scratch, LedgerError> {
        let mut shared = self.clone();
        shared.candidates.retain(|candidate| candidate.kind != DirectoryKind::Packaged);
        shared.find().map(|place| place.as_scratch())
    }
}

/// Directory for files of single users, and the stem of their names.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) directory: Arc<OpenDirectory>,
    pub(crate) path: PathBuf,
    pub(crate) stem: String,
}

/// Directory that contains the files of the ledger.
#[derive(Debug)]
pub(super) struct LedgerDirectory {
    /// Names are resolved from this descriptor, so a renamed parent does not redirect us half-way.
    pub(super) directory: Arc<OpenDirectory>,
    pub(super) tag: Tag,
    pub(super) proc_root: PathBuf,
    kind: DirectoryKind,
    path: PathBuf,
    stem: String,
}

/// The two files of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LedgerPart {
    /// The locks.
    Locks,
    /// The records of the holders.
    Holders,
}

impl LedgerDirectory {
    /// Returns the file's name in the directory. It is the same in every directory, so that naming
    /// a usual directory changes nothing.
    pub(super) fn name(&self, part: LedgerPart) -> String {
        let suffix = match part {
            LedgerPart::Locks => "locks",
            LedgerPart::Holders => "holders",
        };
        format!("{}.{suffix}", self.stem)
    }

    /// Returns this directory for files of single users; `None` if it is the package's.
    pub(super) fn scratch(&self) -> Option<Scratch> {
        (self.kind != DirectoryKind::Packaged).then(|| self.as_scratch())
    }

    fn as_scratch(&self) -> Scratch {
        Scratch { directory: Arc::clone(&self.directory), path: self.path.clone(), stem: self.stem.clone() }
    }

    /// Returns the file's path, for messages.
    pub(super) fn path(&self, part: LedgerPart) -> PathBuf {
        self.path.join(self.name(part))
    }

    /// Makes the error for a directory that neither has the file nor lets us make it.
    pub(super) fn closed(&self, part: LedgerPart, error: Errno) -> LedgerError {
        let found =
            format!("{} is not there and may not be made: {}", self.name(part), io::Error::from(error));
        let remedy = "root can make it (systemd-tmpfiles --create, if a package set up this directory); \
                      or choose a directory all users can write with TRIMTAB_LEDGER";
        LedgerError::Directory { path: self.path.clone(), found, remedy }
    }
}

struct Directory {
    opened: OpenDirectory,
    stat: Stat,
}

/// Treatment of mounts in the search for a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mounts {
    /// A directory on a read-only mount is passed over.
    Checked,
    /// The caller shows that the mount is not read-only.
    Writable,
}

enum DirectoryVerdict {
    Fit,
    Unfit(&'static str),
}

impl Directory {
    /// Opens the directory. Links are followed: the parents of the usual directories are root's,
    /// and a named directory is its user's choice.
    fn open(path: &Path) -> Result<Self, Errno> {
        let opened = OpenDirectory::open(path, OFlags::empty())?;
        let stat = fstat(&opened)?;
        Ok(Self { opened, stat })
    }

    fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    fn verdict(&self, kind: DirectoryKind, mounts: Mounts) -> Result<DirectoryVerdict, Errno> {
        let mode = self.mode();
        let sticky = mode & 0o1000 != 0;
        Ok(match kind {
            DirectoryKind::Named => DirectoryVerdict::Fit,
            // A user with write access to a directory that is not sticky can replace the files in
            // it.
            DirectoryKind::Packaged if mode & 0o022 != 0 && !sticky => {
                DirectoryVerdict::Unfit("others can replace files in it")
            }
            DirectoryKind::Packaged
                if ![0, rustix::process::geteuid().as_raw()].contains(&self.stat.st_uid) =>
            {
                DirectoryVerdict::Unfit("it belongs to an ordinary user")
            }
            DirectoryKind::Packaged => DirectoryVerdict::Fit,
            DirectoryKind::Shared if mode & 0o1777 != 0o1777 => {
                DirectoryVerdict::Unfit("is not shared by all users")
            }
            DirectoryKind::Shared
                if mounts == Mounts::Checked
                    && fstatvfs(&self.opened)?.f_flag.contains(StatVfsMountFlags::RDONLY) =>
            {
                DirectoryVerdict::Unfit("is mounted read-only")
            }
            DirectoryKind::Shared => DirectoryVerdict::Fit,
        })
    }
}

/// Names the kind of file that a mode encodes.
pub(super) fn kind_in_words(raw_mode: u32) -> &'static str {
    match FileType::from_raw_mode(raw_mode) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const BOOT: &str = "0123abcd-0123-abcd-0123-0123456789AB";

    fn make(root: &Path, name: &str, mode: u32) {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn found(root: &Path) -> String {
        match Location::usual(root, BootId::parse(BOOT).unwrap()).find() {
            Ok(place) => place.path.strip_prefix(root).unwrap().display().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_boot_id_is_32_digits_with_or_without_dashes() {
        let id = BootId::parse(BOOT).unwrap();
        assert_eq!(id.to_string(), "0123abcd0123abcd01230123456789ab");
        assert_eq!(BootId::parse(&id.to_string()), Some(id));
        for text in
            ["", "../../../../../../../../../etc/pas", &BOOT[1..], "0123abcd-0123-abcd-0123-0123456789ag"]
        {
            assert_eq!(BootId::parse(text), None, "{text:?}");
        }
        assert!(BootId::read(Path::new("/proc")).is_ok());
    }

    #[test]
    fn the_packaged_directory_comes_first_then_shared_ones_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(found(root).contains("no directory here can hold the ledger"), "{}", found(root));
        make(root, "tmp", 0o1777);
        assert_eq!(found(root), "tmp");
        make(root, "run/lock", 0o755);
        assert_eq!(found(root), "tmp", "run/lock is for its owner only");
        make(root, "run/lock", 0o1777);
        assert_eq!(found(root), "run/lock");
        make(root, "dev/shm", 0o777);
        assert_eq!(found(root), "run/lock", "dev/shm is not sticky");
        make(root, "dev/shm", 0o1777);
        assert_eq!(found(root), "dev/shm");
        make(root, "run/trimtab", 0o755);
        assert_eq!(found(root), "run/trimtab");
        make(root, "run/trimtab", 0o1777);
        assert_eq!(found(root), "run/trimtab");
    }

    #[test]
    fn a_packaged_directory_that_cannot_be_trusted_is_an_error_and_not_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        make(root, "dev/shm", 0o1777);
        make(root, "run/trimtab", 0o777);
        assert!(found(root).contains("others can replace files in it"), "{}", found(root));
        fs::remove_dir(root.join("run/trimtab")).unwrap();
        fs::write(root.join("run/trimtab"), "").unwrap();
        assert!(found(root).contains("Not a directory"), "{}", found(root));
    }
}
