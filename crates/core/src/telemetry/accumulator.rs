//! Accumulator of samples: what each thread and each CPU used from the first sample to the last.
//!
//! Unit: nanoseconds of CPU time, and counts. Problem: after a run people ask where its threads were,
//! what they waited for and what the hardware counted, and answers are wanted of runs that nothing
//! balanced too. Idea: add up the samples that the loop takes anyway, one record a thread, and let
//! views read the records ([`run_summary`](super::run_summary),
//! [`counter_totals`](super::counter_totals)).
//!
//! Terms. The *base* of a thread is its counters when counting began: at the first sample for threads
//! that lived then, at its birth for others.
//!
//! What samples cannot see: a thread that lived and died between two of them, and the last moments of
//! one that ended before the last.
//!
//! Properties: times never exceed what was read; the times over CPUs sum to the thread's time; living
//! threads all have a record, and of ended ones a bounded number, those that ran longest: the others
//! are summed up ([`Folded`]).

use crate::counts::Counts;
use crate::ids::{OsCpu, ThreadId};
use crate::observe::{Sample, ThreadSample};
use crate::time::{Moment, Span};
use serde::Serialize;
use std::collections::BTreeMap;

/// Ended threads that keep a record each, at least. A program may start millions, and the accumulator
/// lives as long as it does. Chosen: nobody reads a longer list.
const ENDED_RECORDS_MAX: usize = 8_192;

/// What was added up of one thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadTotals {
    /// Whether it has ended.
    pub(super) ended: bool,
    /// Its process.
    pub(super) pid: u32,
    /// Its number.
    pub(super) tid: u32,
    /// Its name, as read last.
    pub(super) name: String,
    /// Its counters when counting began.
    pub(super) base: ThreadSample,
    /// Its counters as read last, with the last CPU that is known.
    pub(super) last: ThreadSample,
    /// Its CPU time at the first sample that read it.
    pub(super) first_run: Span,
    /// Its time on each CPU.
    pub(super) run_on: BTreeMap<OsCpu, Span>,
    /// Samples that found it on another CPU than the one before.
    pub(super) cpu_changes: u64,
    /// The first sample that read it and the last, counted from 1.
    pub(super) samples: (u64, u64),
    /// The hardware counters at the first and at the last reading since they were opened.
    pub(super) counts: Option<(Counts, Counts)>,
    /// Misses of the last-level cache and instructions since the counters were opened, as last read
    /// together.
    pub(super) misses: Option<(u64, u64)>,
}

impl ThreadTotals {
    fn new(pid: u32, tid: u32, read: &ThreadSample, base: ThreadSample, sample: u64) -> Self {
        Self {
            ended: false,
            pid,
            tid,
            name: String::new(),
            last: base.clone(),
            base,
            first_run: read.run,
            run_on: BTreeMap::new(),
            cpu_changes: 0,
            samples: (sample, sample),
            counts: None,
            misses: None,
        }
    }

    /// Its time on CPUs since counting began.
    pub(super) fn run(&self) -> Span {
        self.last.run.less(self.base.run)
    }

    /// Adds a reading; answers where it ran since the one before and how long.
    fn add(&mut self, read: &ThreadSample) -> Option<(OsCpu, Span)> {
        let ran = read.run.less(self.last.run);
        let cpu = read.cpu.or(self.last.cpu);
        if let Some(cpu) = cpu {
            super::add_time(&mut self.run_on, cpu, ran);
        }
        self.cpu_changes += u64::from(self.last.cpu.is_some() && cpu != self.last.cpu);
        self.last = ThreadSample { cpu, ..read.clone() };
        if let Some(counts) = read.counts {
            // Counters that were opened anew begin at nothing: so does the difference.
            let same = self.counts.filter(|(_, last)| last.running <= counts.running);
            self.counts = Some((same.map_or(counts, |(first, _)| first), counts));
            self.misses = counts.llc_misses.zip(counts.instructions).or(self.misses);
        }
        cpu.map(|cpu| (cpu, ran))
    }
}

/// What was added up of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTotals {
    /// The time it ran the program's threads.
    pub(super) ours: Span,
    /// The time it ran anything.
    pub(super) busy: Span,
    /// Its busy counter at the sample before; `None`: it was not read.
    pub(super) last: Option<Span>,
}

/// Ended threads that have no record of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Folded {
    /// How many.
    pub threads: u64,
    /// Nanoseconds on CPUs, all together, as far as samples saw.
    pub run: Span,
    /// Misses of the last-level cache and instructions, all together.
    #[serde(skip)]
    pub(super) misses: (u64, u64),
}

/// Adds samples up.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    pub(super) threads: BTreeMap<ThreadId, ThreadTotals>,
    pub(super) cpus: BTreeMap<OsCpu, CpuTotals>,
    pub(super) folded: Folded,
    /// How many samples were added.
    pub(super) samples: u64,
    /// Process, number and name of the living threads.
    names: BTreeMap<ThreadId, (u32, u32, String)>,
    began: Option<Moment>,
    ended: Moment,
    /// How many of the records are of ended threads.
    dead: usize,
}

impl Accumulator {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        let first = self.began.is_none();
        self.began.get_or_insert(sample.at);
        self.ended = sample.at;
        self.samples += 1;
        for info in &sample.news {
            self.names.insert(info.id, (info.pid, info.tid, info.name.clone()));
        }
        for read in &sample.threads {
            let Some((pid, tid, name)) = self.names.get(&read.id) else { continue };
            let base = || if first { read.clone() } else { at_birth(read) };
            let totals = self
                .threads
                .entry(read.id)
                .or_insert_with(|| ThreadTotals::new(*pid, *tid, read, base(), self.samples));
            totals.samples.1 = self.samples;
            totals.name.clone_from(name);
            if let Some((cpu, ran)) = totals.add(read) {
                let here = self.cpus.entry(cpu).or_default();
                here.ours = here.ours + ran;
            }
        }
        for id in &sample.gone {
            self.names.remove(id);
            if let Some(totals) = self.threads.get_mut(id) {
                self.dead += usize::from(!std::mem::replace(&mut totals.ended, true));
            }
        }
        // Not at each end: so it costs little for each.
        if self.dead > 2 * ENDED_RECORDS_MAX {
            self.fold();
        }
        for read in &sample.cpus {
            let here = self.cpus.entry(read.cpu).or_default();
            if let Some(last) = here.last {
                here.busy = here.busy + read.busy.less(last);
            }
            here.last = Some(read.busy);
        }
    }

    /// Sums up the ended threads that ran least.
    fn fold(&mut self) {
        let dead = self.threads.iter().filter(|(_, totals)| totals.ended);
        let mut dead: Vec<(Span, ThreadId)> = dead.map(|(id, totals)| (totals.run(), *id)).collect();
        dead.sort_by_key(|(run, id)| (std::cmp::Reverse(*run), *id));
        for (run, id) in dead.drain(ENDED_RECORDS_MAX.min(dead.len())..) {
            let misses = self.threads.remove(&id).and_then(|totals| totals.misses).unwrap_or_default();
            self.folded.threads += 1;
            self.folded.run = self.folded.run + run;
            self.folded.misses.0 = self.folded.misses.0.saturating_add(misses.0);
            self.folded.misses.1 = self.folded.misses.1.saturating_add(misses.1);
        }
        self.dead = dead.len();
    }

    /// The time from the first sample to the last.
    pub fn span(&self) -> Span {
        self.began.map_or(Span::ZERO, |began| self.ended.since(began))
    }

    /// How many threads with at least this share of the CPU time of the one that had most there were
    /// at the same time, as far as samples saw: threads that lived one after another are no more than
    /// one.
    pub fn at_once(&self, share: f64) -> u64 {
        let longest = self.threads.values().map(ThreadTotals::run).max().unwrap_or_default();
        let works = |totals: &&ThreadTotals| {
            totals.run() > Span::ZERO && totals.run() >= longest.times(share.clamp(0.0, 1.0))
        };
        // By sample: how many come with it, and how many were gone after it.
        let mut edges: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for totals in self.threads.values().filter(works) {
            edges.entry(totals.samples.0).or_default().0 += 1;
            edges.entry(totals.samples.1).or_default().1 += 1;
        }
        let (mut now, mut most) = (0, 0);
        for (come, go) in edges.into_values() {
            now += come;
            most = most.max(now);
            now -= go;
        }
        most
    }
}

/// The counters of a thread at its birth.
fn at_birth(read: &ThreadSample) -> ThreadSample {
    let zero = |count: Option<u64>| count.map(|_| 0);
    ThreadSample {
        id: read.id,
        run: Span::ZERO,
        wait: read.wait.map(|_| Span::ZERO),
        slices: zero(read.slices),
        ready: None,
        voluntary: zero(read.voluntary),
        cpu: None,
        counts: None,
    }
}
