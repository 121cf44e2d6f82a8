//! Teams out of teams: parts of one that work for themselves, and what is left of one that lost somebody.
//!
//! **Split.** All ranks say a colour and a key; those of a colour become a team, in the order of keys. Its flags, stages and heap lie in the heap
//! of the whole, at places that all ranks reckon alike.
//!
//! **Shrink.** After a loss each survivor says that it has come to regroup, and waits until everybody has, or is gone. The lowest who
//! is there writes down who is left, clears the flags and raises the generation; if it dies before, the next does. Nobody is in an operation
//! meanwhile, as all who live have come. Who dies later is a loss of the new team's.

use crate::endpoint::{Company, Endpoint};
use crate::rank::Rank;
use crate::segment::header::Header;
use crate::segment::layout::MOST_RANKS;
use crate::segment::seat::Seat;
use crate::shared_layout::Area;
use crate::tune::lazy::Lazy;
use crate::wait::Patience;
use crate::{Error, Result};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Some of another team's ranks.
struct Part {
    whole: Rc<dyn Company>,
    members: Vec<u32>,
}

impl Company for Part {
    fn dead(&self) -> Option<u32> {
        // Others' ends are no concern of this team's.
        self.whole.dead()?;
        (0..)
            .zip(&self.members)
            .find(|(_, whole)| self.whole.gone(**whole) && !self.whole.left(**whole))
            .map(|(at, _)| at)
    }

    fn left(&self, rank: u32) -> bool {
        self.members.get(rank as usize).is_some_and(|whole| self.whole.left(*whole))
    }

    fn gone(&self, rank: u32) -> bool {
        self.members.get(rank as usize).is_some_and(|whole| self.whole.gone(*whole))
    }
}

impl Rank {
    /// Parts the team: ranks of one `colour` are a team of their own, in the order of their keys, then of their ranks, with a heap of
    /// `heap` bytes. `None` for ranks without a colour. All ranks of this team must call it. The parts' memory is given back with
    /// the whole team's.
    pub fn split(&self, colour: Option<u32>, key: i32, heap: usize) -> Result<Option<Rank>> {
        self.ready()?;
        let heap = heap
            .checked_next_multiple_of(4096)
            .ok_or_else(|| Error::Argument(format!("a heap of {heap} bytes")))?;
        let said = [u64::from(colour.is_some()) << 32 | u64::from(colour.unwrap_or(0)), key as i64 as u64];
        let mut all = vec![0; 2 * self.ranks() as usize];
        self.mine().allgather(&said, &mut all)?;
        let mut parts = std::collections::BTreeMap::<u64, Vec<(i64, u32)>>::new();
        for (rank, said) in (0..).zip(all.chunks_exact(2)) {
            if said[0] >> 32 != 0 {
                parts.entry(said[0]).or_default().push((said[1] as i64, rank));
            }
        }
        let mut ours = None;
        for (colour, members) in &mut parts {
            members.sort_unstable();
            let ranks = u32::try_from(members.len()).unwrap_or(MOST_RANKS);
            let cell = self.station.area.cell_bytes();
            let offset = self
                .arena
                .borrow_mut()
                .alloc(Area::bytes(ranks, cell).next_multiple_of(4096) + heap, 4096)?;
            if *colour == said[0] {
                ours = Some((offset, members.iter().map(|(_, rank)| *rank).collect::<Vec<u32>>()));
            }
        }
        let part = ours.map(|(offset, members)| self.part(offset, members, heap));
        // The first of each part has cleared its flags.
        self.barrier()?;
        part.transpose()
    }

    fn part(&self, offset: usize, members: Vec<u32>, heap: usize) -> Result<Rank> {
        let (ranks, cell) = (members.len() as u32, self.station.area.cell_bytes());
        let control = self.station.heap().wrapping_add(offset);
        let stage = control.wrapping_add(ranks as usize * crate::shared_layout::CONTROL);
        // SAFETY: the block was just reserved for it in the heap, which lives as long as the company that the station keeps.
        let area = unsafe { Area::at(control, stage, ranks, cell) };
        let me = members.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        if me == 0 {
            // SAFETY: nobody uses the part before the barrier that follows.
            unsafe { area.clear() };
        }
        let heap_at = control.wrapping_add(Area::bytes(ranks, cell).next_multiple_of(4096));
        let peers = self.station.buffers.peers.borrow().as_ref().map(|peers| peers.of(&members));
        let company = Rc::new(Part { whole: Rc::clone(&self.station.waits.company), members });
        let station = Rc::new(self.station_like(area, me, company, (heap_at, heap)));
        station.set_peers(peers);
        let mut rank = Rank::new(station, None, heap)?;
        self.teach(&mut rank);
        Ok(rank)
    }

    /// A team made of this one finds its ways as this one does, is counted as this one is, and begins anew: it has other ranks.
    fn teach(&self, rank: &mut Rank) {
        rank.mask = self.mask;
        rank.meter = self.meter;
        rank.lazy = self.lazy.as_ref().map(|_| Rc::new(Lazy::new()));
    }

    fn station_like(
        &self,
        area: Area,
        rank: u32,
        company: Rc<dyn Company>,
        heap: (*mut u8, usize),
    ) -> Endpoint {
        let old = &self.station;
        let patience = Patience::new(old.waits.patience.policy(), old.crowded);
        let station = Endpoint::new(area, rank, old.crowded, old.private, patience, company, heap);
        station.set_deadline(old.waits.deadline.get());
        station.set_interrupt(old.waits.interrupt.get());
        station
    }

    /// What is left of a team that lost somebody, in the order of ranks; all who are left must call it. Blocks of the old team are void: their
    /// memory is the new one's. Fails after `deadline` where somebody who lives does not come.
    pub fn shrink(mut self, deadline: Duration) -> Result<Rank> {
        self.ours()?;
        let Some((seat, whole)) = self.seat.take() else {
            return Err(Error::Refused(
                "a part of a team does not shrink by itself: the whole does".to_owned(),
            ));
        };
        // What was started is not carried out any more: its flags are about to go.
        self.give_up_started();
        let (mapping, geometry) = (&whole.mapping, &whole.geometry);
        let old = Rc::clone(&self.station);
        let generation = Header::generation(mapping);
        let word = generation.load(Ordering::Acquire);
        let next = (word & u64::from(u32::MAX)) + 1;
        let regrouping = |rank| Seat::regrouping(mapping, geometry, self.seat_of(rank));
        regrouping(self.rank()).store(next, Ordering::SeqCst);
        let begin = Instant::now();
        let members = loop {
            let now = generation.load(Ordering::Acquire);
            if now & u64::from(u32::MAX) == next {
                // SAFETY: whoever raised the generation filled its cell before, and nobody uses it before the barrier below.
                break unsafe { read_members(&old.area, (now >> 32) as u32, old.ranks()) };
            }
            let here = |rank: &u32| {
                regrouping(*rank).load(Ordering::SeqCst) == next && !old.waits.company.gone(*rank)
            };
            let members: Vec<u32> = (0..self.ranks()).filter(here).collect();
            let all = (0..self.ranks()).all(|rank| members.contains(&rank) || old.waits.company.gone(rank));
            if all && members.first() == Some(&self.rank()) {
                // SAFETY: all who live are here, and wait for the generation.
                unsafe {
                    write_members(&old.area, self.rank(), &members);
                    old.area.clear();
                }
                generation.store(u64::from(self.rank()) << 32 | next, Ordering::Release);
                break members;
            }
            if begin.elapsed() > deadline {
                let missing =
                    (0..self.ranks()).find(|rank| !members.contains(rank) && !old.waits.company.gone(*rank));
                return Err(Error::Refused(format!(
                    "rank {} lives and has not come to regroup",
                    missing.unwrap_or(0)
                )));
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let Some(me) = members.iter().position(|rank| *rank == self.rank()) else {
            return Err(Error::Refused("the others have gone on without this rank".to_owned()));
        };
        let area = whole.area(members.len() as u32);
        let seats = members.iter().map(|rank| self.seat_of(*rank)).collect();
        let peers = old.buffers.peers.borrow().as_ref().map(|peers| peers.of(&members));
        let company = Rc::new(Part { whole: Rc::clone(&old.waits.company), members });
        let heap = (old.heap(), geometry.heap_bytes);
        let station = Rc::new(self.station_like(area, me as u32, company, heap));
        station.set_peers(peers);
        let mut rank = Rank::new(station, Some((seat, whole)), heap.1)?;
        rank.seats = Some(seats);
        self.teach(&mut rank);
        rank.barrier()?;
        Ok(rank)
    }

    /// Which seat of the segment a rank has.
    fn seat_of(&self, rank: u32) -> u32 {
        self.seats.as_ref().map_or(rank, |seats| seats[rank as usize])
    }
}

/// # Safety
/// Nobody else uses the rank's first cell.
unsafe fn write_members(area: &Area, rank: u32, members: &[u32]) {
    let cell = area.cell(rank, 0);
    let mut bits = [0_u64; MOST_RANKS as usize / 64];
    members.iter().for_each(|rank| bits[*rank as usize / 64] |= 1 << (rank % 64));
    // SAFETY: a cell has at least 1,024 bytes and is aligned to lines.
    unsafe { cell.cast::<[u64; MOST_RANKS as usize / 64]>().write(bits) };
}

/// # Safety
/// Nobody writes the rank's first cell meanwhile.
unsafe fn read_members(area: &Area, rank: u32, ranks: u32) -> Vec<u32> {
    if rank >= ranks {
        return Vec::new();
    }
    // SAFETY: as above.
    let bits = unsafe { area.cell(rank, 0).cast::<[u64; MOST_RANKS as usize / 64]>().read() };
    (0..ranks).filter(|rank| bits[*rank as usize / 64] >> (rank % 64) & 1 == 1).collect()
}
