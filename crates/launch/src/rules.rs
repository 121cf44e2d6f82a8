//! Rules of a site and of its users, as data: limits for all users, and settings for one kind of
//! program.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use trimtab_core::enforce::{HoldLimits, PartitionKind};
use trimtab_core::place::{HugePages, MemoryRequest, Smt, Strategy};
use trimtab_core::queue::{PRIORITY_MAX, QueueRules};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::set::CpuSet;

/// Limits and defaults of a site. [`Site::tightened`] has an example.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Site {
    /// Most cores that `auto` takes.
    pub auto_cores: Option<u32>,
    /// Most cores that one run may have.
    pub max_cores: Option<u32>,
    /// CPUs reserved for the system.
    pub reserved_cpus: Option<CpuSet>,
    /// Largest priority in the queue of users other than root; 0 if absent.
    pub max_priority: Option<u32>,
    /// Seconds after which runs without `--wait` leave the cores of a waiting run to it.
    pub reserve_after: Option<u32>,
    /// Whether users who use many cores come later in the queue.
    pub fair_share: Option<bool>,
    /// Programs to which runs that grow give cores back, unless their option names others.
    pub yield_to: Option<YieldTo>,
    /// Most cores of all holds of one user, for a service that enforces holds.
    pub max_cores_per_user: Option<u32>,
    /// Whether such a service keeps the memory of a hold on the nodes of its cores.
    pub enforce_memory: Option<bool>,
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
        let yield_to = match (self.yield_to, inner.yield_to) {
            (Some(site), Some(user)) => Some(site.union(user)),
            (site, user) => site.or(user),
        };
        Self {
            auto_cores: least(self.auto_cores, inner.auto_cores),
            max_cores: least(self.max_cores, inner.max_cores),
            reserved_cpus: reserved,
            // The queue is common to all users, so that the outermost file alone sets its rules.
            max_priority: self.max_priority,
            reserve_after: self.reserve_after,
            fair_share: self.fair_share,
            yield_to,
            // The service reads the outermost file alone.
            max_cores_per_user: self.max_cores_per_user,
            enforce_memory: self.enforce_memory,
        }
    }

    /// Returns the limits that a service enforces.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::enforce::PartitionKind;
    /// use trimtab_launch::rules::Site;
    ///
    /// let site = Site { max_cores: Some(8), max_cores_per_user: Some(16), ..Site::default() };
    /// let limits = site.enforced(PartitionKind::Root);
    /// assert_eq!((limits.hold_cores, limits.user_cores), (Some(8), Some(16)));
    /// assert!(!limits.memory);
    /// ```
    pub fn enforced(&self, kind: PartitionKind) -> HoldLimits {
        HoldLimits {
            hold_cores: self.max_cores,
            user_cores: self.max_cores_per_user,
            reserved: self.reserved_cpus.clone().unwrap_or_default(),
            memory: self.enforce_memory.unwrap_or(false),
            kind,
        }
    }

    /// Returns the rules for the queue.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::rules::Site;
    ///
    /// let site = Site { max_priority: Some(3), ..Site::default() };
    /// assert_eq!(site.queue().priority_max, 3);
    /// assert_eq!(Site::default().queue().priority_max, 0);
    /// ```
    pub fn queue(&self) -> QueueRules {
        let default = QueueRules::default();
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        QueueRules {
            reserve_after: self.reserve_after.map_or(default.reserve_after, seconds),
            priority_max: self
                .max_priority
                .map_or(default.priority_max, |most| i32::try_from(most).unwrap_or(PRIORITY_MAX)),
            fair_share: self.fair_share.unwrap_or(default.fair_share),
        }
    }
}

/// Settings for one kind of program. [`Rule::overlaid`] has an example.
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
