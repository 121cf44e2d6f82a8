//! Upkeep of the tokens: how many to add or to take, from what the run's tasks do.
//!
//! Unit: a token. Problem: tokens in the pipe say nothing about lost ones, about jobs that sleep,
//! nor about jobs that compute with many threads. Idea: compare the tasks that compute with the
//! cores, both while the pipe is empty and while it is not.
//!
//! - *Crowded*: more tasks compute than there are cores, by [`CROWD`] or more. Tokens are withheld,
//!   as they become unclaimed. Withheld ones come back when cores are idle.
//! - *Short of tokens*: the pipe is empty and a core is idle, for [`LOST_SAMPLES`] samples in
//!   sequence. Either a tool was killed with a token, or a job sleeps. A token is *lent*.
//! - *Too many*: more tokens are unclaimed than belong to the run, because the holder of one for
//!   which another was lent has returned it. The difference is taken.
//!
//! Properties, each a test beside the code:
//! - Tokens are added only while the pipe is empty, and cores are idle.
//! - At most as many tokens are lent as the run has cores, so that it never has more than twice as
//!   many jobs as cores, less one, by tokens.
//! - Without tools that are killed, sleeping jobs and crowded cores the tokens stay as they are.
//! - A run of one core has no tokens and gets none.
//! - If it is unknown how many tasks compute, only tokens that are too many are taken.

use super::tokens;
use crate::time::Span;

/// Computing tasks beyond the cores from which tokens are withheld. One task more than cores is
/// usual (make itself, a preprocessor that feeds a compiler), and keeps the cores busy while others
/// read files.
pub const CROWD: f64 = 1.5;
/// Idle cores from which tokens are added. Chosen: a job that reads files computes most of the
/// time, and must not bring another one.
pub const IDLE: f64 = 0.75;
/// Samples in sequence with idle cores and without tokens after which one is lent. Chosen: a
/// second; jobs of builds are shorter or compute.
pub const LOST_SAMPLES: u32 = 10;
/// Weight of the newest sample in the average: tasks that compute come and go within milliseconds.
const WEIGHT: f64 = 0.3;

/// Shortest time between two samples.
pub const INTERVAL_MIN: Span = Span::from_ms(100);
/// Largest part of the time that samples may take: one in this number.
const COST_SHARE: f64 = 100.0;

/// Observation of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Tokens in the pipe.
    pub unclaimed: u32,
    /// Tasks of the run that compute or wait for a disk; `None` if unknown.
    pub computing: Option<u32>,
    /// Tokens that were taken since the last sample.
    pub taken: u32,
}

/// Correction of the number of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenChange {
    /// Tokens to add now.
    pub add: u32,
    /// Tokens to take until the next sample, as they become unclaimed.
    pub take: u32,
}

/// State of the upkeep.
#[derive(Clone, PartialEq, Debug)]
pub struct Upkeep {
    cores: u32,
    /// Computing tasks, averaged over the last samples.
    computing: Option<f64>,
    /// Tokens added beyond those that belong to the run.
    lent: u32,
    /// Tokens taken of those that belong to the run.
    withheld: u32,
    /// Samples in sequence in which a core was idle and no token unclaimed.
    short: u32,
    /// Tokens that are being taken because they are too many.
    surplus: u32,
}

impl Upkeep {
    /// Begins with all tokens of a run on `cores` cores in the pipe.
    pub fn new(cores: u32) -> Self {
        Self { cores, computing: None, lent: 0, withheld: 0, short: 0, surplus: 0 }
    }

    /// Returns whether tasks have to be counted for the next sample: not while all tokens are
    /// unclaimed, since no more than one job runs then.
    pub fn counts(&self, unclaimed: u32) -> bool {
        tokens(self.cores) > 0 && (self.withheld > 0 || unclaimed < tokens(self.cores))
    }

    /// Returns the correction after a sample.
    pub fn turn(&mut self, sample: Sample) -> TokenChange {
        self.account(sample.taken);
        let own = tokens(self.cores);
        if own == 0 {
            return TokenChange::default();
        }
        if sample.unclaimed >= own {
            // All are back: what was lent had replaced tokens that are lost for good.
            (self.lent, self.withheld, self.short) = (0, 0, 0);
            self.surplus = sample.unclaimed - own;
            return TokenChange { add: 0, take: self.surplus };
        }
        let Some(computing) = self.averaged(sample.computing) else { return TokenChange::default() };
        let cores = f64::from(self.cores);
        if computing >= cores + CROWD {
            self.short = 0;
            return TokenChange { add: 0, take: self.withheld_of(computing - cores) };
        }
        let idle = cores - computing;
        if sample.unclaimed > 0 || idle < IDLE {
            self.short = 0;
            return TokenChange::default();
        }
        self.short += 1;
        TokenChange { add: self.added(idle), take: 0 }
    }

    /// Returns the tokens to take: half of the tasks beyond the cores at once, because the average
    /// lags behind.
    fn withheld_of(&self, beyond: f64) -> u32 {
        let half = (beyond / 2.0).floor().max(1.0) as u32;
        half.min((tokens(self.cores) + self.lent).saturating_sub(self.withheld))
    }

    /// Returns the tokens to add while cores are idle: withheld ones at once, others if the pipe
    /// has been empty for long.
    fn added(&mut self, idle: f64) -> u32 {
        let half = (idle / 2.0).floor().max(1.0) as u32;
        if self.withheld > 0 {
            let add = half.min(self.withheld);
            self.withheld -= add;
            // The average takes some samples to show the jobs that begin now.
            self.short = 0;
            return add;
        }
        if self.short < LOST_SAMPLES || self.lent >= self.cores {
            return 0;
        }
        self.short = 0;
        self.lent += 1;
        1
    }

    /// Counts tokens that were taken: first as too many, then as lent, then as withheld.
    fn account(&mut self, taken: u32) {
        let taken = taken - taken.min(self.surplus);
        self.surplus = 0;
        let returned = taken.min(self.lent);
        self.lent -= returned;
        self.withheld += taken - returned;
    }

    /// Adds a sample to the average; without one the average begins anew.
    fn averaged(&mut self, computing: Option<u32>) -> Option<f64> {
        let now = computing.map(f64::from);
        self.computing = match (self.computing, now) {
            (Some(before), Some(now)) => Some(before + WEIGHT * (now - before)),
            (_, now) => now,
        };
        self.computing
    }
}

/// Returns the time to the next sample, if the last one took `cost`.
pub fn interval(cost: Span) -> Span {
    INTERVAL_MIN.max(cost.times(COST_SHARE))
}
