//! Client of the daemon: one request line, one answer line.

use super::SocketError;
use crate::sys::peer;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest answer, in bytes. Chosen: some thousand tags.
const ANSWER_MAX: usize = 16 << 20;

/// Connects, and waits in the kernel for a place in the daemon's queue if that is full: clients
/// that wait there get their places in order, and one that tried again now and then would lose to
/// them.
fn connect_patiently(address: &SocketAddrUnix, patience: Duration) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // No time at all would mean no limit.
    set_socket_timeout(&socket, Timeout::Send, Some(patience.max(Duration::from_millis(1))))?;
    connect(&socket, address)?;
    Ok(socket)
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    path: PathBuf,
}

impl Connection {
    /// Connects. Unless the user named the place, the listener must be root or the user.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn open(path: &Path, named: bool, patience: Duration) -> Result<Self, SocketError> {
        let failed =
            |attempt, error: Errno| SocketError::Io { attempt, path: path.to_owned(), source: error.into() };
        let address = SocketAddrUnix::new(path).map_err(|errno| failed("connecting to", errno))?;
        let begin = Instant::now();
        let socket = loop {
            match connect_patiently(&address, patience.saturating_sub(begin.elapsed())) {
                Ok(socket) => break socket,
                Err(Errno::INTR) => {}
                Err(Errno::NOENT | Errno::CONNREFUSED) => {
                    return Err(SocketError::NoListener { path: path.to_owned() });
                }
                Err(Errno::ACCESS | Errno::PERM) => {
                    return Err(SocketError::Refused { path: path.to_owned() });
                }
                // The queue of connections that wait there was full all the time.
                Err(Errno::AGAIN) => {
                    let why = format!("it accepted no connection within {patience:?}");
                    return Err(SocketError::Silent { path: path.to_owned(), why });
                }
                Err(errno) => return Err(failed("connecting to", errno)),
            }
        };
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false).map_err(|source| SocketError::Io {
            attempt: "connecting to",
            path: path.to_owned(),
            source,
        })?;
        let uid = peer::credentials(&stream)
            .map_err(|errno| failed("asking for the listener's user at", errno))?
            .uid;
        if !named && ![0, geteuid().as_raw()].contains(&uid) {
            return Err(SocketError::Stranger { path: path.to_owned(), uid });
        }
        Ok(Self { stream, path: path.to_owned() })
    }

    /// Sends a line, and waits for the line that answers it.
    ///
    /// # Errors
    /// [`SocketError::Silent`].
    pub fn ask(&mut self, line: &str, patience: Duration) -> Result<Vec<u8>, SocketError> {
        let silent = |why: String| SocketError::Silent { path: self.path.clone(), why };
        let begin = Instant::now();
        let left = || patience.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
        let limited = self.stream.set_write_timeout(left());
        let said = limited.and_then(|()| self.stream.write_all(format!("{line}\n").as_bytes()));
        // A connection that was refused at once has an answer all the same.
        let said = said.map_err(|error| error.to_string());
        let mut answer = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            let Some(left) = left() else { return Err(silent(format!("nothing came within {patience:?}"))) };
            self.stream.set_read_timeout(Some(left)).map_err(|error| silent(error.to_string()))?;
            match self.stream.read(&mut part) {
                Ok(0) => {
                    let why = said.err().unwrap_or_else(|| "it closed the connection".to_owned());
                    return Err(silent(why));
                }
                Ok(read) => answer.extend_from_slice(&part[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(silent(error.to_string())),
            }
            if let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
                answer.truncate(end);
                return Ok(answer);
            }
            if answer.len() > ANSWER_MAX {
                return Err(silent(format!("its answer is longer than {} MiB", ANSWER_MAX >> 20)));
            }
        }
    }
}

/// Connects, sends a line and returns the answer.
///
/// # Errors
/// [`SocketError`].
pub fn ask(path: &Path, named: bool, line: &str, patience: Duration) -> Result<Vec<u8>, SocketError> {
    Connection::open(path, named, patience)?.ask(line, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

    #[test]
    fn a_server_that_accepts_no_connection_is_waited_for_until_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let patience = Duration::from_millis(50);
        let _first = Connection::open(&path, false, patience).unwrap();
        let second = Connection::open(&path, false, patience).unwrap_err();
        assert!(matches!(second, SocketError::Silent { .. }), "{second}");
        assert!(second.to_string().contains("no connection within 50ms"), "{second}");
    }
}
