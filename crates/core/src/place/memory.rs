//! Memory policies of a program, and the weaker policies used if the kernel refuses one.

use super::error::PlaceError;
use super::held_memory::{NodeMemory, spread};
use super::local::{distances_from, held, permitted, room, usable};
use super::memory_size::MemorySize;
use super::{Reason, Taken};
use crate::ids::{Id, NodeId};
use crate::set::NodeSet;
use crate::topology::{Machine, Node, Tier};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Memory policy of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// The inherited policy stays.
    None,
    /// The node of the CPU that first touches a page.
    Local,
    /// One node first, any other if it is full.
    Preferred,
    /// The nearest of some nodes first, any other if they are full (Linux 5.15).
    PreferredMany,
    /// These nodes only; allocation fails if they are full.
    Bind,
    /// Pages alternate over the nodes.
    Interleave,
    /// Pages alternate over the nodes in proportion to the administrator's weights (Linux 6.9).
    Weighted,
}

impl MemoryPolicy {
    /// Returns the word used in plans and messages.
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

    /// Returns the policy to try if the kernel refuses this one: each step promises less and costs
    /// nothing. The last step always leaves the policy unchanged, since a program without a policy
    /// still runs on its cores.
    pub fn weaker(self) -> Option<Self> {
        Some(match self {
            Self::Bind => Self::PreferredMany,
            Self::PreferredMany => Self::Preferred,
            Self::Weighted => Self::Interleave,
            Self::Preferred | Self::Interleave | Self::Local => Self::None,
            Self::None => return None,
        })
    }

    /// Returns whether the policy names nodes.
    pub fn takes_nodes(self) -> bool {
        !matches!(self, Self::None | Self::Local)
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Memory policy and its nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Policy requested from the kernel.
    pub policy: MemoryPolicy,
    /// Nodes of the policy; empty for policies without nodes.
    pub nodes: NodeSet,
}

/// Mode of transparent huge pages for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// System setting.
    #[default]
    Inherit,
    /// No huge pages (`PR_SET_THP_DISABLE`).
    Off,
    /// Only memory for which the program requests them by `madvise` (Linux 6.18).
    Advised,
}

/// Requested memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// Memory policy; `None` to derive it from the chosen cores.
    pub policy: Option<MemoryPolicy>,
    /// Nodes of the policy; `None` for those of the chosen cores.
    pub over: Option<MemoryNodes>,
    /// Memory that must be available on the nodes of the run; `None` if any amount will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<MemorySize>,
}

/// Nodes named by number or by type of memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryNodes {
    /// Nodes with these numbers.
    Numbers(NodeSet),
    /// Nodes with this type of memory that are nearest to the chosen cores.
    Tier(Tier),
}

impl FromStr for MemoryRequest {
    type Err = String;

    /// Parses `auto`, `local`, `bind`, `preferred`, `interleave`, `weighted` or `none`. Policies
    /// with nodes may also be `bind:0,2` or `preferred:hbm`; a type of memory alone is preferred.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(tier) = tier(text) {
            let over = Some(MemoryNodes::Tier(tier));
            return Ok(Self { policy: Some(MemoryPolicy::PreferredMany), over, size: None });
        }
        let (word, over) = match text.split_once(':') {
            Some((word, over)) => (word, Some(over)),
            None => (text, None),
        };
        let policy = match word.to_ascii_lowercase().as_str() {
            "auto" => None,
            "local" => Some(MemoryPolicy::Local),
            "bind" => Some(MemoryPolicy::Bind),
            "preferred" => Some(MemoryPolicy::PreferredMany),
            "interleave" => Some(MemoryPolicy::Interleave),
            "weighted" => Some(MemoryPolicy::Weighted),
            "none" => Some(MemoryPolicy::None),
            _ => {
                return Err(format!(
                    "\"{word}\" is not a memory policy (known: auto, local, bind, preferred, interleave, weighted, none; hbm and other types mean preferred:hbm)"
                ));
            }
        };
        let over = match over {
            None => None,
            Some(_) if policy.is_some_and(|policy| !policy.takes_nodes()) => {
                return Err(format!("memory policy {word} takes no nodes"));
            }
            Some(over) => Some(match (tier(over), over) {
                (Some(tier), _) => MemoryNodes::Tier(tier),
                (None, numbers) => {
                    let nodes: NodeSet = numbers.parse().map_err(|error: crate::set::ListError| {
                        format!("{error}; expected node numbers (0,2) or a tier (dram, hbm, cxl, nvm, gpu)")
                    })?;
                    if nodes.is_empty() {
                        return Err(format!("no node is named after \"{word}:\""));
                    }
                    MemoryNodes::Numbers(nodes)
                }
            }),
        };
        Ok(Self { policy, over, size: None })
    }
}

/// Returns the type of memory that a word names.
fn tier(word: &str) -> Option<Tier> {
    let words = [
        ("dram", Tier::Dram),
        ("hbm", Tier::Hbm),
        ("cxl", Tier::Cxl),
        ("nvm", Tier::Nvm),
        ("gpu", Tier::Gpu),
    ];
    words.into_iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, tier)| tier)
}

/// Memory of a plan: the policy, the memory that the run holds, and the reasons, that of the policy
/// last.
pub(super) struct DerivedMemory {
    pub(super) plan: MemoryPlan,
    pub(super) hold: Vec<NodeMemory>,
    pub(super) reasons: Vec<Reason>,
}

/// Returns the memory for a plan over `nodes`.
pub(super) fn derive(
    machine: &Machine,
    request: &MemoryRequest,
    taken: &Taken,
    nodes: &NodeSet,
) -> Result<DerivedMemory, PlaceError> {
    let (over, mut why) = over(machine, request, taken, nodes)?;
    let WithRoom { over, hold, reason } = match request.size {
        Some(size) => with_room(machine, request, taken, nodes, over, size)?,
        None => WithRoom { over, hold: Vec::new(), reason: None },
    };
    if matches!(&reason, Some(Reason::Room { added, .. }) if !added.is_empty()) {
        why += ", and the nearest with more memory";
    }
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
    let plan = MemoryPlan { policy, nodes: nodes.clone() };
    let others = request.size.and_then(|_| of_others(machine, taken));
    let reasons = others.into_iter().chain(reason).chain([Reason::Memory { policy, nodes, why }]).collect();
    Ok(DerivedMemory { plan, hold, reasons })
}

/// Returns the reason about memory that others hold.
fn of_others(machine: &Machine, taken: &Taken) -> Option<Reason> {
    let of = |node: &Node| NodeMemory { node: node.os, bytes: held(node, taken) };
    let memory: Vec<_> = machine.nodes().iter().map(of).filter(|memory| memory.bytes > 0).collect();
    (!memory.is_empty()).then_some(Reason::MemoryHeld { memory })
}

/// Returns the nodes of a policy, and their origin in words.
fn over(
    machine: &Machine,
    request: &MemoryRequest,
    taken: &Taken,
    nodes: &NodeSet,
) -> Result<(NodeSet, String), PlaceError> {
    let known = permitted(machine, taken);
    match &request.over {
        None => {
            let free = usable(machine, taken).intersection(nodes);
            // A policy over full nodes is better than none: the kernel takes the nearest other.
            let own = if free.is_empty() { known.intersection(nodes) } else { free };
            Ok((own, "the nodes of the cores chosen".to_owned()))
        }
        Some(MemoryNodes::Numbers(numbers)) => {
            let out = numbers.difference(&known);
            if !out.is_empty() {
                return Err(PlaceError::NoSuchNodes { nodes: out, known });
            }
            Ok((numbers.clone(), "the nodes asked for".to_owned()))
        }
        Some(MemoryNodes::Tier(tier)) => {
            let nearest = nearest_of_tier(machine, *tier, nodes, &known);
            if nearest.is_empty() {
                return Err(PlaceError::NoSuchTier { tier: *tier });
            }
            Ok((nearest, format!("the {tier} nodes nearest to the cores chosen")))
        }
    }
}

/// Nodes of a policy that have the requested memory, and the share of each.
struct WithRoom {
    over: NodeSet,
    hold: Vec<NodeMemory>,
    reason: Option<Reason>,
}

/// Returns the nodes of a policy with the nearest others that are needed for `size` bytes, and the
/// reason. Nodes that the user named stay as they are. Nodes without CPUs are added for no one who
/// did not name them.
fn with_room(
    machine: &Machine,
    request: &MemoryRequest,
    taken: &Taken,
    cores: &NodeSet,
    over: NodeSet,
    size: MemorySize,
) -> Result<WithRoom, PlaceError> {
    let of = |nodes: &NodeSet| -> Option<u64> {
        let rooms = machine.nodes().iter().filter(|node| nodes.contains(node.os));
        rooms.map(|node| room(node, taken)).try_fold(0u64, |sum, room| Some(sum.saturating_add(room?)))
    };
    let enough = |nodes: &NodeSet| of(nodes).is_none_or(|room| room >= size.0);
    let mut all = over.clone();
    let mut in_order = Vec::new();
    if request.over.is_none() {
        let usable = usable(machine, taken);
        let from = distances_from(machine, if over.is_empty() { cores } else { &over });
        let mut others: Vec<_> = (0..)
            .zip(machine.nodes())
            .filter(|(_, node)| usable.contains(node.os) && !over.contains(node.os) && !node.cores.is_empty())
            .map(|(at, node): (usize, _)| (from[at], node.os))
            .collect();
        others.sort_unstable();
        for (_, node) in others {
            if !all.is_empty() && enough(&all) {
                break;
            }
            all.insert(node);
            in_order.push(node);
        }
    }
    if machine.nodes().is_empty() {
        let reason = Some(Reason::Room { asked: size, nodes: all, room: None, added: NodeSet::new() });
        return Ok(WithRoom { over, hold: Vec::new(), reason });
    }
    if !enough(&all) {
        let room = MemorySize(of(&all).unwrap_or(0));
        let of_others = machine.nodes().iter().filter(|node| all.contains(node.os));
        let held = of_others.map(|node| held(node, taken)).fold(0, u64::saturating_add);
        return Err(PlaceError::NoRoom { asked: size, room, nodes: all, held: MemorySize(held) });
    }
    let added = all.difference(&over);
    let room_of = |os| {
        let node = machine.nodes().iter().find(|node| node.os == os);
        (os, node.and_then(|node| room(node, taken)))
    };
    let mut groups: Vec<Vec<_>> = vec![over.iter().map(room_of).collect()];
    match request.policy {
        // Pages alternate over all nodes.
        Some(MemoryPolicy::Interleave | MemoryPolicy::Weighted) => {
            groups[0].extend(in_order.into_iter().map(room_of));
        }
        // The nodes of the cores are filled first, then the nearest others.
        _ => groups.extend(in_order.into_iter().map(|node| vec![room_of(node)])),
    }
    let room = of(&over).map(MemorySize);
    let reason = Some(Reason::Room { asked: size, nodes: over, room, added });
    Ok(WithRoom { over: all, hold: spread(size.0, groups), reason })
}

/// Returns the usable nodes of a tier that are nearest to any node of `to`.
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
