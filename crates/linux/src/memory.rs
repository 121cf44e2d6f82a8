//! Application of a plan's memory settings: the policy, and transparent huge pages.
//!
//! Terms: a policy is *set* when the kernel accepts it, and *verified* when reading it back shows
//! the same policy. If the kernel refuses a policy, the next weaker one is tried
//! ([`MemoryPolicy::weaker`]). A program without a policy still runs on its cores, so the last step
//! is to change nothing. Every refusal is kept with its number and its likely cause.
//!
//! Both settings belong to the calling thread or process and are inherited over fork and exec. They
//! are made in the process that becomes the program, so that its loader and allocator are covered
//! too.

mod huge_pages;
pub mod moving;

pub use huge_pages::{
    HugePagesOutcome, HugePagesRefusal, SystemHugePages, apply_huge_pages, system_huge_pages,
};

use crate::sys::mempolicy::{self, Current, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use trimtab_core::place::{MemoryPlan, MemoryPolicy};
use trimtab_core::set::NodeSet;

/// Outcome of a memory plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryOutcome {
    /// The planned settings.
    pub asked: MemoryPlan,
    /// The settings in force now; policy `none` when the inherited one was left unchanged. The
    /// nodes are those read back where that was possible: the kernel leaves out nodes that the
    /// cpuset withholds or that have no memory.
    pub applied: MemoryPlan,
    /// Evidence for it.
    pub proof: Proof,
    /// The policies the kernel refused on the way, strongest first.
    pub refused: Vec<PolicyRefusal>,
}

impl MemoryOutcome {
    /// Returns whether the plan is exactly in force, as far as could be seen.
    pub fn is_as_asked(&self) -> bool {
        let Self { asked, applied, .. } = self;
        applied.policy == asked.policy && (!asked.policy.takes_nodes() || applied.nodes == asked.nodes)
    }
}

impl fmt::Display for MemoryOutcome {
    /// Writes one line: the settings in force and, if they are not the planned ones, the reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, applied, proof, refused } = self;
        match applied.policy {
            MemoryPolicy::None => f.write_str("no memory policy set")?,
            MemoryPolicy::Local => write!(f, "memory policy local, {proof}")?,
            MemoryPolicy::Preferred if asked.nodes.len() > 1 => {
                write!(f, "memory policy preferred on one node only, {}, {proof}", applied.nodes)?;
            }
            policy => write!(f, "memory policy {policy} on nodes {}, {proof}", applied.nodes)?,
        }
        if !self.is_as_asked() {
            write!(f, "; asked for {}", asked.policy)?;
            if asked.policy.takes_nodes() {
                write!(f, " on nodes {}", asked.nodes)?;
            }
        }
        for (at, refusal) in refused.iter().enumerate() {
            // A filter gives the same answer to every step: one attempt is enough.
            if at == 0 || refused[at - 1].cause != refusal.cause {
                write!(f, "; {refusal}")?;
            }
        }
        Ok(())
    }
}

/// Evidence that a policy is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "proof", content = "errno")]
pub enum Proof {
    /// Nothing was set.
    NothingSet,
    /// It was read back.
    ReadBack,
    /// The kernel accepted it, but reading it back failed with this error number.
    Unverified(i32),
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NothingSet => f.write_str("nothing set"),
            Self::ReadBack => f.write_str("set and verified"),
            Self::Unverified(errno) => {
                write!(f, "set but not verified ({})", std::io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// A policy that is not available.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyRefusal {
    /// The policy.
    pub policy: MemoryPolicy,
    /// The kernel's error number; `None` when the kernel was not asked, or accepted the policy and
    /// did not keep it.
    pub errno: Option<i32>,
    /// The likely cause.
    pub cause: Cause,
}

impl fmt::Display for PolicyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory policy {} refused: {}", self.policy, self.cause)?;
        match self.errno {
            Some(errno) => write!(f, " ({})", std::io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

/// Likely cause of a refused policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Cause {
    /// `EPERM`.
    Filtered,
    /// `ENOSYS`.
    FilteredOrNoNuma,
    /// None of the nodes is in the cpuset.
    OutsideCpuset {
        /// The nodes the cpuset permits.
        permitted: NodeSet,
    },
    /// The kernel does not have the policy.
    TooOld {
        /// The first version of Linux that does.
        since: (u8, u8),
    },
    /// `EINVAL` whose cause could not be distinguished: the kernel may be too old, or the nodes
    /// outside the cpuset or without memory.
    NodesOrKernel,
    /// The plan names no node for a policy that takes some.
    NoNodes,
    /// The call succeeded, but the policy read back is another.
    NotKept,
    /// Any other cause.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filtered => f.write_str("blocked by a system-call filter, as containers have"),
            Self::FilteredOrNoNuma => f.write_str(
                "blocked by a system-call filter, as containers have, or the kernel has no NUMA support",
            ),
            Self::OutsideCpuset { permitted } => {
                write!(f, "none of its nodes has memory this cpuset permits (nodes {permitted})")
            }
            Self::TooOld { since: (major, minor) } => write!(f, "needs Linux {major}.{minor}"),
            Self::NodesOrKernel => f.write_str(
                "its nodes are outside the cpuset or have no memory, or the kernel is too old for it",
            ),
            Self::NoNodes => f.write_str("the plan names no node"),
            Self::NotKept => f.write_str("the kernel accepted it and did not keep it"),
            Self::Unknown => f.write_str("the kernel does not say why"),
        }
    }
}

/// Sets the memory policy of the calling thread, or the strongest weaker one that the kernel
/// accepts, and reads it back.
pub fn apply(plan: &MemoryPlan) -> MemoryOutcome {
    let mut refused = Vec::new();
    let mut next = Some(plan.policy);
    while let Some(policy) = next
        && policy != MemoryPolicy::None
    {
        match try_policy(policy, &plan.nodes) {
            Ok((applied, proof)) => return MemoryOutcome { asked: plan.clone(), applied, proof, refused },
            Err(refusal) => refused.push(refusal),
        }
        next = policy.weaker();
    }
    let applied = MemoryPlan { policy: MemoryPolicy::None, nodes: NodeSet::new() };
    MemoryOutcome { asked: plan.clone(), applied, proof: Proof::NothingSet, refused }
}

/// Sets one policy. Returns the policy in force after it and the evidence, or the reason of the
/// refusal.
fn try_policy(policy: MemoryPolicy, nodes: &NodeSet) -> Result<(MemoryPlan, Proof), PolicyRefusal> {
    let nodes = nodes_for(policy, nodes);
    if policy.takes_nodes() && nodes.is_empty() {
        return Err(PolicyRefusal { policy, errno: None, cause: Cause::NoNodes });
    }
    mempolicy::set(mode(policy), &nodes).map_err(|errno| PolicyRefusal {
        policy,
        errno: Some(errno.raw_os_error()),
        cause: cause(policy, &nodes, errno),
    })?;
    match mempolicy::get() {
        Err(errno) => Ok((MemoryPlan { policy, nodes }, Proof::Unverified(errno.raw_os_error()))),
        Ok(now) if is_in_force(policy, &nodes, &now) => {
            Ok((MemoryPlan { policy, nodes: now.nodes }, Proof::ReadBack))
        }
        Ok(_) => Err(PolicyRefusal { policy, errno: None, cause: Cause::NotKept }),
    }
}

/// Returns the nodes with which a policy is set. `Preferred` takes one node only: the lowest that
/// the cpuset permits.
fn nodes_for(policy: MemoryPolicy, nodes: &NodeSet) -> NodeSet {
    match policy {
        MemoryPolicy::None | MemoryPolicy::Local => NodeSet::new(),
        MemoryPolicy::Preferred => {
            let permitted =
                mempolicy::allowed().map(|permitted| nodes.intersection(&permitted)).unwrap_or_default();
            permitted.first().or(nodes.first()).into_iter().collect()
        }
        _ => nodes.clone(),
    }
}

fn mode(policy: MemoryPolicy) -> Mode {
    match policy {
        MemoryPolicy::None => Mode::Default,
        MemoryPolicy::Local => Mode::Local,
        MemoryPolicy::Preferred => Mode::Preferred,
        MemoryPolicy::PreferredMany => Mode::PreferredMany,
        MemoryPolicy::Bind => Mode::Bind,
        MemoryPolicy::Interleave => Mode::Interleave,
        MemoryPolicy::Weighted => Mode::WeightedInterleave,
    }
}

/// Returns whether the policy read back is the one that was set, on some of its nodes. Before Linux
/// 5.14 `local` was kept, and read back, as `preferred` over no node.
fn is_in_force(policy: MemoryPolicy, nodes: &NodeSet, now: &Current) -> bool {
    if policy == MemoryPolicy::Local {
        let old_form = now.mode == Mode::Preferred as i32;
        return now.nodes.is_empty() && (old_form || now.mode == Mode::Local as i32);
    }
    now.mode == mode(policy) as i32 && !now.nodes.is_empty() && now.nodes.is_subset(nodes)
}

/// Returns the likely cause of the kernel's refusal. An invalid argument is either the nodes or the
/// mode, so the nodes are compared with those the cpuset permits; if they are fine and the policy
/// was added late, this kernel does not have it.
fn cause(policy: MemoryPolicy, nodes: &NodeSet, errno: Errno) -> Cause {
    match errno {
        Errno::PERM => Cause::Filtered,
        Errno::NOSYS => Cause::FilteredOrNoNuma,
        Errno::INVAL => match (mempolicy::allowed(), since(policy)) {
            (Ok(permitted), _) if policy.takes_nodes() && !nodes.intersects(&permitted) => {
                Cause::OutsideCpuset { permitted }
            }
            (Ok(_), Some(since)) => Cause::TooOld { since },
            _ => Cause::NodesOrKernel,
        },
        _ => Cause::Unknown,
    }
}

/// Returns the first Linux that has a policy, for those added after 3.8.
fn since(policy: MemoryPolicy) -> Option<(u8, u8)> {
    match policy {
        MemoryPolicy::PreferredMany => Some((5, 15)),
        MemoryPolicy::Weighted => Some((6, 9)),
        _ => None,
    }
}
