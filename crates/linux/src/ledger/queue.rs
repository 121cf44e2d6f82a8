//! Waiting in line for CPUs, first come, first served.
//!
//! A ticket is a locked byte; the next one is the byte after the highest that is locked. Trying to lock it *is* the
//! arbiter, so drawing a ticket needs no planner: who finds it taken draws again, and whoever began after another had
//! finished drawing stands behind him. Tickets of the dead vanish with their locks. Nobody is woken: waiters look.

use super::Ledger;
use super::error::LedgerError;
use super::layout::{Level, queue_bytes};
use super::map::LockTable;
use super::place::Part;
use super::view::total;
use crate::sys::lock::{LockKind, unlock};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use trimtab_core::set::CpuSet;

/// A place in the line, until dropped.
#[derive(Debug)]
pub struct Ticket {
    file: OwnedFd,
    path: PathBuf,
    lane: Range<u64>,
    /// Our byte.
    at: u64,
}

/// How often to draw again, and how many tickets to look through. Chosen: far beyond any honest queue, and reached
/// quickly enough that a hostile one is not a hang.
const PATIENCE: u32 = 1 << 12;

impl Ledger {
    /// Goes to the end of the line of those who wait at this level for CPUs of one set. Each set has its own line,
    /// known by its lowest CPU, so that a run that waits inside one enclosing run does not hold up those inside
    /// another; those who compete have to name the same set (at level 0 the machine, inside a run that run's CPUs).
    ///
    /// Only waiters stand in line: somebody who does not want to overtake looks at
    /// [`waiting`](super::LedgerView::waiting) first.
    ///
    /// # Errors
    /// [`LedgerError::QueueBlocked`] when somebody has locked the end of the line; [`LedgerError::CpuOutOfRange`],
    /// [`LedgerError::Replaced`], [`LedgerError::Io`].
    pub fn enqueue(&self, level: Level, confines: &CpuSet) -> Result<Ticket, LedgerError> {
        let lane = queue_bytes(level, confines.first().unwrap_or_default())?;
        let file = self.description()?;
        for _ in 0..PATIENCE {
            let at = self.end_of(&file, &lane, level)?;
            if self.lock(&file, at..at + 1, LockKind::Write)? {
                self.view.place.confirm(Part::Locks, self.view.identity)?;
                return Ok(Ticket { file, path: self.path(), lane, at });
            }
        }
        Err(LedgerError::QueueBlocked { level })
    }

    /// The first byte above all tickets.
    fn end_of(&self, file: &OwnedFd, lane: &Range<u64>, level: Level) -> Result<u64, LedgerError> {
        let table = LockTable::Queried(file.as_fd());
        let mut at = lane.start;
        for _ in 0..PATIENCE {
            if at >= lane.end {
                break;
            }
            match table.any(&(at..lane.end)).map_err(|error| self.failed("asking for the queue of", error))? {
                Some(ticket) => at = ticket.bytes.end,
                None => return Ok(at),
            }
        }
        Err(LedgerError::QueueBlocked { level })
    }
}

impl Ticket {
    /// How many stand before us.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn ahead(&self) -> Result<u64, LedgerError> {
        if self.at == self.lane.start {
            return Ok(0);
        }
        Ok(total(
            &LockTable::Queried(self.file.as_fd())
                .all(self.lane.start..self.at)
                .map_err(|source| self.failed(source))?,
        ))
    }

    /// Whether it is our turn.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn is_first(&self) -> Result<bool, LedgerError> {
        if self.at == self.lane.start {
            return Ok(true);
        }
        let before = LockTable::Queried(self.file.as_fd()).any(&(self.lane.start..self.at));
        Ok(before.map_err(|source| self.failed(source))?.is_none())
    }

    /// How long to sleep before looking again, with so many ahead: the first looks often enough that CPUs do not lie
    /// idle for long, the others seldom. Chosen; a look costs microseconds.
    pub fn pause(ahead: u64) -> Duration {
        Duration::from_millis(20 + 40 * ahead.min(12))
    }

    fn failed(&self, source: std::io::Error) -> LedgerError {
        LedgerError::Io { attempt: "asking for the queue of", path: self.path.clone(), source }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // For the same reason as the planner's byte: a copy in a child being started must not hold up the line.
        let _ = unlock(self.file.as_fd(), self.at..self.at + 1);
    }
}
