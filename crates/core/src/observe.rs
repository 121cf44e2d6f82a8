//! From what a host read to what a policy sees: cumulative counters in, rates out.
//!
//! Unit: shares of elapsed time, in [0, 1] but for the clock's grain. Problem: counters of the kernel only grow, and policies
//! think in rates; the readings come late, partly or not at all, threads are born and die between two of them, clocks
//! jump, and a thread that was not read has no rate, which is not the rate zero. Idea: a [`Sample`] is what was read, as it was
//! read; an [`Observer`] keeps the reading before it and makes an [`Observation`]. Nothing else makes rates, so that the live
//! machine, a simulated one and a recorded one are seen alike.
//!
//! Linux counts a wait when it is over. A thread that waited through a whole step therefore shows no change at all; where the host
//! says that it was ready, the step counts as waiting, and is taken off what is counted later.
//!
//! Properties: a rate exists only between two readings of one thread at two moments, in order; counters that went backwards
//! (a number used again, a lost sample) give no rate and start anew; what left the sample's [`Sample::gone`] is forgotten.
//!
//! Source: the split of sample and model is that of Meta's `below` (`Model::new`); speed as CPU time over real time
//! is Hofmeyr, Iancu and Blagojević, "Load Balancing on Speed", PPoPP 2010; speed over wanted time is what
//! `/proc/PID/schedstat` makes possible.

mod fetched;

pub use fetched::{Fetched, Unfetched};

use crate::balance::Outcome;
use crate::counts::{Counts, Rung};
use crate::ids::{OsCpu, OsNode, ProgramId, ThreadId};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Why a thread is not ours to move.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Its program set its mask itself while we watched.
    MovedItself,
    /// Somebody else set its mask while we watched.
    MovedByOthers,
    /// The kernel refuses: another user's, or a thread of the kernel.
    Refused,
    /// A scheduler loaded into the kernel (sched_ext), by its name, places it.
    Scheduler(String),
    /// Another balancer looks after it, by its process; 0 where that cannot be known.
    Balancer(u32),
    /// The user asked for it to be left alone.
    Asked,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MovedItself => f.write_str("its program bound it by itself"),
            Self::MovedByOthers => f.write_str("somebody else bound it"),
            Self::Refused => f.write_str("the kernel does not let us move it"),
            Self::Scheduler(name) => write!(f, "the loaded scheduler {name} places it"),
            Self::Balancer(0) => f.write_str("another balancer looks after it"),
            Self::Balancer(pid) => write!(f, "process {pid} balances it"),
            Self::Asked => f.write_str("you asked for it to be left alone"),
        }
    }
}

/// What does not change often about a thread. Sent again when it does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThreadInfo {
    /// The host's number for it, never used again.
    pub id: ThreadId,
    /// The program it belongs to.
    pub program: ProgramId,
    /// Its process, as the kernel numbers it.
    pub pid: u32,
    /// The thread, as the kernel numbers it.
    pub tid: u32,
    /// Its name, printable.
    pub name: String,
    /// Where it may run by its program's own will: its mask as found, before anything of ours.
    pub home: CpuSet,
    /// Why it is not ours to move, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// Whether somebody said that it minds on which node it runs (`trimtab tag`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tagged: bool,
}

/// A program: one run, or one tree of processes that was attached to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// The host's number for it.
    pub id: ProgramId,
    /// The first process.
    pub pid: u32,
    /// What it is called, printable.
    pub name: String,
}

/// What was read of one thread. Counters grow from the thread's birth; what was not read is missing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Which.
    pub id: ThreadId,
    /// Time on a CPU.
    pub run: Span,
    /// Time it was ready to run and had no CPU; `None` where the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// How often it was put on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u64>,
    /// How often it gave the CPU up to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voluntary: Option<u64>,
    /// Where it ran last, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<OsCpu>,
    /// Whether it was ready to run (`true`) or asleep; looked at only when no counter moved since the reading before, since
    /// a kernel that counts a wait when it is over shows a waiting thread like a sleeping one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What hardware counted of it, where that was asked for and could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// On which nodes the memory lies that a thread uses, or was used lately: told where that can be asked without counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemorySample {
    /// Whose.
    pub thread: ThreadId,
    /// Pages, or faults for pages, on each node; only their shares mean anything.
    pub pages: BTreeMap<OsNode, u64>,
}

/// What was read of one CPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuSample {
    /// Which.
    pub cpu: OsCpu,
    /// Time it ran anything, ours and others', since boot.
    pub busy: Span,
    /// Time the hypervisor gave to others while it was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<Span>,
}

/// Something the host noticed that is no counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// The CPUs that may be used changed: a cpuset, a hot-unplug.
    Usable(CpuSet),
    /// The clock stood still for the machine, or jumped: rates over this step are not believed.
    ClockJump(Span),
    /// A scheduler was loaded into the kernel (`Some`) or unloaded.
    Scheduler(Option<String>),
    /// Some threads could not be read, this many.
    Unread(u32),
    /// What can be counted of threads: told with the first sample that has counts, and when it changes.
    Counting(Rung),
    /// What became of memory that was to be brought to a node.
    Memory(Fetched),
}

/// What a host read at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// Programs seen for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramInfo>,
    /// Threads seen for the first time, and those about which something changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<ThreadInfo>,
    /// Threads that ended since the last sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ThreadId>,
    /// The threads that were read, ascending by id.
    pub threads: Vec<ThreadSample>,
    /// The CPUs that were read, ascending; empty when none were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuSample>,
    /// Where memory lies, of threads of which that was told now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemorySample>,
    /// How long a CPU quota has kept the program off the CPUs, summed over its CPUs; `None` without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Span>,
    /// The CPU time that the round before cost whoever looks: reading, deciding, moving and telling of it. `None` where that is not
    /// known, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Span>,
    /// Moves asked for earlier whose end is known now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Outcome>,
    /// What else was noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// How the speed of a thread is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Time on a CPU over time it wanted one. A thread that sleeps is not slow.
    #[default]
    RunWait,
    /// Time on a CPU over elapsed time: the paper's form.
    CpuShare,
}

/// Less of the time than this on a CPU or waiting for one, and a thread has no speed: it slept.
pub const ACTIVE_MIN: f64 = 0.01;

/// What a thread did between its last two readings, as shares of the time between them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// The time between the readings.
    pub span: Span,
    /// Share of it on a CPU.
    pub run: f64,
    /// Share of it ready without one, where that is counted.
    pub wait: Option<f64>,
    /// How often a second it was put on a CPU.
    pub slices: Option<f64>,
    /// How often a second it went to sleep.
    pub sleeps: Option<f64>,
}

impl Rates {
    /// The share of the time in which it wanted no CPU; `None` where waiting is not counted.
    pub fn idle(&self) -> Option<f64> {
        Some((1.0 - self.run - self.wait?).max(0.0))
    }

    /// Its speed in [0, 1]; `None` when it slept, or when waiting is not counted and the metric needs it.
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

/// A thread as a policy sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadView<'a> {
    /// What is known about it.
    pub info: &'a ThreadInfo,
    /// Its time on a CPU since its birth, as last read; `None` if it was never read.
    pub run: Option<Span>,
    /// Its time ready without a CPU since its birth, as last read.
    pub wait: Option<Span>,
    /// What it did since the reading before; `None` when it was not read now, or not before.
    pub rates: Option<Rates>,
    /// What was counted of it since counts were last read; `None` when they were not read now, or not before, or did not run.
    pub counted: Option<Counts>,
    /// Where it ran when that was last looked at.
    pub cpu: Option<OsCpu>,
    /// On which nodes its memory lies, when that was last told.
    pub pages: Option<&'a BTreeMap<OsNode, u64>>,
}

impl ThreadView<'_> {
    /// Its number.
    pub fn id(&self) -> ThreadId {
        self.info.id
    }

    /// Whether it is ours to move.
    pub fn movable(&self) -> bool {
        self.info.left.is_none()
    }

    /// Its speed, if it has one now.
    pub fn speed(&self, metric: Metric) -> Option<f64> {
        self.rates.as_ref()?.speed(metric)
    }
}

/// A CPU as a policy sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuView {
    /// Which.
    pub cpu: OsCpu,
    /// The time between its last two readings, which may lie several samples apart; `None` when there is no earlier one.
    pub span: Option<Span>,
    /// Share of the time it ran anything; `None` when there is no earlier reading.
    pub busy: Option<f64>,
    /// Share of the time the hypervisor took.
    pub steal: Option<f64>,
}

/// What a policy sees.
#[derive(Clone, PartialEq, Debug)]
pub struct Observation<'a> {
    /// When.
    pub at: Moment,
    /// Since the sample before; `None` for the first one.
    pub span: Option<Span>,
    /// All living threads, ascending by id, those that were not read now included.
    pub threads: Vec<ThreadView<'a>>,
    /// The CPUs that were read now, ascending.
    pub cpus: Vec<CpuView>,
    /// The CPUs that may be used now.
    pub usable: &'a CpuSet,
    /// Threads that ended since the last observation.
    pub gone: &'a [ThreadId],
    /// The share of the time that a quota kept the program off its CPUs, summed over them.
    pub throttled: Option<f64>,
    /// The CPU time that the round before cost, if that is known.
    pub cost: Option<Span>,
    /// What became of earlier decisions, in order.
    pub outcomes: &'a [Outcome],
    /// What else the host noticed.
    pub notices: &'a [Notice],
}

impl Observation<'_> {
    /// A thread by its number.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadView<'_>> {
        let at = self.threads.binary_search_by_key(&id, ThreadView::id).ok()?;
        self.threads.get(at)
    }
}

/// What is kept of a thread between samples.
#[derive(Clone, Debug)]
struct Known {
    info: ThreadInfo,
    last: Option<(Moment, ThreadSample)>,
    rates: Option<Rates>,
    counts: Option<Counts>,
    counted: Option<Counts>,
    cpu: Option<OsCpu>,
    pages: Option<BTreeMap<OsNode, u64>>,
    /// Waiting that was believed before it was counted.
    ahead: Span,
}

impl Known {
    /// One that was not read yet.
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

/// Keeps the reading before the present one.
#[derive(Clone, Debug)]
pub struct Observer {
    threads: BTreeMap<ThreadId, Known>,
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
    /// One that has seen nothing yet. `usable` are the CPUs that may be used until a notice says otherwise.
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

    /// Takes a sample in. `outcomes` are those of the decisions applied since the last one.
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
                    let known = Known::new(info.clone());
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

    /// What a policy sees after the last sample; at moment zero before any.
    pub fn observation(&self) -> Observation<'_> {
        let view = |known: &'_ Known| -> (Option<Span>, Option<Span>) {
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

    /// The programs seen so far.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramInfo> {
        self.programs.values()
    }
}

/// The rates between two readings; none unless time passed and no counter went backwards. `ahead` is the waiting that was
/// believed before it was counted.
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
