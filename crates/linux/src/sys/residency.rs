//! Nodes on which pages lie, queried for some addresses of a process without touching them; and
//! migration of the pages to another node.
//!
//! Measured: 0.2 us a page, whatever else the process has. Reading the process's `numa_maps` costs
//! as much for each of its pages.

use super::errno;
use crate::process::Pid;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;
use trimtab_core::ids::OsNode;

/// Largest number of addresses in one call. Chosen: their buffers fit into a few pages of memory.
pub const ADDRESSES_MAX: usize = 4_096;

/// Returns the node of each of these addresses; `None` for those without a page. At most
/// [`ADDRESSES_MAX`] are queried.
///
/// # Errors
/// `ESRCH` when the process does not exist, `EPERM` when it may not be observed, `ENOSYS` on a
/// kernel without the call; any error of a system-call filter.
pub fn nodes(pid: Pid, addresses: &[u64]) -> Result<Vec<Option<OsNode>>, Errno> {
    let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    // Addresses of the other process, never dereferenced in this one.
    let pages: Vec<*mut c_void> = addresses
        .iter()
        .map(|address| usize::try_from(*address).map_or(ptr::null_mut(), ptr::without_provenance_mut))
        .collect();
    let mut answers: Vec<c_int> = vec![-libc::ENOENT; pages.len()];
    // A number that no process can have must not become 0, which is the calling process.
    let pid = libc::pid_t::try_from(pid.0).ok().filter(|&id| id > 0).ok_or(Errno::SRCH)?;
    let nowhere: *const c_int = ptr::null();
    let flags: c_int = 0;
    // SAFETY: the kernel reads `count` pointers from the live slice and writes as many ints to the
    // other one, exclusively ours and of the same length; without a list of nodes it moves nothing
    // and only looks the addresses up in the other process.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len() as c_ulong,
            pages.as_ptr(),
            nowhere,
            answers.as_mut_ptr(),
            flags,
        )
    };
    if answer < 0 {
        return Err(errno::last());
    }
    // Negative values are errors of single pages: not present, a hole, the zero page.
    Ok(answers.into_iter().map(|node| u32::try_from(node).ok().map(OsNode)).collect())
}

/// `MPOL_MF_MOVE`: pages that only this process has mapped.
const MOVE: c_int = 1 << 1;

/// Migrates the pages at these addresses to a node, except those that other processes have mapped
/// too. At most [`ADDRESSES_MAX`] are migrated. The caller must query afterwards where the pages
/// lie: a page that cannot be moved now ends the call, with the other pages moved or not.
///
/// # Errors
/// `ENOMEM` when the node has no room, `EACCES` when the process may not have memory there,
/// `ENODEV` when the node does not exist, `ESRCH` when the process does not exist, `EPERM` when
/// this process may not do it; any error of a system-call filter.
pub fn bring(pid: Pid, addresses: &[u64], to: OsNode) -> Result<(), Errno> {
    let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
    if addresses.is_empty() {
        return Ok(());
    }
    // Addresses of the other process, never dereferenced in this one.
    let pages: Vec<*mut c_void> = addresses
        .iter()
        .map(|address| usize::try_from(*address).map_or(ptr::null_mut(), ptr::without_provenance_mut))
        .collect();
    let to = c_int::try_from(to.0).map_err(|_| Errno::NODEV)?;
    let nodes: Vec<c_int> = vec![to; pages.len()];
    let mut answers: Vec<c_int> = vec![0; pages.len()];
    // A number that no process can have must not become 0, which is the calling process.
    let pid = libc::pid_t::try_from(pid.0).ok().filter(|&id| id > 0).ok_or(Errno::SRCH)?;
    // SAFETY: the kernel reads `count` pointers and as many ints from the two live slices, and
    // writes as many ints to the third one, exclusively ours; all are of that length. It moves
    // memory of the other process, which sees the same contents at the same addresses before and
    // after; if that is this process, the same holds for it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len() as c_ulong,
            pages.as_ptr(),
            nodes.as_ptr(),
            answers.as_mut_ptr(),
            MOVE,
        )
    };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;

    #[test]
    fn a_page_that_is_there_has_a_node_and_a_hole_has_none() {
        let page = vec![7u8; 8 << 10];
        let asked = [page.as_ptr().addr() as u64, 8];
        match nodes(Pid::own(), &asked) {
            Ok(answers) => {
                assert_eq!(answers.len(), 2);
                assert!(answers[0].is_some() && answers[1].is_none(), "{answers:?}");
            }
            Err(errno) => skipped(format_args!("pages cannot be asked for here: {errno}")),
        }
        assert_eq!(nodes(Pid::own(), &[]), Ok(Vec::new()));
        for none in [0, 4_000_000, u32::MAX] {
            assert!(nodes(Pid(none), &asked).is_err());
            assert!(bring(Pid(none), &asked, OsNode(0)).is_err());
        }
        assert_eq!(bring(Pid::own(), &[], OsNode(0)), Ok(()));
        assert!(bring(Pid::own(), &asked, OsNode(u32::MAX)).is_err());
        assert!(page.iter().all(|byte| *byte == 7), "it is the same wherever it lies");
    }
}
