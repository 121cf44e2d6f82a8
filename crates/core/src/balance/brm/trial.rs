//! Whether a move helped: what its units suffer after it against what they suffered before.
//!
//! Unit: parts of the index before. Problem: one look in three has the wrong sign, moves of other threads look like one's own, and
//! a mean over threads that do different things rises when the one that suffers most gets better. Idea: a move has its units to itself
//! until it is judged. Each thread there weighs after the move what it weighed before ([`change`](crate::penalty::change)),
//! and the scatter from look to look says how much of a difference is believed. Waiting for a CPU counts too: what threads wanted over
//! what they had.
//!
//! Properties: the first looks after a move are left out, since caches are cold; a move is kept only if all together save more than
//! the margin of what the moved threads take, so that one of many can still pass, and more than [`SURE`] standard errors of it, for
//! which more looks are taken if need be; what cannot be compared is undone. Where cycles are counted, what is saved is a part of
//! them: a third less of stalls that are a tenth of the time is a thirtieth.

use super::super::sitter::Standing;
use super::super::{Decision, Reason};
use super::herd::{Herd, KEPT, Tick, sum};
use crate::counts::Counts;
use crate::ids::ThreadId;
use crate::penalty::{Index, Mean, weight};
use crate::time::Span;
use std::collections::BTreeMap;

/// So many looks are left out after a move, and so many are compared at least and at most.
const COLD: u64 = 2;
pub(super) const BEFORE: usize = 5;
const AFTER: usize = 8;
const AFTER_MAX: usize = KEPT - 4;

/// Who was counted less often than this is not compared.
const COUNTED: usize = 3;

/// So many standard errors are believed at the end of a trial. Who asks at every look is told a chance difference some time: early ones must
/// be larger, by the root of what is missing (the boundary of O'Brien and Fleming).
const SURE: f64 = 2.0;

/// A trial that is not over by then is undone: counts that come seldom, threads that sleep. In looks.
const LOOKS_MAX: u64 = 200;

/// What a trial says so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Verdict {
    /// Not enough was seen.
    Open,
    /// Better, by what factor the index changed.
    Better(f64),
    /// Worse, or alike.
    Vain(f64),
    /// It cannot be told.
    Unlike,
}

/// A thread that goes from one unit to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mover {
    pub(super) id: ThreadId,
    pub(super) from: u16,
    pub(super) to: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It was decided in this look.
    Asked(u64),
    /// It was done at this look.
    Settling(u64),
    /// It is taken back since this look; whether that is because it was no good, or because it was only done in part.
    Undoing(u64),
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
}

/// A move, or an exchange, on trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) movers: Vec<Mover>,
    /// The units that it concerns.
    pub(super) units: Vec<u16>,
    before: BTreeMap<ThreadId, Vec<Tick>>,
    /// How many threads computed there.
    active: usize,
    phase: Phase,
    end: Option<f64>,
}

impl Trial {
    /// One that begins now. `units` are those whose threads are compared.
    pub(super) fn new(herd: &Herd, movers: Vec<Mover>, units: Vec<u16>) -> Self {
        let before = (0..herd.len()).filter_map(|i| {
            let id = herd.sitter(i).id;
            let book = herd.books.get(&id).filter(|book| book.recent.len() >= COUNTED)?;
            let there = herd.unit(i).is_some_and(|unit| units.contains(&unit));
            there.then(|| (id, book.recent.iter().copied().collect()))
        });
        let before = before.collect();
        let active = active(herd, &units);
        Self { before, active, units, movers, phase: Phase::Asked(herd.look), end: None }
    }

    /// What is to be done now, and whether it is over.
    pub(super) fn step(
        &mut self,
        herd: &mut Herd,
        index: Index,
        mean: Mean,
        margin: f64,
    ) -> (Vec<Decision>, Option<End>) {
        let places: Vec<Option<usize>> = self.movers.iter().map(|mover| herd.find(mover.id)).collect();
        let ours = |place: &Option<usize>| place.is_some_and(|i| !herd.sitter(i).taken());
        if !places.iter().all(ours) && !matches!(self.phase, Phase::Undoing(_)) {
            herd.disturb(&self.units);
            return (Vec::new(), Some(End::Lost));
        }
        let there = |(mover, place): (&Mover, &Option<usize>)| {
            place.is_some_and(|i| herd.sitter(i).standing == Standing::Within(mover.to))
        };
        match self.phase {
            Phase::Asked(since) => {
                let waits = places.iter().flatten().any(|&i| herd.sitter(i).waits());
                if waits && herd.look < since + LOOKS_MAX {
                    return (Vec::new(), None);
                }
                let all = self.movers.iter().zip(&places).all(there);
                herd.disturb(&self.units);
                self.phase = if all { Phase::Settling(herd.look) } else { Phase::Undoing(herd.look) };
                if all { (Vec::new(), None) } else { self.undo(herd) }
            }
            Phase::Settling(since) => {
                if !self.movers.iter().zip(&places).all(there) {
                    // Its CPUs were lost, or it was given back meanwhile.
                    herd.disturb(&self.units);
                    return (Vec::new(), Some(End::Lost));
                }
                match self.judge(herd, since, index, mean, margin) {
                    Verdict::Open => (Vec::new(), None),
                    Verdict::Better(ratio) => (Vec::new(), Some(End::Kept(ratio))),
                    Verdict::Vain(ratio) => {
                        self.end = Some(ratio);
                        self.phase = Phase::Undoing(herd.look);
                        self.undo(herd)
                    }
                    Verdict::Unlike => {
                        self.phase = Phase::Undoing(herd.look);
                        self.undo(herd)
                    }
                }
            }
            Phase::Undoing(_) => self.undo(herd),
        }
    }

    /// Puts back who is not back yet; over when nobody is left to put back.
    fn undo(&mut self, herd: &mut Herd) -> (Vec<Decision>, Option<End>) {
        let Phase::Undoing(since) = self.phase else { return (Vec::new(), None) };
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
        if left && herd.look < since + LOOKS_MAX {
            return (decisions, None);
        }
        herd.disturb(&self.units);
        (decisions, Some(End::Undone(self.end)))
    }

    fn judge(&self, herd: &Herd, since: u64, index: Index, mean: Mean, margin: f64) -> Verdict {
        let late = herd.look >= since + LOOKS_MAX;
        let mut pairs = Vec::new();
        for (id, before) in &self.before {
            let Some(book) = herd.books.get(id) else { continue };
            let after: Vec<Tick> =
                book.recent.iter().copied().filter(|tick| tick.look > since + COLD).collect();
            let mover = self.movers.iter().any(|mover| mover.id == *id);
            if mover && after.len() < AFTER {
                return if late { Verdict::Unlike } else { Verdict::Open };
            }
            if after.len() >= COUNTED {
                pairs.push((before.as_slice(), after, mover));
            }
        }
        if active(herd, &self.units) != self.active {
            return Verdict::Unlike;
        }
        let looks = pairs.iter().map(|(_, after, _)| after.len()).max().unwrap_or(0);
        let pairs: Vec<Pair<'_>> =
            pairs.iter().map(|(before, after, mover)| Pair { before, after, mover: *mover }).collect();
        let Some(change) = compare(&pairs, index, mean) else { return Verdict::Unlike };
        let (gain, least) = (1.0 - change.ratio, margin * change.movers);
        let last = late || looks >= AFTER_MAX;
        let early = (AFTER_MAX as f64 / looks.max(1) as f64).sqrt().max(1.0);
        let sure = gain > SURE * early * change.error;
        // What it would have to come to in the end, which is not hoped for any more when it is a whole error away.
        let needed = least.max(SURE * change.error / early);
        if gain > least && sure {
            Verdict::Better(change.ratio)
        } else if last || gain + change.error < needed {
            Verdict::Vain(change.ratio)
        } else {
            Verdict::Open
        }
    }
}

fn active(herd: &Herd, units: &[u16]) -> usize {
    let there = |i: &usize| herd.unit(*i).is_some_and(|unit| units.contains(&unit));
    (0..herd.len()).filter(|i| herd.sitter(*i).active() && there(i)).count()
}

/// A thread before and after.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) before: &'a [Tick],
    pub(super) after: &'a [Tick],
    /// Whether it was moved.
    pub(super) mover: bool,
}

/// What changed over some threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    /// By what factor the time that they need changed, or the index where cycles are not counted.
    pub(super) ratio: f64,
    /// The standard error of that.
    pub(super) error: f64,
    /// The part of the whole that the moved ones had.
    pub(super) movers: f64,
}

/// What changed over threads as they were before and after; `None` where nothing can be compared.
pub(super) fn compare(threads: &[Pair<'_>], index: Index, mean: Mean) -> Option<Change> {
    // Stalls are cycles: where all are counted, what matters is how much of them is saved.
    let cycles = |counts: &Counts| match (index, mean) {
        (Index::Busy | Index::Penalty | Index::Estimate, Mean::Weighted) => {
            counts.cycles.map(|cycles| cycles as f64)
        }
        _ => None,
    };
    let all_cycles = threads.iter().all(|pair| sum(pair.before).is_some_and(|all| cycles(&all).is_some()));
    let (mut saved, mut whole, mut moved) = (0.0, 0.0, 0.0);
    let (mut befores, mut afters) = (Series::default(), Series::default());
    let (mut waited_then, mut waited_now) = ((0.0, 0.0), (0.0, 0.0));
    for Pair { before, after, mover } in threads {
        let (Some(all), Some(all_after)) = (sum(*before), sum(*after)) else { continue };
        let Some(((weight, was), is)) = weight(index, mean, &all).zip(index.of(&all_after)) else { continue };
        let part = cycles(&all).filter(|_| all_cycles).unwrap_or(weight * was);
        saved += weight * (was - is);
        whole += part;
        moved += if *mover { part } else { 0.0 };
        befores.add(before, index, weight, was);
        afters.add(after, index, weight, is);
        let ran = |ticks: &[Tick]| {
            ticks.iter().try_fold((0.0, 0.0), |(ran, wanted), tick| {
                tick.ran.map(|(more, want)| (ran + more, wanted + want))
            })
        };
        if let Some((b, a)) = ran(before).zip(ran(after)) {
            waited_then = (waited_then.0 + b.0, waited_then.1 + b.1);
            waited_now = (waited_now.0 + a.0, waited_now.1 + a.1);
        }
    }
    if whole <= 0.0 {
        return None;
    }
    let delay = |(ran, wanted): (f64, f64)| if ran > 0.0 { (wanted / ran).max(1.0) } else { 1.0 };
    let ratio = (1.0 - saved / whole) * delay(waited_now) / delay(waited_then);
    let error = (befores.error(whole).powi(2) + afters.error(whole).powi(2)).sqrt();
    Some(Change { ratio, error, movers: moved / whole })
}

/// The weighted sum of the index, look by look.
#[derive(Default)]
struct Series {
    looks: BTreeMap<u64, f64>,
}

impl Series {
    /// Adds how far one thread's looks are from its mean.
    fn add(&mut self, ticks: &[Tick], index: Index, weight: f64, mean: f64) {
        for tick in ticks {
            if let Some(value) = index.of(&tick.counts) {
                *self.looks.entry(tick.look).or_default() += weight * (value - mean);
            }
        }
    }

    /// The standard error of the mean, as a part of a whole.
    fn error(&self, whole: f64) -> f64 {
        let count = self.looks.len() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let squares: f64 = self.looks.values().map(|off| (off / whole).powi(2)).sum();
        (squares / (count - 1.0) / count).sqrt()
    }
}

/// For how long a trial lasts at least, at this time between looks.
pub(super) fn shortest(tick: Span) -> Span {
    tick.times((COLD as usize + AFTER + BEFORE) as f64)
}

/// The counts of a thread's recent looks.
pub(super) fn lately(herd: &Herd, id: ThreadId) -> Option<Counts> {
    herd.books.get(&id).and_then(|book| sum(&book.recent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[u64], requests: u64) -> Vec<Tick> {
        let tick = |(look, value): (usize, &u64)| Tick {
            look: look as u64,
            counts: Counts { busy: Some(value * requests), requests: Some(requests), ..Counts::default() },
            ran: None,
        };
        values.iter().enumerate().map(tick).collect()
    }

    fn pair<'a>(before: &'a [Tick], after: &'a [Tick]) -> Pair<'a> {
        Pair { before, after, mover: false }
    }

    #[test]
    fn threads_weigh_what_they_weighed_before() {
        let (a0, a1) = (ticks(&[100; 6], 10), ticks(&[80; 6], 90));
        let (b0, b1) = (ticks(&[10; 6], 100), ticks(&[10; 6], 100));
        let all = [Pair { mover: true, ..pair(&a0, &a1) }, pair(&b0, &b1)];
        let change = compare(&all, Index::Penalty, Mean::Weighted).unwrap();
        assert!((change.ratio - 0.9).abs() < 1e-9 && change.error < 1e-9, "{change:?}");
        assert!((change.movers - 0.5).abs() < 1e-9, "{change:?}");
        let sum = compare(&all, Index::Penalty, Mean::Sum).unwrap();
        assert!((sum.ratio - 90.0 / 110.0).abs() < 1e-9, "{sum:?}");
        assert_eq!(compare(&all, Index::Cpi, Mean::Sum), None, "not counted");
    }

    #[test]
    fn what_is_saved_is_a_part_of_all_cycles_where_they_are_counted() {
        let with = |mut ticks: Vec<Tick>| {
            ticks.iter_mut().for_each(|tick| tick.counts.cycles = Some(10_000));
            ticks
        };
        let (before, after) = (with(ticks(&[100; 6], 10)), with(ticks(&[80; 6], 10)));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Weighted).unwrap();
        assert!((change.ratio - 0.98).abs() < 1e-9, "{change:?}");
    }

    #[test]
    fn scatter_is_the_error_of_the_mean() {
        let (before, after) = (ticks(&[90, 110, 90, 110], 1), ticks(&[100; 4], 1));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Sum).unwrap();
        // Deviations of a tenth: sqrt(4 * 0.01 / 3 / 4).
        let error = (0.01_f64 / 3.0).sqrt();
        assert!((change.ratio - 1.0).abs() < 1e-9 && (change.error - error).abs() < 1e-9, "{change:?}");
    }

    #[test]
    fn waiting_for_a_cpu_is_a_cost_too() {
        let with = |mut ticks: Vec<Tick>, ran: f64, wanted: f64| {
            ticks.iter_mut().for_each(|tick| tick.ran = Some((ran, wanted)));
            ticks
        };
        let (before, after) = (with(ticks(&[100; 5], 1), 0.01, 0.01), with(ticks(&[80; 5], 1), 0.005, 0.01));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Weighted).unwrap();
        assert!((change.ratio - 1.6).abs() < 1e-9, "{change:?}");
    }
}
