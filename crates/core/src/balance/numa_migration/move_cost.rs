//! Account of the thread time that failed trials cost.
//!
//! Unit: seconds of a thread.
//!
//! Problem: with many threads and units there is always a move that was not tried, and each trial
//! costs the moved threads time. A limit on the number of moves does not limit their cost.
//!
//! Idea: a small part of the threads' running time is paid into an account, up to the amount of
//! some seconds. The measured cost of a trial that was undone is taken out. Nothing is tried while
//! the account is overdrawn.
//!
//! Properties: over long times, failed trials cost at most [`LOSS_SHARE_MAX`] of the threads'
//! running time, plus the overdraft of one trial. A kept trial costs only its cold caches.

use crate::time::Span;

/// Share of the running time that may be lost.
const LOSS_SHARE_MAX: f64 = 0.01;

/// Seconds of running time that fix the account's balance at the start and at most: their
/// [`LOSS_SHARE_MAX`] is enough for a short program to try a move.
const SAVED_SECONDS_MAX: f64 = 10.0;

/// Seconds that cold caches cost a thread, there and back: some megabytes at some gigabytes a
/// second.
const COLD_CACHE_SECONDS: f64 = 0.01;

/// The account.
#[derive(Debug, Default)]
pub(super) struct CostAccount {
    left: f64,
    begun: bool,
}

impl CostAccount {
    /// Pays in for a number of threads that ran for a time.
    pub(super) fn fill(&mut self, threads: usize, long: Span) {
        let most = LOSS_SHARE_MAX * SAVED_SECONDS_MAX * threads as f64;
        self.left += LOSS_SHARE_MAX * threads as f64 * long.seconds();
        if threads > 0 && !std::mem::replace(&mut self.begun, true) {
            self.left = most;
        }
        self.left = self.left.min(most);
    }

    /// Returns whether a trial may begin.
    pub(super) fn allows(&self) -> bool {
        self.left > 0.0
    }

    /// Takes out the cost of a trial: its moves, and the seconds that threads lost.
    pub(super) fn spend(&mut self, moves: usize, lost: f64) {
        self.left -= COLD_CACHE_SECONDS * moves as f64 + lost.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_moves_is_a_small_part_of_the_run_time() {
        let mut account = CostAccount::default();
        assert!(!account.allows(), "no thread runs");
        let (threads, mut lost, mut first) = (4, 0.0, 0.0);
        for sample in 0..100_000 {
            account.fill(threads, Span::from_ms(10));
            if account.allows() {
                account.spend(1, 0.05);
                lost += 0.05 + COLD_CACHE_SECONDS;
            }
            if sample == 10 {
                first = lost;
            }
        }
        let (ran, saved) = (4.0 * 1000.0, LOSS_SHARE_MAX * SAVED_SECONDS_MAX * 4.0);
        assert!(lost <= LOSS_SHARE_MAX * ran + saved + 0.06, "{lost}");
        assert!(lost > 0.9 * LOSS_SHARE_MAX * ran, "{lost}");
        assert!(first > 0.5 * saved, "a short program may try at once: {first}");
    }

    #[test]
    fn savings_of_a_thread_end_with_it() {
        let mut account = CostAccount::default();
        account.fill(100, Span::from_ms(10));
        account.fill(1, Span::from_ms(10));
        account.spend(1, LOSS_SHARE_MAX * SAVED_SECONDS_MAX);
        assert!(!account.allows());
    }
}
