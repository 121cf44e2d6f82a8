//! Rules of a site and of its users, as data: limits for everybody, and what suits one kind of
//! program.

use serde::{Deserialize, Serialize};
use trimtab_core::place::{HugePages, MemoryRequest, Smt, Strategy};
use trimtab_core::set::CpuSet;

/// Limits and defaults of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Site {
    /// The most cores that `auto` takes.
    pub auto_cores: Option<u32>,
    /// The most cores one run may have.
    pub max_cores: Option<u32>,
    /// CPUs kept for the system.
    pub reserved_cpus: Option<CpuSet>,
}

impl Site {
    /// This site's limits with `inner`'s inside them: each the tighter of the two.
    #[must_use]
    pub fn tightened(self, inner: Self) -> Self {
        let least = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        let reserved = match (self.reserved_cpus, inner.reserved_cpus) {
            (Some(a), Some(b)) => Some(a.union(&b)),
            (a, b) => a.or(b),
        };
        Self {
            auto_cores: least(self.auto_cores, inner.auto_cores),
            max_cores: least(self.max_cores, inner.max_cores),
            reserved_cpus: reserved,
        }
    }
}

/// What suits one kind of program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// The pattern that matched.
    pub program: String,
    /// Huge pages.
    pub thp: Option<HugePages>,
    /// Memory.
    pub mem: Option<MemoryRequest>,
    /// Layout.
    pub strategy: Option<Strategy>,
    /// Hardware threads for each core.
    pub smt: Option<Smt>,
    /// Leave threads free inside the mask.
    pub mask_only: bool,
    /// The reason, for people.
    pub why: Option<String>,
}

impl Rule {
    /// This rule with `inner`'s values over it, each where `inner` has one.
    #[must_use]
    pub fn overlaid(self, inner: Self) -> Self {
        Self {
            program: inner.program,
            thp: inner.thp.or(self.thp),
            mem: inner.mem.or(self.mem),
            strategy: inner.strategy.or(self.strategy),
            smt: inner.smt.or(self.smt),
            mask_only: inner.mask_only || self.mask_only,
            why: inner.why.or(self.why),
        }
    }
}
