//! Totals: the only code that adds readings up, for threads, programs and whole runs, live or
//! afterwards.
//!
//! Unit: nanoseconds, and counts. Problem: a screen, metrics, a report and a profile differ in the
//! readings that they accept and in how long they keep threads, but a CPU time must mean the same
//! in all of them. Idea: a `Track` keeps the reading before of one thread and turns the next one
//! into a `Change`; [`Totals`] are sums of changes. The totals of a program or a run are the sums
//! of its threads' changes, so a thread that ends loses nothing.
//!
//! Terms. A change counts the CPU time between two readings for the CPU at which the later reading
//! found the thread, and at most one migration. A *watched* time is the time between readings that
//! were accepted.
//!
//! Properties: the times over CPUs sum to the CPU time, if every CPU was read. A counter that runs
//! back adds nothing and starts again, as in [`observe`](crate::observe). A wait that was not read
//! is missing, never zero.

use crate::ids::OsCpu;
use crate::time::Span;
use serde::Serialize;
use std::collections::BTreeMap;

use super::{CpuPosition, add_time};

/// Time between two readings of a thread.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Interval {
    /// Time between the readings.
    pub watched: Span,
    /// CPU time in it.
    pub run: Span,
    /// Time ready without a CPU in it, if that is counted.
    pub wait: Option<Span>,
}

/// Sums over intervals: of a thread with its CPUs as places, or of a program with its cores.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Totals<K: Ord> {
    /// CPU time.
    #[serde(rename = "run_ns")]
    pub run: Span,
    /// Time ready without a CPU, if it is counted.
    #[serde(rename = "wait_ns")]
    pub wait: Option<Span>,
    /// Watched time; that of several threads is the sum over them.
    #[serde(rename = "watched_ns")]
    pub watched: Span,
    /// CPU time on each place.
    #[serde(rename = "run_on_ns")]
    pub run_on: BTreeMap<K, Span>,
    /// Observed changes of CPU.
    #[serde(skip)]
    pub cpu_changes: u64,
    /// Observed changes of core.
    pub migrations: u64,
    /// Observed changes of core to another node.
    pub node_migrations: u64,
}

impl<K: Ord> Default for Totals<K> {
    fn default() -> Self {
        Self {
            run: Span::ZERO,
            wait: None,
            watched: Span::ZERO,
            run_on: BTreeMap::new(),
            cpu_changes: 0,
            migrations: 0,
            node_migrations: 0,
        }
    }
}

impl<K: Ord> Totals<K> {
    /// Adds an interval, with its CPU time on this place.
    pub(super) fn add_interval(&mut self, interval: Interval, at: Option<K>) {
        self.watched = self.watched + interval.watched;
        self.run = self.run + interval.run;
        if let Some(wait) = interval.wait {
            self.wait = Some(self.wait.unwrap_or_default() + wait);
        }
        if let Some(at) = at {
            add_time(&mut self.run_on, at, interval.run);
        }
    }

    /// Adds a change of a thread, with its CPU time on this place.
    pub(super) fn add(&mut self, change: &Change, at: Option<K>) {
        if let Some(interval) = change.interval {
            self.add_interval(interval, at);
        }
        self.cpu_changes += u64::from(change.cpu_changed);
        self.migrations += u64::from(change.core_changed);
        self.node_migrations += u64::from(change.node_changed);
    }

    /// Returns the waiting time as a share of the wanted CPU time.
    pub fn wait_share(&self) -> Option<f64> {
        let wait = self.wait?;
        wait.share_of(self.run + wait)
    }

    /// Returns the CPU time on all places.
    pub fn placed(&self) -> Span {
        self.run_on.values().copied().sum()
    }

    /// Returns the share of the CPU time that was on this place.
    pub fn share_on(&self, at: K) -> Option<f64> {
        self.run_on.get(&at)?.share_of(self.placed())
    }
}

/// Cumulative counters of a thread at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Reading {
    /// CPU time since the thread's start.
    pub(super) run: Span,
    /// Time ready without a CPU since the thread's start, if it is counted.
    pub(super) wait: Option<Span>,
    /// CPU on which the thread ran last, if that was read.
    pub(super) cpu: Option<OsCpu>,
}

/// Last reading of a thread, with its last known CPU and wait; none before the first.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Track(Option<Reading>);

/// Difference between two readings of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    /// Time between the readings; `None` if there was no reading before or they are not accepted.
    pub(super) interval: Option<Interval>,
    /// Last known CPU.
    pub(super) cpu: Option<OsCpu>,
    /// Whether the CPU is another one than before.
    pub(super) cpu_changed: bool,
    /// Whether the core is another one than before.
    pub(super) core_changed: bool,
    /// Whether the node is another one than before.
    pub(super) node_changed: bool,
}

impl Track {
    /// Returns the track of a thread that counts from this reading.
    pub(super) fn from_reading(reading: Reading) -> Self {
        Self(Some(reading))
    }

    /// Returns the track of a thread that counts from its birth.
    pub(super) fn from_birth() -> Self {
        Self(Some(Reading { run: Span::ZERO, wait: Some(Span::ZERO), cpu: None }))
    }

    /// Takes the next reading. `watched` is the time since the reading before; `None` if the time
    /// between the two is not accepted. `position` says where a CPU is; two CPUs of unknown
    /// position count as different cores.
    pub(super) fn advance(
        &mut self,
        now: Reading,
        watched: Option<Span>,
        position: impl Fn(OsCpu) -> Option<CpuPosition>,
    ) -> Change {
        let before = self.0;
        let last = before.unwrap_or_default();
        let cpu = now.cpu.or(last.cpu);
        self.0 = Some(Reading { run: now.run, wait: now.wait.or(last.wait), cpu });
        let interval = watched.zip(before).map(|(watched, before)| Interval {
            watched,
            run: now.run.less(before.run),
            wait: now.wait.zip(before.wait).map(|(now, before)| now.less(before)),
        });
        let mut change =
            Change { interval, cpu, cpu_changed: false, core_changed: false, node_changed: false };
        if let (Some(from), Some(to)) = (last.cpu, cpu)
            && from != to
        {
            let (from, to) = (position(from), position(to));
            let core = |at: Option<CpuPosition>| at.map(|at| at.core);
            let node = |at: Option<CpuPosition>| at.and_then(|at| at.node);
            change.cpu_changed = true;
            change.core_changed = core(from) != core(to) || core(from).is_none();
            change.node_changed = node(from).zip(node(to)).is_some_and(|(from, to)| from != to);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(run: u64, wait: Option<u64>, cpu: Option<u32>) -> Reading {
        Reading { run: Span(run), wait: wait.map(Span), cpu: cpu.map(OsCpu) }
    }

    fn totals(mut track: Track, readings: &[Reading]) -> Totals<OsCpu> {
        let mut totals = Totals::default();
        for reading in readings {
            let change = track.advance(*reading, Some(Span(10)), |_| None);
            totals.add(&change, change.cpu);
        }
        totals
    }

    #[test]
    fn time_counts_from_the_first_reading_or_from_birth() {
        let readings = [reading(5, Some(1), Some(0)), reading(9, Some(4), Some(1))];
        let seen = totals(Track::default(), &readings);
        assert_eq!((seen.run, seen.wait, seen.watched), (Span(4), Some(Span(3)), Span(10)));
        let born = totals(Track::from_birth(), &readings);
        assert_eq!((born.run, born.wait, born.cpu_changes), (Span(9), Some(Span(4)), 1));
        assert_eq!((born.share_on(OsCpu(0)), born.wait_share()), (Some(5.0 / 9.0), Some(4.0 / 13.0)));
    }

    #[test]
    fn a_wait_that_was_not_read_is_missing_and_the_next_one_covers_it() {
        let readings = [reading(1, None, None), reading(2, None, None)];
        assert_eq!(totals(Track::default(), &readings).wait, None);
        let readings = [reading(1, Some(10), None), reading(2, None, None), reading(3, Some(30), None)];
        assert_eq!(totals(Track::default(), &readings).wait, Some(Span(20)));
    }

    #[test]
    fn a_rejected_reading_moves_the_thread_and_adds_no_time() {
        let mut track = Track::from_reading(reading(0, None, Some(0)));
        let change = track.advance(reading(100, None, Some(1)), None, |_| None);
        assert_eq!((change.interval, change.core_changed), (None, true));
        let change = track.advance(reading(130, None, None), Some(Span(50)), |_| None);
        assert_eq!(change.interval.map(|interval| interval.run), Some(Span(30)));
        assert_eq!((change.cpu, change.cpu_changed), (Some(OsCpu(1)), false));
    }

    proptest! {
        /// The oracle adds up what a counter grew; the places share it out without rest.
        #[test]
        fn times_are_increments_of_the_counter(runs in prop::collection::vec((0u64..100, 0u32..3), 1..20)) {
            let readings: Vec<Reading> =
                runs.iter().map(|(run, cpu)| reading(*run, None, Some(*cpu))).collect();
            let totals = totals(Track::default(), &readings);
            let grown: u64 = runs.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).sum();
            prop_assert_eq!(totals.run, Span(grown));
            prop_assert_eq!(totals.placed(), Span(grown));
            let changes = runs.windows(2).filter(|pair| pair[1].1 != pair[0].1).count();
            prop_assert_eq!(totals.cpu_changes, changes as u64);
        }
    }
}
