//! Host's end of a guest's port: a Unix socket at which the machine's monitor listens.
//!
//! The monitor may come and go. The port searches for it again occasionally, and never waits for
//! it. Nothing is ever written to the socket. A socket at the name counts only if both the file's
//! owner and the listener are the monitor's user or root.

use super::found::FoundSocket;
use crate::sys::peer;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Period of the searches for a port without a listener. Chosen.
const SEARCH_PERIOD: Duration = Duration::from_secs(2);
/// Bytes read at a time: a guest that floods is read only as fast as others are served.
const READ_BYTES: usize = 4 << 10;

/// A port.
#[derive(Debug)]
pub struct PortLink {
    path: PathBuf,
    stream: Option<UnixStream>,
    /// Search in its own thread: a name may lead into a file system that does not answer.
    sought: Option<Receiver<Result<OwnedFd, Missing>>>,
    next: Option<Instant>,
    /// Time before which nothing is read.
    rest: Option<Instant>,
}

impl PortLink {
    /// Makes the port at this socket, without searching for it yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), stream: None, sought: None, next: None, rest: None }
    }

    /// Connects to the socket, if it is not connected and a try is due; the listener must be this
    /// user or root. Returns whether it has connected since the last call. Never waits.
    ///
    /// # Errors
    /// The socket belongs to the other user with the returned id.
    pub fn connect(&mut self, user: u32) -> Result<bool, u32> {
        let now = Instant::now();
        if let Some(sought) = &self.sought {
            let found = match sought.try_recv() {
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => Err(Missing::NoListener),
                Ok(found) => found,
            };
            self.sought = None;
            self.next = Some(now + SEARCH_PERIOD);
            return match found {
                Ok(socket) => {
                    self.stream = Some(UnixStream::from(socket));
                    Ok(true)
                }
                Err(Missing::Stranger(uid)) => Err(uid),
                Err(Missing::NoListener) => Ok(false),
            };
        }
        if self.stream.is_none() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + SEARCH_PERIOD);
            let (told, sought) = channel();
            let path = self.path.clone();
            let seek = move || drop(told.send(seek(&path, user)));
            // If no thread can be started, a later call tries again.
            if std::thread::Builder::new().name("port".to_owned()).spawn(seek).is_ok() {
                self.sought = Some(sought);
            }
        }
        Ok(false)
    }

    /// Returns whether it is connected.
    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the descriptor to wait for, unless nothing is to be read now.
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        let resting = self.rest.is_some_and(|rest| rest > Instant::now());
        self.stream.as_ref().filter(|_| !resting).map(AsFd::as_fd)
    }

    /// Reads nothing for this time.
    pub fn rest(&mut self, time: Duration) {
        self.rest = Some(Instant::now() + time);
    }

    /// Reads the bytes that have arrived; `None` when the connection has ended.
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
        self.close();
        None
    }

    /// Ends the connection.
    pub fn close(&mut self) {
        self.stream = None;
        self.next = Some(Instant::now() + SEARCH_PERIOD);
    }
}

/// Reason why a port has no peer.
#[derive(Debug)]
enum Missing {
    NoListener,
    Stranger(u32),
}

/// Connects to the socket at a path, if this user or root listens there.
fn seek(path: &Path, user: u32) -> Result<OwnedFd, Missing> {
    let theirs = |uid: u32| if [0, user].contains(&uid) { Ok(()) } else { Err(Missing::Stranger(uid)) };
    let found = FoundSocket::at(path).map_err(|_| Missing::NoListener)?;
    theirs(found.owner)?;
    // A listener with a full queue serves another client.
    let socket = found.connect().map_err(|_| Missing::NoListener)?;
    let peer = peer::credentials(&socket).map_err(|_| Missing::NoListener)?;
    theirs(peer.uid)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    use rustix::process::geteuid;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    /// Returns the result of one try.
    fn connects(link: &mut PortLink, user: u32) -> Result<bool, u32> {
        link.next = None;
        let mut came = link.connect(user);
        while link.sought.is_some() {
            std::thread::yield_now();
            came = link.connect(user);
        }
        came
    }

    #[test]
    fn a_port_connects_when_a_listener_appears_and_again_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("port");
        let own = geteuid().as_raw();
        let mut link = PortLink::new(&path);
        assert_eq!(connects(&mut link, own), Ok(false));
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!((link.connect(own), link.sought.is_some()), (Ok(false), false), "not before it is time");
        assert_eq!(connects(&mut link, own), Ok(true));
        let (mut monitor, _) = listener.accept().unwrap();
        assert_eq!(link.read(), Some(Vec::new()));
        monitor.write_all(b"tag").unwrap();
        assert_eq!(link.read(), Some(b"tag".to_vec()));
        drop(monitor);
        assert_eq!((link.read(), link.is_open()), (None, false));
        assert_eq!(connects(&mut link, own), Ok(true));
    }

    #[test]
    fn a_listener_that_accepts_no_connection_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("port");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        let mut link = PortLink::new(&path);
        assert_eq!((connects(&mut link, geteuid().as_raw()), link.is_open()), (Ok(false), false));
    }

    #[test]
    fn a_socket_of_another_user_is_no_port() {
        if !geteuid().is_root() {
            return skipped("to act as two users a test needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("port");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::os::unix::fs::chown(&path, Some(4_000_000), None).unwrap();
        let mut link = PortLink::new(&path);
        assert_eq!(connects(&mut link, 4_000_001), Err(4_000_000));
        assert!(listener.accept().is_err() && !link.is_open());
        assert_eq!(connects(&mut link, 4_000_000), Ok(true), "ours, at the machine's user's socket");
    }
}
