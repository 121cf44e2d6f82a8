//! Balancing policies: functions from samples to decisions.
//!
//! Problem: some threads of a parallel program run slower than others because of a crowded core,
//! another program or a slower core, and a barrier makes all threads wait for the slowest. A
//! *policy* reads rates and moves threads so that they progress equally, or reports why nothing can
//! be gained. A policy is a function with its own memory: it reads no clock, no file and no
//! register, takes its random numbers from a seed that is an argument, and makes equal decisions
//! for equal observations. The same code therefore runs over the live machine, a simulated one, a
//! recorded one and a scripted one.
//!
//! Each policy has its own file. All of them take [`Settings`] and answer with a [`Turn`]. A
//! [`Decision`] names one thread, the action, and a typed [`Reason`].

mod auto;
mod barrier_sleep;
mod cpu_table;
mod decision;
mod diagnosis;
mod exchange;
mod finding;
mod float;
mod initial_placement;
mod kind;
mod lone;
mod numa_migration;
mod pinned;
mod program_state;
mod rotation;
mod round_cost;
mod share_model;
mod speed;
mod thread_state;
mod thread_table;
mod treatment_trial;
mod turn_context;

pub use crate::outcome::{Outcome, Refusal, Settled};
pub use decision::{Act, Decision, Reason};
pub use finding::Finding;
pub use kind::{Kind, UnknownPolicy};
pub use numa_migration::{BiasReading, Candidates, PenaltySettings, UnknownCandidates};

use crate::observe::{Metric, Observation};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use serde::{Deserialize, Serialize};

/// Settings of a policy, given at its start and recorded in every trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Time between two samples. `auto` may sample more or less often within its cost limit; the
    /// policies of the uncore penalty may sample less often within theirs. [`Kind::interval`] is
    /// the default of each policy.
    pub interval: Span,
    /// Metric of speed.
    pub metric: Metric,
    /// The paper's T_s: `speed` pulls from a core only if its speed is below this share of the
    /// mean.
    pub threshold: f64,
    /// Whether threads may be moved to another NUMA node.
    pub across_nodes: bool,
    /// Whether `auto` may let threads leave their own masks if these crowd them. Absent in traces
    /// that are older than this setting, when it always did.
    #[serde(default = "freed_before")]
    pub free: bool,
    /// Index and candidates of `brm`, `brm-paper` and `serial`. Absent in traces that are older
    /// than these policies.
    #[serde(default, skip_serializing_if = "PenaltySettings::is_default")]
    pub penalty: PenaltySettings,
}

/// Returns the value of [`Settings::free`] in traces that do not have it.
fn freed_before() -> bool {
    true
}

impl Settings {
    /// Returns the default settings of a policy.
    pub fn of(kind: Kind) -> Self {
        Self { interval: kind.interval(), ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            interval: Span::from_ms(100),
            metric: Metric::RunWait,
            threshold: 0.9,
            across_nodes: false,
            free: false,
            penalty: PenaltySettings::default(),
        }
    }
}

/// Data that a host should read for the next observation. Reading has a cost, so a policy requests
/// only the data that it needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Read only threads that were last seen on these CPUs; `None` for all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<CpuSet>,
    /// Read on which CPU each thread runs, unless its mask already determines that.
    pub places: bool,
    /// Read how busy the CPUs are.
    pub cpus: bool,
    /// Read how often threads go to sleep.
    pub sleeps: bool,
    /// Read the hardware counters of threads. Absent in traces that are older than the counters.
    #[serde(default)]
    pub counts: bool,
}

impl Wanted {
    /// Requests everything except hardware counters, which slow down the threads that they count.
    pub fn all() -> Self {
        Self { on: None, places: true, cpus: true, sleeps: true, counts: false }
    }

    /// Returns the request of a policy that only watches, for the sample with this number (from 0):
    /// everything except the number of sleeps, which is the most expensive to read. Sleeps are read
    /// in two consecutive samples, which gives a rate, and then not for a second.
    pub(crate) fn watching(number: u64, interval: Span) -> Self {
        let samples_per_second = Span::from_ms(1_000).0 / interval.0.max(1);
        Self { sleeps: samples_per_second <= 2 || number % samples_per_second < 2, ..Self::all() }
    }
}

/// Answer of a policy to an observation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Decisions, in the order in which they should be carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// New or changed findings about the program and the machine: the reasons why the policy moves
    /// threads or leaves them alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Time of the next sample.
    pub next: Moment,
    /// Data to read for the next sample.
    pub wanted: Wanted,
}

/// Balancing policy: a function from observations to decisions.
pub trait Policy {
    /// Returns the name of the policy.
    fn kind(&self) -> Kind;

    /// Returns the data to read for the first sample.
    fn first(&self) -> Wanted;

    /// Decides. Called with every sample, in order. The observation holds the outcomes of earlier
    /// decisions.
    fn decide(&mut self, seen: &Observation<'_>) -> Turn;
}

/// Creates a policy by its name, for a machine.
pub fn policy(kind: Kind, machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    kind.make(machine, settings)
}
