//! Advice: from the measurements of one run to changes that would make the program faster, with the
//! size and the cause of the gain.
//!
//! Unit: ratios of times, after over before: 0.5 is half the time. Problem: a few settings change
//! the speed of a program beside others, or with more threads than CPUs, by factors, and users find
//! them by chance. Idea: there is no trained model, only a few rules that a person can check. The
//! duration of a phase is computed from the costs of waiting, waking and time slices ([`load`]),
//! before and after a change. Each rule names the numbers of the [`Profile`] that it used, its
//! uncertainty, and its source.
//!
//! Terms. A *topic* is one thing that can be changed; each [`Advice`] is about one topic. Rules are
//! evaluated in the order of [`Topic::ALL`]. Each rule judges the program as it is after the
//! changes advised before, so changes fit together ([`together`]).
//!
//! Properties: a change is advised only if even the careful end of the interval is a gain of
//! [`GAIN_LEAST`] or more; otherwise the advice is "no change" with the reason. If a number that
//! the rule needs is missing, it is named and nothing is guessed. No knob is set by two pieces of
//! advice. Equal input gives equal advice.
//!
//! Source: C. Iancu, S. Hofmeyr, F. Blagojević and Y. Zheng, "Oversubscription on Multicore
//! Processors", IPDPS 2010, for the deciding factors; S. Hofmeyr, C. Iancu and F. Blagojević, "Load
//! Balancing on Speed", PPoPP 2010, for when moving threads pays. Each rule's file documents the
//! rest.

mod balancing;
mod candidate;
pub mod candidates;
pub mod choice;
pub mod early;
pub mod entrant;
mod known;
pub mod libraries;
pub mod load;
mod pages;
pub mod pair;
mod placing;
pub mod race;
mod sharing;
mod slices;
pub mod speedup;
#[cfg(test)]
mod tests;
mod threads;
mod waiting;

use crate::place::waiting::Yield;
use crate::profile::Profile;
use crate::setting::Setting;
use crate::time::Span;
use crate::topology::Machine;
use known::ProgramFacts;
use serde::Serialize;
use std::fmt;

pub use candidate::{Candidate, StartChange};
pub use threads::{fitting, other_counts};

/// Largest ratio of the worst to the best case of a gain that is printed as numbers.
const RANGE_SHOWN_MAX: f64 = 4.0;

/// Smallest gain for which a change is advised, at the careful end of its interval.
pub const GAIN_LEAST: f64 = 0.02;
/// Least error of a prediction, as the logarithm of a ratio; set on the calibration half
/// (`docs/advise.md`).
pub const ERROR_LEAST: f64 = 0.08;
/// Least error beside other programs; set on the calibration half (`docs/advise.md`).
pub const ERROR_BESIDE: f64 = 0.16;
/// Least error beside other programs with more threads than CPUs; set on the calibration half
/// (`docs/advise.md`).
pub const ERROR_CROWDED: f64 = 0.32;
/// Error as a share of the predicted logarithm; set on the calibration half (`docs/advise.md`).
pub const ERROR_PART: f64 = 0.5;

/// Topic of advice: one thing that can be changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// All cores shared with others, or fewer cores alone.
    Sharing,
    /// Number of threads per core.
    Threads,
    /// Wait policy of the threads.
    Wait,
    /// Balancing policy.
    Balance,
    /// Layout of threads and memory.
    Placement,
    /// Transparent huge pages.
    HugePages,
    /// Time slice of the scheduler.
    Slice,
}

impl Topic {
    /// All topics, in the order in which they are judged.
    pub const ALL: [Self; 7] = [
        Self::Sharing,
        Self::Threads,
        Self::Wait,
        Self::Balance,
        Self::Placement,
        Self::HugePages,
        Self::Slice,
    ];
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sharing => "sharing",
            Self::Threads => "threads",
            Self::Wait => "waiting",
            Self::Balance => "balancing",
            Self::Placement => "placement",
            Self::HugePages => "huge pages",
            Self::Slice => "slice",
        })
    }
}

/// Conclusion about a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The setting should be changed.
    Change,
    /// The present setting is good, or no gain is large enough.
    NoChange,
    /// No change either: the effect cannot be predicted.
    Unsure,
}

/// Time after a change over time before it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Gain {
    /// Best case.
    pub low: f64,
    /// Expected ratio.
    pub likely: f64,
    /// Worst case.
    pub high: f64,
}

impl Gain {
    /// Returns the gain with the error of predictions, around several possible ratios; the first is
    /// the expected one.
    fn around(ratios: &[f64], least: f64) -> Option<Self> {
        let likely = *ratios.first()?;
        let usable = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
        if !ratios.iter().all(usable) {
            return None;
        }
        let error = |ratio: f64| (ERROR_PART * ratio.ln().abs()).max(least);
        let low = ratios.iter().map(|&ratio| ratio * (-error(ratio)).exp()).fold(f64::INFINITY, f64::min);
        let high = ratios.iter().map(|&ratio| ratio * error(ratio).exp()).fold(0.0, f64::max);
        Some(Self { low, likely, high })
    }

    /// Returns the gain of a whole program if only this share of its time is changed.
    fn of_part(self, part: f64) -> Self {
        let whole = |ratio: f64| 1.0 - part + part * ratio;
        Self { low: whole(self.low), likely: whole(self.likely), high: whole(self.high) }
    }

    /// Returns whether even the worst case is a gain.
    pub fn is_sure(&self) -> bool {
        self.high <= 1.0 - GAIN_LEAST
    }
}

/// Formats the gain as ratios of times. A range that is too wide for a decision is not printed as
/// numbers, which would suggest a precise prediction.
impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.high <= RANGE_SHOWN_MAX * self.low {
            write!(f, "{:.2} times the run time ({:.2} to {:.2})", self.likely, self.low, self.high)
        } else if self.high < 1.0 {
            write!(f, "at most {:.2} times the run time", self.high)
        } else if self.low > 1.0 {
            write!(f, "at least {:.2} times the run time", self.low)
        } else {
            write!(
                f,
                "a gain or a loss: best and worst case differ by more than a factor of {RANGE_SHOWN_MAX}"
            )
        }
    }
}

/// Another program that wants the same cores.
#[derive(Clone, PartialEq, Debug)]
pub struct Companion {
    /// Measurements of the companion.
    pub profile: Profile,
}

/// Environment of the program, as far as its profile does not hold it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Situation {
    /// CPUs that the program is given.
    pub cpus: u32,
    /// Work of others on those CPUs, in CPUs; `None` if it was not measured.
    pub others: Option<f64>,
    /// Quota of the control group, in thousandths of a CPU; `None` without a quota.
    pub quota: Option<u32>,
    /// Behaviour of `sched_yield`.
    pub yields: Yield,
    /// Time until a woken thread runs on a free CPU; `None` if it was not measured.
    pub wake: Option<Span>,
    /// Whether each thread is bound; `None` if unknown.
    pub bound: Option<bool>,
    /// Sizes of nested teams, outermost first; empty without nested teams.
    pub teams: Vec<u32>,
    /// Program that is to run here as well, if the advice is about that.
    pub companion: Option<Companion>,
}

/// Advice on one topic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Topic.
    pub topic: Topic,
    /// Conclusion.
    pub verdict: Conclusion,
    /// Advised change; empty if nothing is to be changed.
    pub setting: Setting,
    /// Gain of the change, or of the best change that was considered.
    pub gain: Option<Gain>,
    /// Recommendation and its reason, in words.
    pub words: String,
    /// Numbers from which the advice follows.
    pub evidence: Vec<String>,
    /// Facts that would make the advice wrong.
    pub uncertainty: String,
    /// Rule, and its source.
    pub rule: String,
    /// Numbers that the rule needs and that are unknown.
    pub missing: Vec<String>,
}

impl Advice {
    /// Creates advice without a change.
    fn about(topic: Topic, rule: &str) -> Self {
        Self {
            topic,
            verdict: Conclusion::NoChange,
            setting: Setting::new(),
            gain: None,
            words: String::new(),
            evidence: Vec::new(),
            uncertainty: String::new(),
            rule: rule.to_owned(),
            missing: Vec::new(),
        }
    }

    fn no_change(mut self, words: impl Into<String>) -> Self {
        self.words = words.into();
        self
    }

    fn unsure(mut self, words: impl Into<String>) -> Self {
        self.verdict = Conclusion::Unsure;
        self.words = words.into();
        self
    }

    fn lacking(mut self, missing: Vec<String>) -> Self {
        self.verdict = Conclusion::Unsure;
        self.words = format!("missing data: {}", missing.join("; "));
        self.missing = missing;
        self
    }

    fn seen(mut self, evidence: Vec<String>) -> Self {
        self.evidence = evidence;
        self
    }

    fn but(mut self, uncertainty: impl Into<String>) -> Self {
        self.uncertainty = uncertainty.into();
        self
    }

    /// Advises a change if its gain is sure; otherwise no change, with the expected gain.
    fn weigh(mut self, setting: Setting, gain: Option<Gain>, change: impl Into<String>) -> Self {
        self.gain = gain;
        match gain {
            Some(gain) if gain.is_sure() && !setting.is_empty() => {
                self.verdict = Conclusion::Change;
                self.setting = setting;
                self.words = change.into();
                self
            }
            Some(gain) if gain.likely < 1.0 - GAIN_LEAST => {
                self.unsure(format!("{setting} might help ({gain}), but this is uncertain"))
            }
            _ => self.no_change(format!("{setting} would have no significant gain")),
        }
    }
}

/// Advises changes that would make a program faster: one piece of advice per topic, in order.
pub fn advise(profile: &Profile, machine: &Machine, situation: &Situation) -> Vec<Advice> {
    let profile = &known::plausible(profile);
    let mut known = ProgramFacts::of(profile, situation);
    let mut all = Vec::with_capacity(Topic::ALL.len());
    for topic in Topic::ALL {
        let advice = match topic {
            Topic::Sharing => sharing::advise(&known, machine, situation),
            Topic::Threads => threads::advise(&known),
            Topic::Wait => waiting::advise(&known),
            Topic::Balance => balancing::advise(&known),
            Topic::Placement => placing::advise(profile, machine, situation),
            Topic::HugePages => pages::advise(profile, machine),
            Topic::Slice => slices::advise(&known),
        };
        known.follow(&advice.setting);
        all.push(advice);
    }
    all
}

/// Joins all advised changes into one setting.
pub fn together(all: &[Advice]) -> Setting {
    all.iter().flat_map(|advice| advice.setting.iter()).fold(Setting::new(), |sum, (knob, value)| {
        // Values come from a valid setting, so `with` accepts them.
        sum.clone().with(knob, value).unwrap_or(sum)
    })
}
