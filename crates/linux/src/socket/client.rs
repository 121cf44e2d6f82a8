//! The other end: one question, one answer.

use super::SocketError;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No answer is longer. Chosen: some thousand tags.
const ANSWER_MAX: usize = 16 << 20;

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    path: PathBuf,
}

impl Connection {
    /// Connects. Unless the place was named by the user, who listens must be root or the user.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn open(path: &Path, named: bool) -> Result<Self, SocketError> {
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                SocketError::Nobody { path: path.to_owned() }
            }
            ErrorKind::PermissionDenied => SocketError::Refused { path: path.to_owned() },
            _ => SocketError::Io { attempt: "connecting to", path: path.to_owned(), source },
        })?;
        let uid = socket_peercred(&stream).map(|peer| peer.uid.as_raw()).map_err(|error| {
            SocketError::Io { attempt: "asking who listens at", path: path.to_owned(), source: error.into() }
        })?;
        if !named && ![0, geteuid().as_raw()].contains(&uid) {
            return Err(SocketError::Stranger { path: path.to_owned(), uid });
        }
        Ok(Self { stream, path: path.to_owned() })
    }

    /// Says a line, and waits for the line that answers it.
    ///
    /// # Errors
    /// [`SocketError::Silent`].
    pub fn ask(&mut self, line: &str, patience: Duration) -> Result<Vec<u8>, SocketError> {
        let silent = |why: String| SocketError::Silent { path: self.path.clone(), why };
        let begin = Instant::now();
        let left = || patience.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
        let limited = self.stream.set_write_timeout(left());
        let said = limited.and_then(|()| self.stream.write_all(format!("{line}\n").as_bytes()));
        // One that was refused at once has an answer all the same.
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
                return Err(silent("its answer has no end".to_owned()));
            }
        }
    }
}

/// Connects and asks.
///
/// # Errors
/// [`SocketError`].
pub fn ask(path: &Path, named: bool, line: &str, patience: Duration) -> Result<Vec<u8>, SocketError> {
    Connection::open(path, named)?.ask(line, patience)
}
