//! Clocks, and the sizes that the kernel passes to each program.
//!
//! The library of safe system calls finds the kernel's code for clocks and these sizes by itself,
//! with a system call and a search at the first question. The C library has found them before
//! `main`. The search ends every program under valgrind by SIGSEGV (rustix issue 1559), also other
//! people's programs that link `libtrimtab`.

use std::time::Duration;

fn now(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to valid memory of that type, and keeps no reference.
    // It fails only for a clock that the kernel lacks, and then writes nothing.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the time since boot, suspend included (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    now(libc::CLOCK_BOOTTIME)
}

/// Returns the time of the clock that only goes on (`CLOCK_MONOTONIC`).
pub fn monotonic() -> Duration {
    now(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the calling thread.
pub fn of_this_thread() -> Duration {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: a number in, a number out.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_as_many_ticks_as_is_assumed() {
        // SAFETY: a number in, a number out.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        assert_eq!(u64::try_from(ticks), Ok(crate::process::TICKS_PER_SECOND));
    }

    #[test]
    fn the_clock_is_that_of_the_kernels_file() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        let (before, now, after) = (uptime(), since_boot().as_secs_f64(), uptime());
        // The file has hundredths of a second.
        assert!(before <= now + 0.01 && now <= after + 0.02, "{before} {now} {after}");
    }
}
