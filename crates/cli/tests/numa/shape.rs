//! Shape of the machine as the kernel reports it: the oracle of these tests.

use crate::util::{cpus, skip};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A set of CPUs, by the kernel's numbers.
pub(crate) type Cpus = BTreeSet<u32>;

/// A machine of several nodes.
pub(crate) struct Shape {
    /// Every node that is online.
    pub(crate) nodes: BTreeMap<u32, Node>,
    /// The hardware threads of each core.
    pub(crate) cores: BTreeSet<Cpus>,
    /// The CPUs that share each last-level cache.
    pub(crate) caches: BTreeSet<Cpus>,
}

pub(crate) struct Node {
    pub(crate) cpus: Cpus,
    pub(crate) kib: u64,
    /// Distances to every node, in the order of their numbers.
    pub(crate) distances: Vec<u32>,
}

impl Shape {
    /// Returns this machine if it has several nodes with CPUs and all of them may be used. Prints
    /// the reason if not.
    pub(crate) fn here() -> Option<Self> {
        let shape = Self::read();
        if shape.homes().len() < 2 {
            skip("this machine has one NUMA node: make test-numa boots machines with more");
            return None;
        }
        let allowed = sched_getaffinity(None).unwrap();
        let may = |&cpu: &u32| allowed.is_set(usize::try_from(cpu).unwrap());
        if !shape.cpus().iter().all(may) || shape.cpus().len() > CpuSet::MAX_CPU {
            skip("not all CPUs of this machine may be used here");
            return None;
        }
        Some(shape)
    }

    fn read() -> Self {
        let online = cpus(&file("/sys/devices/system/node/online"));
        let nodes = online.iter().map(|number| {
            let folder = format!("/sys/devices/system/node/node{number}");
            let memory = file(&format!("{folder}/meminfo"));
            let total = memory.lines().find(|line| line.contains("MemTotal:")).unwrap_or_default();
            let node = Node {
                cpus: cpus(&file(&format!("{folder}/cpulist"))),
                kib: total.split_whitespace().rev().nth(1).unwrap_or_default().parse().unwrap_or_default(),
                distances: words(&file(&format!("{folder}/distance"))),
            };
            (*number, node)
        });
        let nodes: BTreeMap<u32, Node> = nodes.collect();
        let shared = |what: &str| {
            let all = nodes.values().flat_map(|node| &node.cpus);
            all.map(|cpu| cpus(&file(&format!("/sys/devices/system/cpu/cpu{cpu}/{what}")))).collect()
        };
        let (cores, caches) =
            (shared("topology/thread_siblings_list"), shared("cache/index3/shared_cpu_list"));
        Self { cores, caches, nodes }
    }

    /// Returns the nodes that have CPUs.
    pub(crate) fn homes(&self) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| !node.cpus.is_empty()).map(|(number, _)| *number).collect()
    }

    /// Returns the nodes that have only memory.
    pub(crate) fn memory_only(&self) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| node.cpus.is_empty()).map(|(number, _)| *number).collect()
    }

    /// Returns every CPU.
    pub(crate) fn cpus(&self) -> Cpus {
        self.nodes.values().flat_map(|node| node.cpus.iter().copied()).collect()
    }

    /// Returns one CPU of each core, the one with the lowest number: the CPUs of a run that asks
    /// for whole cores.
    pub(crate) fn first_threads(&self, of: &Cpus) -> Cpus {
        self.cores.iter().filter_map(|core| core.intersection(of).next().copied()).collect()
    }

    /// Returns one CPU of each core of a node.
    pub(crate) fn of_node(&self, node: u32) -> Cpus {
        self.first_threads(&self.nodes[&node].cpus)
    }

    /// Returns the node of a CPU.
    pub(crate) fn node_of(&self, cpu: u32) -> u32 {
        let has = |(_, node): &(&u32, &Node)| node.cpus.contains(&cpu);
        *self.nodes.iter().find(has).unwrap_or_else(|| panic!("CPU {cpu} is in no node")).0
    }

    /// Returns the nodes of these CPUs.
    pub(crate) fn nodes_of(&self, cpus: &Cpus) -> BTreeSet<u32> {
        cpus.iter().map(|&cpu| self.node_of(cpu)).collect()
    }

    pub(crate) fn distance(&self, from: u32, to: u32) -> u32 {
        let at = self.nodes.keys().position(|&number| number == to).unwrap();
        self.nodes[&from].distances[at]
    }

    /// Returns the number of cores of the largest node; nodes of one machine may differ.
    pub(crate) fn cores_of_largest(&self) -> usize {
        self.homes().into_iter().map(|node| self.of_node(node).len()).max().unwrap()
    }
}

/// Returns the ordered topology, in a guest that exists only for these tests: its settings may be
/// changed.
pub(crate) fn testbed() -> Option<String> {
    let topology = std::env::var("TRIMTAB_TESTBED").ok();
    if topology.is_none() {
        skip("is for guests, whose settings may be changed: make test-numa");
    }
    topology
}

/// Returns the number before `unit` in a topology such as `2n4c+1mem`; `default` if it is not
/// there.
pub(crate) fn ordered(topology: &str, unit: &str, default: usize) -> usize {
    let Some(end) = topology.find(unit) else { return default };
    let digits = topology[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

pub(crate) fn file(path: &str) -> String {
    fs::read_to_string(Path::new(path)).unwrap_or_default().trim().to_owned()
}

fn words(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}
