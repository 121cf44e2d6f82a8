//! The place of a launch in a parallel job: alone, one of several ranks, or bound by its launcher.

use crate::facts::LaunchFacts;
use crate::reason::{LaunchReason, Topic};
use crate::request::LaunchRequest;
use trimtab_core::hash::fnv1a;
use trimtab_core::place::{LocalRank, local_rank};

/// The name of the launcher that starts the ranks of `--ranks`.
const OWN_LAUNCHER: &str = "trimtab run --ranks";

/// A launch's place in a parallel job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// None: started by hand.
    Alone,
    /// One of several ranks that share an allotment, known by the job's key.
    Shares(LocalRank, u64),
    /// A rank that its launcher has bound by itself.
    Bound(LocalRank),
    /// A rank whose launcher does not say how many there are here.
    Uncounted(LocalRank),
}

impl Role {
    /// The role of a launch, by its variables and the mask of its parent. With `--ranks` it is that
    /// of the first rank that will be started.
    pub fn of(request: &LaunchRequest, facts: &LaunchFacts) -> Self {
        if let Some(of) = request.ranks {
            let rank = LocalRank { launcher: OWN_LAUNCHER, rank: 0, of: Some(of), job: None };
            return if of > 1 { Self::Shares(rank, 0) } else { Self::Alone };
        }
        let Some(rank) = local_rank(&|name| request.environment.text(name)) else { return Self::Alone };
        let Some(of) = rank.of else { return Self::Uncounted(rank) };
        if of < 2 {
            return Self::Alone;
        }
        let allowed = &facts.bounds.allowed;
        let parent = facts.parent.mask.as_ref();
        if parent.is_some_and(|parent| parent.difference(allowed).intersects(&facts.machine.cpus())) {
            return Self::Bound(rank);
        }
        let job = job_key(&rank, facts.parent.identity.as_deref());
        Self::Shares(rank, job)
    }

    /// The rank and the key of its job, where ranks share an allotment.
    pub fn shared(&self) -> Option<(&LocalRank, u64)> {
        match self {
            Self::Shares(rank, job) => Some((rank, *job)),
            _ => None,
        }
    }

    /// Whether the process was started as a rank of several.
    pub(crate) fn is_rank(&self) -> bool {
        matches!(self, Self::Shares(..) | Self::Bound(_))
    }

    /// What a user should know of it.
    pub(crate) fn tell(&self, facts: &LaunchFacts) -> Option<LaunchReason> {
        match self {
            Self::Alone | Self::Shares(..) => None,
            Self::Bound(rank) => Some(LaunchReason::note(
                Topic::Rank,
                format!(
                    "{} bound this rank to CPUs {}, and it stays there; with mpirun --bind-to none trimtab places the ranks",
                    rank.launcher, facts.bounds.allowed
                ),
            )),
            Self::Uncounted(rank) => Some(LaunchReason::warning(
                Topic::Rank,
                format!(
                    "{} does not say how many ranks run here, so this rank is placed alone",
                    rank.launcher
                ),
            )),
        }
    }
}

/// The key of a job on this machine, from its launcher and the launcher's name for it, or else the
/// process that started it.
fn job_key(rank: &LocalRank, parent: Option<&str>) -> u64 {
    let job = rank.job.as_deref().or(parent).unwrap_or_default();
    // A name for a job, not a secret. 0 means no job.
    fnv1a(rank.launcher.bytes().chain([0]).chain(job.bytes())).max(1)
}
