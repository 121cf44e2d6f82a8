//! Dealing seats out: which seat a thread gets that has none.
//!
//! Unit: what one more thread on a seat would have of a full-speed CPU. Problem: threads come in ones and in thousands, on
//! machines with faster and slower cores, with seats that others use, and with threads that may only sit on some. Idea:
//! round robin is "always the seat that gives most", with ties going to the seat whose core is emptiest, then to the nearest
//! to where the thread is; ordered sets per cache, node and machine answer that in logarithmic time.
//!
//! Properties: on equal empty seats, threads differ by at most one per seat; cores are filled before their second hardware
//! threads; a thread that already sits on one of the best seats stays; equal input, equal deal.

use super::ground::{Ground, Region, Seat};
use super::seating::Seating;
use super::shares::Shares;
use super::sitter::Standing;
use super::{Decision, Reason};
use crate::ids::{Id, ProgramId};
use crate::set::CpuSet;
use std::collections::BTreeSet;

/// How good a seat is for one more thread: lower is better. The load after it (in 1/1,024 of a full-speed CPU), our
/// threads on the same core, and the seat.
type Key = (u64, u32, Seat);

/// A set of CPUs of at most this many is looked through one by one.
const FEW: usize = 16;

/// Seats by how good they are.
#[derive(Clone, Debug)]
pub(super) struct Deal<'a> {
    ground: &'a Ground,
    ours: Vec<u32>,
    foreign: Vec<f64>,
    all: BTreeSet<Key>,
    nodes: Vec<BTreeSet<Key>>,
    caches: Vec<BTreeSet<Key>>,
}

impl<'a> Deal<'a> {
    /// With what is on the seats already: how many of our threads, and how many of others (parts for those that do not
    /// always run).
    pub(super) fn new(ground: &'a Ground, ours: Vec<u32>, foreign: Vec<f64>) -> Self {
        let mut deal = Self {
            ground,
            ours,
            foreign,
            all: BTreeSet::new(),
            nodes: vec![BTreeSet::new(); ground.nodes()],
            caches: vec![BTreeSet::new(); ground.llcs()],
        };
        for seat in ground.open() {
            deal.put(seat);
        }
        deal
    }

    fn key(&self, seat: Seat) -> Key {
        let after = 1.0 + f64::from(self.ours[seat.index()]) + self.foreign[seat.index()];
        let load = (1024.0 * after / self.ground.place(seat).weight).round() as u64;
        (load, self.ground.siblings(seat).map(|seat| self.ours[seat.index()]).sum(), seat)
    }

    fn put(&mut self, seat: Seat) {
        let (key, place) = (self.key(seat), self.ground.place(seat));
        self.all.insert(key);
        self.nodes[place.node.index()].insert(key);
        self.caches[place.llc.index()].insert(key);
    }

    fn pull(&mut self, seat: Seat) {
        let (key, place) = (self.key(seat), self.ground.place(seat));
        self.all.remove(&key);
        self.nodes[place.node.index()].remove(&key);
        self.caches[place.llc.index()].remove(&key);
    }

    /// Changes how many of our threads are on a seat.
    fn change(&mut self, seat: Seat, by: i32) {
        let seats: Vec<Seat> = self.ground.siblings(seat).filter(|&seat| self.ground.is_open(seat)).collect();
        for &seat in &seats {
            self.pull(seat);
        }
        let slot = &mut self.ours[seat.index()];
        *slot = slot.saturating_add_signed(by);
        for &seat in &seats {
            self.put(seat);
        }
    }

    /// A seat within these CPUs for a thread that was last on `from`; `None` when none of them is open. One that stays does
    /// not leave its memory node while a seat there is open. The thread counts on its seat from now on.
    pub(super) fn take(&mut self, room: &CpuSet, from: Option<Seat>, stays: bool) -> Option<Seat> {
        let node = from.filter(|_| stays).map(|from| self.ground.place(from).node.index());
        let seat = node.and_then(|node| self.best(&self.nodes[node], room, from));
        let seat = seat.or_else(|| self.best(&self.all, room, from))?;
        self.change(seat, 1);
        Some(seat)
    }

    /// The best of some seats.
    fn best(&self, seats: &BTreeSet<Key>, room: &CpuSet, from: Option<Seat>) -> Option<Seat> {
        let open = |key: &&Key| room.contains(self.ground.place(key.2).os);
        let best = if room.len() <= FEW {
            let open =
                room.iter().filter_map(|os| self.ground.seat(os)).filter(|&seat| self.ground.is_open(seat));
            open.map(|seat| self.key(seat)).filter(|key| seats.contains(key)).min()
        } else {
            seats.iter().find(open).copied()
        }?;
        let near = from.and_then(|from| {
            let place = self.ground.place(from);
            let same = |key: &&Key| (key.0, key.1) == (best.0, best.1) && open(key);
            let stays = (self.ground.is_open(from)).then(|| self.key(from));
            stays
                .filter(|key| same(&key))
                .or_else(|| self.caches[place.llc.index()].first().filter(same).copied())
                .or_else(|| self.nodes[place.node.index()].first().filter(same).copied())
        });
        Some(near.unwrap_or(best).2)
    }
}

/// Threads that are ours to place, and were not yet.
pub(super) fn newcomers(seating: &Seating, sleeps: impl Fn(ProgramId) -> bool) -> Vec<usize> {
    let new = |i: &usize| {
        let sitter = &seating.sitters[*i];
        !sitter.dealt && sitter.free() && !seating.room(*i).is_empty() && !sleeps(sitter.program)
    };
    (0..seating.sitters.len()).filter(new).collect()
}

/// Deals seats to newcomers and to threads whose seat was lost, and counts them there. Newcomers that are told to stay do
/// not leave their memory node: they have memory there already.
pub(super) fn deal_out(
    seating: &mut Seating,
    shares: &mut Shares,
    new: &[usize],
    lost: &[usize],
    stay: bool,
) -> Vec<Decision> {
    if new.is_empty() && lost.is_empty() {
        return Vec::new();
    }
    // Who lost its CPU may be to be dealt anew as well.
    let new = new.iter().copied().filter(|i| lost.binary_search(i).is_err());
    let all: Vec<(usize, bool)> = lost.iter().map(|&i| (i, true)).chain(new.map(|i| (i, false))).collect();
    let (mut ours, foreign) = shares.loads();
    for &(i, _) in &all {
        // Where it is now is no load that its new seat would add to.
        let sitter = &seating.sitters[i];
        if let Some(seat) = sitter.seat.filter(|_| sitter.active()) {
            ours[seat.index()] = ours[seat.index()].saturating_sub(1);
        }
    }
    let ground = seating.ground.clone();
    let open: BTreeSet<Region> = ground.open().map(|seat| ground.place(seat).node).collect();
    let mut deal = Deal::new(&ground, ours, foreign);
    let mut decisions = Vec::new();
    for (i, gone) in all {
        let from = seating.sitters[i].seat;
        let reason = match from.filter(|_| gone) {
            Some(seat) => Reason::Gone(ground.place(seat).os),
            None => Reason::Start,
        };
        seating.sitters[i].dealt = true;
        decisions.push(match deal.take(seating.room(i), from, stay && !gone) {
            // Dealt anew, and the same.
            Some(seat) if from == Some(seat) && seating.sitters[i].standing == Standing::Held && !gone => {
                continue;
            }
            Some(seat) => {
                let shut = seating.shut(i, &open);
                let sitter = &mut seating.sitters[i];
                // Who is dealt a seat while a node of its home is shut may belong there: it was met too late to tell. Who comes home is
                // no exile any more.
                let was = from.map(|from| ground.place(from).node).filter(|_| gone);
                sitter.exiled =
                    sitter.exiled.or(was.or(shut)).filter(|home| *home != ground.place(seat).node);
                match from {
                    Some(from) => shares.moved(from, seat),
                    None => shares.came(seat),
                }
                seating.confine(i, seat, reason)
            }
            // Nothing of its home is left: the kernel knows where it may go, we do not.
            None => seating.release(i, reason),
        });
    }
    decisions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OsCpu;
    use crate::topology::parse_synthetic;

    fn dealt(ground: &Ground, foreign: Vec<f64>, threads: &[(CpuSet, Option<u32>)]) -> Vec<u32> {
        let mut deal = Deal::new(ground, vec![0; ground.len()], foreign);
        let seat = |cpu: Option<u32>| cpu.and_then(|cpu| ground.seat(OsCpu(cpu)));
        threads
            .iter()
            .map(|(room, from)| ground.place(deal.take(room, seat(*from), false).unwrap()).os.0)
            .collect()
    }

    #[test]
    fn cores_come_before_their_second_threads() {
        let ground = Ground::new(&parse_synthetic("core:2 pu:2").unwrap());
        let all = ground.usable().clone();
        let seats = dealt(&ground, vec![0.0; 4], &vec![(all, None); 6]);
        assert_eq!(seats, [0, 2, 1, 3, 0, 2]);
    }

    #[test]
    fn who_sits_well_stays_and_others_go_near() {
        let ground = Ground::new(&parse_synthetic("numa:2 l3:2 core:2 pu:1").unwrap());
        let all = ground.usable().clone();
        let threads =
            [(all.clone(), Some(5)), (all.clone(), Some(5)), (all.clone(), Some(5)), (all, Some(1))];
        assert_eq!(dealt(&ground, vec![0.0; 8], &threads), [5, 4, 6, 1]);
    }

    #[test]
    fn who_stays_does_so_while_its_node_has_a_seat() {
        let ground = Ground::new(&parse_synthetic("numa:2 core:2 pu:1").unwrap());
        let all = ground.usable().clone();
        let mut deal = Deal::new(&ground, vec![0; 4], vec![0.0; 4]);
        let node = |seat: Option<Seat>| ground.place(seat.unwrap()).os.0 / 2;
        let from = ground.seat(OsCpu(2));
        let nodes: Vec<u32> = (0..4).map(|_| node(deal.take(&all, from, true))).collect();
        assert_eq!(nodes, [1; 4]);
        assert_eq!(node(deal.take(&"0-1".parse().unwrap(), from, true)), 0);
    }

    #[test]
    fn others_and_homes_are_minded() {
        let ground = Ground::new(&parse_synthetic("core:3 pu:1").unwrap());
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let seats = dealt(
            &ground,
            vec![1.0, 0.0, 0.0],
            &[(set("0-2"), None), (set("0-2"), None), (set("0-2"), None), (set("0"), None)],
        );
        assert_eq!(seats, [1, 2, 0, 0]);
        let mut deal = Deal::new(&ground, vec![0; 3], vec![0.0; 3]);
        assert_eq!(deal.take(&set("7"), None, false), None);
    }
}
