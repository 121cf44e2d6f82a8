//! Refusals of requests, with advice for the user.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reason why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The request has another version of the protocol.
    #[error(
        "the daemon speaks version {spoken} of the protocol: use the trimtab that it was started from, or restart it"
    )]
    Version {
        /// Version of the daemon.
        spoken: u32,
    },
    /// The line is not a request.
    #[error("this is not a request: {0}")]
    Garbage(String),
    /// The request is too long.
    #[error("a request is at most {most} bytes long")]
    TooLong {
        /// The limit.
        most: u32,
    },
    /// There were too many requests.
    #[error("too many requests: ask again in {ms} ms")]
    TooOften {
        /// Milliseconds until the next request is accepted.
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
    /// There are too many virtual machines.
    #[error("{limit} machines are watched already: clear some")]
    TooManyMachines {
        /// The limit.
        limit: usize,
    },
    /// There are too many connections.
    #[error("too many connections: try again")]
    Busy,
    /// The process does not exist.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The thread does not exist.
    #[error("process {pid} has no thread {tid}")]
    NoThread {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// A thread was named as a process.
    #[error("{thread} is a thread of process {process}: name it {process}:{thread}")]
    IsThread {
        /// Named thread.
        thread: u32,
        /// Process of the thread.
        process: u32,
    },
    /// The process is a kernel thread.
    #[error("process {0} is a kernel thread, which the kernel places itself")]
    Kernel(u32),
    /// The process is the daemon itself.
    #[error("process {0} is the daemon itself")]
    Own(u32),
    /// The process belongs to another user.
    #[error("process {pid} belongs to user {uid}: only that user and root may tag it")]
    NotYours {
        /// Process.
        pid: u32,
        /// User of the process.
        uid: u32,
    },
    /// The control group belongs to another user.
    #[error(
        "the control group {path} belongs to user {uid}: only that user and root may tag it; tag processes of yours in it"
    )]
    NotYourGroup {
        /// Path of the group.
        path: String,
        /// User of the group.
        uid: u32,
    },
    /// The daemon may not move the process.
    #[error(
        "process {pid} belongs to user {uid}, and this daemon runs as user {own}: use a daemon that root runs (systemctl start trimtab)"
    )]
    Reach {
        /// Process.
        pid: u32,
        /// User of the process.
        uid: u32,
        /// User of the daemon.
        own: u32,
    },
    /// The requester is in another process-id namespace.
    #[error(
        "you are in another container than the daemon, where process numbers have another meaning: ask from outside the container"
    )]
    Namespace,
    /// The control group does not exist.
    #[error("no control group at {path}: {why}")]
    NoCgroup {
        /// Path of the group.
        path: String,
        /// Error of the kernel.
        why: String,
    },
    /// The virtual machine does not exist.
    #[error("no virtual machine {name} was found: {why}")]
    NoVm {
        /// Given name.
        name: String,
        /// Machines that exist instead.
        why: String,
    },
    /// The request is reserved to root and the daemon's user.
    #[error("only root and the user of the daemon (user {own}) may have its files read again")]
    NotOperator {
        /// User of the daemon.
        own: u32,
    },
    /// A file of declared tags cannot be used.
    #[error("the declared tags stay as they were: {0}")]
    Files(String),
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}
