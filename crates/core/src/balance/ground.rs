//! What policies know of the machine: its CPUs as seats.
//!
//! Unit: one *seat* is one CPU; its weight is how fast it is, 1 for the fastest make. Problem: policies ask thousands of times
//! a second how near two CPUs are, which of them may be used now, and how fast they are. Idea: one dense table, made once from
//! the [`Machine`]; what may be used is a flag in it that follows the host's notices.
//!
//! Properties: seats are the machine's hardware threads in logical order, so neighbours are near; a CPU that the machine does
//! not know (switched on later) is no seat; weights go by make of core, not by single core, so that favoured cores of one make,
//! whose top frequency says nothing about a busy machine, count alike. That two hardware threads of one core slow each other
//! down is left to the dealing, which fills cores before their second threads: no share is predicted for it.

use crate::ids::{CoreId, Id, LlcId, OsCpu, Pu};
use crate::set::CpuSet;
use crate::topology::{KindPart, Machine};

/// A CPU by its place in the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Seat(u32);

impl Seat {
    /// As an index into tables of seats.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    /// The seat at an index.
    pub(super) fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// A NUMA node as policies need it: a dense number, one for all CPUs without a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Region(u32);

impl Region {
    /// As an index.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a seat.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Place {
    /// The CPU as the kernel numbers it.
    pub(super) os: OsCpu,
    /// Its core.
    pub(super) core: CoreId,
    /// Its last-level cache.
    pub(super) llc: LlcId,
    /// Its NUMA node.
    pub(super) node: Region,
    /// Its speed, 1 for the fastest make of core.
    pub(super) weight: f64,
}

/// How far a thread may go, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nearness {
    /// To seats that share its last cache.
    Cache,
    /// To seats that share its memory node.
    Node,
    /// To every seat.
    Machine,
}

/// The machine's seats.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    places: Vec<Place>,
    open: Vec<bool>,
    usable: CpuSet,
    seats: Vec<Option<Seat>>, // by the kernel's number
    cores: Vec<std::ops::Range<u32>>,
    llcs: usize,
    nodes: usize,
}

impl Ground {
    /// The seats of a machine; all may be used that its source allows, until an observation says otherwise.
    pub(super) fn new(machine: &Machine) -> Self {
        let weights = weights(machine);
        let mut seats = Vec::new();
        let places: Vec<Place> = (0..machine.pu_count())
            .map(|at| {
                let (pu, seat) = (Pu::from_index(at), Seat::at(at));
                let os = machine.os(pu);
                if seats.len() <= os.index() {
                    seats.resize(os.index() + 1, None);
                }
                seats[os.index()] = Some(seat);
                let core = machine.core_of(pu);
                let made = machine.core(core);
                // Node 0 is kept for CPUs without one.
                let node = Region(made.node.map_or(0, |node| node.0 + 1));
                Place { os, core, llc: made.llc, node, weight: weights[usize::from(made.kind.0)] }
            })
            .collect();
        let mut ground = Self {
            open: vec![false; places.len()],
            places,
            usable: CpuSet::new(),
            seats,
            cores: machine.cores().iter().map(|core| core.pus.clone()).collect(),
            llcs: machine.llcs().len(),
            nodes: machine.nodes().len() + 1,
        };
        ground.follow(&machine.allowed());
        ground
    }

    /// Takes over what may be used now; true when that changed.
    pub(super) fn follow(&mut self, usable: &CpuSet) -> bool {
        if self.usable == *usable {
            return false;
        }
        self.usable.clone_from(usable);
        for (place, open) in self.places.iter().zip(&mut self.open) {
            *open = usable.contains(place.os);
        }
        true
    }

    /// The CPUs that may be used now.
    pub(super) fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// How many seats the machine has, open or not.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many last-level caches.
    pub(super) fn llcs(&self) -> usize {
        self.llcs
    }

    /// One more than the largest node's index.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Whether a seat may be used now.
    pub(super) fn is_open(&self, seat: Seat) -> bool {
        self.open[seat.index()]
    }

    /// The seats that may be used now, in logical order.
    pub(super) fn open(&self) -> impl Iterator<Item = Seat> + '_ {
        (0..self.places.len()).map(Seat::at).filter(|&seat| self.is_open(seat))
    }

    /// The seat of a CPU; `None` for one that the machine does not know.
    pub(super) fn seat(&self, os: OsCpu) -> Option<Seat> {
        self.seats.get(os.index()).copied().flatten()
    }

    /// What is known of a seat.
    pub(super) fn place(&self, seat: Seat) -> &Place {
        &self.places[seat.index()]
    }

    /// The CPU of a seat as a set.
    pub(super) fn only(&self, seat: Seat) -> CpuSet {
        std::iter::once(self.place(seat).os).collect()
    }

    /// The seats of the core that a seat belongs to, itself included.
    pub(super) fn siblings(&self, seat: Seat) -> impl Iterator<Item = Seat> + '_ {
        self.cores[self.place(seat).core.index()].clone().map(Seat)
    }
}

/// The weight of each make of core: its reported capacity, else its top frequency, as a part of the highest. Where one
/// make reports neither, nothing is known and all count alike.
fn weights(machine: &Machine) -> Vec<f64> {
    let by = |figure: fn(&KindPart) -> Option<u32>| -> Option<Vec<f64>> {
        machine
            .kinds()
            .iter()
            .map(|kind| {
                let of = machine.parts().kinds.iter().filter(|part| part.cpus.intersects(&kind.cpus));
                of.filter_map(figure).max().filter(|&figure| figure > 0).map(f64::from)
            })
            .collect()
    };
    let figures = by(|part| part.capacity).or_else(|| by(|part| part.mhz_max));
    let figures = figures.unwrap_or_else(|| vec![1.0; machine.kinds().len()]);
    let most = figures.iter().copied().fold(0.0, f64::max);
    figures.into_iter().map(|figure| figure / most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{KindPart, parse_synthetic};

    #[test]
    fn seats_follow_what_may_be_used() {
        let machine = parse_synthetic("numa:2 l3:2 core:2 pu:2(far)").unwrap();
        let mut ground = Ground::new(&machine);
        assert_eq!(ground.open().count(), 16);
        assert!(ground.follow(&"1-3".parse().unwrap()));
        assert!(!ground.follow(&"1-3".parse().unwrap()));
        let open: Vec<OsCpu> = ground.open().map(|seat| ground.place(seat).os).collect();
        assert_eq!(open, [OsCpu(1), OsCpu(2), OsCpu(3)]);
        assert_eq!(ground.seat(OsCpu(99)), None);
    }

    #[test]
    fn a_place_says_what_it_shares() {
        let ground = Ground::new(&parse_synthetic("numa:2 l3:2 core:2 pu:2").unwrap());
        let place = |at: usize| ground.place(Seat::at(at));
        assert_eq!((place(0).llc, place(0).node), (place(3).llc, place(3).node));
        assert_ne!(place(0).llc, place(4).llc);
        assert_eq!(place(0).node, place(4).node);
        assert_ne!(place(0).node, place(8).node);
        assert_eq!(ground.siblings(Seat::at(5)).collect::<Vec<_>>(), [Seat::at(4), Seat::at(5)]);
    }

    #[test]
    fn weights_go_by_make() {
        let mut parts = parse_synthetic("core:4 pu:1").unwrap().parts().clone();
        let kind = |cpus: &str, capacity, mhz_max| KindPart {
            cpus: cpus.parse().unwrap(),
            capacity,
            mhz_max: Some(mhz_max),
            ..KindPart::default()
        };
        parts.kinds =
            vec![kind("0", Some(1024), 4900), kind("1", Some(980), 4700), kind("2-3", Some(512), 3000)];
        let weight = |parts: &crate::topology::Parts| -> Vec<f64> {
            let ground = Ground::new(&Machine::build(parts.clone()).unwrap());
            ground.open().map(|seat| ground.place(seat).weight).collect()
        };
        assert_eq!(weight(&parts), [1.0, 1.0, 0.5, 0.5]);
        for kind in &mut parts.kinds {
            kind.capacity = None;
        }
        let by_mhz = weight(&parts);
        assert!((by_mhz[3] - 3000.0 / 4900.0).abs() < 1e-9, "{by_mhz:?}");
        parts.kinds[2].mhz_max = None;
        assert_eq!(weight(&parts), [1.0; 4]);
    }
}
