//! Machine layout for the memory model: the cache, node and bus of each core, and all distances.

use crate::model::Model;
use trimtab_core::ids::{Id, NodeId, Pu};
use trimtab_core::topology::{Level, Machine};

/// Topology and numbers of a model, flattened for quick access.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    core_of: Vec<usize>,
    /// By core: speed when alone.
    pub(super) speeds: Vec<f64>,
    /// By the number of busy hardware threads of a core: the share of each.
    shares: Vec<f64>,
    llc_of: Vec<usize>,
    node_of: Vec<usize>,
    package_of: Vec<usize>,
    llc_nodes: Vec<usize>,
    pub(super) nodes: usize,
    pub(super) packages: usize,
    /// From node to node: time of one access without contention, and of a line from another cache,
    /// ns.
    latency: Vec<f64>,
    far: Vec<f64>,
    pub(super) shared_ns: f64,
    pub(super) transfer_ns: f64,
    pub(super) private: f64,
    pub(super) shared: f64,
    /// Highest number of misses that a core can have outstanding.
    pub(super) outstanding: f64,
    pub(super) core_bandwidth: f64,
    pub(super) page: f64,
}

impl Layout {
    pub(super) fn new(model: &Model) -> Self {
        let machine = &model.machine;
        let nodes = machine.nodes().len().max(1);
        let distance = |from: usize, to: usize| distance(machine, from, to);
        let memory = &model.memory;
        let pair = |value: &dyn Fn(f64) -> f64| -> Vec<f64> {
            (0..nodes * nodes).map(|at| value(distance(at / nodes, at % nodes))).collect()
        };
        let node = |node: Option<NodeId>| node.map_or(0, Id::index);
        let packages = machine.outermost(Level::Package);
        let package = |core: usize| {
            packages.partition_point(|run| run.end as usize <= core).min(packages.len().saturating_sub(1))
        };
        let cores = machine.cores();
        let mut shares: Vec<f64> = model
            .smt
            .throughput
            .iter()
            .enumerate()
            .map(|(at, all)| (all / (at + 1) as f64).min(1.0))
            .collect();
        if shares.is_empty() {
            shares.push(1.0);
        }
        Self {
            core_of: (0..machine.pu_count()).map(|pu| machine.core_of(Pu::from_index(pu)).index()).collect(),
            speeds: (0..cores.len()).map(|core| model.speeds.get(core).copied().unwrap_or(1.0)).collect(),
            shares,
            llc_of: cores.iter().map(|core| core.llc.index()).collect(),
            node_of: cores.iter().map(|core| node(core.node)).collect(),
            package_of: (0..cores.len()).map(package).collect(),
            llc_nodes: machine.llcs().iter().map(|llc| node(llc.node)).collect(),
            nodes,
            packages: packages.len().max(1),
            latency: pair(&|distance| memory.local_ns + (distance - 10.0).max(0.0) * memory.per_distance_ns),
            far: pair(&|distance| model.caches.far_transfer_ns * distance / 10.0),
            shared_ns: model.caches.shared_ns,
            transfer_ns: model.caches.transfer_ns,
            private: model.caches.private_bytes as f64,
            shared: model.caches.shared_bytes as f64,
            outstanding: (memory.core_bandwidth * memory.local_ns / super::cache::LINE_BYTES).max(1.0),
            core_bandwidth: memory.core_bandwidth,
            page: memory.page_bytes.max(1) as f64,
        }
    }

    pub(super) fn core(&self, pu: Pu) -> usize {
        self.core_of[pu.index()]
    }

    pub(super) fn llc(&self, core: usize) -> usize {
        self.llc_of[core]
    }

    pub(super) fn node(&self, core: usize) -> usize {
        self.node_of[core]
    }

    pub(super) fn package(&self, core: usize) -> usize {
        self.package_of[core]
    }

    /// Returns the latency from a core's node to a node's memory, without contention, ns.
    pub(super) fn latency(&self, from: usize, to: usize) -> f64 {
        self.latency[from * self.nodes + to]
    }

    /// Returns the latency of a written line from another LLC, ns.
    pub(super) fn far(&self, from: usize, to: usize) -> f64 {
        self.far[self.llc_nodes[from] * self.nodes + self.llc_nodes[to]]
    }

    /// Returns the speed of a core for each of its busy hardware threads.
    pub(super) fn speed(&self, core: usize, busy: u32) -> f64 {
        let share = self.shares[(busy.max(1) as usize - 1).min(self.shares.len() - 1)];
        (self.speeds[core] * share).max(1e-6)
    }
}

fn distance(machine: &Machine, from: usize, to: usize) -> f64 {
    if machine.nodes().is_empty() {
        return 10.0;
    }
    f64::from(machine.distance(NodeId::from_index(from), NodeId::from_index(to)))
}
