//! Clocks, and the sizes that the kernel passes to each program.
//!
//! The library of safe system calls finds the kernel's code for clocks and these sizes by itself,
//! with a system call and a search at the first question. The C library has found them before
//! `main`. The search ends every program under valgrind by SIGSEGV (rustix issue 1559), also other
//! people's programs that link `libtrimtab`.

use crate::process::Pid;
use std::time::Duration;

/// Largest process number that Linux gives.
const PID_MAX: u32 = 1 << 22;

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

/// Returns the CPU time of a process, all its threads together, ended ones too; `None` if it has
/// ended. Any process may be asked for, whoever owns it.
pub fn of_process(pid: Pid) -> Option<Duration> {
    /// Kind of the clock: time that the scheduler counts, in nanoseconds.
    const SCHEDULED: u32 = 2;
    if pid.0 == 0 || pid.0 > PID_MAX {
        return None;
    }
    // The kernel's numbers of these clocks: the inverted process number above three bits of kind.
    let clock = libc::clockid_t::from_ne_bytes((!pid.0 << 3 | SCHEDULED).to_ne_bytes());
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to valid memory of that type, and keeps no reference.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) } != 0;
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    (!failed).then_some(now)
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
    fn the_time_of_a_process_is_that_of_all_its_threads() {
        let own = Pid::own();
        let before = of_process(own).unwrap();
        let worked = std::thread::spawn(|| {
            let begin = of_this_thread();
            while of_this_thread().saturating_sub(begin) < Duration::from_millis(30) {
                std::hint::black_box(0);
            }
        });
        worked.join().unwrap();
        let after = of_process(own).unwrap();
        assert!(after.saturating_sub(before) >= Duration::from_millis(29), "also of a thread that has ended");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let asleep = Pid(child.id());
        // It has executed and fallen asleep: from then on its time stands still.
        let state = || std::fs::read_to_string(format!("/proc/{asleep}/wchan")).unwrap_or_default();
        for _ in 0..1_000 {
            if state().contains("nanosleep") {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let time = of_process(asleep);
        assert!(time.is_some_and(|time| time > Duration::ZERO));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(of_process(asleep), time);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of_process(asleep), None);
        assert_eq!((of_process(Pid(0)), of_process(Pid(u32::MAX))), (None, None));
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
