//! Waiting in line for CPUs, first come, first served.
//!
//! A ticket is a locked byte; the next one is the byte after the highest that is locked. Trying to lock it *is* the
//! arbiter, so drawing a ticket needs no planner: a process that finds it taken draws again, and a process that began
//! after another had finished drawing stands behind it. Tickets of ended processes vanish with their locks. No process
//! is woken: waiters look.
//!
//! A stopped process keeps its locks, so a ticket alone does not say that its holder still looks. Each ticket therefore
//! has a *pulse*: a second locked byte, which the holder moves on round [`pulse_bytes`] whenever it looks. A ticket
//! before us whose pulse stays where it is for [`STILL_FROM`] observations is *still*: it keeps its place, and is passed
//! over as long as its pulse does not move. The pulse is a lock and not a written number: it needs no common clock and
//! no file that every user can write, and it ends with its holder at any instant. A ticket without a pulse belongs to an
//! earlier version of this program and is waited for. A hostile user who locks all positions of another's pulse makes
//! that ticket look still; locking the whole queue is as easy and does more.

use super::Ledger;
use super::error::LedgerError;
use super::layout::{pulse_bytes, queue_bytes};
use super::level::Level;
use super::map::LockTable;
use super::place::Part;
use super::view::total;
use crate::sys::lock::{ByteLock, LockKind, try_lock, unlock};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;

/// A place in the line, until dropped. The holder has to look ([`Ticket::ahead`], [`Ticket::is_first`]) several times a
/// second, or it is passed over.
#[derive(Debug)]
pub struct Ticket {
    file: OwnedFd,
    path: PathBuf,
    lane: Range<u64>,
    /// Our byte.
    at: u64,
    /// The byte of our pulse, and when it was moved there.
    pulse: (u64, Instant),
    /// The foremost tickets before us as they were last observed, by their bytes.
    watched: BTreeMap<u64, Watched>,
    /// When they were.
    observed: Option<Instant>,
}

/// What was observed of a ticket.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// The positions of its pulse that are locked, one bit each: one as a rule, two while it moves, none where it has no
    /// pulse. A process that was stopped as it drew the same ticket in vain leaves a further one, which does not move.
    pulse: u64,
    /// Observations in a row that found the same positions, the first not counted.
    same: u32,
}

impl Watched {
    fn is_still(self) -> bool {
        self.pulse != 0 && self.same >= STILL_FROM
    }
}

/// How long a pulse stays where it is while its holder looks, and the time between two observations of it. Chosen: two
/// system calls each, and several in the longest delay that passes unnoticed.
const BEAT: Duration = Duration::from_millis(100);

/// After how many observations without a change a ticket is passed over: one second. Chosen: far longer than a runnable
/// process is kept from a CPU; a misjudged one loses its turn, and nothing else.
const STILL_FROM: u32 = 10;

/// How many tickets before us that move are watched at once. Chosen: bounds what a look costs in a long line; stopped
/// tickets beyond it are found when those before them are known to be still.
const MOVING_MAX: usize = 8;

/// How many tickets before us are watched at once, the still ones included. Chosen: more stopped runs than any machine
/// has, few enough that a hostile line of them is not a hang.
const WATCHED_MAX: usize = 256;

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
            // The pulse comes first: there is no instant at which a stopped process has a ticket and no pulse. It is a
            // read lock, so that one who stops between the two is in nobody's way.
            let pulse = pulse_bytes(at).start;
            self.lock(&file, pulse..pulse + 1, LockKind::Read)?;
            if self.lock(&file, at..at + 1, LockKind::Write)? {
                self.view.place.confirm(Part::Locks, self.view.identity)?;
                let (pulse, watched) = ((pulse, Instant::now()), BTreeMap::new());
                return Ok(Ticket { file, path: self.path(), lane, at, pulse, watched, observed: None });
            }
            unlock(file.as_fd(), pulse..pulse + 1).map_err(|error| self.failed("unlocking", error))?;
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
    /// How many stand before us, without those that are passed over.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn ahead(&mut self) -> Result<u64, LedgerError> {
        self.look().map_err(|source| self.failed(source))?;
        let all = self.table().all(self.lane.start..self.at).map_err(|source| self.failed(source))?;
        let still = |lock: &&ByteLock| self.still().any(|ticket| lock.bytes == (ticket..ticket + 1));
        Ok(total(&all) - all.iter().filter(still).count() as u64)
    }

    /// Whether it is our turn: no ticket is before us but those that are passed over.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn is_first(&mut self) -> Result<bool, LedgerError> {
        self.look().map_err(|source| self.failed(source))?;
        // What lies between the still ones: one question in a line where none is.
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

    /// The tickets that are passed over, ascending.
    fn still(&self) -> impl Iterator<Item = u64> {
        self.watched.iter().filter(|(_, watched)| watched.is_still()).map(|(&ticket, _)| ticket)
    }

    fn table(&self) -> LockTable<'_> {
        LockTable::Queried(self.file.as_fd())
    }

    /// Moves our pulse on and observes those of others, each where it is time to.
    fn look(&mut self) -> io::Result<()> {
        let (at, since) = self.pulse;
        if since.elapsed() >= BEAT {
            let round = pulse_bytes(self.at);
            let next = if at + 1 < round.end { at + 1 } else { round.start };
            // The new one first: there is a pulse at every moment. A refusal means that somebody locks what is ours;
            // the pulse then stays, and we are passed over.
            if try_lock(self.file.as_fd(), next..next + 1, LockKind::Read)? {
                unlock(self.file.as_fd(), at..at + 1)?;
                self.pulse = (next, Instant::now());
            }
        }
        if self.observed.is_none_or(|observed| observed.elapsed() >= BEAT) {
            // A process that was stopped itself knows nothing of the others any more.
            if self.observed.is_some_and(|observed| observed.elapsed() >= BEAT * STILL_FROM) {
                self.watched.clear();
            }
            self.watched = self.observe()?;
            self.observed = Some(Instant::now());
        }
        Ok(())
    }

    /// The foremost tickets before us with their pulses: all that are still, and a few behind those.
    fn observe(&self) -> io::Result<BTreeMap<u64, Watched>> {
        let mut found = BTreeMap::new();
        let (mut from, mut moving) = (self.lane.start, 0);
        while moving < MOVING_MAX && found.len() < WATCHED_MAX {
            let Some(ticket) = lowest(self.table(), from..self.at)? else { break };
            from = ticket.bytes.end;
            let at = ticket.bytes.start;
            // A longer lock is no ticket, and nothing that could be still.
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

    /// How long to sleep before looking again, with so many ahead: the first looks often enough that CPUs do not lie
    /// idle for long, the others seldom. Chosen; a look costs microseconds.
    pub fn pause(ahead: u64) -> Duration {
        Duration::from_millis(20 + 40 * ahead.min(12))
    }

    fn failed(&self, source: io::Error) -> LedgerError {
        LedgerError::Io { attempt: "asking for the queue of", path: self.path.clone(), source }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // For the same reason as the planner's byte: a copy in a child being started must not hold up the line.
        let _ = unlock(self.file.as_fd(), self.at..self.at + 1);
        let _ = unlock(self.file.as_fd(), pulse_bytes(self.at));
    }
}

/// The lock with the lowest byte within `bytes`, cut to them. The kernel names any, so what lies below it is asked about
/// until there is none.
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
