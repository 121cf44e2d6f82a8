//! Whether a move helped: what threads suffer after it against what they suffered before.
//!
//! Unit: parts of the index before. Problem: one look in three has the wrong sign, and a mean over threads that do different things
//! rises when the one that suffers most gets better. Idea: each thread weighs after the move what it weighed before
//! ([`change`](crate::penalty::change)), and the scatter from look to look, before and after together, says how much of a difference is
//! believed. Waiting for a CPU counts too: what threads wanted over what they had, with a scatter of its own.
//!
//! Properties: a move is kept only if all together save more than the margin of what the moved threads take, so that one of many can
//! still pass, and more than [`ERRORS_BELIEVED`] standard errors of it, for which more looks are taken if need be. How sure one can become is
//! known beforehand, since the looks before are what they are: what would not pass even then is not waited for. Who clearly lost is known
//! after [`SAMPLES_MIN`] looks. Where cycles are counted, what is saved is a part of them: a third less of stalls that are a tenth of the time
//! is a thirtieth.

use super::herd::{KEPT, Tick, sum};
use crate::counts::{Counts, Rung};
use crate::penalty::{Index, Mean, weight};
use crate::stats::comparison::{Sequential, Verdict};
use std::collections::BTreeMap;

/// So many looks are compared at most, before and after.
pub(super) const BEFORE_MAX: usize = 24;
const AFTER_MAX: usize = KEPT - 4;

/// So many looks are compared at least, before a move and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Least {
    pub(super) before: usize,
    pub(super) after: usize,
}

impl Least {
    /// Of looks that count for some 10 ms. Chosen: their scatter must be known before it can be believed.
    const MANY: Self = Self { before: 10, after: 8 };

    /// Of looks that ask where a thousand pages lie, or what many faults found: each tells shares to within 3 %.
    const FEW: Self = Self { before: 3, after: 3 };

    /// Of looks on this rung.
    pub(super) fn on(rung: Option<Rung>) -> Self {
        match rung {
            Some(Rung::HintFaults | Rung::Residency) => Self::FEW,
            _ => Self::MANY,
        }
    }
}

/// Who was counted less often than this is not compared.
pub(super) const SAMPLES_MIN: usize = 3;

/// Standard errors that are believed at the end of a trial; early ones must be larger ([`Sequential`]).
const ERRORS_BELIEVED: f64 = 2.0;

/// Waiting that differs by less than this part of what threads wanted is the same.
const WAITS: f64 = 0.01;

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
    /// The scatter of single looks, as a part of the whole.
    pub(super) scatter: f64,
    /// How many looks there were before and after.
    pub(super) looks: [usize; 2],
    /// The part of the whole that the moved ones had.
    pub(super) movers: f64,
}

impl Change {
    /// The standard error with so many looks after the move.
    fn error(&self, after: usize) -> f64 {
        let [before, _] = self.looks;
        self.scatter * (1.0 / before.max(1) as f64 + 1.0 / after.max(1) as f64).sqrt()
    }

    /// What it says: better, worse or alike, or [`Verdict::Unknown`] while not enough was seen. `last`
    /// if no more is to be seen.
    pub(super) fn verdict(&self, margin: f64, least: Least, last: bool) -> Verdict {
        let [_, after] = self.looks;
        let sequential = Sequential {
            gain: 1.0 - self.ratio,
            gain_min: margin * self.movers,
            error: self.error(after),
            error_final: self.error(after.max(AFTER_MAX)),
            errors_believed: ERRORS_BELIEVED,
            samples: after,
            samples_min: least.after,
            samples_loss_min: SAMPLES_MIN,
            samples_max: AFTER_MAX,
            last,
        };
        sequential.verdict()
    }
}

/// Whether what was seen before a move lets the margin be told, if as much as possible is seen after it.
pub(super) fn steady(threads: &[Pair<'_>], index: Index, mean: Mean, margin: f64) -> bool {
    let same: Vec<Pair<'_>> = threads.iter().map(|pair| Pair { after: pair.before, ..*pair }).collect();
    compare(&same, index, mean)
        .is_some_and(|change| ERRORS_BELIEVED * change.error(AFTER_MAX) <= margin * change.movers)
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
    let (mut waited_then, mut waited_now) = (Waits::default(), Waits::default());
    for Pair { before, after, mover } in threads {
        let (Some(all), Some(all_after)) = (sum(*before), sum(*after)) else { continue };
        let Some(((weight, was), is)) = weight(index, mean, &all).zip(index.of(&all_after)) else { continue };
        let part = cycles(&all).filter(|_| all_cycles).unwrap_or(weight * was);
        saved += weight * (was - is);
        whole += part;
        moved += if *mover { part } else { 0.0 };
        befores.add(before, index, weight, was);
        afters.add(after, index, weight, is);
        waited_then.add(before);
        waited_now.add(after);
    }
    if whole <= 0.0 {
        return None;
    }
    let (then, now) = (waited_then.share(), waited_now.share());
    let differs = (now - then).abs() >= WAITS;
    let delay = if differs { (1.0 - then) / (1.0 - now) } else { 1.0 };
    let waits =
        if differs { pooled([waited_then.squares(), waited_now.squares()]) / (1.0 - now) } else { 0.0 };
    let stalls = pooled([befores.squares(), afters.squares()]) / whole;
    Some(Change {
        ratio: (1.0 - saved / whole) * delay,
        scatter: stalls.hypot(waits),
        looks: [befores.looks.len(), afters.looks.len()],
        movers: moved / whole,
    })
}

/// The scatter of single looks of several series, each around its own mean: sums of squares, and how many looks.
fn pooled(series: [(f64, usize); 2]) -> f64 {
    let (squares, looks) =
        series.iter().fold((0.0, 0), |(sum, all), (squares, looks)| (sum + squares, all + looks));
    let free = looks.saturating_sub(series.len());
    if free == 0 { 0.0 } else { (squares / free as f64).sqrt() }
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

    fn squares(&self) -> (f64, usize) {
        (self.looks.values().map(|off| off * off).sum(), self.looks.len())
    }
}

/// What threads ran and wanted to run, look by look.
#[derive(Default)]
struct Waits {
    looks: BTreeMap<u64, (f64, f64)>,
    unknown: bool,
}

impl Waits {
    fn add(&mut self, ticks: &[Tick]) {
        for tick in ticks {
            let Some((ran, wanted)) = tick.ran else {
                self.unknown = true;
                continue;
            };
            let (all_ran, all_wanted) = self.looks.entry(tick.look).or_default();
            *all_ran += ran;
            *all_wanted += wanted;
        }
    }

    /// The part of what they wanted that they had not. Nobody has less than a hundredth.
    fn share(&self) -> f64 {
        let (ran, wanted) =
            self.looks.values().fold((0.0, 0.0), |(ran, wanted), (r, w)| (ran + r, wanted + w));
        if self.unknown || wanted <= 0.0 { 0.0 } else { (1.0 - ran / wanted).clamp(0.0, 0.99) }
    }

    fn squares(&self) -> (f64, usize) {
        let mean = self.share();
        let wanted: f64 = self.looks.values().map(|(_, wanted)| wanted).sum();
        let usual = wanted / (self.looks.len() as f64).max(1.0);
        let off = |(ran, wanted): &(f64, f64)| {
            if usual > 0.0 { (wanted - ran - mean * wanted) / usual } else { 0.0 }
        };
        (self.looks.values().map(|look| off(look).powi(2)).sum(), self.looks.len())
    }
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
        assert!((change.ratio - 0.9).abs() < 1e-9 && change.scatter < 1e-9, "{change:?}");
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
    fn scatter_is_that_of_looks_around_their_means_and_the_error_falls_with_their_number() {
        let (before, after) = (ticks(&[90, 110, 90, 110], 1), ticks(&[200; 4], 1));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Sum).unwrap();
        // Four deviations of a tenth, and four of none; two means are estimated.
        let scatter = (4.0 * 0.01 / 6.0_f64).sqrt();
        assert!((change.ratio - 2.0).abs() < 1e-9 && (change.scatter - scatter).abs() < 1e-9, "{change:?}");
        assert!((change.error(4) - scatter * 0.5_f64.sqrt()).abs() < 1e-9);
        assert!((change.error(1_000_000) - scatter * 0.5).abs() < 1e-4, "the looks before are what they are");
    }

    #[test]
    fn waiting_for_a_cpu_is_a_cost_too_with_a_scatter_of_its_own() {
        let with = |mut ticks: Vec<Tick>, all: &[(f64, f64)]| {
            ticks.iter_mut().zip(all.iter().cycle()).for_each(|(tick, one)| tick.ran = Some(*one));
            ticks
        };
        let before = with(ticks(&[100; 6], 1), &[(0.01, 0.01)]);
        let steady = with(ticks(&[80; 6], 1), &[(0.005, 0.01)]);
        let change = |after| compare(&[pair(&before, after)], Index::Penalty, Mean::Weighted).unwrap();
        assert!((change(&steady).ratio - 1.6).abs() < 1e-9, "{:?}", change(&steady));
        assert!(change(&steady).scatter < 1e-9);
        // Half of the time everything, and half of the time nothing: that is no certainty.
        let jumps = with(ticks(&[80; 6], 1), &[(0.01, 0.01), (0.0, 0.01)]);
        assert!(
            (change(&jumps).ratio - 1.6).abs() < 1e-9 && change(&jumps).scatter > 0.5,
            "{:?}",
            change(&jumps)
        );
        // A moment's wait is none.
        let moment = with(ticks(&[80; 6], 1), &[(0.00996, 0.01)]);
        assert_eq!(change(&moment).ratio, 0.8);
        // None of it is known.
        assert_eq!(change(&ticks(&[80; 6], 1)).ratio, 0.8);
    }

    #[test]
    fn who_clearly_lost_is_known_at_once_and_who_might_win_is_waited_for() {
        let change = |ratio, after| Change { ratio, scatter: 0.05, looks: [16, after], movers: 1.0 };
        assert_eq!(change(1.3, 3).verdict(0.03, Least::MANY, false), Verdict::Worse);
        assert_eq!(change(1.3, 2).verdict(0.03, Least::MANY, false), Verdict::Unknown);
        assert_eq!(change(1.02, 3).verdict(0.03, Least::MANY, false), Verdict::Unknown);
        assert_eq!(
            change(0.7, 3).verdict(0.03, Least::MANY, false),
            Verdict::Unknown,
            "nobody has won after three looks"
        );
        assert_eq!(change(0.7, 8).verdict(0.03, Least::MANY, false), Verdict::Better);
        // Looks that tell nearly everything need not be many, but as sure.
        let steady = Change { scatter: 0.01, looks: [3, 3], ..change(0.7, 3) };
        assert_eq!(steady.verdict(0.03, Least::FEW, false), Verdict::Better);
        assert_eq!(steady.verdict(0.03, Least::MANY, false), Verdict::Unknown);
        assert_eq!(Change { looks: [3, 2], ..steady }.verdict(0.03, Least::FEW, false), Verdict::Unknown);
        assert_eq!(Change { scatter: 0.1, ..steady }.verdict(0.03, Least::FEW, false), Verdict::Unknown);
        // A gain that the looks before can never make sure of is not waited for.
        assert_eq!(change(0.99, 20).verdict(0.03, Least::MANY, false), Verdict::NoDifference);
        let rough = Change { scatter: 0.5, ..change(0.9, 40) };
        assert_eq!(
            rough.verdict(0.03, Least::MANY, false),
            Verdict::NoDifference,
            "needs 28 % to be believed, and errs by 15 %"
        );
        assert_eq!(change(0.96, 12).verdict(0.03, Least::MANY, false), Verdict::Unknown);
        assert_eq!(
            change(0.96, 12).verdict(0.03, Least::MANY, true),
            Verdict::NoDifference,
            "not sure, and no time left"
        );
    }
}
