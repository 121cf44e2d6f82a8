//! Queue of runs that wait for CPUs, first come, first served.
//!
//! A ticket is a locked byte; the next ticket is the byte after the highest locked one. Locking a
//! byte *is* the arbitration, so drawing a ticket needs no planner: a process that finds the byte
//! taken draws again, and a process that began after another had finished drawing is behind it.
//! Tickets of ended processes vanish with their locks. No process is woken: waiting processes poll.
//!
//! A stopped process keeps its locks, so a ticket alone does not show that its holder still polls.
//! Each ticket therefore has a *pulse*: a second locked byte, which the holder moves round
//! [`pulse_bytes`] whenever it polls. A ticket before ours with an unmoved pulse for
//! [`STILL_OBSERVATIONS`] observations is *still*: it keeps its position, and is passed over as
//! long as its pulse does not move. The pulse is a lock and not a written number: it needs no
//! common clock and no file that every user can write, and it ends with its holder at any instant.
//! A ticket without a pulse belongs to an earlier version of this program and is waited for. A
//! hostile user who locks all positions of another ticket's pulse makes that ticket seem still;
//! locking the whole queue is as easy and does more harm.

use super::Ledger;
use super::error::LedgerError;
use super::layout::{pulse_bytes, queue_bytes};
use super::level::Level;
use super::map::LockTable;
use super::place::LedgerPart;
use super::view::total;
use crate::sys::lock::{ByteLock, LockKind, try_lock, unlock};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;

/// Position in the queue, until dropped. The holder has to poll ([`Ticket::ahead`],
/// [`Ticket::is_first`]) several times a second, or it is passed over.
#[derive(Debug)]
pub struct Ticket {
    file: OwnedFd,
    path: PathBuf,
    lane: Range<u64>,
    /// Byte of this ticket.
    at: u64,
    /// Byte of our pulse, and the time at which it was moved there.
    pulse: (u64, Instant),
    /// The foremost tickets before ours as last observed, by their bytes.
    watched: BTreeMap<u64, Watched>,
    /// Time of the last observation.
    observed: Option<Instant>,
}

/// State of another ticket, from repeated observation.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Positions of its pulse that are locked, one bit each: normally one, two while it moves, none
    /// for a ticket without a pulse. A process that was stopped after it failed to draw the same
    /// ticket leaves a further one, which does not move.
    pulse: u64,
    /// Consecutive observations that found the same positions, without the first.
    same: u32,
}

impl Watched {
    fn is_still(self) -> bool {
        self.pulse != 0 && self.same >= STILL_OBSERVATIONS
    }
}

/// Time that a pulse stays at one position while its holder polls, and time between two
/// observations of it. Chosen: two system calls each, and several beats within the longest delay
/// that passes unnoticed.
const PULSE_PERIOD: Duration = Duration::from_millis(100);

/// Number of observations without a change after which a ticket is passed over: one second in all.
/// Chosen: far longer than a runnable process is kept from a CPU. A misjudged process only loses
/// its turn.
const STILL_OBSERVATIONS: u32 = 10;

/// Maximal number of moving tickets before ours that are watched at once. Chosen: bounds the cost
/// of a poll in a long queue. Stopped tickets beyond it are found when the tickets before them are
/// known to be still.
const MOVING_MAX: usize = 8;

/// Maximal number of tickets before ours that are watched at once, the still ones included. Chosen:
/// more stopped runs than any machine has, few enough that a hostile queue of them does not cause a
/// hang.
const WATCHED_MAX: usize = 256;

/// Maximal number of attempts to draw a ticket, and of tickets examined in one attempt. Chosen: far
/// beyond any honest queue, and reached quickly enough that a hostile queue does not cause a hang.
const DRAW_STEPS_MAX: u32 = 1 << 12;

impl Ledger {
    /// Draws a ticket at the end of the queue of runs that wait at this level for CPUs of one set.
    /// Each set has its own queue, identified by its lowest CPU, so a run that waits inside one
    /// enclosing run does not delay runs inside another. Competing runs have to name the same set:
    /// at level 0 the machine, inside a run that run's CPUs.
    ///
    /// Only waiting runs are in the queue: a run that does not want to overtake checks
    /// [`waiting`](super::LedgerView::waiting) first.
    ///
    /// # Errors
    /// [`LedgerError::QueueBlocked`] when another process has locked the end of the queue;
    /// [`LedgerError::CpuOutOfRange`], [`LedgerError::Replaced`], [`LedgerError::Io`].
    pub fn enqueue(&self, level: Level, confines: &CpuSet) -> Result<Ticket, LedgerError> {
        let lane = queue_bytes(level, confines.first().unwrap_or_default())?;
        let file = self.description()?;
        for _ in 0..DRAW_STEPS_MAX {
            let at = self.end_of(&file, &lane, level)?;
            // The pulse comes first, so at no instant does a stopped process have a ticket without
            // a pulse. It is a read lock, so a process that stops between the two locks blocks no
            // other.
            let pulse = pulse_bytes(at).start;
            self.lock(&file, pulse..pulse + 1, LockKind::Read)?;
            if self.lock(&file, at..at + 1, LockKind::Write)? {
                self.view.place.confirm(LedgerPart::Locks, self.view.identity)?;
                let (pulse, watched) = ((pulse, Instant::now()), BTreeMap::new());
                return Ok(Ticket { file, path: self.path(), lane, at, pulse, watched, observed: None });
            }
            unlock(file.as_fd(), pulse..pulse + 1).map_err(|error| self.failed("unlocking", error))?;
        }
        Err(LedgerError::QueueBlocked { level })
    }

    /// Returns the first byte above all tickets.
    fn end_of(&self, file: &OwnedFd, lane: &Range<u64>, level: Level) -> Result<u64, LedgerError> {
        let table = LockTable::Queried(file.as_fd());
        let mut at = lane.start;
        for _ in 0..DRAW_STEPS_MAX {
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
    /// Returns the number of tickets before ours, without those that are passed over.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn ahead(&mut self) -> Result<u64, LedgerError> {
        self.poll().map_err(|source| self.failed(source))?;
        let all = self.table().all(self.lane.start..self.at).map_err(|source| self.failed(source))?;
        let still = |lock: &&ByteLock| self.still().any(|ticket| lock.bytes == (ticket..ticket + 1));
        Ok(total(&all) - all.iter().filter(still).count() as u64)
    }

    /// Returns whether it is our turn: all tickets before ours, if any, are passed over.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn is_first(&mut self) -> Result<bool, LedgerError> {
        self.poll().map_err(|source| self.failed(source))?;
        // The gaps between the still tickets: a single query in a queue without still tickets.
        let mut from = self.lane.start;
        let ends: Vec<u64> = self.still().chain([self.at]).collect();
        for to in ends {
            if from < to && self.table().any(&(from..to)).map_err(|source| self.failed(source))?.is_some() {
                return Ok(false);
            }
            from = to + 1;
        }
        Ok(true)
    }

    /// Returns the tickets that are passed over, ascending.
    fn still(&self) -> impl Iterator<Item = u64> {
        self.watched.iter().filter(|(_, watched)| watched.is_still()).map(|(&ticket, _)| ticket)
    }

    fn table(&self) -> LockTable<'_> {
        LockTable::Queried(self.file.as_fd())
    }

    /// Moves our pulse and observes those of other tickets, each when it is due.
    fn poll(&mut self) -> io::Result<()> {
        let (at, since) = self.pulse;
        if since.elapsed() >= PULSE_PERIOD {
            let round = pulse_bytes(self.at);
            let next = if at + 1 < round.end { at + 1 } else { round.start };
            // The new position first, so there is a pulse at every moment. A refusal means that
            // another process locks our byte; the pulse then stays, and we are passed over.
            if try_lock(self.file.as_fd(), next..next + 1, LockKind::Read)? {
                unlock(self.file.as_fd(), at..at + 1)?;
                self.pulse = (next, Instant::now());
            }
        }
        if self.observed.is_none_or(|observed| observed.elapsed() >= PULSE_PERIOD) {
            // After this process was stopped itself, its knowledge of the other tickets is out of
            // date.
            if self.observed.is_some_and(|observed| observed.elapsed() >= PULSE_PERIOD * STILL_OBSERVATIONS) {
                self.watched.clear();
            }
            self.watched = self.observe()?;
            self.observed = Some(Instant::now());
        }
        Ok(())
    }

    /// Returns the foremost tickets before ours with their pulses: all that are still, and a few
    /// behind those.
    fn observe(&self) -> io::Result<BTreeMap<u64, Watched>> {
        let mut found = BTreeMap::new();
        let (mut from, mut moving) = (self.lane.start, 0);
        while moving < MOVING_MAX && found.len() < WATCHED_MAX {
            let Some(ticket) = lowest(self.table(), from..self.at)? else { break };
            from = ticket.bytes.end;
            let at = ticket.bytes.start;
            // A longer lock is not a ticket, and cannot be still.
            if from != at + 1 {
                break;
            }
            let round = pulse_bytes(at);
            let locks = self.table().all(round.clone())?;
            let pulse = locks
                .iter()
                .flat_map(|lock| lock.bytes.clone())
                .fold(0, |bits, byte| bits | 1 << (byte - round.start));
            let before = self.watched.get(&at).filter(|before| before.pulse == pulse);
            let watched = Watched { pulse, same: before.map_or(0, |before| before.same.saturating_add(1)) };
            moving += usize::from(!watched.is_still());
            found.insert(at, watched);
        }
        Ok(found)
    }

    /// Returns the time to sleep before the next poll, with `ahead` tickets before ours. The first
    /// run polls often enough that CPUs do not lie idle for long, later runs poll less often.
    /// Chosen; a poll costs microseconds.
    pub fn pause(ahead: u64) -> Duration {
        Duration::from_millis(20 + 40 * ahead.min(12))
    }

    fn failed(&self, source: io::Error) -> LedgerError {
        LedgerError::Io { attempt: "asking for the queue of", path: self.path.clone(), source }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // For the same reason as the planner's byte: a copy in a child that is being started must
        // not block the queue.
        let _ = unlock(self.file.as_fd(), self.at..self.at + 1);
        let _ = unlock(self.file.as_fd(), pulse_bytes(self.at));
    }
}

/// Returns the lock with the lowest byte within `bytes`, cut to them. The kernel names any lock, so
/// the range below each answer is queried until it is free.
fn lowest(table: LockTable<'_>, bytes: Range<u64>) -> io::Result<Option<ByteLock>> {
    let mut found: Option<ByteLock> = None;
    loop {
        let below = bytes.start..found.as_ref().map_or(bytes.end, |lock| lock.bytes.start);
        if below.is_empty() {
            return Ok(found);
        }
        match table.any(&below)? {
            Some(lower) => found = Some(lower),
            None => return Ok(found),
        }
    }
}
