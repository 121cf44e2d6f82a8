//! Teams derived from teams: independent parts of a team, and the remainder of a team that lost
//! ranks.
//!
//! **Split.** All ranks give a colour and a key. The ranks of one colour become a team, in the
//! order of keys. Its flags, stages and heap are in the heap of the whole team, at places that all
//! ranks compute in the same way.
//!
//! **Shrink and recover.** After a loss or a failed call each remaining rank announces that it
//! regroups, and waits until every rank has announced it or has ended. The lowest rank present
//! writes the list of survivors, clears the flags and raises the generation; if it dies before, the
//! next one does. No rank is in an operation meanwhile, since all live ranks have arrived. A rank
//! that dies later is a loss of the new team.

use crate::call::SPLIT_WHAT;
use crate::endpoint::{Endpoint, PeerLiveness};
use crate::rank::Rank;
use crate::segment::header::Header;
use crate::segment::layout::RANKS_MAX;
use crate::segment::seat::SharedSeat;
use crate::shared_layout::Area;
use crate::tune::lazy::Lazy;
use crate::wait::Patience;
use crate::{Error, Result};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Some of another team's ranks.
struct TeamPart {
    whole: Rc<dyn PeerLiveness>,
    members: Vec<u32>,
}

impl PeerLiveness for TeamPart {
    fn dead(&self) -> Option<u32> {
        // Deaths outside of this part do not concern it.
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
    /// Splits the team: ranks of one `colour` become a team of their own, in the order of their
    /// keys, then of their ranks, with a heap of `heap` bytes, rounded up to 4096. Returns `None`
    /// for ranks without a colour. All ranks of this team must call it. The parts' memory is freed
    /// with the whole team's.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// // Ranks 0 and 2, and rank 1 by itself.
    /// let part = rank.split(Some(rank.rank() % 2), 0, 0)?.expect("every rank has a colour");
    /// assert_eq!(part.ranks(), [2, 1, 2][rank.rank() as usize]);
    /// part.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `NoMemory` if the heap of this team has no room for the parts (flags, stages and heaps);
    /// otherwise as [every call](crate::Calls#errors).
    pub fn split(&self, colour: Option<u32>, key: i32, heap: usize) -> Result<Option<Rank>> {
        self.ready()?;
        let heap = heap
            .checked_next_multiple_of(4096)
            .ok_or_else(|| Error::Argument(format!("a heap of {heap} bytes")))?;
        // Parts of different sizes would overlap: the next line finds that before memory is used.
        self.endpoint.note_heap(SPLIT_WHAT, heap as u64);
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
            let ranks = u32::try_from(members.len()).unwrap_or(RANKS_MAX);
            let cell = self.endpoint.area.cell_bytes();
            let offset = self
                .arena
                .borrow_mut()
                .alloc(Area::bytes(ranks, cell).next_multiple_of(4096) + heap, 4096)?;
            if *colour == said[0] {
                ours = Some((offset, members.iter().map(|(_, rank)| *rank).collect::<Vec<u32>>()));
            }
        }
        let part = ours.map(|(offset, members)| self.part(offset, members, heap));
        // The first rank of each part has cleared its flags.
        self.barrier()?;
        part.transpose()
    }

    fn part(&self, offset: usize, members: Vec<u32>, heap: usize) -> Result<Rank> {
        let (ranks, cell) = (members.len() as u32, self.endpoint.area.cell_bytes());
        let control = self.endpoint.heap().wrapping_add(offset);
        let stage = control.wrapping_add(ranks as usize * crate::shared_layout::CONTROL_BYTES);
        // SAFETY: the block was just reserved for it in the heap, which lives as long as the
        // liveness that the endpoint keeps.
        let area = unsafe { Area::at(control, stage, ranks, cell) };
        let me = members.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        if me == 0 {
            // SAFETY: no rank uses the part before the barrier that follows.
            unsafe { area.clear() };
        }
        let heap_at = control.wrapping_add(Area::bytes(ranks, cell).next_multiple_of(4096));
        let peers = self.endpoint.buffers.peers.borrow().as_ref().map(|peers| peers.of(&members));
        let liveness = Rc::new(TeamPart { whole: Rc::clone(&self.endpoint.waits.liveness), members });
        let endpoint = Rc::new(self.endpoint_like(area, me, liveness, (heap_at, heap)));
        endpoint.set_peers(peers);
        let mut rank = Rank::new(endpoint, None, heap)?;
        self.teach(&mut rank);
        Ok(rank)
    }

    /// Gives a team made of this one this team's mask, observers and table source. Lazy tuning
    /// starts again, because the ranks are others.
    fn teach(&self, rank: &mut Rank) {
        rank.mask = self.mask;
        rank.observers = self.observers;
        rank.lazy = self.lazy.as_ref().map(|_| Rc::new(Lazy::new()));
    }

    fn endpoint_like(
        &self,
        area: Area,
        rank: u32,
        liveness: Rc<dyn PeerLiveness>,
        heap: (*mut u8, usize),
    ) -> Endpoint {
        let old = &self.endpoint;
        let patience = Patience::new(old.waits.patience.policy(), old.crowded());
        let endpoint = Endpoint::new(area, rank, old.crowded(), old.private, patience, liveness, heap);
        endpoint.set_deadline(old.waits.deadline.get());
        endpoint.set_interrupt(old.waits.interrupt.get());
        endpoint.set_progress(old.waits.progress.borrow().clone());
        endpoint.set_checked(old.is_checked());
        endpoint.follow_masks(old.follows_masks());
        endpoint
    }

    /// Makes a team usable again after a call failed without a loss ([`Error::Mismatch`],
    /// [`Error::Timeout`], [`Error::Interrupted`], [`Error::Revoked`]): returns a new team of the
    /// same ranks, in which nothing has been called. All live ranks must call it; a rank without an
    /// error yet gets one in its next call. Ranks that have died or left are not in the new team.
    /// Blocks of the old team become invalid, and started calls that are not over are given up.
    /// Fails after `deadline` if a live rank does not arrive.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::time::Duration;
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads: rank 1 calls another operation.
    /// let wrong = rank.rank() == 1;
    /// let sum = || rank.mine().allreduce_in_place(&mut [1], Operator::Sum);
    /// let call = || if wrong { rank.barrier() } else { sum() };
    /// while call().is_ok() {}
    /// let rank = rank.recover(Duration::from_secs(10))?;
    /// assert_eq!(rank.ranks(), 2);
    /// rank.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [`Self::shrink`].
    pub fn recover(self, deadline: Duration) -> Result<Rank> {
        self.regroup(deadline)
    }

    /// Returns the remainder of a team that lost ranks, in the order of ranks. All remaining ranks
    /// must call it. Blocks of the old team become invalid: their memory belongs to the new team.
    /// Fails after `deadline` if a live rank does not arrive.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::time::Duration;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// if rank.rank() == 1 {
    ///     return Ok(()); // Leaves the team.
    /// }
    /// while rank.barrier().is_ok() {}
    /// let rank = rank.shrink(Duration::from_secs(10))?;
    /// assert_eq!(rank.ranks(), 2);
    /// rank.barrier()?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Refused` for a part of a team, if a live rank does not arrive in time, or if the others
    /// continued without this rank; otherwise as [every call](crate::Calls#errors).
    pub fn shrink(self, deadline: Duration) -> Result<Rank> {
        self.regroup(deadline)
    }

    /// Makes a new team of all ranks that arrive, in the order of ranks.
    fn regroup(mut self, deadline: Duration) -> Result<Rank> {
        self.ours()?;
        let Some((seat, whole)) = self.seat.take() else {
            return Err(Error::Refused(
                "a part of a team does not shrink by itself: the whole does".to_owned(),
            ));
        };
        // Started calls are not carried out any more: their flags are about to be cleared.
        self.give_up_started();
        let (mapping, geometry) = (&whole.mapping, &whole.geometry);
        let old = Rc::clone(&self.endpoint);
        let generation = Header::generation(mapping);
        let word = generation.load(Ordering::Acquire);
        let next = (word & u64::from(u32::MAX)) + 1;
        let regrouping = |rank| SharedSeat::regrouping(mapping, geometry, self.seat_of(rank));
        regrouping(self.rank()).store(next, Ordering::SeqCst);
        let begin = Instant::now();
        let members = loop {
            let now = generation.load(Ordering::Acquire);
            if now & u64::from(u32::MAX) == next {
                // SAFETY: the rank that raised the generation filled its cell before, and no rank
                // uses it before the barrier below.
                break unsafe { read_members(&old.area, (now >> 32) as u32, old.ranks()) };
            }
            let here = |rank: &u32| {
                regrouping(*rank).load(Ordering::SeqCst) == next && !old.waits.liveness.gone(*rank)
            };
            let members: Vec<u32> = (0..self.ranks()).filter(here).collect();
            let all = (0..self.ranks()).all(|rank| members.contains(&rank) || old.waits.liveness.gone(rank));
            if all && members.first() == Some(&self.rank()) {
                // SAFETY: all live ranks are here, and wait for the generation.
                unsafe {
                    write_members(&old.area, self.rank(), &members);
                    old.area.clear();
                }
                generation.store(u64::from(self.rank()) << 32 | next, Ordering::Release);
                break members;
            }
            if begin.elapsed() > deadline {
                let missing =
                    (0..self.ranks()).find(|rank| !members.contains(rank) && !old.waits.liveness.gone(*rank));
                return Err(Error::Refused(format!(
                    "rank {} is alive and has not come to regroup",
                    missing.unwrap_or(0)
                )));
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let Some(me) = members.iter().position(|rank| *rank == self.rank()) else {
            return Err(Error::Refused("the other ranks have continued without this rank".to_owned()));
        };
        let area = whole.area(members.len() as u32);
        let seats = members.iter().map(|rank| self.seat_of(*rank)).collect();
        let peers = old.buffers.peers.borrow().as_ref().map(|peers| peers.of(&members));
        let liveness = Rc::new(TeamPart { whole: Rc::clone(&old.waits.liveness), members });
        let heap = (old.heap(), geometry.heap_bytes);
        let endpoint = Rc::new(self.endpoint_like(area, me as u32, liveness, heap));
        endpoint.set_peers(peers);
        let mut rank = Rank::new(endpoint, Some((seat, whole)), heap.1)?;
        rank.seats = Some(seats);
        self.teach(&mut rank);
        rank.barrier()?;
        Ok(rank)
    }

    /// Returns a rank's seat in the segment.
    fn seat_of(&self, rank: u32) -> u32 {
        self.seats.as_ref().map_or(rank, |seats| seats[rank as usize])
    }
}

/// # Safety
/// No other thread uses the rank's first cell.
unsafe fn write_members(area: &Area, rank: u32, members: &[u32]) {
    let cell = area.cell(rank, 0);
    let mut bits = [0_u64; RANKS_MAX as usize / 64];
    members.iter().for_each(|rank| bits[*rank as usize / 64] |= 1 << (rank % 64));
    // SAFETY: a cell has at least 1,024 bytes and is aligned to lines.
    unsafe { cell.cast::<[u64; RANKS_MAX as usize / 64]>().write(bits) };
}

/// # Safety
/// No thread writes the rank's first cell meanwhile.
unsafe fn read_members(area: &Area, rank: u32, ranks: u32) -> Vec<u32> {
    if rank >= ranks {
        return Vec::new();
    }
    // SAFETY: as above.
    let bits = unsafe { area.cell(rank, 0).cast::<[u64; RANKS_MAX as usize / 64]>().read() };
    (0..ranks).filter(|rank| bits[*rank as usize / 64] >> (rank % 64) & 1 == 1).collect()
}
