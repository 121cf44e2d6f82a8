//! What can go wrong in a team, said so that a caller can act on it: who died, who asked for something else, what was too large.

use std::time::Duration;

/// An operation's or a team's failure. Every rank of a team learns of the same failure, each in its next operation or in the one it waits in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank's process or thread ended without leaving.
    #[error("rank {0} of the team has died; the others can go on as a smaller team (shrink)")]
    PeerDied(u32),
    /// A rank left the team (its handle was dropped) while others wait for it.
    #[error("rank {0} has left the team, and others wait for it")]
    PeerLeft(u32),
    /// The deadline passed; whoever it waited for is alive.
    #[error("nothing came within {0:?}; the operation is broken off, and the team with it")]
    Timeout(Duration),
    /// Ranks called different operations, or the same with other sizes, types or roots.
    #[error(
        "rank {rank} called {theirs}, and this rank {ours}: all ranks of a team make the same calls in the same order"
    )]
    Mismatch {
        /// Who called otherwise.
        rank: u32,
        /// What it called.
        theirs: String,
        /// What this rank called.
        ours: String,
    },
    /// Somebody gave the team up, for a reason that this rank does not know.
    #[error("rank {0} has given the team up")]
    Revoked(u32),
    /// The handle belongs to another process: it was copied by fork.
    #[error(
        "this handle is of process {0}, which forked: a child joins with a seat of its own, or not at all"
    )]
    Forked(u32),
    /// An argument that no rank can be given.
    #[error("{0}")]
    Argument(String),
    /// What [`crate::Options::interrupt`] gives was asked, and said that the wait is to end. The team is given up.
    #[error("the wait was interrupted; the operation is broken off, and the team with it")]
    Interrupted,
    /// No memory for the segment, said when it is made and never later.
    #[error("no memory for a team of {bytes} bytes: {why}")]
    NoMemory {
        /// Of the segment.
        bytes: usize,
        /// The system's words.
        why: String,
    },
    /// What was passed as a team's segment is not one, or not one of this version.
    #[error("not a team's segment: {0}")]
    NotATeam(String),
    /// A seat that is taken, or a team that is over.
    #[error("{0}")]
    Refused(String),
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's words.
        why: String,
    },
}

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A system call's failure.
    pub(crate) fn system(what: &'static str, errno: rustix::io::Errno) -> Self {
        Self::System { what, why: errno.to_string() }
    }
}
