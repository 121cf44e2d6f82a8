//! Queue of runs that wait for CPUs. Its order and the cores kept for each waiter are decided by
//! [`trimtab_core::queue`]; this module has the tickets.
//!
//! A ticket is a locked byte; the next ticket is the byte after the highest locked one. Locking a
//! byte *is* the arbitration, so drawing a ticket needs no planner: a process that finds the byte
//! taken draws again, and a process that began after another had finished drawing has a higher
//! ticket. Tickets of ended processes are released with their locks. No process is woken: waiting
//! processes poll. A [`TicketClaim`] beside the locks names the waiting run and the cores for which
//! it waits.
//!
//! A stopped process keeps its locks, so a ticket alone does not show that its holder still polls.
//! Each ticket therefore has a *pulse*: a second locked byte, which the holder moves round
//! [`pulse_bytes`] at each poll. A ticket with an unmoved pulse for [`STILL_OBSERVATIONS`]
//! observations is *still*: it keeps its position, and is passed over as long as its pulse does not
//! move. The pulse is a lock and not a written number: it needs no common clock and no file that
//! every user can write, and it ends with its holder at any instant. A ticket without a pulse
//! belongs to an earlier version of this program and is waited for. A hostile user who locks all
//! positions of another ticket's pulse makes that ticket seem still; locking the whole queue is as
//! easy and does more harm. A process that reads the queue only once cannot see whether a pulse
//! moves ([`LedgerView::queue`]); it reads in `/proc` whether the claimed holder is stopped.

use super::Ledger;
use super::error::LedgerError;
use super::layout::{pulse_bytes, queue_bytes};
use super::level::Level;
use super::map::LockTable;
use super::place::LedgerPart;
use super::process::{ProcessTable, Standing};
use super::ticket_record::TicketClaim;
use super::view::LedgerView;
use crate::sys::lock::{ByteLock, LockKind, try_lock, unlock};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_core::queue::Waiter;
use trimtab_core::set::CpuSet;

/// A run in the queue, as others see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedRun {
    /// Number of its ticket.
    pub ticket: u64,
    /// Its record about itself; `None` if that is missing.
    pub claim: Option<TicketClaim>,
    /// Whether the process that the claim names runs and belongs to the claimed user.
    pub standing: Option<Standing>,
    /// Whether it no longer polls.
    pub stopped: bool,
}

impl QueuedRun {
    /// Returns the run as the queue's decision takes it. A claim about a process of another user
    /// does not count.
    pub fn waiter(&self) -> Waiter {
        let impostor = matches!(self.standing, Some(Standing::Impostor { .. }));
        let claim = self.claim.as_ref().filter(|_| !impostor);
        Waiter {
            ticket: self.ticket,
            since: claim.map(|claim| claim.holder.since),
            user: claim.map(|claim| claim.holder.uid),
            demand: claim.and_then(|claim| claim.demand.clone()),
            priority: claim.map_or(0, |claim| claim.priority),
            stopped: self.stopped,
        }
    }
}

/// Position in the queue, until dropped. The holder has to poll ([`Ticket::queue`]) several times a
/// second, or it is passed over.
#[derive(Debug)]
pub struct Ticket {
    file: OwnedFd,
    /// File of the claims; `None` if it cannot be used.
    records: Option<OwnedFd>,
    path: PathBuf,
    lane: Range<u64>,
    /// Byte of this ticket.
    at: u64,
    claim: TicketClaim,
    /// Byte of our pulse, and the time at which it was moved there.
    pulse: (u64, Instant),
    /// The foremost other tickets as last observed, by their bytes.
    watched: BTreeMap<u64, Watched>,
    /// Time of the last observation that was due.
    observed: Option<Instant>,
    /// Whether to observe before that is due.
    hurry: bool,
}

/// State of another ticket, from repeated observation.
#[derive(Clone, Debug)]
struct Watched {
    /// Positions of its pulse that are locked, one bit each: normally one, two while it moves, none
    /// for a ticket without a pulse. A process that was stopped after it failed to draw the same
    /// ticket leaves a further one, which does not move.
    pulse: u64,
    /// Consecutive observations that found the same positions, without the first.
    same: u32,
    /// The claim and its standing, once it could be read.
    claim: Option<(TicketClaim, Standing)>,
}

impl Watched {
    fn is_still(&self) -> bool {
        self.pulse != 0 && self.same >= STILL_OBSERVATIONS
    }
}

/// Time that a pulse stays at one position while its holder polls, and time between two
/// observations of it. Chosen: two system calls each, and several beats within the longest delay
/// that passes unnoticed.
const PULSE_PERIOD: Duration = Duration::from_millis(100);

/// Number of observations without a change after which a ticket is passed over: one second in all.
/// Chosen: far longer than a runnable process is kept from a CPU. A process that is misjudged only
/// loses its turn.
const STILL_OBSERVATIONS: u32 = 10;

/// Maximal number of moving tickets that are observed, from the lowest on. Chosen: bounds the cost
/// of a poll in a long queue; backfill reaches as far.
const MOVING_MAX: usize = 64;

/// Maximal number of tickets that are observed at once, the still ones included. Chosen: more
/// stopped runs than any machine has, few enough that a hostile queue of them does not cause a
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
    pub fn enqueue(
        &self,
        level: Level,
        confines: &CpuSet,
        claim: &TicketClaim,
    ) -> Result<Ticket, LedgerError> {
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
                let records = self.view.records().and_then(|file| file.try_clone().ok());
                if let Some(records) = &records {
                    claim.write(records, at);
                }
                return Ok(Ticket {
                    file,
                    records,
                    path: self.path(),
                    lane,
                    at,
                    claim: claim.clone(),
                    pulse: (pulse, Instant::now()),
                    watched: BTreeMap::new(),
                    observed: None,
                    hurry: false,
                });
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

impl LedgerView {
    /// Returns the runs that wait for CPUs of the set that `confines` names, in the order of their
    /// tickets, from one look: a run whose process is stopped counts as stopped, if `/proc` shows
    /// it. Of a long queue, only the foremost runs are returned.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn queue(
        &self,
        level: Level,
        confines: &CpuSet,
        processes: &ProcessTable,
    ) -> Result<Vec<QueuedRun>, LedgerError> {
        let lane = queue_bytes(level, confines.first().unwrap_or_default())?;
        let failed = |error| self.place.failed("asking for the queue of", LedgerPart::Locks, error);
        let mut runs = Vec::new();
        let mut from = lane.start;
        while runs.len() < WATCHED_MAX {
            let Some(lock) = lowest(self.table(), from..lane.end).map_err(failed)? else { break };
            from = lock.bytes.end;
            let ticket = lock.bytes.start;
            // A longer lock is not a ticket and has no claim.
            let claim = self
                .records()
                .filter(|_| from == ticket + 1)
                .and_then(|file| TicketClaim::read(file, ticket));
            let standing = claim.as_ref().map(|claim| processes.standing(&claim.holder));
            let stopped = standing == Some(Standing::Running)
                && claim.as_ref().is_some_and(|claim| processes.is_stopped(claim.holder.pid));
            runs.push(QueuedRun { ticket, claim, standing, stopped });
        }
        Ok(runs)
    }
}

impl Ticket {
    /// Returns the number of this ticket.
    pub fn number(&self) -> u64 {
        self.at
    }

    /// Polls, and returns the runs in this queue in the order of their tickets, this one included.
    /// Of a long queue, only the foremost runs and this one are returned.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn queue(&mut self, processes: &ProcessTable) -> Result<Vec<QueuedRun>, LedgerError> {
        self.poll(processes).map_err(|source| self.failed(source))?;
        let mut runs: Vec<QueuedRun> = Vec::new();
        for (&ticket, watched) in &self.watched {
            let (claim, standing) = watched.claim.clone().unzip();
            runs.push(QueuedRun { ticket, claim, standing, stopped: watched.is_still() });
        }
        let own = QueuedRun {
            ticket: self.at,
            claim: Some(self.claim.clone()),
            standing: Some(Standing::Running),
            stopped: false,
        };
        let place = runs.partition_point(|run| run.ticket < self.at);
        runs.insert(place, own);
        Ok(runs)
    }

    /// Returns whether a ticket of this queue is no longer held. Cheap: a single system call.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn has_left(&self, ticket: u64) -> Result<bool, LedgerError> {
        let held = self.table().any(&(ticket..ticket + 1)).map_err(|source| self.failed(source))?;
        Ok(held.is_none())
    }

    /// Makes the next [`Ticket::queue`] observe all tickets again.
    pub fn look_again(&mut self) {
        self.hurry = true;
    }

    fn table(&self) -> LockTable<'_> {
        LockTable::Queried(self.file.as_fd())
    }

    /// Moves our pulse and observes those of other tickets, each when it is due.
    fn poll(&mut self, processes: &ProcessTable) -> io::Result<()> {
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
        let due = self.observed.is_none_or(|observed| observed.elapsed() >= PULSE_PERIOD);
        if due || self.hurry {
            // After this process was stopped itself, its observations of the other tickets are out
            // of date.
            if self.observed.is_some_and(|observed| observed.elapsed() >= PULSE_PERIOD * STILL_OBSERVATIONS) {
                self.watched.clear();
            }
            self.watched = self.observe(processes, due)?;
            self.hurry = false;
        }
        if due {
            self.observed = Some(Instant::now());
        }
        Ok(())
    }

    /// Returns the foremost other tickets with their pulses and claims. An observation that is not
    /// due does not show that a pulse is still.
    fn observe(&self, processes: &ProcessTable, due: bool) -> io::Result<BTreeMap<u64, Watched>> {
        let mut found = BTreeMap::new();
        let (mut from, mut moving) = (self.lane.start, 0);
        while moving < MOVING_MAX && found.len() < WATCHED_MAX {
            let Some(ticket) = lowest(self.table(), from..self.lane.end)? else { break };
            from = ticket.bytes.end;
            let at = ticket.bytes.start;
            let before = self.watched.get(&at);
            // A longer lock is not a ticket, and cannot be still.
            let is_ticket = from == at + 1;
            let pulse = if is_ticket { self.pulse_of(at)? } else { 0 };
            let step = u32::from(due);
            let same = before
                .filter(|before| before.pulse == pulse)
                .map_or(0, |before| before.same.saturating_add(step));
            let known = before.and_then(|before| before.claim.clone());
            let claim = known.or_else(|| {
                let claim = self
                    .records
                    .as_ref()
                    .filter(|_| is_ticket)
                    .and_then(|file| TicketClaim::read(file, at))?;
                let standing = processes.standing(&claim.holder);
                Some((claim, standing))
            });
            let watched = Watched { pulse, same, claim };
            moving += usize::from(!watched.is_still());
            found.insert(at, watched);
        }
        Ok(found)
    }

    /// Returns the locked positions of a ticket's pulse, one bit each.
    fn pulse_of(&self, ticket: u64) -> io::Result<u64> {
        let round = pulse_bytes(ticket);
        let locks = self.table().all(round.clone())?;
        Ok(locks
            .iter()
            .flat_map(|lock| lock.bytes.clone())
            .fold(0, |bits, byte| bits | 1 << (byte - round.start)))
    }

    /// Returns the time to sleep before the next poll, with `ahead` tickets before ours. The first
    /// run polls often enough that CPUs do not lie idle for long, later runs poll less often.
    /// Chosen; a poll costs microseconds.
    pub fn pause(ahead: u64) -> Duration {
        Duration::from_millis(20 + 40 * ahead.min(24))
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
