//! On which nodes pages lie: asked for some addresses of a process, without touching them; and bringing them to another.
//!
//! Measured: 0.2 us a page, whatever else the process has; reading its `numa_maps` costs as much for each of its pages.

use super::errno;
use crate::process::Pid;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;
use trimtab_core::ids::OsNode;

/// So many addresses are asked for in one call. Chosen: what fits into a few pages of ours.
pub const MOST: usize = 4_096;

/// The node of each of these addresses; `None` for those without a page. At most [`MOST`] are asked for.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it may not be looked at, `ENOSYS` on a kernel without this; whatever
/// a system-call filter answers.
pub fn nodes(pid: Pid, addresses: &[u64]) -> Result<Vec<Option<OsNode>>, Errno> {
    let addresses = &addresses[..addresses.len().min(MOST)];
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    // Numbers, never followed in this process.
    let pages: Vec<*mut c_void> = addresses
        .iter()
        .map(|address| usize::try_from(*address).map_or(ptr::null_mut(), ptr::without_provenance_mut))
        .collect();
    let mut answers: Vec<c_int> = vec![-libc::ENOENT; pages.len()];
    // A number that no process can have must not become "myself", which is 0.
    let pid = libc::pid_t::try_from(pid.0).ok().filter(|&id| id > 0).ok_or(Errno::SRCH)?;
    let nowhere: *const c_int = ptr::null();
    let flags: c_int = 0;
    // SAFETY: the kernel reads `count` pointers from the live slice and writes as many ints to the other one, exclusively ours
    // and of the same length; without a list of nodes it moves nothing and only looks the addresses up in the other process.
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
    // Negative are errors of single pages: none there, a hole, the page of zeroes.
    Ok(answers.into_iter().map(|node| u32::try_from(node).ok().map(OsNode)).collect())
}

/// `MPOL_MF_MOVE`: pages that only this process has mapped.
const MOVE: c_int = 1 << 1;

/// Brings the pages at these addresses to a node, but for those that others have mapped too. At most [`MOST`] are brought. Where they
/// lie then must be asked: a page that cannot be moved now ends the call, whatever becomes of the others.
///
/// # Errors
/// `ENOMEM` when there is no room on the node, `EACCES` when the process may not have memory there, `ENODEV` when there is no such node,
/// `ESRCH` when there is no such process, `EPERM` when it is not ours to do; whatever a system-call filter answers.
pub fn bring(pid: Pid, addresses: &[u64], to: OsNode) -> Result<(), Errno> {
    let addresses = &addresses[..addresses.len().min(MOST)];
    if addresses.is_empty() {
        return Ok(());
    }
    // Numbers, never followed in this process.
    let pages: Vec<*mut c_void> = addresses
        .iter()
        .map(|address| usize::try_from(*address).map_or(ptr::null_mut(), ptr::without_provenance_mut))
        .collect();
    let to = c_int::try_from(to.0).map_err(|_| Errno::NODEV)?;
    let nodes: Vec<c_int> = vec![to; pages.len()];
    let mut answers: Vec<c_int> = vec![0; pages.len()];
    // A number that no process can have must not become "myself", which is 0.
    let pid = libc::pid_t::try_from(pid.0).ok().filter(|&id| id > 0).ok_or(Errno::SRCH)?;
    // SAFETY: the kernel reads `count` pointers and as many ints from the two live slices, and writes as many ints to the third one,
    // exclusively ours; all are of that length. What it moves is memory of the other process, which sees the same contents at the same
    // addresses before and after; where that is this process, the same holds for us.
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
