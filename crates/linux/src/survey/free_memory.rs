//! Memory of each node that a new program could get.
//!
//! The kernel reports available memory for the whole machine only (`MemAvailable`). For one node
//! its parts are added here: free pages, clean or dirty pages of files, and slab memory that the
//! kernel can give back. Pages of files on `tmpfs` are not among them, since they need swap space.

use crate::text::{self, ReadError};
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::ids::OsNode;

/// Lines of a node's `meminfo` that are added.
const PARTS: [&str; 4] = ["MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:"];

/// Returns the free memory of these nodes in bytes, read below `sys`. A node whose file does not
/// exist is left out: it went offline, or the kernel was built without nodes.
///
/// # Errors
/// A file cannot be read or lacks the free memory.
pub fn free_memory(
    sys: &Path,
    nodes: impl IntoIterator<Item = OsNode>,
) -> Result<BTreeMap<OsNode, u64>, ReadError> {
    let mut free = BTreeMap::new();
    for node in nodes {
        let path = sys.join(format!("devices/system/node/node{node}/meminfo"));
        if let Some(text) = text::read_if_there(&path)? {
            let bytes = bytes(&text).ok_or_else(|| ReadError::malformed(&path, "no free memory in kB"))?;
            free.insert(node, bytes);
        }
    }
    Ok(free)
}

/// Returns the memory of the whole machine that is not free, caches of files included. One system
/// call, while a node's file takes 40 microseconds to read: a node can be full only if this much is
/// at least as large as the node.
pub fn used_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let pages = info.totalram.saturating_sub(info.freeram);
    pages.saturating_mul(u64::from(info.mem_unit).max(1))
}

/// Returns the sum of the parts; `None` without a line of free memory or with a malformed one.
fn bytes(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut sum: Option<u64> = None;
    for line in text.lines() {
        // Node 0 MemFree:  5757816 kB
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(at) = words.next().and_then(|name| PARTS.iter().position(|&part| part == name)) else {
            continue;
        };
        let kibibytes: u64 = words.next()?.parse().ok()?;
        if words.next() != Some("kB") {
            return None;
        }
        let part = kibibytes.checked_mul(1 << 10)?;
        match (&mut sum, at) {
            (Some(sum), _) => *sum = sum.checked_add(part)?,
            (None, 0) => sum = Some(part),
            (None, _) => return None, // the kernel writes the free memory before all other parts
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const TEXT: &str = "Node 3 MemTotal:       16869580 kB\nNode 3 MemFree:         5757816 kB\n\
        Node 3 Active(anon):       2148 kB\nNode 3 Active(file):    2518544 kB\n\
        Node 3 Inactive(file):  5979624 kB\nNode 3 FilePages:       8507680 kB\n\
        Node 3 SReclaimable:     632588 kB\nNode 3 HugePages_Total:     0\n";

    #[test]
    fn parts_of_each_node_are_added_and_nodes_without_a_file_left_out() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices/system/node/node3");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("meminfo"), TEXT).unwrap();
        let free = free_memory(root.path(), [OsNode(0), OsNode(3)]).unwrap();
        assert_eq!(free, [(OsNode(3), (5_757_816 + 2_518_544 + 5_979_624 + 632_588) << 10)].into());
        fs::write(folder.join("meminfo"), "Node 3 MemTotal: 1 kB\n").unwrap();
        let error = free_memory(root.path(), [OsNode(3)]).unwrap_err().to_string();
        assert!(error.contains("node3/meminfo: no free memory"), "{error}");
    }

    #[test]
    fn the_used_memory_is_less_than_the_machine_has() {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
        let used = used_memory();
        assert!(used > 0 && used <= total, "{used} {total}");
    }

    #[test]
    fn malformed_lines_are_not_taken_for_an_amount() {
        for text in [
            "",
            "Node 0 MemFree: 7\n",
            "Node 0 MemFree: -7 kB\n",
            "Node 0 MemFree:\n",
            "Node 0 Active(file): 7 kB\n",
            "Node 0 MemFree: 18446744073709551615 kB\n",
        ] {
            assert_eq!(bytes(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(bytes(b"Node 0 MemFree: 0 kB\n"), Some(0));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let whole = [b"Node 0 MemFree: 4 kB\n", text.as_slice()].concat();
            if let Some(bytes) = bytes(&whole) {
                prop_assert!(bytes >= 4 << 10);
            }
        }
    }
}
