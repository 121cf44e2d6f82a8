//! Threads that stay free although they compute: their process may still count its CPUs.
//!
//! Unit: seconds of CPU time.
//!
//! Problem: a thread may be about to count the CPUs of its mask, to size a pool by them, or to
//! start processes that inherit the mask. If it is bound to one core, it counts one CPU, and the
//! pool has one worker for the rest of the run. Such a thread is the only one of its process that
//! computes (a lone thread), or the initial thread of a process whose helper threads compute
//! beside it.
//!
//! Idea: while only one process of the program computes, its lone thread is never bound. It gains
//! little from its own core: the kernel moves it away from other threads by itself. If several
//! processes compute, as ranks and workers do, a lone thread is bound after [`LONE_SETTLED_MIN`] of
//! computing: by then its process has counted. An initial thread that has computed little beside
//! the others of its process ([`INITIAL_SHARE_MIN`]) waits for them: it stays free, since it goes
//! on when they have ended. The master of a team computes as much as the team and is bound with it.
//! If several processes compute, it is bound once it has computed for [`INITIAL_SETTLED_MIN`],
//! because ranks count their CPUs later than at their start, too. The master of the only team is
//! not waited for: while one thread of a team is free, no trial of binding means anything.
//!
//! Policies that bind threads without a diagnosis leave initial threads free by the same rule
//! ([`initial_threads`]), and bind other lone threads at once.
//!
//! Properties: a process in which two threads compute has no lone thread, but its initial thread
//! may still stay free. The result is a function of the threads, their processes and their CPU
//! times.
//!
//! Source: pools of Python's multiprocessing, Numba and Open MPI ranks, which counted one CPU
//! beside a busy program until lone threads were left free; a program below sudo, whose initial
//! thread waited for its workers, and counted one CPU afterwards because it had been taken for a
//! computing thread on a busy machine; hybrid ranks of MPICH and Open MPI with teams of two
//! threads, which counted one CPU after a second of computing.

use super::thread_state::ThreadState;
use crate::ids::ProgramId;
use std::collections::{BTreeMap, BTreeSet};

/// CPU seconds after which a lone thread beside other computing processes has counted its CPUs.
/// Chosen: pools and ranks count at their start or between short tasks.
const LONE_SETTLED_MIN: f64 = 5.0;

/// CPU seconds after which the initial thread of one of several processes is bound with the others
/// of its team. Chosen: above the whole computation of ranks that print the number of their CPUs or
/// size a second pool after a second. The effect on the time of long runs has not been measured.
const INITIAL_SETTLED_MIN: f64 = 2.0;

/// CPU time of an initial thread, as a share of the mean of its process's other computing threads,
/// below which it waits for them. Chosen: a thread that waits uses a few percent, the master of a
/// team as much as the others, with a serial part more.
const INITIAL_SHARE_MIN: f64 = 0.25;

/// Returns the threads among `computing` (indices into `threads`) that stay free, ascending.
pub(super) fn stay_free(threads: &[ThreadState], computing: &[usize]) -> Vec<usize> {
    let mut of_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &i in computing {
        of_process.entry(threads[i].process).or_default().push(i);
    }
    let single = of_process.len() == 1;
    let mut free: Vec<usize> = of_process
        .into_values()
        .flat_map(|of_one| {
            let lone = of_one.len() == 1;
            let others = of_one.iter().filter(|&&i| !threads[i].initial);
            let used: f64 = others.clone().map(|&i| threads[i].computed).sum();
            let waits_below = INITIAL_SHARE_MIN * used / others.count().max(1) as f64;
            let settled_from = if single { waits_below } else { waits_below.max(INITIAL_SETTLED_MIN) };
            of_one.into_iter().filter(move |&i| {
                let ThreadState { initial, computed, .. } = threads[i];
                if lone { single || computed < LONE_SETTLED_MIN } else { initial && computed < settled_from }
            })
        })
        .collect();
    free.sort_unstable();
    free
}

/// Returns the initial threads that no policy binds now, ascending: those of [`stay_free`], and
/// those that have not been read yet or do not compute.
pub(super) fn initial_threads(threads: &[ThreadState]) -> Vec<usize> {
    let mut computing: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
    for (i, thread) in threads.iter().enumerate().filter(|(_, thread)| thread.active()) {
        computing.entry(thread.program).or_default().push(i);
    }
    let mut free: BTreeSet<usize> =
        computing.values().flat_map(|computing| stay_free(threads, computing)).collect();
    free.extend((0..threads.len()).filter(|&i| threads[i].wanted.is_none() || !threads[i].active()));
    free.into_iter().filter(|&i| threads[i].initial).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;

    /// Threads given by the number of their process and their CPU seconds; none is initial.
    fn threads(of: &[(u32, f64)]) -> Vec<ThreadState> {
        let thread = |(number, &(process, computed)): (usize, &(u32, f64))| {
            let mut thread = ThreadState::new(ThreadId(number as u32), ProgramId(0), process);
            thread.computed = computed;
            thread
        };
        of.iter().enumerate().map(thread).collect()
    }

    fn free(of: &[(u32, f64)]) -> Vec<usize> {
        stay_free(&threads(of), &(0..of.len()).collect::<Vec<_>>())
    }

    #[test]
    fn the_only_thread_of_the_only_process_stays_free_for_the_whole_run() {
        assert_eq!(free(&[(7, 0.1)]), [0]);
        assert_eq!(free(&[(7, 1_000.0)]), [0]);
    }

    #[test]
    fn threads_of_one_process_may_all_be_bound() {
        assert!(free(&[(7, 0.1), (7, 0.1)]).is_empty());
    }

    #[test]
    fn an_initial_thread_that_waits_for_its_workers_stays_free_and_a_master_does_not() {
        let mut threads = threads(&[(7, 2.9), (7, 9.0), (7, 15.0), (8, 2.9), (8, 3.0)]);
        (threads[0].initial, threads[3].initial) = (true, true);
        assert_eq!(stay_free(&threads, &[0, 1, 2, 3, 4]), [0]);
        threads[0].computed = 3.0;
        assert!(stay_free(&threads, &[0, 1, 2, 3, 4]).is_empty());
    }

    #[test]
    fn at_its_start_the_only_team_has_no_thread_that_waits() {
        let mut threads = threads(&[(7, 0.0), (7, 0.0)]);
        threads[0].initial = true;
        assert!(stay_free(&threads, &[0, 1]).is_empty());
    }

    #[test]
    fn masters_of_several_teams_are_bound_once_they_have_settled() {
        let mut threads = threads(&[(7, 1.9), (7, 2.0), (8, 2.0), (8, 1.9)]);
        assert!(stay_free(&threads, &[0, 1, 2, 3]).is_empty(), "none is initial");
        (threads[0].initial, threads[2].initial) = (true, true);
        assert_eq!(stay_free(&threads, &[0, 1, 2, 3]), [0]);
        threads[0].computed = 2.0;
        assert!(stay_free(&threads, &[0, 1, 2, 3]).is_empty());
    }

    #[test]
    fn ranks_of_one_thread_stay_free_until_they_have_computed_long() {
        assert_eq!(free(&[(7, 0.1), (8, 4.9), (9, 5.1)]), [0, 1]);
        assert!(free(&[(7, 6.0), (8, 6.0)]).is_empty());
    }

    #[test]
    fn a_lone_thread_beside_a_team_of_another_process_settles_too() {
        assert_eq!(free(&[(7, 0.1), (8, 0.1), (8, 0.1)]), [0]);
        assert!(free(&[(7, 9.0), (8, 0.1), (8, 0.1)]).is_empty());
    }
}
