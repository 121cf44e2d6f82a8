//! The host's end of a guest's port: a Unix socket at which the machine's monitor listens.
//!
//! The monitor may come and go; it is looked for again now and then. Nothing is ever written to it.

use rustix::fs::FileType;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So often a port is looked for that nobody answers at. Chosen.
const AGAIN: Duration = Duration::from_secs(2);
/// So much is read at a time: a guest that floods is read as fast as others are served.
const PIECE: usize = 4 << 10;

/// A port.
#[derive(Debug)]
pub struct PortLink {
    path: PathBuf,
    stream: Option<UnixStream>,
    next: Option<Instant>,
    /// Nothing is read before.
    rest: Option<Instant>,
}

impl PortLink {
    /// The port at this socket; it is not looked for yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), stream: None, next: None, rest: None }
    }

    /// Connects, if it is not connected and it is time to try; whether it was connected just now.
    pub fn connect(&mut self) -> bool {
        let now = Instant::now();
        if self.stream.is_some() || self.next.is_some_and(|next| next > now) {
            return false;
        }
        self.next = Some(now + AGAIN);
        let is_socket = rustix::fs::stat(&self.path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        if !is_socket {
            return false;
        }
        // A listener whose queue is full would let us wait; monitors have one client.
        let Ok(stream) = UnixStream::connect(&self.path) else { return false };
        if stream.set_nonblocking(true).is_ok() {
            self.stream = Some(stream);
        }
        self.stream.is_some()
    }

    /// Whether it is connected.
    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// What to wait for, unless nothing is to be read now.
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        let resting = self.rest.is_some_and(|rest| rest > Instant::now());
        self.stream.as_ref().filter(|_| !resting).map(AsFd::as_fd)
    }

    /// Reads nothing for so long.
    pub fn rest(&mut self, time: Duration) {
        self.rest = Some(Instant::now() + time);
    }

    /// What there is to read; `None` when the connection has ended.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let stream = self.stream.as_mut()?;
        let mut part = [0; PIECE];
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
        self.next = Some(Instant::now() + AGAIN);
    }
}
