//! Number of threads that a process should compute with, from all bounds that hold for it.
//!
//! Unit: a computing thread. Problem: programs and build scripts size themselves by the number of
//! CPUs of the machine or of the mask, and a quota of CPU time, a hold of cores and processes that
//! compute already are not in that number. Idea: each bound is one value with its reason, and the
//! number is the smallest of them.
//!
//! Properties: The number is at least 1. One more bound never makes it larger. Each bound that is
//! known is listed, also if it does not decide.

use super::page::Content;
use serde::Serialize;
use std::fmt;

/// Facts about a process from which bounds follow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NprocFacts {
    /// CPUs of the machine that are online; `None` if the kernel's list cannot be read.
    pub online: Option<u32>,
    /// CPUs that the process may run on: online, in its cpuset and in its mask.
    pub allowed: u32,
    /// Why fewer CPUs are allowed than online, each as a phrase.
    pub limiters: Vec<String>,
    /// The tightest quota of its control group and that group's ancestors.
    pub quota: Option<QuotaBound>,
    /// CPUs among the allowed ones that belong to the hold which encloses the process; `None`
    /// outside of holds.
    pub held: Option<u32>,
    /// Threads of the hold's budget, and those with which other processes compute now; `None`
    /// without a budget.
    pub budget: Option<BudgetBound>,
    /// Numbers of threads in variables of the environment (`OMP_NUM_THREADS`), by name.
    pub variables: Vec<(&'static str, u32)>,
}

/// Quota of CPU time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaBound {
    /// CPU time that all threads together get, in thousandths of a CPU.
    pub milli_cpus: u32,
    /// Control group that sets it.
    pub group: String,
}

/// Budget of a hold, as one process finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetBound {
    /// Threads that the processes of the hold may compute with together.
    pub threads: u32,
    /// Threads of other processes that compute now.
    pub computing: u32,
}

impl BudgetBound {
    /// Returns the bound of the process `own`. `lives` says whether the owner of a slot still runs.
    pub fn of(page: &Content, own: u32, lives: impl Fn(super::page::Owner) -> bool) -> Self {
        let others = page.members.iter().filter(|member| member.owner.pid != own && lives(member.owner));
        let computing = others.fold(0u32, |sum, member| sum.saturating_add(member.state.computing));
        Self { threads: page.cores, computing }
    }
}

/// Kind of a bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundKind {
    /// CPUs that the kernel lets the process run on.
    Mask,
    /// Quota of CPU time.
    Quota,
    /// Cores of the enclosing hold.
    Hold,
    /// Threads that other processes leave of the hold's budget.
    Budget,
    /// Variable of the environment.
    Variable,
}

impl fmt::Display for BoundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mask => "mask",
            Self::Quota => "quota",
            Self::Hold => "hold",
            Self::Budget => "budget",
            Self::Variable => "variable",
        })
    }
}

/// One bound.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadBound {
    /// Its kind.
    pub kind: BoundKind,
    /// Most threads that it leaves, at least 1.
    pub threads: u32,
    /// Why, as a phrase.
    pub reason: String,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Nproc {
    /// Threads to compute with.
    pub threads: u32,
    /// All bounds that are known, in the order of their kinds.
    pub bounds: Vec<ThreadBound>,
}

/// Returns the number of threads that a process should compute with.
///
/// # Examples
/// ```
/// use trimtab_core::budget::nproc::{QuotaBound, NprocFacts, nproc};
///
/// let quota = QuotaBound { milli_cpus: 1_500, group: "/ci".to_owned() };
/// let facts = NprocFacts { allowed: 4, quota: Some(quota), ..NprocFacts::default() };
/// assert_eq!(nproc(&facts).threads, 2);
/// ```
pub fn nproc(facts: &NprocFacts) -> Nproc {
    let NprocFacts { online, allowed, limiters, quota, held, budget, variables } = facts;
    let mut bounds = Vec::new();
    let mut add =
        |kind, threads: u32, reason| bounds.push(ThreadBound { kind, threads: threads.max(1), reason });
    let of = online.map_or_else(String::new, |online| format!(" of {online}"));
    let why = if limiters.is_empty() { String::new() } else { format!(": {}", limiters.join("; ")) };
    add(BoundKind::Mask, *allowed, format!("the process may run on {allowed}{of} CPUs{why}"));
    if let Some(QuotaBound { milli_cpus, group }) = quota {
        let cpus = f64::from(*milli_cpus) / 1000.0;
        let reason = format!("control group {group} gets the time of {cpus} CPUs");
        add(BoundKind::Quota, milli_cpus.div_ceil(1000), reason);
    }
    if let Some(held) = held {
        add(BoundKind::Hold, *held, format!("the enclosing run holds {held} of these CPUs"));
    }
    if let Some(BudgetBound { threads, computing }) = budget {
        let reason = format!(
            "the processes of the run share {threads} threads, and others compute with {computing} now"
        );
        add(BoundKind::Budget, threads.saturating_sub(*computing), reason);
    }
    for (name, threads) in variables {
        add(BoundKind::Variable, *threads, format!("{name}={threads}"));
    }
    let threads = bounds.iter().map(|bound| bound.threads).min().unwrap_or(1);
    Nproc { threads, bounds }
}

#[cfg(test)]
mod tests {
    use super::super::page::{Member, Owner, State, Sums};
    use super::*;
    use proptest::prelude::*;

    fn quota(milli_cpus: u32) -> QuotaBound {
        QuotaBound { milli_cpus, group: "/a".to_owned() }
    }

    #[test]
    fn the_smallest_bound_decides_and_all_are_listed() {
        let facts = NprocFacts {
            online: Some(16),
            allowed: 8,
            limiters: vec!["the inherited CPU mask leaves out CPUs 8-15".to_owned()],
            quota: Some(quota(5_001)),
            held: Some(7),
            budget: Some(BudgetBound { threads: 7, computing: 4 }),
            variables: vec![("OMP_NUM_THREADS", 9)],
        };
        let Nproc { threads, bounds } = nproc(&facts);
        assert_eq!(threads, 3);
        let found: Vec<_> = bounds.iter().map(|bound| (bound.kind, bound.threads)).collect();
        use BoundKind::{Budget, Hold, Mask, Quota, Variable};
        assert_eq!(found, [(Mask, 8), (Quota, 6), (Hold, 7), (Budget, 3), (Variable, 9)]);
        assert_eq!(
            bounds[0].reason,
            "the process may run on 8 of 16 CPUs: the inherited CPU mask leaves out CPUs 8-15"
        );
    }

    #[test]
    fn nothing_left_is_still_one_thread() {
        let full = BudgetBound { threads: 2, computing: 5 };
        let facts = NprocFacts {
            allowed: 0,
            held: Some(0),
            quota: Some(quota(1)),
            budget: Some(full),
            ..NprocFacts::default()
        };
        let found = nproc(&facts);
        assert!(found.threads == 1 && found.bounds.iter().all(|bound| bound.threads == 1), "{found:?}");
    }

    #[test]
    fn threads_of_the_process_itself_and_of_ended_ones_do_not_count() {
        let member = |pid, computing| Member {
            owner: Owner { pid, started: 1 },
            state: State { computing, wants: computing, teams: 1 },
            sums: Sums::default(),
        };
        let members = vec![member(1, 1), member(2, 2), member(3, 4)];
        let page = Content { cores: 8, members, ended: Sums::default(), programs: 3 };
        let found = BudgetBound::of(&page, 1, |owner| owner.pid != 3);
        assert_eq!(found, BudgetBound { threads: 8, computing: 2 });
    }

    fn all_facts() -> impl Strategy<Value = NprocFacts> {
        let budget =
            (1u32..64, 0u32..100).prop_map(|(threads, computing)| BudgetBound { threads, computing });
        let variable = proptest::option::of(1u32..64);
        (
            1u32..64,
            proptest::option::of(1u32..64_000),
            proptest::option::of(0u32..64),
            proptest::option::of(budget),
            variable,
        )
            .prop_map(|(allowed, milli, held, budget, variable)| NprocFacts {
                allowed,
                quota: milli.map(quota),
                held,
                budget,
                variables: variable.map(|count| ("OMP_NUM_THREADS", count)).into_iter().collect(),
                ..NprocFacts::default()
            })
    }

    proptest! {
        #[test]
        fn one_bound_more_never_gives_more_threads(facts in all_facts(), milli in 1u32..64_000) {
            let before = nproc(&facts).threads;
            prop_assert!(before >= 1 && before <= facts.allowed.max(1));
            let tighter = facts.quota.as_ref().map_or(milli, |quota| quota.milli_cpus.min(milli));
            let after = nproc(&NprocFacts { quota: Some(quota(tighter)), ..facts }).threads;
            prop_assert!(after <= before);
        }
    }
}
