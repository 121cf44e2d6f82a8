//! Plan of a launch: everything that is set, reported and watched, with the reasons, as one value.
//!
//! `trimtab plan` prints it; `trimtab run` carries it out. It serialises as `trimtab.plan/2`
//! (docs/json.md).

use crate::budget::BudgetPlan;
use crate::jobserver::JobserverPlan;
use crate::nesting::Nesting;
use crate::options::EnvMode;
use crate::origin::ValueOrigin;
use crate::preempt::PreemptPeriod;
use crate::preload::Preload;
use crate::reason::LaunchReason;
use crate::request::{Sourced, Tuning};
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::balance::Kind;
use trimtab_core::place::nesting::Listing;
use trimtab_core::place::waiting::{Waiting, Yield};
use trimtab_core::place::{Plan, Request, Taken, Variable};
use trimtab_core::set::CpuSet;

/// Decided launch.
///
/// # Examples
/// A caller that carries a plan out reads these parts of it:
///
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{Environment, LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// let options = Options { threads: Some(2), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("core:4")?))?;
///
/// assert_eq!(plan.placement.mask.to_string(), "0-3"); // for sched_setaffinity
/// assert_eq!(plan.threads.value, 2);
/// let changes = Environment::default().changes(&plan.environment);
/// assert_eq!(changes["OMP_NUM_THREADS"].as_deref(), Some("2".as_ref()));
/// if plan.questions.any() {
///     // Find the answers on these CPUs, put them into the facts, and decide again.
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LaunchPlan {
    /// Request that the placement answers.
    pub request: Request,
    /// Occupancy of the machine that the plan assumes.
    pub taken: Taken,
    /// Slots, mask, reservation, memory and huge pages; for a rank, its part.
    #[serde(rename = "plan")]
    pub placement: Plan,
    /// Placement of the whole allotment, if `placement` is a rank's part of it.
    pub whole: Option<Plan>,
    /// Position in a parallel job.
    pub rank: Option<RankPlan>,
    /// Parts of all ranks of that job on this machine.
    pub ranks: Vec<RankPart>,
    /// Thread count that is announced to the runtimes, or recommended.
    pub threads: Sourced<u32>,
    /// Nested teams, as a list of threads.
    pub nest: Option<Listing>,
    /// Where the nested teams were requested.
    pub nest_origin: Option<ValueOrigin>,
    /// The nested teams.
    #[serde(skip)]
    pub nesting: Option<Nesting>,
    /// Action on each examined variable, in the order in which they are reported.
    pub environment: Vec<Variable>,
    /// Whether variables are set, printed, or left alone.
    pub env: EnvMode,
    /// How threads wait.
    pub wait: WaitPlan,
    /// Scheduler slice in milliseconds.
    pub slice: Sourced<Option<f64>>,
    /// Period of preemption in microseconds; `None`: no preemption.
    pub preempt: Option<PreemptPeriod>,
    /// Whether the preload library is loaded into the program.
    pub preload: Preload,
    /// Budget that the processes of the run share while they run; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetPlan>,
    /// Jobserver that the build tools of the run share; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<JobserverPlan>,
    /// Observer or balancer that runs beside the program; `None` if trimtab becomes the program.
    pub watch: Option<WatchPlan>,
    /// The tuning that applies.
    pub tuning: Option<Tuning>,
    /// The rule that applies.
    pub rule: Option<String>,
    /// Whether a request that cannot be met is an error.
    pub strict: bool,
    /// Origins of the values of `request` and of `pin`, `fit` and `balance`.
    pub origins: BTreeMap<&'static str, ValueOrigin>,
    /// Messages about the decision, in order.
    pub reasons: Vec<LaunchReason>,
    /// Facts that the decision needs and does not have.
    #[serde(skip)]
    pub questions: Questions,
}

/// Position of a launch in a parallel job.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// // The first of two ranks that `--ranks 2` starts on four cores.
/// let options = Options { ranks: Some(2), cores: Some("4".parse()?), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("core:4")?))?;
/// let rank = plan.rank.expect("it is a rank");
/// assert_eq!((rank.rank, rank.of, rank.shares), (0, Some(2), true));
/// let masks: Vec<String> = plan.ranks.iter().map(|part| part.mask.to_string()).collect();
/// assert_eq!(masks, ["0-1", "2-3"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankPlan {
    /// The launcher.
    pub launcher: &'static str,
    /// Number of the rank on this machine, from 0.
    pub rank: u32,
    /// Number of ranks on this machine, if known.
    pub of: Option<u32>,
    /// Whether the ranks share an allotment. If not, each rank is placed alone or was bound by its
    /// launcher.
    pub shares: bool,
}

/// One rank's part of the allotment. [`RankPlan`] has an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankPart {
    /// Number of the rank on this machine.
    pub rank: u32,
    /// CPUs of the rank.
    pub mask: CpuSet,
    /// Recommended thread count.
    pub threads: u32,
}

/// How threads wait, with the causes.
///
/// # Examples
/// ```
/// use trimtab_core::place::waiting::WaitPolicy;
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, ValueOrigin, decide};
///
/// let options = Options { wait_policy: Some(WaitPolicy::Sleep), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("core:4")?))?;
/// assert_eq!(plan.wait.origin, ValueOrigin::Option);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WaitPlan {
    /// The decision and its causes.
    #[serde(flatten)]
    pub waiting: Waiting,
    /// Origin of the policy.
    pub origin: ValueOrigin,
    /// Effect of `sched_yield` on the CPUs of the plan, if it matters and is known.
    pub yields: Option<Yield>,
    /// Settings that the user decided by variables, in words.
    pub left_to_user: Vec<String>,
}

/// Observer or balancer that runs beside the program.
///
/// # Examples
/// ```
/// use trimtab_core::balance::Kind;
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// let options = Options { balance: Some(Kind::Speed), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("core:4")?))?;
/// let watch = plan.watch.expect("a balancer was asked for");
/// assert!(watch.balances && watch.policy == Kind::Speed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WatchPlan {
    /// The policy.
    pub policy: Kind,
    /// Whether the policy moves threads; if not, it only observes.
    pub balances: bool,
}

/// Questions of a decision about the CPUs of the plan. [`LaunchPlan`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Questions {
    /// Whether the effect of `sched_yield` is needed.
    pub yields: bool,
    /// Whether a restricted topology (`picture`) of these CPUs for launchers is needed.
    pub picture: bool,
}

impl Questions {
    /// Returns whether there is any question. [`LaunchPlan`] has an example.
    pub fn any(self) -> bool {
        self.yields || self.picture
    }
}
