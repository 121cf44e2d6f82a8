//! `brm`: bias random migration with its gaps closed.
//!
//! Unit: the smoothed index of all threads. As in the published rule, each candidate stores for
//! each unit the index while it was there. Its readiness to leave grows with each 10 ms in which
//! the index was lower elsewhere, and it leaves by a random draw. The differences:
//!
//! | published | here |
//! |---|---|
//! | readiness has no bounds: ten calm seconds cost ten more | 0 to 100 |
//! | the target is the last unit that was best while the thread was there | the best unit |
//! | units never visited always seem perfect | tried at most once each (1) |
//! | the order of these units is open | by the experience of the program (2) |
//! | the memory of a unit is never refreshed | it ages with [`AGEING_SECONDS`] |
//! | any value above the least counts as worse | by the margin, and by twice the scatter |
//! | all draw at once, and mix up the effects of each other | a unit has one move at a time |
//! | a move is final | it is on trial (3) |
//! | all tagged threads | tagged, or seen to stall |
//! | into any unit | with an idle core, else by exchange (4) |
//!
//! 1. Once alone and once by exchange. They are tried again when a move from or to the unit was
//!    kept, and after a minute and a half, which doubles.
//! 2. First the units where other threads of the program stall clearly less, even if the thread
//!    must wait for the unit; then by lot; last the units where they stall more.
//! 3. It is undone unless the index of all threads falls by the margin. The measurement of the
//!    trial is stored for the thread.
//! 4. The partner is the thread that stalls least there.
//!
//! Properties: if nothing can be gained, moves end: each thread tries each unit twice and then
//! pauses for times that double. A kept move lowered the index of its units by the margin, so there
//! are finitely many while the program does the same work.

use super::super::{Kind, Reason};
use super::move_trial::{Mover, TrialEnd};
use super::proposer::{Candidate, Proposal, Proposer, ProposerInput, others, retain, shuffled};
use crate::ids::ThreadId;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds over which the memory of a unit ages.
const AGEING_SECONDS: f64 = 2.0;

/// Tick of the published rule.
const PUBLISHED_TICK: Span = Span::from_ms(10);

/// Share of the difference by which a sample shifts the index.
const SMOOTHING_WEIGHT: f64 = 0.25;

/// Scatter of the smoothed index, as a share of the scatter of single samples.
const SCATTER_LEFT_SHARE: f64 = 0.378;

/// First pause of a thread after a trial; it doubles with each failed trial of a move that was
/// tried before.
const REST_FIRST: Span = Span::from_ms(500);
/// Largest number of doublings of a pause.
const DOUBLINGS_MAX: u32 = 7;

/// Time without a kept move after which all may be tried again; it doubles.
const RENEW_AFTER: Span = Span::from_ms(90_000);

/// Memory of one unit.
#[derive(Clone, Copy, Debug, Default)]
struct UnitMemory {
    /// Index of all threads while the thread was there.
    level: Option<f64>,
    /// Epochs of the last trials there: alone, and by exchange.
    tried: [Option<u32>; 2],
}

/// Memory of a candidate.
#[derive(Debug)]
struct CandidateMemory {
    units: Vec<UnitMemory>,
    ready: i32,
    rests: Moment,
    failures: u32,
    /// Whether the move on trial was tried in an earlier epoch.
    again: bool,
}

/// Possible move of a thread.
#[derive(Clone, Copy, Debug)]
struct PossibleMove {
    unit: u16,
    /// Index of all threads there, measured or assumed.
    level: f64,
    /// 0 alone, 1 by exchange.
    kind: usize,
    /// Whether it was not tried yet.
    new: bool,
    /// Rank among choices: the experience of the program's threads there, and a lot; and whether
    /// the experience promises a gain.
    rank: (f64, usize),
    promises: bool,
}

impl PossibleMove {
    /// Returns whether it comes before another choice: first a promised gain, then calm units, then
    /// by level, then by rank.
    fn before(&self, other: &Self, input: &ProposerInput<'_>) -> bool {
        let worse = |one: &Self| (!one.promises, !one.promises && !input.calm(one.unit));
        let (level, rank) = (self.level.total_cmp(&other.level), self.rank.0.total_cmp(&other.rank.0));
        // Of two promised gains, the larger one comes first.
        let between = if self.promises && other.promises { rank } else { level.then(rank) };
        worse(self).cmp(&worse(other)).then(between).then(self.rank.1.cmp(&other.rank.1)).is_lt()
    }
}

/// The smoothed index.
#[derive(Clone, Copy, Debug)]
struct SmoothedIndex {
    level: f64,
    scatter: f64,
    at: Moment,
}

/// Proposer of `brm`.
#[derive(Debug, Default)]
pub(super) struct Bias {
    memories: BTreeMap<ThreadId, CandidateMemory>,
    smooth: Option<SmoothedIndex>,
    /// By unit, increases when a move from or to it was kept: earlier trials may have other results
    /// now.
    epochs: Vec<u32>,
    renewed: Moment,
    renewals: u32,
}

impl Bias {
    /// Processes the index. Returns the smoothed index and the seconds since the last sample.
    fn smooth(&mut self, input: &ProposerInput<'_>) -> Option<(SmoothedIndex, f64)> {
        let now = input.level.value?;
        let mut smooth = self.smooth.unwrap_or(SmoothedIndex { level: now, scatter: 0.0, at: input.at });
        let seconds = input.at.since(smooth.at).seconds();
        let off = now - smooth.level;
        smooth.level += SMOOTHING_WEIGHT * off;
        let square = if smooth.level > 0.0 { (off / smooth.level).powi(2) } else { 0.0 };
        smooth.scatter += 0.05 * (square.min(1.0) - smooth.scatter);
        smooth.at = input.at;
        self.smooth = Some(smooth);
        Some((smooth, seconds))
    }

    /// Returns the relative difference above which a unit is worse.
    fn threshold(smooth: &SmoothedIndex, margin: f64) -> f64 {
        margin + 2.0 * SCATTER_LEFT_SHARE * smooth.scatter.sqrt()
    }

    /// Returns the best choice of a thread.
    fn best(
        &self,
        one: &Candidate,
        input: &ProposerInput<'_>,
        here: f64,
        threshold: f64,
        random: &mut Random,
    ) -> Option<PossibleMove> {
        let memory = self.memories.get(&one.id)?;
        let mut best: Option<PossibleMove> = None;
        for unit in others(input, one.unit) {
            if !input.may(one.i, unit) || input.hopeless(one.i, unit) {
                continue;
            }
            let unit_memory = &memory.units[usize::from(unit)];
            let room = input.room(one.unit, unit);
            let epoch = self.epochs.get(usize::from(unit)).copied();
            let untried = |kind: usize| unit_memory.tried[kind].is_none() || unit_memory.tried[kind] != epoch;
            let (level, kind, new) = if room && untried(0) {
                (here * (1.0 - 2.0 * threshold).max(0.0), 0, true)
            } else if untried(1) {
                // After the units with room.
                (here * (1.0 - 1.9 * threshold).max(0.0), 1, true)
            } else {
                (unit_memory.level.unwrap_or(here), usize::from(!room), false)
            };
            let level = unit_memory.level.map_or(level, |known| level.min(known));
            // A unit without experience of the program may be as good as this one.
            let hint = input.stats.hint(one.i, unit).unwrap_or(1.0);
            let promises = new && hint < 1.0 - threshold;
            let choice =
                PossibleMove { unit, level, kind, new, rank: (hint, random.below(1 << 16)), promises };
            if best.is_none_or(|best| choice.before(&best, input)) {
                best = Some(choice);
            }
        }
        best
    }

    fn partner(one: &Candidate, input: &ProposerInput<'_>, to: u16, random: &mut Random) -> Option<usize> {
        let partners: Vec<(usize, f64)> =
            input.partners(to, one.unit).into_iter().filter(|(j, _)| *j != one.i).collect();
        if input.room(one.unit, to) {
            // The unit has room: the exchange is tried to see whether both threads gain.
            return (!partners.is_empty()).then(|| partners[random.below(partners.len())].0);
        }
        let least = partners.iter().map(|(_, weight)| *weight).fold(f64::INFINITY, f64::min);
        let least: Vec<usize> =
            partners.iter().filter(|(_, weight)| *weight <= least + 0.05).map(|(j, _)| *j).collect();
        (!least.is_empty()).then(|| least[random.below(least.len())])
    }

    fn renew(&mut self, at: Moment) {
        let long = RENEW_AFTER.times(f64::from(1_u32 << self.renewals.min(DOUBLINGS_MAX)));
        if self.renewed == Moment::default() {
            self.renewed = at;
        } else if at.since(self.renewed) >= long {
            self.epochs.iter_mut().for_each(|epoch| *epoch += 1);
            self.renewals += 1;
            self.renewed = at;
        }
    }
}

impl Proposer for Bias {
    const KIND: Kind = Kind::Brm;
    const ALL: bool = false;

    fn propose(&mut self, input: &ProposerInput<'_>, random: &mut Random) -> Vec<Proposal> {
        self.epochs.resize(input.loads.len(), 0);
        self.renew(input.at);
        let Some((smooth, seconds)) = self.smooth(input) else { return Vec::new() };
        let (here, threshold) = (smooth.level, Self::threshold(&smooth, input.margin));
        let fades = 1.0 - (-seconds / AGEING_SECONDS).exp();
        // A long tick changes readiness by as much as the published ticks that it replaces.
        let rate = (input.tick.seconds() / PUBLISHED_TICK.seconds()).clamp(1.0, 100.0) as i32;
        let mut proposals: Vec<(f64, Proposal)> = Vec::new();
        for one in shuffled(input.candidates.to_vec(), random) {
            let units = input.loads.len();
            let memory = self.memories.entry(one.id).or_insert_with(|| CandidateMemory {
                units: vec![UnitMemory::default(); units],
                ready: 0,
                rests: Moment::default(),
                failures: 0,
                again: false,
            });
            for unit_memory in &mut memory.units {
                if let Some(level) = &mut unit_memory.level {
                    *level += (here - *level) * fades;
                }
            }
            memory.units[usize::from(one.unit)].level = Some(here);
            let Some(PossibleMove { unit: to, level, kind, new, rank, .. }) =
                self.best(&one, input, here, threshold, random)
            else {
                continue;
            };
            let Some(memory) = self.memories.get_mut(&one.id) else { continue };
            let better = here > level * (1.0 + threshold);
            memory.ready = (memory.ready + if better { rate } else { -rate }).clamp(0, 100);
            let draw = i32::try_from(random.below(100)).unwrap_or(0);
            let calm = input.calm(one.unit) && input.calm(to);
            if draw >= memory.ready || !better || !one.ready || !calm || input.at < memory.rests {
                continue;
            }
            let partner = if kind == 1 {
                let Some(partner) = Self::partner(&one, input, to, random) else {
                    memory.units[usize::from(to)].tried[1] = self.epochs.get(usize::from(to)).copied();
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
        // The most promising proposal comes first.
        proposals.sort_by(|a, b| a.0.total_cmp(&b.0));
        proposals.into_iter().map(|(_, proposal)| proposal).collect()
    }

    fn began(&mut self, movers: &[Mover]) {
        let kind = usize::from(movers.len() > 1);
        for mover in movers {
            if let Some(memory) = self.memories.get_mut(&mover.id) {
                memory.ready = 0;
                let tried = &mut memory.units[usize::from(mover.to)].tried[kind];
                memory.again = tried.is_some();
                *tried = self.epochs.get(usize::from(mover.to)).copied();
            }
        }
    }

    fn learned(&mut self, movers: &[Mover], end: TrialEnd, at: Moment) {
        let kind = usize::from(movers.len() > 1);
        for mover in movers {
            let Some(memory) = self.memories.get_mut(&mover.id) else { continue };
            match end {
                TrialEnd::Kept(_) => memory.failures = 0,
                TrialEnd::Undone(ratio) => {
                    let here = memory.units[usize::from(mover.from)].level;
                    // The measurement of the trial predicts the index there.
                    if let Some((ratio, here)) = ratio.zip(here) {
                        memory.units[usize::from(mover.to)].level = Some(here * ratio);
                    }
                    memory.failures += u32::from(memory.again || ratio.is_none());
                }
                TrialEnd::Lost | TrialEnd::Dropped => {}
            }
            if matches!(end, TrialEnd::Undone(None) | TrialEnd::Lost | TrialEnd::Dropped) {
                // The trial had no result.
                memory.units[usize::from(mover.to)].tried[kind] = None;
            }
            memory.ready = 0;
            memory.rests = at + REST_FIRST.times(f64::from(1_u32 << memory.failures.min(DOUBLINGS_MAX)));
        }
        if let TrialEnd::Kept(_) = end {
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
        retain(&mut self.memories, alive);
        if alive.is_none() {
            self.smooth = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(ready: i32) -> CandidateMemory {
        CandidateMemory {
            units: vec![UnitMemory { level: Some(1.0), ..UnitMemory::default() }; 4],
            ready,
            rests: Moment::default(),
            failures: 0,
            again: false,
        }
    }

    fn proposer() -> (Bias, Mover) {
        let id = ThreadId(7);
        let mut bias = Bias { epochs: vec![0; 4], ..Bias::default() };
        bias.memories.insert(id, memory(60));
        (bias, Mover { id, from: 1, to: 2, reason: Reason::Explore })
    }

    #[test]
    fn a_kept_move_renews_only_its_two_units() {
        let (mut bias, mover) = proposer();
        bias.began(std::slice::from_ref(&mover));
        bias.learned(&[mover], TrialEnd::Kept(0.9), Moment(5));
        assert_eq!(bias.epochs, [0, 1, 1, 0]);
    }

    #[test]
    fn readiness_is_spent_when_a_trial_begins_and_an_inconclusive_trial_may_be_repeated() {
        let (mut bias, mover) = proposer();
        assert_eq!(bias.memories[&mover.id].ready, 60);
        bias.began(std::slice::from_ref(&mover));
        assert_eq!(bias.memories[&mover.id].ready, 0);
        assert_eq!(bias.memories[&mover.id].units[2].tried, [Some(0), None]);
        for end in [TrialEnd::Lost, TrialEnd::Dropped, TrialEnd::Undone(None)] {
            let (mut bias, mover) = proposer();
            bias.began(std::slice::from_ref(&mover));
            bias.learned(std::slice::from_ref(&mover), end, Moment(5));
            assert_eq!(bias.memories[&mover.id].units[2].tried, [None, None], "{end:?}");
        }
        bias.learned(std::slice::from_ref(&mover), TrialEnd::Undone(Some(1.2)), Moment(5));
        let unit_memory = bias.memories[&mover.id].units[2];
        assert_eq!((unit_memory.tried, unit_memory.level), ([Some(0), None], Some(1.2)));
    }
}
