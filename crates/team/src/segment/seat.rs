//! Seats: one line per rank that records the thread that has the rank. A seat is taken by one
//! atomic exchange of its state, so two threads never have the same.
use super::header::{Header, STATE_GATHERING};
use super::hold::Hold;
use super::layout::{Geometry, LINE_BYTES};
use super::memfd::Mapping;
use crate::liveness::SeatHolder;
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No thread has the seat.
pub const SEAT_FREE: u64 = 0;
/// A thread writes its data; its process's number is in the upper half, so that a process that dies
/// here is found.
pub const SEAT_TAKING: u64 = 1;
/// A thread has the seat.
pub const SEAT_TAKEN: u64 = 2;
/// Its rank left.
pub const SEAT_LEFT: u64 = 3;
/// Its rank died.
pub const SEAT_DEAD: u64 = 4;

/// Flag beside the thread's number: it has a hold of the seat.
const HOLD_FLAG: u64 = 1 << 32;

/// A rank's seat in shared memory: state, pid, start time of the thread (the first one of the
/// process, if the process has the rank), generation, tid, pid
/// namespace, the generation it regroups for.
#[derive(Debug, Clone, Copy)]
pub struct SharedSeat;

impl SharedSeat {
    fn word<'m>(m: &'m Mapping, g: &Geometry, rank: u32, index: usize) -> &'m AtomicU64 {
        let at = g.seats + rank as usize * LINE_BYTES + index * 8;
        assert!(rank < g.ranks && at + 8 <= m.len(), "a rank outside the team");
        // SAFETY: within the mapping as just checked, aligned to 8 bytes, accessed atomically only,
        // living as long as `m`.
        unsafe { AtomicU64::from_ptr(m.base().add(at).cast()) }
    }

    /// Returns the state: [`SEAT_FREE`] to [`SEAT_DEAD`].
    pub fn state<'m>(m: &'m Mapping, g: &Geometry, rank: u32) -> &'m AtomicU64 {
        Self::word(m, g, rank, 0)
    }

    /// Returns the generation of the team for which this rank regroups with the other survivors.
    pub fn regrouping<'m>(m: &'m Mapping, g: &Geometry, rank: u32) -> &'m AtomicU64 {
        Self::word(m, g, rank, 6)
    }

    /// Returns whether a rank belongs to this process, of PID namespace `namespace`, or did when it
    /// left.
    pub fn is_ours(m: &Mapping, g: &Geometry, rank: u32, namespace: u64) -> bool {
        Self::word(m, g, rank, 1).load(Ordering::Relaxed) == u64::from(std::process::id())
            && Self::word(m, g, rank, 5).load(Ordering::Relaxed) == namespace
    }

    /// Returns the thread that has the seat; `None` unless the state is [`SEAT_TAKEN`].
    pub fn holder(m: &Mapping, g: &Geometry, rank: u32) -> Option<SeatHolder> {
        Self::holder_from(m, g, rank, crate::liveness::namespace())
    }

    /// The same, as seen by a process of PID namespace `namespace`: to ask for many ranks.
    pub fn holder_from(m: &Mapping, g: &Geometry, rank: u32, namespace: u64) -> Option<SeatHolder> {
        if Self::state(m, g, rank).load(Ordering::Acquire) != SEAT_TAKEN {
            return None;
        }
        let word = |index| Self::word(m, g, rank, index).load(Ordering::Relaxed);
        let pid = u32::try_from(word(1)).ok()?;
        // A number has no meaning in another namespace: 0 means that nothing is known.
        let known = word(5) == namespace;
        let pid = if known { pid } else { 0 };
        Some(SeatHolder { pid, tid: word(4) as u32, start: word(2), holds: word(4) & HOLD_FLAG != 0 })
    }

    /// Returns whether a thread that had a hold of the seat has lost it.
    pub fn let_go(m: &Mapping, rank: u32, holder: &SeatHolder) -> bool {
        holder.holds && !Hold::is_held(m, rank)
    }

    /// Returns whether the thread that took or takes the seat has died since; false if that cannot
    /// be seen.
    pub fn abandoned(m: &Mapping, g: &Geometry, rank: u32) -> bool {
        let state = Self::state(m, g, rank).load(Ordering::Acquire);
        let dead = if state & 0xff == SEAT_TAKING {
            crate::liveness::process_ended((state >> 32) as u32)
        } else {
            Self::holder(m, g, rank)
                .is_some_and(|holder| crate::liveness::ended(&holder) || Self::let_go(m, rank, &holder))
        };
        // It may have left in between, which is not a death.
        dead && Self::state(m, g, rank).load(Ordering::Acquire) == state
    }

    /// Takes the seat of `rank`, or the first free one, for a thread or for its process.
    ///
    /// # Errors
    /// `Refused` if it is taken, or its rank left or died, or the team no longer gathers;
    /// `Argument` for a rank outside of the team.
    pub fn take(m: &Arc<Mapping>, g: &Geometry, rank: Option<u32>, own: SeatHolder) -> Result<TakenSeat> {
        if rank.is_some_and(|r| r >= g.ranks) {
            return Err(Error::Argument(format!("a team of {} has no rank {rank:?}", g.ranks)));
        }
        let seats = rank.map_or(0..g.ranks, |r| r..r + 1);
        for r in seats {
            let state = Self::state(m, g, r);
            let pid = std::process::id();
            let taking = SEAT_TAKING | u64::from(pid) << 32;
            if state.compare_exchange(SEAT_FREE, taking, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            let generation = Header::generation(m).load(Ordering::Relaxed);
            // After exec no other thread exists, and their numbers are free.
            let hold = if own.tid == own.pid { Hold::take(m, r) } else { None };
            let tid = u64::from(own.tid) | if hold.is_some() { HOLD_FLAG } else { 0 };
            for (i, v) in [u64::from(pid), own.start, generation, tid, crate::liveness::namespace()]
                .into_iter()
                .enumerate()
            {
                Self::word(m, g, r, i + 1).store(v, Ordering::Relaxed);
            }
            state.store(SEAT_TAKEN, Ordering::Release);
            return Ok(TakenSeat { mapping: Arc::clone(m), geometry: *g, rank: r, pid, _hold: hold });
        }
        let Some(r) = rank else { return Err(Error::Refused("every seat of the team is taken".to_owned())) };
        let begun = Header::state(m).load(Ordering::Acquire) != STATE_GATHERING;
        Err(Error::Refused(match Self::holder(m, g, r) {
            Some(holder) => format!("rank {r} is taken by process {}", holder.pid),
            None if begun => format!("rank {r} has left or died, and the team has begun without it"),
            None => format!("rank {r} is being taken, has left or died"),
        }))
    }
}

/// A seat of this process, left on drop.
#[derive(Debug)]
pub struct TakenSeat {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    rank: u32,
    pid: u32,
    /// Released after the seat: a thread that has neither has left.
    _hold: Option<Hold>,
}

impl TakenSeat {
    /// Returns the rank of this seat.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        // A copy made by fork does not leave in its parent's name.
        if std::process::id() == self.pid {
            let state = SharedSeat::state(&self.mapping, &self.geometry, self.rank);
            let _ = state.compare_exchange(SEAT_TAKEN, SEAT_LEFT, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_each() {
        let g = Geometry::plan(2, 0, 0).unwrap();
        let m = Arc::new(Mapping::create(g.total).unwrap());
        Header::write(&m, &g, 1, 1).unwrap();
        let own = SeatHolder::own(false);
        let one = SharedSeat::take(&m, &g, Some(1), own).unwrap();
        let refusal = SharedSeat::take(&m, &g, Some(1), own).unwrap_err().to_string();
        assert!(refusal.contains("rank 1") && refusal.contains(&std::process::id().to_string()));
        assert_eq!(SharedSeat::take(&m, &g, None, own).unwrap().rank(), 0);
        drop(one);
        assert_eq!(SharedSeat::state(&m, &g, 1).load(Ordering::Relaxed), SEAT_LEFT);
        assert!(SharedSeat::take(&m, &g, None, own).is_err());
    }

    #[test]
    fn a_process_that_dies_while_it_takes_a_seat_is_detected() {
        let g = Geometry::plan(2, 0, 0).unwrap();
        let m = Arc::new(Mapping::create(g.total).unwrap());
        Header::write(&m, &g, 1, 1).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let own = u64::from(std::process::id());
        SharedSeat::state(&m, &g, 0).store(SEAT_TAKING | own << 32, Ordering::Relaxed);
        assert!(!SharedSeat::abandoned(&m, &g, 0));
        child.wait().unwrap();
        SharedSeat::state(&m, &g, 0).store(SEAT_TAKING | u64::from(child.id()) << 32, Ordering::Relaxed);
        assert!(SharedSeat::abandoned(&m, &g, 0));
        assert!(!SharedSeat::abandoned(&m, &g, 1));
    }
}
