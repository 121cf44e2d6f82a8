//! What trying costs: the time that threads lost to moves that were no good.
//!
//! Unit: seconds of a thread. Problem: with many threads and units there is always something that was not tried, each trial of which
//! costs whoever is moved; a bound on moves says nothing of what they cost. Idea: an account. A small part of the time that threads run is
//! paid in, up to some seconds' worth; what a trial that was taken back cost, by its own measurement, is taken out. Nothing is tried
//! while it is overdrawn.
//!
//! Properties: over long times trials in vain cost no more than [`PART`] of what threads ran, but for what a single one can
//! overdraw; a trial that was kept cost nothing but its cold caches.

use crate::time::Span;

/// This part of the running time may be lost.
const PART: f64 = 0.01;

/// So many seconds' worth is there to begin with, and may be saved up: as much as lets a short program try anything.
const SAVED: f64 = 10.0;

/// What caches that are found cold cost a thread, there and back: some megabytes at some gigabytes a second.
const COLD: f64 = 0.01;

/// The account.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    left: f64,
    begun: bool,
}

impl Ledger {
    /// So many threads ran for so long.
    pub(super) fn fill(&mut self, threads: usize, long: Span) {
        let most = PART * SAVED * threads as f64;
        self.left += PART * threads as f64 * long.seconds();
        if threads > 0 && !std::mem::replace(&mut self.begun, true) {
            self.left = most;
        }
        self.left = self.left.min(most);
    }

    /// Whether anything may be tried.
    pub(super) fn allows(&self) -> bool {
        self.left > 0.0
    }

    /// A trial of so many moves cost so many seconds of threads.
    pub(super) fn spend(&mut self, moves: usize, lost: f64) {
        self.left -= COLD * moves as f64 + lost.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_a_small_part_of_what_ran() {
        let mut ledger = Ledger::default();
        assert!(!ledger.allows(), "nobody runs");
        let (threads, mut lost, mut first) = (4, 0.0, 0.0);
        for look in 0..100_000 {
            ledger.fill(threads, Span::from_ms(10));
            if ledger.allows() {
                ledger.spend(1, 0.05);
                lost += 0.05 + COLD;
            }
            if look == 10 {
                first = lost;
            }
        }
        let (ran, saved) = (4.0 * 1000.0, PART * SAVED * 4.0);
        assert!(lost <= PART * ran + saved + 0.06, "{lost}");
        assert!(lost > 0.9 * PART * ran, "{lost}");
        assert!(first > 0.5 * saved, "a short program may try at once: {first}");
    }

    #[test]
    fn threads_that_end_take_what_was_saved_for_them_along() {
        let mut ledger = Ledger::default();
        ledger.fill(100, Span::from_ms(10));
        ledger.fill(1, Span::from_ms(10));
        ledger.spend(1, PART * SAVED);
        assert!(!ledger.allows());
    }
}
