//! QMP client that queries QEMU for its CPUs: one query, then disconnect.
//!
//! A QMP socket serves one client at a time; a second client is let in when the first has gone. So
//! the socket is held for the milliseconds of one query, and a socket that does not greet is
//! reported as busy. The listener is not trusted: everything together has a limit of time and a
//! limit of size, which hold even if bytes trickle in.

use super::GuestPlace;
use crate::process::Pid;
use crate::socket::found::{FoundSocket, connect_to};
use crate::sys::peer::{self, PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, send};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Size limit of an answer, in bytes. Chosen: some 300 bytes for each CPU, of 4,096, and the same
/// again.
const BYTES_MAX: usize = 4 << 20;
/// Size of one read, in bytes.
const READ_BYTES: usize = 16 << 10;

/// Reason why a socket gives no CPUs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QmpError {
    /// It cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Nothing listens any more.
    #[error("nothing listens there any more: the machine has ended, or was started with another socket")]
    Stale,
    /// It is closed to this user.
    #[error("only its user and root may connect: try as that user, or with sudo")]
    Refused,
    /// It belongs to another user than the machine does.
    #[error(
        "it belongs to user {owner}, and the machine to user {user}: sockets of other users are not queried; name the socket itself"
    )]
    Theirs {
        /// Owner of the socket, or user of its listener.
        owner: u32,
        /// User of the machine.
        user: u32,
    },
    /// It serves another client.
    #[error(
        "it serves another client and lets in one at a time: end that one, give the machine a second -qmp socket, or name the \
         machine by its process"
    )]
    Busy,
    /// It stopped answering.
    #[error("no answer within {0:?}: the machine hangs, or this is not its QMP socket")]
    Silent(Duration),
    /// It was closed in the middle.
    #[error("it was closed before it answered")]
    Closed,
    /// It does not speak QMP.
    #[error("the answer is not QMP ({0}): name the socket of -qmp, not that of -monitor or of a guest agent")]
    Strange(&'static str),
    /// It refuses the query.
    #[error("{question} is refused: {why}")]
    Answered {
        /// The command of the query.
        question: &'static str,
        /// The reason that the socket gave.
        why: String,
    },
    /// Its answer names no process on this host.
    #[error("its threads belong to no process that is seen here: is the machine in another container?")]
    NoProcess,
}

/// A vCPU, as known to the monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QmpCpu {
    /// Its number.
    pub index: u32,
    /// Its thread, numbered as in the monitor's namespace.
    pub thread: u32,
    /// Position in the guest's topology.
    pub place: GuestPlace,
}

/// Answer of a socket, with its listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The CPUs.
    pub cpus: Vec<QmpCpu>,
    /// The listening process, if it belongs to this namespace.
    pub peer: Option<Pid>,
    /// User of that process.
    pub user: Option<u32>,
}

/// Any message from QEMU.
#[derive(Deserialize)]
struct Message {
    #[serde(rename = "QMP")]
    greeting: Option<IgnoredAny>,
    #[serde(rename = "return")]
    answer: Option<serde_json::Value>,
    error: Option<Fault>,
    event: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Fault {
    desc: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CpuFast {
    cpu_index: u32,
    thread_id: u32,
    #[serde(default)]
    props: Props,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Props {
    node_id: Option<u32>,
    socket_id: Option<u32>,
    core_id: Option<u32>,
    thread_id: Option<u32>,
}

impl From<CpuFast> for QmpCpu {
    fn from(cpu: CpuFast) -> Self {
        let Props { node_id, socket_id, core_id, thread_id } = cpu.props;
        let place = GuestPlace { node: node_id, socket: socket_id, core: core_id, thread: thread_id };
        Self { index: cpu.cpu_index, thread: cpu.thread_id, place }
    }
}

/// Queries the CPUs; ends after `patience` in any case.
///
/// # Errors
/// [`QmpError`].
pub fn ask(path: &Path, patience: Duration) -> Result<Answer, QmpError> {
    let address = SocketAddrUnix::new(path).map_err(|errno| QmpError::Connect(errno.into()))?;
    ask_over(connect_to(&address).map_err(unconnected)?, patience)
}

/// Queries the CPUs over an existing connection.
///
/// # Errors
/// [`QmpError`].
pub fn ask_over(socket: OwnedFd, patience: Duration) -> Result<Answer, QmpError> {
    let mut talk = QmpConnection::new(socket, patience);
    let peer = peer::credentials(&talk.socket).ok();
    talk.cpus(peer)
}

/// Translates a failure to connect.
fn unconnected(errno: Errno) -> QmpError {
    match errno {
        // The queue of waiting clients is full.
        Errno::AGAIN => QmpError::Busy,
        Errno::CONNREFUSED => QmpError::Stale,
        Errno::ACCESS | Errno::PERM => QmpError::Refused,
        errno => QmpError::Connect(errno.into()),
    }
}

/// Queries a socket that others chose, if it and its listener belong to the machine: to `process`,
/// or to its user `user`. Sends nothing before that is known.
///
/// # Errors
/// [`QmpError`].
pub(super) fn ask_untrusted(
    socket: &FoundSocket,
    (process, user): (Pid, u32),
    patience: Duration,
) -> Result<Answer, QmpError> {
    if socket.owner != user {
        return Err(QmpError::Theirs { owner: socket.owner, user });
    }
    let mut talk = QmpConnection::new(socket.connect().map_err(unconnected)?, patience);
    let peer = peer::credentials(&talk.socket).map_err(|errno| QmpError::Connect(errno.into()))?;
    if peer.uid != user && peer.pid != Some(process.0) {
        return Err(QmpError::Theirs { owner: peer.uid, user });
    }
    talk.cpus(Some(peer))
}

impl QmpConnection {
    /// Queries the CPUs from the process at the other end.
    fn cpus(&mut self, peer: Option<PeerCredentials>) -> Result<Answer, QmpError> {
        match self.next() {
            Ok(Message { greeting: Some(_), .. }) => {}
            Ok(_) => return Err(QmpError::Strange("it does not greet as QMP does")),
            // Not even a greeting: the greeting will come when the other client has gone.
            Err(QmpError::Silent(_)) if self.text.is_empty() => return Err(QmpError::Busy),
            Err(error) => return Err(error),
        }
        self.question("qmp_capabilities")?;
        let answer = self.question("query-cpus-fast")?;
        let cpus: Vec<CpuFast> = serde_json::from_value(answer)
            .map_err(|_| QmpError::Strange("its list of CPUs lacks required fields"))?;
        Ok(Answer {
            cpus: cpus.into_iter().map(QmpCpu::from).collect(),
            peer: peer.and_then(|peer| peer.pid).map(Pid),
            user: peer.map(|peer| peer.uid),
        })
    }
}

/// A connection with a deadline.
struct QmpConnection {
    socket: OwnedFd,
    patience: Duration,
    end: Instant,
    /// Text that was read and is not yet a whole message.
    text: Vec<u8>,
    /// Number of bytes read in all.
    read: usize,
}

impl QmpConnection {
    fn new(socket: OwnedFd, patience: Duration) -> Self {
        Self { socket, patience, end: Instant::now() + patience, text: Vec::new(), read: 0 }
    }

    /// Sends one command and returns its answer, skipping events.
    fn question(&mut self, question: &'static str) -> Result<serde_json::Value, QmpError> {
        let text = format!("{{\"execute\":\"{question}\"}}\n");
        let mut left = text.as_bytes();
        while !left.is_empty() {
            self.ready(PollFlags::OUT)?;
            match send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Err(QmpError::Closed),
            }
        }
        loop {
            match self.next()? {
                Message { error: Some(Fault { desc }), .. } => {
                    let why = crate::text::printable(desc.as_bytes());
                    return Err(QmpError::Answered { question, why });
                }
                Message { answer: Some(answer), .. } => return Ok(answer),
                Message { event: Some(_), .. } => {}
                _ => return Err(QmpError::Strange("neither an answer nor an event")),
            }
        }
    }

    /// Returns the next message.
    fn next(&mut self) -> Result<Message, QmpError> {
        loop {
            // A message ends with its bracket, also if it is printed over several lines.
            if self.text.trim_ascii_end().ends_with(b"}") || self.text.contains(&b'\n') {
                let mut messages = serde_json::Deserializer::from_slice(&self.text).into_iter::<Message>();
                match messages.next() {
                    Some(Ok(message)) => {
                        let used = messages.byte_offset();
                        self.text.drain(..used);
                        return Ok(message);
                    }
                    Some(Err(error)) if !error.is_eof() => {
                        return Err(QmpError::Strange("not a JSON message"));
                    }
                    Some(Err(_)) | None => {}
                }
            }
            if self.read >= BYTES_MAX {
                return Err(QmpError::Strange("more text than QMP ever has"));
            }
            self.more()?;
        }
    }

    /// Reads the bytes that have arrived, or waits for some.
    fn more(&mut self) -> Result<(), QmpError> {
        self.ready(PollFlags::IN)?;
        let mut piece = [0; READ_BYTES];
        match rustix::io::read(&self.socket, &mut piece) {
            Ok(0) => Err(QmpError::Closed),
            Ok(read) => {
                self.read += read;
                self.text.extend_from_slice(&piece[..read]);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(_) => Err(QmpError::Closed),
        }
    }

    /// Waits until the socket can be read or written, at most until the deadline.
    fn ready(&self, flags: PollFlags) -> Result<(), QmpError> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QmpError::Silent(self.patience));
            }
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(QmpError::Connect(errno.into())),
            }
        }
    }
}
