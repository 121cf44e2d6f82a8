//! Machine parameters beyond the topology: speeds, sizes, latencies and bandwidths.
//!
//! Units: speeds are factors of a reference core, 1.0; sizes are bytes; latencies are nanoseconds;
//! bandwidths are bytes a nanosecond (which is GB/s). All progress is measured in *work*:
//! nanoseconds on an idle reference core with its data in its private caches. Stalls, slower cores
//! and busy siblings make work take longer.

pub mod file;
pub mod shipped;

#[cfg(test)]
mod file_tests;

use std::collections::BTreeMap;
use std::ops::Range;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::time::Span;
use trimtab_core::topology::{Level, Machine};

/// Machine with numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Topology as it was described, from which `machine` was made.
    pub topology: String,
    /// Packages, nodes, caches, cores and their names; distances between nodes.
    pub machine: Machine,
    /// Speed of each core without contention, by core, 1.0 for the reference.
    pub speeds: Vec<f64>,
    /// Speed of a core by the number of busy cores in its package.
    pub turbo: Turbo,
    /// How a core divides itself among its hardware threads.
    pub smt: Smt,
    /// Caches.
    pub caches: Caches,
    /// Memory.
    pub memory: MemoryParams,
    /// Costs of putting another thread on a CPU.
    pub switching: Switching,
    /// Source of every number, by the key that the number has in the machine file.
    pub sources: BTreeMap<String, String>,
}

/// Clock rates that depend on how many cores of a package are busy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Turbo {
    /// Factors with 1, 2, 3 ... busy cores; the last holds for all more. Empty: always 1.
    pub factors: Vec<f64>,
}

/// Throughput of a core with 1, 2, ... of its hardware threads busy, in all, compared with one:
/// `[1.0, 1.25]` is usual.
#[derive(Clone, PartialEq, Debug)]
pub struct Smt {
    /// By the number of busy hardware threads, from 1; the last holds for all more.
    pub throughput: Vec<f64>,
}

/// Caches, with the properties that affect threads which share or leave them.
#[derive(Clone, PartialEq, Debug)]
pub struct Caches {
    /// Size of a core's private caches, bytes, which a migrated thread fills again.
    pub private_bytes: u64,
    /// Size of the LLC, the last level that several cores share, bytes; 0 if there is none (each
    /// core's private cache is then its last).
    pub shared_bytes: u64,
    /// Latency from a private miss to data out of the shared level, ns.
    pub shared_ns: f64,
    /// Latency of a line that another core wrote last, within the shared level, ns.
    pub transfer_ns: f64,
    /// Latency of a line that a core of another shared level wrote last, ns, per unit of distance /
    /// 10 (so that 10 is the same node).
    pub far_transfer_ns: f64,
}

/// Memory controllers and the links between nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryParams {
    /// Latency from a miss of the last level to data out of the node's own memory, unloaded, ns.
    pub local_ns: f64,
    /// Latency that distance adds: a node at distance d answers after
    /// `local_ns + (d - 10) * per_distance_ns`.
    pub per_distance_ns: f64,
    /// Bandwidth of one node's memory, bytes a nanosecond.
    pub node_bandwidth: f64,
    /// Bandwidth of the links of one node to and from others, bytes a nanosecond; infinite on one
    /// node.
    pub link_bandwidth: f64,
    /// Highest bandwidth of one core, bytes a nanosecond: limited by its outstanding misses.
    pub core_bandwidth: f64,
    /// Bandwidth of one package's own bus, bytes a nanosecond, if memory is behind it, as on
    /// machines before NUMA.
    pub port_bandwidth: Option<f64>,
    /// Bandwidth that the whole machine's memory traffic shares, to all nodes, bytes a nanosecond:
    /// the probes of a machine that probes all caches at each miss, or one controller behind all
    /// buses.
    pub bus_bandwidth: Option<f64>,
    /// Size of pages that are touched first, placed and moved, bytes.
    pub page_bytes: u64,
}

/// Costs of putting another thread on a CPU. The costs of cold caches are added from [`Caches`] and
/// [`MemoryParams`].
#[derive(Clone, PartialEq, Debug)]
pub struct Switching {
    /// Cost of a context switch from one thread to another on one CPU.
    pub switch: Span,
    /// Cost of taking a thread from another CPU's run queue.
    pub migrate: Span,
    /// Time from the wake-up of a sleeping thread to its first instruction on an idle CPU.
    pub wake: Span,
    /// Cost of one call of yield: for this long, a thread that waits by yielding keeps a CPU that
    /// others want.
    pub yielding: Span,
}

impl Model {
    /// Returns the PUs of each package, whose cores share a turbo; one package of all PUs if the
    /// machine does not define packages.
    pub fn packages(&self) -> Vec<Range<usize>> {
        let count = self.machine.pu_count();
        let packages: Vec<Range<usize>> =
            self.machine.at(Level::Package).map(|of| of.pus.start as usize..of.pus.end as usize).collect();
        if packages.iter().map(Range::len).sum::<usize>() == count {
            packages
        } else {
            std::iter::once(0..count).collect()
        }
    }

    /// Returns the most work that the machine does in a nanosecond, when no thread waits for
    /// memory: with the best number of busy cores in each package, and of busy hardware threads in
    /// each core.
    pub fn capacity(&self) -> f64 {
        let factors = &self.turbo.factors;
        let turbo =
            |busy: usize| factors.get(busy.min(factors.len()).wrapping_sub(1)).copied().unwrap_or(1.0);
        let best = |pus: &Range<usize>| {
            let mut cores = BTreeMap::new();
            for pu in pus.clone().map(Pu::from_index) {
                *cores.entry(self.machine.core_of(pu).0).or_insert(0) += 1;
            }
            let speed = |(core, threads): (u32, usize)| {
                let throughput = self.smt.throughput.iter().take(threads).copied();
                self.speeds.get(core as usize).copied().unwrap_or(1.0) * throughput.fold(1.0, f64::max)
            };
            let mut speeds: Vec<f64> = cores.into_iter().map(speed).collect();
            speeds.sort_by(|one, other| other.total_cmp(one));
            let mut sum = 0.0;
            (1..)
                .zip(speeds)
                .map(|(busy, speed)| {
                    sum += speed;
                    sum * turbo(busy)
                })
                .fold(0.0, f64::max)
        };
        self.packages().iter().map(best).sum()
    }

    /// Returns a machine of equal cores. Its memory costs nothing, its context switches cost as
    /// much as on servers of the 2020s, and the hardware threads of one core do a quarter more
    /// together than one alone.
    pub fn plain(machine: Machine) -> Self {
        let speeds = vec![1.0; machine.cores().len()];
        Self {
            topology: machine.name().to_owned(),
            machine,
            speeds,
            turbo: Turbo::default(),
            smt: Smt { throughput: vec![1.0, 1.25] },
            caches: Caches {
                private_bytes: 1 << 20,
                shared_bytes: 0,
                shared_ns: 0.0,
                transfer_ns: 0.0,
                far_transfer_ns: 0.0,
            },
            memory: MemoryParams {
                local_ns: 0.0,
                per_distance_ns: 0.0,
                node_bandwidth: f64::INFINITY,
                link_bandwidth: f64::INFINITY,
                core_bandwidth: f64::INFINITY,
                port_bandwidth: None,
                bus_bandwidth: None,
                page_bytes: 4096,
            },
            switching: Switching {
                switch: Span::from_us(2),
                migrate: Span::from_us(3),
                wake: Span::from_us(5),
                yielding: Span::from_us(1),
            },
            sources: BTreeMap::new(),
        }
    }

    /// Returns the same machine with free context switches and migrations.
    #[must_use]
    pub fn free(mut self) -> Self {
        let nothing = Span::ZERO;
        self.switching = Switching { switch: nothing, migrate: nothing, wake: nothing, yielding: nothing };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::topology::parse_synthetic;

    #[test]
    fn a_machine_does_most_with_as_many_cores_as_help() {
        let of = |text: &str| Model::plain(parse_synthetic(text).unwrap());
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other}");
        close(of("pack:2 core:3").capacity(), 6.0);
        close(of("pack:2 core:3 pu:2").capacity(), 7.5);
        let mut model = of("pack:2 core:3");
        model.turbo.factors = vec![2.0, 1.5, 1.1];
        close(model.capacity(), 6.6);
        // The third core costs more than it brings.
        model.turbo.factors = vec![2.0, 1.5, 0.5];
        close(model.capacity(), 6.0);
        // The slow cores come last.
        model.speeds = vec![0.5, 1.0, 1.0, 1.0, 1.0, 1.0];
        model.turbo.factors = vec![1.0, 1.0, 0.1];
        close(model.capacity(), 4.0);
    }
}
