//! Matrix of `bench nodes` as data: the cases, the variants of each, and their command lines.
//!
//! A memory case has one program, bound to CPUs of one node, whose memory was first written from
//! another node (or the same). A placement case has one or two programs that begin on the wrong
//! node and may move.

use super::super::uncore::PROGRAM;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::ids::{OsCpu, OsNode};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

const MIB: u64 = 1 << 20;
/// Least bytes of a list that is read from memory.
const LIST_BYTES_MIN: u64 = 64 * MIB;
const QUICK_LIST_BYTES: u64 = 32 * MIB;
/// Most bytes of a list with `--quick`, which the caches of large machines may hold in part.
const QUICK_LIST_BYTES_MAX: u64 = 64 * MIB;
/// Most bytes of a list: writing it in random order takes seconds.
const LIST_BYTES_MAX: u64 = 256 * MIB;
/// A list of this many times the largest cache is read from memory nearly always.
const CACHES_IN_LIST: u64 = 4;
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

/// A node with memory, and one usable CPU of each of its cores.
#[derive(Debug)]
struct NodeCores {
    node: OsNode,
    cpus: Vec<OsCpu>,
}

/// Plans the cases for the CPUs of a machine that may be used.
pub(super) fn plan(machine: &Machine, allowed: &CpuSet, quick: bool) -> NodesPlan {
    let first = |core: usize| {
        let core = machine.cores().get(core)?;
        machine.cpus_of(&core.pus).intersection(allowed).iter().next()
    };
    let cores = machine.nodes().iter().map(|node| NodeCores {
        node: node.os,
        cpus: node.cores.iter().filter_map(|id| first(id.0 as usize)).collect(),
    });
    let mut nodes: Vec<NodeCores> = cores.filter(|node| !node.cpus.is_empty()).collect();
    if nodes.is_empty() {
        // The kernel has no nodes; all memory is equally near.
        let cpus: Vec<OsCpu> = (0..machine.cores().len()).filter_map(first).collect();
        nodes.extend((!cpus.is_empty()).then_some(NodeCores { node: OsNode(0), cpus }));
    }
    let list = list_bytes(machine, quick);
    let mut plan = NodesPlan::default();
    for (memory, cpus) in pairs(&nodes) {
        plan.cases.extend(reading(memory, cpus, list, quick));
    }
    match nodes.as_slice() {
        [one, other, ..] => plan.cases.extend(placing(one, other, list, quick)),
        _ => plan.left_out.push(
            "far memory, and programs on the wrong node, need two nodes with cores that may be used; here is one"
                .to_owned(),
        ),
    }
    plan
}

/// Returns the bytes of a list that no cache holds.
fn list_bytes(machine: &Machine, quick: bool) -> u64 {
    let cache = machine.llcs().iter().filter_map(|llc| llc.bytes).max().unwrap_or(0);
    let (least, most) =
        if quick { (QUICK_LIST_BYTES, QUICK_LIST_BYTES_MAX) } else { (LIST_BYTES_MIN, LIST_BYTES_MAX) };
    let node = machine.nodes().iter().filter_map(|node| node.bytes).min().unwrap_or(u64::MAX);
    (CACHES_IN_LIST * cache).clamp(least, most).min(node / 8).max(MIB)
}

/// Returns pairs of the node of the memory and the node of the CPUs.
fn pairs(nodes: &[NodeCores]) -> Vec<(&NodeCores, &NodeCores)> {
    let every = nodes.len() <= NODES_MAX;
    let of = |memory| nodes.iter().map(move |cpus: &NodeCores| (memory, cpus));
    nodes.iter().take(if every { NODES_MAX } else { 1 }).flat_map(of).collect()
}

/// Returns the cases that read memory of one node from CPUs of another.
fn reading(memory: &NodeCores, cpus: &NodeCores, list: u64, quick: bool) -> [NodesCase; 2] {
    let program = |count: usize, private: u64, chains: u32, sequential: bool| NodesProgram {
        home: memory.cpus[0],
        cpus: cpus.cpus.iter().copied().take(count).collect(),
        bound: true,
        private: private.max(MIB),
        chains,
        sequential,
    };
    let streams = cpus.cpus.len().min(STREAMS_MAX);
    let case = |kind, program| NodesCase {
        kind,
        point: format!("memory-{}-cpus-{}", memory.node, cpus.node),
        programs: vec![program],
        ways: vec![NodesWay::Bound],
        seconds: if quick { READ_S / 2.0 } else { READ_S },
    };
    [
        case(NodesKind::Latency, program(1, list, 1, false)),
        case(NodesKind::Bandwidth, program(streams, list / streams as u64, STREAM_CHAINS, true)),
    ]
}

/// Returns the cases whose programs begin on the wrong node.
fn placing(one: &NodeCores, other: &NodeCores, list: u64, quick: bool) -> [NodesCase; 2] {
    let threads = one.cpus.len().min(other.cpus.len()).min(PLACED_THREADS_MAX);
    let program = |memory: &NodeCores, begins: &NodeCores| NodesProgram {
        home: memory.cpus[0],
        cpus: begins.cpus.iter().copied().take(threads).collect(),
        bound: false,
        private: list,
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
    [case("far", vec![program(one, other)]), case("crossed", vec![program(one, other), program(other, one)])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use trimtab_core::topology::parse_synthetic;

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
}
