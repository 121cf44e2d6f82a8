//! Where a program's memory should come from: policies, and what to fall back to when the kernel refuses one.

use super::error::PlaceError;
use super::local::filled;
use super::request::{MemoryNodes, MemoryRequest};
use super::{Reason, Taken};
use crate::ids::{Id, NodeId};
use crate::set::NodeSet;
use crate::topology::{Machine, Tier};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A memory policy of the kernel, by what it promises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// Leave the inherited policy alone.
    None,
    /// The node of the CPU that first touches a page.
    Local,
    /// One node first, any other when it is full.
    Preferred,
    /// The nearest of some nodes first, any other when they are full (Linux 5.15).
    PreferredMany,
    /// These nodes only; allocation fails when they are full.
    Bind,
    /// Page by page round the nodes.
    Interleave,
    /// Round the nodes in proportion to the weights the administrator set (Linux 6.9).
    Weighted,
}

impl MemoryPolicy {
    /// The word used in plans and messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::Preferred => "preferred",
            Self::PreferredMany => "preferred-many",
            Self::Bind => "bind",
            Self::Interleave => "interleave",
            Self::Weighted => "weighted",
        }
    }

    /// What to try when the kernel refuses this policy: each step promises less and costs nothing. The last is always to
    /// leave the policy alone, since a program without a policy still runs on its cores.
    pub fn weaker(self) -> Option<Self> {
        Some(match self {
            Self::Bind => Self::PreferredMany,
            Self::PreferredMany => Self::Preferred,
            Self::Weighted => Self::Interleave,
            Self::Preferred | Self::Interleave | Self::Local => Self::None,
            Self::None => return None,
        })
    }

    /// Whether the policy names nodes.
    pub fn takes_nodes(self) -> bool {
        !matches!(self, Self::None | Self::Local)
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A memory policy and the nodes it is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// What the kernel is asked for.
    pub policy: MemoryPolicy,
    /// Over which nodes; empty for policies that take none.
    pub nodes: NodeSet,
}

/// What transparent huge pages should do for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// As the system is set.
    #[default]
    Inherit,
    /// None at all (`PR_SET_THP_DISABLE`).
    Off,
    /// Only where the program asks by `madvise` (Linux 6.18).
    Advised,
}

/// The memory policy for a plan over `nodes`.
pub(super) fn derive(
    machine: &Machine,
    request: &MemoryRequest,
    taken: &Taken,
    nodes: &NodeSet,
) -> Result<(MemoryPlan, Reason), PlaceError> {
    let filled = filled(machine);
    let usable = |nodes: &NodeSet| {
        let nodes = nodes.intersection(&filled);
        taken.mems.as_ref().map_or_else(|| nodes.clone(), |mems| nodes.intersection(mems))
    };
    let known: NodeSet = machine.nodes().iter().map(|node| node.os).collect();
    let (over, mut why) = match &request.over {
        None => (usable(nodes), "the nodes of the cores chosen".to_owned()),
        Some(MemoryNodes::Numbers(numbers)) => {
            let out = numbers.difference(&usable(&known));
            if !out.is_empty() {
                return Err(PlaceError::NoSuchNodes { nodes: out, known: usable(&known) });
            }
            (numbers.clone(), "the nodes asked for".to_owned())
        }
        Some(MemoryNodes::Tier(tier)) => {
            let nearest = nearest_of_tier(machine, *tier, nodes, &usable(&known));
            if nearest.is_empty() {
                return Err(PlaceError::NoSuchTier { tier: *tier });
            }
            (nearest, format!("the {tier} nodes nearest to the cores chosen"))
        }
    };
    let policy = match (request.policy, over.len()) {
        (Some(policy), _) => policy,
        (None, _) if machine.nodes().len() <= 1 && request.over.is_none() => {
            why = "the machine has one node".to_owned();
            MemoryPolicy::None
        }
        (None, 0) => {
            why = "the cores chosen have no node with memory that may be used".to_owned();
            MemoryPolicy::None
        }
        (None, 1) => MemoryPolicy::Preferred,
        (None, _) => MemoryPolicy::PreferredMany,
    };
    let policy = match policy {
        MemoryPolicy::PreferredMany if over.len() == 1 => MemoryPolicy::Preferred,
        policy if policy.takes_nodes() && over.is_empty() => {
            why = format!(
                "{policy} was asked for, but the cores chosen have no node with memory that may be used"
            );
            MemoryPolicy::None
        }
        policy => policy,
    };
    let nodes = if policy.takes_nodes() { over } else { NodeSet::new() };
    if policy == MemoryPolicy::Local {
        why = "each page where it is first touched".to_owned();
    }
    if policy == MemoryPolicy::None && request.policy == Some(MemoryPolicy::None) {
        why = "as asked (--mem none)".to_owned();
    }
    Ok((MemoryPlan { policy, nodes: nodes.clone() }, Reason::Memory { policy, nodes, why }))
}

/// The usable nodes of a tier that are nearest to any of `to`.
fn nearest_of_tier(machine: &Machine, tier: Tier, to: &NodeSet, usable: &NodeSet) -> NodeSet {
    let nodes = || machine.nodes().iter().enumerate().map(|(at, node)| (NodeId::from_index(at), node));
    let of_tier: Vec<_> = nodes().filter(|(_, node)| node.tier == tier && usable.contains(node.os)).collect();
    let from: Vec<NodeId> = nodes().filter(|(_, node)| to.contains(node.os)).map(|(id, _)| id).collect();
    let mut nearest = NodeSet::new();
    for &home in &from {
        let least = of_tier.iter().map(|&(id, _)| machine.distance(home, id)).min();
        let tied = of_tier.iter().filter(|&&(id, _)| Some(machine.distance(home, id)) == least);
        nearest.extend(tied.map(|(_, node)| node.os));
    }
    if from.is_empty() { of_tier.iter().map(|(_, node)| node.os).collect() } else { nearest }
}
