//! Processes in which nothing ran: their threads need no reading.
//!
//! Problem: a machine has ten thousand threads of which most sleep, and a reading of each costs a
//! microsecond, or five without a kept descriptor. Idea: the CPU time of a whole process is one
//! system call. If it stands still, so do the counters of all its threads, of ended ones too.
//!
//! Property: what is left out is exact, not estimated. The time of a running thread is as old as
//! the last tick in both sources.

use crate::process::Pid;
use crate::sys::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Least number of watched threads of a process that is asked first. Measured: the question costs
/// as much as a third of a reading.
const THREADS_MIN: usize = 3;

/// CPU times of processes at the last call, and those in which nothing ran.
#[derive(Debug, Default)]
pub(super) struct QuietProcesses {
    times: BTreeMap<Pid, Duration>,
    quiet: BTreeSet<Pid>,
}

impl QuietProcesses {
    /// Finds the processes in which nothing ran since the last call, of these with their numbers of
    /// watched threads.
    pub(super) fn find(&mut self, processes: impl Iterator<Item = (Pid, usize)>) {
        self.find_by(processes, &clock::of_process);
    }

    fn find_by(
        &mut self,
        processes: impl Iterator<Item = (Pid, usize)>,
        time: &dyn Fn(Pid) -> Option<Duration>,
    ) {
        let before = std::mem::take(&mut self.times);
        self.quiet.clear();
        for (pid, threads) in processes {
            let Some(now) = (threads >= THREADS_MIN).then(|| time(pid)).flatten() else { continue };
            self.times.insert(pid, now);
            if before.get(&pid) == Some(&now) {
                self.quiet.insert(pid);
            }
        }
    }

    /// Returns whether nothing ran in a process.
    pub(super) fn contains(&self, pid: Pid) -> bool {
        self.quiet.contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_quiet_while_its_time_stands_still() {
        let mut quiet = QuietProcesses::default();
        let mut find = |all: &[(u32, usize, Option<u64>)]| {
            let times: BTreeMap<Pid, Option<u64>> =
                all.iter().map(|(pid, _, time)| (Pid(*pid), *time)).collect();
            let time = |pid: Pid| times[&pid].map(Duration::from_nanos);
            quiet.find_by(all.iter().map(|(pid, threads, _)| (Pid(*pid), *threads)), &time);
            all.iter().map(|(pid, ..)| quiet.contains(Pid(*pid))).collect::<Vec<_>>()
        };
        assert_eq!(find(&[(1, 9, Some(5)), (2, 1, Some(5))]), [false, false], "nothing is known at first");
        assert_eq!(find(&[(1, 9, Some(5)), (2, 1, Some(5))]), [true, false], "one thread is simply read");
        assert_eq!(find(&[(1, 9, Some(6))]), [false]);
        assert_eq!(find(&[(1, 9, Some(6))]), [true]);
        assert_eq!(find(&[(1, 9, None)]), [false], "it has ended");
        assert_eq!(find(&[(1, 9, Some(6))]), [false], "another process with its number");
        assert_eq!(find(&[]), Vec::<bool>::new());
        assert_eq!(find(&[(1, 9, Some(6))]), [false], "it was not asked for in between");
    }
}
