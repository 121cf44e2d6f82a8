//! Real-time scheduling and timer slack of the calling thread: the calls with which a thread runs
//! at an exact time.

use super::errno;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong};

/// Lowest real-time priority: it preempts every fairly scheduled thread and no real-time thread.
const PRIORITY_LOWEST: c_int = 1;

/// Schedules the calling thread before all fairly scheduled threads. Threads and processes that it
/// starts are scheduled fairly.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` and without a limit (`RLIMIT_RTPRIO`) above 0, or in a control
/// group without real-time bandwidth; any error of a system-call filter.
pub fn set_first() -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: PRIORITY_LOWEST };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one integer from a structure that lives through the call. The raw
    // call is used because the C library's function of this name fails on musl.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter.sched_priority)
    };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Sets the time by which the kernel may delay the calling thread's timers to the least, 1 ns.
///
/// # Errors
/// Any error of a system-call filter.
pub fn set_least_timer_slack() -> Result<(), Errno> {
    let (slack, unused): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: the option takes an integer; no memory is read or written.
    let answer = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, unused, unused, unused) };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the scheduling policy of the calling thread, as the kernel reports it.
    fn policy() -> String {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let rest = text.rsplit_once(") ").unwrap().1;
        rest.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn a_first_thread_starts_fair_ones_and_a_refusal_changes_nothing() {
        let seen = std::thread::spawn(|| {
            let answer = set_first();
            let inner = std::thread::spawn(policy).join().unwrap();
            (answer, policy(), inner)
        });
        let (answer, own, inner) = seen.join().unwrap();
        assert_eq!(own, if answer.is_ok() { "1" } else { "0" });
        assert_eq!(inner, "0");
        assert_eq!(policy(), "0");
    }

    #[test]
    fn the_slack_is_the_threads_own() {
        let slack = || std::fs::read_to_string("/proc/thread-self/timerslack_ns");
        std::thread::spawn(move || {
            set_least_timer_slack().unwrap();
            // The file is the process's on some kernels; then there is nothing to read.
            if let Ok(text) = slack() {
                assert_eq!(text.trim(), "1");
            }
        })
        .join()
        .unwrap();
    }
}
