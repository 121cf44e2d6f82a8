//! Accumulator of samples: the use of CPUs by each thread from the first sample to the last.
//!
//! Unit: nanoseconds of CPU time, and counts. Problem: after a run, users need the CPUs on which
//! its threads ran, the causes of their waits and the hardware counts, also for runs without a
//! balancer. Idea: the accumulator keeps [`Totals`] of the samples that the loop takes anyway, in
//! one record per thread and one of the run. Views read the records
//! ([`run_summary`](super::run_summary), [`counter_totals`](super::counter_totals)).
//!
//! Terms. The *base* of a thread is its counters when counting began: at the first sample for
//! threads that lived then, at its birth for others.
//!
//! Samples do not see a thread that lived and died between two samples, nor the last moments of a
//! thread that ended before the last sample.
//!
//! Properties: every reading is accepted. Every living thread has a record. A bounded number of
//! ended threads keep theirs, those that ran longest; the others are summed up ([`Folded`]).

use super::totals::{Change, Reading, Totals, Track};
use crate::counts::Counts;
use crate::ids::{OsCpu, ThreadId};
use crate::observe::{Sample, ThreadSample};
use crate::time::{Moment, Span};
use serde::Serialize;
use std::collections::BTreeMap;

/// Ended threads that keep a record each, at least. A program may start millions of threads, and
/// the accumulator lives as long as the program. Chosen: a longer list would not be read.
const ENDED_RECORDS_MAX: usize = 8_192;

/// Totals of one thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadTotals {
    /// Whether the thread has ended.
    pub(super) ended: bool,
    /// Process of the thread.
    pub(super) pid: u32,
    /// Thread number of the kernel.
    pub(super) tid: u32,
    /// Name, as read last.
    pub(super) name: String,
    /// Times and migrations.
    pub(super) totals: Totals<OsCpu>,
    /// CPU time of the totals at the first sample that read the thread.
    pub(super) first_run: Span,
    /// Times put on a CPU, when counting began and as read last.
    pub(super) slices: (Option<u64>, Option<u64>),
    /// Times gone to sleep, when counting began and as read last.
    pub(super) voluntary: (Option<u64>, Option<u64>),
    /// First and last sample that read the thread, counted from 1.
    pub(super) samples: (u64, u64),
    /// Hardware counters at the first and at the last reading since they were opened.
    pub(super) counts: Option<(Counts, Counts)>,
    /// Misses of the last-level cache and instructions since the counters were opened, as last read
    /// together.
    pub(super) misses: Option<(u64, u64)>,
    track: Track,
    /// Moment of the last reading.
    at: Moment,
}

impl ThreadTotals {
    /// Creates the record of a thread that this sample read first. A thread that lived before
    /// counting began counts from this reading, another one from its birth.
    fn new(pid: u32, tid: u32, read: &ThreadSample, lived: bool, (at, sample): (Moment, u64)) -> Self {
        let zero = |count: Option<u64>| count.map(|_| 0);
        let base = |count: Option<u64>| if lived { count } else { zero(count) };
        let reading = reading(read);
        Self {
            ended: false,
            pid,
            tid,
            name: String::new(),
            totals: Totals::default(),
            first_run: if lived { Span::ZERO } else { read.run },
            slices: (base(read.slices), None),
            voluntary: (base(read.voluntary), None),
            samples: (sample, sample),
            counts: None,
            misses: None,
            track: if lived { Track::from_reading(reading) } else { Track::from_birth() },
            at,
        }
    }

    /// Adds a reading at this moment, and returns the change since the reading before.
    fn add(&mut self, read: &ThreadSample, at: Moment) -> Change {
        let watched = at.since(std::mem::replace(&mut self.at, at));
        let change = self.track.advance(reading(read), Some(watched), |_| None);
        self.totals.add(&change, change.cpu);
        self.slices.1 = read.slices;
        self.voluntary.1 = read.voluntary;
        if let Some(counts) = read.counts {
            // Counters that were opened again begin at zero, so the difference begins at zero too.
            let same = self.counts.filter(|(_, last)| last.running <= counts.running);
            self.counts = Some((same.map_or(counts, |(first, _)| first), counts));
            self.misses = counts.llc_misses.zip(counts.instructions).or(self.misses);
        }
        change
    }
}

fn reading(read: &ThreadSample) -> Reading {
    Reading { run: read.run, wait: read.wait, cpu: read.cpu }
}

/// Totals of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTotals {
    /// Time that the CPU ran anything.
    pub(super) busy: Span,
    /// Busy counter at the sample before; `None` if it was not read.
    pub(super) last: Option<Span>,
}

/// Sums over ended threads that have no record of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Folded {
    /// Number of threads.
    pub threads: u64,
    /// CPU time of all of them in nanoseconds, as far as samples saw it.
    pub run: Span,
    /// Misses of the last-level cache and instructions of all of them.
    #[serde(skip)]
    pub(super) misses: (u64, u64),
}

/// Sums of samples by thread and by CPU.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    pub(super) threads: BTreeMap<ThreadId, ThreadTotals>,
    /// Sums over all threads, ended ones included.
    pub(super) all: Totals<OsCpu>,
    pub(super) cpus: BTreeMap<OsCpu, CpuTotals>,
    pub(super) folded: Folded,
    /// Number of samples added.
    pub(super) samples: u64,
    /// Process, thread number and name of the living threads.
    names: BTreeMap<ThreadId, (u32, u32, String)>,
    began: Option<Moment>,
    ended: Moment,
    /// Number of records that are of ended threads.
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
            let now = (sample.at, self.samples);
            let thread = self
                .threads
                .entry(read.id)
                .or_insert_with(|| ThreadTotals::new(*pid, *tid, read, first, now));
            thread.samples.1 = self.samples;
            thread.name.clone_from(name);
            let change = thread.add(read, sample.at);
            self.all.add(&change, change.cpu);
        }
        for id in &sample.gone {
            self.names.remove(id);
            if let Some(totals) = self.threads.get_mut(id) {
                self.dead += usize::from(!std::mem::replace(&mut totals.ended, true));
            }
        }
        // Folding at every end would cost time for each; a batch costs little per thread.
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
        let mut dead: Vec<(Span, ThreadId)> = dead.map(|(id, totals)| (totals.totals.run, *id)).collect();
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

    /// Returns the time from the first sample to the last.
    pub fn span(&self) -> Span {
        self.began.map_or(Span::ZERO, |began| self.ended.since(began))
    }

    /// Returns the largest number of threads that lived at the same time, among threads with at
    /// least this share of the CPU time of the longest-running one, as far as samples saw. Threads
    /// that lived one after another count as one.
    pub fn at_once(&self, share: f64) -> u64 {
        let longest = self.threads.values().map(|thread| thread.totals.run).max().unwrap_or_default();
        let works = |thread: &&ThreadTotals| {
            let run = thread.totals.run;
            run > Span::ZERO && run >= longest.times(share.clamp(0.0, 1.0))
        };
        // By sample: number of threads first seen in it, and number of threads last seen in it.
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
