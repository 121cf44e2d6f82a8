//! Role of a launch in a parallel job: alone, one of several ranks, or bound by its launcher.

use crate::facts::LaunchFacts;
use crate::reason::{LaunchReason, Topic};
use crate::request::LaunchRequest;
use trimtab_core::hash::fnv1a;
use trimtab_core::place::{LocalRank, local_rank};

/// Name of the launcher that starts the ranks of `--ranks`.
const OWN_LAUNCHER: &str = "trimtab run --ranks";

/// Role of a launch in a parallel job. [`Role::of`] has an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// No rank: started directly by a user.
    Alone,
    /// One of several ranks that share an allotment, with the job's key.
    Shares(LocalRank, u64),
    /// Rank that its launcher has bound.
    Bound(LocalRank),
    /// Rank of a launcher that does not announce the number of ranks on this machine.
    Uncounted(LocalRank),
}

impl Role {
    /// Returns the role of a launch, from its variables and the mask of its parent. With `--ranks`
    /// it is the role of the first rank that will be started.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::{Environment, LaunchFacts, LaunchRequest, Role, Sources};
    ///
    /// let facts = LaunchFacts::idle(parse_synthetic("core:4")?);
    /// let variables = [("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
    /// let variables = variables.map(|(name, value)| (name.into(), value.into()));
    /// let environment: Environment = variables.into_iter().collect();
    /// let request = LaunchRequest::merge(Sources { environment, ..Sources::default() })?;
    /// let role = Role::of(&request, &facts);
    /// let (rank, _job) = role.shared().expect("two ranks share the machine");
    /// assert_eq!((rank.rank, rank.of), (1, Some(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Returns the rank and the key of its job, if the ranks share an allotment. [`Self::of`] has
    /// an example.
    pub fn shared(&self) -> Option<(&LocalRank, u64)> {
        match self {
            Self::Shares(rank, job) => Some((rank, *job)),
            _ => None,
        }
    }

    /// Returns whether the process was started as one of several ranks.
    pub(crate) fn is_rank(&self) -> bool {
        matches!(self, Self::Shares(..) | Self::Bound(_))
    }

    /// Returns the message about the role, if the user needs one.
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

/// Returns the key of a job on this machine. It is made of the launcher and the launcher's name for
/// the job, or else the identity of the parent process.
fn job_key(rank: &LocalRank, parent: Option<&str>) -> u64 {
    let job = rank.job.as_deref().or(parent).unwrap_or_default();
    // The key is a name for a job, not a secret. 0 means no job.
    fnv1a(rank.launcher.bytes().chain([0]).chain(job.bytes())).max(1)
}
