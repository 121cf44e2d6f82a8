//! Barriers: nobody goes on before everybody has come.
//!
//! **Dissemination** (Hensgen, Finkel, Manber 1988): in round k each rank tells the one 2^k further, and waits for the one 2^k before;
//! after log2(n) rounds everybody knows of everybody. Quickest where all have a processor: no line has two writers.
//!
//! **Central**: who comes is counted, the last wakes all at once. Where ranks share processors this is quickest by far: each rank
//! sleeps once, and one system call wakes them all.
//!
//! **Grouped** (Mellor-Crummey and Scott 1991, by caches instead of a fixed radix): ranks that share a cache ([`crate::cache_groups`]) meet at their
//! speaker, the speakers by dissemination, and each tells its own. Where there are no groups it is the same as dissemination.
//!
//! **Flat**: rank 0 looks at everybody's line and then raises one for all.

/// Which barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// See the module.
    Dissemination,
    /// See the module.
    Central,
    /// See the module.
    Flat,
    /// See the module.
    Grouped,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dissemination, Self::Central, Self::Flat, Self::Grouped];
}
