//! Errors of watching the machine.

use crate::process::Pid;
use crate::text::ReadError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason why the machine cannot be watched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    /// No root was given.
    #[error("there is nothing to watch: name a process or a control group")]
    Nothing,
    /// The process does not exist.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// The process exists, and procfs does not show it.
    #[error(
        "process {0} is hidden from you (/proc is mounted with hidepid): ask for the group that may see it, or use root"
    )]
    Hidden(Pid),
    /// The process has ended and its parent has not collected it.
    #[error("process {0} has ended (its parent has not collected it yet)")]
    Ended(Pid),
    /// The number belongs to a thread.
    #[error("{thread} is a thread of process {process}: name the process")]
    Thread {
        /// The given number.
        thread: Pid,
        /// Its process.
        process: Pid,
    },
    /// The process is a kernel thread.
    #[error("process {0} is a thread of the kernel, which looks after its own")]
    KernelThread(Pid),
    /// The process is this process itself.
    #[error("process {0} is trimtab itself: name the program that is to be watched")]
    Own(Pid),
    /// The process belongs to another user.
    #[error("process {pid} belongs to user {uid}: only that user and root may move its threads")]
    NotYours {
        /// The process.
        pid: Pid,
        /// Its user.
        uid: u32,
    },
    /// The control group does not exist.
    #[error("no control group at {}: {source}; name its folder below /sys/fs/cgroup", path.display())]
    NoGroup {
        /// The folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The control group is empty.
    #[error("the control group {} has no process", .0.display())]
    EmptyGroup(PathBuf),
    /// Files of the kernel cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A required system call failed.
    #[error("{attempt}: {source}")]
    System {
        /// The attempted action.
        attempt: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl LiveError {
    /// Returns whether the root exists and may not be read.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Hidden(_) => true,
            Self::Read(error) => error.is_refused(),
            Self::NoGroup { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
