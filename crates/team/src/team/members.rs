//! The ranks of a team as seen by one of them: whether all have joined, and whether they live.

use super::Team;
use crate::endpoint::PeerLiveness;
use crate::liveness::{LivenessWatch, SeatHolder};
use crate::segment::header::{Header, STATE_BEGUN};
use crate::segment::layout::Geometry;
use crate::segment::memfd::Mapping;
use crate::segment::seat::{SEAT_DEAD, SEAT_LEFT, SEAT_TAKEN, SharedSeat, TakenSeat};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Team {
    /// Returns a rank of a process that died in its seat, or while it took the seat.
    pub(super) fn abandoned(&self) -> Option<u32> {
        (0..self.geometry.ranks).find(|rank| SharedSeat::abandoned(&self.mapping, &self.geometry, *rank))
    }

    /// Waits until every seat is taken by a thread that has published everything that others depend
    /// on.
    pub(super) fn gather(&self, seat: &TakenSeat) -> Result<Members> {
        let begin = Instant::now();
        let mut nap = Duration::from_micros(20);
        loop {
            let state = |rank| SharedSeat::state(&self.mapping, &self.geometry, rank).load(Ordering::Acquire);
            // A thread that has a seat may not have published its affinity mask yet.
            let told = |rank| self.area().lines(rank).quota.published().is_some();
            let is_there = |rank: &u32| state(*rank) == SEAT_TAKEN && told(*rank);
            let missing: Vec<u32> = (0..self.geometry.ranks).filter(|rank| !is_there(rank)).collect();
            if missing.is_empty() {
                break;
            }
            if let Some(rank) = missing.iter().find(|rank| matches!(state(**rank), SEAT_LEFT | SEAT_DEAD)) {
                // The rank may already have done all its work and left. In that case the team has
                // begun.
                if Header::state(&self.mapping).load(Ordering::Acquire) != STATE_BEGUN {
                    // A rank that found a death before this one has left since. The death is the
                    // reason to report.
                    return Err(self.abandoned().map_or(Error::PeerLeft(*rank), Error::PeerDied));
                }
                break;
            }
            // Rare, so that the cost of the system calls is negligible beside the naps.
            if nap >= Duration::from_millis(1)
                && let Some(rank) = self.abandoned()
            {
                return Err(Error::PeerDied(rank));
            }
            if self.options.interrupt.is_some_and(|asked| asked()) {
                return Err(Error::Interrupted);
            }
            if begin.elapsed() > self.options.gather {
                return Err(Error::Refused(format!(
                    "rank {} waited {:?}, and rank {} did not join",
                    seat.rank(),
                    self.options.gather,
                    missing[0]
                )));
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(1));
        }
        Header::state(&self.mapping).store(STATE_BEGUN, Ordering::Release);
        let holders: Vec<(u32, SeatHolder)> = (0..self.geometry.ranks)
            .filter_map(|rank| {
                SharedSeat::holder(&self.mapping, &self.geometry, rank).map(|holder| (rank, holder))
            })
            .collect();
        let own = std::process::id();
        Ok(Members {
            watch: LivenessWatch::new(seat.rank(), own, &holders),
            holders: holders.into_iter().filter(|(_, holder)| holder.holds && holder.pid != own).collect(),
            mapping: Arc::clone(&self.mapping),
            geometry: self.geometry,
        })
    }
}

/// The ranks of a whole team, as a waiting rank sees them.
pub(super) struct Members {
    watch: LivenessWatch,
    /// Threads of other processes that hold a lock on their seat ([`crate::segment::hold`]).
    holders: Vec<(u32, SeatHolder)>,
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
            // The order matters: a rank that leaves releases its lock only after it has marked its
            // seat as left.
            let gone = |holder: &&(u32, SeatHolder)| self.has_let_go(holder) && !self.left(holder.0);
            self.holders.iter().find(gone).map(|(rank, _)| *rank)
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
