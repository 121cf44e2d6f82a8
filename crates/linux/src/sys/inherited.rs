//! Copies of descriptors that the next program inherits.

use super::errno;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Returns a copy of a descriptor, with a number from `lowest` on, that stays open over an exec.
/// The standard library and rustix make copies that an exec closes: to change that takes a second
/// call.
///
/// # Errors
/// No number from `lowest` on is free, or it is beyond the limit.
pub fn copy_from(descriptor: impl AsFd, lowest: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the descriptor stays open while it is borrowed, and the call does not change it.
    let copy = unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_DUPFD, lowest) };
    if copy < 0 {
        return Err(errno::last());
    }
    // SAFETY: the kernel has just made this descriptor, so that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_getfd};

    #[test]
    fn a_copy_has_a_high_number_and_is_inherited() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(fcntl_getfd(&file), Ok(FdFlags::CLOEXEC));
        let copy = copy_from(&file, 500).unwrap();
        assert!(copy.as_raw_fd() >= 500);
        assert_eq!(fcntl_getfd(&copy), Ok(FdFlags::empty()));
        assert_eq!(copy_from(&file, RawFd::MAX).unwrap_err(), Errno::INVAL);
    }
}
