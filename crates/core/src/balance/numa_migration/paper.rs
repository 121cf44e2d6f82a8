//! `brm-paper`: the published rule with all its gaps.
//!
//! Unit: the global penalty, which is the plain sum of all threads' penalties at a sample. For each
//! candidate at each tick, which is the settings' interval (the paper's is 10 ms):
//!
//! ```text
//! Update:  n = the unit it is in;  unc[n] = the global penalty now;  min = argmin unc
//!          if unc[n] > unc[min]:  prob += 1      else:  prob -= 1, bias = n
//! Migrate: draw 0..99;  if draw < prob:  go to a core of unit bias, prob = 0
//! ```
//!
//! The slides leave these points open; this implementation does the following. `unc` starts at
//! zero, so that every unit is tried. `bias` starts at the next unit in order, because a zeroed one
//! would never leave the first. A unit that was never visited has the penalty zero, which is the
//! minimum, so `bias` may stay at a unit that is not better: that is the rule, and the reason for
//! [`bias`](super::bias). Two other readings can be chosen ([`BiasReading`]): `bias` starts at unit
//! 0; or it is `min`, since the slides also say "push migrate to a node with the minimum global
//! penalty". A thread that did not run in a tick is not updated, as Xen burns no
//! credit of a sleeper; its last penalty counts. The move is a push: the thread is put on the CPUs
//! of the unit and released at once, since the paper left the work stealing of idle cores as it
//! was.
//!
//! `prob` has no bounds, unless [`PenaltySettings::bounded`](super::PenaltySettings) sets them: a
//! probability below zero follows from the published rule, but the authors' program may have had a
//! bound.
//!
//! Candidates are the tagged threads, or all threads if none is tagged. There is no trial, no
//! undoing and no limit.
//!
//! Properties: equal seeds give equal draws, one per candidate and tick, in the order of the
//! threads. A sample without any counts changes nothing. `prob` is reset when a core is selected,
//! also one of the thread's own unit, but not for a thread that cannot be moved now.
//!
//! Source: the pseudo code of the slides of Rao, Wang, Zhou, Xu, HPCA 2013.

use super::super::{Decision, Kind, Policy, Reason, Settings, Turn, Wanted};
use super::settings::{BiasReading, Candidates};
use super::thread_stats::ThreadStats;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::penalty::{Index, Mean, level};
use crate::stats::Random;
use crate::time::Span;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Memory of a candidate.
#[derive(Debug)]
struct CandidateMemory {
    bias: u16,
    prob: i64,
    unc: Vec<f64>,
}

/// The published rule.
#[derive(Debug)]
pub(in super::super) struct Paper {
    stats: ThreadStats,
    random: Random,
    memories: BTreeMap<ThreadId, CandidateMemory>,
}

impl Paper {
    /// Creates the policy for a machine.
    pub(in super::super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            stats: ThreadStats::new(machine, settings),
            random: Random(settings.seed),
            memories: BTreeMap::new(),
        }
    }

    /// Returns the global penalty now; `None` if nothing was counted since the last sample.
    fn global(&self) -> Option<f64> {
        if self.stats.histories.values().all(|history| history.now.is_none()) {
            return None;
        }
        let settings = self.stats.settings();
        let index = settings.index.unwrap_or(Index::Penalty).on(self.stats.rung()?);
        level(
            index,
            settings.mean.unwrap_or(Mean::Sum),
            self.stats.histories.values().map(|history| history.last),
        )
        .value
    }

    fn candidates(&self, seen: &Observation<'_>) -> Vec<usize> {
        let tagged = |i: &usize| seen.threads[*i].info.tagged;
        let any = (0..seen.threads.len()).any(|i| tagged(&i));
        let all = match self.stats.settings().candidates {
            Candidates::Auto => !any,
            Candidates::Tagged => false,
            Candidates::All => true,
        };
        (0..seen.threads.len()).filter(|i| all || tagged(i)).collect()
    }

    /// Runs one candidate's update and draw.
    fn turn(&mut self, i: usize, unit: u16, global: f64) -> Option<Decision> {
        let units = self.stats.units.all.len();
        let id = self.stats.thread(i).id;
        let reading = self.stats.settings().bias;
        let next = (usize::from(unit) + 1) % units;
        let first = if reading == BiasReading::Zeroed { 0 } else { next };
        let fresh =
            || CandidateMemory { bias: u16::try_from(first).unwrap_or(0), prob: 0, unc: vec![0.0; units] };
        let memory = self.memories.entry(id).or_insert_with(fresh);
        memory.unc[usize::from(unit)] = global;
        let (least, min) = least_of(&memory.unc);
        if global > least {
            memory.prob += 1;
            if reading == BiasReading::Least {
                memory.bias = min;
            }
        } else {
            memory.prob -= 1;
            memory.bias = unit;
        }
        if self.stats.settings().bounded {
            memory.prob = memory.prob.clamp(0, 100);
        }
        let draw = i64::try_from(self.random.below(100)).unwrap_or(0);
        if draw >= memory.prob {
            return None;
        }
        let (bias, there) = (memory.bias, memory.unc[usize::from(memory.bias)]);
        let to = self.stats.room(i, bias);
        // A thread that cannot be moved now keeps its readiness.
        if to.is_empty() || !self.stats.movable(i) {
            return None;
        }
        memory.prob = 0;
        if bias == unit {
            return None;
        }
        let reason = if there > 0.0 {
            Reason::Stalls { more: (global / there - 1.0).max(0.0) }
        } else {
            Reason::Explore
        };
        Some(self.stats.context.table.nudge_to(i, to, reason))
    }
}

/// Returns the least of the units' penalties, and the first unit that has it.
fn least_of(penalties: &[f64]) -> (f64, u16) {
    let mut least = (f64::INFINITY, 0);
    for (unit, &penalty) in (0..).zip(penalties) {
        if penalty < least.0 {
            least = (penalty, unit);
        }
    }
    least
}

impl Policy for Paper {
    fn kind(&self) -> Kind {
        Kind::BrmPaper
    }

    fn first(&self) -> Wanted {
        Wanted { places: true, counts: true, ..Wanted::default() }
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let findings = self.stats.observe(seen);
        self.memories.retain(|id, _| seen.thread(*id).is_some());
        let one = self.stats.one_unit();
        let mut decisions = Vec::new();
        if let Some(global) = self.global().filter(|_| !one) {
            for i in self.candidates(seen) {
                let ran = seen.threads[i].rates.is_some_and(|rates| rates.run > 0.0);
                if let Some(unit) = self.stats.unit(i).filter(|_| ran) {
                    decisions.extend(self.turn(i, unit, global));
                }
            }
        }
        let interval = self.stats.context.settings.interval;
        // With only one unit, the policy only waits for others to become usable.
        let tick = if one { interval.max(Span::from_ms(1_000)) } else { interval };
        let wanted = Wanted { places: true, counts: !one, ..Wanted::default() };
        Turn { decisions, findings, next: seen.at + tick, wanted }
    }
}
