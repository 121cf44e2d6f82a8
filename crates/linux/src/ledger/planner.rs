//! Planning one at a time.

use super::Ledger;
use super::error::LedgerError;
use super::layout::planner_byte;
use super::level::Level;
use crate::sys::lock::{LockKind, unlock};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// The right to plan at a level, until dropped. Look at the map, choose, take, drop: nobody else who asks for it plans
/// meanwhile. The kernel gives it back when the planner dies.
#[derive(Debug)]
pub struct Planner {
    file: OwnedFd,
    level: Level,
}

/// The first pause between tries: about what a plan of a few CPUs takes. Chosen.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
/// The longest: what a person does not notice. Chosen.
const PAUSE_LONGEST: Duration = Duration::from_millis(5);

impl Ledger {
    /// Waits for the right to plan at a level, `patience` at most.
    ///
    /// Tries instead of blocking in the kernel, so that a planner who was stopped stops nobody else for longer.
    ///
    /// # Errors
    /// [`LedgerError::PlannerBusy`] when that was not enough: planning without it is safe, but may have to be done
    /// again when [`Ledger::take`] finds CPUs taken. [`LedgerError::Replaced`], [`LedgerError::Io`].
    pub fn planner(&self, level: Level, patience: Duration) -> Result<Planner, LedgerError> {
        let planner = Planner { file: self.description()?, level };
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
    /// At which level.
    pub fn level(&self) -> Level {
        self.level
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        // Closing alone would leave the byte locked while a child just being started still has a copy. A failure
        // cannot be told from here, and closing follows in any case.
        let _ = unlock(self.file.as_fd(), planner_byte(self.level));
    }
}
