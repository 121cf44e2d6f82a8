//! Detector of programs with threads that sleep in barriers.
//!
//! Unit: share of the time in which a computing thread wants no CPU.
//!
//! Problem: a thread that sleeps in a barrier must stay free to move. If it is bound to one CPU,
//! the kernel cannot pull it to a core that just became idle, which was measured to cost up to 40
//! %. But a thread that *seems* to want no CPU may have been waiting for one: the kernel counts a
//! wait when it is over, so between two samples 20 ms apart a thread beside a hog shows neither
//! running nor waiting, and later more waiting than time.
//!
//! Idea: the wanted time is summed over a quarter of a second, without cutting off the excess.
//! While the threads still seem to sleep, the real number of sleeps is read too and decides.
//!
//! Properties: helper threads and threads that were not read do not count. If the kernel does not
//! count waiting, nothing is known and no program counts as sleeping. If the kernel does not count
//! sleeps, several windows must agree. The detector needs the same number of windows before a
//! program counts as awake again.

use super::thread_state::{Binding, LIGHT_MAX, RecentRates};
use super::thread_table::ThreadTable;
use super::{Decision, Finding, Reason};
use crate::ids::ProgramId;
use std::collections::BTreeMap;

/// Mean share of sleep that counts. Chosen: spinning and yielding programs were below 1 %, programs
/// that sleep in barriers of 1 to 100 ms above 8 %.
pub(super) const SLEEP_SHARE_MIN: f64 = 0.04;

/// Fewest sleeps per second of a thread that really sleeps in barriers: one every half second.
pub(super) const SLEEP_RATE_MIN: f64 = 2.0;

/// Seconds of a window: several time slices of the kernel.
const WINDOW_SECONDS: f64 = 0.25;

/// Number of windows that decide when sleeps are not counted, in either direction.
const WINDOWS_AGREEING: u32 = 3;

/// Sleep of one program.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramSleep {
    strikes: u32,
    share: f64,
    sleeps: bool,
    suspect: bool,
}

impl ProgramSleep {
    /// Processes a window of the program's threads. Returns true if the program just began to
    /// sleep.
    fn judge<'a>(&mut self, threads: impl Iterator<Item = &'a RecentRates>) -> bool {
        let (mut idle, mut often, mut told, mut count) = (0.0, 0.0, true, 0u32);
        for recent_rates in threads {
            let Some(wants) = recent_rates.wants.filter(|_| recent_rates.span >= WINDOW_SECONDS / 2.0) else {
                continue;
            };
            if wants / recent_rates.span >= LIGHT_MAX {
                idle += 1.0 - wants / recent_rates.span;
                told &= recent_rates.sleeps.is_some();
                often += recent_rates.sleeps.unwrap_or(0.0) / recent_rates.span;
                count += 1;
            }
        }
        if count == 0 {
            return false;
        }
        self.share = (idle / f64::from(count)).max(0.0);
        let seems = self.share >= SLEEP_SHARE_MIN;
        let before = self.sleeps;
        self.strikes = match (seems, told) {
            (true, true) if often / f64::from(count) >= SLEEP_RATE_MIN => WINDOWS_AGREEING,
            // The first window in which sleeps are read is incomplete and proves nothing.
            (true, false) if self.suspect => (self.strikes + 1).min(WINDOWS_AGREEING),
            (true, false) => self.strikes,
            _ => self.strikes.saturating_sub(1),
        };
        // Sleeps are read as long as the threads seem to sleep: counts of half a window are
        // useless.
        self.suspect = seems;
        self.sleeps = self.strikes >= if before { 1 } else { WINDOWS_AGREEING };
        self.sleeps && !before
    }

    /// Returns whether the threads sleep in barriers.
    fn sleeps(&self) -> bool {
        self.sleeps
    }
}

/// Sleep of all programs.
#[derive(Clone, Debug, Default)]
pub(super) struct SleepDetector(BTreeMap<ProgramId, ProgramSleep>);

impl SleepDetector {
    /// Processes the last sample. Returns findings for the programs that just began to sleep.
    pub(super) fn observe(&mut self, table: &mut ThreadTable) -> Vec<Finding> {
        let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (i, thread) in table.threads.iter().enumerate() {
            members.entry(thread.program).or_default().push(i);
        }
        self.0.retain(|program, _| members.contains_key(program));
        let mut findings = Vec::new();
        for (program, members) in members {
            let sleep = self.0.entry(program).or_default();
            let of = || members.iter().map(|&i| &table.threads[i].recent_rates);
            if of().map(|recent_rates| recent_rates.span).fold(0.0, f64::max) < WINDOW_SECONDS {
                continue;
            }
            if sleep.judge(of()) {
                findings.push(Finding::Sleepers { idle: sleep.share });
            }
            for i in members {
                table.threads[i].recent_rates = RecentRates::default();
            }
        }
        findings
    }

    /// Returns whether a program's threads sleep in barriers.
    pub(super) fn sleeps(&self, program: ProgramId) -> bool {
        self.0.get(&program).is_some_and(ProgramSleep::sleeps)
    }

    /// Returns whether the number of sleeps should be read.
    pub(super) fn suspects(&self) -> bool {
        self.0.values().any(|sleep| sleep.suspect)
    }

    /// Returns the share of the last window that a program's threads slept.
    pub(super) fn share(&self, program: ProgramId) -> f64 {
        self.0.get(&program).map_or(0.0, |sleep| sleep.share)
    }

    /// Gives sleeping threads that we hold their own masks back. They are assigned CPUs again if
    /// they stop sleeping.
    pub(super) fn release(&self, table: &mut ThreadTable) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for i in 0..table.threads.len() {
            let thread = &table.threads[i];
            if thread.binding == Binding::Held && thread.free() && self.sleeps(thread.program) {
                table.threads[i].placed = false;
                decisions.push(table.release(i, Reason::Sleeps));
            }
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows in each of which threads ran and waited for these shares, with this number of sleeps
    /// per second.
    fn windows(sleep: &mut ProgramSleep, count: usize, did: &[(f64, f64)], sleeps: Option<f64>) {
        let thread = |&(run, wait): &(f64, f64)| RecentRates {
            span: WINDOW_SECONDS,
            wants: Some((run + wait) * WINDOW_SECONDS),
            sleeps: sleeps.map(|often| often * WINDOW_SECONDS),
        };
        let threads: Vec<RecentRates> = did.iter().map(thread).collect();
        for _ in 0..count {
            sleep.judge(threads.iter());
        }
    }

    #[test]
    fn without_a_witness_one_window_is_no_habit() {
        let mut sleep = ProgramSleep::default();
        windows(&mut sleep, 2, &[(0.8, 0.0), (0.5, 0.5)], None);
        assert!(!sleep.sleeps() && sleep.suspect);
        windows(&mut sleep, 3, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(!sleep.sleeps() && !sleep.suspect);
        windows(&mut sleep, 4, &[(0.8, 0.0), (0.5, 0.5)], None);
        assert!(sleep.sleeps());
    }

    #[test]
    fn counted_sleeps_decide_at_once_and_for_some_time() {
        let mut sleep = ProgramSleep::default();
        windows(&mut sleep, 1, &[(0.5, 0.0), (0.5, 0.5)], Some(40.0));
        assert!(sleep.sleeps());
        windows(&mut sleep, 2, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(sleep.sleeps());
        windows(&mut sleep, 1, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(!sleep.sleeps());
    }

    /// A thread beside a hog, with a wait that is not counted yet.
    #[test]
    fn threads_without_counted_sleeps_do_not_sleep() {
        let mut sleep = ProgramSleep::default();
        windows(&mut sleep, 9, &[(0.4, 0.2), (0.5, 0.3)], Some(0.0));
        assert!(!sleep.sleeps());
        // Not counted, half counted, counted: a thread with few sleeps never counts as sleeping.
        let mut sleep = ProgramSleep::default();
        windows(&mut sleep, 2, &[(0.95, 0.0), (0.4, 0.5)], None);
        windows(&mut sleep, 9, &[(0.95, 0.0), (0.4, 0.5)], Some(0.5));
        assert!(!sleep.sleeps() && sleep.suspect);
    }

    #[test]
    fn waits_counted_late_correct_the_earlier_sample() {
        let mut recent_rates = RecentRates::default();
        for (run, wait) in [(0.2, 0.0), (0.1, 1.7), (0.5, 0.5)] {
            let span = crate::time::Span::from_ms(100);
            recent_rates.add(&crate::observe::Rates {
                span,
                run,
                wait: Some(wait),
                slices: None,
                sleeps: None,
            });
        }
        let mut sleep = ProgramSleep::default();
        sleep.judge(std::iter::once(&recent_rates));
        assert!(sleep.share < 1e-9 && !sleep.suspect, "{}", sleep.share);
    }

    #[test]
    fn helpers_and_uncounted_waits_say_nothing() {
        let mut sleep = ProgramSleep::default();
        windows(&mut sleep, 9, &[(1.0, 0.0), (0.05, 0.0)], None);
        assert!(!sleep.sleeps(), "a thread that wakes now and then is no waiter");
        let uncounted = RecentRates { span: WINDOW_SECONDS, wants: None, sleeps: None };
        assert!(!sleep.judge(std::iter::once(&uncounted)));
        assert!(!sleep.sleeps());
    }
}
