//! Scheduling domains, in which a kernel balances: hardware threads of a core, cores of a cache, of
//! a node, of a package, of the machine.
//!
//! Terms: a *domain* is a range of CPUs; its *groups* are the domains (or single CPUs) directly
//! inside. Each domain keeps the number of threads that want to run inside it, so a comparison of
//! groups reads one number per group.

use std::collections::BTreeMap;
use std::ops::Range;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::topology::{Level, Machine};

/// Range of CPUs in which load is balanced, or a single CPU.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) cpus: Range<usize>,
    pub(crate) parent: Option<u32>,
    /// Domains directly inside, in order; empty for a single CPU.
    pub(crate) groups: Vec<u32>,
    /// Number of usable CPUs.
    pub(crate) width: u32,
    /// Number of threads that want to run inside.
    pub(crate) load: u32,
    /// Whether the domain spans several memory nodes.
    pub(crate) numa: bool,
}

/// All domains; number i below the number of CPUs is CPU i alone.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    pub(crate) all: Vec<Domain>,
    /// By CPU, the domain of the CPUs that share its LLC.
    pub(crate) cache: Vec<u32>,
    /// By CPU, the domain of its core.
    pub(crate) core: Vec<u32>,
    /// Highest number of domains that hold one CPU, not counting the CPU itself.
    pub(crate) depth: usize,
    pub(crate) root: u32,
}

impl Domains {
    pub(crate) fn new(machine: &Machine) -> Self {
        let count = machine.pu_count();
        let mut all = nested(machine);
        let inner = all.len();
        // A CPU's parent is the smallest domain around it, which is the last one made of those that
        // hold it.
        for at in count..inner {
            for cpu in all[at].cpus.clone() {
                all[cpu].parent = Some(at as u32);
            }
        }
        // Groups are in the order of their CPUs.
        let mut order: Vec<u32> = (0..inner as u32).collect();
        order.sort_by_key(|&at| (all[at as usize].cpus.start, std::cmp::Reverse(all[at as usize].cpus.end)));
        for at in order {
            if let Some(parent) = all[at as usize].parent {
                all[parent as usize].groups.push(at);
            }
        }
        let mut domains = Self {
            cache: Vec::new(),
            core: Vec::new(),
            depth: 0,
            root: if count == 1 { 0 } else { count as u32 },
            all,
        };
        domains.depth = (0..count).map(|cpu| domains.up(cpu).count()).max().unwrap_or(0);
        for cpu in 0..count {
            let core = machine.core(machine.core_of(Pu::from_index(cpu)));
            let cache = pus_of(machine, &machine.llcs()[core.llc.index()].cores);
            domains.cache.push(domains.around(cpu, &cache));
            domains.core.push(domains.around(cpu, &span(&core.pus)));
        }
        domains
    }

    /// Returns the domains that hold a CPU, smallest first.
    pub(crate) fn up(&self, cpu: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.all[cpu].parent, |&at| self.all[at as usize].parent)
    }

    /// Returns the smallest domain of a CPU that holds a range; the machine if none does.
    fn around(&self, cpu: usize, range: &Range<usize>) -> u32 {
        let holds = |at: &u32| {
            let cpus = &self.all[*at as usize].cpus;
            cpus.start <= range.start && range.end <= cpus.end
        };
        std::iter::once(cpu as u32).chain(self.up(cpu)).find(holds).unwrap_or(self.root)
    }

    /// Adds threads to a CPU's domains; a negative number removes them.
    pub(crate) fn add(&mut self, cpu: usize, threads: i32) {
        let mut at = Some(cpu as u32);
        while let Some(domain) = at {
            let domain = &mut self.all[domain as usize];
            domain.load = domain.load.saturating_add_signed(threads);
            at = domain.parent;
        }
    }

    /// Notes that a CPU becomes usable or unusable.
    pub(crate) fn open(&mut self, cpu: usize, usable: bool) {
        let mut at = Some(cpu as u32);
        while let Some(domain) = at {
            let domain = &mut self.all[domain as usize];
            domain.width = domain.width.saturating_add_signed(if usable { 1 } else { -1 });
            at = domain.parent;
        }
    }
}

/// The CPUs of a range of hardware threads.
fn span(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The CPUs of a range of cores.
fn pus_of(machine: &Machine, cores: &Range<u32>) -> Range<usize> {
    let of = |core: u32| span(&machine.cores()[core as usize].pus);
    of(cores.start).start..of(cores.end - 1).end
}

/// The CPUs of the objects of each level, smallest level first.
fn levels(machine: &Machine) -> Vec<Vec<Range<usize>>> {
    let mut levels: Vec<Vec<Range<usize>>> = Vec::new();
    levels.push(machine.cores().iter().map(|core| span(&core.pus)).collect());
    levels.push(machine.llcs().iter().map(|llc| pus_of(machine, &llc.cores)).collect());
    let homes = machine.nodes().iter().filter(|node| !node.cores.is_empty());
    levels.push(homes.map(|node| span(&node.near)).collect());
    // Linux has domains for caches and nodes, not for packages: two dies without a common cache are
    // two groups of their node (cpu_coregroup_map of 2.6.28, cpu_cpu_mask today). A package of
    // several nodes is a level because of its distances.
    let around_nodes = |package: &Range<usize>| {
        let mut homes =
            machine.nodes().iter().filter(|node| !node.cores.is_empty()).map(|node| span(&node.near));
        homes.any(|node| package.start <= node.start && node.end <= package.end)
    };
    levels.push(machine.at(Level::Package).map(|package| span(&package.pus)).filter(around_nodes).collect());
    levels.push(std::iter::once(0..machine.pu_count()).collect());
    levels
}

/// One domain for each CPU, then the domains of all levels, each with its parent. An outer domain
/// comes before its inner ones.
fn nested(machine: &Machine) -> Vec<Domain> {
    let mut ranges: BTreeMap<(usize, std::cmp::Reverse<usize>), Range<usize>> = BTreeMap::new();
    for range in levels(machine).iter().flatten().filter(|range| range.len() > 1) {
        ranges.insert((range.start, std::cmp::Reverse(range.end)), range.clone());
    }
    let single = |cpu: usize| Domain {
        cpus: cpu..cpu + 1,
        parent: None,
        groups: Vec::new(),
        width: 1,
        load: 0,
        numa: false,
    };
    let mut all: Vec<Domain> = (0..machine.pu_count()).map(single).collect();
    // An outer range comes before the inner ones with the same start. A range that crosses the
    // range around it is left out.
    let mut open: Vec<u32> = Vec::new();
    for range in ranges.into_values() {
        while open.last().is_some_and(|&at| all[at as usize].cpus.end <= range.start) {
            open.pop();
        }
        let parent = open.last().copied();
        if parent.is_some_and(|at| range.end > all[at as usize].cpus.end) {
            continue;
        }
        let at = all.len() as u32;
        let node_of = |cpu: usize| machine.core(machine.core_of(Pu::from_index(cpu))).node;
        let first = node_of(range.start);
        let numa = range.clone().any(|cpu| node_of(cpu) != first);
        all.push(Domain {
            width: range.len() as u32,
            cpus: range,
            parent,
            groups: Vec::new(),
            load: 0,
            numa,
        });
        open.push(at);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::topology::parse_synthetic;

    #[test]
    fn domains_nest_as_the_machine_does() {
        let machine = parse_synthetic("pack:2 numa:1 l3:2 core:2 pu:2").unwrap();
        let domains = Domains::new(&machine);
        let around: Vec<Range<usize>> =
            domains.up(5).map(|at| domains.all[at as usize].cpus.clone()).collect();
        assert_eq!(around, [4..6, 4..8, 0..8, 0..16]);
        assert_eq!(domains.depth, 4);
        assert_eq!(domains.all[domains.cache[5] as usize].cpus, 4..8);
        assert_eq!(domains.all[domains.core[5] as usize].cpus, 4..6);
        let root = &domains.all[domains.root as usize];
        assert_eq!((root.cpus.clone(), root.numa, root.groups.len()), (0..16, true, 2));
    }

    #[test]
    fn packages_without_a_common_cache_or_a_node_are_no_domain() {
        let domains = |text: &str| Domains::new(&parse_synthetic(text).unwrap());
        let around = |of: &Domains, cpu| -> Vec<Range<usize>> {
            of.up(cpu).map(|at| of.all[at as usize].cpus.clone()).collect()
        };
        // Tigerton: four packages of two dies, one memory.
        assert_eq!(around(&domains("pack:4 l2:2 core:2 pu:1"), 5), [4..6, 0..16]);
        // A package of several nodes is one.
        assert_eq!(around(&domains("pack:2 numa:2 l3:1 core:2 pu:1"), 5), [4..6, 4..8, 0..8]);
    }

    #[test]
    fn one_cpu_is_its_own_machine() {
        let domains = Domains::new(&parse_synthetic("core:1 pu:1").unwrap());
        assert_eq!((domains.depth, domains.up(0).count()), (0, 0));
    }

    #[test]
    fn loads_add_up() {
        let mut domains = Domains::new(&parse_synthetic("pack:2 numa:1 core:2 pu:1").unwrap());
        for (cpu, threads) in [(0, 1), (3, 2), (0, 1), (3, -1)] {
            domains.add(cpu, threads);
        }
        for domain in &domains.all {
            let sum: u32 = domain.cpus.clone().map(|cpu| domains.all[cpu].load).sum();
            assert_eq!(domain.load, sum);
        }
    }
}
