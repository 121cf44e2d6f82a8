//! CPU affinity of any width.
//!
//! The C library's `cpu_set_t` stops at 1,024 CPUs and its wrappers hide how many bytes the kernel
//! wrote; the system calls themselves have no such limit. The kernel *drops* CPUs that it does not
//! have or that the cpuset withholds, as long as one remains. A caller that needs the effective
//! mask reads it back.

use super::errno;
use crate::process::Tid;
use rustix::io::Errno;
use std::ffi::c_ulong;
use trimtab_core::set::{CpuSet, MAX_ID};

/// First buffer: 1,024 CPUs, enough for nearly every kernel at the first call.
const FIRST_WORDS: usize = 16;

/// The kernel's masks are arrays of `unsigned long`; the sets here are arrays of `u64`.
const _: () = assert!(size_of::<c_ulong>() == size_of::<u64>(), "masks are laid out for 64-bit kernels");

/// Returns the CPUs on which a task may run, without offline ones; `None` is the calling thread.
///
/// Tasks of other users can be read too.
///
/// # Errors
/// `ESRCH` when the task does not exist; any error of a system-call filter.
pub fn get(task: Option<Tid>) -> Result<CpuSet, Errno> {
    let mut words = vec![0u64; FIRST_WORDS];
    loop {
        match get_into(task, &mut words) {
            Ok(filled) => {
                words.truncate(filled);
                return Ok(CpuSet::from_words(words));
            }
            // The kernel was built for more CPUs than the buffer holds.
            Err(Errno::INVAL) if words.len() * 64 <= MAX_ID => words.resize(words.len() * 2, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns every CPU that the kernel has room for. As a mask it excludes nothing, whatever the
/// cpuset is and becomes.
///
/// # Errors
/// As [`get`].
pub fn every() -> Result<CpuSet, Errno> {
    let mut words = vec![0u64; FIRST_WORDS];
    loop {
        match get_into(None, &mut words) {
            Ok(filled) => return Ok(CpuSet::from_words(vec![u64::MAX; filled])),
            Err(Errno::INVAL) if words.len() * 64 <= MAX_ID => words.resize(words.len() * 2, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Restricts a task to these CPUs; `None` is the calling thread.
///
/// # Errors
/// `EINVAL` when none of the CPUs is online and inside the task's cpuset, `ESRCH` when the task
/// does not exist, `EPERM` when it belongs to another user; any error of a system-call filter.
pub fn set(task: Option<Tid>, cpus: &CpuSet) -> Result<(), Errno> {
    let words = cpus.words();
    // SAFETY: the kernel reads at most the given number of bytes from the pointer, which is exactly
    // the length of the live slice behind it; it keeps no reference after the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, raw(task), size_of_val(words), words.as_ptr()) };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Fills `words` with the mask and returns how many of them the kernel wrote.
fn get_into(task: Option<Tid>, words: &mut [u64]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the given number of bytes to the pointer, which is exactly
    // the length of the live, exclusively borrowed slice behind it; any bit pattern is a valid u64.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, raw(task), size_of_val(words), words.as_mut_ptr())
    };
    match usize::try_from(answer) {
        Ok(bytes) => Ok(bytes.div_ceil(size_of::<u64>()).min(words.len())),
        Err(_) => Err(errno::last()),
    }
}

/// Returns the task's number for the kernel. A number that no task can have is passed as such a
/// number: the kernel refuses it with `ESRCH` and never takes it as the calling thread.
fn raw(task: Option<Tid>) -> libc::pid_t {
    task.map_or(0, |tid| libc::pid_t::try_from(tid.0).ok().filter(|&id| id != 0).unwrap_or(libc::pid_t::MAX))
}
