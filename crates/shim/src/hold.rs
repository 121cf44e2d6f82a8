//! Hold of the program's CPUs, kept when the program closes descriptors that it did not open.
//!
//! The launcher leaves an open file of locks to the program (`TRIMTAB_HOLD`), and the kernel
//! releases the CPUs when the last reference to that file is closed. A mapping is such a reference,
//! and `close` and `close_range` leave mappings alone. It is inherited by `fork` and ends with the
//! process or its next `exec`, so it keeps the hold no longer than the descriptor would have. The
//! file is empty and the mapping permits no access, so it costs an entry in the table of mappings.
//!
//! Only the program itself maps the file. A helper that it starts and that closes the descriptor
//! gives its part of the hold back, as documented.

use crate::plan;
use std::ptr::null_mut;
use trimtab_core::hold_claim::{HOLD, HoldClaim};

/// Length of the mapping. The kernel rounds it up to a page.
const BYTES: usize = 1;

/// Maps the hold's file, if there is one. Called while the process has one thread and before the
/// program could close or replace the descriptor.
pub(crate) fn keep() {
    let Some(descriptor) = plan::variable(HOLD).and_then(descriptor) else { return };
    // SAFETY: the location is valid in the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: a new mapping at an address that the kernel chooses, without access; a descriptor
    // that is not open is an error, which is ignored: the hold then lasts as long as the
    // descriptor.
    unsafe { libc::mmap(null_mut(), BYTES, libc::PROT_NONE, libc::MAP_SHARED, descriptor, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the descriptor that a claim names, if it can be that of a hold.
fn descriptor(text: &str) -> Option<i32> {
    text.parse::<HoldClaim>().ok().map(|claim| claim.descriptor).filter(|&descriptor| descriptor > 2)
}

#[cfg(test)]
mod tests {
    use super::descriptor;

    #[test]
    fn the_descriptor_is_the_second_word() {
        assert_eq!(descriptor("0 700 123"), Some(700));
        assert_eq!(descriptor("1 3"), Some(3));
        for text in ["", "0", "0 x", "0 2 1", "0 -1 1", "0 99999999999 1"] {
            assert_eq!(descriptor(text), None, "{text:?}");
        }
    }
}
