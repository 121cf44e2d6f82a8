//! The plan of a launch: everything that is set, told and watched, with the reasons, as one value.
//!
//! `trimtab plan` prints it, `trimtab run` carries it out. It serialises as `trimtab.plan/2`
//! (docs/json.md).

use crate::nesting::Nesting;
use crate::options::EnvMode;
use crate::preload::Preload;
use crate::reason::LaunchReason;
use crate::request::{Origin, Sourced, Tuning};
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::balance::Kind;
use trimtab_core::place::nesting::Listing;
use trimtab_core::place::waiting::{Waiting, Yield};
use trimtab_core::place::{Plan, Request, Taken, Variable};
use trimtab_core::set::CpuSet;

/// A decided launch.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LaunchPlan {
    /// The request that the placement answers.
    pub request: Request,
    /// What was taken of the machine.
    pub taken: Taken,
    /// Slots, mask, reservation, memory and huge pages; of a rank, its part.
    #[serde(rename = "plan")]
    pub placement: Plan,
    /// The placement of the whole allotment, where `placement` is a rank's part of it.
    pub whole: Option<Plan>,
    /// The place in a parallel job.
    pub rank: Option<RankPlan>,
    /// The parts of all ranks of that job on this machine.
    pub ranks: Vec<RankPart>,
    /// Threads that runtimes are told to start, or advised to.
    pub threads: Sourced<u32>,
    /// The nested teams, as a list of threads.
    pub nest: Option<Listing>,
    /// Where the nested teams were asked for.
    pub nest_origin: Option<Origin>,
    /// The nested teams.
    #[serde(skip)]
    pub nesting: Option<Nesting>,
    /// What becomes of each variable that is looked at, in the order in which they are told.
    pub environment: Vec<Variable>,
    /// Whether variables are set, printed, or left alone.
    pub env: EnvMode,
    /// How threads wait.
    pub wait: WaitPlan,
    /// The scheduler's slice in milliseconds.
    pub slice: Sourced<Option<f64>>,
    /// Whether the preload library goes along.
    pub preload: Preload,
    /// What stays beside the program while it runs; `None` where trimtab becomes the program.
    pub watch: Option<WatchPlan>,
    /// The tuning that applies.
    pub tuning: Option<Tuning>,
    /// The rule that applies.
    pub rule: Option<String>,
    /// Whether what cannot be had is an error.
    pub strict: bool,
    /// Where the values of `request` come from, and those of `pin`, `fit` and `balance`.
    pub origins: BTreeMap<&'static str, Origin>,
    /// What is told of the decision, in order.
    pub reasons: Vec<LaunchReason>,
    /// What the decision wants to know and does not.
    #[serde(skip)]
    pub questions: Questions,
}

/// A place in a parallel job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankPlan {
    /// The launcher.
    pub launcher: &'static str,
    /// The number on this machine, from 0.
    pub rank: u32,
    /// Ranks on this machine, where that is known.
    pub of: Option<u32>,
    /// Whether the ranks share an allotment: else each is placed alone, or was bound by its
    /// launcher.
    pub shares: bool,
}

/// The part of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankPart {
    /// Its number on this machine.
    pub rank: u32,
    /// Its CPUs.
    pub mask: CpuSet,
    /// Threads that it is advised to start.
    pub threads: u32,
}

/// How threads wait.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WaitPlan {
    /// The decision and its causes.
    #[serde(flatten)]
    pub waiting: Waiting,
    /// Where the policy comes from.
    pub origin: Origin,
    /// What `sched_yield` does on the CPUs of the plan, where that matters and is known.
    pub yields: Option<Yield>,
    /// What of it the user decided by variables, in words.
    pub left_to_user: Vec<String>,
}

/// What stays beside the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WatchPlan {
    /// The policy.
    pub policy: Kind,
    /// Whether it moves threads, and does not only observe.
    pub balances: bool,
}

/// What a decision wants to know about the CPUs of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Questions {
    /// What `sched_yield` does there.
    pub yields: bool,
    /// A picture of these CPUs for launchers.
    pub picture: bool,
}

impl Questions {
    /// Whether there are any.
    pub fn any(self) -> bool {
        self.yields || self.picture
    }
}
