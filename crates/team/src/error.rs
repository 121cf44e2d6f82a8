//! Errors of a team, with the data that a caller needs to handle them: the rank that died, the rank
//! that made another call, the value that was too large.

use std::time::Duration;

/// An operation's or a team's failure. Every rank of a team gets the same failure, each in its next
/// operation or in the one in which it waits.
///
/// # Examples
/// A rank is lost, and the others continue without it:
///
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// use std::time::Duration;
/// use trimtab_team::Error;
///
/// # ranks::run(3, |rank| {
/// // In each of three threads.
/// if rank.rank() == 2 {
///     return Ok(()); // Leaves.
/// }
/// match rank.barrier() {
///     Err(Error::PeerLeft(2) | Error::PeerDied(2)) => {
///         let smaller = rank.shrink(Duration::from_secs(10))?;
///         assert_eq!(smaller.ranks(), 2);
///         smaller.barrier()
///     }
///     other => other,
/// }
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank's process or thread ended without leaving.
    #[error("rank {0} of the team has died; the others can go on as a smaller team (shrink)")]
    PeerDied(u32),
    /// A rank left the team (its handle was dropped) while others wait for it.
    #[error("rank {0} has left the team, and others wait for it")]
    PeerLeft(u32),
    /// The deadline passed; the ranks that it waited for are alive.
    #[error("no data arrived within {0:?}; the operation and the team are given up")]
    Timeout(Duration),
    /// Ranks called different operations, or the same with other sizes, types or roots.
    #[error(
        "rank {rank} called {theirs}, and this rank {ours}: all ranks of a team make the same calls in the same order"
    )]
    Mismatch {
        /// Rank that made another call.
        rank: u32,
        /// Its call.
        theirs: String,
        /// The call of this rank.
        ours: String,
    },
    /// A rank gave the team up, for a reason that this rank did not get.
    #[error("rank {0} has given the team up")]
    Revoked(u32),
    /// The handle belongs to another process: it was copied by fork.
    #[error(
        "this handle is of process {0}, which forked: a child joins with a seat of its own, or not at all"
    )]
    Forked(u32),
    /// An invalid argument.
    #[error("{0}")]
    Argument(String),
    /// The function in [`crate::Options::interrupt`] ended the wait. The team is given up.
    #[error("the wait was interrupted; the operation and the team are given up")]
    Interrupted,
    /// Not enough memory for the segment: detected when the segment is made, and never later.
    #[error("no memory for a team of {bytes} bytes: {why}")]
    NoMemory {
        /// Bytes of the segment.
        bytes: usize,
        /// The system's message.
        why: String,
    },
    /// A passed descriptor is not a team's segment, or not one of this version.
    #[error("not a team's segment: {0}")]
    NotATeam(String),
    /// A seat is taken, or a team is over.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{what}: {why}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The system's message.
        why: String,
    },
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes the error of a failed system call.
    pub(crate) fn system(what: &'static str, errno: rustix::io::Errno) -> Self {
        Self::System { what, why: errno.to_string() }
    }
}
