//! Interface of a proposer: the input that it reads and the moves that it proposes. The engine
//! tries the moves.
//!
//! Properties: a proposer reads nothing else and moves no thread itself. Equal scenes and random
//! numbers give equal proposals.

use super::super::{Kind, Reason};
use super::move_evaluation::SamplesMin;
use super::move_trial::{Mover, TrialEnd};
use super::thread_stats::ThreadStats;
use super::units::UnitLoad;
use crate::ids::ThreadId;
use crate::observe::Observation;
use crate::penalty::GroupIndex;
use crate::stats::Random;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Thread that the policy may move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Candidate {
    /// Index in the thread table.
    pub(super) i: usize,
    pub(super) id: ThreadId,
    pub(super) unit: u16,
    /// Whether it can be moved at once: this balancer may move it, and it was counted often enough
    /// here.
    pub(super) ready: bool,
    /// Share of its time that it stalls.
    pub(super) weight: f64,
}

/// Input of a proposer.
pub(super) struct ProposerInput<'a> {
    pub(super) stats: &'a ThreadStats,
    pub(super) seen: &'a Observation<'a>,
    pub(super) at: Moment,
    pub(super) candidates: &'a [Candidate],
    pub(super) loads: &'a [UnitLoad],
    /// Index of all threads.
    pub(super) level: GroupIndex,
    pub(super) margin: f64,
    /// Units that take part in a trial.
    pub(super) busy: &'a [u16],
    /// Time between two samples.
    pub(super) tick: Span,
    /// Fewest samples that a trial compares.
    pub(super) samples_min: SamplesMin,
}

impl ProposerInput<'_> {
    /// Returns whether a unit takes part in no trial.
    pub(super) fn calm(&self, unit: u16) -> bool {
        !self.busy.contains(&unit)
    }

    /// Returns whether thread `i` may run in a unit at all.
    pub(super) fn may(&self, i: usize, unit: u16) -> bool {
        !self.stats.room(i, unit).is_empty()
    }

    /// Returns whether it is known that thread `i` would gain no more than the margin in another
    /// unit. Known only if threads are compared by their far memory alone and it was reported per
    /// node.
    pub(super) fn hopeless(&self, i: usize, unit: u16) -> bool {
        self.stats.farther(i, unit).is_some_and(|ratio| ratio > 1.0 - self.margin)
    }

    /// Returns whether a unit has room for a thread of another unit.
    pub(super) fn room(&self, from: u16, to: u16) -> bool {
        self.loads[usize::from(to)].room(&self.loads[usize::from(from)])
    }

    /// Returns the threads of a unit that could exchange places with a thread of another, with the
    /// share of time that each stalls.
    pub(super) fn partners(&self, unit: u16, from: u16) -> Vec<(usize, f64)> {
        let weight = |i: usize| {
            let history = self.stats.histories.get(&self.stats.thread(i).id);
            history.and_then(super::thread_stats::ThreadHistory::weight).unwrap_or(0.0)
        };
        (0..self.stats.len())
            .filter(|&i| {
                self.stats.unit(i) == Some(unit)
                    && self.stats.thread(i).active()
                    && self.stats.may_yield(i, &self.seen.threads[i])
                    && self.may(i, from)
            })
            .map(|i| (i, weight(i)))
            .collect()
    }
}

/// Move that a proposer wants to try.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Proposal {
    pub(super) i: usize,
    pub(super) to: u16,
    /// Thread that makes room in an exchange.
    pub(super) partner: Option<usize>,
    pub(super) reason: Reason,
}

/// Rule that chooses which thread moves where.
pub(super) trait Proposer: std::fmt::Debug {
    /// Name of the policy.
    const KIND: Kind;
    /// Whether one trial concerns all units.
    const ALL: bool;

    /// Proposes moves to try now. Called at every sample; the engine begins those that have free
    /// units and enough moves left.
    fn propose(&mut self, input: &ProposerInput<'_>, random: &mut Random) -> Vec<Proposal>;

    /// Records that a proposal was begun as a trial.
    fn began(&mut self, movers: &[Mover]);

    /// Records the end of a trial.
    fn learned(&mut self, movers: &[Mover], end: TrialEnd, at: Moment);

    /// Removes threads that ended, or everything if `alive` is `None`.
    fn forget(&mut self, alive: Option<&dyn Fn(ThreadId) -> bool>);
}

/// Keeps the entries of living threads; without `alive`, removes all entries.
pub(super) fn retain<T>(map: &mut BTreeMap<ThreadId, T>, alive: Option<&dyn Fn(ThreadId) -> bool>) {
    match alive {
        None => map.clear(),
        Some(alive) => map.retain(|id, _| alive(*id)),
    }
}

/// Returns the elements in random order.
pub(super) fn shuffled<T>(mut all: Vec<T>, random: &mut Random) -> Vec<T> {
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last + 1));
    }
    all
}

/// Returns all units of a scene except one.
pub(super) fn others(input: &ProposerInput<'_>, unit: u16) -> BTreeSet<u16> {
    (0..input.loads.len()).filter_map(|at| u16::try_from(at).ok()).filter(|at| *at != unit).collect()
}
