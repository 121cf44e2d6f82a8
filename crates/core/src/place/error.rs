//! Why a request cannot be met.

use super::request::Strategy;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Level, Tier};
use crate::words::plural;
use serde::Serialize;
use thiserror::Error;

/// Why a request cannot be met: what was asked, what there is, what would help.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PlaceError {
    /// No CPU may be used at all.
    #[error("no CPU of this machine may be used by this process (empty affinity mask or cpuset)")]
    NothingAllowed,
    /// More cores asked for than the machine allows.
    #[error("{} asked for, but only {} may be used here (mask, cpuset, --cpus and site rules together); ask for at most {exist}, or add --or-fewer", plural(*asked as usize, "core"), plural(*exist, "core"))]
    MoreThanExist {
        /// Cores asked for.
        asked: u32,
        /// Cores that are allowed.
        exist: usize,
    },
    /// Not enough free cores now.
    #[error("{}", not_enough(*asked, *free, held, *strategy))]
    NotEnough {
        /// Cores asked for.
        asked: u32,
        /// Cores that could be had now.
        free: u32,
        /// CPUs other runs hold.
        held: CpuSet,
        /// The strategy, which may need more room than the count says.
        strategy: Strategy,
    },
    /// The machine has no such unit.
    #[error("this machine has no {level}; it has: {}", known.iter().map(|level| level.word()).collect::<Vec<_>>().join(", "))]
    NoSuchUnit {
        /// The unit asked for.
        level: Level,
        /// The units there are.
        known: Vec<Level>,
    },
    /// More units asked for than exist.
    #[error("{} asked for, but this machine has {exist}", plural(*asked as usize, level.word()))]
    MoreUnitsThanExist {
        /// Units asked for.
        asked: u32,
        /// Units there are.
        exist: usize,
        /// The unit.
        level: Level,
    },
    /// More units asked for than have CPUs this process may use.
    #[error("{} asked for, but the CPUs allowed here lie in {allowed}", plural(*asked as usize, level.word()))]
    UnitsNotAllowed {
        /// Units asked for.
        asked: u32,
        /// Units with an allowed CPU.
        allowed: usize,
        /// The unit.
        level: Level,
    },
    /// Not enough free units now.
    #[error("{}", units_not_free(*asked, *free, *level, *per))]
    UnitsNotFree {
        /// Units asked for.
        asked: u32,
        /// Units that are free.
        free: usize,
        /// The unit.
        level: Level,
        /// Cores wanted in each.
        per: Option<u32>,
    },
    /// A stride that leaves no core in the unit asked for.
    #[error(
        "{strategy} leaves no core in a {level}: what it steps over is larger, or other runs are in all of them; ask for a larger unit or a count"
    )]
    StrideTooWide {
        /// The stride.
        strategy: Strategy,
        /// The unit.
        level: Level,
    },
    /// CPUs named that do not exist.
    #[error("CPUs {cpus} {} (this machine has {known})", if offline.is_empty() { "do not exist" } else { "are offline or do not exist" })]
    NoSuchCpus {
        /// The CPUs.
        cpus: CpuSet,
        /// Those of them that exist but are switched off.
        offline: CpuSet,
        /// The CPUs there are.
        known: CpuSet,
    },
    /// CPUs named that may not be used.
    #[error("CPUs {cpus} may not be used by this process: its mask or cpuset allows {allowed}")]
    CpusNotAllowed {
        /// The CPUs.
        cpus: CpuSet,
        /// What is allowed.
        allowed: CpuSet,
    },
    /// CPUs named that another run holds.
    #[error(
        "CPUs {cpus} are held by another trimtab run (see trimtab ps); wait with --wait, or overlap on purpose with --share"
    )]
    CpusHeld {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// An empty set was named.
    #[error("no CPU is named; give at least one, as in --cpus 0-3")]
    NoCpus,
    /// The site's limit.
    #[error("{} asked for, but the site's rules give one run at most {max}", plural(*asked as usize, "core"))]
    SiteMax {
        /// Cores asked for.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// No such core kind.
    #[error("this machine has no core kind \"{name}\"; it has: {}", known.join(", "))]
    NoSuchKind {
        /// The kind asked for.
        name: String,
        /// The kinds there are.
        known: Vec<String>,
    },
    /// Memory nodes that do not exist or may not be used.
    #[error(
        "memory nodes {nodes} do not exist, have no memory or may not be allocated from (usable: {known})"
    )]
    NoSuchNodes {
        /// The nodes asked for.
        nodes: NodeSet,
        /// The nodes that can be used.
        known: NodeSet,
    },
    /// No node of this memory.
    #[error("this machine has no {tier} node")]
    NoSuchTier {
        /// The tier asked for.
        tier: Tier,
    },
}

impl PlaceError {
    /// Whether the same request could succeed later, when other runs have ended.
    pub fn passes(&self) -> bool {
        match self {
            Self::NotEnough { held, .. } => !held.is_empty(),
            Self::UnitsNotFree { .. } | Self::CpusHeld { .. } => true,
            _ => false,
        }
    }
}

fn not_enough(asked: u32, free: u32, held: &CpuSet, strategy: Strategy) -> String {
    let cause = match (held.is_empty(), strategy) {
        (false, _) => format!("CPUs {held} are held by other trimtab runs (see trimtab ps)"),
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
