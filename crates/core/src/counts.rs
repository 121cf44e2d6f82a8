//! What hardware counted of a thread, and the ratios that say how much it stalls beyond its private caches.
//!
//! Problem: a thread whose data is far, or whose shared cache or memory controller is crowded, runs slower without waiting for a
//! CPU; no time that the kernel counts shows it. Idea: two counters suffice. Let, over some time,
//!
//! ```text
//! A  critical requests that left the private caches (demand loads, demand instruction fetches, reads for ownership)
//! O  such requests outstanding, summed over all cycles
//! B  cycles in which at least one was outstanding
//! ```
//!
//! By Little's law the mean latency is `O / A`; the mean number under way while there is any is `O / B`. The *uncore penalty* is
//! what a request costs the thread beyond its core,
//!
//! ```text
//! P = latency / parallelism = (O / A) / (O / B) = B / A
//! ```
//!
//! and `O`, which few processors count, falls out. `W = B / cycles` says which part of its time the thread could gain at most.
//!
//! Properties: counts are cumulative as read, like all of a sample; a ratio exists only between two readings over which the
//! counters ran, and only of counters that ran together; a counter that never ran reads as missing, not as zero; a denominator of
//! zero gives no ratio.
//!
//! Source: Rao, Wang, Zhou and Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore Systems", HPCA 2013; the same ratio as
//! "amortized offcore latency" in Liu et al., "Tiered Memory Management Beyond Hotness", OSDI 2025.

use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much this machine lets be counted, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Busy cycles and critical requests, as the processor's own events: the penalty itself.
    Exact,
    /// Events of the processor that come near: stalls instead of busy cycles.
    Proxy,
    /// Cycles, instructions and cache misses under the kernel's names: the penalty is estimated.
    Generic,
    /// No counters: how many of a process's faults for finding its memory (NUMA balancing) were near.
    HintFaults,
    /// No counters: on which nodes a sample of a process's pages lies.
    Residency,
    /// Nothing: threads are not moved on account of memory.
    Nothing,
}

impl Rung {
    /// All, best first.
    pub const ALL: [Self; 6] =
        [Self::Exact, Self::Proxy, Self::Generic, Self::HintFaults, Self::Residency, Self::Nothing];

    /// The word for it in output and options.
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

    /// Whether hardware counters are read on it.
    pub fn counts(self) -> bool {
        self <= Self::Generic
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What was counted of a thread. In a sample: since counting began; in what policies see: between two readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// How long the thread ran while its counters were to count ...
    pub enabled: Span,
    /// ... and how long of that they did: less where counters are shared with others, or switched off now and then to save their
    /// cost.
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
    /// Requests that the last cache was asked for ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_lookups: Option<u64>,
    /// ... and could not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_misses: Option<u64>,
    /// Lines, faults or pages of its own node: which, the rung says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<u64>,
    /// Those of other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<u64>,
}

/// `a / b`, where both are there and `b` is not zero.
fn ratio(a: Option<u64>, b: Option<u64>) -> Option<f64> {
    let (a, b) = (a? as f64, b? as f64);
    (b > 0.0).then(|| a / b)
}

impl Counts {
    /// What was counted since an earlier reading; `None` where the counters did not run since, or any of them went backwards.
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

    /// What was counted over two stretches together. A counter that only one of them has is missing in the sum.
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

    /// The uncore penalty P in cycles a request: B / A.
    pub fn penalty(&self) -> Option<f64> {
        ratio(self.busy, self.requests)
    }

    /// The share of its cycles that it had a request under way (W): the most that moving it can win.
    pub fn share(&self) -> Option<f64> {
        ratio(self.busy, self.cycles).map(|share| share.min(1.0))
    }

    /// Busy cycles an instruction.
    pub fn busy_per_instruction(&self) -> Option<f64> {
        ratio(self.busy, self.instructions)
    }

    /// Cycles an instruction (CPI).
    pub fn cycles_per_instruction(&self) -> Option<f64> {
        ratio(self.cycles, self.instructions)
    }

    /// The share of look-ups that the last cache could not serve.
    pub fn miss_rate(&self) -> Option<f64> {
        ratio(self.llc_misses, self.llc_lookups)
    }

    /// The share of what was asked for that lay on other nodes.
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
    fn ratios_exist_only_of_what_was_counted() {
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
