//! Asking QEMU for its CPUs: one question by QMP, and away again.
//!
//! A QMP socket serves one client at a time; a second one is let in when the first has gone. So it is held for the milliseconds of one
//! question, and one that does not greet is told to be busy. Whoever listens may be anybody: everything together has a time and a size
//! after which it is over, also where bytes trickle.

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

/// No answer is longer. Chosen: some 300 bytes for each CPU, of 4,096, and as much again.
const BYTES_MAX: usize = 4 << 20;
/// So much is read at a time.
const PIECE: usize = 16 << 10;

/// Why a socket does not tell.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QmpError {
    /// It cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Nothing listens any more.
    #[error("nobody listens there any more: the machine has ended, or was started with another socket")]
    Stale,
    /// It is not for us.
    #[error("only its user and root may connect: try as that user, or with sudo")]
    Refused,
    /// It is another user's than the machine.
    #[error(
        "it is user {owner}'s, and the machine is user {user}'s: nobody is asked on behalf of others; name the socket itself"
    )]
    Theirs {
        /// Whose the socket, or whoever listens there, is.
        owner: u32,
        /// Whose the machine is.
        user: u32,
    },
    /// Another client is served.
    #[error(
        "it serves another client and lets in one at a time: end that one, give the machine a second -qmp socket, or name the \
         machine by its process"
    )]
    Busy,
    /// It stopped answering.
    #[error("no answer within {0:?}: the machine hangs, or this is no QMP socket of it")]
    Silent(Duration),
    /// It was closed in the middle.
    #[error("it was closed before it answered")]
    Closed,
    /// It does not speak QMP.
    #[error(
        "what answers there is not QMP ({0}): name the socket of -qmp, not that of -monitor or of a guest agent"
    )]
    Strange(&'static str),
    /// It refuses the question.
    #[error("{question} is refused: {why}")]
    Answered {
        /// What was asked.
        question: &'static str,
        /// What it says.
        why: String,
    },
    /// Its answer is of no process here.
    #[error("its threads belong to no process that is seen here: is the machine in another container?")]
    Nobody,
}

/// A virtual CPU, as the monitor knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// Its number.
    pub index: u32,
    /// Its thread, as numbers are in the monitor's namespace.
    pub thread: u32,
    /// Where the guest sees it.
    pub place: GuestPlace,
}

/// What a socket answered, and who listens there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// The process that listens, where it is one of this namespace.
    pub peer: Option<Pid>,
    /// Its user.
    pub user: Option<u32>,
}

/// Anything that QEMU says.
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

impl From<CpuFast> for Cpu {
    fn from(cpu: CpuFast) -> Self {
        let Props { node_id, socket_id, core_id, thread_id } = cpu.props;
        let place = GuestPlace { node: node_id, socket: socket_id, core: core_id, thread: thread_id };
        Self { index: cpu.cpu_index, thread: cpu.thread_id, place }
    }
}

/// Asks for the CPUs; over after `patience`, whatever happens.
///
/// # Errors
/// [`QmpError`].
pub fn ask(path: &Path, patience: Duration) -> Result<Answer, QmpError> {
    let address = SocketAddrUnix::new(path).map_err(|errno| QmpError::Connect(errno.into()))?;
    ask_over(connect_to(&address).map_err(unconnected)?, patience)
}

/// The same, over a connection that was made already.
///
/// # Errors
/// [`QmpError`].
pub fn ask_over(socket: OwnedFd, patience: Duration) -> Result<Answer, QmpError> {
    let mut talk = Talk::new(socket, patience);
    let peer = peer::credentials(&talk.socket).ok();
    talk.cpus(peer)
}

/// What it means that there is no connection.
fn unconnected(errno: Errno) -> QmpError {
    match errno {
        // The queue of those who want to be let in is full.
        Errno::AGAIN => QmpError::Busy,
        Errno::CONNREFUSED => QmpError::Stale,
        Errno::ACCESS | Errno::PERM => QmpError::Refused,
        errno => QmpError::Connect(errno.into()),
    }
}

/// Asks a socket that others chose, if it and whoever listens there are the machine's: `process`, which is of `user`. Nothing is said
/// before that is known.
///
/// # Errors
/// [`QmpError`].
pub(super) fn ask_theirs(
    socket: &FoundSocket,
    (process, user): (Pid, u32),
    patience: Duration,
) -> Result<Answer, QmpError> {
    if socket.owner != user {
        return Err(QmpError::Theirs { owner: socket.owner, user });
    }
    let mut talk = Talk::new(socket.connect().map_err(unconnected)?, patience);
    let peer = peer::credentials(&talk.socket).map_err(|errno| QmpError::Connect(errno.into()))?;
    if peer.uid != user && peer.pid != Some(process.0) {
        return Err(QmpError::Theirs { owner: peer.uid, user });
    }
    talk.cpus(Some(peer))
}

impl Talk {
    /// The CPUs, as whoever is at the other end tells them.
    fn cpus(&mut self, peer: Option<PeerCredentials>) -> Result<Answer, QmpError> {
        match self.next() {
            Ok(Message { greeting: Some(_), .. }) => {}
            Ok(_) => return Err(QmpError::Strange("it does not greet as QMP does")),
            // Not even a greeting: it will come when the other client has gone.
            Err(QmpError::Silent(_)) if self.text.is_empty() => return Err(QmpError::Busy),
            Err(error) => return Err(error),
        }
        self.question("qmp_capabilities")?;
        let answer = self.question("query-cpus-fast")?;
        let cpus: Vec<CpuFast> = serde_json::from_value(answer)
            .map_err(|_| QmpError::Strange("its list of CPUs has not the fields that it should have"))?;
        Ok(Answer {
            cpus: cpus.into_iter().map(Cpu::from).collect(),
            peer: peer.and_then(|peer| peer.pid).map(Pid),
            user: peer.map(|peer| peer.uid),
        })
    }
}

/// A connection that has a last moment.
struct Talk {
    socket: OwnedFd,
    patience: Duration,
    end: Instant,
    /// What was read and is not a whole message yet.
    text: Vec<u8>,
    /// How much was read in all.
    read: usize,
}

impl Talk {
    fn new(socket: OwnedFd, patience: Duration) -> Self {
        Self { socket, patience, end: Instant::now() + patience, text: Vec::new(), read: 0 }
    }

    /// Asks one question, and reads over what is told besides.
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

    /// The next message.
    fn next(&mut self) -> Result<Message, QmpError> {
        loop {
            // A message ends with its bracket, also where it is printed over several lines.
            if self.text.trim_ascii_end().ends_with(b"}") || self.text.contains(&b'\n') {
                let mut messages = serde_json::Deserializer::from_slice(&self.text).into_iter::<Message>();
                match messages.next() {
                    Some(Ok(message)) => {
                        let used = messages.byte_offset();
                        self.text.drain(..used);
                        return Ok(message);
                    }
                    Some(Err(error)) if !error.is_eof() => {
                        return Err(QmpError::Strange("no message of JSON"));
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

    /// Reads what has come, or waits until something has.
    fn more(&mut self) -> Result<(), QmpError> {
        self.ready(PollFlags::IN)?;
        let mut piece = [0; PIECE];
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

    /// Waits until it can be read or written, and no longer than there is time.
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
