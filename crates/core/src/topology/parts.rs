//! A machine as flat parts: what discovery writes, what the cache stores, what [`Machine`](super::Machine) is built of.
//!
//! Unit: positions in the PU list. Every object of the machine covers a run of consecutive PUs when the PUs are listed
//! depth first, so an object is a level and a half-open range, and the tree need not be stored: sorting the ranges gives
//! it back. Nothing here is trusted; [`Machine::build`](super::Machine::build) checks all of it.

use crate::ids::{OsCpu, OsNode};
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an object, outermost first. The order breaks ties between objects that cover the same PUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The whole machine: exactly one.
    Machine,
    /// Boards, books, distance groups, sub-NUMA clusters without memory: whatever hwloc groups.
    Group,
    /// A socket.
    Package,
    /// A die within a package.
    Die,
    /// The PUs whose local memory is one NUMA node.
    Node,
    /// A third-level cache (CCX, L3 slice).
    L3,
    /// A second-level cache (private, module or cluster).
    L2,
    /// A physical core.
    Core,
}

impl Level {
    /// All levels, outermost first.
    pub const ALL: [Self; 8] =
        [Self::Machine, Self::Group, Self::Package, Self::Die, Self::Node, Self::L3, Self::L2, Self::Core];

    /// The word a user types and reads for this level.
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

    /// The level a word names, in any of its usual spellings.
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

/// One object above the PUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// What it is.
    pub level: Level,
    /// The number the kernel or firmware gives it, where there is one.
    pub os: Option<u32>,
    /// Its first PU, as a position in [`Parts::pus`].
    pub first: u32,
    /// How many PUs it covers.
    pub count: u32,
}

/// What memory a NUMA node holds, best known.
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
    /// Anything else that is not ordinary memory.
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

/// One NUMA node: memory, and the PUs nearest to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodePart {
    /// The kernel's number.
    pub os: OsNode,
    /// First PU of its locality, as a position in [`Parts::pus`].
    pub first: u32,
    /// How many PUs its locality covers: 0 when no PU is near it or none is known.
    pub count: u32,
    /// Bytes of memory, where the source says.
    pub bytes: Option<u64>,
    /// What memory it is.
    pub tier: Tier,
    /// Whether PUs may call this node their own: false for nodes known to have no CPU.
    pub has_cpus: bool,
}

/// A set of CPUs of one make, as discovery reports it before alike ones are joined.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KindPart {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The maker's word for it (`IntelCore`, `IntelAtom`), where known.
    pub make: Option<String>,
    /// Rank by performance as the source gives it, higher is faster.
    pub efficiency: Option<u32>,
    /// Highest frequency, MHz.
    pub mhz_max: Option<u32>,
    /// The kernel's `cpu_capacity`, 1024 for the largest core.
    pub capacity: Option<u32>,
}

/// What a device is good for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A graphics processor or accelerator.
    Gpu,
    /// A network or InfiniBand interface.
    Nic,
    /// A disk or other block device.
    Storage,
}

/// A device and the PUs it is near to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// The kernel's names for it (`eth0`, `mlx5_0`, `card0`), or its model where it has none.
    pub name: String,
    /// Its PCI bus id, where it has one.
    pub address: Option<String>,
    /// The CPUs it is near to.
    pub cpus: CpuSet,
}

/// Who made the processor: enough to know which of its units are shared.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CpuModel {
    /// Vendor as CPUID or the kernel names it (`AuthenticAMD`).
    pub vendor: Option<String>,
    /// Family number, decimal.
    pub family: Option<u32>,
    /// Marketing name.
    pub model: Option<String>,
}

impl CpuModel {
    /// Whether the two cores of a module share one floating-point unit and the second-level cache: AMD family 15h
    /// (Bulldozer to Excavator), the machines that seed the stride strategies.
    pub fn shares_fpu_by_l2(&self) -> bool {
        self.vendor.as_deref() == Some("AuthenticAMD") && self.family == Some(0x15)
    }
}

/// Everything a machine is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Parts {
    /// What to call it: a host name, a file name, a synthetic description.
    pub name: String,
    /// The processor.
    pub cpu: CpuModel,
    /// The kernel's number of each PU, depth first through the machine.
    pub pus: Vec<OsCpu>,
    /// The objects, in any order. A machine object and missing cores are added where absent.
    pub domains: Vec<Domain>,
    /// The NUMA nodes, in any order.
    pub nodes: Vec<NodePart>,
    /// Relative latency between nodes, row by row in the order of `nodes`; empty when unknown.
    pub distances: Vec<u32>,
    /// Core kinds as reported; empty on uniform machines.
    pub kinds: Vec<KindPart>,
    /// Devices.
    pub devices: Vec<Device>,
    /// CPUs that exist but are switched off.
    pub offline: CpuSet,
    /// CPUs the source says a program may use; `None` for all of them.
    pub allowed: Option<CpuSet>,
}
