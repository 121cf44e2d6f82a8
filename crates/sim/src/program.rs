//! What runs: programs of threads that compute in phases and wait for each other.
//!
//! Unit: work is nanoseconds on an idle reference core (see [`model`](crate::model)). A program is data; the world runs it.

pub mod jobs;
pub mod mixes;
pub mod nas;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// A program: equal in kind to what `trimtab run` starts.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// What it is called.
    pub name: String,
    /// When it starts.
    pub start: Moment,
    /// How many threads it has; with nested teams, the outer ones.
    pub threads: u32,
    /// What each of them does.
    pub body: Body,
    /// How it uses memory.
    pub footprint: Footprint,
    /// How its threads wait for each other.
    pub wait: Wait,
    /// Where it may run; `None` for the whole machine.
    pub mask: Option<CpuSet>,
    /// Whether its runtime binds the threads.
    pub bind: Bind,
    /// Whether policies may look after it; a hog nobody looks after.
    pub balanced: bool,
    /// The weight of its threads, 1024 for nice 0.
    pub weight: u32,
    /// Its session (autogroup) or VM: schedulers that share by group use it.
    pub group: u32,
}

/// What the threads of a program do.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// SPMD: every thread works `work` in all, with a barrier each `interval` of work (and one at the end).
    Spmd {
        /// In all, per thread.
        work: Span,
        /// Between barriers; `None` for only the last one.
        interval: Option<Span>,
        /// By how much the work of threads differs: thread i has `1 + imbalance * (2 i / (n - 1) - 1)` of it.
        imbalance: f64,
        /// By how much each interval of each thread differs at random: relative standard deviation.
        jitter: f64,
    },
    /// Nested teams: each of the program's threads opens `regions` teams of `inner` threads one after the other.
    Nested {
        /// Threads of an inner team, its master included.
        inner: u32,
        /// How many inner regions each outer thread opens.
        regions: u32,
        /// Work of each inner thread in a region.
        work: Span,
    },
    /// Computes until everything else is over, and waits for nobody.
    Hog {
        /// Works this long and sleeps that long, over and over; `None`: works always.
        duty: Option<(Span, Span)>,
    },
    /// Short processes, `at_once` of them at a time, each working about `work` (exponentially distributed): `make -j`.
    Churn {
        /// How many at a time.
        at_once: u32,
        /// The mean work of one.
        work: Span,
        /// How many in all; `None`: until everything else is over.
        jobs: Option<u32>,
    },
}

/// How threads use memory. Nothing of this matters to a program that stays in its private caches.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// What a thread goes over again and again, bytes.
    pub working_set: u64,
    /// Misses of the private caches per microsecond of work.
    pub misses: f64,
    /// How many of them a core has under way at once (1 for a chase of pointers).
    pub parallelism: f64,
    /// How hits grow with the part of the working set that is cached: hits = part ^ locality. 1 for random accesses, more for
    /// sweeps, less where few lines are hot.
    pub locality: f64,
    /// What all threads of the program share and write, bytes.
    pub shared: u64,
    /// Writes to it per microsecond of work and thread.
    pub shared_writes: f64,
    /// Where the pages lie.
    pub pages: Pages,
}

impl Default for Footprint {
    fn default() -> Self {
        Self {
            working_set: 0,
            misses: 0.0,
            parallelism: 4.0,
            locality: 1.0,
            shared: 0,
            shared_writes: 0.0,
            pages: Pages::FirstTouch,
        }
    }
}

/// Where the pages of a program lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// Each thread's on the node where it first ran.
    FirstTouch,
    /// All on the node where the first thread first ran.
    Master,
    /// Page by page over all nodes.
    Interleave,
    /// On one node, by its place in the model.
    Node(u32),
}

/// How a thread waits at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Polls, and keeps the CPU.
    Spin,
    /// Polls and yields; what that does is the kernel model's business.
    Yield,
    /// Sleeps at once.
    Sleep,
    /// Polls this long (of CPU time), then sleeps.
    SpinThenSleep(Span),
}

/// Whether the program's runtime binds its threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// No.
    #[default]
    Free,
    /// One CPU each, round robin over those it may use, compact.
    Close,
    /// One CPU each, as far apart as possible.
    Spread,
    /// These CPUs, thread by thread, over and over. Shared, since programs are copied and the list may be long.
    List(Arc<[CpuSet]>),
}

impl Program {
    /// SPMD of so many threads, with one barrier at the end; quiet, free to move, looked after.
    pub fn spmd(name: &str, threads: u32, work: Span, wait: Wait) -> Self {
        Self {
            name: name.to_owned(),
            start: Moment(0),
            threads,
            body: Body::Spmd { work, interval: None, imbalance: 0.0, jitter: 0.0 },
            footprint: Footprint::default(),
            wait,
            mask: None,
            bind: Bind::Free,
            balanced: true,
            weight: 1024,
            group: 0,
        }
    }

    /// With a barrier after every so much work.
    #[must_use]
    pub fn every(mut self, span: Span) -> Self {
        if let Body::Spmd { interval, .. } = &mut self.body {
            *interval = Some(span);
        }
        self
    }

    /// Threads that compute for ever, and that nobody looks after.
    pub fn hog(name: &str, threads: u32) -> Self {
        Self {
            body: Body::Hog { duty: None },
            balanced: false,
            group: 1,
            ..Self::spmd(name, threads, Span::ZERO, Wait::Sleep)
        }
    }

    /// On these CPUs only.
    #[must_use]
    pub fn on(mut self, cpus: CpuSet) -> Self {
        self.mask = Some(cpus);
        self
    }

    /// With its threads bound.
    #[must_use]
    pub fn bound(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }
}
