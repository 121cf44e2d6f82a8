//! Place of the daemon's socket, and the lock that decides which process owns it.

use super::SocketError;
use crate::ledger::Location;
use crate::sys::lock::{LockKind, try_lock};
use rustix::fs::{AtFlags, mkdirat};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::{Errno, pwrite};
use rustix::process::geteuid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Folder of a daemon. It differs from the ledger's folder, which selects the ledger wherever it
/// exists.
const FOLDER: &str = "trimtab-serve";
/// Name of the socket in it.
const SOCKET: &str = "socket";
/// Number of times that a name may come and go before this counts as interference. Chosen: an
/// honest race needs two.
const ATTEMPTS_MAX: u32 = 8;
/// Connections that wait to be accepted. The kernel keeps them in one queue for all users, so a
/// long one would let a user delay the others; a client that finds it full waits for its place.
/// Chosen.
const BACKLOG: i32 = 64;
/// The byte that is locked.
const LOCKED: std::ops::Range<u64> = 0..1;

/// Place of a daemon's socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    folder: PathBuf,
    name: String,
    /// The folder is made if it does not exist.
    made: bool,
    /// All users may connect.
    open: bool,
}

impl Place {
    /// Makes the place of a named socket.
    ///
    /// # Errors
    /// The path has no file name.
    pub fn named(socket: &Path) -> Result<Self, SocketError> {
        let name = socket.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name = name.ok_or_else(|| SocketError::Folder {
            path: socket.to_owned(),
            why: "it names no file".to_owned(),
        })?;
        let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        Ok(Self { folder, name, made: false, open: geteuid().is_root() })
    }

    /// Returns root's place, below `root`, which is `/` outside of tests.
    pub fn of_root(root: &Path) -> Self {
        Self { folder: root.join("run").join(FOLDER), name: SOCKET.to_owned(), made: true, open: true }
    }

    /// Returns a user's place: in the session's runtime folder, if it is the user's alone, and
    /// otherwise in the shared folder that holds the journals of masks.
    ///
    /// # Errors
    /// That folder does not exist.
    pub fn of_user(uid: u32, runtime: Option<&Path>, location: &Location) -> Result<Self, SocketError> {
        let private = |folder: &&Path| {
            folder.is_absolute()
                && rustix::fs::stat(*folder).is_ok_and(|stat| {
                    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                    folder && stat.st_uid == uid && stat.st_mode & 0o077 == 0
                })
        };
        if let Some(runtime) = runtime.filter(private) {
            let folder = runtime.join(FOLDER);
            return Ok(Self { folder, name: SOCKET.to_owned(), made: true, open: false });
        }
        let scratch = location.scratch()?;
        let name = format!("{}.serve-{uid}", scratch.stem);
        Ok(Self { folder: scratch.path, name, made: false, open: false })
    }

    /// Returns the socket's path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn failed(&self, attempt: &'static str, error: impl Into<io::Error>) -> SocketError {
        SocketError::Io { attempt, path: self.path(), source: error.into() }
    }

    /// Opens the folder, if no other user can change the files in it.
    fn folder(&self) -> Result<OwnedFd, SocketError> {
        let refused = |why: &str| SocketError::Folder { path: self.folder.clone(), why: why.to_owned() };
        let own = geteuid().as_raw();
        if self.made {
            let mode = if self.open { 0o755 } else { 0o700 };
            match mkdirat(CWD, &self.folder, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(refused(&format!("it cannot be made: {}", io::Error::from(error)))),
            }
        }
        // A folder that we make is never reached through a link. For a named folder, links are its
        // user's business.
        let link = if self.made { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | link;
        let folder = openat(CWD, &self.folder, flags, Mode::empty())
            .map_err(|error| refused(&io::Error::from(error).to_string()))?;
        let stat = fstat(&folder).map_err(|error| self.failed("looking at the folder of", error))?;
        if ![0, own].contains(&stat.st_uid) {
            return Err(refused(&format!("it belongs to user {}", stat.st_uid)));
        }
        if stat.st_mode & 0o022 != 0 && stat.st_mode & 0o1000 == 0 {
            return Err(refused("others can replace files in it"));
        }
        Ok(folder)
    }

    /// Takes the place and listens there. The socket of a dead daemon is replaced.
    ///
    /// # Errors
    /// [`SocketError::Running`] if another daemon runs; other variants if the place is unfit.
    pub fn claim(&self) -> Result<Claim, SocketError> {
        let folder = self.folder()?;
        let lock = self.lock(&folder)?;
        let path = self.path();
        match statat(&folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_ours(&stat, FileType::Socket) => {
                unlinkat(&folder, &self.name, AtFlags::empty())
                    .map_err(|error| self.failed("removing the dead socket", error))?;
            }
            Ok(_) => return Err(SocketError::Squatted { path }),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(self.failed("looking at", error)),
        }
        let listener = UnixListener::bind(&path).map_err(|error| self.failed("listening at", error))?;
        rustix::net::listen(&listener, BACKLOG).map_err(|error| self.failed("listening at", error))?;
        // Until here others could connect only if the umask lets them write to all new files; the
        // user of each client is checked in any case.
        let mode = if self.open { 0o666 } else { 0o600 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
            .map_err(|error| self.failed("setting the permissions of", error))?;
        listener.set_nonblocking(true).map_err(|error| self.failed("listening at", error))?;
        let stat = statat(&folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed("looking at", error))?;
        Ok(Claim {
            listener,
            path,
            name: self.name.clone(),
            socket: (stat.st_dev, stat.st_ino),
            folder,
            _lock: lock,
            owner: std::process::id(),
        })
    }

    /// Takes the daemon's lock. It lasts until its descriptor is closed for any
    /// reason.
    fn lock(&self, folder: &OwnedFd) -> Result<OwnedFd, SocketError> {
        let name = format!("{}.lock", self.name);
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | OFlags::NOCTTY;
        for _ in 0..ATTEMPTS_MAX {
            let file = match openat(folder, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::LOOP | Errno::ACCESS | Errno::ISDIR | Errno::NXIO) => {
                    return Err(SocketError::Squatted { path: self.folder.join(name) });
                }
                Err(error) => return Err(self.failed("making the lock of", error)),
            };
            let look = || fstat(&file).map_err(|error| self.failed("looking at the lock of", error));
            let stat = look()?;
            if stat.st_nlink == 0 {
                continue;
            }
            if !is_ours(&stat, FileType::RegularFile) || stat.st_nlink != 1 {
                return Err(SocketError::Squatted { path: self.folder.join(name) });
            }
            match try_lock(file.as_fd(), LOCKED, LockKind::Write) {
                Ok(true) => {}
                Ok(false) => {
                    let mut text = [0; 16];
                    let read = rustix::io::pread(&file, &mut text, 0).unwrap_or(0);
                    let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
                    let pid = text.trim().parse().unwrap_or(0);
                    return Err(SocketError::Running { pid, path: self.path() });
                }
                Err(error) => return Err(self.failed("locking the place of", error)),
            }
            // The previous holder may have removed the name.
            if look()?.st_nlink == 0 {
                continue;
            }
            let text = format!("{:<12}\n", std::process::id());
            pwrite(&file, text.as_bytes(), 0).map_err(|error| self.failed("writing the lock of", error))?;
            return Ok(file);
        }
        Err(SocketError::Squatted { path: self.folder.join(name) })
    }
}

/// Returns whether a file is of this kind and belongs to this user, so that it may be replaced.
fn is_ours(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind && stat.st_uid == geteuid().as_raw()
}

/// A place that this process holds. Dropping it removes the socket.
#[derive(Debug)]
pub struct Claim {
    pub(super) listener: UnixListener,
    path: PathBuf,
    name: String,
    socket: (u64, u64),
    folder: OwnedFd,
    _lock: OwnedFd,
    owner: u32,
}

impl Claim {
    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        // Best effort: a file that stays behind is replaced by the next daemon.
        let stat = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.socket) {
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
        // Removed while it is locked, so that no other process holds it.
        let _ = unlinkat(&self.folder, format!("{}.lock", self.name), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    fn place(folder: &Path) -> Place {
        Place::named(&folder.join("s")).unwrap()
    }

    #[test]
    fn the_second_daemon_gets_the_pid_of_the_first_and_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let first = place(folder.path()).claim().unwrap();
        let error = place(folder.path()).claim().unwrap_err();
        assert!(matches!(error, SocketError::Running { pid, .. } if pid == std::process::id()), "{error}");
        assert!(UnixStream::connect(first.path()).is_ok());
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays behind");
        // As after a kill: a socket and a lock file, and no daemon.
        drop(UnixListener::bind(folder.path().join("s")).unwrap());
        fs::write(folder.path().join("s.lock"), "4711\n").unwrap();
        let again = place(folder.path()).claim().unwrap();
        assert!(UnixStream::connect(again.path()).is_ok());
        // Another user's file that took the name is not removed with our socket.
        fs::remove_file(again.path()).unwrap();
        fs::write(folder.path().join("s"), "mine").unwrap();
        drop(again);
        assert_eq!(fs::read_to_string(folder.path().join("s")).unwrap(), "mine");
    }

    #[test]
    fn a_folder_that_other_users_can_change_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let why = |place: &Place| place.claim().unwrap_err().to_string();
        fs::write(folder.path().join("s"), "").unwrap();
        assert!(why(&place(folder.path())).contains("is not the socket of your daemon"));
        fs::remove_file(folder.path().join("s")).unwrap();
        fs::remove_file(folder.path().join("s.lock")).unwrap();
        fs::write(folder.path().join("target"), "").unwrap();
        symlink(folder.path().join("target"), folder.path().join("s.lock")).unwrap();
        assert!(why(&place(folder.path())).contains("s.lock"));
        fs::remove_file(folder.path().join("s.lock")).unwrap();
        fs::hard_link(folder.path().join("target"), folder.path().join("s.lock")).unwrap();
        assert!(why(&place(folder.path())).contains("s.lock"));
        fs::remove_file(folder.path().join("s.lock")).unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(why(&place(folder.path())).contains("others can replace files"));
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(place(folder.path()).claim().is_ok());
        assert!(why(&place(&folder.path().join("none"))).contains("No such file"));
        assert!(Place::named(Path::new("/")).is_err());
    }

    #[test]
    fn a_users_place_is_the_sessions_folder_only_if_that_is_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (runtime, shared) = (folder.path().join("runtime"), folder.path().join("shared"));
        for folder in [&runtime, &shared] {
            fs::create_dir(folder).unwrap();
        }
        let boot = crate::ledger::BootId::parse("0123abcd0123abcd01230123456789ab").unwrap();
        let location = Location::named(&shared, boot);
        let own = geteuid().as_raw();
        let path = |uid, runtime: Option<&Path>| Place::of_user(uid, runtime, &location).unwrap().path();
        fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(path(own, Some(&runtime)), runtime.join("trimtab-serve/socket"));
        assert!(path(own + 1, Some(&runtime)).starts_with(&shared));
        assert!(path(own, Some(Path::new("relative"))).starts_with(&shared));
        assert!(path(own, None).ends_with(format!("trimtab-0123abcd0123abcd01230123456789ab.serve-{own}")));
        fs::set_permissions(&runtime, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(path(own, Some(&runtime)).starts_with(&shared));
        let root = Place::of_root(folder.path());
        assert_eq!(root.path(), folder.path().join("run/trimtab-serve/socket"));
        assert!(root.claim().unwrap_err().to_string().contains("cannot be made"));
        fs::create_dir(folder.path().join("run")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let claim = root.claim().unwrap();
        assert_eq!((mode(claim.path()), mode(claim.path().parent().unwrap())), (0o666, 0o755));
    }
}
