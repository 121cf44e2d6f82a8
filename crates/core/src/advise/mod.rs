//! Advice: from what was measured of one run, to what would run the program better, by how much, and why.
//!
//! Unit: ratios of times, after over before: 0.5 is half the time. Problem: a few switches decide by factors how a program runs beside others or with more
//! threads than CPUs, and users find them by luck. Idea: no box that was trained, but a handful of rules that a person can check: how long a
//! phase takes is computed from what waiting, waking and turns cost ([`load`]), before and after a change, and each rule says which numbers of
//! the [`Profile`] it used, how sure it is, and where it comes from.
//!
//! Terms. A *topic* is one thing that can be changed; each [`Advice`] is about one. Rules are asked in the order of [`Topic::ALL`], and each judges
//! the program as it is after the changes that were advised before it, so that changes go together ([`together`]).
//!
//! Properties: a change is advised only if even the careful end of the interval is a gain of [`GAIN_LEAST`] or more, else the advice is "no change" and says
//! why; where a number is missing that the rule needs, it is named and nothing is guessed; no knob is set by two pieces of advice; equal input gives
//! equal advice.
//!
//! Source: C. Iancu, S. Hofmeyr, F. Blagojević and Y. Zheng, "Oversubscription on Multicore Processors", IPDPS 2010, for what decides; S. Hofmeyr,
//! C. Iancu and F. Blagojević, "Load Balancing on Speed", PPoPP 2010, for when moving threads pays. What each rule adds is said in its file.

mod balancing;
mod known;
pub mod load;
mod pages;
mod placing;
mod sharing;
mod slices;
#[cfg(test)]
mod tests;
mod threads;
mod waiting;

use crate::place::waiting::Yield;
use crate::profile::Profile;
use crate::setting::Setting;
use crate::time::Span;
use crate::topology::Machine;
use known::Known;
use serde::Serialize;
use std::fmt;

pub use threads::fitting;

/// A change is advised from this gain on, at the careful end of its interval.
pub const GAIN_LEAST: f64 = 0.02;
/// What is expected has at least this error, as the logarithm of a ratio ...
pub const ERROR_LEAST: f64 = 0.08;
/// ... beside strangers this ...
pub const ERROR_BESIDE: f64 = 0.16;
/// ... with more threads than CPUs beside them this ...
pub const ERROR_CROWDED: f64 = 0.32;
/// ... and this part of the expected logarithm: all set on the calibration half (`docs/advise.md`).
pub const ERROR_PART: f64 = 0.5;

/// What can be changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Cores together with others, or some of them alone.
    Sharing,
    /// Threads for each core.
    Threads,
    /// How threads wait.
    Wait,
    /// A policy that balances.
    Balance,
    /// How threads and memory are laid out.
    Placement,
    /// Transparent huge pages.
    HugePages,
    /// The scheduler's slice.
    Slice,
}

impl Topic {
    /// All, in the order in which they are judged.
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

/// What comes of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The setting should be changed.
    Change,
    /// It is good as it is, or nothing can be gained that counts.
    NoChange,
    /// No change either: it cannot be told.
    Unsure,
}

/// Time after a change over time before it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Gain {
    /// At best.
    pub low: f64,
    /// Expected.
    pub likely: f64,
    /// At worst.
    pub high: f64,
}

impl Gain {
    /// With the error that predictions have, around several that are possible; the first is the expected one.
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

    /// The same of a program of which only a part is changed.
    fn of_part(self, part: f64) -> Self {
        let whole = |ratio: f64| 1.0 - part + part * ratio;
        Self { low: whole(self.low), likely: whole(self.likely), high: whole(self.high) }
    }

    /// Whether it is a gain even at worst.
    pub fn is_sure(&self) -> bool {
        self.high <= 1.0 - GAIN_LEAST
    }
}

/// In times.
impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} times the time ({:.2} to {:.2})", self.likely, self.low, self.high)
    }
}

/// Another program that wants the same cores.
#[derive(Clone, PartialEq, Debug)]
pub struct Companion {
    /// What was measured of it.
    pub profile: Profile,
}

/// Where the program runs, as far as its profile does not say it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Situation {
    /// CPUs that it is given.
    pub cpus: u32,
    /// CPUs' worth of others' work on those, from moment to moment; `None` when nobody looked.
    pub others: Option<f64>,
    /// What a control group grants, in thousandths of a CPU; `None` without a quota.
    pub quota: Option<u32>,
    /// What `sched_yield` does.
    pub yields: Yield,
    /// How long it takes until a woken thread runs whose CPU was free; `None` where nobody tried.
    pub wake: Option<Span>,
    /// Whether its threads are bound one by one; `None` when that is not known.
    pub bound: Option<bool>,
    /// Sizes of nested teams, outermost first; empty where teams are not nested.
    pub teams: Vec<u32>,
    /// Who else is to run here, where that is being decided.
    pub companion: Option<Companion>,
}

/// What is thought of one topic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Of which.
    pub topic: Topic,
    /// What comes of it.
    pub verdict: Conclusion,
    /// What to change; empty where nothing is to be.
    pub setting: Setting,
    /// What that brings, or what the best change that was thought of would.
    pub gain: Option<Gain>,
    /// What should be done and why, or why not, in words.
    pub words: String,
    /// Numbers that it follows from.
    pub evidence: Vec<String>,
    /// What would make it wrong.
    pub uncertainty: String,
    /// The rule, and where it comes from.
    pub rule: String,
    /// Numbers that were needed, and are not known.
    pub missing: Vec<String>,
}

impl Advice {
    /// Nothing to be changed, so far.
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
        self.words = format!("cannot be told: {}", missing.join("; "));
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

    /// A change if that is sure to gain; else no change, with what was expected.
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
                self.unsure(format!("{setting} might help, {gain}, but that is not sure"))
            }
            _ => self.no_change(format!("{setting} would gain nothing that counts")),
        }
    }
}

/// What would run a program better: a piece for each topic, in order.
pub fn advise(profile: &Profile, machine: &Machine, situation: &Situation) -> Vec<Advice> {
    let profile = &known::plausible(profile);
    let mut known = Known::of(profile, situation);
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

/// All changes that are advised, as one.
pub fn together(all: &[Advice]) -> Setting {
    all.iter().flat_map(|advice| advice.setting.iter()).fold(Setting::new(), |sum, (knob, value)| {
        // A value of a setting is one that settings take.
        sum.clone().with(knob, value).unwrap_or(sum)
    })
}
