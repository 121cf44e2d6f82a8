//! Result of moving memory after a thread: the amount moved, and the reason why the rest stayed.

use crate::ids::{OsNode, ThreadId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of moving memory to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetched {
    /// Thread that the memory should follow.
    pub thread: ThreadId,
    /// Process id given by the kernel.
    pub pid: u32,
    /// Target node.
    pub to: OsNode,
    /// Bytes moved from other nodes.
    pub moved: u64,
    /// Bytes of the process's own memory still on other nodes, as far as they were examined.
    pub left: u64,
    /// Reason why some memory was not moved; `None` if all of it was.
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

/// Reason why memory was not moved to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unfetched {
    /// The machine has only one node.
    OneNode,
    /// The target node has no memory.
    NoMemory,
    /// The program or its parent set this memory policy (in the kernel's term), which determines
    /// the location of the memory.
    Policy(String),
    /// Devices use the memory at its location: an assigned device, pinned memory.
    Pinned,
    /// The memory is in reserved huge pages (hugetlbfs), which are not moved.
    Huge,
    /// The target node has no free memory.
    Full,
    /// The process may not have memory there (its cpuset), or the balancer lacks the permission.
    Permission,
    /// Its pages were in use at that time, or other processes map them too.
    Busy,
    /// Moving was not awaited: the process is no longer balanced, or the balancing ended.
    Stopped,
    /// The process ended.
    Ended,
    /// Another error reported by the kernel.
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
            Self::Huge => f.write_str("it is in reserved huge pages"),
            Self::Full => f.write_str("there is no room"),
            Self::Permission => f.write_str("the kernel does not permit it (its cpuset, or another user's)"),
            Self::Busy => f.write_str("these pages are in use, or shared with others"),
            Self::Stopped => f.write_str("its balancing ended before"),
            Self::Ended => f.write_str("it ended"),
            Self::Kernel(answer) => f.write_str(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_reports_moved_pages_and_the_reason_for_the_rest() {
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
