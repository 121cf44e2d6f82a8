//! The daemon's socket: where it is, who may be at its ends, and a server that nobody can hold up.
//!
//! Problem: whoever runs on the machine may connect, be slow, say nothing, say too much, or vanish; and whoever can put something where
//! the socket should be can pretend to be the daemon. Idea: a lock vouches for the socket, as for all that trimtab leaves in files; the
//! kernel says who is at the other end, both ways; and one thread serves all, each as far as it goes without waiting.
//!
//! Properties: a socket is replaced only by who holds the lock beside it, and only where it is the same user's; connections, the length
//! of a line, the time that it takes, and what is kept for who does not read are bounded, for each user and for all; a line is answered
//! before the next one of the same connection is read. Nothing here knows what is said.

mod client;
mod door;
pub(crate) mod found;
mod notify;
mod place;
mod port;
mod server;

pub use client::{Connection, ask};
pub use door::{Bell, PortDoor};
pub use notify::notify;
pub use place::{Claim, Place};
pub use port::PortLink;
pub use server::{ClientId, Counted, Heard, Limits, Peer, Server};

use crate::ledger::LedgerError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no socket, or nobody at it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// There is no place for it.
    #[error("there is no place for the daemon's socket: {0}; name one with --socket")]
    Place(#[from] LedgerError),
    /// The folder cannot be trusted.
    #[error("{} cannot hold the daemon's socket: {why}; name another place with --socket", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another daemon lives.
    #[error("a daemon runs already: process {pid} at {}; end it with kill {pid}, or start another at its own place with --socket", path.display())]
    Running {
        /// Its process; 0 where it has not said yet.
        pid: u32,
        /// Where.
        path: PathBuf,
    },
    /// Something else stands there.
    #[error("{} is there, and is not the socket of a daemon of yours: remove it, or name another place with --socket", path.display())]
    Squatted {
        /// The name.
        path: PathBuf,
    },
    /// Nobody listens.
    #[error("no daemon runs at {}", path.display())]
    Nobody {
        /// Where it was looked.
        path: PathBuf,
    },
    /// Somebody else listens.
    #[error("at {} listens user {uid}, who is neither you nor root", path.display())]
    Stranger {
        /// Where.
        path: PathBuf,
        /// Who.
        uid: u32,
    },
    /// It may not be connected to.
    #[error("the daemon at {} is another user's alone", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
    },
    /// No answer came.
    #[error("the daemon at {} does not answer: {why}", path.display())]
    Silent {
        /// Where.
        path: PathBuf,
        /// What came instead.
        why: String,
    },
    /// A call failed.
    #[error("{attempt} {}: {source}", path.display())]
    Io {
        /// What was attempted, to be read before the path.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}
