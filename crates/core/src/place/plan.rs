//! Plan of a run: its resources and the reasons, as a value.

use super::grant::GrantedCores;
use super::held_memory::{NodeMemory, listed};
use super::memory::{HugePages, MemoryPlan, MemoryPolicy};
use super::memory_size::MemorySize;
use super::request::Amount;
use super::strategy::Strategy;
use crate::ids::{CoreId, LlcId, OsCpu, OsNode};
use crate::set::{CpuSet, NodeSet};
use crate::topology::Level;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Place for one thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// Hardware thread.
    pub cpu: OsCpu,
    /// Core, by index in the model.
    pub core: CoreId,
    /// Last-level cache, by index in the model.
    pub llc: LlcId,
    /// Home node, if the machine has nodes.
    pub node: Option<OsNode>,
}

/// Locations of a run's threads and memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Requested amount.
    pub amount: Amount,
    /// Layout of the threads.
    pub strategy: Strategy,
    /// Slots of the threads, in thread order.
    pub slots: Vec<Slot>,
    /// Affinity mask of the process: the CPUs of the slots.
    pub mask: CpuSet,
    /// CPUs that the run reserves: the mask, the idle siblings of its cores, and the cores that its
    /// stride keeps free.
    pub hold: CpuSet,
    /// Nodes of the slots.
    pub nodes: NodeSet,
    /// The memory policy.
    pub memory: MemoryPlan,
    /// Memory that the run reserves, by node; empty if no amount was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_hold: Vec<NodeMemory>,
    /// Transparent huge pages.
    pub huge_pages: HugePages,
    /// Number of threads that a program should start: one per slot, or fewer under a CPU quota.
    pub threads: u32,
    /// Reasons, in the order of the choices.
    pub reasons: Vec<Reason>,
}

/// Choice and its cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Part of the machine may not be used.
    Limited {
        /// Number of remaining CPUs.
        allowed: usize,
        /// Number of CPUs of the machine.
        of: usize,
        /// Cause of the limit, in words.
        by: String,
    },
    /// `auto` was resolved.
    Auto {
        /// Number of cores that are free or less than half busy.
        free: usize,
        /// Default of the site, if it limited the answer.
        cap: Option<u32>,
    },
    /// A workload manager granted the job fewer cores than `auto` would take.
    Granted(GrantedCores),
    /// A percentage was resolved.
    Share {
        /// The percentage.
        percent: u32,
        /// Number of allowed cores.
        of: usize,
        /// Resulting number of cores.
        cores: u32,
    },
    /// Fewer cores than requested, as permitted by the user.
    Fewer {
        /// Number of requested cores.
        asked: u32,
        /// Number of cores in the plan.
        got: u32,
    },
    /// The slots fit one unit.
    Fits {
        /// Level of the unit.
        level: Level,
        /// Number of the unit.
        number: u32,
        /// Number of free cores that the unit had.
        free: usize,
        /// Number of its cores that the plan uses.
        taken: usize,
    },
    /// The slots span several units because none was large enough.
    Spans {
        /// Level of the units.
        level: Level,
        /// Number of units.
        count: usize,
        /// Number of cores requested of them together.
        cores: usize,
        /// Number of free cores that the strategy could use in the best single unit.
        best: usize,
    },
    /// The slots were spread on purpose.
    Spread {
        /// Number of nodes used.
        nodes: usize,
        /// Number of LLCs used.
        llcs: usize,
    },
    /// A stride excluded cores.
    Strided {
        /// The stride.
        strategy: Strategy,
        /// Number of cores held but idle because they share the unit with a slot.
        idle: usize,
    },
    /// Cores were avoided.
    Avoided {
        /// State of the cores, which is the cause.
        state: super::CpuState,
        /// Avoided CPUs.
        cpus: CpuSet,
    },
    /// Cores were used although not free.
    UsedAnyway {
        /// State of the cores, which is the obstacle.
        state: super::CpuState,
        /// Used CPUs.
        cpus: CpuSet,
        /// Highest sampled load among them, in thousandths.
        load: u16,
    },
    /// Cores without local memory were used or avoided.
    Remote {
        /// CPUs of these cores.
        cpus: CpuSet,
        /// Whether they were used.
        used: bool,
        /// Whether the user named the CPUs of the plan.
        named: bool,
    },
    /// Cores were used or avoided because other programs use up the memory of their nodes.
    Full {
        /// The nodes.
        nodes: NodeSet,
        /// CPUs of these nodes.
        cpus: CpuSet,
        /// Whether they were used.
        used: bool,
    },
    /// Cores were chosen near to a device.
    Near {
        /// The device, as asked for.
        device: String,
        /// CPUs of the plan that are not among the nearest to it.
        far: CpuSet,
    },
    /// Sibling hardware threads stay idle so that each slot has a whole core.
    WholeCores {
        /// Idle siblings.
        idle: CpuSet,
    },
    /// Sibling hardware threads are outside the allowed set and cannot be kept idle.
    SiblingsForeign {
        /// Sibling CPUs.
        cpus: CpuSet,
    },
    /// A hybrid machine: one kind was chosen.
    Kind {
        /// Name of the kind.
        name: String,
        /// Number of unused cores of other kinds.
        left: usize,
    },
    /// The cores with the largest last-level cache were requested.
    LargestCache {
        /// Size of this cache.
        bytes: MemorySize,
        /// Number of cores with a smaller one.
        left: usize,
    },
    /// A hybrid machine: no kind had enough cores.
    KindsMixed {
        /// Number of requested cores.
        cores: u32,
    },
    /// Choice of the memory policy.
    Memory {
        /// The policy.
        policy: MemoryPolicy,
        /// Its nodes.
        nodes: NodeSet,
        /// Reason, in words.
        why: String,
    },
    /// The nodes have the requested memory.
    Room {
        /// Requested memory.
        asked: MemorySize,
        /// Nodes of the chosen cores, or those that the user named.
        nodes: NodeSet,
        /// Memory that is available there; `None` if it is not known.
        room: Option<MemorySize>,
        /// Nodes that were added because these do not suffice.
        added: NodeSet,
    },
    /// Other runs hold memory that they do not use yet, so that less can be had than is free.
    MemoryHeld {
        /// The memory, by node.
        memory: Vec<NodeMemory>,
    },
    /// The quota is below the number of slots.
    Quota {
        /// Quota in thousandths of a CPU.
        quota: u32,
        /// Number of slots.
        slots: usize,
        /// Number of threads that a program should start.
        threads: u32,
    },
    /// One rank's share of an allotment.
    Rank {
        /// Number of the rank on this machine.
        rank: u32,
        /// Number of ranks on this machine.
        of: u32,
        /// CPUs of the whole allotment.
        allotment: CpuSet,
    },
    /// Decision of the caller outside placement (program kind, rules), in words.
    Note {
        /// Text of the note.
        text: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited { .. }
            | Self::Auto { .. }
            | Self::Granted(_)
            | Self::Share { .. }
            | Self::Fewer { .. } => self.fmt_count(f),
            Self::Fits { .. } | Self::Spans { .. } | Self::Spread { .. } | Self::Strided { .. } => {
                self.fmt_layout(f)
            }
            Self::Avoided { .. }
            | Self::UsedAnyway { .. }
            | Self::Remote { .. }
            | Self::Full { .. }
            | Self::Near { .. }
            | Self::WholeCores { .. }
            | Self::SiblingsForeign { .. } => self.fmt_occupancy(f),
            Self::Kind { .. }
            | Self::LargestCache { .. }
            | Self::KindsMixed { .. }
            | Self::Memory { .. }
            | Self::Room { .. }
            | Self::MemoryHeld { .. }
            | Self::Quota { .. }
            | Self::Rank { .. }
            | Self::Note { .. } => self.fmt_resource(f),
        }
    }
}

impl Reason {
    /// Writes a reason for the number of cores.
    fn fmt_count(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited { allowed, of, by } => write!(f, "{allowed} of {of} CPUs may be used: {by}"),
            Self::Auto { free: 0, .. } => {
                write!(f, "auto: every core is held, bound to or at least half busy; one is taken")
            }
            Self::Auto { free, cap: None } => {
                write!(f, "auto: all {} that are free or less than half busy", plural(*free, "core"))
            }
            Self::Auto { free, cap: Some(cap) } => {
                write!(
                    f,
                    "auto: {} free or less than half busy, the site's default is {cap}",
                    plural(*free, "core")
                )
            }
            Self::Granted(GrantedCores { variable, cpus, cores }) => {
                write!(
                    f,
                    "{variable} grants this job {}: {} taken (-c N takes more)",
                    plural(*cpus as usize, "CPU"),
                    if *cores == 1 { "1 core is".to_owned() } else { format!("{cores} cores are") }
                )
            }
            Self::Share { percent, of, cores } => {
                write!(
                    f,
                    "{percent}% of {} is {}",
                    plural(*of, "allowed core"),
                    plural(*cores as usize, "core")
                )
            }
            Self::Fewer { asked, got } => {
                write!(f, "{got} instead of {asked} cores: fewer were accepted (--or-fewer)")
            }
            _ => Ok(()),
        }
    }

    /// Writes a reason for the layout of the cores.
    fn fmt_layout(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits { level, number, free, taken } => {
                let rest = free - taken;
                write!(f, "all in {level} {number}, which had {free} free: ")?;
                match rest {
                    0 => write!(f, "an exact fit"),
                    rest => write!(f, "the tightest fit, {rest} stay free there"),
                }
            }
            Self::Spans { level, count, cores, best } => {
                write!(
                    f,
                    "spans {count} {level}s: no {level} has room for {cores} slots, the best for {best}"
                )
            }
            Self::Spread { nodes, llcs } => {
                write!(f, "spread over {} and {}", plural(*nodes, "node"), plural(*llcs, "last-level cache"))
            }
            Self::Strided { strategy, idle: 0 } => {
                write!(f, "{strategy}: the cores between stay free for others")
            }
            Self::Strided { strategy, idle } => {
                write!(
                    f,
                    "{strategy}: {} held but idle, so that no other program shares the unit",
                    plural(*idle, "core")
                )
            }
            _ => Ok(()),
        }
    }

    /// Writes a reason about CPUs that were avoided, or used although they are not free.
    fn fmt_occupancy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Avoided { state, cpus } => write!(f, "avoided CPUs {cpus}: {}", words(*state)),
            Self::UsedAnyway { state, cpus, load } => {
                write!(f, "uses CPUs {cpus} although {}", words(*state))?;
                if *load > 0 {
                    write!(f, " ({}% load)", load / 10)?;
                }
                write!(f, ": no cheaper CPUs are left")
            }
            Self::Remote { cpus, used: false, .. } => {
                write!(f, "avoided CPUs {cpus}: they have no memory of their own")
            }
            Self::Remote { cpus, named: true, .. } => {
                write!(f, "CPUs {cpus} have no memory of their own: all memory they use is on other nodes")
            }
            Self::Remote { cpus, .. } => {
                write!(
                    f,
                    "uses CPUs {cpus} although they have no memory of their own: the cores that have some do not suffice"
                )
            }
            Self::Full { nodes, cpus, used: false } => {
                write!(f, "avoided CPUs {cpus}: the memory of node {nodes} is in use")
            }
            Self::Full { nodes, cpus, .. } => write!(
                f,
                "uses CPUs {cpus} although the memory of node {nodes} is in use: the cores of other nodes do not suffice"
            ),
            Self::Near { device, far } if far.is_empty() => write!(f, "all near {device}"),
            Self::Near { device, far } => {
                write!(f, "CPUs {far} are not near {device}: the cores near it do not suffice")
            }
            Self::WholeCores { idle } => {
                write!(f, "whole cores: sibling CPUs {idle} stay idle (--smt all would use them)")
            }
            Self::SiblingsForeign { cpus } => {
                write!(f, "sibling CPUs {cpus} are outside the allowed set, so another program may run there")
            }
            _ => Ok(()),
        }
    }

    /// Writes a reason about core kinds, memory, quota or ranks.
    fn fmt_resource(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { name, left } => {
                write!(
                    f,
                    "{name}-cores only: {} of other kinds would hold barriers back (--kind any)",
                    plural(*left, "core")
                )
            }
            Self::LargestCache { bytes, left: 0 } => {
                write!(
                    f,
                    "all last-level caches have the same size, {bytes}: --kind largest-l3 excludes none"
                )
            }
            Self::LargestCache { bytes, left } => write!(
                f,
                "only cores with the largest last-level cache, {bytes}: {} a smaller one (--kind any)",
                if *left == 1 { "1 core has".to_owned() } else { format!("{left} cores have") }
            ),
            Self::KindsMixed { cores } => write!(f, "no core kind has {cores} cores: kinds are mixed"),
            Self::Memory { policy: MemoryPolicy::None, why, .. } => {
                write!(f, "memory policy left alone: {why}")
            }
            Self::Memory { policy, nodes, why } if nodes.is_empty() => write!(f, "memory {policy}: {why}"),
            Self::Memory { policy, nodes, why } => write!(f, "memory {policy} on node {nodes}: {why}"),
            Self::Room { asked, room: None, .. } => {
                write!(f, "{asked} of memory asked for: the amount that is available is not known")
            }
            Self::Room { asked, nodes, room: Some(room), added } if added.is_empty() => {
                write!(f, "{asked} of memory asked for: node {nodes} has {room}")
            }
            Self::Room { asked, nodes, added, .. } if nodes.is_empty() => {
                write!(f, "{asked} of memory asked for: node {added} is the nearest that has it")
            }
            Self::Room { asked, nodes, room: Some(room), added } => write!(
                f,
                "{asked} of memory asked for, but node {nodes} has {room}: node {added} is added, the nearest with more"
            ),
            Self::MemoryHeld { memory } => {
                write!(f, "others hold memory that they do not use yet: {} (trimtab ps)", listed(memory))
            }
            Self::Quota { quota, slots, threads } => write!(
                f,
                "the cgroup grants {}.{:02} CPUs of time for {}: {} advised",
                quota / 1000,
                quota % 1000 / 10,
                plural(*slots, "slot"),
                plural(*threads, "thread")
            ),
            Self::Rank { rank, of, allotment } => {
                write!(f, "local rank {rank} of {of}: its part of CPUs {allotment}")
            }
            Self::Note { text } => f.write_str(text),
            _ => Ok(()),
        }
    }
}

fn words(state: super::CpuState) -> &'static str {
    match state {
        super::CpuState::Free => "free",
        super::CpuState::Busy => "other programs keep them busy",
        super::CpuState::Pinned => "other programs are bound to them",
        super::CpuState::Held => "they are held for other programs",
        super::CpuState::Disallowed => "they are not allowed",
    }
}
