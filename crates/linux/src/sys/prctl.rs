//! Switch for transparent huge pages of the calling process.
//!
//! The setting belongs to the address space and is inherited over fork and exec.

use super::errno;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong};

/// `PR_SET_THP_DISABLE`.
const SET_THP_DISABLE: c_int = 41;
/// `PR_GET_THP_DISABLE`.
const GET_THP_DISABLE: c_int = 42;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`, since Linux 6.18.
const EXCEPT_ADVISED: c_ulong = 1 << 1;

/// Extent to which transparent huge pages are switched off for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThpDisable {
    /// Not at all: the system's setting applies.
    No,
    /// Everywhere.
    Everywhere,
    /// Except where the program requests them by `madvise`.
    ExceptAdvised,
}

/// Switches transparent huge pages of the calling process off, or on again.
///
/// # Errors
/// `EINVAL` for [`ThpDisable::ExceptAdvised`] on a kernel before 6.18, and for any value on one
/// without huge pages; any error of a system-call filter.
pub fn set_thp_disable(how: ThpDisable) -> Result<(), Errno> {
    let (off, flags): (c_ulong, c_ulong) = match how {
        ThpDisable::No => (0, 0),
        ThpDisable::Everywhere => (1, 0),
        ThpDisable::ExceptAdvised => (1, EXCEPT_ADVISED),
    };
    call(SET_THP_DISABLE, off, flags).map(drop)
}

/// Returns how far transparent huge pages are switched off for the calling process.
///
/// # Errors
/// `EINVAL` on a kernel without huge pages, or when its answer is not a known one; any error of a
/// system-call filter.
pub fn thp_disable() -> Result<ThpDisable, Errno> {
    match call(GET_THP_DISABLE, 0, 0)? {
        0 => Ok(ThpDisable::No),
        1 => Ok(ThpDisable::Everywhere),
        3 => Ok(ThpDisable::ExceptAdvised),
        _ => Err(Errno::INVAL),
    }
}

fn call(option: c_int, second: c_ulong, third: c_ulong) -> Result<c_int, Errno> {
    let unused: c_ulong = 0;
    // SAFETY: both options take integers only, all five given at their full width as the kernel
    // checks the unused ones for zero; no memory of this process is read or written.
    let answer = unsafe { libc::prctl(option, second, third, unused, unused) };
    if answer < 0 { Err(errno::last()) } else { Ok(answer) }
}
