//! Imbalance between groups of run queues, as a balancing rule computes it, and the state of a
//! CPU's balancing of a domain.

use std::ops::Range;

/// Excess load of another group.
#[derive(Clone, Debug)]
pub(crate) struct Excess {
    /// CPUs of the group.
    pub(crate) cpus: Range<usize>,
    /// Excess in threads of weight 1024.
    pub(crate) threads: f64,
}

/// State that one CPU keeps of one domain around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BalancingHistory {
    /// Time of the last balancing pass, ns.
    pub(crate) last: u64,
    /// Interval while idle, ns; it doubles while all is balanced.
    pub(crate) interval: u64,
    /// Number of passes in a row that found imbalance and could take no thread:
    /// `nr_balance_failed`.
    pub(crate) failed: u32,
}
