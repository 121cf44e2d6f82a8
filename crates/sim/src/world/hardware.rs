//! Hardware of a world: which CPUs are busy, and the speed at which each lets its thread progress.

use crate::model::Model;
use std::ops::Range;
use trimtab_core::ids::{Id, OsCpu, Pu};
use trimtab_core::set::{CpuSet, Set};

/// Machine with the busy parts of each core and package.
#[derive(Debug)]
pub(super) struct Hardware {
    model: Model,
    /// By CPU: its core, its package, and whether it is busy.
    core_of: Vec<u32>,
    package_of: Vec<u32>,
    occupied: Vec<bool>,
    /// By core: busy hardware threads; by package: busy cores.
    core_busy: Vec<u32>,
    package_busy: Vec<u32>,
    /// By package: its CPUs.
    packages: Vec<Range<usize>>,
}

impl Hardware {
    /// Returns an idle machine.
    pub(super) fn new(model: Model) -> Self {
        let machine = &model.machine;
        let count = machine.pu_count();
        let packages = model.packages();
        let mut package_of = vec![0; count];
        for (at, cpus) in packages.iter().enumerate() {
            package_of[cpus.clone()].fill(at as u32);
        }
        Self {
            core_of: (0..count).map(|cpu| machine.core_of(Pu::from_index(cpu)).0).collect(),
            package_of,
            occupied: vec![false; count],
            core_busy: vec![0; machine.cores().len()],
            package_busy: vec![0; packages.len()],
            packages,
            model,
        }
    }

    /// Returns the machine and its numbers.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the number of CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.core_of.len()
    }

    /// Returns the operating system's number of a CPU.
    pub(super) fn os(&self, cpu: usize) -> OsCpu {
        self.model.machine.os(Pu::from_index(cpu))
    }

    /// Returns the PUs of a set of CPUs, without those that the machine does not have.
    pub(super) fn pus(&self, cpus: &CpuSet) -> Set<Pu> {
        cpus.iter().filter_map(|cpu| self.model.machine.pu(cpu)).collect()
    }

    /// Marks a CPU as busy or idle. Returns the CPUs on which threads now progress at another
    /// speed: its core's other hardware threads (`siblings` are all of its core), or its whole
    /// package.
    pub(super) fn occupy(
        &mut self,
        cpu: usize,
        busy: bool,
        siblings: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<> {
        let (cpus, but) = self.occupied(cpu, busy, siblings);
        cpus.filter(move |other| Some(*other) != but)
    }

    fn occupied(&mut self, cpu: usize, busy: bool, siblings: Range<usize>) -> (Range<usize>, Option<usize>) {
        if self.occupied[cpu] == busy {
            return (0..0, None);
        }
        self.occupied[cpu] = busy;
        let (core, package) = (self.core_of[cpu] as usize, self.package_of[cpu] as usize);
        let step = |count: u32| if busy { count + 1 } else { count - 1 };
        self.core_busy[core] = step(self.core_busy[core]);
        let whole = self.core_busy[core] == u32::from(busy);
        if whole {
            let before = self.turbo(package);
            self.package_busy[package] = step(self.package_busy[package]);
            if self.turbo(package).to_bits() != before.to_bits() {
                return (self.packages[package].clone(), None);
            }
        }
        (siblings, Some(cpu))
    }

    fn turbo(&self, package: usize) -> f64 {
        let factors = &self.model.turbo.factors;
        let busy = (self.package_busy[package] as usize).clamp(1, factors.len().max(1));
        factors.get(busy - 1).copied().unwrap_or(1.0)
    }

    /// Returns the work per nanosecond of a thread that never waits for memory on a CPU.
    pub(super) fn speed(&self, cpu: usize) -> f64 {
        let core = self.core_of[cpu] as usize;
        let speed = self.model.speeds.get(core).copied().unwrap_or(1.0);
        let busy = self.core_busy[core].max(1) as usize;
        let throughput = &self.model.smt.throughput;
        let whole = throughput.get(busy.min(throughput.len()).wrapping_sub(1)).copied().unwrap_or(1.0);
        speed * self.turbo(self.package_of[cpu] as usize) * whole / busy as f64
    }
}
