//! `brm`: bias random migration with its gaps closed.
//!
//! Unit: the index of all threads, smoothed. As in the published rule each candidate remembers, unit by unit, how much all suffered
//! while it was there, becomes readier to leave with each 10 ms in which that was less elsewhere, and leaves by a draw. What is
//! different:
//!
//! | published | here |
//! |---|---|
//! | readiness has no bounds: ten calm seconds cost ten more | 0 to 100 |
//! | the unit to go to is the last one that was best while it was there | the best one |
//! | units never visited seem perfect for ever | tried at most once each, alone and by exchange; again when a move from or to there was kept, and after a minute and a half that doubles |
//! | which of them comes first is left open | first where other threads of the program suffer clearly less, though it must wait for it; then by lot; last where they suffer more |
//! | what was remembered of a unit is never refreshed | it ages towards the present with [`AGES`] |
//! | anything above the least counts as worse | by the margin, and by twice the scatter of the index |
//! | all draw at once, and each takes the others' doing for its own | a unit has one move at a time |
//! | a move is for good | it is on trial, and undone unless all suffer less by the margin; what the trial measured is what is remembered |
//! | anybody who is tagged | tagged, or seen to stall |
//! | into any unit | where a core is idle, else by exchange with who stalls least there |
//!
//! Properties: where nothing is to be gained, moves end: each thread tries each unit twice and rests for times that double; a kept
//! move lowered what its units suffer by the margin, so there are finitely many while the program does the same.

use super::super::{Kind, Reason};
use super::trial::{End, Mover};
use super::way::{Candidate, Proposal, Scene, Way, others, retain, shuffled};
use crate::ids::ThreadId;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Over how long what was remembered ages.
const AGES: f64 = 2.0;

/// The published rule looks so often.
const PUBLISHED: Span = Span::from_ms(10);

/// How much of its difference a look shifts the index.
const SMOOTH: f64 = 0.25;

/// The scatter that is left after that, as a part of that of single looks.
const LEFT: f64 = 0.378;

/// How long a thread rests after a trial; it doubles with each trial in vain of what was tried before.
const REST: Span = Span::from_ms(500);
const DOUBLINGS: u32 = 7;

/// All may be tried again after this, when nothing was kept; it doubles.
const RENEW: Span = Span::from_ms(90_000);

/// What a thread remembers of a unit.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// How much all suffered while it was there.
    level: Option<f64>,
    /// In which epoch it was tried there last: alone, and by exchange.
    tried: [Option<u32>; 2],
}

/// What a thread remembers.
#[derive(Debug)]
struct Mind {
    units: Vec<Memory>,
    ready: i32,
    rests: Moment,
    failures: u32,
    /// Whether what is on trial was tried in an earlier epoch.
    again: bool,
}

/// What a thread could try.
#[derive(Clone, Copy, Debug)]
struct Choice {
    unit: u16,
    /// How much all would suffer, as far as that is known, or hoped for.
    level: f64,
    /// 0 alone, 1 by exchange.
    kind: usize,
    /// Whether it was not tried yet.
    new: bool,
    /// What else tells choices apart: what the program's threads met there, whether that promises anything, and a lot.
    rank: (f64, usize),
    promises: bool,
}

impl Choice {
    /// Whether it comes before another: first what promises something, then calm units, then by level, then by rank.
    fn before(&self, other: &Self, scene: &Scene<'_>) -> bool {
        let worse = |one: &Self| (!one.promises, !one.promises && !scene.calm(one.unit));
        let (level, rank) = (self.level.total_cmp(&other.level), self.rank.0.total_cmp(&other.rank.0));
        // Of those that promise something, who promises more.
        let between = if self.promises && other.promises { rank } else { level.then(rank) };
        worse(self).cmp(&worse(other)).then(between).then(self.rank.1.cmp(&other.rank.1)).is_lt()
    }
}

/// The index, smoothed.
#[derive(Clone, Copy, Debug)]
struct Smooth {
    level: f64,
    scatter: f64,
    at: Moment,
}

/// The way of `brm`.
#[derive(Debug, Default)]
pub(super) struct Bias {
    minds: BTreeMap<ThreadId, Mind>,
    smooth: Option<Smooth>,
    /// By unit, increases when a move from or to it was kept: what was tried before may be different now.
    epochs: Vec<u32>,
    renewed: Moment,
    renewals: u32,
}

impl Bias {
    /// Takes the index in; the time since the look before.
    fn smooth(&mut self, scene: &Scene<'_>) -> Option<(Smooth, f64)> {
        let now = scene.level.value?;
        let mut smooth = self.smooth.unwrap_or(Smooth { level: now, scatter: 0.0, at: scene.at });
        let seconds = scene.at.since(smooth.at).seconds();
        let off = now - smooth.level;
        smooth.level += SMOOTH * off;
        let square = if smooth.level > 0.0 { (off / smooth.level).powi(2) } else { 0.0 };
        smooth.scatter += 0.05 * (square.min(1.0) - smooth.scatter);
        smooth.at = scene.at;
        self.smooth = Some(smooth);
        Some((smooth, seconds))
    }

    /// By how much worse a unit must be to be worse.
    fn threshold(smooth: &Smooth, margin: f64) -> f64 {
        margin + 2.0 * LEFT * smooth.scatter.sqrt()
    }

    /// What a thread could try best.
    fn best(
        &self,
        one: &Candidate,
        scene: &Scene<'_>,
        here: f64,
        threshold: f64,
        random: &mut Random,
    ) -> Option<Choice> {
        let mind = self.minds.get(&one.id)?;
        let mut best: Option<Choice> = None;
        for unit in others(scene, one.unit) {
            if !scene.may(one.i, unit) || scene.hopeless(one.i, unit) {
                continue;
            }
            let memory = &mind.units[usize::from(unit)];
            let room = scene.room(one.unit, unit);
            let epoch = self.epochs.get(usize::from(unit)).copied();
            let untried = |kind: usize| memory.tried[kind].is_none() || memory.tried[kind] != epoch;
            let (level, kind, new) = if room && untried(0) {
                (here * (1.0 - 2.0 * threshold).max(0.0), 0, true)
            } else if untried(1) {
                // After those that find room.
                (here * (1.0 - 1.9 * threshold).max(0.0), 1, true)
            } else {
                (memory.level.unwrap_or(here), usize::from(!room), false)
            };
            let level = memory.level.map_or(level, |known| level.min(known));
            // Where nobody of the program was it may be as good as here.
            let hint = scene.herd.hint(one.i, unit).unwrap_or(1.0);
            let promises = new && hint < 1.0 - threshold;
            let choice = Choice { unit, level, kind, new, rank: (hint, random.below(1 << 16)), promises };
            if best.is_none_or(|best| choice.before(&best, scene)) {
                best = Some(choice);
            }
        }
        best
    }

    fn partner(one: &Candidate, scene: &Scene<'_>, to: u16, random: &mut Random) -> Option<usize> {
        let partners: Vec<(usize, f64)> =
            scene.partners(to, one.unit).into_iter().filter(|(j, _)| *j != one.i).collect();
        if scene.room(one.unit, to) {
            // There is room: an exchange is tried to see whether both are better off.
            return (!partners.is_empty()).then(|| partners[random.below(partners.len())].0);
        }
        let least = partners.iter().map(|(_, weight)| *weight).fold(f64::INFINITY, f64::min);
        let least: Vec<usize> =
            partners.iter().filter(|(_, weight)| *weight <= least + 0.05).map(|(j, _)| *j).collect();
        (!least.is_empty()).then(|| least[random.below(least.len())])
    }

    fn renew(&mut self, at: Moment) {
        let long = RENEW.times(f64::from(1_u32 << self.renewals.min(DOUBLINGS)));
        if self.renewed == Moment::default() {
            self.renewed = at;
        } else if at.since(self.renewed) >= long {
            self.epochs.iter_mut().for_each(|epoch| *epoch += 1);
            self.renewals += 1;
            self.renewed = at;
        }
    }
}

impl Way for Bias {
    const KIND: Kind = Kind::Brm;
    const ALL: bool = false;

    fn propose(&mut self, scene: &Scene<'_>, random: &mut Random) -> Vec<Proposal> {
        self.epochs.resize(scene.loads.len(), 0);
        self.renew(scene.at);
        let Some((smooth, seconds)) = self.smooth(scene) else { return Vec::new() };
        let (here, threshold) = (smooth.level, Self::threshold(&smooth, scene.margin));
        let fades = 1.0 - (-seconds / AGES).exp();
        // Where looks are seldom one makes as ready as all that there would have been.
        let rate = (scene.tick.seconds() / PUBLISHED.seconds()).clamp(1.0, 100.0) as i32;
        let mut proposals: Vec<(f64, Proposal)> = Vec::new();
        for one in shuffled(scene.candidates.to_vec(), random) {
            let units = scene.loads.len();
            let mind = self.minds.entry(one.id).or_insert_with(|| Mind {
                units: vec![Memory::default(); units],
                ready: 0,
                rests: Moment::default(),
                failures: 0,
                again: false,
            });
            for memory in &mut mind.units {
                if let Some(level) = &mut memory.level {
                    *level += (here - *level) * fades;
                }
            }
            mind.units[usize::from(one.unit)].level = Some(here);
            let Some(Choice { unit: to, level, kind, new, rank, .. }) =
                self.best(&one, scene, here, threshold, random)
            else {
                continue;
            };
            let Some(mind) = self.minds.get_mut(&one.id) else { continue };
            let better = here > level * (1.0 + threshold);
            mind.ready = (mind.ready + if better { rate } else { -rate }).clamp(0, 100);
            let draw = i32::try_from(random.below(100)).unwrap_or(0);
            let calm = scene.calm(one.unit) && scene.calm(to);
            if draw >= mind.ready || !better || !one.ready || !calm || scene.at < mind.rests {
                continue;
            }
            let partner = if kind == 1 {
                let Some(partner) = Self::partner(&one, scene, to, random) else {
                    mind.units[usize::from(to)].tried[1] = self.epochs.get(usize::from(to)).copied();
                    continue;
                };
                Some(partner)
            } else {
                None
            };
            let reason =
                if new { Reason::Explore } else { Reason::Stalls { more: here / level.max(1e-12) - 1.0 } };
            proposals.push((rank.0, Proposal { i: one.i, to, partner, reason }));
        }
        // What promises most comes first.
        proposals.sort_by(|a, b| a.0.total_cmp(&b.0));
        proposals.into_iter().map(|(_, proposal)| proposal).collect()
    }

    fn began(&mut self, movers: &[Mover]) {
        let kind = usize::from(movers.len() > 1);
        for mover in movers {
            if let Some(mind) = self.minds.get_mut(&mover.id) {
                mind.ready = 0;
                let tried = &mut mind.units[usize::from(mover.to)].tried[kind];
                mind.again = tried.is_some();
                *tried = self.epochs.get(usize::from(mover.to)).copied();
            }
        }
    }

    fn learned(&mut self, movers: &[Mover], end: End, at: Moment) {
        let kind = usize::from(movers.len() > 1);
        for mover in movers {
            let Some(mind) = self.minds.get_mut(&mover.id) else { continue };
            match end {
                End::Kept(_) => mind.failures = 0,
                End::Undone(ratio) => {
                    let here = mind.units[usize::from(mover.from)].level;
                    // What was measured is what it would be like there.
                    if let Some((ratio, here)) = ratio.zip(here) {
                        mind.units[usize::from(mover.to)].level = Some(here * ratio);
                    }
                    mind.failures += u32::from(mind.again || ratio.is_none());
                }
                End::Lost | End::Dropped => {}
            }
            if matches!(end, End::Undone(None) | End::Lost | End::Dropped) {
                // Nothing was learnt of it.
                mind.units[usize::from(mover.to)].tried[kind] = None;
            }
            mind.ready = 0;
            mind.rests = at + REST.times(f64::from(1_u32 << mind.failures.min(DOUBLINGS)));
        }
        if let End::Kept(_) = end {
            for unit in movers.iter().flat_map(|mover| [mover.from, mover.to]).collect::<BTreeSet<u16>>() {
                if let Some(epoch) = self.epochs.get_mut(usize::from(unit)) {
                    *epoch += 1;
                }
            }
            self.renewals = 0;
            self.renewed = at;
        }
    }

    fn forget(&mut self, alive: Option<&dyn Fn(ThreadId) -> bool>) {
        retain(&mut self.minds, alive);
        if alive.is_none() {
            self.smooth = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mind(ready: i32) -> Mind {
        Mind {
            units: vec![Memory { level: Some(1.0), ..Memory::default() }; 4],
            ready,
            rests: Moment::default(),
            failures: 0,
            again: false,
        }
    }

    fn way() -> (Bias, Mover) {
        let id = ThreadId(7);
        let mut bias = Bias { epochs: vec![0; 4], ..Bias::default() };
        bias.minds.insert(id, mind(60));
        (bias, Mover { id, from: 1, to: 2, reason: Reason::Explore })
    }

    #[test]
    fn who_is_kept_makes_only_its_two_units_new() {
        let (mut bias, mover) = way();
        bias.began(std::slice::from_ref(&mover));
        bias.learned(&[mover], End::Kept(0.9), Moment(5));
        assert_eq!(bias.epochs, [0, 1, 1, 0]);
    }

    #[test]
    fn readiness_is_spent_when_a_trial_begins_and_what_taught_nothing_may_be_tried_again() {
        let (mut bias, mover) = way();
        assert_eq!(bias.minds[&mover.id].ready, 60);
        bias.began(std::slice::from_ref(&mover));
        assert_eq!(bias.minds[&mover.id].ready, 0);
        assert_eq!(bias.minds[&mover.id].units[2].tried, [Some(0), None]);
        for end in [End::Lost, End::Dropped, End::Undone(None)] {
            let (mut bias, mover) = way();
            bias.began(std::slice::from_ref(&mover));
            bias.learned(std::slice::from_ref(&mover), end, Moment(5));
            assert_eq!(bias.minds[&mover.id].units[2].tried, [None, None], "{end:?}");
        }
        bias.learned(std::slice::from_ref(&mover), End::Undone(Some(1.2)), Moment(5));
        let memory = bias.minds[&mover.id].units[2];
        assert_eq!((memory.tried, memory.level), ([Some(0), None], Some(1.2)));
    }
}
