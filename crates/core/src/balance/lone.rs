//! Lone threads: the only thread of their process that computes.
//!
//! Unit: seconds of CPU time.
//!
//! Problem: a lone thread may be about to count the CPUs of its mask, to size a pool by them, or to
//! start processes that inherit the mask. If it is bound to one core, it counts one CPU, and the
//! pool has one worker for the rest of the run. A lone thread gains little from its own core: the
//! kernel moves it away from other threads by itself.
//!
//! Idea: while only one process of the program computes, its lone thread is never bound. If several
//! processes compute, as ranks and workers do, a lone thread is bound after [`SETTLED_MIN`] of
//! computing: by then its process has counted.
//!
//! Properties: a process in which two threads compute has no lone thread. The result is a function
//! of the threads, their processes and their CPU times.
//!
//! Source: pools of Python's multiprocessing, Numba and Open MPI ranks, which counted one CPU
//! beside a busy program until lone threads were left free.

use super::thread_state::ThreadState;
use std::collections::BTreeMap;

/// CPU seconds after which a lone thread beside other computing processes has counted its CPUs.
/// Chosen: pools and ranks count at their start or between short tasks.
const SETTLED_MIN: f64 = 5.0;

/// Returns the threads among `computing` (indices into `threads`) that stay free, ascending.
pub(super) fn stay_free(threads: &[ThreadState], computing: &[usize]) -> Vec<usize> {
    let mut of_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &i in computing {
        of_process.entry(threads[i].process).or_default().push(i);
    }
    let single = of_process.len() == 1;
    let mut free: Vec<usize> = of_process
        .into_values()
        .filter(|threads| threads.len() == 1)
        .map(|of_one| of_one[0])
        .filter(|&i| single || threads[i].computed < SETTLED_MIN)
        .collect();
    free.sort_unstable();
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ProgramId, ThreadId};

    /// Threads given by the number of their process and their CPU seconds.
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
    fn the_only_thread_of_the_only_process_stays_free_however_long_it_computes() {
        assert_eq!(free(&[(7, 0.1)]), [0]);
        assert_eq!(free(&[(7, 1_000.0)]), [0]);
    }

    #[test]
    fn threads_of_one_process_may_all_be_bound() {
        assert!(free(&[(7, 0.1), (7, 0.1)]).is_empty());
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
