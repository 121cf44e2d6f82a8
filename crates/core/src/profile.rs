//! A profile: what was measured of one run of a program, as far as it tells what surroundings the program wants.
//!
//! Unit: nanoseconds, bytes, and shares in [0, 1]. Problem: whether more threads than cores, sharing, spinning or huge pages pay is decided by a
//! few properties of a program (how often its threads wait for each other most of all), which no user knows. Idea: they are measured once,
//! cheaply, by whoever can see each of them, into one value that the predictor, the tuner and reports read.
//!
//! Properties: what was not seen is `None` or is named in [`Profile::unseen`], never 0; a profile says of itself how it was measured.
//!
//! Source: the inter-barrier interval as the best predictor of what oversubscription costs is from Iancu, Hofmeyr, Blagojević and Zheng,
//! "Oversubscription on Multicore Processors", IPDPS 2010.

use crate::place::runtimes::Runtime;
use crate::setting::Setting;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What was measured of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// The program's file name, as it was started.
    pub program: String,
    /// In which setting it ran.
    pub setting: Setting,
    /// CPUs it might use.
    pub cpus: u32,
    /// Cores those are of.
    pub cores: u32,
    /// How long it took.
    pub wall: Span,
    /// CPU time of all its threads, in the program.
    pub user: Span,
    /// And in the kernel.
    pub system: Span,
    /// Threads, or ranks, that worked at the same time, at the most: that met others, or had at least a twentieth of the CPU time of the one that had most.
    pub workers: u32,
    /// Which runtimes were seen at work.
    pub runtimes: Vec<Runtime>,
    /// Times between one meeting of all threads and the next.
    pub intervals: Option<Intervals>,
    /// Share of the time that threads in parallel parts waited for each other, over all of them.
    pub waiting: Option<f64>,
    /// How threads wait, as far as that was told to the runtime or is its default.
    pub wait: Option<String>,
    /// Lowest over highest time on a CPU, over the cores it could have kept busy.
    pub balance: Option<f64>,
    /// Share of the wanted time that its threads were kept from a CPU.
    pub kept_waiting: Option<f64>,
    /// Misses of the last cache for 1,000 instructions.
    pub misses_per_kilo: Option<f64>,
    /// Share of its memory that lay in huge pages at the most.
    pub huge_share: Option<f64>,
    /// Share of its memory, or of its misses, on other nodes than the thread's.
    pub remote_share: Option<f64>,
    /// Bytes it had in memory at the most.
    pub resident: Option<u64>,
    /// Bytes it touched while it worked, estimated.
    pub working_set: Option<u64>,
    /// Page faults that needed no device.
    pub faults: Option<u64>,
    /// Switches that a thread made by itself (it slept), and that were forced on it.
    pub switches: Option<(u64, u64)>,
    /// Calls of `sched_yield`, where they are seen.
    pub yields: Option<u64>,
    /// What measuring took of the program's time.
    pub overhead: Option<f64>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

/// Times between meetings.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Intervals {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: Span,
    /// Half are shorter.
    pub median: Span,
    /// A tenth are shorter.
    pub tenth: Span,
    /// A tenth are longer.
    pub ninetieth: Span,
}
