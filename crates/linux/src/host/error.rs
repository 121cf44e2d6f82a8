//! Why the machine cannot be watched.

use crate::process::Pid;
use crate::text::ReadError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the machine cannot be watched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    /// Nothing was asked for.
    #[error("there is nothing to watch: name a process or a control group")]
    Nothing,
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// There is one, and procfs does not show it.
    #[error(
        "process {0} is hidden from you (/proc is mounted with hidepid): ask for the group that may see it, or use root"
    )]
    Hidden(Pid),
    /// It has ended and its parent has not collected it.
    #[error("process {0} has ended (its parent has not collected it yet)")]
    Ended(Pid),
    /// It is a thread.
    #[error("{thread} is a thread of process {process}: name the process")]
    Thread {
        /// What was named.
        thread: Pid,
        /// Its process.
        process: Pid,
    },
    /// The kernel's own.
    #[error("process {0} is a thread of the kernel, which looks after its own")]
    KernelThread(Pid),
    /// Ourselves.
    #[error("process {0} is trimtab itself: name the program that is to be watched")]
    Own(Pid),
    /// Somebody else's.
    #[error("process {pid} belongs to user {uid}: only that user and root may move its threads")]
    NotYours {
        /// The process.
        pid: Pid,
        /// Its user.
        uid: u32,
    },
    /// There is no such control group.
    #[error("no control group at {}: {source}; name its folder below /sys/fs/cgroup", path.display())]
    NoGroup {
        /// The folder.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Nobody is in it.
    #[error("the control group {} has no process", .0.display())]
    EmptyGroup(PathBuf),
    /// Files of the kernel cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A system call that must work does not.
    #[error("{attempt}: {source}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl LiveError {
    /// Whether it is there and may not be looked at.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Hidden(_) => true,
            Self::Read(error) => error.is_refused(),
            Self::NoGroup { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
