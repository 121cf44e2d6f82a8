//! Period of preemption: how often the program's threads are preempted between the kernel's ticks,
//! so that a thread that spins in the program's own code soon loses its CPU.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Period of preemption in microseconds, [`PERIOD_MIN_US`] to [`PERIOD_MAX_US`].
///
/// # Examples
/// ```
/// use trimtab_launch::preempt::PreemptPeriod;
///
/// let period: PreemptPeriod = "100".parse()?;
/// assert_eq!(period.us(), 100);
/// assert!("5".parse::<PreemptPeriod>().is_err()); // Too short.
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct PreemptPeriod(u32);

/// Shortest period in microseconds. Below it, preempting takes more time than it leaves.
pub const PERIOD_MIN_US: u32 = 20;
/// Longest period in microseconds: about the slice that kernels use anyway.
pub const PERIOD_MAX_US: u32 = 4000;

impl PreemptPeriod {
    /// Returns the period in microseconds. [`PreemptPeriod`] has an example.
    pub const fn us(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PreemptPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PreemptPeriod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let us = text.parse().ok().filter(|us| (PERIOD_MIN_US..=PERIOD_MAX_US).contains(us));
        us.map(Self).ok_or_else(|| {
            format!(
                "\"{text}\" is not a period of preemption: give microseconds from {PERIOD_MIN_US} to {PERIOD_MAX_US}, such as 100"
            )
        })
    }
}

/// Returns whether threads of a run on `cpus` CPUs should be preempted while `runnable` threads of
/// the whole machine want a CPU; `None` if that is unknown.
///
/// Threads of the run wait for a CPU only if more threads are runnable than the run has CPUs. The
/// condition is necessary and not sufficient: threads of other programs on other CPUs count too.
/// Then preemption costs its wake-ups and changes nothing.
///
/// # Examples
/// ```
/// use trimtab_launch::preempt::is_needed;
///
/// assert!(is_needed(Some(4), 2));
/// assert!(!is_needed(Some(2), 2));
/// assert!(is_needed(None, 2)); // The user asked for preemption.
/// ```
pub fn is_needed(runnable: Option<usize>, cpus: usize) -> bool {
    runnable.is_none_or(|runnable| runnable > cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_in_the_range_are_read_and_others_refused() {
        for us in [PERIOD_MIN_US, 50, PERIOD_MAX_US] {
            let period: PreemptPeriod = us.to_string().parse().unwrap();
            assert_eq!((period.us(), period.to_string()), (us, us.to_string()));
        }
        for bad in ["", "0", "19", "4001", "-50", "50us", "0.1", "99999999999"] {
            let error = bad.parse::<PreemptPeriod>().unwrap_err();
            assert!(error.contains("from 20 to 4000"), "{error}");
        }
    }
}
