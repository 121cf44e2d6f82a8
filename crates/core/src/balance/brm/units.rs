//! Where a thread may be sent on account of its memory: a machine as units.
//!
//! Unit: one *unit* is the CPUs that share a memory node and a last cache: a node, or where a node has several last caches, each of
//! them. Problem: within a unit no move changes how far memory is, so the kernel should be left to move threads there; but whether
//! a unit has room decides if a thread may come alone. Idea: targets are whole units, cut to where a thread may be; room is counted
//! in cores first and in hardware threads second, by what threads want and what others take.
//!
//! Properties: units are in logical order; every CPU that the machine knows belongs to exactly one; a unit of which nothing may
//! be used has no room.

use super::super::ground::{Ground, Seat};
use super::super::seating::Seating;
use super::super::shares::Shares;
use crate::ids::{LlcId, OsNode};
use crate::set::CpuSet;
use crate::topology::Machine;

/// What a newcomer is taken to want, and what may be missing of it.
const SLACK: f64 = 0.25;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// Its CPUs, usable or not.
    pub(super) cpus: CpuSet,
    /// Its memory node, if the machine has nodes.
    pub(super) node: Option<OsNode>,
    seats: Vec<Seat>,
}

/// How crowded a unit is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Load {
    /// Physical cores of which something may be used.
    cores: f64,
    /// CPUs that may be used.
    cpus: f64,
    /// How many CPUs are wanted there, by us and others.
    pub(super) wanted: f64,
}

impl Load {
    /// Whether another thread would have a core of its own.
    pub(super) fn has_core(&self) -> bool {
        self.wanted + 1.0 <= self.cores + SLACK
    }

    /// Whether another thread would have a CPU of its own, maybe beside another on the same core.
    pub(super) fn has_cpu(&self) -> bool {
        self.wanted + 1.0 <= self.cpus + SLACK
    }

    /// Whether threads share cores there.
    pub(super) fn shares_cores(&self) -> bool {
        self.wanted > self.cores + SLACK
    }

    /// Whether a thread may come from a unit without crowding this one more than where it was.
    pub(super) fn room(&self, from: &Self) -> bool {
        self.has_core() || self.has_cpu() && from.shares_cores()
    }
}

/// The machine as units.
#[derive(Clone, Debug)]
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    of: Vec<u16>, // by seat
}

impl Units {
    /// Those of a machine.
    pub(super) fn new(machine: &Machine, ground: &Ground) -> Self {
        let mut keys: Vec<(usize, LlcId)> = Vec::new();
        let mut all: Vec<Unit> = Vec::new();
        let of = (0..ground.len()).map(Seat::at).map(|seat| {
            let place = ground.place(seat);
            let key = (place.node.index(), place.llc);
            let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                // Region 0 is no node.
                let node = key.0.checked_sub(1).and_then(|node| machine.nodes().get(node));
                all.push(Unit { cpus: CpuSet::new(), node: node.map(|node| node.os), seats: Vec::new() });
                all.len() - 1
            });
            all[at].cpus.insert(place.os);
            all[at].seats.push(seat);
            u16::try_from(at).unwrap_or(u16::MAX)
        });
        let of = of.collect();
        Self { all, of }
    }

    /// The unit of a seat.
    pub(super) fn of(&self, seat: Seat) -> u16 {
        self.of[seat.index()]
    }

    /// How many of them may be used, in part at least.
    pub(super) fn open(&self, ground: &Ground) -> usize {
        self.all.iter().filter(|unit| unit.cpus.intersects(ground.usable())).count()
    }

    /// The CPUs of a unit to which thread `i` may go.
    pub(super) fn room(&self, seating: &Seating, i: usize, unit: u16) -> CpuSet {
        self.all
            .get(usize::from(unit))
            .map_or_else(CpuSet::new, |unit| unit.cpus.intersection(seating.room(i)))
    }

    /// How crowded each is. `unit` says where thread `i` is.
    pub(super) fn loads(
        &self,
        seating: &Seating,
        shares: &Shares,
        unit: impl Fn(usize) -> Option<u16>,
    ) -> Vec<Load> {
        let ground = &seating.ground;
        let load = |one: &Unit| {
            let mut load = Load::default();
            let mut core = None;
            for &seat in one.seats.iter().filter(|&&seat| ground.is_open(seat)) {
                let place = ground.place(seat);
                load.cpus += 1.0;
                if core.replace(place.core) != Some(place.core) {
                    load.cores += 1.0;
                }
                load.wanted += shares.foreign(seat).unwrap_or(0.0);
            }
            load
        };
        let mut loads: Vec<Load> = self.all.iter().map(load).collect();
        for (i, sitter) in seating.sitters.iter().enumerate() {
            let Some(load) = unit(i).and_then(|unit| loads.get_mut(usize::from(unit))) else { continue };
            load.wanted += sitter.wanted.unwrap_or(0.0).min(1.0);
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    fn units(machine: &str) -> Vec<(String, Option<OsNode>)> {
        let machine = parse_synthetic(machine).unwrap();
        let units = Units::new(&machine, &Ground::new(&machine));
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
    fn a_core_of_its_own_comes_first() {
        let load = |wanted| Load { cores: 2.0, cpus: 4.0, wanted };
        let empty = load(0.0);
        assert!(load(1.0).room(&empty) && !load(2.0).room(&empty));
        assert!(load(2.0).room(&load(3.0)), "who shares a core may share one elsewhere");
        assert!(!load(4.0).room(&load(5.0)));
        assert!(!Load::default().room(&load(4.0)), "nothing may be used");
    }
}
