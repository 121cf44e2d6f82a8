//! What a machine is made of, beyond its topology: how fast, how large, how far.
//!
//! Units: speeds are factors of a reference core, 1.0; sizes are bytes; latencies are nanoseconds; bandwidths are bytes a
//! nanosecond (which is GB/s). Everything that runs is measured in *work*: nanoseconds on an idle reference core whose data
//! sit in its private caches. Stalls, slower cores and busy siblings make work take longer.

pub mod file;
pub mod shipped;

#[cfg(test)]
mod file_tests;

use std::collections::BTreeMap;
use std::ops::Range;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::time::Span;
use trimtab_core::topology::{Level, Machine};

/// A machine with numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// The topology as it was described, from which `machine` was made.
    pub topology: String,
    /// Packages, nodes, caches, cores and their names; distances between nodes.
    pub machine: Machine,
    /// How fast each core is when nothing else matters, by core, 1.0 for the reference.
    pub speeds: Vec<f64>,
    /// How fast a core is while some of its package's cores are busy.
    pub turbo: Turbo,
    /// How a core divides itself among its hardware threads.
    pub smt: Smt,
    /// Caches.
    pub caches: Caches,
    /// Memory.
    pub memory: Memory,
    /// What it costs to put another thread on a CPU.
    pub switching: Switching,
    /// Where every number comes from, by the key it has in the machine file.
    pub sources: BTreeMap<String, String>,
}

/// Clock rates that depend on how many cores of a package are busy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Turbo {
    /// The factor with 1, 2, 3 ... busy cores; the last holds for all more. Empty: always 1.
    pub factors: Vec<f64>,
}

/// How much a core does with 1, 2, ... of its hardware threads busy, in all, compared with one: `[1.0, 1.25]` is usual.
#[derive(Clone, PartialEq, Debug)]
pub struct Smt {
    /// By the number of busy hardware threads, from 1; the last holds for all more.
    pub throughput: Vec<f64>,
}

/// Caches, as far as threads that share or leave them notice.
#[derive(Clone, PartialEq, Debug)]
pub struct Caches {
    /// What a core keeps to itself, which a migrated thread fetches again.
    pub private_bytes: u64,
    /// The last level that several cores share; 0 where there is none (each core's private cache is then its last).
    pub shared_bytes: u64,
    /// From a private miss to data out of the shared level.
    pub shared_ns: f64,
    /// A line that another core wrote last, within the shared level.
    pub transfer_ns: f64,
    /// A line that a core of another shared level wrote last, per unit of distance / 10 (so that 10 is the same node).
    pub far_transfer_ns: f64,
}

/// Memory controllers and the links between nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Memory {
    /// From a miss of the last level to data out of the node's own memory, unloaded.
    pub local_ns: f64,
    /// What distance adds: a node at distance d answers after `local_ns + (d - 10) * per_distance_ns`.
    pub per_distance_ns: f64,
    /// What one node's memory delivers, bytes a nanosecond.
    pub node_bandwidth: f64,
    /// What the links of one node carry to and from others, bytes a nanosecond; infinite on one node.
    pub link_bandwidth: f64,
    /// What one core can ask for at most, bytes a nanosecond: its outstanding misses.
    pub core_bandwidth: f64,
    /// What one package's own bus carries, where memory is behind it, as on machines before NUMA: bytes a nanosecond.
    pub port_bandwidth: Option<f64>,
    /// What the whole machine's memory traffic has to share, whichever node it goes to: bytes a nanosecond. The probes of a
    /// machine that asks all others at each miss, or one controller behind all buses.
    pub bus_bandwidth: Option<f64>,
    /// The size of pages that are touched first, placed and moved.
    pub page_bytes: u64,
}

/// What it costs to put another thread on a CPU; cold caches come on top, from [`Caches`] and [`Memory`].
#[derive(Clone, PartialEq, Debug)]
pub struct Switching {
    /// From one thread to another on one CPU.
    pub switch: Span,
    /// To take a thread from another CPU's queue.
    pub migrate: Span,
    /// From the wake-up of a sleeping thread to its first instruction on an idle CPU.
    pub wake: Span,
    /// One call of yield: so long somebody who waits by yielding keeps a CPU that others want.
    pub yielding: Span,
}

impl Model {
    /// The PUs of each package, whose cores share a turbo; all of them where the machine does not say.
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

    /// The most work that the machine does in a nanosecond: with the number of busy cores in each package, and of busy hardware
    /// threads in each core, with which it does most, and nobody waiting for memory.
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

    /// A machine of equal cores where memory costs nothing, switches cost what they do on servers of the 2020s, and hardware threads
    /// of one core have a quarter more together than one alone.
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
            memory: Memory {
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

    /// The same, where putting another thread on a CPU costs nothing.
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
        // The slow ones last.
        model.speeds = vec![0.5, 1.0, 1.0, 1.0, 1.0, 1.0];
        model.turbo.factors = vec![1.0, 1.0, 0.1];
        close(model.capacity(), 4.0);
    }
}
