//! The ranks of a team as seen by one of them: whether all have joined, and whether they live.

use super::Team;
use crate::endpoint::PeerLiveness;
use crate::liveness::{LivenessWatch, SeatHolder, ranks_per_check};
use crate::segment::header::{Header, STATE_BEGUN};
use crate::segment::layout::Geometry;
use crate::segment::memfd::Mapping;
use crate::segment::seat::{SEAT_DEAD, SEAT_FREE, SEAT_LEFT, SEAT_TAKEN, SharedSeat, TakenSeat};
use crate::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two checks of a rank that waits for others to join.
const ARRIVAL_CHECK: Duration = Duration::from_millis(4);
/// The same for each rank of a large team.
const ARRIVAL_CHECK_EACH: Duration = Duration::from_micros(64);

impl Team {
    /// Returns a rank of a process that died in its seat, or while it took the seat.
    pub(super) fn abandoned(&self) -> Option<u32> {
        (0..self.geometry.ranks).find(|rank| SharedSeat::abandoned(&self.mapping, &self.geometry, *rank))
    }

    /// Waits until every seat is taken by a thread that has published everything that others depend
    /// on, as this one has.
    ///
    /// Ranks sleep until the last one arrives. Now and then each checks whether another one has
    /// left or died; a check costs little, since all ranks make them while the last ones start.
    pub(super) fn gather(&self, seat: &TakenSeat) -> Result<Members> {
        let (begin, ranks) = (Instant::now(), self.geometry.ranks);
        let arrivals = Header::arrivals(&self.mapping);
        if arrivals.fetch_add(1, Ordering::SeqCst).wrapping_add(1) == ranks {
            crate::wait::wake_all(arrivals);
        }
        // In large teams checks are rare, so that those of all ranks leave the CPUs free.
        let nap = ARRIVAL_CHECK.max(ARRIVAL_CHECK_EACH * ranks);
        let mut turn = seat.rank();
        loop {
            let come = arrivals.load(Ordering::SeqCst);
            // Any rank may have written the number: it only says when to look.
            let begun = Header::state(&self.mapping).load(Ordering::Acquire) == STATE_BEGUN;
            if (come >= ranks || begun) && self.missing().is_none() {
                break;
            }
            if let Some(outcome) = self.ended_early(&mut turn) {
                outcome?;
                break;
            }
            if self.options.interrupt.is_some_and(|asked| asked()) {
                return Err(Error::Interrupted);
            }
            if begin.elapsed() > self.options.gather {
                let Some(missing) = self.missing() else { break };
                return Err(Error::Refused(format!(
                    "rank {} waited {:?}, and rank {missing} did not join",
                    seat.rank(),
                    self.options.gather,
                )));
            }
            crate::wait::sleep_while(arrivals, come, nap);
        }
        Header::state(&self.mapping).store(STATE_BEGUN, Ordering::Release);
        Ok(self.members(seat.rank()))
    }

    /// Returns a rank that has not joined, or has not yet published its CPUs.
    fn missing(&self) -> Option<u32> {
        let area = self.area();
        let state = |rank| SharedSeat::state(&self.mapping, &self.geometry, rank).load(Ordering::Acquire);
        let there = |rank: u32| state(rank) == SEAT_TAKEN && area.lines(rank).quota.published().is_some();
        (0..self.geometry.ranks).find(|rank| !there(*rank))
    }

    /// Returns whether a rank has left before all have joined, as an error, or after that; `None`
    /// if none has. Examines the seats, and one thread in turn.
    fn ended_early(&self, turn: &mut u32) -> Option<Result<()>> {
        let (ranks, mapping, geometry) = (self.geometry.ranks, &self.mapping, &self.geometry);
        let state = |rank: &u32| SharedSeat::state(mapping, geometry, *rank).load(Ordering::Acquire);
        if let Some(left) = (0..ranks).find(|rank| matches!(state(rank), SEAT_LEFT | SEAT_DEAD)) {
            // The rank may already have done all its work and left. In that case the team has
            // begun.
            if Header::state(mapping).load(Ordering::Acquire) == STATE_BEGUN {
                return Some(Ok(()));
            }
            // A rank that found a death before this one has left since. The death is the reason to
            // report.
            return Some(Err(self.abandoned().map_or(Error::PeerLeft(left), Error::PeerDied)));
        }
        let next = (1..=ranks).map(|step| (*turn + step) % ranks).find(|rank| state(rank) != SEAT_FREE)?;
        *turn = next;
        SharedSeat::abandoned(mapping, geometry, next).then_some(Err(Error::PeerDied(next)))
    }

    /// Returns the ranks of the team as this rank sees them.
    fn members(&self, rank: u32) -> Members {
        let namespace = crate::liveness::namespace();
        let holder = |rank| SharedSeat::holder_from(&self.mapping, &self.geometry, rank, namespace);
        let holders: Vec<(u32, SeatHolder)> =
            (0..self.geometry.ranks).filter_map(|rank| holder(rank).map(|holder| (rank, holder))).collect();
        let own = std::process::id();
        Members {
            watch: LivenessWatch::new(rank, own, &holders),
            holders: holders.into_iter().filter(|(_, holder)| holder.holds && holder.pid != own).collect(),
            first: rank as usize,
            checks: Cell::new(0),
            mapping: Arc::clone(&self.mapping),
            geometry: self.geometry,
        }
    }
}

/// The ranks of a whole team, as a waiting rank sees them.
pub(super) struct Members {
    watch: LivenessWatch,
    /// Threads of other processes that hold a lock on their seat ([`crate::segment::hold`]).
    holders: Vec<(u32, SeatHolder)>,
    /// Index of the holder with which the first check begins, and the number of checks.
    first: usize,
    checks: Cell<usize>,
    mapping: Arc<Mapping>,
    geometry: Geometry,
}

impl Members {
    fn has_let_go(&self, (rank, holder): &(u32, SeatHolder)) -> bool {
        SharedSeat::let_go(&self.mapping, *rank, holder)
    }
}

impl PeerLiveness for Members {
    fn dead(&self) -> Option<u32> {
        let replaced = || {
            let (count, checks) = (self.holders.len(), self.checks.get());
            self.checks.set(checks.wrapping_add(1));
            let many = ranks_per_check(count);
            let begin = self.first.wrapping_add(checks.wrapping_mul(many));
            // The order matters: a rank that leaves releases its lock only after it has marked its
            // seat as left.
            let gone = |holder: &&(u32, SeatHolder)| self.has_let_go(holder) && !self.left(holder.0);
            let mut window = (0..many).map(|at| &self.holders[begin.wrapping_add(at) % count]);
            window.find(gone).map(|(rank, _)| *rank)
        };
        self.watch.dead(|rank| self.left(rank)).or_else(replaced)
    }

    fn left(&self, rank: u32) -> bool {
        SharedSeat::state(&self.mapping, &self.geometry, rank).load(Ordering::Acquire) == SEAT_LEFT
    }

    fn gone(&self, rank: u32) -> bool {
        let replaced = || self.holders.iter().any(|holder| holder.0 == rank && self.has_let_go(holder));
        self.left(rank) || self.watch.ended(rank) || replaced()
    }
}
