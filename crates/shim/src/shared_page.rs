//! Mapping of a page file that the launcher shares with the processes of a run.
//!
//! A page file has a fixed length and begins with a word that names its format; a file of another
//! length or format is not mapped. The mapping is permanent, because threads may use it until the
//! process ends.

use libc::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maps a page file of `bytes` bytes whose word at `magic_at` is `magic`; `None` if the file is
/// another one, or if no memory is left. The descriptor stays open.
pub(crate) fn map(file: c_int, bytes: usize, magic_at: usize, magic: u64) -> Option<*mut AtomicU64> {
    debug_assert!(magic_at < bytes / 8);
    // SAFETY: all zero is a valid `stat`, and the kernel writes one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: our own memory; a descriptor that is not open is an error.
    let fits = unsafe { libc::fstat(file, &raw mut stat) } == 0 && usize::try_from(stat.st_size) == Ok(bytes);
    if !fits {
        return None;
    }
    // SAFETY: a new mapping of a file that has this length.
    let map = unsafe {
        libc::mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, 0)
    };
    if map == libc::MAP_FAILED {
        return None;
    }
    let base: *mut AtomicU64 = map.cast();
    // SAFETY: mapped just now, for good, page-aligned, and longer than this word.
    if unsafe { &*base.add(magic_at) }.load(Relaxed) != magic {
        // SAFETY: no other code knows of the mapping.
        unsafe { libc::munmap(map, bytes) };
        return None;
    }
    Some(base)
}
