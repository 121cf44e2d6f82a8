//! Pool of runs on all cores. It delivers their results in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use trimtab_front::interrupt::Interrupt;

/// Longest delay before Ctrl-C is noticed between the ends of two runs.
const INTERRUPT_PERIOD: Duration = Duration::from_millis(50);

/// Returns the number of parallel runs: as requested, or the number of CPUs.
pub(super) fn jobs(asked: Option<u32>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or_else(cpus, |jobs| jobs as usize)
}

/// Carries out `count` runs, `jobs` at a time. `took` receives each result, in order, until it
/// returns false or an interrupt arrives; runs under way are then abandoned, and their results
/// lost. Returns whether all results were delivered.
pub(super) fn in_order<T: Send + 'static>(
    count: usize,
    jobs: usize,
    interrupt: &Interrupt,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
    mut took: impl FnMut(usize, T) -> bool,
) -> bool {
    let shared = std::sync::Arc::new((AtomicUsize::new(0), work));
    let (send, receive) = channel();
    for _ in 0..jobs.min(count) {
        let (shared, send) = (std::sync::Arc::clone(&shared), send.clone());
        // The threads are not joined: an abandoned run would otherwise delay Ctrl-C. They end with
        // the process.
        std::thread::spawn(move || {
            let (next, work) = &*shared;
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= count || send.send((run, work(run))).is_err() {
                    return;
                }
            }
        });
    }
    drop(send);
    let mut early: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let mut told = 0;
    while told < count && interrupt.came().is_none() {
        match receive.recv_timeout(INTERRUPT_PERIOD) {
            Ok((run, result)) => early[run] = Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            // A worker that panicked has printed a message.
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        while let Some(result) = early.get_mut(told).and_then(Option::take) {
            if !took(told, result) {
                return false;
            }
            told += 1;
        }
    }
    told == count
}
