//! When to look for wait loops, and whether those that are known yield now.

/// Times of the decisions, in microseconds. Each was chosen for a machine on which a sample of one
/// thread costs 10 to 25 microseconds (a virtual machine); hardware takes a tenth of that.
pub mod tuning {
    /// Length of a window in which threads are sampled: two or three slices of the scheduler.
    pub const WINDOW_US: u64 = 8_000;
    /// Shortest and longest pause between windows in which nothing new was found. At the longest,
    /// sampling costs less than a thousandth of the time.
    pub const PAUSE_US: (u64, u64) = (8_000, 1_000_000);
    /// Time for which known loops yield after a sign that threads wait for CPUs.
    pub const YIELDING_US: u64 = 100_000;
    /// Time between two looks while no thread waits for a CPU.
    pub const IDLE_US: u64 = 20_000;
    /// Time without more threads than CPUs after which the watch ends.
    pub const END_US: u64 = 100_000;
}

use tuning::{END_US, IDLE_US, PAUSE_US, WINDOW_US, YIELDING_US};

/// Observation of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Time of the observation in microseconds.
    pub now_us: u64,
    /// Its threads.
    pub threads: u32,
    /// CPUs that it may use.
    pub cpus: u32,
    /// How often one of its threads was taken off its CPU although it wanted to run, or yielded to
    /// another thread. This counts from the start of the process.
    pub switches: u64,
    /// Wait loops that were found since the last observation.
    pub found: u32,
}

/// Action until the next observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Whether wait loops yield.
    pub yields: bool,
    /// Whether threads are sampled for the time of `next_us`.
    pub samples: bool,
    /// Time to the next observation; `None`: the watch ends.
    pub next_us: Option<u64>,
}

/// Decisions about one process, from one observation to the next.
///
/// A loop yields only if the process had more threads than CPUs a moment ago, and threads were
/// taken off their CPUs then. Nested teams start and end threads all the time, so that the number
/// at one moment says little. Threads are sampled only then, in windows that become rare while they
/// show nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The observation before.
    last: Option<Seen>,
    /// Time of the last sign that threads wait for CPUs.
    contested_us: Option<u64>,
    /// Time of the last observation of more threads than CPUs.
    crowded_us: u64,
    /// Pause after the next window, and the time from which it is due.
    pause_us: u64,
    window_us: u64,
}

impl Watch {
    /// Returns the watch of a process that has just got more threads than CPUs.
    pub const fn new() -> Self {
        Self { last: None, contested_us: None, crowded_us: 0, pause_us: PAUSE_US.0, window_us: 0 }
    }

    /// Decides on the action until the next observation.
    pub fn step(&mut self, seen: Seen) -> Step {
        let now = seen.now_us;
        // The first observation has none to compare with. Sampling a window too early costs little.
        let switched = self.last.is_none_or(|last| seen.switches > last.switches);
        // The watch begins with a thread more than there are CPUs.
        if self.last.is_none() || seen.threads > seen.cpus {
            self.crowded_us = now;
        }
        self.last = Some(seen);
        if now.saturating_sub(self.crowded_us) >= END_US {
            return Step { yields: false, samples: false, next_us: None };
        }
        if switched {
            self.contested_us = Some(now);
        }
        let yields = self.contested_us.is_some_and(|at| now.saturating_sub(at) < YIELDING_US);
        if seen.found > 0 {
            (self.pause_us, self.window_us) = (PAUSE_US.0, now);
        }
        if !yields {
            return Step { yields, samples: false, next_us: Some(IDLE_US) };
        }
        if now < self.window_us {
            let next_us = (self.window_us - now).min(IDLE_US);
            return Step { yields, samples: false, next_us: Some(next_us) };
        }
        self.window_us = now + WINDOW_US + self.pause_us;
        self.pause_us = (self.pause_us * 2).min(PAUSE_US.1);
        Step { yields, samples: true, next_us: Some(WINDOW_US) }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}
