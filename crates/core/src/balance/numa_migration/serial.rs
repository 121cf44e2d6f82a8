//! `serial`: one move or exchange at a time, kept if the stalls of all threads decrease.
//!
//! Unit: the index of all threads.
//!
//! Problem: a thread's memory of a unit is outdated as soon as others move. With many threads and
//! nodes, the published rule makes no progress or thrashes.
//!
//! Idea: a hill climb. The first choice is a thread that can go to a unit with an idle core in
//! which other threads of its program stall clearly less. Otherwise the thread is drawn, weighted
//! by the cycles that it stalls, and goes to any unit with an idle core. When all threads have gone
//! everywhere alone, pairs exchange places. The index before and after decides. In a simple model
//! this was the better policy in half of the settings.
//!
//! Properties: one trial at a time on the whole machine. Nothing is tried twice in a round, and no
//! exchange is tried while a thread can still go alone. A kept move begins a new round. After a
//! round in which all trials failed, the policy pauses, twice as long each time, at most
//! [`PAUSE_MAX`], and makes half as many trials in the next round.

use super::super::{Kind, Reason};
use super::move_trial::{Mover, TrialEnd, recent_counts, shortest};
use super::proposer::{Candidate, Proposal, Proposer, ProposerInput, others};
use crate::ids::ThreadId;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::BTreeSet;

/// Longest pause.
const PAUSE_MAX: Span = Span::from_ms(5_000);
/// Largest number of halvings of a round and of doublings of the pause.
const DOUBLINGS_MAX: u32 = 10;

/// Resolution of the weighted draw.
const LOT_PARTS: usize = 1 << 20;

/// Proposer of `serial`.
#[derive(Debug, Default)]
pub(super) struct HillClimb {
    /// Trials of this round: threads and the units to which they went alone, and pairs that
    /// exchanged places.
    alone: BTreeSet<(ThreadId, u16)>,
    pairs: BTreeSet<(ThreadId, ThreadId)>,
    /// Number of trials of this round, and of the first round.
    tried: usize,
    whole: usize,
    /// Rounds without a kept move.
    rounds: u32,
    rests: Moment,
}

/// Returns all candidates in a random order by weight.
fn drawn(mut all: Vec<(Candidate, f64)>, random: &mut Random) -> Vec<Candidate> {
    let mut order = Vec::with_capacity(all.len());
    while !all.is_empty() {
        let whole: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut left = whole * random.below(LOT_PARTS) as f64 / LOT_PARTS as f64;
        let at = all.iter().position(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        order.push(all.swap_remove(at.unwrap_or(all.len() - 1)).0);
    }
    order
}

fn pair(one: ThreadId, other: ThreadId) -> (ThreadId, ThreadId) {
    (one.min(other), one.max(other))
}

impl HillClimb {
    /// Begins a new round.
    fn again(&mut self) {
        self.alone.clear();
        self.pairs.clear();
        self.tried = 0;
    }

    /// Proposes a lone move of this candidate that was not tried in this round, with its rank.
    fn alone(
        &self,
        one: &Candidate,
        input: &ProposerInput<'_>,
        random: &mut Random,
    ) -> Option<(f64, Proposal)> {
        let rank = |unit: u16| input.stats.hint(one.i, unit).unwrap_or(1.0);
        let mut best: Option<(f64, usize, u16)> = None;
        for unit in others(input, one.unit) {
            let goes = input.may(one.i, unit) && input.room(one.unit, unit) && !input.hopeless(one.i, unit);
            if !goes || self.alone.contains(&(one.id, unit)) {
                continue;
            }
            let (rank, lot) = (rank(unit), random.below(LOT_PARTS));
            if best.is_none_or(|(least, other, _)| rank < least || rank <= least && lot < other) {
                best = Some((rank, lot, unit));
            }
        }
        best.map(|(rank, _, to)| (rank, Proposal { i: one.i, to, partner: None, reason: Reason::Explore }))
    }

    /// Proposes an exchange of this candidate that was not tried in this round.
    fn exchange(&self, one: &Candidate, input: &ProposerInput<'_>, random: &mut Random) -> Option<Proposal> {
        let new = |j: &usize| !self.pairs.contains(&pair(one.id, input.stats.thread(*j).id));
        let partners: Vec<(u16, usize)> = others(input, one.unit)
            .into_iter()
            .filter(|unit| input.may(one.i, *unit) && !input.hopeless(one.i, *unit))
            .flat_map(|unit| input.partners(unit, one.unit).into_iter().map(move |(j, _)| (unit, j)))
            .filter(|(_, j)| new(j))
            .collect();
        let (to, partner) = *partners.get(random.below(partners.len().max(1)))?;
        Some(Proposal { i: one.i, to, partner: Some(partner), reason: Reason::Explore })
    }
}

impl Proposer for HillClimb {
    const KIND: Kind = Kind::Serial;
    const ALL: bool = true;

    fn propose(&mut self, input: &ProposerInput<'_>, random: &mut Random) -> Vec<Proposal> {
        if !input.busy.is_empty() || input.at < self.rests || input.candidates.is_empty() {
            return Vec::new();
        }
        // Readings differ by a few per cent from second to second, so each candidate keeps some
        // weight.
        let stalled = |one: &Candidate| {
            recent_counts(input.stats, one.id).and_then(|counts| counts.busy).unwrap_or(0) as f64 + 1.0
        };
        let ready = input.candidates.iter().filter(|one| one.ready).map(|one| (*one, stalled(one)));
        let order = drawn(ready.collect(), random);
        if self.rounds == 0 || self.tried < (self.whole >> self.rounds.min(DOUBLINGS_MAX)).max(1) {
            let mut first: Option<(f64, Proposal)> = None;
            for one in &order {
                let Some((rank, proposal)) = self.alone(one, input, random) else { continue };
                // A rank that promises nothing counts as 1: then the drawn order decides.
                let rank = if rank < 1.0 - 2.0 * input.margin { rank } else { 1.0 };
                if first.as_ref().is_none_or(|(least, _)| rank < *least) {
                    first = Some((rank, proposal));
                }
            }
            if let Some((_, proposal)) = first {
                return vec![proposal];
            }
            if let Some(proposal) = order.iter().find_map(|one| self.exchange(one, input, random)) {
                return vec![proposal];
            }
        }
        if !order.is_empty() {
            if self.rounds == 0 {
                self.whole = self.tried;
            }
            self.again();
            let pause = shortest(input.tick, input.samples_min)
                .times(f64::from(1_u32 << self.rounds.min(DOUBLINGS_MAX)));
            self.rests = input.at + pause.min(PAUSE_MAX);
            self.rounds = self.rounds.saturating_add(1);
        }
        Vec::new()
    }

    fn began(&mut self, movers: &[Mover]) {
        self.tried += 1;
        match movers {
            [one] => {
                self.alone.insert((one.id, one.to));
            }
            [one, other] => {
                self.pairs.insert(pair(one.id, other.id));
            }
            _ => {}
        }
    }

    fn learned(&mut self, movers: &[Mover], end: TrialEnd, _at: Moment) {
        if let TrialEnd::Kept(_) = end {
            self.again();
            // The trial just showed that it was worse there.
            self.alone.extend(movers.iter().map(|mover| (mover.id, mover.from)));
            self.rounds = 0;
        }
    }

    fn forget(&mut self, alive: Option<&dyn Fn(ThreadId) -> bool>) {
        match alive {
            None => *self = Self::default(),
            Some(alive) => {
                self.alone.retain(|(id, _)| alive(*id));
                self.pairs.retain(|(one, other)| alive(*one) && alive(*other));
                // The remaining threads may gain elsewhere now.
                self.rounds = 0;
            }
        }
    }
}
