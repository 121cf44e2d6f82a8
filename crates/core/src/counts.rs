//! Counts of hardware events of a thread, and the ratios that show how much the thread stalls
//! beyond its private caches.
//!
//! Problem: a thread with far data, or with a crowded shared cache or memory controller, runs
//! slower without waiting for a CPU; no time that the kernel counts shows it. Idea: two counters
//! suffice. Let, over some time,
//!
//! ```text
//! A  critical requests that left the private caches
//!    (demand loads, demand instruction fetches, reads for ownership)
//! O  such requests outstanding, summed over all cycles
//! B  cycles in which at least one was outstanding
//! ```
//!
//! By Little's law the mean latency is `O / A`; the mean number of requests under way while there
//! is any is `O / B`. The *uncore penalty* is the cost of a request to the thread beyond its core,
//!
//! ```text
//! P = latency / parallelism = (O / A) / (O / B) = B / A
//! ```
//!
//! and `O`, which few processors count, cancels. `W = B / cycles` is the largest share of its time
//! that the thread could gain.
//!
//! Properties: counts are cumulative as read, like all of a sample. A ratio exists only between two
//! readings over which the counters ran, and only of counters that ran together. A counter that
//! never ran reads as missing, not as zero. A denominator of zero gives no ratio.
//!
//! Source: Rao, Wang, Zhou and Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore
//! Systems", HPCA 2013; the same ratio as "amortized offcore latency" in Liu et al., "Tiered Memory
//! Management Beyond Hotness", OSDI 2025.

use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Level of counting that the machine allows, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Busy cycles and critical requests, as the processor's own events: the penalty itself.
    Exact,
    /// Events of the processor that come near: stalls instead of busy cycles.
    Proxy,
    /// Cycles, instructions and cache misses under the kernel's names: the penalty is estimated.
    Generic,
    /// No counters: the share of near faults among a process's NUMA balancing hint faults.
    HintFaults,
    /// No counters: the nodes of a sample of a process's pages.
    Residency,
    /// Nothing: threads are not moved because of memory.
    Nothing,
}

impl Rung {
    /// All rungs, best first.
    pub const ALL: [Self; 6] =
        [Self::Exact, Self::Proxy, Self::Generic, Self::HintFaults, Self::Residency, Self::Nothing];

    /// Returns the word for the rung in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Proxy => "proxy",
            Self::Generic => "generic",
            Self::HintFaults => "hint-faults",
            Self::Residency => "residency",
            Self::Nothing => "nothing",
        }
    }

    /// Returns whether hardware counters are read on this rung.
    pub fn counts(self) -> bool {
        self <= Self::Generic
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Counts of a thread: since counting began in a sample, between two readings in the view of
/// policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// CPU time of the thread while its counters were enabled.
    pub enabled: Span,
    /// Part of that time in which the counters ran: less if counters are shared with others, or
    /// switched off occasionally to save their cost.
    pub running: Span,
    /// Cycles in which at least one critical request was under way (B).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<u64>,
    /// Critical requests that left the private caches (A).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Instructions retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Look-ups in the last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_lookups: Option<u64>,
    /// Look-ups that missed in the last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_misses: Option<u64>,
    /// Lines, faults or pages of the thread's own node; the rung determines which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<u64>,
    /// Lines, faults or pages of other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<u64>,
}

/// Returns `a / b` if both are there and `b` is not zero.
fn ratio(a: Option<u64>, b: Option<u64>) -> Option<f64> {
    let (a, b) = (a? as f64, b? as f64);
    (b > 0.0).then(|| a / b)
}

impl Counts {
    /// Returns the counts since an earlier reading; `None` if the counters did not run since, or if
    /// any of them went backwards.
    ///
    /// A counter that only one of the two readings has is missing in the difference.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let less = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.checked_sub(then).map(Some),
            _ => Some(None),
        };
        let span = |now: Span, then: Span| now.0.checked_sub(then.0).map(Span);
        let difference = Self {
            enabled: span(self.enabled, before.enabled)?,
            running: span(self.running, before.running)?,
            busy: less(self.busy, before.busy)?,
            requests: less(self.requests, before.requests)?,
            cycles: less(self.cycles, before.cycles)?,
            instructions: less(self.instructions, before.instructions)?,
            llc_lookups: less(self.llc_lookups, before.llc_lookups)?,
            llc_misses: less(self.llc_misses, before.llc_misses)?,
            near: less(self.near, before.near)?,
            far: less(self.far, before.far)?,
        };
        (difference.running > Span::ZERO).then_some(difference)
    }

    /// Returns the counts over two stretches together. A counter that only one of them has is
    /// missing in the sum.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        Self {
            enabled: self.enabled + more.enabled,
            running: self.running + more.running,
            busy: add(self.busy, more.busy),
            requests: add(self.requests, more.requests),
            cycles: add(self.cycles, more.cycles),
            instructions: add(self.instructions, more.instructions),
            llc_lookups: add(self.llc_lookups, more.llc_lookups),
            llc_misses: add(self.llc_misses, more.llc_misses),
            near: add(self.near, more.near),
            far: add(self.far, more.far),
        }
    }

    /// Returns the uncore penalty P in cycles per request: B / A.
    pub fn penalty(&self) -> Option<f64> {
        ratio(self.busy, self.requests)
    }

    /// Returns the share of cycles with a request under way (W): the most that moving the thread
    /// can gain.
    pub fn share(&self) -> Option<f64> {
        ratio(self.busy, self.cycles).map(|share| share.min(1.0))
    }

    /// Returns busy cycles per instruction.
    pub fn busy_per_instruction(&self) -> Option<f64> {
        ratio(self.busy, self.instructions)
    }

    /// Returns cycles per instruction (CPI).
    pub fn cycles_per_instruction(&self) -> Option<f64> {
        ratio(self.cycles, self.instructions)
    }

    /// Returns the share of look-ups that missed in the last-level cache.
    pub fn miss_rate(&self) -> Option<f64> {
        ratio(self.llc_misses, self.llc_lookups)
    }

    /// Returns the share of accesses, faults or pages on other nodes.
    pub fn far_share(&self) -> Option<f64> {
        let (near, far) = (self.near?, self.far?);
        ratio(Some(far), near.checked_add(far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(running: u64, busy: Option<u64>, requests: Option<u64>) -> Counts {
        Counts { enabled: Span(running), running: Span(running), busy, requests, ..Counts::default() }
    }

    #[test]
    fn ratios_exist_only_for_counted_events() {
        let before = counts(10, Some(100), Some(10));
        let now = counts(20, Some(400), Some(12));
        assert_eq!(now.since(&before).and_then(|counts| counts.penalty()), Some(150.0));
        assert_eq!(now.since(&now), None, "nothing ran in between");
        assert_eq!(before.since(&now), None, "backwards");
        let idle = counts(20, Some(100), Some(10));
        assert_eq!(idle.since(&before).map(|counts| counts.penalty()), Some(None), "no request, no penalty");
        let less = counts(20, None, Some(12));
        assert_eq!(less.since(&before).map(|counts| (counts.busy, counts.requests)), Some((None, Some(2))));
    }

    #[test]
    fn rungs_are_in_order() {
        assert!(Rung::ALL.is_sorted());
        assert!(Rung::Generic.counts() && !Rung::HintFaults.counts());
        for rung in Rung::ALL {
            assert_eq!(serde_json::to_value(rung).unwrap(), rung.word());
        }
    }
}
