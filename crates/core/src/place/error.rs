//! Errors of placement: reasons why a request cannot be met.

use super::strategy::Strategy;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Level, Tier};
use crate::words::plural;
use serde::Serialize;
use thiserror::Error;

/// Reason why a request cannot be met, with the request, the resources and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PlaceError {
    /// The process may not use any CPU.
    #[error("no CPU of this machine may be used by this process (empty affinity mask or cpuset)")]
    NothingAllowed,
    /// More cores are requested than the machine allows.
    #[error("{} asked for, but only {} may be used here (mask, cpuset, --cpus, --kind and site rules together); ask for at most {exist}, or add --or-fewer", plural(*asked as usize, "core"), plural(*exist, "core"))]
    MoreThanExist {
        /// Number of requested cores.
        asked: u32,
        /// Number of allowed cores.
        exist: usize,
    },
    /// There are not enough free cores at present.
    #[error("{}", not_enough(*asked, *free, held, *strategy))]
    NotEnough {
        /// Number of requested cores.
        asked: u32,
        /// Number of cores available at present.
        free: u32,
        /// CPUs held by others.
        held: CpuSet,
        /// The strategy, which may need more room than the count suggests.
        strategy: Strategy,
    },
    /// The machine has no such unit.
    #[error("this machine has no {level}; it has: {}", known.iter().map(|level| level.word()).collect::<Vec<_>>().join(", "))]
    NoSuchUnit {
        /// Requested unit.
        level: Level,
        /// Units of the machine.
        known: Vec<Level>,
    },
    /// More units are requested than exist.
    #[error("{} asked for, but this machine has {exist}", plural(*asked as usize, level.word()))]
    MoreUnitsThanExist {
        /// Number of requested units.
        asked: u32,
        /// Number of existing units.
        exist: usize,
        /// Level of the units.
        level: Level,
    },
    /// More units are requested than have CPUs that this process may use.
    #[error("{} asked for, but the CPUs allowed here lie in {allowed}", plural(*asked as usize, level.word()))]
    UnitsNotAllowed {
        /// Number of requested units.
        asked: u32,
        /// Number of units with an allowed CPU.
        allowed: usize,
        /// Level of the units.
        level: Level,
    },
    /// There are not enough free units at present.
    #[error("{}", units_not_free(*asked, *free, *level, *per))]
    UnitsNotFree {
        /// Number of requested units.
        asked: u32,
        /// Number of free units.
        free: usize,
        /// Level of the units.
        level: Level,
        /// Number of requested cores in each unit.
        per: Option<u32>,
    },
    /// A stride leaves no core in the requested unit.
    #[error(
        "{strategy} leaves no core in a {level}: its step is larger than the {level}, or other runs use all of them; ask for a larger unit or a count"
    )]
    StrideTooWide {
        /// The stride.
        strategy: Strategy,
        /// Level of the unit.
        level: Level,
    },
    /// Named CPUs do not exist.
    #[error("CPUs {cpus} {} (this machine has {known})", if offline.is_empty() { "do not exist" } else { "are offline or do not exist" })]
    NoSuchCpus {
        /// Missing CPUs.
        cpus: CpuSet,
        /// Those of them that exist but are offline.
        offline: CpuSet,
        /// CPUs of the machine.
        known: CpuSet,
    },
    /// Named CPUs may not be used.
    #[error("CPUs {cpus} may not be used by this process: its mask or cpuset allows {allowed}")]
    CpusNotAllowed {
        /// CPUs that are not allowed.
        cpus: CpuSet,
        /// CPUs that are allowed.
        allowed: CpuSet,
    },
    /// Named CPUs are held by other runs, or granted to others by another manager.
    #[error(
        "CPUs {cpus} are held by others (see trimtab ps); wait with --wait, or overlap on purpose with --share"
    )]
    CpusHeld {
        /// Held CPUs.
        cpus: CpuSet,
    },
    /// The set of named CPUs is empty.
    #[error("no CPU is named; give at least one, as in --cpus 0-3")]
    NoCpus,
    /// Ranks without a count of cores cannot have a core each.
    #[error(
        "--ranks {ranks} gives each rank a core of its own: {cause}; or state a count with -c, which ranks then share in turn"
    )]
    RanksWithoutCores {
        /// Number of ranks.
        ranks: u32,
        /// Reason why there are not as many cores.
        cause: Box<PlaceError>,
    },
    /// The request exceeds the site's limit.
    #[error("{} asked for, but the site's rules give one run at most {max}", plural(*asked as usize, "core"))]
    SiteMax {
        /// Number of requested cores.
        asked: u32,
        /// Limit of the site.
        max: u32,
    },
    /// The machine has no such core kind.
    #[error("this machine has no core kind \"{name}\"; it has: {}", known.join(", "))]
    NoSuchKind {
        /// Requested kind.
        name: String,
        /// Kinds of the machine.
        known: Vec<String>,
    },
    /// The sizes of the last-level caches are not known.
    #[error(
        "--kind largest-l3: the sizes of the last-level caches are not known here (trimtab topo shows the caches); name the CPUs with --cpus"
    )]
    CachesUnknown,
    /// None of the named CPUs has the largest last-level cache.
    #[error(
        "--kind largest-l3: CPUs {largest} have the largest last-level cache, and --cpus names none of them"
    )]
    NoLargestCache {
        /// CPUs with the largest last-level cache.
        largest: CpuSet,
    },
    /// Memory nodes do not exist or may not be used.
    #[error(
        "memory nodes {nodes} do not exist, have no memory or may not be allocated from (usable: {known})"
    )]
    NoSuchNodes {
        /// Requested nodes.
        nodes: NodeSet,
        /// Usable nodes.
        known: NodeSet,
    },
    /// The nodes of the run do not have the requested memory.
    #[error("{}", no_room(*asked, *room, *held, nodes))]
    NoRoom {
        /// Requested memory.
        asked: super::MemorySize,
        /// Memory that is available at present.
        room: super::MemorySize,
        /// Nodes that were considered.
        nodes: NodeSet,
        /// Memory of these nodes that others hold and do not use yet.
        held: super::MemorySize,
    },
    /// The machine has no node with this type of memory.
    #[error("this machine has no {tier} node")]
    NoSuchTier {
        /// Requested type of memory.
        tier: Tier,
    },
}

impl PlaceError {
    /// Returns whether the same request could succeed later, after other runs have ended.
    pub fn passes(&self) -> bool {
        match self {
            Self::NotEnough { held, .. } => !held.is_empty(),
            Self::UnitsNotFree { .. } | Self::CpusHeld { .. } => true,
            Self::NoRoom { asked, room, held, .. } => held.0 > 0 && asked.0 <= room.0.saturating_add(held.0),
            Self::RanksWithoutCores { cause, .. } => cause.passes(),
            _ => false,
        }
    }
}

fn not_enough(asked: u32, free: u32, held: &CpuSet, strategy: Strategy) -> String {
    let cause = match (held.is_empty(), strategy) {
        (false, _) => format!("CPUs {held} are held by others (see trimtab ps)"),
        (true, Strategy::Stride(_)) => format!("{strategy} leaves out the others"),
        (true, _) => "the rest are of another kind or outside --cpus".to_owned(),
    };
    let remedy = match (held.is_empty(), free) {
        (false, 0) => "wait with --wait, or overlap on purpose with --share",
        (false, _) => "wait with --wait, or accept less with --or-fewer",
        (true, _) => "accept less with --or-fewer",
    };
    let asked = plural(asked as usize, "core");
    format!("{asked} asked for, {free} can be had now: {cause}; {remedy}")
}

fn no_room(
    asked: super::MemorySize,
    room: super::MemorySize,
    held: super::MemorySize,
    nodes: &NodeSet,
) -> String {
    if nodes.is_empty() {
        return format!("{asked} of memory asked for (--mem-size), but no node may be allocated from");
    }
    let node = if nodes.len() == 1 { "node" } else { "nodes" };
    let had = format!("{asked} of memory asked for (--mem-size), {room} can be had now on {node} {nodes}");
    match held.0 {
        0 => format!(
            "{had}; ask for less, name other nodes with --mem, or try again when other programs have ended"
        ),
        _ => format!(
            "{had}, and others hold {held} there that they do not use yet (see trimtab ps); wait with --wait, ask for less, or name other nodes with --mem"
        ),
    }
}

fn units_not_free(asked: u32, free: usize, level: Level, per: Option<u32>) -> String {
    let what = match per {
        None => format!("wholly free {level}"),
        Some(per) => format!("{level} with {} free", plural(per as usize, "core")),
    };
    format!(
        "{} asked for, {free} can be had now; see trimtab topo, wait with --wait, or accept less with --or-fewer",
        plural(asked as usize, &what)
    )
}
