//! Account of one thread.

use super::{CpuPosition, PROGRESS_READINGS};
use crate::ids::{OsCpu, OsNode};
use crate::observe::{ACTIVE_MIN, Metric, ThreadInfo, ThreadView};
use crate::telemetry::totals::{Change, Interval, Reading, Totals, Track};
use crate::time::Moment;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// One past reading.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Past {
    /// Time since the reading before; empty if the thread was not read.
    pub interval: Interval,
    /// Speed in the interval; `None` if the thread slept or was not read.
    pub speed: Option<f64>,
}

/// Account of one thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadAccount {
    /// Description of the thread.
    #[serde(flatten)]
    pub info: ThreadInfo,
    /// Moment at which the thread was first seen.
    #[serde(rename = "born_ns")]
    pub born: Moment,
    /// Moment at which the thread was found to have ended.
    #[serde(rename = "ended_ns", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// CPU on which the thread ran last.
    pub cpu: Option<OsCpu>,
    /// Node of that CPU.
    pub node: Option<OsNode>,
    /// Speed over the last reading; `None` if the thread slept or was not read.
    pub speed: Option<f64>,
    /// Share of the last reading that the thread was on a CPU.
    pub run_share: Option<f64>,
    /// Share of the last reading that the thread was ready without a CPU.
    pub wait_share: Option<f64>,
    /// Sleeps per second.
    pub sleeps: Option<f64>,
    /// Times and migrations while the thread was watched.
    #[serde(flatten)]
    pub totals: Totals<OsCpu>,
    /// Moves that a policy decided and the host applied.
    pub moves: u64,
    /// Past readings, oldest first.
    #[serde(skip)]
    pub history: VecDeque<Past>,
    #[serde(skip)]
    track: Track,
}

impl ThreadAccount {
    pub(super) fn new(info: ThreadInfo, born: Moment) -> Self {
        Self {
            info,
            born,
            ended: None,
            cpu: None,
            node: None,
            speed: None,
            run_share: None,
            wait_share: None,
            sleeps: None,
            totals: Totals::default(),
            moves: 0,
            history: VecDeque::new(),
            track: Track::default(),
        }
    }

    /// Takes a sample of the thread into the account. Returns the change since the reading before;
    /// `None` if the thread was never read.
    pub(super) fn take(
        &mut self,
        view: &ThreadView<'_>,
        metric: Metric,
        seats: &BTreeMap<OsCpu, CpuPosition>,
        keep: usize,
    ) -> Option<Change> {
        self.speed = view.speed(metric);
        self.run_share = view.rates.map(|rates| rates.run);
        // The kernel counts a wait when the wait ends, so a sample may report more waiting than
        // time has passed.
        self.wait_share = view.rates.and_then(|rates| rates.wait).map(|wait| wait.min(1.0));
        // The rate is read at longer intervals; the last value is kept until the next one.
        self.sleeps = view.rates.and_then(|rates| rates.sleeps).or(self.sleeps);
        let watched = view.rates.map(|rates| rates.span);
        let reading = view.run.map(|run| Reading { run, wait: view.wait, cpu: view.cpu });
        let position = |cpu| seats.get(&cpu).copied();
        let change = reading.map(|reading| self.track.advance(reading, watched, position));
        if self.history.len() >= keep {
            self.history.pop_front();
        }
        let interval = change.and_then(|change| change.interval).unwrap_or_default();
        self.history.push_back(Past { interval, speed: self.speed });
        let change = change?;
        self.totals.add(&change, change.cpu);
        self.cpu = change.cpu;
        self.node = change.cpu.and_then(position).and_then(|position| position.node);
        Some(change)
    }

    /// Returns the speed over all the time that the thread was watched.
    pub fn speed_overall(&self, metric: Metric) -> Option<f64> {
        let totals = &self.totals;
        match metric {
            Metric::CpuShare => totals.run.share_of(totals.watched),
            Metric::RunWait => totals.run.share_of(totals.run + totals.wait?),
        }
        .map(|speed| speed.min(1.0))
    }

    /// Returns the progress over the latest readings, as a share of their time; `None` if the
    /// thread was not read or slept.
    pub fn progress(&self) -> Option<f64> {
        let mut window = Totals::<OsCpu>::default();
        for past in self.history.iter().rev().take(PROGRESS_READINGS) {
            window.add_interval(past.interval, None);
        }
        let wanted = (window.run + window.wait.unwrap_or_default()).share_of(window.watched)?;
        window.run.share_of(window.watched).filter(|_| wanted >= ACTIVE_MIN)
    }
}
