//! Judgement of a move: the stalls of threads after it, compared with those before it.
//!
//! Unit: shares of the index before.
//!
//! Problem: one sample in three has the wrong sign. A mean over threads that do different work
//! rises when the thread with the most stalls improves.
//!
//! Idea: each thread keeps after the move the weight that it had before
//! ([`change`](crate::penalty::change)). The scatter between samples, before and after together,
//! gives the difference that can be trusted. Waiting for a CPU counts too: the CPU time that
//! threads wanted over the time that they got, with its own scatter.
//!
//! Properties: a move is kept only if all threads together save more than the margin of the moved
//! threads' part (so that one thread among many can still pass), and more than [`ERRORS_BELIEVED`]
//! standard errors of it; if needed, more samples are taken for that. The attainable precision is
//! known beforehand, since the samples before are fixed: a move that could not pass even then is
//! not waited for. A clear loss is known after [`SAMPLES_MIN`] samples. If cycles are counted, the
//! saving is a share of them: a third less of stalls that are a tenth of the time is a thirtieth.

use super::thread_stats::{CountSample, SAMPLES_MAX, sum};
use crate::counts::{Counts, Rung};
use crate::penalty::{Index, Mean, weight};
use crate::stats::comparison::{Sequential, Verdict};
use std::collections::BTreeMap;

/// Largest number of samples before a move that are compared.
pub(super) const BEFORE_MAX: usize = 24;
/// Largest number of samples after a move that are compared.
const AFTER_MAX: usize = SAMPLES_MAX - 4;

/// Smallest numbers of samples that are compared, before a move and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SamplesMin {
    pub(super) before: usize,
    pub(super) after: usize,
}

impl SamplesMin {
    /// For samples that count for about 10 ms. Chosen: their scatter must be known before it can be
    /// trusted.
    const MANY: Self = Self { before: 10, after: 8 };

    /// For samples that locate a thousand pages, or collect the results of many faults: each
    /// measures shares to within 3 %.
    const FEW: Self = Self { before: 3, after: 3 };

    /// Returns the numbers for samples on this rung.
    pub(super) fn on(rung: Option<Rung>) -> Self {
        match rung {
            Some(Rung::HintFaults | Rung::Residency) => Self::FEW,
            _ => Self::MANY,
        }
    }
}

/// A thread with fewer samples than this is not compared.
pub(super) const SAMPLES_MIN: usize = 3;

/// Standard errors that are trusted at the end of a trial; earlier differences must be larger
/// ([`Sequential`]).
const ERRORS_BELIEVED: f64 = 2.0;

/// Waiting that differs by less than this share of the wanted time counts as equal.
const WAIT_DIFFERENCE_MIN: f64 = 0.01;

/// Samples of a thread before and after.
#[derive(Clone, Copy)]
pub(super) struct BeforeAfter<'a> {
    pub(super) before: &'a [CountSample],
    pub(super) after: &'a [CountSample],
    /// Whether it was moved.
    pub(super) mover: bool,
}

/// Change over some threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    /// Factor by which the time that they need changed, or the index if cycles are not counted.
    pub(super) ratio: f64,
    /// Scatter of single samples, as a share of the whole.
    pub(super) scatter: f64,
    /// Number of samples before and after.
    pub(super) samples: [usize; 2],
    /// Share of the whole that belongs to the moved threads.
    pub(super) movers: f64,
}

impl Change {
    /// Returns the standard error with this number of samples after the move.
    fn error(&self, after: usize) -> f64 {
        let [before, _] = self.samples;
        self.scatter * (1.0 / before.max(1) as f64 + 1.0 / after.max(1) as f64).sqrt()
    }

    /// Returns whether the change is better, worse or no difference, or [`Verdict::Unknown`] while
    /// samples are missing. `last` means that no more samples follow.
    pub(super) fn verdict(&self, margin: f64, samples_min: SamplesMin, last: bool) -> Verdict {
        let [_, after] = self.samples;
        let sequential = Sequential {
            gain: 1.0 - self.ratio,
            gain_min: margin * self.movers,
            error: self.error(after),
            error_final: self.error(after.max(AFTER_MAX)),
            errors_believed: ERRORS_BELIEVED,
            samples: after,
            samples_min: samples_min.after,
            samples_loss_min: SAMPLES_MIN,
            samples_max: AFTER_MAX,
            last,
        };
        sequential.verdict()
    }
}

/// Returns whether the samples before a move can resolve the margin, with the largest number of
/// samples after it.
pub(super) fn steady(threads: &[BeforeAfter<'_>], index: Index, mean: Mean, margin: f64) -> bool {
    let same: Vec<BeforeAfter<'_>> =
        threads.iter().map(|pair| BeforeAfter { after: pair.before, ..*pair }).collect();
    compare(&same, index, mean)
        .is_some_and(|change| ERRORS_BELIEVED * change.error(AFTER_MAX) <= margin * change.movers)
}

/// Returns the change between the samples before and after; `None` if nothing can be compared.
pub(super) fn compare(threads: &[BeforeAfter<'_>], index: Index, mean: Mean) -> Option<Change> {
    // Stalls are cycles: if all cycles are counted, the saved share of them matters.
    let cycles = |counts: &Counts| match (index, mean) {
        (Index::Busy | Index::Penalty | Index::Estimate, Mean::Weighted) => {
            counts.cycles.map(|cycles| cycles as f64)
        }
        _ => None,
    };
    let all_cycles = threads.iter().all(|pair| sum(pair.before).is_some_and(|all| cycles(&all).is_some()));
    let (mut saved, mut whole, mut moved) = (0.0, 0.0, 0.0);
    let (mut befores, mut afters) = (IndexSeries::default(), IndexSeries::default());
    let (mut waited_then, mut waited_now) = (WaitSeries::default(), WaitSeries::default());
    for BeforeAfter { before, after, mover } in threads {
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
    let differs = (now - then).abs() >= WAIT_DIFFERENCE_MIN;
    let delay = if differs { (1.0 - then) / (1.0 - now) } else { 1.0 };
    let waits =
        if differs { pooled([waited_then.squares(), waited_now.squares()]) / (1.0 - now) } else { 0.0 };
    let stalls = pooled([befores.squares(), afters.squares()]) / whole;
    Some(Change {
        ratio: (1.0 - saved / whole) * delay,
        // `hypot` would need glibc 2.35.
        scatter: (stalls * stalls + waits * waits).sqrt(),
        samples: [befores.samples.len(), afters.samples.len()],
        movers: moved / whole,
    })
}

/// Returns the pooled scatter of single samples of several series, each around its own mean. A
/// series is given by its sum of squares and its number of samples.
fn pooled(series: [(f64, usize); 2]) -> f64 {
    let (squares, samples) =
        series.iter().fold((0.0, 0), |(sum, all), (squares, samples)| (sum + squares, all + samples));
    let free = samples.saturating_sub(series.len());
    if free == 0 { 0.0 } else { (squares / free as f64).sqrt() }
}

/// Weighted sum of the index, by sample.
#[derive(Default)]
struct IndexSeries {
    samples: BTreeMap<u64, f64>,
}

impl IndexSeries {
    /// Adds the deviations of one thread's samples from its mean.
    fn add(&mut self, samples: &[CountSample], index: Index, weight: f64, mean: f64) {
        for sample in samples {
            if let Some(value) = index.of(&sample.counts) {
                *self.samples.entry(sample.sample_number).or_default() += weight * (value - mean);
            }
        }
    }

    fn squares(&self) -> (f64, usize) {
        (self.samples.values().map(|off| off * off).sum(), self.samples.len())
    }
}

/// Time that threads ran and wanted to run, by sample.
#[derive(Default)]
struct WaitSeries {
    samples: BTreeMap<u64, (f64, f64)>,
    unknown: bool,
}

impl WaitSeries {
    fn add(&mut self, samples: &[CountSample]) {
        for sample in samples {
            let Some((ran, wanted)) = sample.ran else {
                self.unknown = true;
                continue;
            };
            let (all_ran, all_wanted) = self.samples.entry(sample.sample_number).or_default();
            *all_ran += ran;
            *all_wanted += wanted;
        }
    }

    /// Returns the share of the wanted time that threads did not get, at most 99 %.
    fn share(&self) -> f64 {
        let (ran, wanted) =
            self.samples.values().fold((0.0, 0.0), |(ran, wanted), (r, w)| (ran + r, wanted + w));
        if self.unknown || wanted <= 0.0 { 0.0 } else { (1.0 - ran / wanted).clamp(0.0, 0.99) }
    }

    fn squares(&self) -> (f64, usize) {
        let mean = self.share();
        let wanted: f64 = self.samples.values().map(|(_, wanted)| wanted).sum();
        let usual = wanted / (self.samples.len() as f64).max(1.0);
        let off = |(ran, wanted): &(f64, f64)| {
            if usual > 0.0 { (wanted - ran - mean * wanted) / usual } else { 0.0 }
        };
        (self.samples.values().map(|sample| off(sample).powi(2)).sum(), self.samples.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[u64], requests: u64) -> Vec<CountSample> {
        let sample = |(sample, value): (usize, &u64)| CountSample {
            sample_number: sample as u64,
            counts: Counts { busy: Some(value * requests), requests: Some(requests), ..Counts::default() },
            ran: None,
        };
        values.iter().enumerate().map(sample).collect()
    }

    fn pair<'a>(before: &'a [CountSample], after: &'a [CountSample]) -> BeforeAfter<'a> {
        BeforeAfter { before, after, mover: false }
    }

    #[test]
    fn threads_keep_their_former_weights() {
        let (a0, a1) = (samples(&[100; 6], 10), samples(&[80; 6], 90));
        let (b0, b1) = (samples(&[10; 6], 100), samples(&[10; 6], 100));
        let all = [BeforeAfter { mover: true, ..pair(&a0, &a1) }, pair(&b0, &b1)];
        let change = compare(&all, Index::Penalty, Mean::Weighted).unwrap();
        assert!((change.ratio - 0.9).abs() < 1e-9 && change.scatter < 1e-9, "{change:?}");
        assert!((change.movers - 0.5).abs() < 1e-9, "{change:?}");
        let sum = compare(&all, Index::Penalty, Mean::Sum).unwrap();
        assert!((sum.ratio - 90.0 / 110.0).abs() < 1e-9, "{sum:?}");
        assert_eq!(compare(&all, Index::Cpi, Mean::Sum), None, "not counted");
    }

    #[test]
    fn the_saving_is_a_share_of_all_cycles_if_these_are_counted() {
        let with = |mut samples: Vec<CountSample>| {
            samples.iter_mut().for_each(|sample| sample.counts.cycles = Some(10_000));
            samples
        };
        let (before, after) = (with(samples(&[100; 6], 10)), with(samples(&[80; 6], 10)));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Weighted).unwrap();
        assert!((change.ratio - 0.98).abs() < 1e-9, "{change:?}");
    }

    #[test]
    fn scatter_is_that_of_samples_around_their_means_and_the_error_falls_with_their_number() {
        let (before, after) = (samples(&[90, 110, 90, 110], 1), samples(&[200; 4], 1));
        let change = compare(&[pair(&before, &after)], Index::Penalty, Mean::Sum).unwrap();
        // Four deviations of a tenth, and four of none; two means are estimated.
        let scatter = (4.0 * 0.01 / 6.0_f64).sqrt();
        assert!((change.ratio - 2.0).abs() < 1e-9 && (change.scatter - scatter).abs() < 1e-9, "{change:?}");
        assert!((change.error(4) - scatter * 0.5_f64.sqrt()).abs() < 1e-9);
        assert!((change.error(1_000_000) - scatter * 0.5).abs() < 1e-4, "the samples before are fixed");
    }

    #[test]
    fn waiting_for_a_cpu_is_a_cost_too_with_a_scatter_of_its_own() {
        let with = |mut samples: Vec<CountSample>, all: &[(f64, f64)]| {
            samples.iter_mut().zip(all.iter().cycle()).for_each(|(sample, one)| sample.ran = Some(*one));
            samples
        };
        let before = with(samples(&[100; 6], 1), &[(0.01, 0.01)]);
        let steady = with(samples(&[80; 6], 1), &[(0.005, 0.01)]);
        let change = |after| compare(&[pair(&before, after)], Index::Penalty, Mean::Weighted).unwrap();
        assert!((change(&steady).ratio - 1.6).abs() < 1e-9, "{:?}", change(&steady));
        assert!(change(&steady).scatter < 1e-9);
        // All of the wanted time in half of the samples and none in the other half: that is not
        // certain.
        let jumps = with(samples(&[80; 6], 1), &[(0.01, 0.01), (0.0, 0.01)]);
        assert!(
            (change(&jumps).ratio - 1.6).abs() < 1e-9 && change(&jumps).scatter > 0.5,
            "{:?}",
            change(&jumps)
        );
        // A moment's wait does not count.
        let moment = with(samples(&[80; 6], 1), &[(0.00996, 0.01)]);
        assert_eq!(change(&moment).ratio, 0.8);
        // None of it is known.
        assert_eq!(change(&samples(&[80; 6], 1)).ratio, 0.8);
    }

    #[test]
    fn a_clear_loss_is_known_at_once_and_a_possible_gain_is_waited_for() {
        let change = |ratio, after| Change { ratio, scatter: 0.05, samples: [16, after], movers: 1.0 };
        assert_eq!(change(1.3, 3).verdict(0.03, SamplesMin::MANY, false), Verdict::Worse);
        assert_eq!(change(1.3, 2).verdict(0.03, SamplesMin::MANY, false), Verdict::Unknown);
        assert_eq!(change(1.02, 3).verdict(0.03, SamplesMin::MANY, false), Verdict::Unknown);
        assert_eq!(
            change(0.7, 3).verdict(0.03, SamplesMin::MANY, false),
            Verdict::Unknown,
            "three samples show no gain yet"
        );
        assert_eq!(change(0.7, 8).verdict(0.03, SamplesMin::MANY, false), Verdict::Better);
        // Samples with little scatter may be fewer; the required certainty stays the same.
        let steady = Change { scatter: 0.01, samples: [3, 3], ..change(0.7, 3) };
        assert_eq!(steady.verdict(0.03, SamplesMin::FEW, false), Verdict::Better);
        assert_eq!(steady.verdict(0.03, SamplesMin::MANY, false), Verdict::Unknown);
        assert_eq!(
            Change { samples: [3, 2], ..steady }.verdict(0.03, SamplesMin::FEW, false),
            Verdict::Unknown
        );
        assert_eq!(Change { scatter: 0.1, ..steady }.verdict(0.03, SamplesMin::FEW, false), Verdict::Unknown);
        // A gain that the samples before can never confirm is not waited for.
        assert_eq!(change(0.99, 20).verdict(0.03, SamplesMin::MANY, false), Verdict::NoDifference);
        let rough = Change { scatter: 0.5, ..change(0.9, 40) };
        assert_eq!(
            rough.verdict(0.03, SamplesMin::MANY, false),
            Verdict::NoDifference,
            "needs 28 % to be believed, and errs by 15 %"
        );
        assert_eq!(change(0.96, 12).verdict(0.03, SamplesMin::MANY, false), Verdict::Unknown);
        assert_eq!(
            change(0.96, 12).verdict(0.03, SamplesMin::MANY, true),
            Verdict::NoDifference,
            "not sure, and no time left"
        );
    }
}
