//! Profile of one run of a program: the measured properties that decide the environment in which
//! the program runs best.
//!
//! Unit: nanoseconds, bytes, and shares in [0, 1]. Problem: a few properties of a program decide
//! whether more threads than cores, sharing, busy-waiting or huge pages pay; the most important is
//! how often its threads wait for each other. Users do not have these numbers. Idea: each property
//! is measured once, cheaply, by the component that can see it. All go into one value that the
//! predictor, the tuner and reports read.
//!
//! Properties: a property that was not seen is `None` or is named in [`Profile::unseen`], never 0.
//! A profile records how it was measured.
//!
//! Source: the inter-barrier interval as the best predictor of the cost of oversubscription is from
//! Iancu, Hofmeyr, Blagojević and Zheng, "Oversubscription on Multicore Processors", IPDPS 2010.

use crate::place::runtimes::Runtime;
use crate::setting::Setting;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Measurements of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// File name of the program, as it was started.
    pub program: String,
    /// Setting in which the program ran.
    pub setting: Setting,
    /// Number of CPUs that the program might use.
    pub cpus: u32,
    /// Number of cores that these CPUs belong to.
    pub cores: u32,
    /// Elapsed time of the run.
    pub wall: Span,
    /// CPU time of all threads in user mode.
    pub user: Span,
    /// CPU time of all threads in the kernel.
    pub system: Span,
    /// Largest number of threads or ranks that worked at the same time. A thread works if it took
    /// part in a barrier or collective with others, or had at least a twentieth of the CPU time of
    /// the longest-running thread.
    pub workers: u32,
    /// Runtimes that were seen at work.
    pub runtimes: Vec<Runtime>,
    /// Times between one barrier or collective of all threads and the next.
    pub intervals: Option<Intervals>,
    /// Share of the time in parallel parts that threads waited for each other, over all threads.
    pub waiting: Option<f64>,
    /// Wait policy of the threads, as set for the runtime or as its default.
    pub wait: Option<String>,
    /// Lowest over highest CPU time of a core, over the cores that the program could have kept
    /// busy.
    pub balance: Option<f64>,
    /// Share of the wanted CPU time in which the threads were ready without a CPU.
    pub kept_waiting: Option<f64>,
    /// Misses of the last-level cache per 1,000 instructions.
    pub misses_per_kilo: Option<f64>,
    /// Largest share of the program's memory that lay in huge pages.
    pub huge_share: Option<f64>,
    /// Share of the program's memory, or of its misses, on other nodes than the thread's.
    pub remote_share: Option<f64>,
    /// Largest resident memory, in bytes.
    pub resident: Option<u64>,
    /// Bytes that the program touched while it worked, estimated.
    pub working_set: Option<u64>,
    /// Page faults that needed no device.
    pub faults: Option<u64>,
    /// Context switches: voluntary (the thread slept) and involuntary.
    pub switches: Option<(u64, u64)>,
    /// Calls of `sched_yield`, if they are counted.
    pub yields: Option<u64>,
    /// Share of the program's time that measuring took.
    pub overhead: Option<f64>,
    /// Properties that could not be seen, with reasons.
    pub unseen: Vec<String>,
}

/// Distribution of the times between barriers or collectives.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Intervals {
    /// Number of intervals.
    pub count: u64,
    /// Mean interval.
    pub mean: Span,
    /// Median interval.
    pub median: Span,
    /// 10th percentile: a tenth of the intervals are shorter.
    pub tenth: Span,
    /// 90th percentile: a tenth of the intervals are longer.
    pub ninetieth: Span,
}
