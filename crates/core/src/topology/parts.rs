//! Flat parts of a machine: the output of discovery, the content of the cache, and the input of
//! [`Machine`](super::Machine).
//!
//! Unit: positions in the PU list. Every object of the machine covers a run of consecutive PUs when
//! the PUs are listed depth first. An object is therefore a level and a half-open range, and the
//! tree need not be stored: sorting the ranges restores it. Parts are untrusted;
//! [`Machine::build`](super::Machine::build) checks all of them.

use crate::ids::{OsCpu, OsNode};
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Level of an object, outermost first. The order breaks ties between objects that cover the same
/// PUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The whole machine: exactly one object.
    Machine,
    /// Boards, books, distance groups, sub-NUMA clusters without memory: any group reported by
    /// hwloc.
    Group,
    /// Socket.
    Package,
    /// Die within a package.
    Die,
    /// PUs that share one NUMA node as local memory.
    Node,
    /// Third-level cache (CCX, L3 slice).
    L3,
    /// Second-level cache (private, module or cluster).
    L2,
    /// Physical core.
    Core,
}

impl Level {
    /// All levels, outermost first.
    pub const ALL: [Self; 8] =
        [Self::Machine, Self::Group, Self::Package, Self::Die, Self::Node, Self::L3, Self::L2, Self::Core];

    /// Returns the word for this level in commands and output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Group => "group",
            Self::Package => "package",
            Self::Die => "die",
            Self::Node => "node",
            Self::L3 => "l3",
            Self::L2 => "l2",
            Self::Core => "core",
        }
    }

    /// Returns the level that a word names, in any of its usual spellings.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "machine" => Self::Machine,
            "group" | "board" | "book" => Self::Group,
            "package" | "pack" | "socket" => Self::Package,
            "die" => Self::Die,
            "node" | "numa" | "numanode" => Self::Node,
            "l3" | "l3cache" | "llc" | "ccx" => Self::L3,
            "l2" | "l2cache" => Self::L2,
            "core" => Self::Core,
            _ => return None,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Object above the PUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// Level of the object.
    pub level: Level,
    /// Number given by the kernel or firmware; `None` if there is none.
    pub os: Option<u32>,
    /// First PU, as a position in [`Parts::pus`].
    pub first: u32,
    /// Number of PUs.
    pub count: u32,
}

/// Size of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CachePart {
    /// [`Level::L3`] or [`Level::L2`].
    pub level: Level,
    /// First PU, as a position in [`Parts::pus`].
    pub first: u32,
    /// Number of PUs.
    pub count: u32,
    /// Size in bytes.
    pub bytes: u64,
}

/// Speed of a node's memory from its nearest CPUs, by the firmware's table (HMAT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemorySpeed {
    /// The node.
    pub node: OsNode,
    /// Bandwidth in MB/s; `None` if unknown.
    pub bandwidth: Option<u64>,
    /// Latency in nanoseconds; `None` if unknown.
    pub latency: Option<u64>,
}

/// Type of a NUMA node's memory, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Ordinary memory.
    Dram,
    /// On-package high-bandwidth memory (MCDRAM, HBM).
    Hbm,
    /// Memory behind a CXL link.
    Cxl,
    /// Persistent memory.
    Nvm,
    /// Memory of an accelerator that the kernel shows as a node.
    Gpu,
    /// Any other memory that is not ordinary.
    Other,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dram => "DRAM",
            Self::Hbm => "HBM",
            Self::Cxl => "CXL",
            Self::Nvm => "NVM",
            Self::Gpu => "GPU memory",
            Self::Other => "other memory",
        })
    }
}

/// NUMA node: memory, and the PUs nearest to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodePart {
    /// Number given by the kernel.
    pub os: OsNode,
    /// First PU of the locality, as a position in [`Parts::pus`].
    pub first: u32,
    /// Number of PUs of the locality: 0 if no PU is near the node or none is known.
    pub count: u32,
    /// Memory in bytes; `None` if the source does not report it.
    pub bytes: Option<u64>,
    /// Type of memory.
    pub tier: Tier,
    /// Whether the node can be the home of PUs: false for nodes known to have no CPU.
    pub has_cpus: bool,
}

/// Set of CPUs of one make, as reported by discovery before equal makes are joined.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KindPart {
    /// CPUs of this kind.
    pub cpus: CpuSet,
    /// Manufacturer's word for the kind (`IntelCore`, `IntelAtom`), if known.
    pub make: Option<String>,
    /// Performance rank given by the source; higher is faster.
    pub efficiency: Option<u32>,
    /// Highest frequency in MHz.
    pub mhz_max: Option<u32>,
    /// The kernel's `cpu_capacity`: 1024 for the largest core.
    pub capacity: Option<u32>,
}

/// Purpose of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// Graphics processor or accelerator.
    Gpu,
    /// Network or InfiniBand interface.
    Nic,
    /// Disk or other block device.
    Storage,
}

/// Device and its nearest CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Purpose.
    pub kind: DeviceKind,
    /// The kernel's names for the device (`eth0`, `mlx5_0`, `card0`), or its model if it has no
    /// name.
    pub name: String,
    /// PCI bus id; `None` if it has none.
    pub address: Option<String>,
    /// PCI number of its maker; `None` if unknown.
    #[serde(default)]
    pub vendor: Option<u16>,
    /// Nearest CPUs.
    pub cpus: CpuSet,
}

/// Vendor and family of the processor: enough to determine which of its units are shared.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CpuModel {
    /// Vendor as named by CPUID or the kernel (`AuthenticAMD`).
    pub vendor: Option<String>,
    /// Family number, decimal.
    pub family: Option<u32>,
    /// Marketing name.
    pub model: Option<String>,
}

impl CpuModel {
    /// Returns whether the two cores of a module share one floating-point unit and the second-level
    /// cache. This is AMD family 15h (Bulldozer to Excavator), the machines that motivated the
    /// stride strategies.
    pub fn shares_fpu_by_l2(&self) -> bool {
        self.vendor.as_deref() == Some("AuthenticAMD") && self.family == Some(0x15)
    }
}

/// All parts of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Parts {
    /// Name: a host name, a file name or a synthetic description.
    pub name: String,
    /// Processor model.
    pub cpu: CpuModel,
    /// Kernel number of each PU, depth first through the machine.
    pub pus: Vec<OsCpu>,
    /// Objects, in any order. A machine object and missing cores are added if absent.
    pub domains: Vec<Domain>,
    /// NUMA nodes, in any order.
    pub nodes: Vec<NodePart>,
    /// Relative latency between nodes, row by row in the order of `nodes`; empty if unknown.
    pub distances: Vec<u32>,
    /// Core kinds as reported; empty on uniform machines.
    pub kinds: Vec<KindPart>,
    /// Devices with known locality.
    pub devices: Vec<Device>,
    /// CPUs that exist but are offline.
    pub offline: CpuSet,
    /// CPUs that a program may use according to the source; `None` for all CPUs.
    pub allowed: Option<CpuSet>,
    /// Sizes of caches, as far as known.
    #[serde(default)]
    pub caches: Vec<CachePart>,
    /// Speeds of nodes, as far as known.
    #[serde(default)]
    pub memory_speeds: Vec<MemorySpeed>,
}
