//! Resource usage of this process and of ended children.

use super::errno;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Resources that processes have used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Number of page faults that needed no device.
    pub faults: u64,
    /// Number of voluntary context switches.
    pub voluntary: u64,
    /// Number of involuntary context switches.
    pub involuntary: u64,
}

impl Usage {
    /// Returns the usage since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            faults: self.faults.saturating_sub(earlier.faults),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// Returns the usage of all children that were waited for, and of those that they waited for.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn of_all_children() -> Result<Usage, Errno> {
    read(libc::RUSAGE_CHILDREN)
}

/// Returns the usage of this process. The kernel goes on counting in the program that the process
/// becomes.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn own() -> Result<Usage, Errno> {
    read(libc::RUSAGE_SELF)
}

/// Returns the CPU time of all children that were waited for, and of those that they waited for.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn of_children() -> Result<Duration, Errno> {
    let usage = of_all_children()?;
    Ok(usage.user + usage.system)
}

fn read(target: libc::c_int) -> Result<Usage, Errno> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to valid memory of that type, for which all zero is
    // valid already.
    if unsafe { libc::getrusage(target, usage.as_mut_ptr()) } < 0 {
        return Err(errno::last());
    }
    // SAFETY: zeroed at first, and written by the call that succeeded.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
        Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_micros(micros.unwrap_or(0))
    };
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    Ok(Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        faults: count(usage.ru_minflt),
        voluntary: count(usage.ru_nvcsw),
        involuntary: count(usage.ru_nivcsw),
    })
}
