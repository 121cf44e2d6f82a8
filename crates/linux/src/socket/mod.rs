//! The daemon's socket: its place, the checks on both ends, and a server that no client can block.
//!
//! Problem: any user of the machine may connect, be slow, send nothing, send too much, or vanish;
//! and a user who can create a file at the socket's place can pretend to be the daemon. Idea: a
//! lock vouches for the socket, as for all files that trimtab leaves; the kernel names the peer's
//! user, in both directions; and one thread serves all clients, each as far as possible without
//! waiting.
//!
//! Properties: only the holder of the lock beside a socket replaces it, and only if the socket
//! belongs to the same user. The connections, the length of a line, the time that a line takes, and
//! the bytes kept for a client that does not read are bounded, for each user and for all. A line is
//! answered before the next one of the same connection is read. Nothing here interprets the lines.

mod client;
mod door;
pub(crate) mod found;
mod notify;
mod place;
mod port;
mod server;

pub use client::{Connection, ask};
pub use door::{GuestAddress, PortDoor};
pub use notify::notify;
pub use place::{Claim, Place};
pub use port::PortLink;
pub use server::{ClientEvent, ClientId, Counted, Limits, Peer, Server};

use crate::ledger::LedgerError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason why the socket or its listener is missing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// No place can be found for it.
    #[error("there is no place for the daemon's socket: {0}; name one with --socket")]
    Place(#[from] LedgerError),
    /// The folder cannot be trusted.
    #[error("{} cannot hold the daemon's socket: {why}; name another place with --socket", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The fault of the folder.
        why: String,
    },
    /// Another daemon runs.
    #[error("a daemon runs already: process {pid} at {}; end it with kill {pid}, or start another at its own place with --socket", path.display())]
    Running {
        /// Its process; 0 if it has not written it yet.
        pid: u32,
        /// The socket's path.
        path: PathBuf,
    },
    /// Another file exists there.
    #[error("{} exists and is not the socket of your daemon: remove it, or name another place with --socket", path.display())]
    Squatted {
        /// The file.
        path: PathBuf,
    },
    /// The socket has no listener.
    #[error("no daemon runs at {}", path.display())]
    NoListener {
        /// The path searched.
        path: PathBuf,
    },
    /// The listener is another user.
    #[error("the listener at {} is user {uid}, neither you nor root", path.display())]
    Stranger {
        /// The socket's path.
        path: PathBuf,
        /// The user.
        uid: u32,
    },
    /// This user may not connect to it.
    #[error("the daemon at {} belongs to another user, and only that user may connect", path.display())]
    Refused {
        /// The socket's path.
        path: PathBuf,
    },
    /// No answer arrived.
    #[error("the daemon at {} does not answer: {why}", path.display())]
    Silent {
        /// The socket's path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A call failed.
    #[error("{attempt} {}: {source}", path.display())]
    Io {
        /// The operation, to be read before the path.
        attempt: &'static str,
        /// The object of the operation.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}
