//! Matrix of `bench nodes` as data: the cases, the variants of each, and their command lines.
//!
//! A memory case has one program, bound to CPUs of one node, whose memory was first written from
//! another node (or the same). A placement case has one or two programs that begin on the wrong
//! node and may move.

use super::super::uncore::PROGRAM;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::ids::{Id, LlcId, OsCpu, OsNode};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

const MIB: u64 = 1 << 20;
/// Least bytes of the lists on each last-level cache.
const LISTS_BYTES_MIN: u64 = 64 * MIB;
const QUICK_LISTS_BYTES_MIN: u64 = 32 * MIB;
/// Bytes of lists up to which they have the better size: writing in random order takes seconds.
const LISTS_BYTES_WANTED_MAX: u64 = 256 * MIB;
/// Lists of this many times the cache that their threads share are read from memory: half of the
/// accesses at least, better three quarters.
const CACHES_IN_LISTS_MIN: u64 = 2;
const CACHES_IN_LISTS: u64 = 4;
/// Part of a node's memory that the lists of a case may take: a quarter.
const MEMORY_PARTS: u64 = 4;
/// Most nodes of which all pairs are measured; of the others, each is measured from the first one.
const NODES_MAX: usize = 4;
/// Most threads of a bandwidth case, and walks of each thread.
const STREAMS_MAX: usize = 16;
const STREAM_CHAINS: u32 = 4;
/// Threads of a program of a placement case, at most.
const PLACED_THREADS_MAX: usize = 2;
/// Length of a memory case's window, in seconds.
const READ_S: f64 = 0.2;
/// Length of a placement case's window, in seconds. Without counters a trial of `brm` takes four
/// seconds, and its first second has no move.
const PLACED_S: f64 = 12.0;
const QUICK_PLACED_S: f64 = 6.0;

/// Measured value of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodesKind {
    /// Nanoseconds of a load that waits for the load before.
    Latency,
    /// GB/s that the cores of a node read together.
    Bandwidth,
    /// Millions of accesses a second of programs that begin on the wrong node.
    Placed,
}

impl NodesKind {
    /// Returns the unit of the value.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Latency => "ns",
            Self::Bandwidth => "GB/s",
            Self::Placed => "M/s",
        }
    }
}

/// Balancing of a run's programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodesWay {
    /// Threads are bound.
    Bound,
    /// Linux alone.
    Linux,
    /// `brm` moves threads.
    Brm,
    /// `brm` moves threads, and memory follows them.
    BrmMemory,
}

impl NodesWay {
    const PLACED: [Self; 3] = [Self::Linux, Self::Brm, Self::BrmMemory];

    /// Returns the word for the variant.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Linux => "linux",
            Self::Brm => "brm",
            Self::BrmMemory => "brm-memory",
        }
    }

    /// Returns the options of `trimtab attach`, if the variant balances.
    pub(super) fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Bound | Self::Linux => None,
            Self::Brm => Some(&["--balance=brm", "--candidates=all"]),
            Self::BrmMemory => Some(&["--balance=brm", "--candidates=all", "--move-memory"]),
        }
    }
}

/// One program of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct NodesProgram {
    /// CPU that writes the memory first.
    home: OsCpu,
    /// CPUs of the threads, one for each.
    cpus: Vec<OsCpu>,
    /// Whether the threads stay on their CPUs.
    bound: bool,
    /// Bytes of each thread's list.
    private: u64,
    chains: u32,
    sequential: bool,
}

impl NodesProgram {
    /// Returns the command line; the one window is opened from outside.
    pub(super) fn command(&self, folder: &Path, seconds: f64) -> Vec<OsString> {
        let mut words = vec![folder.join(PROGRAM).into()];
        let mut option = |name: &str, value: String| words.extend([OsString::from(name), value.into()]);
        let cpus = self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        option("--threads", self.cpus.len().to_string());
        option(if self.bound { "--cpus" } else { "--start" }, cpus);
        option("--home", self.home.to_string());
        option("--private", self.private.to_string());
        option("--chains", self.chains.to_string());
        option("--order", if self.sequential { "sequential" } else { "random" }.to_owned());
        option("--seconds", seconds.to_string());
        words.push("--wait".into());
        words
    }
}

/// One case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodesCase {
    pub(super) kind: NodesKind,
    /// Node of the memory and node of the CPUs; of placement cases, how the programs begin.
    pub(super) point: String,
    pub(super) programs: Vec<NodesProgram>,
    pub(super) ways: Vec<NodesWay>,
    pub(super) seconds: f64,
}

impl fmt::Display for NodesCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            NodesKind::Latency => write!(f, "latency/{}", self.point),
            NodesKind::Bandwidth => write!(f, "bandwidth/{}", self.point),
            NodesKind::Placed => write!(f, "placed/{}", self.point),
        }
    }
}

/// Cases of a machine, and what it cannot show.
#[derive(Debug, Default)]
pub(super) struct NodesPlan {
    pub(super) cases: Vec<NodesCase>,
    pub(super) left_out: Vec<String>,
}

/// A node, and one usable CPU of each of its cores.
#[derive(Debug)]
struct NodeCores {
    node: OsNode,
    cpus: Vec<NodeCpu>,
    /// Bytes of its memory; `u64::MAX` if unknown.
    memory: u64,
}

/// A CPU, and the last-level cache that it shares with others.
#[derive(Clone, Copy, Debug)]
struct NodeCpu {
    cpu: OsCpu,
    llc: LlcId,
    /// Bytes of that cache; 0 if unknown.
    cache: u64,
}

impl NodeCores {
    fn first(&self, count: usize) -> impl Iterator<Item = &NodeCpu> {
        self.cpus.iter().take(count)
    }

    /// Returns the bytes of the list of each of the first CPUs, so that the lists on each cache are
    /// that much larger than it.
    fn list(&self, count: usize, times: u64, least: u64) -> u64 {
        let mut sharing: BTreeMap<LlcId, (u64, u64)> = BTreeMap::new();
        for cpu in self.first(count) {
            let (threads, cache) = sharing.entry(cpu.llc).or_default();
            (*threads, *cache) = (*threads + 1, cpu.cache);
        }
        let each = |(threads, cache): &(u64, u64)| (times * cache).max(least).div_ceil(*threads);
        // Whole pages of any kind.
        sharing.values().map(each).max().unwrap_or(least).next_multiple_of(MIB)
    }
}

/// Plans the cases for the CPUs of a machine that may be used.
pub(super) fn plan(machine: &Machine, allowed: &CpuSet, quick: bool) -> NodesPlan {
    let nodes = nodes(machine, allowed);
    let mut plan = NodesPlan::default();
    for (memory, cpus) in pairs(&nodes) {
        for case in reading(memory, cpus, quick) {
            plan.add(case);
        }
    }
    let with_memory: Vec<&NodeCores> = nodes.iter().filter(|node| node.memory > 0).collect();
    match with_memory.as_slice() {
        [one, other, ..] => placing(one, other, quick).into_iter().for_each(|case| plan.add(case)),
        _ => plan.left_out.push(
            "far memory, and programs on the wrong node, need two nodes with memory and with cores that may be used; here is one"
                .to_owned(),
        ),
    }
    plan
}

impl NodesPlan {
    fn add(&mut self, case: Result<NodesCase, String>) {
        match case {
            Ok(case) => self.cases.push(case),
            Err(why) => self.left_out.push(why),
        }
    }
}

/// Returns the nodes with CPUs that may be used.
fn nodes(machine: &Machine, allowed: &CpuSet) -> Vec<NodeCores> {
    let first = |at: usize| {
        let core = machine.cores().get(at)?;
        let cpu = machine.cpus_of(&core.pus).intersection(allowed).iter().next()?;
        let cache = machine.llcs().get(core.llc.index()).and_then(|llc| llc.bytes).unwrap_or(0);
        Some(NodeCpu { cpu, llc: core.llc, cache })
    };
    let cores = machine.nodes().iter().map(|node| NodeCores {
        node: node.os,
        cpus: node.cores.iter().filter_map(|id| first(id.index())).collect(),
        memory: node.bytes.unwrap_or(u64::MAX),
    });
    let mut nodes: Vec<NodeCores> = cores.filter(|node| !node.cpus.is_empty()).collect();
    if machine.nodes().is_empty() {
        // The kernel has no nodes; all memory is equally near.
        let cpus: Vec<NodeCpu> = (0..machine.cores().len()).filter_map(first).collect();
        let whole = NodeCores { node: OsNode(0), cpus, memory: u64::MAX };
        nodes.extend((!whole.cpus.is_empty()).then_some(whole));
    }
    nodes
}

/// Returns pairs of the node of the memory and the node of the CPUs.
fn pairs(nodes: &[NodeCores]) -> Vec<(&NodeCores, &NodeCores)> {
    let memories = if nodes.len() <= NODES_MAX { NODES_MAX } else { 1 };
    let of = |memory| nodes.iter().map(move |cpus: &NodeCores| (memory, cpus));
    nodes.iter().filter(|node| node.memory > 0).take(memories).flat_map(of).collect()
}

/// Returns the bytes of each list, for `lists` of them on a node with this memory. `each` returns
/// the bytes of one for lists that are this many times a cache.
///
/// # Errors
/// They would fit into the caches, or not into the memory.
fn list_bytes(
    case: &str,
    memory: &NodeCores,
    lists: usize,
    each: &dyn Fn(u64) -> u64,
) -> Result<u64, String> {
    let lists = lists as u64;
    let most = memory.memory / MEMORY_PARTS;
    let (least, wanted) = (each(CACHES_IN_LISTS_MIN), each(CACHES_IN_LISTS));
    if lists * least > most {
        return Err(format!(
            "{case}: lists that the caches do not hold need {} MiB, which is more than a quarter of the memory of node {} ({} MiB)",
            lists * least / MIB,
            memory.node,
            memory.memory / MIB
        ));
    }
    let wanted = wanted.min(LISTS_BYTES_WANTED_MAX / lists).min(most / lists);
    Ok(wanted.max(least) / MIB * MIB)
}

fn least_bytes(quick: bool) -> u64 {
    if quick { QUICK_LISTS_BYTES_MIN } else { LISTS_BYTES_MIN }
}

/// Returns the cases that read memory of one node from CPUs of another.
fn reading(memory: &NodeCores, cpus: &NodeCores, quick: bool) -> [Result<NodesCase, String>; 2] {
    let point = format!("memory-{}-cpus-{}", memory.node, cpus.node);
    let least = least_bytes(quick);
    let case = |kind: NodesKind, word: &str, threads: usize, chains: u32, sequential: bool| {
        let each = |times: u64| cpus.list(threads, times, least);
        let private = list_bytes(&format!("{word} of {point}"), memory, threads, &each)?;
        let program = NodesProgram {
            home: memory.cpus[0].cpu,
            cpus: cpus.first(threads).map(|cpu| cpu.cpu).collect(),
            bound: true,
            private,
            chains,
            sequential,
        };
        let seconds = if quick { READ_S / 2.0 } else { READ_S };
        let (point, ways) = (point.clone(), vec![NodesWay::Bound]);
        Ok(NodesCase { kind, point, programs: vec![program], ways, seconds })
    };
    let streams = cpus.cpus.len().min(STREAMS_MAX);
    [
        case(NodesKind::Latency, "latency", 1, 1, false),
        case(NodesKind::Bandwidth, "bandwidth", streams, STREAM_CHAINS, true),
    ]
}

/// Returns the cases whose programs begin on the wrong node.
fn placing(one: &NodeCores, other: &NodeCores, quick: bool) -> [Result<NodesCase, String>; 2] {
    let threads = one.cpus.len().min(other.cpus.len()).min(PLACED_THREADS_MAX);
    // Threads move, so each list alone is larger than any cache.
    let each = |times: u64| {
        let cache = one.cpus.iter().chain(&other.cpus).map(|cpu| cpu.cache).max().unwrap_or(0);
        (times * cache).max(least_bytes(quick)).next_multiple_of(MIB)
    };
    let program = |memory: &NodeCores, begins: &NodeCores, private: u64| NodesProgram {
        home: memory.cpus[0].cpu,
        cpus: begins.first(threads).map(|cpu| cpu.cpu).collect(),
        bound: false,
        private,
        chains: 1,
        sequential: false,
    };
    let case = |point: &str, programs| NodesCase {
        kind: NodesKind::Placed,
        point: point.to_owned(),
        programs,
        ways: NodesWay::PLACED.to_vec(),
        seconds: if quick { QUICK_PLACED_S } else { PLACED_S },
    };
    let of = |name: &str, memory: &NodeCores| list_bytes(name, memory, threads, &each);
    let far = of("programs that begin far from their memory", one);
    let name = "programs that begin on each other's nodes";
    let crossed = of(name, one).and_then(|bytes| Ok(bytes.min(of(name, other)?)));
    [
        far.map(|bytes| case("far", vec![program(one, other, bytes)])),
        crossed.map(|bytes| case("crossed", vec![program(one, other, bytes), program(other, one, bytes)])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use trimtab_core::topology::{CachePart, Level, Parts, parse_synthetic};

    fn machine(description: &str) -> (Machine, CpuSet) {
        let machine = parse_synthetic(description).unwrap();
        let allowed = machine
            .cores()
            .iter()
            .flat_map(|core| machine.cpus_of(&core.pus).iter().collect::<Vec<_>>())
            .collect();
        (machine, allowed)
    }

    fn names(plan: &NodesPlan) -> Vec<String> {
        plan.cases.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_node_has_near_memory_only_and_says_so() {
        let (machine, allowed) = machine("pack:1 core:4");
        let plan = plan(&machine, &allowed, true);
        assert_eq!(names(&plan), ["latency/memory-0-cpus-0", "bandwidth/memory-0-cpus-0"]);
        assert!(plan.left_out[0].contains("two nodes"), "{:?}", plan.left_out);
    }

    #[test]
    fn two_nodes_are_measured_in_all_directions() {
        let (machine, allowed) = machine("node:2 core:4");
        let plan = plan(&machine, &allowed, true);
        assert_eq!(plan.left_out, Vec::<String>::new());
        let all: BTreeSet<String> = names(&plan).into_iter().collect();
        assert_eq!(all.len(), 10, "{all:?}");
        for name in ["latency/memory-1-cpus-0", "bandwidth/memory-0-cpus-1", "placed/far", "placed/crossed"] {
            assert!(all.contains(name), "{name}: {all:?}");
        }
        let crossed = plan.cases.iter().find(|case| case.point == "crossed").unwrap();
        for program in &crossed.programs {
            let node = |cpu: OsCpu| cpu.0 / 4;
            assert!(program.cpus.iter().all(|cpu| node(*cpu) != node(program.home)), "{program:?}");
            assert!(!program.bound);
        }
        let homes: BTreeSet<u32> = crossed.programs.iter().map(|program| program.home.0 / 4).collect();
        assert_eq!(homes.len(), 2, "each program's memory is on the other one's node");
    }

    #[test]
    fn many_nodes_are_measured_from_the_first_one() {
        let (machine, allowed) = machine("node:8 core:2");
        assert_eq!(plan(&machine, &allowed, false).cases.len(), 8 * 2 + 2);
    }

    #[test]
    fn cpus_that_may_not_be_used_are_not_used() {
        let (machine, _) = machine("node:2 core:4");
        let plan = plan(&machine, &"1-3".parse().unwrap(), true);
        assert_eq!(names(&plan).len(), 2);
        let used = plan.cases.iter().flat_map(|case| &case.programs).flat_map(|program| &program.cpus);
        assert!(used.clone().count() > 0 && used.clone().all(|cpu| (1..4).contains(&cpu.0)));
    }

    /// Returns a case, with the bytes of its lists on each cache of a machine.
    fn on_caches(plan: &NodesPlan, machine: &Machine, name: &str) -> Vec<(u64, u64)> {
        let case = plan.cases.iter().find(|case| case.to_string() == name).unwrap();
        let mut all: BTreeMap<LlcId, u64> = BTreeMap::new();
        for cpu in &case.programs[0].cpus {
            let core = machine.core_of(machine.pu(*cpu).unwrap());
            *all.entry(machine.cores()[core.index()].llc).or_default() += case.programs[0].private;
        }
        all.into_iter().map(|(llc, lists)| (machine.llcs()[llc.index()].bytes.unwrap(), lists)).collect()
    }

    /// Returns a machine of two nodes with two caches each, of these bytes.
    fn cached(cache: u64, memory: [Option<u64>; 2]) -> (Machine, CpuSet) {
        let (machine, allowed) = machine("node:2 l3:2 core:4");
        let mut parts = Parts::from(machine);
        let caches = parts.domains.iter().filter(|domain| domain.level == Level::L3);
        parts.caches = caches
            .map(|of| CachePart { level: Level::L3, first: of.first, count: of.count, bytes: cache })
            .collect();
        for (node, bytes) in parts.nodes.iter_mut().zip(memory) {
            node.bytes = bytes;
        }
        (Machine::build(parts).unwrap(), allowed)
    }

    #[test]
    fn lists_exceed_the_caches_of_their_threads() {
        for cache in [MIB, 32 * MIB, 100 * MIB, 504 * MIB] {
            for quick in [false, true] {
                let (machine, allowed) = cached(cache, [Some(64 << 30); 2]);
                let plan = plan(&machine, &allowed, quick);
                assert_eq!((plan.cases.len(), plan.left_out.len()), (10, 0));
                for kind in ["latency", "bandwidth"] {
                    for point in ["memory-0-cpus-0", "memory-1-cpus-0", "memory-0-cpus-1"] {
                        let lists = on_caches(&plan, &machine, &format!("{kind}/{point}"));
                        assert_eq!(lists.len(), if kind == "latency" { 1 } else { 2 });
                        assert!(lists.iter().all(|(cache, lists)| *lists >= 2 * cache), "{cache}: {lists:?}");
                    }
                }
                for case in plan.cases.iter().filter(|case| case.kind == NodesKind::Placed) {
                    assert!(case.programs.iter().all(|program| program.private >= 2 * cache));
                }
            }
        }
    }

    #[test]
    fn without_the_memory_for_it_nothing_is_called_memory() {
        let (machine, allowed) = cached(504 * MIB, [Some(2 << 30), Some(64 << 30)]);
        let plan = plan(&machine, &allowed, false);
        let names = names(&plan);
        assert!(names.iter().all(|name| name.contains("memory-1")), "{names:?}");
        assert!(!names.is_empty() && plan.left_out.iter().any(|why| why.contains("node 0 (2048 MiB)")));
    }

    #[test]
    fn a_node_without_memory_has_cpus_and_is_no_home() {
        let (machine, allowed) = cached(32 * MIB, [Some(0), Some(64 << 30)]);
        let plan = plan(&machine, &allowed, false);
        let expected = ["memory-1-cpus-0", "memory-1-cpus-1"]
            .map(|point| [format!("latency/{point}"), format!("bandwidth/{point}")]);
        assert_eq!(names(&plan), expected.concat());
        assert!(plan.cases.iter().all(|case| case.programs[0].private >= 32 * MIB));
        assert!(plan.left_out.iter().any(|why| why.contains("two nodes")), "{:?}", plan.left_out);
    }
}
