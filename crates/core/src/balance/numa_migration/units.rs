//! Units of the machine: the targets of moves that bring threads near to their memory.
//!
//! Unit: one *unit* is the set of CPUs that share a memory node and a last-level cache: a node, or
//! each last-level cache of a node that has several.
//!
//! Problem: within a unit no move changes the distance to memory, so the kernel should move threads
//! there. But the room in a unit decides whether a thread may go there alone.
//!
//! Idea: targets are whole units, cut to the thread's usable CPUs. Room is counted in cores first
//! and in hardware threads second, from the CPU time that threads want and that other programs
//! take.
//!
//! Properties: units are in logical order. Every CPU of the machine model belongs to exactly one
//! unit. A unit without a usable CPU has no room.

use super::super::cpu_table::{CpuIndex, CpuTable};
use super::super::thread_table::ThreadTable;
use crate::ids::{LlcId, OsNode};
use crate::observe::Observation;
use crate::set::CpuSet;
use crate::topology::Machine;

/// Part of a CPU by which a newcomer's demand of one CPU may exceed the room.
const DEMAND_SLACK: f64 = 0.25;

/// One unit.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// Its CPUs, usable or not.
    pub(super) cpus: CpuSet,
    /// Its memory node, if the machine has nodes.
    pub(super) node: Option<OsNode>,
    indices: Vec<CpuIndex>,
}

/// Load of a unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct UnitLoad {
    /// Physical cores with at least one usable CPU.
    cores: f64,
    /// Usable CPUs.
    cpus: f64,
    /// CPUs that our threads and others want there.
    pub(super) wanted: f64,
}

impl UnitLoad {
    /// Returns whether one more thread would have its own core.
    pub(super) fn has_core(&self) -> bool {
        self.wanted + 1.0 <= self.cores + DEMAND_SLACK
    }

    /// Returns whether one more thread would have its own CPU, maybe on a core with another thread.
    pub(super) fn has_cpu(&self) -> bool {
        self.wanted + 1.0 <= self.cpus + DEMAND_SLACK
    }

    /// Returns whether threads share cores there.
    pub(super) fn shares_cores(&self) -> bool {
        self.wanted > self.cores + DEMAND_SLACK
    }

    /// Returns whether threads share CPUs there, so that some must wait.
    pub(super) fn shares_cpus(&self) -> bool {
        self.wanted > self.cpus + DEMAND_SLACK
    }

    /// Returns whether a thread can come from unit `from` without being more crowded here than
    /// there.
    pub(super) fn room(&self, from: &Self) -> bool {
        self.has_core() || self.has_cpu() && from.shares_cores()
    }
}

/// All units of a machine.
#[derive(Clone, Debug)]
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    of: Vec<u16>, // by CPU
}

impl Units {
    /// Builds the units of a machine.
    pub(super) fn new(machine: &Machine, cpu_table: &CpuTable) -> Self {
        let mut keys: Vec<(usize, LlcId)> = Vec::new();
        let mut all: Vec<Unit> = Vec::new();
        let of = (0..cpu_table.len()).map(CpuIndex::at).map(|cpu| {
            let entry = cpu_table.entry(cpu);
            let key = (entry.node.index(), entry.llc);
            let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                // Node index 0 is used for CPUs without a node.
                let node = key.0.checked_sub(1).and_then(|node| machine.nodes().get(node));
                all.push(Unit { cpus: CpuSet::new(), node: node.map(|node| node.os), indices: Vec::new() });
                all.len() - 1
            });
            all[at].cpus.insert(entry.os);
            all[at].indices.push(cpu);
            u16::try_from(at).unwrap_or(u16::MAX)
        });
        let of = of.collect();
        Self { all, of }
    }

    /// Returns the unit of a CPU.
    pub(super) fn of(&self, cpu: CpuIndex) -> u16 {
        self.of[cpu.index()]
    }

    /// Returns the number of units with at least one usable CPU.
    pub(super) fn open(&self, cpu_table: &CpuTable) -> usize {
        self.all.iter().filter(|unit| unit.cpus.intersects(cpu_table.usable())).count()
    }

    /// Returns the CPUs of a unit to which thread `i` may go.
    pub(super) fn room(&self, table: &ThreadTable, i: usize, unit: u16) -> CpuSet {
        self.all.get(usize::from(unit)).map_or_else(CpuSet::new, |unit| unit.cpus.intersection(table.room(i)))
    }

    /// Returns the load of each unit. `unit` gives the unit of thread `i`.
    pub(super) fn loads(
        &self,
        table: &ThreadTable,
        others: &ForeignLoad,
        unit: impl Fn(usize) -> Option<u16>,
    ) -> Vec<UnitLoad> {
        let cpu_table = &table.cpu_table;
        let load = |(at, one): (usize, &Unit)| {
            let mut load = UnitLoad { wanted: others.of(at), ..UnitLoad::default() };
            let mut core = None;
            for &cpu in one.indices.iter().filter(|&&cpu| cpu_table.is_open(cpu)) {
                let entry = cpu_table.entry(cpu);
                load.cpus += 1.0;
                if core.replace(entry.core) != Some(entry.core) {
                    load.cores += 1.0;
                }
            }
            load
        };
        let mut loads: Vec<UnitLoad> = self.all.iter().enumerate().map(load).collect();
        for (i, thread) in table.threads.iter().enumerate() {
            let Some(load) = unit(i).and_then(|unit| loads.get_mut(usize::from(unit))) else { continue };
            load.wanted += thread.wanted.unwrap_or(0.0).min(1.0);
        }
        loads
    }
}

/// Load of other programs in each unit, in CPUs.
///
/// The CPU of a thread is not read once the thread is kept in a unit, so the load of a single CPU
/// cannot be attributed. For a whole unit, the others' load is the busy time minus the time of our
/// threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignLoad {
    /// By unit: seconds that our threads ran since the last reading of the CPUs, and the load of
    /// others.
    units: Vec<(f64, f64)>,
}

impl ForeignLoad {
    /// Load below this value is the granularity of the kernel's counting.
    const LOAD_NOISE_MAX: f64 = 0.15;
    /// Share of the difference by which a new reading shifts the load.
    const SMOOTHING_WEIGHT: f64 = 0.5;

    /// Processes an observation. `unit` gives the unit of thread `i`.
    pub(super) fn observe(
        &mut self,
        units: &Units,
        cpu_table: &CpuTable,
        seen: &Observation<'_>,
        unit: impl Fn(usize) -> Option<u16>,
    ) {
        self.units.resize(units.all.len(), (0.0, 0.0));
        for (i, view) in seen.threads.iter().enumerate() {
            if let Some((at, rates)) = unit(i).zip(view.rates.as_ref()) {
                self.units[usize::from(at)].0 += rates.run * rates.span.seconds();
            }
        }
        if seen.cpus.is_empty() {
            return;
        }
        let mut read = vec![(0.0, 0.0_f64); self.units.len()];
        for view in &seen.cpus {
            let (Some(cpu), Some((busy, span))) = (cpu_table.find(view.cpu), view.busy.zip(view.span)) else {
                continue;
            };
            let (all, long) = &mut read[usize::from(units.of(cpu))];
            *all += busy * span.seconds();
            *long = long.max(span.seconds());
        }
        for ((ours, others), (busy, long)) in self.units.iter_mut().zip(read) {
            if long > 0.0 {
                let now = ((busy - *ours) / long).max(0.0);
                *others += Self::SMOOTHING_WEIGHT * (now - *others);
            }
            *ours = 0.0;
        }
    }

    fn of(&self, unit: usize) -> f64 {
        self.units
            .get(unit)
            .map(|(_, others)| *others)
            .filter(|others| *others >= Self::LOAD_NOISE_MAX)
            .unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    fn units(machine: &str) -> Vec<(String, Option<OsNode>)> {
        let machine = parse_synthetic(machine).unwrap();
        let units = Units::new(&machine, &CpuTable::new(&machine));
        units.all.iter().map(|unit| (unit.cpus.to_string(), unit.node)).collect()
    }

    #[test]
    fn a_unit_is_a_node_or_each_of_its_last_caches() {
        let node = |number| Some(OsNode(number));
        let of = |found: Vec<(String, Option<OsNode>)>| {
            found
                .into_iter()
                .map(|(cpus, node)| format!("{cpus}@{}", node.map_or(9, |node| node.0)))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(units("numa:2 l3:1 core:2 pu:1")), ["0-1@0", "2-3@1"]);
        assert_eq!(of(units("numa:2 l3:2 core:2 pu:1")), ["0-1@0", "2-3@0", "4-5@1", "6-7@1"]);
        assert_eq!(units("numa:2 core:2 pu:2").len(), units("numa:2 l3:1 core:2 pu:2").len().max(2));
        assert_eq!(units("l3:1 core:4 pu:1")[0].0, "0-3");
        assert_eq!(units("numa:2 l3:1 core:2 pu:1")[1].1, node(1));
    }

    #[test]
    fn the_time_of_our_threads_does_not_count_as_others_anywhere_in_a_unit() {
        use crate::ids::{OsCpu, ProgramId, ThreadId};
        use crate::observe::{CpuSample, Observer, Sample, ThreadInfo, ThreadSample};
        use crate::time::{Moment, Span};
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let cpu_table = CpuTable::new(&machine);
        let (units, mut others) = (Units::new(&machine, &cpu_table), ForeignLoad::default());
        let mut observer = Observer::new(machine.cpus());
        let mut observe = |ms: u64, others: &mut ForeignLoad| {
            // Our thread always runs, half of the time on each CPU of node 0; another program runs
            // on CPU 3.
            let all = Span::from_ms(ms);
            let busy =
                |cpu: u32, part: f64| CpuSample { cpu: OsCpu(cpu), busy: all.times(part), steal: None };
            let thread = ThreadSample {
                id: ThreadId(0),
                run: all,
                wait: None,
                slices: None,
                ready: None,
                voluntary: None,
                cpu: None,
                counts: None,
            };
            let info = ThreadInfo {
                id: ThreadId(0),
                program: ProgramId(0),
                pid: 1,
                tid: 1,
                name: String::new(),
                home: machine.cpus(),
                left: None,
                tagged: false,
            };
            let sample = Sample {
                at: Moment(ms * 1_000_000),
                news: if ms == 0 { vec![info] } else { Vec::new() },
                threads: vec![thread],
                cpus: vec![busy(0, 0.5), busy(1, 0.5), busy(2, 0.0), busy(3, 1.0)],
                ..Sample::default()
            };
            observer.take(&sample, &[]);
            others.observe(&units, &cpu_table, &observer.observation(), |_| Some(0));
        };
        (0..10).for_each(|at| observe(at * 200, &mut others));
        assert_eq!(others.of(0), 0.0);
        assert!((others.of(1) - 1.0).abs() < 0.05, "{}", others.of(1));
    }

    #[test]
    fn a_core_of_its_own_comes_first() {
        let load = |wanted| UnitLoad { cores: 2.0, cpus: 4.0, wanted };
        let empty = load(0.0);
        assert!(load(1.0).room(&empty) && !load(2.0).room(&empty));
        assert!(load(2.0).room(&load(3.0)), "who shares a core may share one elsewhere");
        assert!(!load(4.0).room(&load(5.0)));
        assert!(!UnitLoad::default().room(&load(4.0)), "nothing may be used");
    }
}
