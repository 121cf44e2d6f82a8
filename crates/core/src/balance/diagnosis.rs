//! Diagnosis of the cause that holds a program back, from some tenths of a second of samples.
//!
//! Unit: shares of the time, and seconds of work.
//!
//! Problem: a modern kernel rotates threads by itself, sleeping threads must not be bound, moves
//! cannot help against quotas and fine barriers, and they help bound threads a lot. A treatment
//! that is right in one case costs up to 40 % in another.
//!
//! Idea: measure first, then diagnose in this order; the first row that holds decides:
//!
//! | seen | finding | treatment |
//! |---|---|---|
//! | no thread computes | nothing waits | none |
//! | no thread may be moved by this balancer | hands off | none |
//! | a quota throttles | quota | none |
//! | some CPUs hold more bound threads than others, masks are respected | respected | none |
//! | the same, and threads may leave their masks | bound | widen masks (see below) |
//! | several threads compute on one CPU, the only one of their masks | one CPU, respected | none |
//! | waiting is not counted | no wait times | none |
//! | threads sleep again and again | sleepers | none |
//! | no thread waits, cores have the same speed | nothing waits | none |
//! | threads give up their CPU thousands of times a second | too fine | none |
//! | each computing thread is the only one of its process | lone | none (see below) |
//! | threads wait although there are enough CPUs | hog | one core each, in turns |
//! | the last thread is not far behind the mean | kernel rotates | none |
//! | the last thread is far behind, cores differ | asymmetric | in turns |
//! | the last thread is far behind | uneven | in turns |
//!
//! Widened masks hold all CPUs of the program; if that is a single one, all CPUs that may be used.
//! Bound threads that sleep, are lone, or have no wait times only get their masks widened; other
//! bound threads also take turns.
//!
//! Properties: the diagnosis is a function of the samples. The share of running time that is
//! spinning cannot be seen from outside: a program that spins in barriers finer than the bound is
//! not distinguished from one that computes, and taking turns neither helps it nor costs it more
//! than the moves.
//!
//! Source: runs of spinning, yielding and sleeping programs on kernels 6.1, 6.12 and 6.18 under
//! each of the other policies. The bound is that of Hofmeyr, Iancu and Blagojević's analysis.

use super::barrier_sleep::{SLEEP_RATE_MIN, SLEEP_SHARE_MIN};
use super::cpu_table::CpuIndex;
use super::lone;
use super::thread_state::LIGHT_MAX;
use super::thread_table::ThreadTable;
use super::{Finding, Settings};
use crate::ids::ThreadId;
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Smallest total waiting, in CPUs, that shows another program when there are enough CPUs. A pinned
/// hog costs the threads half a CPU, a roaming hog nearly a whole CPU, a hog that runs half of the
/// time a quarter.
const OTHERS_MIN: f64 = 0.2;

/// Smallest share of its wanted time that each thread must wait, or one thread [`OTHERS_MIN`]. On
/// many CPUs, timer ticks alone add up to [`OTHERS_MIN`].
const WAIT_MIN: f64 = 0.005;

/// Kinds of cores count as equal if their speeds differ by less than this share.
const DIFFERENCE_MIN: f64 = 0.02;

/// A quota that throttles more than this share of the time is the diagnosis.
const QUOTA_MIN: f64 = 0.02;

/// Involuntary switches per thread and second above which threads yield to each other. Preemption
/// alone makes at most one per tick (250 a second on most kernels, 1,000 on some); yielding waiters
/// of fine barriers make tens of thousands.
const YIELDS_MIN: f64 = 2_000.0;

/// Lag behind the mean, as a share of the mean progress, below which a thread does not matter.
const LAG_SHARE_MIN: f64 = 0.01;

/// Bound threads are uneven if some CPUs hold at least this many times the threads that they would
/// hold without masks.
const UNEVEN_MIN: f64 = 1.02;

/// Measurements of one thread in a window.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadWindow {
    id: ThreadId,
    span: f64,
    run: f64,
    wait: Option<f64>,
    /// Number of involuntary switches and of sleeps, and the seconds in which they were counted.
    switches: (f64, f64),
    sleeps: f64,
    before: f64,
}

/// Window of measurements of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramWindow {
    began: Option<Moment>,
    thread_windows: Vec<ThreadWindow>,
    throttled: Option<f64>,
    samples: u32,
}

/// Summary of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramSummary {
    /// The computing threads, as indices into the thread table.
    pub(super) threads: Vec<usize>,
    /// The computing threads that are lone and stay free ([`lone::stay_free`]), ascending.
    pub(super) lone: Vec<usize>,
    /// Number of CPUs that they may use together.
    pub(super) cpus: u32,
    /// Number of them that this balancer may not move now.
    pub(super) kept: u32,
    /// Share of their wanted time in which they waited; `None` if not counted.
    pub(super) waited: Option<f64>,
    /// The same share of the thread that waited most.
    pub(super) worst: f64,
    /// Mean share of the time in which they wanted no CPU.
    pub(super) idle: f64,
    /// Mean pace: work per second.
    pub(super) pace: f64,
    /// Pace of the thread that is furthest behind.
    pub(super) last_pace: f64,
    /// Lag of the last thread behind the mean, in seconds of work.
    pub(super) lag: f64,
    /// Mean work of the threads, in seconds.
    pub(super) work: f64,
    /// Mean involuntary switches per second.
    pub(super) switches: Option<f64>,
    /// Mean number of sleeps per second; `None` if not read.
    pub(super) sleeps: Option<f64>,
    /// Share of the time in which a quota kept the program off its CPUs.
    pub(super) throttled: f64,
    /// Speed of the slowest core that they may use, as a share of the fastest.
    pub(super) slowest: f64,
}

/// Threads, as indices into the thread table, and the CPUs that each may use from now on.
pub(super) type Widened = Vec<(usize, CpuSet)>;

impl ProgramSummary {
    /// Returns whether the waiting exceeds that caused by ticks and daemons.
    pub(super) fn others(&self) -> bool {
        let waited = self.waited.unwrap_or(0.0);
        let together = waited * self.threads.len() as f64 >= OTHERS_MIN;
        together && (waited >= WAIT_MIN || self.worst >= OTHERS_MIN)
    }

    /// Returns whether no thread seems to sleep and none was seen to go to sleep.
    pub(super) fn sleepless(&self) -> bool {
        self.idle < SLEEP_SHARE_MIN && self.sleeps.is_none_or(|sleeps| sleeps <= 0.0)
    }
}

/// Treatment of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// None.
    Still,
    /// Widen the masks that crowd their threads, each to its own set; the kernel spreads the
    /// threads.
    Spread(Widened),
    /// One core for each thread, in turns. The listed threads may leave their own masks.
    Turns {
        /// The reason is that other programs take part of the cores.
        fence: bool,
        /// Threads that may leave their own masks, and the CPUs that they may use.
        widened: Widened,
    },
}

impl ProgramWindow {
    /// Starts a new window now.
    pub(super) fn restart(&mut self, at: Moment) {
        *self = Self { began: Some(at), ..Self::default() };
    }

    /// Returns the length of the window.
    pub(super) fn span(&self, at: Moment) -> Span {
        self.began.map_or(Span::ZERO, |began| at.since(began))
    }

    /// Returns the number of samples in the window.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// Adds the last sample. `members` are the program's threads, ascending.
    pub(super) fn add(&mut self, table: &ThreadTable, members: &[usize], throttled: Option<f64>) {
        self.samples += 1;
        if let Some(share) = throttled {
            let before = self.throttled.unwrap_or(0.0);
            self.throttled = Some(before + (share - before) / f64::from(self.samples));
        }
        let mut before = std::mem::take(&mut self.thread_windows).into_iter().peekable();
        for &i in members {
            let thread = &table.threads[i];
            while before.next_if(|thread_window| thread_window.id < thread.id).is_some() {}
            let known = before.next_if(|thread_window| thread_window.id == thread.id);
            let Some(rates) = &thread.rates else {
                self.thread_windows.extend(known);
                continue;
            };
            let seconds = rates.span.seconds();
            let thread_window = known.unwrap_or_else(|| {
                let zero = |there: bool| there.then_some(0.0);
                let did = thread.last_work;
                ThreadWindow {
                    id: thread.id,
                    before: thread.work - did,
                    wait: zero(rates.wait.is_some()),
                    ..ThreadWindow::default()
                }
            });
            let switches = rates.slices.zip(rates.sleeps).map(|(slices, sleeps)| (slices - sleeps).max(0.0));
            let counted = switches.map_or(thread_window.switches, |a_second| {
                (thread_window.switches.0 + a_second * seconds, thread_window.switches.1 + seconds)
            });
            self.thread_windows.push(ThreadWindow {
                span: thread_window.span + seconds,
                run: thread_window.run + rates.run * seconds,
                wait: thread_window.wait.zip(rates.wait).map(|(wait, share)| wait + share * seconds),
                switches: counted,
                sleeps: thread_window.sleeps + switches.and(rates.sleeps).unwrap_or(0.0) * seconds,
                ..thread_window
            });
        }
    }

    /// Summarizes the window; `None` if no thread computes.
    pub(super) fn sum_up(&self, table: &ThreadTable) -> Option<ProgramSummary> {
        let mut summary =
            ProgramSummary { throttled: self.throttled.unwrap_or(0.0), ..ProgramSummary::default() };
        let (mut wanted, mut waited, mut counted) = (0.0, 0.0, true);
        let (mut switches, mut sleeps, mut known) = (0.0, 0.0, true);
        let (mut last_before, mut last_now, mut longest) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
        let (mut union, mut rooms) = (CpuSet::new(), BTreeSet::new());
        for thread_window in &self.thread_windows {
            let Ok(i) = table.threads.binary_search_by_key(&thread_window.id, |thread| thread.id) else {
                continue;
            };
            let thread = &table.threads[i];
            let wants = thread_window.run + thread_window.wait.unwrap_or(0.0);
            if thread_window.span <= 0.0 || wants / thread_window.span < LIGHT_MAX || !thread.active() {
                continue;
            }
            summary.threads.push(i);
            summary.kept += u32::from(thread.kept());
            wanted += wants;
            match thread_window.wait {
                Some(wait) => {
                    waited += wait;
                    summary.worst = summary.worst.max(wait / wants);
                }
                None => counted = false,
            }
            summary.idle += (1.0 - wants / thread_window.span).max(0.0);
            match thread_window.switches {
                (count, span) if span > 0.0 => {
                    switches += count / span;
                    sleeps += thread_window.sleeps / span;
                }
                _ => known = false,
            }
            summary.pace += (thread.work - thread_window.before) / thread_window.span;
            summary.work += thread.work;
            last_before = last_before.min(thread_window.before);
            last_now = last_now.min(thread.work);
            longest = longest.max(thread_window.span);
            // Thousands of threads share a few sets of CPUs.
            if rooms.insert(table.room_number(i)) {
                union = union.union(table.room(i));
            }
        }
        let count = summary.threads.len();
        if count == 0 {
            return None;
        }
        let mean = |sum: f64| sum / count as f64;
        summary.lone = lone::stay_free(&table.threads, &summary.threads);
        summary.cpus = u32::try_from(union.len()).unwrap_or(u32::MAX);
        summary.waited = (counted && wanted > 0.0).then(|| waited / wanted);
        (summary.idle, summary.pace, summary.work) =
            (mean(summary.idle), mean(summary.pace), mean(summary.work));
        summary.switches = known.then(|| mean(switches));
        summary.sleeps = known.then(|| mean(sleeps));
        summary.last_pace = (last_now - last_before) / longest;
        summary.lag = summary.work - last_now;
        let weights = || {
            let cpus = union.iter().filter_map(|os| table.cpu_table.find(os));
            cpus.map(|cpu: CpuIndex| table.cpu_table.entry(cpu).weight)
        };
        summary.slowest = weights().fold(1.0, f64::min) / weights().fold(f64::MIN_POSITIVE, f64::max);
        Some(summary)
    }
}

/// Diagnoses a program and chooses its treatment. `period` is the time between two exchanges if
/// there were any.
pub(super) fn diagnose(
    summary: &ProgramSummary,
    table: &ThreadTable,
    sleeps: bool,
    period: Span,
    settings: &Settings,
    why: impl Fn(usize) -> String,
) -> (Vec<Finding>, Treatment) {
    let threads = u32::try_from(summary.threads.len()).unwrap_or(u32::MAX);
    // A wait for a CPU that the kernel has not counted yet looks like idle time. Threads that
    // rarely go to sleep are therefore not taken for sleeping, however much time is not accounted
    // for.
    let sleeps = sleeps
        || summary.idle > SLEEP_SHARE_MIN && summary.sleeps.is_none_or(|often| often >= SLEEP_RATE_MIN);
    let still = |finding: Finding| (vec![finding], Treatment::Still);
    if summary.kept == threads {
        return still(Finding::HandsOff { threads, why: why(summary.threads[0]) });
    }
    if summary.throttled > QUOTA_MIN {
        return still(Finding::Quota { throttled: summary.throttled });
    }
    let lone = summary.lone.len() == summary.threads.len();
    let sleepers = || Finding::Sleepers { idle: summary.idle };
    if let Some(CrowdedThreads { threads: bound, cpus, widened }) = crowded(summary, table, settings) {
        if !settings.free {
            return still(Finding::Respected { threads: bound, cpus });
        }
        let mut findings = vec![Finding::Bound { threads: bound, cpus }];
        if sleeps || summary.waited.is_none() {
            findings.push(if summary.waited.is_none() { Finding::NoWaitTimes } else { sleepers() });
            return (findings, Treatment::Spread(widened));
        }
        if lone {
            findings.push(Finding::Lone { processes: threads });
            return (findings, Treatment::Spread(widened));
        }
        return (findings, Treatment::Turns { fence: false, widened });
    }
    if summary.cpus == 1 && threads > 1 {
        let more = !settings.free && table.cpu_table.usable().len() > 1;
        return still(if more {
            Finding::Respected { threads, cpus: 1 }
        } else {
            Finding::OneCpu { threads }
        });
    }
    let Some(waited) = summary.waited else { return still(Finding::NoWaitTimes) };
    if sleeps {
        return still(sleepers());
    }
    let alike = summary.slowest > 1.0 - DIFFERENCE_MIN;
    if !summary.others() && alike {
        return still(Finding::NothingWaits);
    }
    if lone {
        return still(Finding::Lone { processes: threads });
    }
    let turns = |finding| (vec![finding], Treatment::Turns { fence: false, widened: Vec::new() });
    if summary.switches.is_some_and(|switches| switches > YIELDS_MIN) {
        return still(Finding::TooFine { bound: bound(threads, summary.cpus, period) });
    }
    if threads <= summary.cpus && summary.others() {
        let finding = Finding::Hog { cpus: waiting(summary, table), share: waited };
        return (vec![finding], Treatment::Turns { fence: true, widened: Vec::new() });
    }
    // Turns would leave a lag of about half a period.
    let limit = (period.seconds() / 2.0).max(LAG_SHARE_MIN * summary.work);
    if summary.lag <= limit {
        return still(Finding::KernelRotates {
            spread: if summary.work > 0.0 { summary.lag / summary.work } else { 0.0 },
        });
    }
    if !alike {
        return turns(Finding::Asymmetric { slowest: summary.slowest });
    }
    turns(Finding::Uneven { threads, cpus: summary.cpus })
}

/// Returns the shortest time between barriers at which exchanges every `period` can help: 2 ⌈SQ/FQ⌉
/// B / (T + 1).
pub(super) fn bound(threads: u32, cpus: u32, period: Span) -> Span {
    let cpus = cpus.max(1);
    let slow = threads % cpus;
    let steps = 2 * slow.div_ceil(cpus - slow);
    period.times(f64::from(steps) / f64::from(threads / cpus + 1))
}

/// Returns the CPUs on which the threads waited, as far as known.
fn waiting(summary: &ProgramSummary, table: &ThreadTable) -> CpuSet {
    let waits = |&&i: &&usize| {
        let rates = table.threads[i].rates.as_ref();
        rates.and_then(|rates| rates.wait).is_some_and(|wait| wait > DIFFERENCE_MIN)
    };
    let cpus = summary.threads.iter().filter(waits).filter_map(|&i| table.threads[i].cpu);
    cpus.map(|cpu| table.cpu_table.entry(cpu).os).collect()
}

/// Threads that are crowded by their own masks.
struct CrowdedThreads {
    /// Number of threads.
    threads: u32,
    /// Number of CPUs to which they are bound, together.
    cpus: u32,
    /// Threads and the CPUs that each may use from now on.
    widened: Widened,
}

/// Returns the threads that their own masks crowd, if some CPUs hold more threads than others. They
/// may move to all CPUs in the masks of the program's threads, or to all usable CPUs if all these
/// masks (of its computing threads) are the same single CPU and threads may leave them; within
/// their memory node unless threads may leave it.
fn crowded(summary: &ProgramSummary, table: &ThreadTable, settings: &Settings) -> Option<CrowdedThreads> {
    let across_nodes = settings.across_nodes;
    let node_of = |cpus: &CpuSet| -> Option<usize> {
        if across_nodes {
            return None;
        }
        let mut nodes =
            cpus.iter().filter_map(|os| table.cpu_table.find(os)).map(|cpu| table.cpu_table.entry(cpu).node);
        let first = nodes.next()?;
        nodes.all(|node| node == first).then(|| first.index())
    };
    // Grouped by mask first: thousands of threads share a few masks.
    let mut homes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &i in &summary.threads {
        homes.entry(table.room_number(i)).or_default().push(i);
    }
    let mut scopes: BTreeMap<Option<usize>, Vec<(&CpuSet, Vec<usize>)>> = BTreeMap::new();
    for (_, members) in homes {
        let room = table.room(members[0]);
        if !room.is_empty() {
            scopes.entry(node_of(room)).or_default().push((room, members));
        }
    }
    let (mut threads, mut cpus, mut widened) = (0, 0, Vec::new());
    let of_node = |node: Option<usize>| -> CpuSet {
        let cpu_table = &table.cpu_table;
        let cpus = cpu_table.open().map(|cpu| cpu_table.entry(cpu));
        match node {
            Some(node) => cpus.filter(|cpu| cpu.node.index() == node).map(|cpu| cpu.os).collect(),
            None if across_nodes => cpus.map(|cpu| cpu.os).collect(),
            // Masks of several nodes: it is not known on which of them a thread has its memory.
            None => CpuSet::new(),
        }
    };
    for (node, groups) in scopes {
        let masks = groups.iter().fold(CpuSet::new(), |union, (room, _)| union.union(room));
        let count: usize = groups.iter().map(|(_, members)| members.len()).sum();
        // Their own masks, not the rest of larger ones.
        let single = |(_, members): &(&CpuSet, Vec<usize>)| {
            members.iter().all(|&i| table.is_single(table.threads[i].home))
        };
        let beyond = settings.free && masks.len() == 1 && groups.iter().all(single);
        let union = if beyond { masks.union(&of_node(node)) } else { masks };
        let even = (count as f64 / union.len() as f64).max(1.0);
        // Threads that must run within a set of CPUs: those with this mask and those bound to a
        // part of it.
        let crowd = |room: &CpuSet| -> usize {
            groups.iter().filter(|(other, _)| other.is_subset(room)).map(|(_, members)| members.len()).sum()
        };
        let narrow: Vec<_> = groups.iter().filter(|(room, _)| room.len() < union.len()).collect();
        // With many different masks, often one per thread, only equal masks are counted.
        let few = narrow.len() <= 64;
        let density =
            |room: &CpuSet, own: usize| (if few { crowd(room) } else { own }) as f64 / room.len() as f64;
        if !narrow.iter().any(|(room, members)| density(room, members.len()) > even * UNEVEN_MIN) {
            continue;
        }
        for (room, members) in narrow {
            cpus += u32::try_from(room.len()).unwrap_or(u32::MAX);
            let ours = members.iter().filter(|&&i| !table.threads[i].kept());
            for &i in ours {
                threads += 1;
                widened.push((i, union.clone()));
            }
        }
    }
    widened.sort_by_key(|(i, _)| *i);
    (!widened.is_empty()).then_some(CrowdedThreads { threads, cpus, widened })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_analytical_model() {
        let ms = |threads, cpus| bound(threads, cpus, Span::from_ms(100)).0 / 1_000_000;
        // 3, 5 and 7 threads on 2 CPUs; 17, 33 and 31 on 16.
        assert_eq!([ms(3, 2), ms(5, 2), ms(7, 2)], [100, 66, 50]);
        assert_eq!([ms(17, 16), ms(33, 16), ms(31, 16)], [100, 66, 1_500]);
        assert_eq!(ms(4, 2), 0);
        assert_eq!(ms(0, 0), 0);
    }
}
