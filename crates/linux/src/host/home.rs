//! A thread's own mask, and the system calls that give it back.
//!
//! Problem: `sched_setaffinity` leaves a user mask in the kernel (since Linux 6.2), and a cpuset
//! that grows later widens a thread only up to that mask. A plain thread has no user mask and grows
//! with its cpuset; a thread that gets its mask "given back" as the list of its former CPUs stays
//! on these CPUs permanently. Idea: a thread with a mask equal to the CPUs that its cpuset grants
//! is bound by the cpuset alone. It gets *all* CPUs of the kernel back: the kernel cuts them to the
//! cpuset, now and after each change. Older kernels keep no user mask: they cut the call in the
//! same way, and grant all of the cpuset at its next change.
//!
//! The kernel does not show whether a thread has a user mask. A thread with a mask equal to the
//! cpuset is treated as a plain thread, since nearly all are. A thread with another own mask gets
//! exactly that mask back.

use crate::host::constraints::cut;
use crate::process::Tid;
use crate::sys::affinity;
use rustix::io::Errno;
use trimtab_core::set::CpuSet;

/// The mask that the thread itself or its program has set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Home {
    /// Its CPUs, including CPUs that the kernel does not grant now.
    pub(super) cpus: CpuSet,
    /// Whether the cpuset alone binds the thread: its mask grows with the cpuset.
    pub(super) follows: bool,
}

impl Home {
    /// Returns the home of a thread that has mask `now` and was not moved; `active` are the CPUs
    /// that its cpuset grants.
    pub(super) fn seen(now: CpuSet, active: Option<&CpuSet>) -> Self {
        let follows = active == Some(&now);
        Self { cpus: now, follows }
    }

    /// Returns the home for a mask that was set on purpose.
    pub(super) fn own(cpus: CpuSet) -> Self {
        Self { cpus, follows: false }
    }

    /// Returns the part of the home that the kernel grants.
    pub(super) fn cut(&self, active: Option<&CpuSet>) -> CpuSet {
        cut(&self.cpus, active)
    }

    /// Gives the home to a thread. `active` reads the CPUs that the thread's cpuset grants at that
    /// moment.
    ///
    /// # Errors
    /// As [`affinity::set`].
    pub(super) fn give(&self, tid: Tid, mut active: impl FnMut() -> Option<CpuSet>) -> Result<(), Errno> {
        if self.follows {
            affinity::set(Some(tid), &affinity::every()?)?;
            let granted = affinity::get(Some(tid))?;
            if active().is_some_and(|active| active == granted) {
                return Ok(());
            }
            // The cpuset differs from the one that its files show: only the mask itself is certain.
        }
        match affinity::set(Some(tid), &self.cpus) {
            // None of its CPUs is granted now. Together with the granted CPUs, the home comes back
            // when the cpuset grows.
            Err(Errno::INVAL) => match active() {
                Some(active) => affinity::set(Some(tid), &self.cpus.union(&active)),
                None => Err(Errno::INVAL),
            },
            end => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_mask_that_equals_the_cpuset_follows_it_and_another_does_not() {
        let active = set("0-3");
        assert!(Home::seen(set("0-3"), Some(&active)).follows);
        assert!(!Home::seen(set("0-2"), Some(&active)).follows);
        assert!(!Home::seen(set("0-3"), None).follows, "nothing is known of the cpuset");
        assert!(!Home::own(set("0-3")).follows);
    }

    #[test]
    fn where_the_files_of_a_cpuset_are_wrong_the_mask_itself_is_given() {
        let usable = affinity::get(None).unwrap();
        let Some(one) = usable.first().map(|cpu| set(&cpu.to_string())).filter(|one| *one != usable) else {
            skipped("two CPUs are needed");
            return;
        };
        std::thread::spawn(move || {
            let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let home = Home { cpus: one.clone(), follows: true };
            home.give(own, || Some(one.clone())).unwrap();
            assert_eq!(affinity::get(None).unwrap(), one, "its files say that the cpuset is one CPU");
            home.give(own, || affinity::get(None).ok()).unwrap();
            assert_eq!(affinity::get(None).unwrap(), usable);
        })
        .join()
        .unwrap();
    }
}
