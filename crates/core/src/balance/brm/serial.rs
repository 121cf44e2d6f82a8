//! `serial`: one move or exchange at a time, kept if all suffer less for it.
//!
//! Unit: the index of all threads. Problem: what a thread remembers of a unit is old as soon as others move; with many threads and
//! nodes the published rule stands still or thrashes. Idea: a hill climb without memory. Whom to move is drawn, by how many cycles it
//! stalls; where to is drawn among the units with an idle core, or it changes places with a thread drawn elsewhere; what all suffer
//! before and after decides. In a toy model this was the stronger contestant in half of the settings.
//!
//! Properties: one trial at a time on the whole machine; after a round in which as many trials failed as there are threads and units to try,
//! it pauses, and twice as long after each further round, half a minute at most.

use super::super::{Kind, Reason};
use super::engine::{Candidate, Proposal, Scene, Way, others};
use super::trial::{End, Mover, lately, shortest};
use crate::ids::ThreadId;
use crate::stats::Random;
use crate::time::{Moment, Span};

/// The longest pause.
const PAUSE_MAX: Span = Span::from_ms(30_000);
const DOUBLINGS: u32 = 10;

/// Weights are drawn in so many parts.
const PARTS: usize = 1 << 20;

/// The way of `serial`.
#[derive(Debug, Default)]
pub(super) struct Climb {
    failures: u32,
    rests: Moment,
    /// How many trials make a round, and how long one takes.
    round: u32,
    long: Span,
}

/// One of these, by weight.
fn drawn<'a>(all: &[&'a Candidate], weights: &[f64], random: &mut Random) -> Option<&'a Candidate> {
    let whole: f64 = weights.iter().sum();
    let mut left = whole * random.below(PARTS) as f64 / PARTS as f64;
    for (one, weight) in all.iter().zip(weights) {
        if left < *weight {
            return Some(one);
        }
        left -= weight;
    }
    all.last().copied()
}

impl Way for Climb {
    const KIND: Kind = Kind::Serial;
    const ALL: bool = true;

    fn propose(&mut self, scene: &Scene<'_>, random: &mut Random) -> Vec<Proposal> {
        let units = scene.loads.len().saturating_sub(1);
        self.round = u32::try_from(scene.candidates.len() * units).unwrap_or(u32::MAX).max(1);
        self.long = shortest(scene.tick);
        if !scene.busy.is_empty() || scene.at < self.rests {
            return Vec::new();
        }
        let ready: Vec<&Candidate> = scene.candidates.iter().filter(|one| one.ready).collect();
        // Readings differ by a few per cent from second to second: nobody is left out altogether.
        let stalled = |one: &&Candidate| {
            lately(scene.herd, one.id).and_then(|counts| counts.busy).unwrap_or(0) as f64 + 1.0
        };
        let weights: Vec<f64> = ready.iter().map(stalled).collect();
        let Some(one) = drawn(&ready, &weights, random) else { return Vec::new() };
        let may: Vec<u16> =
            others(scene, one.unit).into_iter().filter(|unit| scene.may(one.i, *unit)).collect();
        let free: Vec<u16> = may.iter().copied().filter(|unit| scene.room(one.unit, *unit)).collect();
        if !free.is_empty() && random.below(2) == 0 {
            let to = free[random.below(free.len())];
            return vec![Proposal { i: one.i, to, partner: None, reason: Reason::Explore }];
        }
        let partners: Vec<(u16, usize)> = may
            .iter()
            .flat_map(|unit| scene.partners(*unit, one.unit).into_iter().map(|(j, _)| (*unit, j)))
            .collect();
        if partners.is_empty() {
            return Vec::new();
        }
        let (to, partner) = partners[random.below(partners.len())];
        vec![Proposal { i: one.i, to, partner: Some(partner), reason: Reason::Explore }]
    }

    fn began(&mut self, _movers: &[Mover]) {}

    fn learned(&mut self, _movers: &[Mover], end: End, at: Moment) {
        match end {
            End::Kept(_) => self.failures = 0,
            End::Undone(_) | End::Lost => self.failures = self.failures.saturating_add(1),
        }
        let rounds = (self.failures / self.round.max(1)).min(DOUBLINGS);
        if rounds > 0 {
            self.rests = at + self.long.times(f64::from(1_u32 << rounds)).min(PAUSE_MAX);
        }
    }

    fn forget(&mut self, alive: Option<&dyn Fn(ThreadId) -> bool>) {
        if alive.is_none() {
            *self = Self::default();
        }
    }
}
