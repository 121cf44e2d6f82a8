//! What ended children have used.

use super::errno;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The CPU time of all children that were waited for, and of those that they waited for.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn of_children() -> Result<Duration, Errno> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to valid memory of that type, for which all zero is valid already.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } < 0 {
        return Err(errno::last());
    }
    // SAFETY: zeroed at first, and written by the call that succeeded.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
        Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_micros(micros.unwrap_or(0))
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}
