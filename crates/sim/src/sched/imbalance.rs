//! Imbalance between groups of queues, as a rule of balancing sees it, and what a CPU remembers of its looks at a domain.

use std::ops::Range;

/// What a rule finds to be too much elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Excess {
    /// Where.
    pub(crate) cpus: Range<usize>,
    /// How many threads' worth, of weight 1024.
    pub(crate) threads: f64,
}

/// What one CPU remembers of one domain around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// When it looked last.
    pub(crate) last: u64,
    /// Its interval while idle, which doubles while all is balanced.
    pub(crate) interval: u64,
    /// How often in a row it found imbalance and could take nobody: `nr_balance_failed`.
    pub(crate) failed: u32,
}
