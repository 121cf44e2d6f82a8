//! Many runs on all cores, told in their order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use trimtab_front::interrupt::Interrupt;

/// How long Ctrl-C may go unheard between two runs that end.
const MOMENT: Duration = Duration::from_millis(50);

/// As many runs at a time as were asked for, or as there are CPUs.
pub(super) fn jobs(asked: Option<u32>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or_else(cpus, |jobs| jobs as usize)
}

/// Works off `count` runs, `jobs` at a time. `took` is told of each, in order, until it or an interrupt ends it; runs under way are then
/// left to themselves, as is what they would have come to. The answer is whether all were told.
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
        // Not waited for: a run that is left would otherwise hold Ctrl-C up. Ends with the process.
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
        match receive.recv_timeout(MOMENT) {
            Ok((run, result)) => early[run] = Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            // A worker that panicked has said so.
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
