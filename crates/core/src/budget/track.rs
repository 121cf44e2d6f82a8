//! Track of one process of a hold: what it demands, from its published state and its CPU time as
//! they are read from time to time.
//!
//! The preload library keeps a track of each other process of the hold, and so does the simulator.

use super::page::State;
use super::share::{Observed, threads_used};

/// Shortest time between two examinations of the page by a process, in nanoseconds: a tenth of the
/// time in which a process gets lent cores back.
pub const EXAMINE_NS_MIN: u64 = 1_000_000;
/// Shortest time over which CPU time is measured, in nanoseconds. Chosen: two or three slices of
/// the scheduler, and below the 10 ms in which a process gets its cores back.
pub const USE_NS_MIN: u64 = 8_000_000;

/// Track of a process.
///
/// # Examples
/// ```
/// use trimtab_core::budget::page::State;
/// use trimtab_core::budget::share::demand;
/// use trimtab_core::budget::track::{Track, USE_NS_MIN};
///
/// let mut track = Track::new(7);
/// let between_teams = State { computing: 0, wants: 4, teams: 7 };
/// let mut demanded =
///     |state, cpu_ns, at_ns| demand(&track.observe(state, cpu_ns, at_ns, || false), 4);
/// assert_eq!(demanded(between_teams, 500, 1), 1, "its CPU time is not known yet");
/// assert_eq!(demanded(between_teams, 500, 1 + USE_NS_MIN), 0, "it waits");
/// assert_eq!(demanded(State { teams: 8, ..between_teams }, 500, 2 + USE_NS_MIN), 4, "it goes on");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Track {
    /// Its teams when it was last observed.
    teams: u32,
    /// Its CPU time, and when that was read; 0 if it was not read yet.
    cpu_ns: u64,
    at_ns: u64,
    /// CPU time between the last two readings, as a number of threads.
    used: Option<u32>,
    /// Whether it opened a team since its CPU time was last read.
    opened: bool,
}

impl Track {
    /// Track of no process.
    pub const NOTHING: Self = Self::new(0);

    /// Begins the track of a process that has opened this many teams.
    pub const fn new(teams: u32) -> Self {
        Self { teams, cpu_ns: 0, at_ns: 0, used: None, opened: false }
    }

    /// Returns whether the process was not observed yet.
    pub const fn is_new(&self) -> bool {
        self.at_ns == 0
    }

    /// Notes that the process was examined at a time and does not count.
    pub const fn pass(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }

    /// Observes the process at a time above 0: its state, and the CPU time of all its threads so
    /// far. `is_ready` says whether its initial thread is on a CPU or ready for one, and is called
    /// only if it used no CPU time: a process that gets no CPU does not wait.
    pub fn observe(
        &mut self,
        state: State,
        cpu_ns: u64,
        at_ns: u64,
        is_ready: impl FnOnce() -> bool,
    ) -> Observed {
        self.opened |= self.teams != state.teams;
        let opened = self.opened;
        self.teams = state.teams;
        let elapsed = at_ns.saturating_sub(self.at_ns);
        if self.is_new() || elapsed >= USE_NS_MIN {
            self.used = (!self.is_new()).then(|| {
                let used = threads_used(cpu_ns.saturating_sub(self.cpu_ns), elapsed);
                if used == 0 { is_ready().into() } else { used }
            });
            (self.cpu_ns, self.at_ns, self.opened) = (cpu_ns, at_ns, false);
        }
        let State { computing, wants, .. } = state;
        Observed { computing, wants, used: self.used, opened }
    }
}
