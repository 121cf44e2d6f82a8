//! `brm-paper`: the published rule, each gap as it is.
//!
//! Unit: the global penalty, the plain sum of all threads' penalties at a look. For each candidate at each tick, which is the
//! settings' interval (the paper's is 10 ms):
//!
//! ```text
//! Update:  n = the unit it is in;  unc[n] = the global penalty now;  min = argmin unc
//!          if unc[n] > unc[min]:  prob += 1      else:  prob -= 1, bias = n
//! Migrate: draw 0..99;  if draw < prob:  go to a core of unit bias, prob = 0
//! ```
//!
//! What the slides leave open, and what is done here: `unc` begins at zero, so that every unit is tried; `bias` begins at the next unit in
//! order (a zeroed one would never leave the first); a unit that was never visited has the penalty zero, which is the minimum, so `bias`
//! may stay where nothing is better: that is the rule, and why there is [`bias`](super::bias). A thread that did not run in a tick is
//! not updated, as Xen burns no credit of a sleeper; its penalty counts as it was last. The move is a push: the thread is put on the CPUs of the unit and let go at
//! once, since the paper leaves stealing by idle cores as it was.
//!
//! `prob` has no bounds either, unless [`PenaltySettings::bounded`](super::PenaltySettings) asks for them: a probability below zero is the letter of the
//! rule, but maybe not what its authors ran.
//!
//! Candidates are the tagged threads, or all where none is tagged. Nothing is on trial, nothing is undone, no guard stops it.
//!
//! Properties: equal seeds, equal draws: one a candidate and tick, in order of threads; a look without any counts changes nothing; `prob` is
//! reset when a core is selected, also one of the unit where the thread is, and not for a thread that cannot be asked to go.
//!
//! Source: the pseudo code of the slides of Rao, Wang, Zhou, Xu, HPCA 2013.

use super::super::{Decision, Kind, Policy, Reason, Settings, Turn, Wanted};
use super::herd::Herd;
use super::settings::Candidates;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::penalty::{Index, Mean, level};
use crate::stats::Random;
use crate::time::Span;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// What a thread remembers.
#[derive(Debug)]
struct Mind {
    bias: u16,
    prob: i64,
    unc: Vec<f64>,
}

/// The published rule.
#[derive(Debug)]
pub(in super::super) struct Paper {
    herd: Herd,
    random: Random,
    minds: BTreeMap<ThreadId, Mind>,
}

impl Paper {
    /// For a machine.
    pub(in super::super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { herd: Herd::new(machine, settings), random: Random(settings.seed), minds: BTreeMap::new() }
    }

    /// The global penalty now; `None` where nothing was counted since the look before.
    fn global(&self) -> Option<f64> {
        if self.herd.books.values().all(|book| book.now.is_none()) {
            return None;
        }
        let settings = self.herd.settings();
        let index = settings.index.unwrap_or(Index::Penalty).on(self.herd.rung()?);
        level(index, settings.mean.unwrap_or(Mean::Sum), self.herd.books.values().map(|book| book.last)).value
    }

    fn candidates(&self, seen: &Observation<'_>) -> Vec<usize> {
        let tagged = |i: &usize| seen.threads[*i].info.tagged;
        let any = (0..seen.threads.len()).any(|i| tagged(&i));
        let all = match self.herd.settings().candidates {
            Candidates::Auto => !any,
            Candidates::Tagged => false,
            Candidates::All => true,
        };
        (0..seen.threads.len()).filter(|i| all || tagged(i)).collect()
    }

    /// One candidate's update and draw.
    fn turn(&mut self, i: usize, unit: u16, global: f64) -> Option<Decision> {
        let units = self.herd.units.all.len();
        let id = self.herd.sitter(i).id;
        let next = (usize::from(unit) + 1) % units;
        let fresh = || Mind { bias: u16::try_from(next).unwrap_or(0), prob: 0, unc: vec![0.0; units] };
        let mind = self.minds.entry(id).or_insert_with(fresh);
        mind.unc[usize::from(unit)] = global;
        let least = mind.unc.iter().copied().fold(f64::INFINITY, f64::min);
        if global > least {
            mind.prob += 1;
        } else {
            mind.prob -= 1;
            mind.bias = unit;
        }
        if self.herd.settings().bounded {
            mind.prob = mind.prob.clamp(0, 100);
        }
        let draw = i64::try_from(self.random.below(100)).unwrap_or(0);
        if draw >= mind.prob {
            return None;
        }
        let (bias, there) = (mind.bias, mind.unc[usize::from(mind.bias)]);
        let to = self.herd.room(i, bias);
        // Who cannot be asked to go was not: it is as ready as before.
        if to.is_empty() || !self.herd.movable(i) {
            return None;
        }
        mind.prob = 0;
        if bias == unit {
            return None;
        }
        let reason = if there > 0.0 {
            Reason::Stalls { more: (global / there - 1.0).max(0.0) }
        } else {
            Reason::Explore
        };
        Some(self.herd.base.seating.nudge_to(i, to, reason))
    }
}

impl Policy for Paper {
    fn kind(&self) -> Kind {
        Kind::BrmPaper
    }

    fn first(&self) -> Wanted {
        Wanted { places: true, counts: true, ..Wanted::default() }
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let findings = self.herd.look(seen);
        self.minds.retain(|id, _| seen.thread(*id).is_some());
        let one = self.herd.one_unit();
        let mut decisions = Vec::new();
        if let Some(global) = self.global().filter(|_| !one) {
            for i in self.candidates(seen) {
                let ran = seen.threads[i].rates.is_some_and(|rates| rates.run > 0.0);
                if let Some(unit) = self.herd.unit(i).filter(|_| ran) {
                    decisions.extend(self.turn(i, unit, global));
                }
            }
        }
        let interval = self.herd.base.settings.interval;
        // Where there is only one place it is only seen whether others become usable.
        let tick = if one { interval.max(Span::from_ms(1_000)) } else { interval };
        let wanted = Wanted { places: true, counts: !one, ..Wanted::default() };
        Turn { decisions, findings, next: seen.at + tick, wanted }
    }
}
