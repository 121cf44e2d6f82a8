//! A move or an exchange on trial: preparation, execution, measurement, undoing.
//!
//! Problem: moves of other threads resemble the trial's own move, a state measured with cold caches
//! seems worse than it is, and half an exchange is worse than no exchange.
//!
//! Idea: the units of a trial belong to it until it is judged. Computing threads are kept in them
//! ([`trial_pins`](super::trial_pins)). Then the state is measured until the margin can be
//! resolved, without the first samples after earlier changes. Then the move is made, the first
//! samples are skipped again, and the two measurements are compared
//! ([`move_evaluation`](super::move_evaluation)).
//!
//! Properties: nothing is moved before every computing and countable thread of the units was
//! counted often enough ([`SamplesMin`]). If stalling threads come or go by other causes than the
//! trial, nothing can be concluded, and the move is undone. A move that cannot be completed is
//! undone completely, as far as its threads still exist. No phase lasts longer than
//! [`PHASE_TIME_MAX`], or than its samples need.

use super::super::thread_state::Binding;
use super::super::{Decision, Reason};
use super::move_evaluation::{BEFORE_MAX, BeforeAfter, SAMPLES_MIN, SamplesMin, compare, steady};
use super::thread_stats::{COLD_SAMPLES, CountSample, ThreadStats, sum};
use crate::counts::Counts;
use crate::ids::ThreadId;
use crate::penalty::{Index, Mean};
use crate::stats::Verdict;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Longest duration of a phase, if counts come rarely or threads sleep.
const PHASE_TIME_MAX: Span = Span::from_ms(3_000);
/// Longest duration of a phase in samples, if samples are far apart.
const PHASE_SAMPLES_MAX: f64 = 16.0;

/// Thread that goes from one unit to another.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mover {
    pub(super) id: ThreadId,
    pub(super) from: u16,
    pub(super) to: u16,
    /// Reason of the move.
    pub(super) reason: Reason,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The state before the move is measured.
    Measuring,
    /// The move was decided.
    Decided,
    /// The move was made.
    Settling,
    /// The move is undone.
    Undoing,
}

/// Outcome of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum TrialEnd {
    /// The move stays. Holds the factor by which the index changed.
    Kept(f64),
    /// The move was undone. Holds the factor by which the index changed, if known.
    Undone(Option<f64>),
    /// A thread of the trial ended, or another party places it now.
    Lost,
    /// Nothing was moved: the state could not be measured, or the move was no longer possible.
    Dropped,
}

/// Criteria of the judgement, and the present time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialTerms {
    pub(super) index: Index,
    pub(super) mean: Mean,
    pub(super) margin: f64,
    pub(super) at: Moment,
    /// Time between two samples.
    pub(super) tick: Span,
    /// Fewest samples that are compared.
    pub(super) samples_min: SamplesMin,
}

/// A move or an exchange on trial.
#[derive(Debug)]
pub(super) struct MoveTrial {
    pub(super) movers: Vec<Mover>,
    /// Units of the compared threads.
    pub(super) units: Vec<u16>,
    /// Threads that computed in these units before, with their units.
    units_before: BTreeMap<ThreadId, u16>,
    before: BTreeMap<ThreadId, Vec<CountSample>>,
    phase: Phase,
    /// Number of the sample and time at which the phase began.
    since: (u64, Moment),
    ratio: Option<f64>,
    lost: bool,
    /// Thread seconds that the trial cost.
    pub(super) cost: f64,
}

impl MoveTrial {
    /// Creates a trial that begins now. The threads of `units` are compared, and those that compute
    /// are kept there.
    pub(super) fn new(stats: &ThreadStats, movers: Vec<Mover>, units: Vec<u16>, at: Moment) -> Self {
        Self {
            units_before: BTreeMap::new(),
            before: BTreeMap::new(),
            units,
            movers,
            phase: Phase::Measuring,
            since: (stats.sample_number, at),
            ratio: None,
            lost: false,
            cost: 0.0,
        }
    }

    /// Runs one step. Returns its decisions, and the end of the trial if it is over.
    pub(super) fn step(
        &mut self,
        stats: &mut ThreadStats,
        terms: TrialTerms,
    ) -> (Vec<Decision>, Option<TrialEnd>) {
        let all: Vec<Option<usize>> = self.movers.iter().map(|mover| stats.find(mover.id)).collect();
        let ours = |index: &Option<usize>| index.is_some_and(|i| !stats.thread(i).taken());
        let lost = !all.iter().all(ours);
        let there = |stats: &ThreadStats| {
            self.movers.iter().zip(&all).all(|(mover, index)| {
                index.is_some_and(|i| stats.thread(i).binding == Binding::Within(mover.to))
            })
        };
        match self.phase {
            Phase::Measuring if lost => (Vec::new(), Some(TrialEnd::Lost)),
            Phase::Measuring => self.measure(stats, terms),
            // The remaining thread of an exchange goes back.
            Phase::Decided | Phase::Settling if lost => {
                self.lost = true;
                self.take_back(stats, terms)
            }
            Phase::Decided => {
                let waits = all.iter().flatten().any(|&i| stats.thread(i).waits());
                if waits && !self.late(terms) {
                    return (Vec::new(), None);
                }
                if !there(stats) {
                    return self.take_back(stats, terms);
                }
                stats.disturb(&self.units);
                self.enter(Phase::Settling, stats, terms);
                (Vec::new(), None)
            }
            Phase::Settling => {
                if !there(stats) {
                    // Its CPUs were lost, or it was released meanwhile.
                    self.lost = true;
                    return self.take_back(stats, terms);
                }
                self.judge(stats, terms)
            }
            Phase::Undoing => self.undo(stats, terms),
        }
    }

    fn enter(&mut self, phase: Phase, stats: &ThreadStats, terms: TrialTerms) {
        self.phase = phase;
        self.since = (stats.sample_number, terms.at);
    }

    fn late(&self, terms: TrialTerms) -> bool {
        terms.at.since(self.since.1) >= PHASE_TIME_MAX.max(terms.tick.times(PHASE_SAMPLES_MAX))
    }

    /// Returns the threads that compute in the units now, with their units.
    fn active(&self, stats: &ThreadStats) -> BTreeMap<ThreadId, u16> {
        let there = |i: usize| {
            let unit = stats.unit(i).filter(|unit| self.units.contains(unit))?;
            stats.thread(i).active().then(|| (stats.thread(i).id, unit))
        };
        (0..stats.len()).filter_map(there).collect()
    }

    /// Returns whether a stalling thread changed its unit, other than by the trial. Threads that do
    /// not stall have no effect.
    fn mixed_up(&self, stats: &ThreadStats) -> bool {
        let now = self.active(stats);
        let moved: BTreeSet<ThreadId> = self.movers.iter().map(|mover| mover.id).collect();
        let differs = |id: &ThreadId| now.get(id) != self.units_before.get(id) && !moved.contains(id);
        now.keys().chain(self.units_before.keys()).any(|id| differs(id) && stats.weighs(*id))
    }

    /// Measures the state before, and makes the move when the measurement is precise enough.
    fn measure(&mut self, stats: &mut ThreadStats, terms: TrialTerms) -> (Vec<Decision>, Option<TrialEnd>) {
        let dropped = (Vec::new(), Some(TrialEnd::Dropped));
        let waits = (0..stats.len())
            .any(|i| stats.thread(i).waits() && stats.unit(i).is_some_and(|unit| self.units.contains(&unit)));
        let moved = |mover: &Mover| stats.find(mover.id).and_then(|i| stats.unit(i)) != Some(mover.from);
        if self.late(terms) || self.movers.iter().any(moved) {
            return dropped;
        }
        if self.units_before.is_empty() || self.mixed_up(stats) {
            // The measurement starts again.
            self.units_before = self.active(stats);
        }
        if waits {
            return (Vec::new(), None);
        }
        let (mut before, mut fewest) = (BTreeMap::new(), usize::MAX);
        let quiet = stats.quiet(&self.units);
        for id in self.units_before.keys() {
            let Some(history) = stats.counted(*id) else { continue };
            let mut samples: Vec<CountSample> =
                history.recent.iter().copied().filter(|sample| sample.sample_number > quiet).collect();
            samples.drain(..samples.len().saturating_sub(BEFORE_MAX));
            fewest = fewest.min(samples.len());
            before.insert(*id, samples);
        }
        if fewest < terms.samples_min.before
            || !self.movers.iter().all(|mover| before.contains_key(&mover.id))
        {
            return (Vec::new(), None);
        }
        let moves = |id: &ThreadId| self.movers.iter().any(|mover| mover.id == *id);
        let pairs: Vec<BeforeAfter<'_>> = before
            .iter()
            .map(|(id, samples)| BeforeAfter { before: samples, after: &[], mover: moves(id) })
            .collect();
        if fewest < BEFORE_MAX && !steady(&pairs, terms.index, terms.mean, terms.margin) {
            return (Vec::new(), None);
        }
        self.before = before;
        self.go(stats, terms)
    }

    /// Makes the move, if all of its threads may still be moved.
    fn go(&mut self, stats: &mut ThreadStats, terms: TrialTerms) -> (Vec<Decision>, Option<TrialEnd>) {
        let planned = self.movers.iter().map(|mover| {
            let i = stats.find(mover.id).filter(|i| stats.movable(*i))?;
            let cpus = stats.room(i, mover.to);
            (!cpus.is_empty()).then(|| (i, mover.to, cpus, mover.reason.clone()))
        });
        let Some(planned) = planned.collect::<Option<Vec<_>>>() else {
            return (Vec::new(), Some(TrialEnd::Dropped));
        };
        let decisions = planned
            .into_iter()
            .map(|(i, to, cpus, reason)| stats.context.table.keep_within(i, to, cpus, reason))
            .collect();
        self.enter(Phase::Decided, stats, terms);
        (decisions, None)
    }

    /// Returns whether a thread was moved.
    pub(super) fn moved(&self) -> bool {
        self.phase != Phase::Measuring
    }

    fn take_back(&mut self, stats: &mut ThreadStats, terms: TrialTerms) -> (Vec<Decision>, Option<TrialEnd>) {
        stats.disturb(&self.units);
        self.enter(Phase::Undoing, stats, terms);
        self.undo(stats, terms)
    }

    /// Moves the remaining threads back. The trial is over when none is left.
    fn undo(&mut self, stats: &mut ThreadStats, terms: TrialTerms) -> (Vec<Decision>, Option<TrialEnd>) {
        let (mut decisions, mut left) = (Vec::new(), false);
        for mover in &self.movers {
            let Some(i) = stats.find(mover.id) else { continue };
            let thread = stats.thread(i);
            if thread.taken() || thread.binding != Binding::Within(mover.to) && !thread.waits() {
                continue;
            }
            left = true;
            if stats.movable(i) {
                let home = stats.room(i, mover.from);
                decisions.push(if home.is_empty() {
                    stats.context.table.release(i, Reason::Undo)
                } else {
                    stats.context.table.keep_within(i, mover.from, home, Reason::Undo)
                });
            }
        }
        if left && !self.late(terms) {
            return (decisions, None);
        }
        stats.disturb(&self.units);
        (decisions, Some(if self.lost { TrialEnd::Lost } else { TrialEnd::Undone(self.ratio) }))
    }

    fn judge(&mut self, stats: &mut ThreadStats, terms: TrialTerms) -> (Vec<Decision>, Option<TrialEnd>) {
        let late = self.late(terms);
        let mut afters = Vec::new();
        let mut fewest = usize::MAX;
        for (id, before) in &self.before {
            let Some(history) = stats.histories.get(id) else { continue };
            let after: Vec<CountSample> = history
                .recent
                .iter()
                .copied()
                .filter(|sample| sample.sample_number > self.since.0 + COLD_SAMPLES)
                .collect();
            let mover = self.movers.iter().any(|mover| mover.id == *id);
            if mover {
                fewest = fewest.min(after.len());
            }
            if after.len() >= SAMPLES_MIN {
                afters.push((before, after, mover));
            }
        }
        if self.mixed_up(stats) || late && fewest < terms.samples_min.after {
            return self.take_back(stats, terms);
        }
        if fewest < SAMPLES_MIN {
            return (Vec::new(), None);
        }
        let pairs: Vec<BeforeAfter<'_>> = afters
            .iter()
            .map(|(before, after, mover)| BeforeAfter { before, after, mover: *mover })
            .collect();
        let Some(change) = compare(&pairs, terms.index, terms.mean) else {
            return self.take_back(stats, terms);
        };
        match change.verdict(terms.margin, terms.samples_min, late) {
            Verdict::Unknown => (Vec::new(), None),
            Verdict::Better => (Vec::new(), Some(TrialEnd::Kept(change.ratio))),
            Verdict::Worse | Verdict::NoDifference => {
                let long = terms.at.since(self.since.1).seconds();
                self.cost = (change.ratio - 1.0).max(0.0) * pairs.len() as f64 * long;
                self.ratio = Some(change.ratio);
                self.take_back(stats, terms)
            }
        }
    }
}

/// Returns the shortest duration of a trial, at this time between samples.
pub(super) fn shortest(tick: Span, samples_min: SamplesMin) -> Span {
    tick.times((COLD_SAMPLES as usize + samples_min.after + samples_min.before) as f64)
}

/// Returns the sum of a thread's recent counts.
pub(super) fn recent_counts(stats: &ThreadStats, id: ThreadId) -> Option<Counts> {
    stats.histories.get(&id).and_then(|history| sum(&history.recent))
}

#[cfg(test)]
mod tests {
    use super::super::super::Settings;
    use super::super::testing::met;
    use super::*;
    use crate::topology::parse_synthetic;

    #[test]
    fn no_trial_waits_for_counts_longer_than_a_phase_may_last() {
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let mut stats = ThreadStats::new(&machine, &Settings::default());
        met(&machine, &mut stats, &[0]);
        // With samples far apart, three seconds would not hold enough of them.
        for (tick, last) in [(Span::from_ms(10), 3_000), (Span::from_ms(1_000), 16_000)] {
            let begin = Moment(9_000_000_000);
            let mover = Mover { id: ThreadId(0), from: 0, to: 1, reason: Reason::Explore };
            let mut trial = MoveTrial::new(&stats, vec![mover], vec![0, 1], begin);
            let mut step = |ms: u64| {
                let at = begin + Span::from_ms(ms);
                let terms = TrialTerms {
                    index: Index::Busy,
                    mean: Mean::Weighted,
                    margin: 0.03,
                    at,
                    tick,
                    samples_min: SamplesMin::on(None),
                };
                trial.step(&mut stats, terms)
            };
            assert_eq!(step(0), (Vec::new(), None));
            assert_eq!(step(last - 1), (Vec::new(), None));
            assert_eq!(step(last), (Vec::new(), Some(TrialEnd::Dropped)));
        }
    }
}
