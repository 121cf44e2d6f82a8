//! Clock for short times, whose unit the processor chooses.

/// Reads the time stamp counter: 2 to 4 million ticks a millisecond.
#[cfg(target_arch = "x86_64")]
pub(crate) fn now() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and no preconditions.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the monotonic clock in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn now() -> u64 {
    monotonic_ns()
}

/// Reads the monotonic clock in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to write; the call leaves `errno` alone for a clock that every kernel
    // has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
