//! Memory policy of the calling thread, with node masks of any width.
//!
//! The module avoids two traps of the interface. First, `maxnode` is one more than the number of
//! bits that the kernel reads, so a mask of `n` bits is passed with `n + 1`: with `n`, the kernel
//! silently ignores the highest node, and "prefer node 63" becomes "local". Second, reading needs
//! room for every node that the kernel could have, not for those the machine has: with less the
//! kernel returns `EINVAL`, and the module repeats the call with a larger buffer.

use super::errno;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong};
use std::ptr;
use trimtab_core::set::NodeSet;

/// First buffer: 1,024 nodes, the most that kernels are built for today.
const FIRST_WORDS: usize = 16;
/// Longest mask, a page of 4 KiB: the kernel takes no longer one.
const LAST_WORDS: usize = 512;
/// `MPOL_F_STATIC_NODES`, `MPOL_F_RELATIVE_NODES` and `MPOL_F_NUMA_BALANCING`: flag bits inside the
/// mode.
const MODE_FLAGS: c_int = 0b111 << 13;
/// `MPOL_F_MEMS_ALLOWED`: return the nodes that the cpuset permits instead of the policy.
const MEMS_ALLOWED: c_ulong = 1 << 2;

/// A memory policy as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Mode {
    /// `MPOL_DEFAULT`: none set, so the system's applies.
    Default = 0,
    /// `MPOL_PREFERRED`: one node first. Given several, the kernel takes the lowest; given none, it
    /// means `Local`.
    Preferred = 1,
    /// `MPOL_BIND`.
    Bind = 2,
    /// `MPOL_INTERLEAVE`.
    Interleave = 3,
    /// `MPOL_LOCAL`.
    Local = 4,
    /// `MPOL_PREFERRED_MANY`, since Linux 5.15.
    PreferredMany = 5,
    /// `MPOL_WEIGHTED_INTERLEAVE`, since Linux 6.9.
    WeightedInterleave = 6,
}

/// Policy of the calling thread, as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Current {
    /// The mode's number without its flags; possibly one that [`Mode`] does not have yet.
    pub mode: i32,
    /// The nodes of the policy; empty for modes that have none.
    pub nodes: NodeSet,
}

/// Sets the policy of the calling thread, which its later threads, children and programs inherit.
///
/// The kernel drops nodes that the cpuset withholds or that have no memory, as long as one remains.
///
/// # Errors
/// `EINVAL` when the kernel does not know the mode, when no node remains, or when nodes are given
/// for a mode that takes none; `ENOSYS` on a kernel without NUMA; any error of a system-call filter
/// (usually `EPERM`).
pub fn set(mode: Mode, nodes: &NodeSet) -> Result<(), Errno> {
    let words = nodes.words();
    let (mask, maxnode) = match words {
        [] => (ptr::null(), 0),
        words => (words.as_ptr(), words.len() * 64 + 1),
    };
    // SAFETY: the kernel reads `maxnode - 1` bits from the mask, exactly the words of the live
    // slice behind it, or nothing when it is null with a `maxnode` of 0; it keeps no reference
    // after the call.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode as c_int, mask, maxnode) };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Returns the policy of the calling thread.
///
/// # Errors
/// `ENOSYS` on a kernel without NUMA; any error of a system-call filter (usually `EPERM`).
pub fn get() -> Result<Current, Errno> {
    ask(0).map(|(mode, nodes)| Current { mode: mode & !MODE_FLAGS, nodes })
}

/// Returns the nodes from which the cpuset of the calling thread lets it allocate.
///
/// # Errors
/// As [`get`].
pub fn allowed() -> Result<NodeSet, Errno> {
    ask(MEMS_ALLOWED).map(|(_, nodes)| nodes)
}

fn ask(flags: c_ulong) -> Result<(c_int, NodeSet), Errno> {
    let mut words = vec![0u64; FIRST_WORDS];
    loop {
        match ask_into(flags, &mut words) {
            Ok(mode) => return Ok((mode, NodeSet::from_words(words))),
            Err(Errno::INVAL) if words.len() < LAST_WORDS => words.resize(words.len() * 2, 0),
            Err(errno) => return Err(errno),
        }
    }
}

fn ask_into(flags: c_ulong, words: &mut [u64]) -> Result<c_int, Errno> {
    let mut mode: c_int = 0;
    let address: *const u8 = ptr::null();
    // SAFETY: the kernel writes one int to `mode` and `maxnode - 1` bits to the mask, exactly the
    // words of the live, exclusively borrowed slice behind it; any bit pattern is a valid u64. The
    // address is null, as it must be without MPOL_F_ADDR.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            words.as_mut_ptr(),
            words.len() * 64 + 1,
            address,
            flags,
        )
    };
    if answer < 0 { Err(errno::last()) } else { Ok(mode) }
}
