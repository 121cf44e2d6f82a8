//! `serial`: one move or exchange at a time, kept if all suffer less for it.
//!
//! Unit: the index of all threads. Problem: what a thread remembers of a unit is old as soon as others move; with many threads and
//! nodes the published rule stands still or thrashes. Idea: a hill climb. First comes who has a unit with an idle core to go to where others of
//! its program suffer clearly less; else whom to move is drawn, by how many cycles it stalls, and it goes to any with an idle core; when all went everywhere alone, they change places with
//! each other; what all suffer before and after decides. In a toy model this was the stronger contestant in half of the settings.
//!
//! Properties: one trial at a time on the whole machine; nothing is tried twice in a round, and no exchange while anybody can still go
//! alone; what was kept begins a new round; after a round in which all failed it pauses, twice as long each time, [`PAUSE_MAX`] at most, and
//! tries half as much in the next.

use super::super::{Kind, Reason};
use super::trial::{End, Mover, lately, shortest};
use super::way::{Candidate, Proposal, Scene, Way, others};
use crate::ids::ThreadId;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::BTreeSet;

/// The longest pause.
const PAUSE_MAX: Span = Span::from_ms(5_000);
const DOUBLINGS: u32 = 10;

/// Weights are drawn in so many parts.
const PARTS: usize = 1 << 20;

/// The way of `serial`.
#[derive(Debug, Default)]
pub(super) struct Climb {
    /// What was tried in this round: who went where alone, and who changed places.
    alone: BTreeSet<(ThreadId, u16)>,
    pairs: BTreeSet<(ThreadId, ThreadId)>,
    /// How many trials this round had, and how many the first one.
    tried: usize,
    whole: usize,
    /// Rounds in vain.
    rounds: u32,
    rests: Moment,
}

/// All of these, in an order drawn by weight.
fn drawn(mut all: Vec<(Candidate, f64)>, random: &mut Random) -> Vec<Candidate> {
    let mut order = Vec::with_capacity(all.len());
    while !all.is_empty() {
        let whole: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut left = whole * random.below(PARTS) as f64 / PARTS as f64;
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

impl Climb {
    /// A new round.
    fn again(&mut self) {
        self.alone.clear();
        self.pairs.clear();
        self.tried = 0;
    }

    /// Where one could go alone that it did not in this round.
    fn alone(&self, one: &Candidate, scene: &Scene<'_>, random: &mut Random) -> Option<(f64, Proposal)> {
        let rank = |unit: u16| scene.herd.hint(one.i, unit).unwrap_or(1.0);
        let mut best: Option<(f64, usize, u16)> = None;
        for unit in others(scene, one.unit) {
            let goes = scene.may(one.i, unit) && scene.room(one.unit, unit) && !scene.hopeless(one.i, unit);
            if !goes || self.alone.contains(&(one.id, unit)) {
                continue;
            }
            let (rank, lot) = (rank(unit), random.below(PARTS));
            if best.is_none_or(|(least, other, _)| rank < least || rank <= least && lot < other) {
                best = Some((rank, lot, unit));
            }
        }
        best.map(|(rank, _, to)| (rank, Proposal { i: one.i, to, partner: None, reason: Reason::Explore }))
    }

    /// With whom one could change places that it did not in this round.
    fn exchange(&self, one: &Candidate, scene: &Scene<'_>, random: &mut Random) -> Option<Proposal> {
        let new = |j: &usize| !self.pairs.contains(&pair(one.id, scene.herd.sitter(*j).id));
        let partners: Vec<(u16, usize)> = others(scene, one.unit)
            .into_iter()
            .filter(|unit| scene.may(one.i, *unit) && !scene.hopeless(one.i, *unit))
            .flat_map(|unit| scene.partners(unit, one.unit).into_iter().map(move |(j, _)| (unit, j)))
            .filter(|(_, j)| new(j))
            .collect();
        let (to, partner) = *partners.get(random.below(partners.len().max(1)))?;
        Some(Proposal { i: one.i, to, partner: Some(partner), reason: Reason::Explore })
    }
}

impl Way for Climb {
    const KIND: Kind = Kind::Serial;
    const ALL: bool = true;

    fn propose(&mut self, scene: &Scene<'_>, random: &mut Random) -> Vec<Proposal> {
        if !scene.busy.is_empty() || scene.at < self.rests || scene.candidates.is_empty() {
            return Vec::new();
        }
        // Readings differ by a few per cent from second to second: nobody is left out altogether.
        let stalled = |one: &Candidate| {
            lately(scene.herd, one.id).and_then(|counts| counts.busy).unwrap_or(0) as f64 + 1.0
        };
        let ready = scene.candidates.iter().filter(|one| one.ready).map(|one| (*one, stalled(one)));
        let order = drawn(ready.collect(), random);
        if self.rounds == 0 || self.tried < (self.whole >> self.rounds.min(DOUBLINGS)).max(1) {
            let mut first: Option<(f64, Proposal)> = None;
            for one in &order {
                let Some((rank, proposal)) = self.alone(one, scene, random) else { continue };
                // What promises nothing counts as nothing: then the order that was drawn decides.
                let rank = if rank < 1.0 - 2.0 * scene.margin { rank } else { 1.0 };
                if first.as_ref().is_none_or(|(least, _)| rank < *least) {
                    first = Some((rank, proposal));
                }
            }
            if let Some((_, proposal)) = first {
                return vec![proposal];
            }
            if let Some(proposal) = order.iter().find_map(|one| self.exchange(one, scene, random)) {
                return vec![proposal];
            }
        }
        if !order.is_empty() {
            if self.rounds == 0 {
                self.whole = self.tried;
            }
            self.again();
            let pause =
                shortest(scene.tick, scene.least).times(f64::from(1_u32 << self.rounds.min(DOUBLINGS)));
            self.rests = scene.at + pause.min(PAUSE_MAX);
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

    fn learned(&mut self, movers: &[Mover], end: End, _at: Moment) {
        if let End::Kept(_) = end {
            self.again();
            // That it was worse there was just seen.
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
                // Who is left may be better off elsewhere now.
                self.rounds = 0;
            }
        }
    }
}
