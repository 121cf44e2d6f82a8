//! Scripted host: a test defines the readings of each thread, and the outcome of each decision.

use std::collections::BTreeSet;
use trimtab_core::balance::{Decision, Kind, Outcome, Policy, Settings, Settled, Turn, policy};
use trimtab_core::check::decisions::Account;
use trimtab_core::counts::Counts;
use trimtab_core::ids::{Id, OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{Left, Notice, Observer, Sample, ThreadInfo, ThreadSample};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::{Machine, parse_synthetic};

/// Reading of a thread since the last sample: shares of the time on a CPU and waiting for one, and
/// its CPU now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Did {
    pub(crate) run: f64,
    pub(crate) wait: f64,
    pub(crate) cpu: u32,
}

/// Returns a reading: on a CPU for this share of the time, waiting for the rest.
pub(crate) fn ran(run: f64, cpu: u32) -> Did {
    Did { run, wait: 1.0 - run, cpu }
}

/// Returns a reading: on a CPU for this share of the time, asleep for the rest.
pub(crate) fn slept(run: f64, cpu: u32) -> Did {
    Did { run, wait: 0.0, cpu }
}

pub(crate) struct Script {
    pub(crate) machine: Machine,
    policy: Box<dyn Policy>,
    observer: Observer,
    account: Account,
    outcomes: Vec<Outcome>,
    counters: Vec<ThreadSample>,
    infos: Vec<ThreadInfo>,
    news: Vec<ThreadInfo>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) switches: bool,
    pub(crate) throttled: Option<Span>,
    pub(crate) counts_waits: bool,
    told: BTreeSet<ThreadId>,
    pub(crate) now: Moment,
    pub(crate) next: Moment,
}

impl Script {
    /// Creates a policy on a machine, and threads with these masks.
    pub(crate) fn new(machine: &str, kind: Kind, settings: &Settings, homes: &[&str]) -> Self {
        let machine = parse_synthetic(machine).unwrap();
        let info = |(at, home): (usize, &&str)| ThreadInfo {
            id: ThreadId::from_index(at),
            program: ProgramId(0),
            pid: 1,
            tid: u32::try_from(at).unwrap() + 1,
            name: format!("t{at}"),
            home: home.parse().unwrap(),
            left: None,
            tagged: false,
        };
        let zero = |at: usize| ThreadSample {
            id: ThreadId::from_index(at),
            run: Span::ZERO,
            wait: Some(Span::ZERO),
            slices: None,
            ready: None,
            voluntary: None,
            cpu: None,
            counts: None,
        };
        Self {
            policy: policy(kind, &machine, settings),
            observer: Observer::new(machine.cpus()),
            machine,
            account: Account::default(),
            outcomes: Vec::new(),
            counters: (0..homes.len()).map(zero).collect(),
            infos: homes.iter().enumerate().map(info).collect(),
            news: homes.iter().enumerate().map(info).collect(),
            notices: Vec::new(),
            switches: false,
            throttled: None,
            counts_waits: true,
            told: BTreeSet::new(),
            now: Moment(0),
            next: Moment(0),
        }
    }

    /// Puts each thread into the process of this number.
    pub(crate) fn in_processes(mut self, processes: &[u32]) -> Self {
        for (infos, &process) in self.infos.iter_mut().zip(&mut self.news).zip(processes) {
            (infos.0.pid, infos.1.pid) = (process, process);
        }
        self
    }

    /// Sets whether a thread may be moved.
    pub(crate) fn leave(&mut self, at: usize, left: Option<Left>) {
        self.infos[at].left = left;
        self.news.push(self.infos[at].clone());
    }

    /// Tags a thread.
    pub(crate) fn tag(&mut self, at: usize) {
        self.infos[at].tagged = true;
        self.news.push(self.infos[at].clone());
    }

    /// Adds hardware counts of each thread since the last sample; `None` for a thread that was not
    /// read.
    pub(crate) fn count(&mut self, counted: &[Option<Counts>]) {
        for (counter, more) in self.counters.iter_mut().zip(counted) {
            match (&mut counter.counts, more) {
                (Some(all), Some(more)) => {
                    *all = all.plus(more);
                    self.told.insert(counter.id);
                }
                (all, Some(more)) => {
                    *all = Some(*more);
                    self.told.insert(counter.id);
                }
                (_, None) => {
                    self.told.remove(&counter.id);
                }
            }
        }
    }

    /// Makes one sample: `None` for a thread that could not be read. All decisions are applied.
    pub(crate) fn step(&mut self, did: &[Option<Did>]) -> Turn {
        self.step_with(did, |_| Settled::Applied)
    }

    /// Makes one sample when the policy wants it; `end` gives the outcome of each decision.
    pub(crate) fn step_with(&mut self, did: &[Option<Did>], end: impl Fn(&Decision) -> Settled) -> Turn {
        let span = self.next.since(self.now);
        self.now = self.next;
        let mut sample = Sample {
            at: self.now,
            news: std::mem::take(&mut self.news),
            notices: std::mem::take(&mut self.notices),
            throttled: self.throttled,
            ..Sample::default()
        };
        for (counter, did) in self.counters.iter_mut().zip(did) {
            let Some(did) = did else { continue };
            counter.run = counter.run + span.times(did.run);
            counter.wait = counter.wait.map(|wait| wait + span.times(did.wait));
            counter.cpu = Some(OsCpu(did.cpu));
            if self.switches {
                let more = (span.seconds() * 20_000.0) as u64;
                counter.slices = Some(counter.slices.unwrap_or(0) + more);
                counter.voluntary = Some(0);
            } else {
                let asleep = 1.0 - did.run - did.wait > 0.01;
                let more = if asleep { (span.seconds() * 50.0).ceil() as u64 } else { 0 };
                counter.voluntary = Some(counter.voluntary.unwrap_or(0) + more);
            }
            let wait = counter.wait.filter(|_| self.counts_waits);
            let counts = counter.counts.filter(|_| self.told.contains(&counter.id));
            sample.threads.push(ThreadSample { wait, counts, ..counter.clone() });
        }
        self.observer.take(&sample, &self.outcomes);
        let seen = self.observer.observation();
        let turn = self.policy.decide(&seen);
        let faults = self.account.check_turn(&self.machine, false, &seen, &turn);
        assert!(faults.is_empty(), "at {:?}: {faults:?}", self.now);
        self.outcomes = turn
            .decisions
            .iter()
            .map(|decision| Outcome { thread: decision.thread, end: end(decision) })
            .collect();
        self.next = turn.next;
        turn
    }

    /// Makes as many equal samples as fit into a time, and returns all decisions.
    pub(crate) fn pass(&mut self, seconds: f64, did: &[Option<Did>]) -> Vec<Decision> {
        let until = self.now + Span((seconds * 1e9) as u64);
        let mut all = Vec::new();
        while self.next <= until {
            all.extend(self.step(did).decisions);
        }
        all
    }
}
