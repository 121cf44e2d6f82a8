//! Seats: one line per rank that says who has it. Taken by one exchange of its state, so two never have the same.
use super::header::{GATHERING, Header};
use super::hold::Hold;
use super::layout::{Geometry, LINE};
use super::memfd::Mapping;
use crate::liveness::Sitter;
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nobody has it.
pub const FREE: u64 = 0;
/// Somebody writes his name; his process's number is in the upper half, so that one that dies here is found.
pub const TAKING: u64 = 1;
/// Somebody has it.
pub const TAKEN: u64 = 2;
/// Its rank left.
pub const LEFT: u64 = 3;
/// Its rank died.
pub const DEAD: u64 = 4;

/// Beside the thread's number: it has a hold of the seat.
const HOLDS: u64 = 1 << 32;

/// A rank's seat in shared memory: state, pid, start time of the thread, generation, tid, pid namespace, the generation it regroups for.
#[derive(Debug, Clone, Copy)]
pub struct Seat;

impl Seat {
    fn word<'m>(m: &'m Mapping, g: &Geometry, rank: u32, index: usize) -> &'m AtomicU64 {
        let at = g.seats + rank as usize * LINE + index * 8;
        assert!(rank < g.ranks && at + 8 <= m.len(), "a rank outside the team");
        // SAFETY: within the mapping as just checked, aligned to 8 bytes, used atomically only, living as long as `m`.
        unsafe { AtomicU64::from_ptr(m.base().add(at).cast()) }
    }

    /// [`FREE`] to [`DEAD`].
    pub fn state<'m>(m: &'m Mapping, g: &Geometry, rank: u32) -> &'m AtomicU64 {
        Self::word(m, g, rank, 0)
    }

    /// Which generation of the team this rank has begun to make of those who are left.
    pub fn regrouping<'m>(m: &'m Mapping, g: &Geometry, rank: u32) -> &'m AtomicU64 {
        Self::word(m, g, rank, 6)
    }

    /// Whether a rank is of this process, or was when it left.
    pub fn is_ours(m: &Mapping, g: &Geometry, rank: u32) -> bool {
        Self::word(m, g, rank, 1).load(Ordering::Relaxed) == u64::from(std::process::id())
            && Self::word(m, g, rank, 5).load(Ordering::Relaxed) == crate::liveness::namespace()
    }

    /// Who sits there; believed only while the state is [`TAKEN`].
    pub fn holder(m: &Mapping, g: &Geometry, rank: u32) -> Option<Sitter> {
        if Self::state(m, g, rank).load(Ordering::Acquire) != TAKEN {
            return None;
        }
        let word = |index| Self::word(m, g, rank, index).load(Ordering::Relaxed);
        let pid = u32::try_from(word(1)).ok()?;
        // A number means nothing in another namespace: 0 says that nothing is known.
        let known = word(5) == crate::liveness::namespace();
        let pid = if known { pid } else { 0 };
        Some(Sitter { pid, tid: word(4) as u32, start: word(2), holds: word(4) & HOLDS != 0 })
    }

    /// Whether somebody who had a hold of the seat has lost it.
    pub fn let_go(m: &Mapping, rank: u32, sitter: &Sitter) -> bool {
        sitter.holds && !Hold::is_held(m, rank)
    }

    /// Whether whoever took or takes the seat has died since; false where that cannot be seen.
    pub fn abandoned(m: &Mapping, g: &Geometry, rank: u32) -> bool {
        let state = Self::state(m, g, rank).load(Ordering::Acquire);
        let dead = if state & 0xff == TAKING {
            crate::liveness::process_ended((state >> 32) as u32)
        } else {
            Self::holder(m, g, rank)
                .is_some_and(|sitter| crate::liveness::ended(&sitter) || Self::let_go(m, rank, &sitter))
        };
        // It may have left in between, which is no death.
        dead && Self::state(m, g, rank).load(Ordering::Acquire) == state
    }

    /// Takes the seat of `rank`, or the first free one.
    ///
    /// # Errors
    /// `Refused` if it is taken, or its rank left or died, or the team no longer gathers; `Argument` for no such rank.
    pub fn take(m: &Arc<Mapping>, g: &Geometry, rank: Option<u32>) -> Result<TakenSeat> {
        if rank.is_some_and(|r| r >= g.ranks) {
            return Err(Error::Argument(format!("a team of {} has no rank {rank:?}", g.ranks)));
        }
        let seats = rank.map_or(0..g.ranks, |r| r..r + 1);
        for r in seats {
            let state = Self::state(m, g, r);
            let pid = std::process::id();
            let taking = TAKING | u64::from(pid) << 32;
            if state.compare_exchange(FREE, taking, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            let generation = Header::generation(m).load(Ordering::Relaxed);
            let own = Sitter::own(false);
            // Of other threads exec leaves nothing, not even the number.
            let hold = if own.tid == own.pid { Hold::take(m, r) } else { None };
            let tid = u64::from(own.tid) | if hold.is_some() { HOLDS } else { 0 };
            for (i, v) in [u64::from(pid), own.start, generation, tid, crate::liveness::namespace()]
                .into_iter()
                .enumerate()
            {
                Self::word(m, g, r, i + 1).store(v, Ordering::Relaxed);
            }
            state.store(TAKEN, Ordering::Release);
            return Ok(TakenSeat { mapping: Arc::clone(m), geometry: *g, rank: r, pid, _hold: hold });
        }
        let Some(r) = rank else { return Err(Error::Refused("every seat of the team is taken".to_owned())) };
        let begun = Header::state(m).load(Ordering::Acquire) != GATHERING;
        Err(Error::Refused(match Self::holder(m, g, r) {
            Some(sitter) => format!("rank {r} is taken by process {}", sitter.pid),
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
    /// Given back after the seat: who has neither has left.
    _hold: Option<Hold>,
}

impl TakenSeat {
    /// Of this seat.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        // A copy made by fork does not leave in its parent's name.
        if std::process::id() == self.pid {
            let state = Seat::state(&self.mapping, &self.geometry, self.rank);
            let _ = state.compare_exchange(TAKEN, LEFT, Ordering::AcqRel, Ordering::Relaxed);
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
        let one = Seat::take(&m, &g, Some(1)).unwrap();
        let refusal = Seat::take(&m, &g, Some(1)).unwrap_err().to_string();
        assert!(refusal.contains("rank 1") && refusal.contains(&std::process::id().to_string()));
        assert_eq!(Seat::take(&m, &g, None).unwrap().rank(), 0);
        drop(one);
        assert_eq!(Seat::state(&m, &g, 1).load(Ordering::Relaxed), LEFT);
        assert!(Seat::take(&m, &g, None).is_err());
    }

    #[test]
    fn who_dies_while_sitting_down_is_found() {
        let g = Geometry::plan(2, 0, 0).unwrap();
        let m = Arc::new(Mapping::create(g.total).unwrap());
        Header::write(&m, &g, 1, 1).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let own = u64::from(std::process::id());
        Seat::state(&m, &g, 0).store(TAKING | own << 32, Ordering::Relaxed);
        assert!(!Seat::abandoned(&m, &g, 0));
        child.wait().unwrap();
        Seat::state(&m, &g, 0).store(TAKING | u64::from(child.id()) << 32, Ordering::Relaxed);
        assert!(Seat::abandoned(&m, &g, 0));
        assert!(!Seat::abandoned(&m, &g, 1));
    }
}
