//! State that every moving policy updates at the start of a turn.
//!
//! Problem: before a decision, a policy must know the CPU of each thread, the share that each CPU
//! gives, which programs sleep, and how many threads were not read. One observation gives all of
//! these.
//!
//! Idea: one structure keeps this state and takes in the observation in the one correct order:
//! first the threads, then the shares of their CPUs.
//!
//! Properties: after [`TurnContext::observe`] all parts describe the same moment. Threads that stay
//! unread are reported once, and again when their number has doubled.

use super::barrier_sleep::SleepDetector;
use super::share_model::ShareModel;
use super::thread_table::ThreadTable;
use super::{Finding, Settings};
use crate::observe::{Notice, Observation};
use crate::time::{Moment, Span};
use crate::topology::Machine;

/// Threads that stay unread for longer than this are reported. A burst of new threads is shorter.
const GAP_LONG: Span = Span::from_ms(1_000);

/// State at the start of a turn.
#[derive(Debug)]
pub(super) struct TurnContext {
    pub(super) settings: Settings,
    pub(super) table: ThreadTable,
    pub(super) shares: ShareModel,
    pub(super) sleep_detector: SleepDetector,
    unread_threads: UnreadThreads,
}

impl TurnContext {
    /// Creates the state for a machine, without threads.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            table: ThreadTable::new(machine),
            shares: ShareModel::default(),
            sleep_detector: SleepDetector::default(),
            unread_threads: UnreadThreads::default(),
        }
    }

    /// Processes an observation. Returns the findings that every policy must report.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) -> Vec<Finding> {
        self.table.update(seen);
        self.shares.observe(&self.table, seen);
        self.unread_threads.observe(seen).into_iter().collect()
    }
}

/// Existing threads that were not read.
#[derive(Clone, Copy, Debug, Default)]
struct UnreadThreads {
    since: Option<Moment>,
    reported: u32,
}

impl UnreadThreads {
    fn observe(&mut self, seen: &Observation<'_>) -> Option<Finding> {
        let unread = |notice: &Notice| match notice {
            Notice::Unread(threads) => *threads,
            _ => 0,
        };
        let threads = seen.notices.iter().map(unread).fold(0, u32::saturating_add);
        if threads == 0 {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert(seen.at);
        if seen.at.since(since) < GAP_LONG || threads / 2 < self.reported {
            return None;
        }
        self.reported = threads;
        Some(Finding::Unwatched { threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::topology::parse_synthetic;

    #[test]
    fn threads_that_stay_unread_are_reported_once() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut context = TurnContext::new(&machine, &Settings::default());
        let mut observer = Observer::new(machine.cpus());
        let mut observe = |ms: u64, unread: &[u32]| {
            let notices = unread.iter().map(|threads| Notice::Unread(*threads)).collect();
            let at = Moment(ms * 1_000_000);
            observer.take(&Sample { at, notices, ..Sample::default() }, &[]);
            context.observe(&observer.observation())
        };
        assert_eq!(observe(0, &[500]), [], "a storm of births");
        assert_eq!(observe(900, &[]), []);
        assert_eq!(observe(1_000, &[4, 3]), []);
        assert_eq!(observe(2_000, &[4, 3]), [Finding::Unwatched { threads: 7 }]);
        assert_eq!(observe(3_000, &[9]), []);
        assert_eq!(observe(4_000, &[14]), [Finding::Unwatched { threads: 14 }]);
        assert_eq!(observe(5_000, &[]), []);
        assert_eq!(observe(6_000, &[14]), []);
    }
}
