//! Simulated programs: threads that compute in phases and wait for each other.
//!
//! Unit: work is nanoseconds on an idle reference core (see [`model`](crate::model)). A program is
//! data; the world runs it.

pub mod jobs;
pub mod mixes;
pub mod nas;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Program, of the same kind as those that `trimtab run` starts.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramSpec {
    /// Name.
    pub name: String,
    /// Start time.
    pub start: Moment,
    /// Number of threads; with nested teams, of the outer ones.
    pub threads: u32,
    /// Work of each thread.
    pub body: Body,
    /// Memory use.
    pub footprint: Footprint,
    /// How the threads wait for each other.
    pub wait: WaitMode,
    /// CPUs on which the program may run; `None` for the whole machine.
    pub mask: Option<CpuSet>,
    /// Whether and how the program's runtime binds the threads.
    pub bind: Bind,
    /// Whether policies may balance the program; false for a hog.
    pub balanced: bool,
    /// Weight of the threads, 1024 for nice 0.
    pub weight: u32,
    /// Session (autogroup) or VM of the program, used by schedulers that share by group.
    pub group: u32,
}

/// Work of a program's threads.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// SPMD: every thread does `work` in all, with a barrier each `interval` of work (and one at
    /// the end).
    Spmd {
        /// Work per thread, in all.
        work: Span,
        /// Work between two barriers; `None` for only the last barrier.
        interval: Option<Span>,
        /// Difference between the threads' work: thread i has `1 + imbalance * (2 i / (n - 1) - 1)`
        /// of it.
        imbalance: f64,
        /// Random difference between the intervals of each thread: relative standard deviation.
        jitter: f64,
    },
    /// Nested teams: each of the program's threads opens `regions` teams of `inner` threads one
    /// after the other.
    Nested {
        /// Threads of an inner team, including its master.
        inner: u32,
        /// Number of inner regions that each outer thread opens.
        regions: u32,
        /// Work of each inner thread in a region.
        work: Span,
    },
    /// One team after the other: the process asks for `threads` threads in each region.
    Teams {
        /// Number of regions.
        regions: u32,
        /// Work of a region, all threads together.
        work: Span,
        /// Time between two regions in which all threads sleep; `None`: none.
        pause: Option<Span>,
        /// Number of the hold with the process's budget; `None`: each team has all threads.
        hold: Option<u32>,
    },
    /// Computes until all other programs are over, and waits for no thread.
    Hog {
        /// Time that the thread works and time that it sleeps, repeated; `None`: works always.
        duty: Option<(Span, Span)>,
    },
    /// Short processes, `at_once` of them at a time, each working about `work` (exponentially
    /// distributed): `make -j`.
    Churn {
        /// Number of processes at a time.
        at_once: u32,
        /// Mean work of a process.
        work: Span,
        /// Number of processes in all; `None`: until all other programs are over.
        jobs: Option<u32>,
    },
}

/// Memory use of threads. It does not matter for a program that stays in its private caches.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Size of the data that a thread uses repeatedly, bytes.
    pub working_set: u64,
    /// Misses of the private caches per microsecond of work.
    pub misses: f64,
    /// Number of misses that a core has outstanding at once (1 for pointer chasing).
    pub parallelism: f64,
    /// How hits grow with the share of the working set that is cached: hits = share ^ locality. 1
    /// for random accesses, more for sweeps, less if few lines are hot.
    pub locality: f64,
    /// Size of the data that all threads of the program share and write, bytes.
    pub shared: u64,
    /// Writes to the shared data per microsecond of work and thread.
    pub shared_writes: f64,
    /// Location of the pages.
    pub pages: PagePlacement,
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
            pages: PagePlacement::FirstTouch,
        }
    }
}

/// Location of a program's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagePlacement {
    /// The pages of each thread are on the node where the thread first ran.
    FirstTouch,
    /// All pages are on the node where the first thread first ran.
    Master,
    /// The pages alternate over all nodes.
    Interleave,
    /// All pages are on one node, given by its place in the model.
    Node(u32),
}

/// How a thread waits at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitMode {
    /// Polls, and keeps the CPU.
    Spin,
    /// Polls and yields; the kernel model decides the effect of a yield.
    Yield,
    /// Sleeps at once.
    Sleep,
    /// Polls this long (CPU time), then sleeps.
    SpinThenSleep(Span),
}

/// Binding of threads by the program's runtime.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// No binding.
    #[default]
    Free,
    /// One CPU per thread, round robin over the allowed CPUs, compact.
    Close,
    /// One CPU per thread, as far apart as possible.
    Spread,
    /// These CPU sets, thread by thread, repeated. Shared, because programs are copied and the list
    /// may be long.
    List(Arc<[CpuSet]>),
    /// No binding. Each thread begins on one of the least loaded CPUs of its set, which is drawn:
    /// the state in which an earlier load left the machine. Sets are given out as in
    /// [`Self::List`].
    BeginOn(Arc<[CpuSet]>),
}

impl ProgramSpec {
    /// Returns an SPMD program with one barrier at the end; quiet, free to move, and balanced by
    /// policies.
    pub fn spmd(name: &str, threads: u32, work: Span, wait: WaitMode) -> Self {
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

    /// Sets the work between two barriers.
    #[must_use]
    pub fn every(mut self, span: Span) -> Self {
        if let Body::Spmd { interval, .. } = &mut self.body {
            *interval = Some(span);
        }
        self
    }

    /// Returns a program of threads that compute without end and that no policy balances.
    pub fn hog(name: &str, threads: u32) -> Self {
        Self {
            body: Body::Hog { duty: None },
            balanced: false,
            group: 1,
            ..Self::spmd(name, threads, Span::ZERO, WaitMode::Sleep)
        }
    }

    /// Restricts the program to these CPUs.
    #[must_use]
    pub fn on(mut self, cpus: CpuSet) -> Self {
        self.mask = Some(cpus);
        self
    }

    /// Binds the program's threads.
    #[must_use]
    pub fn bound(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }
}
