//! Right to plan, for one process at a time.

use super::Ledger;
use super::error::LedgerError;
use super::layout::planner_byte;
use super::level::Level;
use crate::sys::lock::{LockKind, unlock};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Right to plan at a level, until dropped. The holder reads the map, chooses, takes and drops.
/// Meanwhile, other processes that request the right wait and do not plan. The kernel releases the
/// right when the holder dies.
#[derive(Debug)]
pub struct Planner {
    /// Open file description; it becomes that of the hold which is taken with this right.
    pub(super) file: Arc<OwnedFd>,
    level: Level,
}

/// First pause between attempts: about the time that a plan of a few CPUs takes. Chosen.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
/// Longest pause between attempts: too short for a person to notice. Chosen.
const PAUSE_LONGEST: Duration = Duration::from_millis(5);

impl Ledger {
    /// Waits for the right to plan at a level, for at most `patience`.
    ///
    /// Polls instead of blocking in the kernel, so that a stopped planner delays others by no more
    /// than their patience.
    ///
    /// # Errors
    /// [`LedgerError::PlannerBusy`] when `patience` was too short: planning without the right is
    /// safe, but may have to be repeated when [`Ledger::take`] finds CPUs taken.
    /// [`LedgerError::Replaced`], [`LedgerError::Io`].
    pub fn planner(&self, level: Level, patience: Duration) -> Result<Planner, LedgerError> {
        self.planner_through(Arc::new(self.description()?), level, patience)
    }

    /// Does the same through the file that is open already, which saves a launch three system
    /// calls. This value does not see the hold that is taken with the right: it is for a process
    /// that takes CPUs once, and reads the ledger no more when it has them.
    ///
    /// # Errors
    /// As [`Self::planner`].
    pub fn last_planner(&self, level: Level, patience: Duration) -> Result<Planner, LedgerError> {
        match self.view.lock_file() {
            Some(file) => self.planner_through(Arc::clone(file), level, patience),
            None => self.planner(level, patience),
        }
    }

    fn planner_through(
        &self,
        file: Arc<OwnedFd>,
        level: Level,
        patience: Duration,
    ) -> Result<Planner, LedgerError> {
        let planner = Planner { file, level };
        let begin = Instant::now();
        let mut pause = PAUSE_FIRST;
        while !self.lock(&planner.file, planner_byte(level), LockKind::Write)? {
            let waited = begin.elapsed();
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(LedgerError::PlannerBusy { level, waited });
            };
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_LONGEST);
        }
        Ok(planner)
    }
}

impl Planner {
    /// Returns the level of this right.
    pub fn level(&self) -> Level {
        self.level
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        // Closing alone would leave the byte locked while a hold or a child that is just being
        // started still has the description. The kernel never refuses to unlock a whole lock.
        let _ = unlock(self.file.as_fd(), planner_byte(self.level));
    }
}
