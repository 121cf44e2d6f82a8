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
use crate::ids::{LlcId, OsNode};
use crate::observe::Observation;
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

    /// Whether threads share CPUs there, so that some must wait.
    pub(super) fn shares_cpus(&self) -> bool {
        self.wanted > self.cpus + SLACK
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
        others: &Others,
        unit: impl Fn(usize) -> Option<u16>,
    ) -> Vec<Load> {
        let ground = &seating.ground;
        let load = |(at, one): (usize, &Unit)| {
            let mut load = Load { wanted: others.of(at), ..Load::default() };
            let mut core = None;
            for &seat in one.seats.iter().filter(|&&seat| ground.is_open(seat)) {
                let place = ground.place(seat);
                load.cpus += 1.0;
                if core.replace(place.core) != Some(place.core) {
                    load.cores += 1.0;
                }
            }
            load
        };
        let mut loads: Vec<Load> = self.all.iter().enumerate().map(load).collect();
        for (i, sitter) in seating.sitters.iter().enumerate() {
            let Some(load) = unit(i).and_then(|unit| loads.get_mut(usize::from(unit))) else { continue };
            load.wanted += sitter.wanted.unwrap_or(0.0).min(1.0);
        }
        loads
    }
}

/// What others take of each unit, in CPUs.
///
/// On which CPU of its unit a thread runs is not read once it is kept there, so that nobody can say of a single CPU who keeps it busy; of
/// a whole unit it is what was busy and was not ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// By unit: seconds that ours ran since the CPUs were read last, and what others take.
    units: Vec<(f64, f64)>,
}

impl Others {
    /// Below this they are the grain of the kernel's counting.
    const NOISE: f64 = 0.15;
    /// How much of its difference a new reading shifts it.
    const WEIGHT: f64 = 0.5;

    /// Takes an observation in. `unit` says where thread `i` is.
    pub(super) fn look(
        &mut self,
        units: &Units,
        ground: &Ground,
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
            let (Some(seat), Some((busy, span))) = (ground.seat(view.cpu), view.busy.zip(view.span)) else {
                continue;
            };
            let (all, long) = &mut read[usize::from(units.of(seat))];
            *all += busy * span.seconds();
            *long = long.max(span.seconds());
        }
        for ((ours, others), (busy, long)) in self.units.iter_mut().zip(read) {
            if long > 0.0 {
                let now = ((busy - *ours) / long).max(0.0);
                *others += Self::WEIGHT * (now - *others);
            }
            *ours = 0.0;
        }
    }

    fn of(&self, unit: usize) -> f64 {
        self.units.get(unit).map(|(_, others)| *others).filter(|others| *others >= Self::NOISE).unwrap_or(0.0)
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
    fn what_ours_ran_is_not_taken_for_others_wherever_in_the_unit_it_was() {
        use crate::ids::{OsCpu, ProgramId, ThreadId};
        use crate::observe::{CpuSample, Observer, Sample, ThreadInfo, ThreadSample};
        use crate::time::{Moment, Span};
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let ground = Ground::new(&machine);
        let (units, mut others) = (Units::new(&machine, &ground), Others::default());
        let mut observer = Observer::new(machine.cpus());
        let mut look = |ms: u64, others: &mut Others| {
            // Ours runs all the time, half of it on either CPU of node 0; somebody else on CPU 3.
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
            others.look(&units, &ground, &observer.observation(), |_| Some(0));
        };
        (0..10).for_each(|at| look(at * 200, &mut others));
        assert_eq!(others.of(0), 0.0);
        assert!((others.of(1) - 1.0).abs() < 0.05, "{}", others.of(1));
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
