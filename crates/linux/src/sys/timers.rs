//! The three timers that every process has and that outlive exec. A wrapper that runs a program
//! with a deadline sets them (`alarm`, `setitimer`) before it execs. A forked child does not
//! inherit them.

use std::ffi::c_int;
use std::mem::MaybeUninit;

/// By wall-clock time, by time in user mode, by CPU time.
const ALL: [c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// The timers of a process, switched off as long as this value holds them.
pub struct Timers([libc::itimerval; 3]);

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("any", &self.any()).finish_non_exhaustive()
    }
}

impl Timers {
    /// Takes the timers from this process.
    pub fn take() -> Self {
        let off = MaybeUninit::<libc::itimerval>::zeroed();
        Self(ALL.map(|which| {
            let mut was = MaybeUninit::<libc::itimerval>::zeroed();
            // SAFETY: all zero is a valid value, which turns a timer off; the old one is written to
            // valid memory of the right type. If the call failed, which it cannot for these three,
            // the old one would stay all zero: off.
            unsafe {
                libc::setitimer(which, off.as_ptr(), was.as_mut_ptr());
                was.assume_init()
            }
        }))
    }

    /// Sets the timers for this process, with the time that was left.
    pub fn set(&self) {
        for (which, value) in ALL.iter().zip(&self.0) {
            if is_on(value) {
                // SAFETY: the value was written by the kernel and lives through the call; null asks
                // for no old one.
                unsafe { libc::setitimer(*which, value, std::ptr::null_mut()) };
            }
        }
    }

    /// Returns whether any is on.
    pub fn any(&self) -> bool {
        self.0.iter().any(is_on)
    }
}

fn is_on(value: &libc::itimerval) -> bool {
    value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_from_one_to_the_other_with_their_time() {
        let far = libc::timeval { tv_sec: 1_000_000, tv_usec: 0 };
        let value = libc::itimerval { it_value: far, it_interval: libc::timeval { tv_sec: 7, tv_usec: 0 } };
        let mut timers = Timers::take();
        assert!(!timers.any(), "nobody sets any in a test");
        timers.0 = [value; 3];
        timers.set();
        let back = Timers::take();
        for value in &back.0 {
            assert!((900_000..=1_000_000).contains(&value.it_value.tv_sec) && value.it_interval.tv_sec == 7);
        }
        assert!(!Timers::take().any(), "they are off here");
    }
}
