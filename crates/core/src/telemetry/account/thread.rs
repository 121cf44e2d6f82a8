//! The account of one thread.

use super::{Seat, WINDOW};
use crate::ids::{OsCpu, OsNode};
use crate::observe::{ACTIVE_MIN, Metric, ThreadInfo, ThreadView};
use crate::telemetry::add_time;
use crate::time::{Moment, Span};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// One past reading.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Past {
    /// The time since the reading before; nothing when the thread was not read.
    #[serde(rename = "span_ns")]
    pub span: Span,
    /// Time on a CPU in it.
    #[serde(rename = "run_ns")]
    pub run: Span,
    /// Time ready without one in it, where that is counted.
    #[serde(rename = "wait_ns")]
    pub wait: Option<Span>,
    /// Its speed then; `None` when it slept or was not read.
    pub speed: Option<f64>,
}

/// The account of one thread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadAccount {
    /// Who it is.
    #[serde(flatten)]
    pub info: ThreadInfo,
    /// When it was first seen.
    #[serde(rename = "born_ns")]
    pub born: Moment,
    /// When it was found to have ended.
    #[serde(rename = "ended_ns", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// The CPU it ran on last.
    pub cpu: Option<OsCpu>,
    /// That CPU's node.
    pub node: Option<OsNode>,
    /// Its speed over the last reading; `None` when it slept or was not read.
    pub speed: Option<f64>,
    /// Its share of the last reading on a CPU.
    pub run_share: Option<f64>,
    /// Its share of the last reading ready without a CPU.
    pub wait_share: Option<f64>,
    /// How often a second it went to sleep.
    pub sleeps: Option<f64>,
    /// Time on a CPU while it was watched.
    #[serde(rename = "run_ns")]
    pub run: Span,
    /// Time ready without a CPU while it was watched, where that is counted.
    #[serde(rename = "wait_ns")]
    pub wait: Option<Span>,
    /// How long it was watched: the sum of its readings.
    #[serde(rename = "watched_ns")]
    pub watched: Span,
    /// Its time on each CPU.
    #[serde(rename = "run_on_ns")]
    pub run_on: BTreeMap<OsCpu, Span>,
    /// Changes of core that were seen.
    pub migrations: u64,
    /// Those of them to another node.
    pub node_migrations: u64,
    /// How often it was moved by decision.
    pub moves: u64,
    /// Its past readings, oldest first.
    #[serde(skip)]
    pub history: VecDeque<Past>,
    #[serde(skip)]
    last: Option<(Span, Option<Span>)>,
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
            run: Span::ZERO,
            wait: None,
            watched: Span::ZERO,
            run_on: BTreeMap::new(),
            migrations: 0,
            node_migrations: 0,
            moves: 0,
            history: VecDeque::new(),
            last: None,
        }
    }

    /// Takes a look at it in; where it ran since the look before and how long, if that is known.
    pub(super) fn look(
        &mut self,
        view: &ThreadView<'_>,
        metric: Metric,
        seats: &BTreeMap<OsCpu, Seat>,
        keep: usize,
    ) -> Option<(OsCpu, Span)> {
        self.follow(view.cpu, seats);
        self.speed = view.speed(metric);
        self.run_share = view.rates.map(|rates| rates.run);
        // The kernel counts a wait when it ends, so a look may be told of more waiting than there was time.
        self.wait_share = view.rates.and_then(|rates| rates.wait).map(|wait| wait.min(1.0));
        // Read seldom, it is shown until it is read anew.
        self.sleeps = view.rates.and_then(|rates| rates.sleeps).or(self.sleeps);
        let before = self.last;
        self.last = view.run.map(|run| (run, view.wait)).or(before);
        let read = view.rates.zip(self.last).zip(before).map(|((rates, now), before)| {
            let wait = now.1.zip(before.1).map(|(now, before)| now.less(before));
            (rates.span, now.0.less(before.0), wait)
        });
        let (span, run, wait) = read.unwrap_or((Span::ZERO, Span::ZERO, None));
        if self.history.len() >= keep {
            self.history.pop_front();
        }
        self.history.push_back(Past { span, run, wait, speed: self.speed });
        self.watched = self.watched + span;
        self.run = self.run + run;
        if let Some(wait) = wait {
            self.wait = Some(self.wait.unwrap_or_default() + wait);
        }
        let cpu = self.cpu.filter(|_| read.is_some())?;
        add_time(&mut self.run_on, cpu, run);
        Some((cpu, run))
    }

    fn follow(&mut self, cpu: Option<OsCpu>, seats: &BTreeMap<OsCpu, Seat>) {
        let Some(cpu) = cpu else { return };
        if let Some(before) = self.cpu.filter(|before| *before != cpu) {
            let (from, to) = (seats.get(&before), seats.get(&cpu));
            let core = |seat: Option<&Seat>| seat.map(|seat| seat.core);
            // Two CPUs that the model lacks may share a core or not; they are taken for different ones.
            if core(from) != core(to) || core(from).is_none() {
                self.migrations += 1;
            }
            let node = |seat: Option<&Seat>| seat.and_then(|seat| seat.node);
            if node(from).zip(node(to)).is_some_and(|(from, to)| from != to) {
                self.node_migrations += 1;
            }
        }
        self.cpu = Some(cpu);
        self.node = seats.get(&cpu).and_then(|seat| seat.node);
    }

    /// Its speed over all the time it was watched.
    pub fn speed_overall(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::CpuShare => self.run.share_of(self.watched),
            Metric::RunWait => self.run.share_of(self.run + self.wait?),
        }
        .map(|speed| speed.min(1.0))
    }

    /// The share of the time it waited for a CPU, of all that it wanted one.
    pub fn waited(&self) -> Option<f64> {
        let wait = self.wait?;
        wait.share_of(self.run + wait)
    }

    /// Its progress over the latest readings, as a share of their time; `None` when it was not read or slept.
    pub fn progress(&self) -> Option<f64> {
        let latest = self.history.iter().rev().take(WINDOW);
        let mut sums = [Span::ZERO; 3];
        for past in latest {
            sums[0] = sums[0] + past.span;
            sums[1] = sums[1] + past.run;
            sums[2] = sums[2] + past.wait.unwrap_or_default();
        }
        let [span, run, wait] = sums;
        let wanted = (run + wait).share_of(span)?;
        run.share_of(span).filter(|_| wanted >= ACTIVE_MIN)
    }

    /// The share of its time that it had on a CPU, of all its time on CPUs.
    pub fn share_on(&self, cpu: OsCpu) -> Option<f64> {
        self.run_on.get(&cpu)?.share_of(self.run_on.values().copied().sum())
    }
}
