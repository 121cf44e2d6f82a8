//! Error number of the calling thread, which belongs to the program.

/// Runs `work` and leaves `errno` as it was.
pub(crate) fn kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the location is valid in the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}
