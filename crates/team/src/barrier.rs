//! Barriers: no rank continues before all ranks have arrived.
//!
//! **Dissemination** (Hensgen, Finkel, Manber 1988): in round k each rank signals the rank 2^k
//! further, and waits for the rank 2^k before; after log2(n) rounds every rank has the information
//! that all have arrived. This is the fastest barrier if every rank has a CPU: no cache line has
//! two writers.
//!
//! **Central**: arrivals are counted, and the last rank wakes all at once. This is by far the
//! fastest barrier if ranks share CPUs: each rank sleeps once, and one system call wakes them all.
//!
//! **Grouped** (Mellor-Crummey and Scott 1991, by caches instead of a fixed radix): ranks that
//! share a cache ([`crate::cache_groups`]) arrive at their representative (*speaker*), the speakers
//! synchronise by dissemination, and each releases its own group. Without groups it is the same as
//! dissemination.
//!
//! **Flat**: rank 0 reads the cache line of every rank and then raises one line for all.

/// The algorithm of a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// In rounds, each rank to the rank 2^k further: log2(n) rounds.
    Dissemination,
    /// Arrivals are counted; the last rank wakes all.
    Central,
    /// Rank 0 waits for every rank, then releases all.
    Flat,
    /// Within groups that share a cache, then dissemination among their speakers.
    Grouped,
}

impl Barrier {
    /// All algorithms.
    pub const ALL: [Self; 4] = [Self::Dissemination, Self::Central, Self::Flat, Self::Grouped];
}
