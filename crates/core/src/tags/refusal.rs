//! Why a wish is not granted, with what would help.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Another version of the protocol.
    #[error(
        "the daemon speaks version {spoken} of the protocol: use the trimtab that it was started from, or restart it"
    )]
    Version {
        /// The daemon's.
        spoken: u32,
    },
    /// It is no request.
    #[error("this is no request: {0}")]
    Garbage(String),
    /// It is too long.
    #[error("a request is at most {most} bytes long")]
    TooLong {
        /// The limit.
        most: u32,
    },
    /// There were too many.
    #[error("too many requests: ask again in {ms} ms")]
    TooOften {
        /// When the next will be heard.
        ms: u64,
    },
    /// There are too many tags.
    #[error(
        "there are {limit} tags already: clear some, or tag a process or control group instead of its threads"
    )]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// There are too many control groups.
    #[error("{limit} control groups are tagged already: clear some, or tag one that holds them")]
    TooManyGroups {
        /// The limit.
        limit: usize,
    },
    /// There are too many machines.
    #[error("{limit} machines are watched already: clear some")]
    TooManyMachines {
        /// The limit.
        limit: usize,
    },
    /// There are too many connections.
    #[error("too many connections: try again")]
    Busy,
    /// No such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// No such thread.
    #[error("process {pid} has no thread {tid}")]
    NoThread {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread was named as a process.
    #[error("{thread} is a thread of process {process}: name it {process}:{thread}")]
    IsThread {
        /// What was named.
        thread: u32,
        /// Its process.
        process: u32,
    },
    /// The kernel's own.
    #[error("process {0} is a thread of the kernel, which looks after its own")]
    Kernel(u32),
    /// The daemon itself.
    #[error("process {0} is the daemon itself")]
    Own(u32),
    /// Somebody else's.
    #[error("process {pid} belongs to user {uid}: only that user and root may tag it")]
    NotYours {
        /// The process.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// Somebody else's group.
    #[error(
        "the control group {path} belongs to user {uid}: only that user and root may tag it; tag processes of yours in it"
    )]
    NotYourGroup {
        /// Its path.
        path: String,
        /// Its user.
        uid: u32,
    },
    /// The daemon may not move it.
    #[error(
        "process {pid} belongs to user {uid}, and this daemon is user {own}'s: ask one that root runs (systemctl start trimtab)"
    )]
    Reach {
        /// The process.
        pid: u32,
        /// Its user.
        uid: u32,
        /// The daemon's.
        own: u32,
    },
    /// Numbers of processes mean others there.
    #[error(
        "you are in another container than the daemon, where process numbers mean others: ask from outside"
    )]
    Namespace,
    /// No such group.
    #[error("no control group at {path}: {why}")]
    NoCgroup {
        /// Its path.
        path: String,
        /// What the kernel says.
        why: String,
    },
    /// No such machine.
    #[error("no virtual machine {name} is found: {why}")]
    NoVm {
        /// What was named.
        name: String,
        /// What there is instead.
        why: String,
    },
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}
