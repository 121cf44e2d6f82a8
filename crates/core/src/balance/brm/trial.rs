//! A move, or an exchange, on trial: how it is prepared, done, watched, and taken back.
//!
//! Problem: moves of other threads look like one's own, a state that was measured with cold caches looks worse than it is, and half an
//! exchange is worse than none. Idea: a move has its units to itself until it is judged. Who computes there is kept there ([`fence`](super::fence));
//! then as much is measured as it takes to tell the margin, without the first looks after whatever happened there before; then it is
//! done, the first looks are left out again, and what was is compared with what is ([`judge`](super::judge)).
//!
//! Properties: nothing is moved before every thread that computes there and can be counted was counted as often as it takes ([`Least`]); when
//! threads that suffer come or go by other hands than the trial's, nothing can be told, and it is undone; what cannot be done
//! whole is undone whole, as far as threads are left; no phase lasts longer than [`LATE`], or what its looks need.

use super::super::sitter::Standing;
use super::super::{Decision, Reason};
use super::herd::{COLD, Herd, Tick, sum};
use super::judge::{BEFORE_MAX, Least, Pair, SAMPLES_MIN, compare, steady};
use crate::counts::Counts;
use crate::ids::ThreadId;
use crate::penalty::{Index, Mean};
use crate::stats::Verdict;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// A phase that lasts longer is given up: counts that come seldom, threads that sleep. Where looks are far apart, it lasts [`LATE_LOOKS`].
const LATE: Span = Span::from_ms(3_000);
const LATE_LOOKS: f64 = 16.0;

/// A thread that goes from one unit to another.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mover {
    pub(super) id: ThreadId,
    pub(super) from: u16,
    pub(super) to: u16,
    /// Why.
    pub(super) reason: Reason,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// What is there is measured.
    Measuring,
    /// It was decided.
    Asked,
    /// It was done.
    Settling,
    /// It is taken back.
    Undoing,
}

/// How a trial ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum End {
    /// It stays, and by what factor the index changed.
    Kept(f64),
    /// It was taken back; by what factor the index changed, if that could be told.
    Undone(Option<f64>),
    /// A thread of it ended, or is not ours any more.
    Lost,
    /// Nothing was moved: what is there could not be measured, or the move was not possible any more.
    Dropped,
}

/// By what trials are judged, and when it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) index: Index,
    pub(super) mean: Mean,
    pub(super) margin: f64,
    pub(super) at: Moment,
    /// The time between two looks.
    pub(super) tick: Span,
    /// So many of them are compared.
    pub(super) least: Least,
}

/// A move, or an exchange, on trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) movers: Vec<Mover>,
    /// The units that it concerns.
    pub(super) units: Vec<u16>,
    /// Who computed there, and in which of them.
    places: BTreeMap<ThreadId, u16>,
    before: BTreeMap<ThreadId, Vec<Tick>>,
    phase: Phase,
    /// The look and the moment at which the phase began.
    since: (u64, Moment),
    ratio: Option<f64>,
    lost: bool,
    /// Seconds of threads that it cost.
    pub(super) cost: f64,
}

impl Trial {
    /// One that begins now. `units` are those whose threads are compared; who computes there is kept there.
    pub(super) fn new(herd: &Herd, movers: Vec<Mover>, units: Vec<u16>, at: Moment) -> Self {
        Self {
            places: BTreeMap::new(),
            before: BTreeMap::new(),
            units,
            movers,
            phase: Phase::Measuring,
            since: (herd.look, at),
            ratio: None,
            lost: false,
            cost: 0.0,
        }
    }

    /// What is to be done now, and whether it is over.
    pub(super) fn step(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        let all: Vec<Option<usize>> = self.movers.iter().map(|mover| herd.find(mover.id)).collect();
        let ours = |place: &Option<usize>| place.is_some_and(|i| !herd.sitter(i).taken());
        let lost = !all.iter().all(ours);
        let there = |herd: &Herd| {
            self.movers.iter().zip(&all).all(|(mover, place)| {
                place.is_some_and(|i| herd.sitter(i).standing == Standing::Within(mover.to))
            })
        };
        match self.phase {
            Phase::Measuring if lost => (Vec::new(), Some(End::Lost)),
            Phase::Measuring => self.measure(herd, terms),
            // Who is left of an exchange goes back.
            Phase::Asked | Phase::Settling if lost => {
                self.lost = true;
                self.take_back(herd, terms)
            }
            Phase::Asked => {
                let waits = all.iter().flatten().any(|&i| herd.sitter(i).waits());
                if waits && !self.late(terms) {
                    return (Vec::new(), None);
                }
                if !there(herd) {
                    return self.take_back(herd, terms);
                }
                herd.disturb(&self.units);
                self.enter(Phase::Settling, herd, terms);
                (Vec::new(), None)
            }
            Phase::Settling => {
                if !there(herd) {
                    // Its CPUs were lost, or it was given back meanwhile.
                    self.lost = true;
                    return self.take_back(herd, terms);
                }
                self.judge(herd, terms)
            }
            Phase::Undoing => self.undo(herd, terms),
        }
    }

    fn enter(&mut self, phase: Phase, herd: &Herd, terms: Terms) {
        self.phase = phase;
        self.since = (herd.look, terms.at);
    }

    fn late(&self, terms: Terms) -> bool {
        terms.at.since(self.since.1) >= LATE.max(terms.tick.times(LATE_LOOKS))
    }

    /// Who computes in the units now, and in which.
    fn active(&self, herd: &Herd) -> BTreeMap<ThreadId, u16> {
        let there = |i: usize| {
            let unit = herd.unit(i).filter(|unit| self.units.contains(unit))?;
            herd.sitter(i).active().then(|| (herd.sitter(i).id, unit))
        };
        (0..herd.len()).filter_map(there).collect()
    }

    /// Whether who suffers is not where it was, but for whom the trial moved; who does not is not felt.
    fn mixed_up(&self, herd: &Herd) -> bool {
        let now = self.active(herd);
        let moved: BTreeSet<ThreadId> = self.movers.iter().map(|mover| mover.id).collect();
        let differs = |id: &ThreadId| now.get(id) != self.places.get(id) && !moved.contains(id);
        now.keys().chain(self.places.keys()).any(|id| differs(id) && herd.weighs(*id))
    }

    /// Measures what is there, and moves when that is known well enough.
    fn measure(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        let dropped = (Vec::new(), Some(End::Dropped));
        let waits = (0..herd.len())
            .any(|i| herd.sitter(i).waits() && herd.unit(i).is_some_and(|unit| self.units.contains(&unit)));
        let moved = |mover: &Mover| herd.find(mover.id).and_then(|i| herd.unit(i)) != Some(mover.from);
        if self.late(terms) || self.movers.iter().any(moved) {
            return dropped;
        }
        if self.places.is_empty() || self.mixed_up(herd) {
            // What counts is measured from now on.
            self.places = self.active(herd);
        }
        if waits {
            return (Vec::new(), None);
        }
        let (mut before, mut fewest) = (BTreeMap::new(), usize::MAX);
        let quiet = herd.quiet(&self.units);
        for id in self.places.keys() {
            let Some(book) = herd.counted(*id) else { continue };
            let mut looks: Vec<Tick> = book.recent.iter().copied().filter(|tick| tick.look > quiet).collect();
            looks.drain(..looks.len().saturating_sub(BEFORE_MAX));
            fewest = fewest.min(looks.len());
            before.insert(*id, looks);
        }
        if fewest < terms.least.before || !self.movers.iter().all(|mover| before.contains_key(&mover.id)) {
            return (Vec::new(), None);
        }
        let moves = |id: &ThreadId| self.movers.iter().any(|mover| mover.id == *id);
        let pairs: Vec<Pair<'_>> =
            before.iter().map(|(id, looks)| Pair { before: looks, after: &[], mover: moves(id) }).collect();
        if fewest < BEFORE_MAX && !steady(&pairs, terms.index, terms.mean, terms.margin) {
            return (Vec::new(), None);
        }
        self.before = before;
        self.go(herd, terms)
    }

    /// Moves who is to be moved, if all of them still may be.
    fn go(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        let ways = self.movers.iter().map(|mover| {
            let i = herd.find(mover.id).filter(|i| herd.movable(*i))?;
            let cpus = herd.room(i, mover.to);
            (!cpus.is_empty()).then(|| (i, mover.to, cpus, mover.reason.clone()))
        });
        let Some(ways) = ways.collect::<Option<Vec<_>>>() else { return (Vec::new(), Some(End::Dropped)) };
        let decisions = ways
            .into_iter()
            .map(|(i, to, cpus, reason)| herd.base.seating.keep_within(i, to, cpus, reason))
            .collect();
        self.enter(Phase::Asked, herd, terms);
        (decisions, None)
    }

    /// Whether anybody was moved.
    pub(super) fn moved(&self) -> bool {
        self.phase != Phase::Measuring
    }

    fn take_back(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        herd.disturb(&self.units);
        self.enter(Phase::Undoing, herd, terms);
        self.undo(herd, terms)
    }

    /// Puts back who is not back yet; over when nobody is left to put back.
    fn undo(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        let (mut decisions, mut left) = (Vec::new(), false);
        for mover in &self.movers {
            let Some(i) = herd.find(mover.id) else { continue };
            let sitter = herd.sitter(i);
            if sitter.taken() || sitter.standing != Standing::Within(mover.to) && !sitter.waits() {
                continue;
            }
            left = true;
            if herd.movable(i) {
                let home = herd.room(i, mover.from);
                decisions.push(if home.is_empty() {
                    herd.base.seating.release(i, Reason::Undo)
                } else {
                    herd.base.seating.keep_within(i, mover.from, home, Reason::Undo)
                });
            }
        }
        if left && !self.late(terms) {
            return (decisions, None);
        }
        herd.disturb(&self.units);
        (decisions, Some(if self.lost { End::Lost } else { End::Undone(self.ratio) }))
    }

    fn judge(&mut self, herd: &mut Herd, terms: Terms) -> (Vec<Decision>, Option<End>) {
        let late = self.late(terms);
        let mut afters = Vec::new();
        let mut fewest = usize::MAX;
        for (id, before) in &self.before {
            let Some(book) = herd.books.get(id) else { continue };
            let after: Vec<Tick> =
                book.recent.iter().copied().filter(|tick| tick.look > self.since.0 + COLD).collect();
            let mover = self.movers.iter().any(|mover| mover.id == *id);
            if mover {
                fewest = fewest.min(after.len());
            }
            if after.len() >= SAMPLES_MIN {
                afters.push((before, after, mover));
            }
        }
        if self.mixed_up(herd) || late && fewest < terms.least.after {
            return self.take_back(herd, terms);
        }
        if fewest < SAMPLES_MIN {
            return (Vec::new(), None);
        }
        let pairs: Vec<Pair<'_>> =
            afters.iter().map(|(before, after, mover)| Pair { before, after, mover: *mover }).collect();
        let Some(change) = compare(&pairs, terms.index, terms.mean) else {
            return self.take_back(herd, terms);
        };
        match change.verdict(terms.margin, terms.least, late) {
            Verdict::Unknown => (Vec::new(), None),
            Verdict::Better => (Vec::new(), Some(End::Kept(change.ratio))),
            Verdict::Worse | Verdict::NoDifference => {
                let long = terms.at.since(self.since.1).seconds();
                self.cost = (change.ratio - 1.0).max(0.0) * pairs.len() as f64 * long;
                self.ratio = Some(change.ratio);
                self.take_back(herd, terms)
            }
        }
    }
}

/// For how long a trial lasts at least, at this time between looks.
pub(super) fn shortest(tick: Span, least: Least) -> Span {
    tick.times((COLD as usize + least.after + least.before) as f64)
}

/// The counts of a thread's recent looks.
pub(super) fn lately(herd: &Herd, id: ThreadId) -> Option<Counts> {
    herd.books.get(&id).and_then(|book| sum(&book.recent))
}

#[cfg(test)]
mod tests {
    use super::super::super::Settings;
    use super::super::testing::met;
    use super::*;
    use crate::topology::parse_synthetic;

    #[test]
    fn nobody_waits_for_counts_for_longer_than_a_trial_may_last() {
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let mut herd = Herd::new(&machine, &Settings::default());
        met(&machine, &mut herd, &[0]);
        // Where looks are far apart they would not be enough in three seconds.
        for (tick, last) in [(Span::from_ms(10), 3_000), (Span::from_ms(1_000), 16_000)] {
            let begin = Moment(9_000_000_000);
            let mover = Mover { id: ThreadId(0), from: 0, to: 1, reason: Reason::Explore };
            let mut trial = Trial::new(&herd, vec![mover], vec![0, 1], begin);
            let mut step = |ms: u64| {
                let at = begin + Span::from_ms(ms);
                let terms = Terms {
                    index: Index::Busy,
                    mean: Mean::Weighted,
                    margin: 0.03,
                    at,
                    tick,
                    least: Least::on(None),
                };
                trial.step(&mut herd, terms)
            };
            assert_eq!(step(0), (Vec::new(), None));
            assert_eq!(step(last - 1), (Vec::new(), None));
            assert_eq!(step(last), (Vec::new(), Some(End::Dropped)));
        }
    }
}
