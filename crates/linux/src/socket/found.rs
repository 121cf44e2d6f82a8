//! A socket that another program made. The connection goes to the very file whose owner was
//! checked.
//!
//! Problem: a process that connects with root's rights to a name chosen by another user can be sent
//! anywhere: the name may lead to a socket of the system, or be replaced between the check and the
//! connection. Idea: the file is opened first, its owner is checked, and the connection goes to the
//! opened file. The file may lie in another user's file system that never answers, so a caller that
//! must not wait does this in its own thread.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Open flags for a socket file.
const FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A socket in the file system.
#[derive(Debug)]
pub(crate) struct FoundSocket {
    file: OwnedFd,
    /// User id of the file's owner.
    pub(crate) owner: u32,
}

impl FoundSocket {
    /// Opens the socket at this path.
    ///
    /// # Errors
    /// The file does not exist (`ENOENT`), or is not a socket (`ENOTSOCK`).
    pub(crate) fn at(path: &Path) -> Result<Self, Errno> {
        Self::of(openat(CWD, path, FLAGS, Mode::empty())?)
    }

    /// Opens the socket at a path as a process sees it: the process may have another root, or
    /// another working folder.
    ///
    /// # Errors
    /// As [`FoundSocket::at`].
    pub(crate) fn of_process(process: &Path, path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(below) = path.strip_prefix("/") else {
            let folder = open(process.join("cwd"), flags, Mode::empty())?;
            return Self::of(openat(folder, path, FLAGS, Mode::empty())?);
        };
        // If the process may not be inspected, its root is taken to be our own.
        let Ok(root) = open(process.join("root"), flags, Mode::empty()) else { return Self::at(path) };
        match openat2(&root, below, FLAGS, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Before Linux 5.6, or if a sandbox refuses the call, links are resolved from our own
            // root.
            Err(Errno::NOSYS | Errno::PERM) => Self::of(openat(&root, below, FLAGS, Mode::empty())?),
            file => Self::of(file?),
        }
    }

    fn of(file: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Ok(Self { file, owner: stat.st_uid }),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// Connects, at once or not at all; the new socket never blocks.
    ///
    /// # Errors
    /// The socket has no listener (`ECONNREFUSED`), its queue is full (`EAGAIN`), or we may not
    /// connect.
    pub(crate) fn connect(&self) -> Result<OwnedFd, Errno> {
        // This name cannot be replaced, and is never too long.
        self::connect_to(&SocketAddrUnix::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?)
    }
}

/// Connects to an address, at once or not at all.
pub(crate) fn connect_to(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::peer;
    use std::os::unix::net::UnixListener;

    fn here() -> std::path::PathBuf {
        "/proc/self".into()
    }

    #[test]
    fn the_examined_socket_is_connected_to_even_if_its_name_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let other = UnixListener::bind(folder.path().join("other")).unwrap();
        for found in [FoundSocket::at(&path), FoundSocket::of_process(&here(), &path)] {
            let found = found.unwrap();
            assert_eq!(found.owner, rustix::process::geteuid().as_raw());
            std::fs::rename(&path, folder.path().join("moved")).unwrap();
            std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
            let connection = found.connect().unwrap();
            assert!(peer::credentials(&connection).is_ok());
            listener.accept().unwrap();
            std::fs::rename(folder.path().join("moved"), &path).unwrap();
        }
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err(), "it was sent elsewhere");
        // Through a link, and by a name that is longer than any address of a socket.
        let long = folder.path().join("l".repeat(200));
        std::os::unix::fs::symlink(&path, &long).unwrap();
        FoundSocket::of_process(&here(), &long).unwrap().connect().unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_refused_with_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let error = |path: &Path| FoundSocket::of_process(&here(), path).unwrap_err();
        assert_eq!((error(&at("file")), error(folder.path())), (Errno::NOTSOCK, Errno::NOTSOCK));
        assert_eq!(error(&at("none")), Errno::NOENT);
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        assert_eq!(error(&at("loop")), Errno::LOOP);
        drop(UnixListener::bind(at("stale")).unwrap());
        let stale = FoundSocket::at(&at("stale")).unwrap();
        assert_eq!(stale.connect().unwrap_err(), Errno::CONNREFUSED);
    }

    #[test]
    fn a_full_queue_of_connections_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let found = FoundSocket::at(&path).unwrap();
        let _waiting = found.connect().unwrap();
        assert_eq!(found.connect().unwrap_err(), Errno::AGAIN);
    }
}
