//! Policies: from what is seen to what should be done.
//!
//! Problem: some threads of a parallel program run slower than others (a crowded core, another program, a slower core), and
//! a barrier makes all of them wait for the slowest. A *policy* looks at rates and moves threads so that they
//! progress alike, or says why nothing can be gained. It is a function with a memory of its own: it reads no clock, no file and
//! no register, draws from a seed that is its argument, and equal observations give equal decisions. The same code therefore
//! runs over the live machine, a simulated one, a recorded one and a scripted one.
//!
//! One file per policy. What they share: [`Settings`] in, [`Turn`] out; a [`Decision`] is one thread, what to do with it, and a
//! typed [`Reason`].

mod auto;
mod base;
mod brm;
mod case;
mod cost;
mod deal;
mod decision;
mod diagnosis;
mod doze;
mod exchange;
mod finding;
mod float;
mod ground;
mod kind;
mod lone;
mod pinned;
mod rotation;
mod seating;
mod shares;
mod sitter;
mod speed;
mod trial;

pub use brm::{Candidates, PenaltySettings, UnknownCandidates};
pub use decision::{Act, Decision, Outcome, Reason, Refusal, Settled};
pub use finding::Finding;
pub use kind::{Kind, UnknownPolicy};

use crate::observe::{Metric, Observation};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use serde::{Deserialize, Serialize};

/// What every policy is told at its start; recorded in every trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// All that is random is drawn from this.
    pub seed: u64,
    /// The time between two looks; `auto` may look more or less often within its cost limit, and the policies of the uncore penalty
    /// less often within theirs. [`Kind::interval`] is what each wants.
    pub interval: Span,
    /// How speed is measured.
    pub metric: Metric,
    /// `speed` pulls from a core only if it is slower than this part of the mean: the paper's T_s.
    pub threshold: f64,
    /// Whether threads may be moved to another NUMA node.
    pub across_nodes: bool,
    /// How `brm`, `brm-paper` and `serial` tell where threads suffer, and whom they may move. A trace of before there were such has
    /// none.
    #[serde(default, skip_serializing_if = "PenaltySettings::is_default")]
    pub penalty: PenaltySettings,
}

impl Settings {
    /// What a policy is told unless the user says otherwise.
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
            penalty: PenaltySettings::default(),
        }
    }
}

/// What a host should read for the next observation. Reading costs; a policy asks for what it needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Only threads that were last seen on these CPUs; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<CpuSet>,
    /// Where threads run, unless their mask says so already.
    pub places: bool,
    /// How busy the CPUs are.
    pub cpus: bool,
    /// How often threads go to sleep.
    pub sleeps: bool,
    /// What hardware counts of threads. A trace of before there were counts has none.
    #[serde(default)]
    pub counts: bool,
}

impl Wanted {
    /// Everything but what hardware counts, which slows down those who are counted.
    pub fn all() -> Self {
        Self { on: None, places: true, cpus: true, sleeps: true, counts: false }
    }

    /// What is wanted at the look of this number (from 0) by who only watches: everything but how often threads sleep, which is the
    /// dearest to read. That is read twice in a row, which makes a rate, and then not for a second.
    pub(crate) fn watching(look: u64, interval: Span) -> Self {
        let looks = Span::from_ms(1_000).0 / interval.0.max(1);
        Self { sleeps: looks <= 2 || look % looks < 2, ..Self::all() }
    }
}

/// What a policy answers to an observation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// What should be done, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// What the policy has come to think of the program and the machine, when that changed: why it moves or stands still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// When it wants to look again.
    pub next: Moment,
    /// What it wants to see then.
    pub wanted: Wanted,
}

/// From what is seen to what should be done.
pub trait Policy {
    /// Which it is.
    fn kind(&self) -> Kind;

    /// What it wants to see first.
    fn first(&self) -> Wanted;

    /// Decides. Called with every sample, in order; outcomes of earlier decisions are in the observation.
    fn decide(&mut self, seen: &Observation<'_>) -> Turn;
}

/// A policy by its name, for a machine.
pub fn policy(kind: Kind, machine: &Machine, settings: &Settings) -> Box<dyn Policy> {
    kind.make(machine, settings)
}
