//! Rules of a site and of its users, as data: limits for all users, and settings for one kind of
//! program.

use serde::{Deserialize, Serialize};
use trimtab_core::place::{HugePages, MemoryRequest, Smt, Strategy};
use trimtab_core::set::CpuSet;

/// Limits and defaults of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Site {
    /// Most cores that `auto` takes.
    pub auto_cores: Option<u32>,
    /// Most cores that one run may have.
    pub max_cores: Option<u32>,
    /// CPUs reserved for the system.
    pub reserved_cpus: Option<CpuSet>,
}

impl Site {
    /// Combines the limits of this site with those of `inner`; the tighter of the two limits
    /// applies.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::rules::Site;
    ///
    /// let site = Site { max_cores: Some(8), ..Site::default() };
    /// let user = Site { max_cores: Some(16), auto_cores: Some(4), ..Site::default() };
    /// let both = site.tightened(user);
    /// assert_eq!((both.max_cores, both.auto_cores), (Some(8), Some(4)));
    /// ```
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

/// Settings for one kind of program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// Pattern that matched.
    pub program: String,
    /// Huge pages.
    pub thp: Option<HugePages>,
    /// Memory policy.
    pub mem: Option<MemoryRequest>,
    /// Layout of the threads.
    pub strategy: Option<Strategy>,
    /// Hardware threads for each core.
    pub smt: Option<Smt>,
    /// Whether threads stay free inside the mask.
    pub mask_only: bool,
    /// Reason for the rule, in words.
    pub why: Option<String>,
}

impl Rule {
    /// Overlays this rule with the values that `inner` sets.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::place::Strategy;
    /// use trimtab_launch::rules::Rule;
    ///
    /// let site = Rule { mask_only: true, strategy: Some(Strategy::Compact), ..Rule::default() };
    /// let user = Rule { strategy: Some(Strategy::Scatter), ..Rule::default() };
    /// let both = site.overlaid(user);
    /// assert_eq!((both.strategy, both.mask_only), (Some(Strategy::Scatter), true));
    /// ```
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
