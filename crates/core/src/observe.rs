//! Observations: conversion of a host's cumulative counters to the rates that a policy needs.
//!
//! Unit: shares of elapsed time, in [0, 1] apart from the clock's granularity. Problem: the
//! kernel's counters only grow, and policies need rates. Readings arrive late, partly or not at
//! all, threads start and end between two readings, and clocks jump. A thread that was not read has
//! no rate, which differs from the rate zero. Idea: a [`Sample`] contains the raw readings; an
//! [`Observer`] keeps the preceding reading and computes an [`Observation`]. No other code computes
//! rates, so the live machine, a simulated one and a recorded one are observed in the same way.
//!
//! Linux counts a wait when it ends. A thread that waited through a whole step therefore shows no
//! change at all. If the host reports that the thread was ready, the step counts as waiting, and is
//! subtracted from the waiting that is counted later.
//!
//! Properties: A rate exists only between two readings of one thread at two moments, in order.
//! Counters that went backwards (a reused number, a lost sample) give no rate and start again. A
//! thread in [`Sample::gone`] is forgotten.
//!
//! Source: The separation of sample and model follows Meta's `below` (`Model::new`). Speed as CPU
//! time over real time is from Hofmeyr, Iancu and Blagojević, "Load Balancing on Speed", PPoPP
//! 2010. Speed over wanted time is made possible by `/proc/PID/schedstat`.

mod fetched;

pub use fetched::{Fetched, Unfetched};

use crate::counts::{Counts, Rung};
use crate::ids::{OsCpu, OsNode, ProgramId, ThreadId};
use crate::outcome::Outcome;
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Reason why the balancer must not move a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Its program set its mask while the balancer was watching.
    MovedItself,
    /// Another process set its mask while the balancer was watching.
    MovedByOthers,
    /// The kernel refuses to move it: it belongs to another user or is a kernel thread.
    Refused,
    /// A scheduler loaded into the kernel (sched_ext) with this name places it.
    Scheduler(String),
    /// Another balancer, with this process id, moves it; 0 if the id is unknown.
    Balancer(u32),
    /// The user asked to leave it alone.
    Asked,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MovedItself => f.write_str("its program bound it by itself"),
            Self::MovedByOthers => f.write_str("another process bound it"),
            Self::Refused => f.write_str("the kernel does not let us move it"),
            Self::Scheduler(name) => write!(f, "the loaded scheduler {name} places it"),
            Self::Balancer(0) => f.write_str("another balancer moves it"),
            Self::Balancer(pid) => write!(f, "process {pid} balances it"),
            Self::Asked => f.write_str("you asked for it to be left alone"),
        }
    }
}

/// Rarely changing facts about a thread. The host sends them again after each change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThreadInfo {
    /// Number given by the host, never reused.
    pub id: ThreadId,
    /// Program of the thread.
    pub program: ProgramId,
    /// Process id given by the kernel.
    pub pid: u32,
    /// Thread id given by the kernel.
    pub tid: u32,
    /// Printable name.
    pub name: String,
    /// Home mask: the mask given by its program, before any change by the balancer.
    pub home: CpuSet,
    /// Reason why the balancer must not move it; `None` if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// Whether a user declared that its node matters (`trimtab tag`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tagged: bool,
}

/// Program: one run, or one process tree to which the balancer attached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Number given by the host.
    pub id: ProgramId,
    /// Process id of the first process.
    pub pid: u32,
    /// Printable name.
    pub name: String,
}

/// Reading of one thread. Counters grow from the thread's start; unread values are missing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThreadSample {
    /// The thread.
    pub id: ThreadId,
    /// Time on a CPU.
    pub run: Span,
    /// Time ready to run without a CPU; `None` if the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// Number of times it was put on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u64>,
    /// Number of times it gave up the CPU to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voluntary: Option<u64>,
    /// CPU on which it ran last, if read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<OsCpu>,
    /// Whether it was ready to run (`true`) or asleep. It is read only if no counter changed since
    /// the preceding reading: a kernel that counts a wait when it ends shows a waiting thread like
    /// a sleeping one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Hardware counts of the thread, if requested and readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// Distribution over nodes of the memory that a thread uses, or used lately. It is reported if it
/// can be read without counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemorySample {
    /// The thread.
    pub thread: ThreadId,
    /// Pages, or page faults, on each node; only their shares are meaningful.
    pub pages: BTreeMap<OsNode, u64>,
}

/// Reading of one CPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuSample {
    /// The CPU.
    pub cpu: OsCpu,
    /// Time since boot that it ran any task.
    pub busy: Span,
    /// Time that the hypervisor gave to others while the CPU was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<Span>,
}

/// Event noticed by the host that is not a counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// The set of usable CPUs changed: a cpuset, a hot-unplug.
    Usable(CpuSet),
    /// The clock stopped for the machine, or jumped; rates over this step are discarded.
    ClockJump(Span),
    /// A scheduler was loaded into the kernel (`Some`) or unloaded.
    Scheduler(Option<String>),
    /// Number of threads that could not be read.
    Unread(u32),
    /// Available counters; reported with the first sample that has counts, and after a change.
    Counting(Rung),
    /// Result of moving memory to a node.
    Memory(Fetched),
}

/// Readings of a host at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Moment of the sample.
    pub at: Moment,
    /// Programs seen for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramInfo>,
    /// Threads seen for the first time, and those with changed facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<ThreadInfo>,
    /// Threads that ended since the last sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ThreadId>,
    /// Threads that were read, ascending by id.
    pub threads: Vec<ThreadSample>,
    /// CPUs that were read, ascending; empty if none were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuSample>,
    /// Distribution of memory, for threads with a new reading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemorySample>,
    /// Time that a CPU quota has kept the program off the CPUs, summed over its CPUs; `None`
    /// without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Span>,
    /// CPU time that the preceding round cost the observer: reading, deciding, moving and
    /// reporting. `None` if unknown, or for the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Span>,
    /// Outcomes of earlier moves that have become known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Outcome>,
    /// Other events noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// Definition of a thread's speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Time on a CPU over the time that it wanted one. A sleeping thread is not slow.
    #[default]
    RunWait,
    /// Time on a CPU over elapsed time, as in the paper.
    CpuShare,
}

/// Smallest share of the time on a CPU or waiting for one for which a thread has a speed; below it
/// the thread counts as sleeping.
pub const ACTIVE_MIN: f64 = 0.01;

/// Activity of a thread between its last two readings, as shares of the time between them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Time between the readings.
    pub span: Span,
    /// Share of the time on a CPU.
    pub run: f64,
    /// Share of the time ready without a CPU; `None` if not counted.
    pub wait: Option<f64>,
    /// Number of times per second that it was put on a CPU.
    pub slices: Option<f64>,
    /// Number of times per second that it went to sleep.
    pub sleeps: Option<f64>,
}

impl Rates {
    /// Returns the share of the time in which it wanted no CPU; `None` if waiting is not counted.
    pub fn idle(&self) -> Option<f64> {
        Some((1.0 - self.run - self.wait?).max(0.0))
    }

    /// Returns its speed in [0, 1]; `None` if it slept, or if the metric needs waiting and it is
    /// not counted.
    pub fn speed(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::CpuShare => Some(self.run.clamp(0.0, 1.0)),
            Metric::RunWait => {
                let wanted = self.run + self.wait?;
                (wanted >= ACTIVE_MIN).then(|| (self.run / wanted).clamp(0.0, 1.0))
            }
        }
    }
}

/// Thread as observed by a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadView<'a> {
    /// Facts about the thread.
    pub info: &'a ThreadInfo,
    /// Time on a CPU since the thread's start, as last read; `None` if it was never read.
    pub run: Option<Span>,
    /// Time ready without a CPU since the thread's start, as last read.
    pub wait: Option<Span>,
    /// Activity since the preceding reading; `None` if it was not read now or not before.
    pub rates: Option<Rates>,
    /// Hardware counts since they were last read; `None` if they were not read now or not before,
    /// or did not run.
    pub counted: Option<Counts>,
    /// CPU on which it ran at the last reading of it.
    pub cpu: Option<OsCpu>,
    /// Distribution of its memory over nodes, as last reported.
    pub pages: Option<&'a BTreeMap<OsNode, u64>>,
}

impl ThreadView<'_> {
    /// Returns the thread's number.
    pub fn id(&self) -> ThreadId {
        self.info.id
    }

    /// Returns whether the balancer may move it.
    pub fn movable(&self) -> bool {
        self.info.left.is_none()
    }

    /// Returns its speed, if it has one now.
    pub fn speed(&self, metric: Metric) -> Option<f64> {
        self.rates.as_ref()?.speed(metric)
    }
}

/// CPU as observed by a policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuView {
    /// The CPU.
    pub cpu: OsCpu,
    /// Time between its last two readings, which may be several samples apart; `None` without an
    /// earlier reading.
    pub span: Option<Span>,
    /// Share of the time that it ran any task; `None` without an earlier reading.
    pub busy: Option<f64>,
    /// Share of the time that the hypervisor took.
    pub steal: Option<f64>,
}

/// Observation: the input of a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Observation<'a> {
    /// Moment of the sample.
    pub at: Moment,
    /// Time since the preceding sample; `None` for the first one.
    pub span: Option<Span>,
    /// All living threads, ascending by id, including those not read now.
    pub threads: Vec<ThreadView<'a>>,
    /// CPUs that were read now, ascending.
    pub cpus: Vec<CpuView>,
    /// CPUs that may be used now.
    pub usable: &'a CpuSet,
    /// Threads that ended since the last observation.
    pub gone: &'a [ThreadId],
    /// Share of the time that a quota kept the program off its CPUs, summed over them.
    pub throttled: Option<f64>,
    /// CPU time that the preceding round cost, if known.
    pub cost: Option<Span>,
    /// Outcomes of earlier decisions, in order.
    pub outcomes: &'a [Outcome],
    /// Other events noticed by the host.
    pub notices: &'a [Notice],
}

impl Observation<'_> {
    /// Returns the thread with this number.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadView<'_>> {
        let at = self.threads.binary_search_by_key(&id, ThreadView::id).ok()?;
        self.threads.get(at)
    }
}

/// State of a thread kept between samples.
#[derive(Clone, Debug)]
struct KnownThread {
    info: ThreadInfo,
    last: Option<(Moment, ThreadSample)>,
    rates: Option<Rates>,
    counts: Option<Counts>,
    counted: Option<Counts>,
    cpu: Option<OsCpu>,
    pages: Option<BTreeMap<OsNode, u64>>,
    /// Waiting time that was credited before the kernel counted it.
    ahead: Span,
}

impl KnownThread {
    /// Creates the state of a thread that was not read yet.
    fn new(info: ThreadInfo) -> Self {
        Self {
            info,
            last: None,
            rates: None,
            counts: None,
            counted: None,
            cpu: None,
            pages: None,
            ahead: Span::ZERO,
        }
    }
}

/// Keeper of each counter's preceding reading, which turns samples into observations.
#[derive(Clone, Debug)]
pub struct Observer {
    threads: BTreeMap<ThreadId, KnownThread>,
    programs: BTreeMap<ProgramId, ProgramInfo>,
    cpus: BTreeMap<OsCpu, (Moment, CpuSample)>,
    cpu_views: Vec<CpuView>,
    usable: CpuSet,
    throttled: Option<(Moment, Span)>,
    throttled_share: Option<f64>,
    at: Option<Moment>,
    span: Option<Span>,
    gone: Vec<ThreadId>,
    cost: Option<Span>,
    outcomes: Vec<Outcome>,
    notices: Vec<Notice>,
}

impl Observer {
    /// Creates an observer without any reading. `usable` are the CPUs that may be used until a
    /// notice changes them.
    pub fn new(usable: CpuSet) -> Self {
        Self {
            threads: BTreeMap::new(),
            programs: BTreeMap::new(),
            cpus: BTreeMap::new(),
            cpu_views: Vec::new(),
            usable,
            throttled: None,
            throttled_share: None,
            at: None,
            span: None,
            gone: Vec::new(),
            cost: None,
            outcomes: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Takes in a sample. `outcomes` are those of the decisions applied since the last one.
    pub fn take(&mut self, sample: &Sample, outcomes: &[Outcome]) {
        let jumped = sample.notices.iter().any(|notice| matches!(notice, Notice::ClockJump(_)));
        self.span = self.at.map(|before| sample.at.since(before)).filter(|span| *span > Span::ZERO);
        self.at = Some(sample.at);
        self.cost = sample.cost;
        self.outcomes = [outcomes, &sample.settled].concat();
        self.notices.clone_from(&sample.notices);
        self.gone.clone_from(&sample.gone);
        for program in &sample.programs {
            self.programs.insert(program.id, program.clone());
        }
        for id in &sample.gone {
            self.threads.remove(id);
        }
        for info in &sample.news {
            match self.threads.get_mut(&info.id) {
                Some(known) => known.info = info.clone(),
                None => {
                    let known = KnownThread::new(info.clone());
                    self.threads.insert(info.id, known);
                }
            }
        }
        for notice in &sample.notices {
            if let Notice::Usable(usable) = notice {
                self.usable = usable.clone();
            }
        }
        for known in self.threads.values_mut() {
            known.rates = None;
            known.counted = None;
        }
        for read in &sample.threads {
            let Some(known) = self.threads.get_mut(&read.id) else { continue };
            let ahead = &mut known.ahead;
            known.rates = known
                .last
                .as_ref()
                .filter(|_| !jumped)
                .and_then(|(before, last)| rates(sample.at.since(*before), last, read, ahead));
            if known.rates.is_none() {
                known.ahead = Span::ZERO;
            }
            if let Some(counts) = read.counts {
                let before = known.counts.replace(counts);
                known.counted = before.and_then(|before| counts.since(&before));
            }
            known.cpu = read.cpu.or(known.cpu);
            known.last = Some((sample.at, read.clone()));
        }
        for read in &sample.memory {
            if let Some(known) = self.threads.get_mut(&read.thread) {
                known.pages = Some(read.pages.clone());
            }
        }
        self.cpu_views.clear();
        for read in &sample.cpus {
            let before = self.cpus.insert(read.cpu, (sample.at, read.clone()));
            let over = before.filter(|_| !jumped).map(|(at, before)| (sample.at.since(at), before));
            let share = |now: Span, before: Span, span: Span| {
                (now >= before).then(|| now.less(before).share_of(span)).flatten()
            };
            self.cpu_views.push(CpuView {
                cpu: read.cpu,
                span: over.as_ref().map(|(span, _)| *span),
                busy: over.as_ref().and_then(|(span, before)| share(read.busy, before.busy, *span)),
                steal: over.as_ref().and_then(|(span, before)| share(read.steal?, before.steal?, *span)),
            });
        }
        self.throttled_share = match (self.throttled, sample.throttled) {
            (Some((at, before)), Some(now)) if now >= before && !jumped => {
                now.less(before).share_of(sample.at.since(at))
            }
            _ => None,
        };
        if let Some(now) = sample.throttled {
            self.throttled = Some((sample.at, now));
        }
    }

    /// Returns the observation after the last sample; at moment zero before any sample.
    pub fn observation(&self) -> Observation<'_> {
        let view = |known: &'_ KnownThread| -> (Option<Span>, Option<Span>) {
            let last = known.last.as_ref().map(|(_, last)| last);
            (last.map(|last| last.run), last.and_then(|last| last.wait))
        };
        let threads = self.threads.values().map(|known| {
            let (run, wait) = view(known);
            ThreadView {
                info: &known.info,
                run,
                wait,
                rates: known.rates,
                counted: known.counted,
                cpu: known.cpu,
                pages: known.pages.as_ref(),
            }
        });
        Observation {
            at: self.at.unwrap_or_default(),
            span: self.span,
            threads: threads.collect(),
            cpus: self.cpu_views.clone(),
            usable: &self.usable,
            gone: &self.gone,
            throttled: self.throttled_share,
            cost: self.cost,
            outcomes: &self.outcomes,
            notices: &self.notices,
        }
    }

    /// Returns the programs seen so far.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramInfo> {
        self.programs.values()
    }
}

/// Returns the rates between two readings; `None` unless time passed and no counter went backwards.
/// `ahead` is the waiting time that was credited before the kernel counted it.
fn rates(span: Span, before: &ThreadSample, now: &ThreadSample, ahead: &mut Span) -> Option<Rates> {
    let grown = |now: Option<u64>, before: Option<u64>| -> Option<Option<u64>> {
        match (now, before) {
            (Some(now), Some(before)) => now.checked_sub(before).map(Some),
            _ => Some(None),
        }
    };
    let run = Span(now.run.0.checked_sub(before.run.0)?);
    let wait = grown(now.wait.map(|wait| wait.0), before.wait.map(|wait| wait.0))?.map(Span);
    let slices = grown(now.slices, before.slices)?;
    let sleeps = grown(now.voluntary, before.voluntary)?;
    let wait = wait.map(|wait| match (run, wait) {
        (Span::ZERO, Span::ZERO) if now.ready == Some(true) => {
            *ahead = *ahead + span;
            span
        }
        (_, counted) => {
            let rest = counted.less(*ahead);
            *ahead = if counted > Span::ZERO { Span::ZERO } else { *ahead };
            rest
        }
    });
    let per_second = |count: u64| count as f64 / span.seconds();
    Some(Rates {
        span,
        run: run.share_of(span)?,
        wait: wait.and_then(|wait| wait.share_of(span)),
        slices: slices.map(per_second),
        sleeps: sleeps.map(per_second),
    })
}

#[cfg(test)]
mod tests;
