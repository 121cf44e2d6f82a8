//! A plan: what a run gets, and why, as a value.

use super::memory::{HugePages, MemoryPlan, MemoryPolicy};
use super::request::{Amount, Strategy};
use crate::ids::{CoreId, LlcId, OsCpu, OsNode};
use crate::set::{CpuSet, NodeSet};
use crate::topology::Level;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A place for one thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// The hardware thread.
    pub cpu: OsCpu,
    /// Its core, by place in the model.
    pub core: CoreId,
    /// Its last-level cache, by place in the model.
    pub llc: LlcId,
    /// Its home node, where the machine has nodes.
    pub node: Option<OsNode>,
}

/// Where a run's threads and memory go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What was asked for.
    pub amount: Amount,
    /// How threads were laid out.
    pub strategy: Strategy,
    /// A place for each thread, in thread order.
    pub slots: Vec<Slot>,
    /// The process's affinity: the CPUs of the slots.
    pub mask: CpuSet,
    /// What the run reserves: the mask, the idle siblings of its cores, and what its stride keeps free.
    pub hold: CpuSet,
    /// The nodes of the slots.
    pub nodes: NodeSet,
    /// The memory policy.
    pub memory: MemoryPlan,
    /// Transparent huge pages.
    pub huge_pages: HugePages,
    /// How many threads a program should start: the slots, or fewer under a CPU quota.
    pub threads: u32,
    /// Why, in the order the choices were made.
    pub reasons: Vec<Reason>,
}

/// One choice and its cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Part of the machine is out of bounds.
    Limited {
        /// CPUs left.
        allowed: usize,
        /// CPUs before.
        of: usize,
        /// What took them, in words.
        by: String,
    },
    /// `auto` was resolved.
    Auto {
        /// Cores that are free or less than half busy.
        free: usize,
        /// The site's default, where it capped the answer.
        cap: Option<u32>,
    },
    /// A share was resolved.
    Share {
        /// The percentage.
        percent: u32,
        /// Allowed cores.
        of: usize,
        /// Cores this makes.
        cores: u32,
    },
    /// Less than asked, on request.
    Fewer {
        /// Cores asked for.
        asked: u32,
        /// Cores given.
        got: u32,
    },
    /// The slots fit one unit.
    Fits {
        /// The unit.
        level: Level,
        /// Its number.
        number: u32,
        /// Free cores it had.
        free: usize,
        /// Cores taken of it.
        taken: usize,
    },
    /// The slots span several units because none was large enough.
    Spans {
        /// The units.
        level: Level,
        /// How many.
        count: usize,
        /// Cores asked of them together.
        cores: usize,
        /// Free cores that the strategy could use in the best single one.
        best: usize,
    },
    /// The slots were spread on purpose.
    Spread {
        /// Nodes used.
        nodes: usize,
        /// LLCs used.
        llcs: usize,
    },
    /// A stride left cores out.
    Strided {
        /// The stride.
        strategy: Strategy,
        /// Cores held but idle because they share with a slot.
        idle: usize,
    },
    /// Cores were avoided.
    Avoided {
        /// Because of this.
        state: super::State,
        /// Which CPUs.
        cpus: CpuSet,
    },
    /// Cores were used although not free.
    UsedAnyway {
        /// What stands in the way.
        state: super::State,
        /// Which CPUs.
        cpus: CpuSet,
        /// Highest sampled load among them, in thousandths.
        load: u16,
    },
    /// Cores without memory of their own were used, or left aside.
    Remote {
        /// Their CPUs.
        cpus: CpuSet,
        /// Whether they were used.
        used: bool,
        /// Whether the user named the CPUs of the plan.
        named: bool,
    },
    /// Sibling hardware threads stay idle so that each slot has a whole core.
    WholeCores {
        /// The idle siblings.
        idle: CpuSet,
    },
    /// Sibling hardware threads are not ours to keep idle.
    SiblingsForeign {
        /// The siblings.
        cpus: CpuSet,
    },
    /// A hybrid machine: one kind was chosen.
    Kind {
        /// Its name.
        name: String,
        /// Cores of other kinds left out.
        left: usize,
    },
    /// A hybrid machine: no kind had enough cores.
    KindsMixed {
        /// Cores wanted.
        cores: u32,
    },
    /// Memory policy.
    Memory {
        /// The policy.
        policy: MemoryPolicy,
        /// Its nodes.
        nodes: NodeSet,
        /// Why, in words.
        why: String,
    },
    /// A quota below the slots.
    Quota {
        /// Thousandths of a CPU granted.
        quota: u32,
        /// Slots.
        slots: usize,
        /// Threads a program should start.
        threads: u32,
    },
    /// One rank's share of an allotment.
    Rank {
        /// Its local rank.
        rank: u32,
        /// Local ranks.
        of: u32,
        /// CPUs of the whole allotment.
        allotment: CpuSet,
    },
    /// Anything the caller decided outside placement (program kind, rules), in words.
    Note {
        /// The words.
        text: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
                    "{strategy}: {} held but idle, so that nobody shares the unit",
                    plural(*idle, "core")
                )
            }
            Self::Avoided { state, cpus } => write!(f, "avoided CPUs {cpus}: {}", words(*state)),
            Self::UsedAnyway { state, cpus, load } => {
                write!(f, "uses CPUs {cpus} although {}", words(*state))?;
                if *load > 0 {
                    write!(f, " ({}% load)", load / 10)?;
                }
                write!(f, ": nothing that costs less is left")
            }
            Self::Remote { cpus, used: false, .. } => {
                write!(f, "avoided CPUs {cpus}: they have no memory of their own")
            }
            Self::Remote { cpus, named: true, .. } => {
                write!(f, "CPUs {cpus} have no memory of their own: all they use is another node's")
            }
            Self::Remote { cpus, .. } => {
                write!(
                    f,
                    "uses CPUs {cpus} although they have no memory of their own: the cores that have some do not suffice"
                )
            }
            Self::WholeCores { idle } => {
                write!(f, "whole cores: sibling CPUs {idle} stay idle (--smt all would use them)")
            }
            Self::SiblingsForeign { cpus } => {
                write!(f, "sibling CPUs {cpus} are outside the allowed set, so another program may run there")
            }
            Self::Kind { name, left } => {
                write!(
                    f,
                    "{name}-cores only: {} of other kinds would hold barriers back (--kind any)",
                    plural(*left, "core")
                )
            }
            Self::KindsMixed { cores } => write!(f, "no core kind has {cores} cores: kinds are mixed"),
            Self::Memory { policy: MemoryPolicy::None, why, .. } => {
                write!(f, "memory policy left alone: {why}")
            }
            Self::Memory { policy, nodes, why } if nodes.is_empty() => write!(f, "memory {policy}: {why}"),
            Self::Memory { policy, nodes, why } => write!(f, "memory {policy} on node {nodes}: {why}"),
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
        }
    }
}

fn words(state: super::State) -> &'static str {
    match state {
        super::State::Free => "free",
        super::State::Busy => "other programs keep them busy",
        super::State::Pinned => "other programs are bound to them",
        super::State::Held => "other trimtab runs hold them",
        super::State::Disallowed => "they are not allowed",
    }
}
