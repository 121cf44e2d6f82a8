//! Clock that counts from boot.
//!
//! The library of safe system calls finds the kernel's code for clocks by itself, with a system
//! call and a search of symbols at the first question. The C library has found it before `main`.

use std::time::Duration;

/// Returns the time since boot, suspend included (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to valid memory of that type, and keeps no reference.
    // It fails only for a clock that the kernel lacks, and then writes nothing.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
