//! Memory that was to follow a thread: how much of it came, and why not the rest.

use crate::ids::{OsNode, ThreadId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What became of memory that was to be brought to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetched {
    /// The thread after which it was to come.
    pub thread: ThreadId,
    /// Its process, as the kernel numbers it.
    pub pid: u32,
    /// The node.
    pub to: OsNode,
    /// Bytes that came from other nodes.
    pub moved: u64,
    /// Bytes of the process's own memory that are on other nodes still, as far as they were looked for.
    pub left: u64,
    /// Why not all came, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Unfetched>,
}

impl fmt::Display for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let Self { pid, to, moved, left, why, .. } = self;
        match why {
            Some(why) if *moved == 0 => {
                write!(f, "memory of process {pid} was not brought to node {to}: {why}")
            }
            Some(why) => {
                let (moved, left) = (mib(*moved), mib(*left));
                write!(
                    f,
                    "{moved} MiB of process {pid} were brought to node {to}, {left} MiB were not: {why}"
                )
            }
            None if *moved == 0 => write!(f, "the memory of process {pid} is on node {to} already"),
            None => write!(f, "{} MiB of process {pid} were brought to node {to}", mib(*moved)),
        }
    }
}

/// Why memory was not brought to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unfetched {
    /// There is no other node to bring it from.
    OneNode,
    /// This node has no memory.
    NoMemory,
    /// The program, or whoever started it, said where its memory is to be: this memory policy, by the kernel's word.
    Policy(String),
    /// Devices use it where it is: an assigned device, memory that is pinned.
    Pinned,
    /// It is in huge pages that are set aside (hugetlbfs), which are not moved.
    Huge,
    /// The node has no room for it.
    Full,
    /// The process may not have memory there (its cpuset), or is not ours to do that to.
    Permission,
    /// Its pages were in use just then, or others have them mapped too.
    Busy,
    /// It was not waited for: the process is no longer balanced, or the balancing ended.
    Stopped,
    /// The process ended.
    Ended,
    /// What the kernel answered instead.
    Kernel(String),
}

impl fmt::Display for Unfetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneNode => f.write_str("all memory of this machine is one node"),
            Self::NoMemory => f.write_str("that node has no memory"),
            Self::Policy(policy) => {
                write!(f, "it has a memory policy of its own ({policy}), which is respected")
            }
            Self::Pinned => f.write_str("devices use it where it is (VFIO, or pinned)"),
            Self::Huge => f.write_str("it is in huge pages that were set aside"),
            Self::Full => f.write_str("there is no room"),
            Self::Permission => f.write_str("the kernel does not permit it (its cpuset, or another user's)"),
            Self::Busy => f.write_str("these pages are in use, or shared with others"),
            Self::Stopped => f.write_str("the balancing of it ended before"),
            Self::Ended => f.write_str("it ended"),
            Self::Kernel(answer) => f.write_str(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_came_and_why_the_rest_did_not() {
        let fetched = |moved, left, why| {
            Fetched { thread: ThreadId(0), pid: 7, to: OsNode(1), moved, left, why }.to_string()
        };
        assert_eq!(fetched(0, 0, None), "the memory of process 7 is on node 1 already");
        assert_eq!(fetched(3 << 20, 0, None), "3 MiB of process 7 were brought to node 1");
        assert_eq!(
            fetched(3 << 20, 4_096, Some(Unfetched::Busy)),
            "3 MiB of process 7 were brought to node 1, 1 MiB were not: these pages are in use, or shared with others"
        );
        assert_eq!(
            fetched(0, 0, Some(Unfetched::Policy("bind:0".into()))),
            "memory of process 7 was not brought to node 1: it has a memory policy of its own (bind:0), which is respected"
        );
    }
}
