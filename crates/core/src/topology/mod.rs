//! Machine model: the hardware as immutable data.
//!
//! Unit: PUs (hardware threads) in *logical* order: dense, depth first, so that neighbours in the
//! list are neighbours in the silicon. Problem: placement looks up thousands of times which parts
//! share which resources, on machines with sparse CPU numbers, several thousand PUs, CPU-less nodes
//! and missing levels. Idea: every object is a run of that order, so one sorted list of ranges is
//! the whole tree and containment takes two comparisons. Terms are those of `docs/glossary.md`: PU,
//! core, LLC (the outermost shared cache), node, package; a group is an object that hwloc groups.
//!
//! Properties: Ranges nest; a machine with crossing objects is refused. Every PU has exactly one
//! core and one LLC. Every PU has at most one *home* node, the ordinary memory nearest to it. Equal
//! parts build equal machines.

mod cpu_names;
mod device_name;
mod distance;
pub mod draw;
mod kinds;
mod map;
mod marks;
mod outline;
mod parts;
pub mod svg;
mod synthetic;

pub use cpu_names::{CpuNames, CpuNamesError, NoSuchPart};
pub use device_name::{DeviceName, each_device, known_devices};
pub use kinds::{CoreKind, KindId};
pub use map::{Piece, map};
pub use marks::{CoreMark, CpuMark, Marks};
pub use parts::{
    CachePart, CpuModel, Device, DeviceKind, Domain, KindPart, Level, MemorySpeed, NodePart, Parts, Tier,
};
pub use synthetic::{SyntheticError, parse_synthetic};

use crate::ids::{CoreId, Id, LlcId, NodeId, ObjectId, OsCpu, OsNode, Pu};
use crate::set::{CpuSet, MAX_ID, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Most PUs that a machine may have: eight times the most that Linux can run.
pub const MAX_PUS: usize = 1 << 16;

/// Most NUMA nodes that a machine may have: four times the most that Linux can run. The distance
/// table grows with the square of this number, so a damaged file must not determine it.
pub const MAX_NODES: usize = 1 << 12;

/// Most core kinds that discovery may report. The largest count in the corpus is 5.
const MAX_KINDS: usize = u8::MAX as usize;

/// Object of the machine tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Level of the object.
    pub level: Level,
    /// Number given by the kernel or firmware; `None` if there is none.
    pub os: Option<u32>,
    /// Object that directly contains this one; `None` for the machine itself.
    pub parent: Option<ObjectId>,
    /// Its PUs, in logical order.
    pub pus: Range<u32>,
}

/// Physical core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Core {
    /// Its PUs, in logical order.
    pub pus: Range<u32>,
    /// Last-level-cache domain of the core.
    pub llc: LlcId,
    /// Node with the nearest memory, if the machine has nodes.
    pub node: Option<NodeId>,
    /// Kind of the core.
    pub kind: KindId,
}

/// Last-level-cache domain: the cores that share their outermost cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Llc {
    /// Its cores, in logical order.
    pub cores: Range<u32>,
    /// Its node, if the machine has nodes.
    pub node: Option<NodeId>,
    /// Size of its cache in bytes; `None` if unknown, or if its cores share none.
    pub bytes: Option<u64>,
}

/// NUMA node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Number given by the kernel.
    pub os: OsNode,
    /// Cores for which this node is home; empty for memory-only nodes.
    pub cores: Vec<CoreId>,
    /// PUs near to the node; for memory-only nodes they belong to other nodes.
    pub near: Range<u32>,
    /// Memory in bytes; `None` if unknown.
    pub bytes: Option<u64>,
    /// Type of memory.
    pub tier: Tier,
    /// Bandwidth from the nearest CPUs in MB/s; `None` if unknown.
    pub bandwidth: Option<u64>,
    /// Latency from the nearest CPUs in nanoseconds; `None` if unknown.
    pub latency: Option<u64>,
}

/// Machine: immutable, checked, cheap to query.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Machine {
    parts: Parts,
    objects: Vec<Object>,
    cores: Vec<Core>,
    core_of: Vec<CoreId>,
    llcs: Vec<Llc>,
    nodes: Vec<Node>,
    distances: Vec<u32>,
    kinds: Vec<CoreKind>,
    by_os: BTreeMap<OsCpu, Pu>,
}

/// Reason why parts do not form a machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MachineError {
    /// There is not a single PU.
    #[error("the machine has no CPU")]
    Empty,
    /// Two PUs have the same kernel number.
    #[error("CPU {0} appears twice")]
    DuplicateCpu(OsCpu),
    /// Two nodes have the same kernel number.
    #[error("NUMA node {0} appears twice")]
    DuplicateNode(OsNode),
    /// A CPU's kernel number exceeds the largest number of a set.
    #[error("CPU number {0} is beyond {MAX_ID}, the largest that a set can hold")]
    CpuNumber(OsCpu),
    /// A node's kernel number exceeds the largest number of a set.
    #[error("NUMA node number {0} is beyond {MAX_ID}, the largest that a set can hold")]
    NodeNumber(OsNode),
    /// A count is larger than on any real machine.
    #[error("{found} {what}, more than the {most} that a machine may have")]
    TooMany {
        /// Name of the counted things.
        what: &'static str,
        /// Count that was given.
        found: usize,
        /// Largest allowed count.
        most: usize,
    },
    /// An object extends past the last PU.
    #[error("a {level} covers PUs {first}..{end} of a machine with {pus}")]
    OutOfRange {
        /// Level of the object.
        level: Level,
        /// First PU of the object.
        first: u32,
        /// One past the last PU of the object.
        end: u64,
        /// Number of PUs of the machine.
        pus: usize,
    },
    /// Two objects overlap without one containing the other.
    #[error("a {0} and a {1} overlap without one holding the other")]
    Crossing(Level, Level),
    /// The distance table is not square over the nodes.
    #[error("the distance table has {found} entries for {nodes} nodes")]
    Distances {
        /// Number of entries found.
        found: usize,
        /// Number of nodes of the machine.
        nodes: usize,
    },
}

impl Machine {
    /// Builds a machine from parts and checks them.
    ///
    /// # Errors
    /// [`MachineError`] names the part that is invalid.
    pub fn build(mut parts: Parts) -> Result<Self, MachineError> {
        bounds(&parts)?;
        let mut by_os = BTreeMap::new();
        for (at, &os) in parts.pus.iter().enumerate() {
            if by_os.insert(os, Pu::from_index(at)).is_some() {
                return Err(MachineError::DuplicateCpu(os));
            }
        }
        if !parts.distances.is_empty() && parts.distances.len() != parts.nodes.len().pow(2) {
            return Err(MachineError::Distances { found: parts.distances.len(), nodes: parts.nodes.len() });
        }
        distance::sort_nodes(&mut parts);
        for pair in parts.nodes.windows(2) {
            if pair[0].os == pair[1].os {
                return Err(MachineError::DuplicateNode(pair[0].os));
            }
        }
        let homes = homes(&parts)?;
        let objects = tree(&parts, &homes)?;
        let kinds = kinds::join(&parts);
        let (cores, core_of) = cores(&objects, &homes, &parts, &kinds);
        let (llcs, cores) = llcs(&objects, cores, &parts.caches);
        let nodes = nodes(&parts, &cores);
        let distances = distance::table(&parts, &objects);
        Ok(Self { parts, objects, cores, core_of, llcs, nodes, distances, kinds, by_os })
    }

    /// Returns the name of the machine.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Returns the processor model.
    pub fn cpu(&self) -> &CpuModel {
        &self.parts.cpu
    }

    /// Returns the flat parts as given, with nodes sorted by number.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Returns all objects, depth first, with the machine first.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the objects of one level, in logical order. Groups may nest; all of them are
    /// returned.
    pub fn at(&self, level: Level) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |object| object.level == level)
    }

    /// Returns the cores, in logical order.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// Returns the last-level-cache domains, in logical order.
    pub fn llcs(&self) -> &[Llc] {
        &self.llcs
    }

    /// Returns the NUMA nodes, by kernel number; empty if the source reports none.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the kinds of cores, fastest first: one entry on a uniform machine.
    pub fn kinds(&self) -> &[CoreKind] {
        &self.kinds
    }

    /// Returns the devices with known locality.
    pub fn devices(&self) -> &[Device] {
        &self.parts.devices
    }

    /// Returns the CPUs that exist but are offline.
    pub fn offline(&self) -> &CpuSet {
        &self.parts.offline
    }

    /// Returns the number of PUs.
    pub fn pu_count(&self) -> usize {
        self.parts.pus.len()
    }

    /// Returns all CPUs of the machine.
    pub fn cpus(&self) -> CpuSet {
        self.parts.pus.iter().copied().collect()
    }

    /// Returns the CPUs that a program may use according to the source of the model; all CPUs if
    /// the source does not report this.
    pub fn allowed(&self) -> CpuSet {
        match &self.parts.allowed {
            Some(allowed) => allowed.intersection(&self.cpus()),
            None => self.cpus(),
        }
    }

    /// Returns the kernel's number of a PU.
    ///
    /// # Panics
    /// If the machine has no such PU.
    pub fn os(&self, pu: Pu) -> OsCpu {
        self.parts.pus[pu.index()]
    }

    /// Returns the PU with this kernel number.
    pub fn pu(&self, os: OsCpu) -> Option<Pu> {
        self.by_os.get(&os).copied()
    }

    /// Returns the CPUs of a run of PUs.
    pub fn cpus_of(&self, pus: &Range<u32>) -> CpuSet {
        self.parts.pus[pus.start as usize..pus.end as usize].iter().copied().collect()
    }

    /// Returns the core with this id.
    ///
    /// # Panics
    /// If the machine has no such core.
    pub fn core(&self, core: CoreId) -> &Core {
        &self.cores[core.index()]
    }

    /// Returns the core that contains a PU.
    ///
    /// # Panics
    /// If the machine has no such PU.
    pub fn core_of(&self, pu: Pu) -> CoreId {
        self.core_of[pu.index()]
    }

    /// Returns the cores of a run of PUs, as a run of core ids.
    pub fn cores_in(&self, pus: &Range<u32>) -> Range<u32> {
        if pus.is_empty() {
            return 0..0;
        }
        let first = self.core_of[pus.start as usize].0;
        let last = self.core_of[pus.end as usize - 1].0;
        first..last + 1
    }

    /// Returns the relative latency from one node to another on the firmware's scale (10 for
    /// local), or a value derived from the tree if the firmware reports none.
    ///
    /// # Panics
    /// If the machine lacks one of the nodes.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances[from.index() * self.nodes.len() + to.index()]
    }

    /// Returns the largest number of PUs in one core.
    pub fn smt(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(1)
    }

    /// Returns the CPUs with the largest last-level cache, all CPUs if these caches are equally
    /// large; `None` if the size of some last-level cache is not known.
    pub fn largest_cache(&self) -> Option<CpuSet> {
        let sizes: Vec<u64> = self.llcs.iter().map(|llc| llc.bytes).collect::<Option<_>>()?;
        let largest = sizes.iter().copied().max()?;
        let of = self.llcs.iter().zip(&sizes).filter(|(_, size)| **size == largest);
        let cores = of.flat_map(|(llc, _)| llc.cores.clone());
        Some(cores.flat_map(|core| self.cores[core as usize].pus.clone()).map(|pu| self.os(Pu(pu))).collect())
    }

    /// Returns the home nodes of these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        let homes =
            cpus.iter().filter_map(|os| self.pu(os)).filter_map(|pu| self.core(self.core_of(pu)).node);
        homes.map(|node| self.nodes[node.index()].os).collect()
    }

    /// Returns the smallest object of `level` that contains a core.
    pub fn enclosing(&self, level: Level, core: CoreId) -> Option<&Object> {
        let pus = &self.core(core).pus;
        self.at(level).filter(|object| object.pus.start <= pus.start && pus.end <= object.pus.end).last()
    }

    /// Returns the outermost objects of a level, as runs of cores in logical order.
    pub fn outermost(&self, level: Level) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for object in self.at(level) {
            let cores = self.cores_in(&object.pus);
            if runs.last().is_none_or(|last| cores.start >= last.end) {
                runs.push(cores);
            }
        }
        runs
    }

    /// Returns the sharing units of a level: its outermost objects, and each core outside of them
    /// as a unit of its own, as runs of cores in logical order.
    pub fn units(&self, level: Level) -> Vec<Range<u32>> {
        let mut units: Vec<Range<u32>> = Vec::new();
        let mut next = 0;
        for cores in self.outermost(level) {
            units.extend((next..cores.start).map(|core| core..core + 1));
            next = cores.end;
            units.push(cores);
        }
        units.extend((next..u32::try_from(self.cores.len()).unwrap_or(u32::MAX)).map(|core| core..core + 1));
        units
    }
}

impl TryFrom<Parts> for Machine {
    type Error = MachineError;
    fn try_from(parts: Parts) -> Result<Self, MachineError> {
        Self::build(parts)
    }
}

impl From<Machine> for Parts {
    fn from(machine: Machine) -> Self {
        machine.parts
    }
}

/// Refuses parts with sizes or numbers that would make the model, or a set of its CPUs, grow
/// without limit. Parts may come from files.
fn bounds(parts: &Parts) -> Result<(), MachineError> {
    let most = |what: &'static str, found: usize, most: usize| {
        if found > most { Err(MachineError::TooMany { what, found, most }) } else { Ok(()) }
    };
    if parts.pus.is_empty() {
        return Err(MachineError::Empty);
    }
    most("hardware threads", parts.pus.len(), MAX_PUS)?;
    most("NUMA nodes", parts.nodes.len(), MAX_NODES)?;
    most("core kinds", parts.kinds.len(), MAX_KINDS)?;
    most("caches", parts.caches.len(), 2 * MAX_PUS)?;
    most("speeds of nodes", parts.memory_speeds.len(), MAX_NODES)?;
    if let Some(&cpu) = parts.pus.iter().find(|cpu| cpu.index() > MAX_ID) {
        return Err(MachineError::CpuNumber(cpu));
    }
    if let Some(node) = parts.nodes.iter().find(|node| node.os.index() > MAX_ID) {
        return Err(MachineError::NodeNumber(node.os));
    }
    Ok(())
}

/// Returns the home node of each PU, by its position in `parts.nodes`. Among the nodes with CPUs
/// and with a locality that contains the PU, it is the one with the smallest locality; ties go to
/// ordinary memory, then to the lowest number.
fn homes(parts: &Parts) -> Result<Vec<Option<usize>>, MachineError> {
    let mut homes: Vec<Option<usize>> = vec![None; parts.pus.len()];
    for (at, node) in parts.nodes.iter().enumerate() {
        check_range(Level::Node, node.first, node.count, parts.pus.len())?;
        if !node.has_cpus {
            continue;
        }
        let rank = |at: usize| (parts.nodes[at].count, parts.nodes[at].tier, at);
        for home in &mut homes[node.first as usize..(node.first + node.count) as usize] {
            if home.is_none_or(|other| rank(at) < rank(other)) {
                *home = Some(at);
            }
        }
    }
    Ok(homes)
}

fn check_range(level: Level, first: u32, count: u32, pus: usize) -> Result<(), MachineError> {
    let end = u64::from(first) + u64::from(count);
    if end > pus as u64 { Err(MachineError::OutOfRange { level, first, end, pus }) } else { Ok(()) }
}

/// Sorts the ranges into a tree and adds a machine object on top, a core for every PU that lacks
/// one, and a node object for every run of PUs with the same home.
fn tree(parts: &Parts, homes: &[Option<usize>]) -> Result<Vec<Object>, MachineError> {
    let count = u32::try_from(parts.pus.len()).unwrap_or(u32::MAX);
    let mut flat = vec![Object { level: Level::Machine, os: None, parent: None, pus: 0..count }];
    let mut has_core = vec![false; parts.pus.len()];
    for domain in &parts.domains {
        check_range(domain.level, domain.first, domain.count, parts.pus.len())?;
        if domain.count == 0 || matches!(domain.level, Level::Machine | Level::Node) {
            continue;
        }
        let pus = domain.first..domain.first + domain.count;
        if domain.level == Level::Core {
            has_core[pus.start as usize..pus.end as usize].fill(true);
        }
        flat.push(Object { level: domain.level, os: domain.os, parent: None, pus });
    }
    let lone = |at: &u32| !has_core[*at as usize];
    flat.extend((0..count).filter(lone).map(|at| Object {
        level: Level::Core,
        os: None,
        parent: None,
        pus: at..at + 1,
    }));
    let mut start = 0;
    for end in 1..=homes.len() {
        if end == homes.len() || homes[end] != homes[start] {
            if let Some(home) = homes[start] {
                let pus = u32::try_from(start).unwrap_or(u32::MAX)..u32::try_from(end).unwrap_or(u32::MAX);
                flat.push(Object { level: Level::Node, os: Some(parts.nodes[home].os.0), parent: None, pus });
            }
            start = end;
        }
    }
    flat.sort_by_key(|object| (object.pus.start, std::cmp::Reverse(object.pus.end), object.level, object.os));
    let mut open: Vec<usize> = Vec::new();
    for at in 0..flat.len() {
        while open.last().is_some_and(|&outer| flat[outer].pus.end <= flat[at].pus.start) {
            open.pop();
        }
        if let Some(&outer) = open.last() {
            if flat[outer].pus.end < flat[at].pus.end {
                return Err(MachineError::Crossing(flat[outer].level, flat[at].level));
            }
            if flat[outer].level == Level::Core {
                return Err(MachineError::Crossing(Level::Core, flat[at].level));
            }
            flat[at].parent = Some(ObjectId::from_index(outer));
        }
        open.push(at);
    }
    Ok(flat)
}

fn cores(
    objects: &[Object],
    homes: &[Option<usize>],
    parts: &Parts,
    kinds: &[CoreKind],
) -> (Vec<Core>, Vec<CoreId>) {
    let mut cores = Vec::new();
    let mut core_of = vec![CoreId(0); parts.pus.len()];
    for object in objects.iter().filter(|object| object.level == Level::Core) {
        core_of[object.pus.start as usize..object.pus.end as usize].fill(CoreId::from_index(cores.len()));
        let os = parts.pus[object.pus.start as usize];
        cores.push(Core {
            pus: object.pus.clone(),
            llc: LlcId(0), // set when the LLCs are found
            node: homes[object.pus.start as usize].map(NodeId::from_index),
            kind: kinds::of(kinds, os),
        });
    }
    (cores, core_of)
}

/// Groups cores by their outermost cache, and cores without any cache by their node and package. A
/// run ends where either changes, so an LLC is always a run of cores.
fn llcs(objects: &[Object], mut cores: Vec<Core>, sizes: &[CachePart]) -> (Vec<Llc>, Vec<Core>) {
    let sizes: BTreeMap<(Level, u32, u32), u64> =
        sizes.iter().map(|cache| ((cache.level, cache.first, cache.count), cache.bytes)).collect();
    let size = |object: &Object| {
        let pus = &object.pus;
        sizes.get(&(object.level, pus.start, pus.end - pus.start)).copied().filter(|&bytes| bytes > 0)
    };
    let mut outer_cache: Vec<Option<u32>> = vec![None; cores.len()];
    let mut package: Vec<Option<u32>> = vec![None; cores.len()];
    for (at, object) in objects.iter().enumerate() {
        let slot = match object.level {
            Level::L3 | Level::L2 => &mut outer_cache,
            Level::Package => &mut package,
            _ => continue,
        };
        let first = cores.partition_point(|core| core.pus.start < object.pus.start);
        let end = cores.partition_point(|core| core.pus.start < object.pus.end);
        for mark in &mut slot[first..end] {
            // Objects are ordered outermost first, so the first cache that contains a core is its
            // last level.
            mark.get_or_insert(u32::try_from(at).unwrap_or(u32::MAX));
        }
    }
    let key = |at: usize, cores: &[Core]| match outer_cache[at] {
        Some(cache) => (Some(cache), None, cores[at].node),
        None => (None, package[at], cores[at].node),
    };
    let mut llcs: Vec<Llc> = Vec::new();
    for at in 0..cores.len() {
        let core = u32::try_from(at).unwrap_or(u32::MAX);
        if at == 0 || key(at, &cores) != key(at - 1, &cores) {
            let bytes = outer_cache[at].and_then(|cache| size(&objects[cache as usize]));
            llcs.push(Llc { cores: core..core, node: cores[at].node, bytes });
        }
        let last = llcs.len() - 1;
        llcs[last].cores.end = core + 1;
        cores[at].llc = LlcId::from_index(last);
    }
    (llcs, cores)
}

fn nodes(parts: &Parts, cores: &[Core]) -> Vec<Node> {
    let mut nodes: Vec<Node> = parts
        .nodes
        .iter()
        .map(|part| Node {
            os: part.os,
            cores: Vec::new(),
            near: part.first..part.first + part.count,
            bytes: part.bytes,
            tier: part.tier,
            bandwidth: None,
            latency: None,
        })
        .collect();
    for speed in &parts.memory_speeds {
        if let Some(node) = nodes.iter_mut().find(|node| node.os == speed.node) {
            // No memory has no speed: such a value stands for an unknown one.
            node.bandwidth = speed.bandwidth.filter(|&bandwidth| bandwidth > 0);
            node.latency = speed.latency.filter(|&latency| latency > 0);
        }
    }
    for (at, core) in cores.iter().enumerate() {
        if let Some(node) = core.node {
            nodes[node.index()].cores.push(CoreId::from_index(at));
        }
    }
    nodes
}

#[cfg(test)]
mod tests;
