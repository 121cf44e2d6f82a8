//! What a way of choosing sees, and what it answers: the seam between the engine that tries moves and who proposes them.
//!
//! Properties: a way sees nothing else, and moves nobody itself; for equal scenes and random numbers it answers alike.

use super::super::{Kind, Reason};
use super::herd::Herd;
use super::judge::Least;
use super::trial::{End, Mover};
use super::units::Load;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::penalty::Level;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// A thread that the policy may move, as a way sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Candidate {
    /// Its place in the seating.
    pub(super) i: usize,
    pub(super) id: ThreadId,
    pub(super) unit: u16,
    /// Whether it can be moved at once: it is ours, and enough is known of it here.
    pub(super) ready: bool,
    /// What it stalls.
    pub(super) weight: f64,
}

/// What a way sees.
pub(super) struct Scene<'a> {
    pub(super) herd: &'a Herd,
    pub(super) seen: &'a Observation<'a>,
    pub(super) at: Moment,
    pub(super) candidates: &'a [Candidate],
    pub(super) loads: &'a [Load],
    /// The index of all.
    pub(super) level: Level,
    pub(super) margin: f64,
    /// Units that take part in a trial.
    pub(super) busy: &'a [u16],
    /// The time between two looks.
    pub(super) tick: Span,
    /// How many of them a trial compares at least.
    pub(super) least: Least,
}

impl Scene<'_> {
    /// Whether a unit takes part in no trial.
    pub(super) fn calm(&self, unit: u16) -> bool {
        !self.busy.contains(&unit)
    }

    /// Whether thread `i` may go from one unit to another at all.
    pub(super) fn may(&self, i: usize, unit: u16) -> bool {
        !self.herd.room(i, unit).is_empty()
    }

    /// Whether it is known that thread `i` would be no better off in another unit, or not by more than the margin: its memory is told
    /// node by node, and nothing else is.
    pub(super) fn hopeless(&self, i: usize, unit: u16) -> bool {
        self.herd.farther(i, unit).is_some_and(|ratio| ratio > 1.0 - self.margin)
    }

    /// Whether a thread of one unit finds room in another.
    pub(super) fn room(&self, from: u16, to: u16) -> bool {
        self.loads[usize::from(to)].room(&self.loads[usize::from(from)])
    }

    /// Who of a unit could change places with a thread of another, with what it stalls.
    pub(super) fn partners(&self, unit: u16, from: u16) -> Vec<(usize, f64)> {
        let weight = |i: usize| {
            let book = self.herd.books.get(&self.herd.sitter(i).id);
            book.and_then(super::herd::Book::weight).unwrap_or(0.0)
        };
        (0..self.herd.len())
            .filter(|&i| {
                self.herd.unit(i) == Some(unit)
                    && self.herd.sitter(i).active()
                    && self.herd.may_yield(i, &self.seen.threads[i])
                    && self.may(i, from)
            })
            .map(|i| (i, weight(i)))
            .collect()
    }
}

/// A move that a way wants tried.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Proposal {
    pub(super) i: usize,
    pub(super) to: u16,
    /// Who makes room.
    pub(super) partner: Option<usize>,
    pub(super) reason: Reason,
}

/// How it is chosen whom to move where.
pub(super) trait Way: std::fmt::Debug {
    /// Which policy this is.
    const KIND: Kind;
    /// Whether one trial concerns all units.
    const ALL: bool;

    /// What to try now. Called at every look; of these, those are begun for which units and moves are free.
    fn propose(&mut self, scene: &Scene<'_>, random: &mut Random) -> Vec<Proposal>;

    /// One of these was begun.
    fn began(&mut self, movers: &[Mover]);

    /// One of these is over.
    fn learned(&mut self, movers: &[Mover], end: End, at: Moment);

    /// Threads are gone, or nothing of before holds any more.
    fn forget(&mut self, alive: Option<&dyn Fn(ThreadId) -> bool>);
}

/// Threads by their ids.
pub(super) fn retain<T>(map: &mut BTreeMap<ThreadId, T>, alive: Option<&dyn Fn(ThreadId) -> bool>) {
    match alive {
        None => map.clear(),
        Some(alive) => map.retain(|id, _| alive(*id)),
    }
}

/// In an order that is drawn.
pub(super) fn shuffled<T>(mut all: Vec<T>, random: &mut Random) -> Vec<T> {
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last + 1));
    }
    all
}

/// The units of a scene but one.
pub(super) fn others(scene: &Scene<'_>, unit: u16) -> BTreeSet<u16> {
    (0..scene.loads.len()).filter_map(|at| u16::try_from(at).ok()).filter(|at| *at != unit).collect()
}
