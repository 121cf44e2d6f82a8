//! Host's end of a guest's port, for guests that call the host: a socket between machines
//! (`AF_VSOCK`), or the Unix socket to which a monitor without kernel sockets of this kind connects
//! for its guest (Firecracker, Cloud Hypervisor, vhost-device-vsock).
//!
//! Idea: the kernel alone decides which callers come in, by the number of the calling machine,
//! which no guest can choose, or by the user of the calling monitor, which must be root, ourselves,
//! or the owner of the folder that the socket is in. The latest connection is served: a restarted
//! guest no longer has its old connection. Nothing is ever written to it, and nothing is waited
//! for.

use crate::sys::{peer, vsock};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause after a failed listen, before the next try. Chosen.
const LISTEN_PAUSE: Duration = Duration::from_secs(2);
/// Bytes read at a time.
const READ_BYTES: usize = 4 << 10;
/// Largest number of callers checked in one turn, so that refused callers delay no other work.
const CALLERS_PER_TURN: usize = 4;

/// Address at which a guest calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestAddress {
    /// A port, for the machine of this number.
    Vsock {
        /// The machine.
        cid: u32,
        /// The port.
        port: u32,
    },
    /// A Unix socket for its monitor.
    Unix(PathBuf),
}

#[derive(Debug)]
enum Listener {
    Vsock(OwnedFd),
    Unix(UnixListener, u32),
}

/// A port at which a guest calls.
#[derive(Debug)]
pub struct PortDoor {
    bell: GuestAddress,
    listener: Option<Listener>,
    stream: Option<File>,
    next: Option<Instant>,
    /// Time before which nothing is read.
    rest: Option<Instant>,
    /// Error of the last failed listen.
    fault: Option<String>,
}

impl PortDoor {
    /// Makes the port at which a guest calls, without listening there yet.
    pub fn new(bell: &GuestAddress) -> Self {
        Self { bell: bell.clone(), listener: None, stream: None, next: None, rest: None, fault: None }
    }

    /// Accepts the pending callers. Returns whether one came in just now.
    pub fn connect(&mut self) -> bool {
        let now = Instant::now();
        if self.listener.is_none() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + LISTEN_PAUSE);
            match listen(&self.bell) {
                Ok(listener) => (self.listener, self.fault) = (Some(listener), None),
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        let Some(listener) = &self.listener else { return false };
        let mut came = None;
        for _ in 0..CALLERS_PER_TURN {
            match accept(listener, &self.bell) {
                Ok(Some(stream)) => came = Some(stream),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let is_new = came.is_some();
        self.stream = came.or(self.stream.take());
        is_new
    }

    /// Returns the reason why no caller can come in, if there is one.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns whether a guest is connected.
    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the descriptor to wait for, unless nothing is to be read now. Callers are not waited
    /// for: refused callers could wake us at will.
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        let resting = self.rest.is_some_and(|rest| rest > Instant::now());
        self.stream.as_ref().filter(|_| !resting).map(AsFd::as_fd)
    }

    /// Reads nothing for this time.
    pub fn rest(&mut self, time: Duration) {
        self.rest = Some(Instant::now() + time);
    }

    /// Reads the bytes that have arrived; `None` if no guest is connected any more.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let stream = self.stream.as_mut()?;
        let mut part = [0; READ_BYTES];
        match stream.read(&mut part) {
            Ok(0) => {}
            Ok(read) => return Some(part[..read].to_vec()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Some(Vec::new());
            }
            Err(_) => {}
        }
        self.stream = None;
        None
    }

    /// Closes the connection, and stops listening for a while.
    pub fn close(&mut self) {
        (self.stream, self.listener) = (None, None);
        self.next = Some(Instant::now() + LISTEN_PAUSE);
    }
}

fn listen(bell: &GuestAddress) -> io::Result<Listener> {
    match bell {
        GuestAddress::Vsock { port, .. } => Ok(Listener::Vsock(vsock::listen(*port)?)),
        GuestAddress::Unix(path) => {
            clear(path)?;
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let owner = rustix::fs::stat(folder)?.st_uid;
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            // The caller's user is checked when it connects.
            rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
            Ok(Listener::Unix(listener, owner))
        }
    }
}

/// Removes a socket of ours without a listener: one that a killed daemon left.
fn clear(path: &Path) -> io::Result<()> {
    let Ok(found) = rustix::fs::lstat(path) else { return Ok(()) };
    let ours =
        FileType::from_raw_mode(found.st_mode) == FileType::Socket && found.st_uid == geteuid().as_raw();
    if ours && is_left(path) == Ok(true) { std::fs::remove_file(path) } else { Ok(()) }
}

/// Returns whether a socket has no listener. A full queue is not waited for, since it has one.
fn is_left(path: &Path) -> Result<bool, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

/// Accepts the next caller; `None` if it may not come in.
fn accept(listener: &Listener, bell: &GuestAddress) -> Result<Option<File>, Errno> {
    match (listener, bell) {
        (Listener::Vsock(listener), GuestAddress::Vsock { cid, .. }) => {
            let (socket, caller) = vsock::accept(listener)?;
            Ok((caller == *cid).then(|| File::from(socket)))
        }
        (Listener::Unix(listener, owner), _) => {
            let (stream, _) =
                listener.accept().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let caller = peer::credentials(&stream).map(|peer| peer.uid);
            let may = caller.is_ok_and(|uid| [0, geteuid().as_raw(), *owner].contains(&uid));
            let ready = may && stream.set_nonblocking(true).is_ok();
            Ok(ready.then(|| File::from(OwnedFd::from(stream))))
        }
        (Listener::Vsock(_), GuestAddress::Unix(_)) => Err(Errno::INVAL),
    }
}

impl Drop for PortDoor {
    fn drop(&mut self) {
        if let (Some(Listener::Unix(..)), GuestAddress::Unix(path)) = (&self.listener, &self.bell) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn until(door: &mut PortDoor, holds: impl Fn(&mut PortDoor) -> bool) {
        let begin = Instant::now();
        while !holds(door) {
            assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute: {door:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_latest_connection_to_a_unix_socket_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.sock_7000");
        let mut door = PortDoor::new(&GuestAddress::Unix(path.clone()));
        assert!(!door.connect() && !door.is_open() && door.fault().is_none());
        assert!(door.waits().is_none(), "nobody who calls wakes us");
        let mut first = UnixStream::connect(&path).unwrap();
        until(&mut door, PortDoor::connect);
        first.write_all(b"tag vcpu 1\n").unwrap();
        assert!(door.waits().is_some(), "for what is said");
        assert_eq!(door.read().as_deref(), Some(&b"tag vcpu 1\n"[..]));
        assert_eq!(door.read(), Some(Vec::new()), "nothing is waited for");
        let mut second = UnixStream::connect(&path).unwrap();
        until(&mut door, PortDoor::connect);
        second.write_all(b"x").unwrap();
        assert_eq!(door.read().as_deref(), Some(&b"x"[..]));
        drop(second);
        assert_eq!((door.read(), door.is_open()), (None, false));
        assert!(UnixStream::connect(&path).is_ok(), "it is listened on");
        until(&mut door, PortDoor::connect);
        door.close();
        assert!(!door.is_open() && door.waits().is_none() && UnixStream::connect(&path).is_err());
        // A leftover socket is replaced; a socket of another owner is not.
        door.next = None;
        assert!(!door.connect() && door.fault().is_none());
        let mut other = PortDoor::new(&GuestAddress::Unix(path.clone()));
        assert!(!other.connect() && other.fault().is_some_and(|why| why.contains("in use")));
        drop(other);
        assert!(path.exists(), "the name is that of who listens");
        drop(door);
        assert!(!path.exists());
        let mut nowhere = PortDoor::new(&GuestAddress::Unix(folder.path().join("no/where")));
        assert!(!nowhere.connect() && nowhere.fault().is_some() && nowhere.read().is_none());
    }

    /// Needs a kernel that can connect to itself: its own number is then that of the calling
    /// machine.
    #[test]
    fn only_the_machine_of_this_number_is_accepted() {
        let port = 50_000 + std::process::id() % 10_000;
        let mut door = PortDoor::new(&GuestAddress::Vsock { cid: vsock::CID_LOCAL, port });
        if door.connect() || door.fault().is_some() {
            return skipped(format_args!("no sockets between machines here: {:?}", door.fault()));
        }
        let loopback = Path::new("/sys/module/vsock_loopback").exists();
        if !loopback {
            return skipped("this kernel cannot speak with itself (vsock_loopback)");
        }
        let call = || File::from(vsock::connect(vsock::CID_LOCAL, port).unwrap());
        let mut guest = call();
        until(&mut door, PortDoor::connect);
        guest.write_all(b"tag vcpu 0\n").unwrap();
        until(&mut door, |door| door.read().is_some_and(|read| read == b"tag vcpu 0\n"));
        drop(door);
        let mut strict = PortDoor::new(&GuestAddress::Vsock { cid: 77, port });
        until(&mut strict, |door| {
            door.next = None;
            !door.connect() && door.fault().is_none()
        });
        let mut guest = call();
        for _ in 0..50 {
            assert!(!strict.connect() && !strict.is_open());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            guest.read(&mut [0]).is_ok_and(|read| read == 0) || guest.write(b"x").is_err(),
            "it is sent away"
        );
    }
}
