//! Where a program's memory should come from: policies, and what to fall back to when the kernel refuses one.

use crate::set::NodeSet;
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
