//! Judging of noisy measurements: the winner of a race, and whether a winner is still as fast.
//! Pure: a verdict with its reason is a function of the measurements. The same numbers in the same
//! order give the same verdict at every rank.
//!
//! **Idea.** Disturbances make calls slower, never quicker, so minima are compared. A
//! [`CandidateTrial`] runs candidates in turns. Each round begins with another candidate, so that
//! no rhythm of the program always falls on the same one. A trial bounds the cost of its tries. A
//! [`Drift`] compares the least of a few samples with the record: one disturbed sample proves
//! nothing, a whole window of them little, several windows are evidence.

use serde::{Deserialize, Serialize};
use trimtab_core::stats::comparison::{Better, Verdict, by_factors};

/// The usual algorithm is replaced only by one with a best batch of less than this share of its
/// best batch.
pub const CLEARLY_BETTER_RATIO: f64 = 0.95;
/// Least batches of a candidate for a verdict against the usual algorithm.
pub const BATCHES_MIN: usize = 20;

/// Measurements of a candidate: microseconds per call of each batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CandidateTimes {
    /// Batches, in order.
    pub batches: Vec<f64>,
    /// Whether it has been removed from the race.
    pub out: bool,
}

impl CandidateTimes {
    /// Returns the best batch.
    pub fn best(&self) -> f64 {
        self.batches.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Compares two times that were measured in the same way; `low` and `high` are factors of the
/// first.
fn compared(usual: f64, other: f64, low: f64, high: f64) -> Verdict {
    by_factors(Better::Less, usual, other, low, high)
}

/// The candidate that is used, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Its number; 0 is the usual one.
    pub winner: usize,
    /// Its best time over the usual one's.
    pub ratio: f64,
    /// The reason, in words.
    pub why: String,
}

/// Removes the slower half; the first candidate, the usual one, stays for comparison.
pub fn halve(candidates: &mut [CandidateTimes]) {
    let mut running: Vec<usize> = (1..candidates.len()).filter(|at| !candidates[*at].out).collect();
    running.sort_by(|a, b| candidates[*a].best().total_cmp(&candidates[*b].best()).then(a.cmp(b)));
    for at in running.iter().skip(running.len().div_ceil(2).max(1)) {
        candidates[*at].out = true;
    }
}

/// Returns the verdict when a race is over.
pub fn verdict(candidates: &[CandidateTimes]) -> Selection {
    let usual = candidates.first().map_or(f64::INFINITY, CandidateTimes::best);
    let best = (0..candidates.len())
        .filter(|at| !candidates[*at].out && candidates[*at].batches.len() >= BATCHES_MIN)
        .min_by(|a, b| candidates[*a].best().total_cmp(&candidates[*b].best()));
    let stays = |ratio, why: &str| Selection { winner: 0, ratio, why: why.to_owned() };
    let Some(best) = best else { return stays(1.0, "too few measurements to replace the usual algorithm") };
    let ratio = candidates[best].best() / usual;
    if best == 0 {
        stays(1.0, "the usual algorithm is the quickest")
    } else if !ratio.is_finite()
        || compared(1.0, ratio, CLEARLY_BETTER_RATIO, f64::INFINITY) != Verdict::Better
    {
        stays(ratio, "no other is 5 % quicker: less is within the noise")
    } else {
        Selection { winner: best, ratio, why: format!("quicker by {:.0} %", (1.0 - ratio) * 100.0) }
    }
}

/// Length and cost limits of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialLimits {
    /// Rounds in each stage; after each but the last the slower half is removed.
    pub stages: [usize; 3],
    /// Microseconds that the tries may cost beyond the time of the usual algorithm. Checked after
    /// each round: the excess is at most one round.
    pub spend: f64,
}

/// Batches after which a candidate that is slower than the usual one by [`HOPELESS_FACTOR`] is
/// removed at once.
const HOPELESS_BATCHES: usize = 5;
/// Factor on the usual one's time from which a candidate is hopeless.
const HOPELESS_FACTOR: f64 = 2.0;

/// A race in the calls of a program: one call a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateTrial {
    candidates: Vec<CandidateTimes>,
    limits: TrialLimits,
    stage: usize,
    /// Rounds of this stage.
    rounds: usize,
    /// Rounds of all stages.
    all: usize,
}

impl CandidateTrial {
    /// Begins a trial of `candidates` candidates, of which the first is the usual one.
    pub fn new(candidates: usize, limits: TrialLimits) -> Self {
        let candidates = (0..candidates).map(|_| CandidateTimes::default()).collect();
        Self { candidates, limits, stage: 0, rounds: 0, all: 0 }
    }

    /// Returns the candidates of this round, in their order.
    pub fn turns(&self) -> Vec<usize> {
        let mut turns: Vec<usize> =
            (0..self.candidates.len()).filter(|at| !self.candidates[*at].out).collect();
        let by = self.all % turns.len().max(1);
        turns.rotate_left(by);
        turns
    }

    /// Ends a round with the microseconds of each turn, `None` for a turn without a usable time.
    /// Returns the verdict when the race is over.
    pub fn round(&mut self, times: &[Option<f64>]) -> Option<Selection> {
        for (at, time) in self.turns().into_iter().zip(times) {
            self.candidates[at].batches.extend(time.filter(|time| time.is_finite()));
        }
        (self.rounds, self.all) = (self.rounds + 1, self.all + 1);
        self.drop_hopeless();
        if self.cost() > self.limits.spend {
            return Some(Selection {
                winner: 0,
                ratio: 1.0,
                why: format!(
                    "the trial was ended: it had cost {:.0} us more than the usual algorithm",
                    self.cost()
                ),
            });
        }
        if self.rounds >= self.limits.stages[self.stage] {
            (self.stage, self.rounds) = (self.stage + 1, 0);
            if self.stage < self.limits.stages.len() {
                halve(&mut self.candidates);
            }
        }
        let alone = self.candidates.iter().skip(1).all(|candidate| candidate.out);
        if self.stage < self.limits.stages.len() && !alone {
            return None;
        }
        if alone && self.candidates.len() > 1 {
            return Some(Selection {
                winner: 0,
                ratio: 1.0,
                why: "every other candidate took more than twice its time".to_owned(),
            });
        }
        Some(verdict(&self.candidates))
    }

    fn drop_hopeless(&mut self) {
        let Some(usual) = self.candidates.first().filter(|usual| usual.batches.len() >= HOPELESS_BATCHES)
        else {
            return;
        };
        let usual = usual.best();
        let hopeless = |best: f64| compared(usual, best, 0.0, HOPELESS_FACTOR) == Verdict::Worse;
        for candidate in self.candidates.iter_mut().skip(1) {
            candidate.out |= candidate.batches.len() >= HOPELESS_BATCHES && hopeless(candidate.best());
        }
    }

    /// Returns the microseconds that the candidates have cost beyond the usual algorithm, at the
    /// best time of each: disturbances are not attributed to them.
    pub fn cost(&self) -> f64 {
        let usual = self.candidates.first().map_or(f64::INFINITY, CandidateTimes::best);
        let of = |candidate: &CandidateTimes| {
            let more = candidate.best() - usual;
            if more.is_finite() && more > 0.0 { more * candidate.batches.len() as f64 } else { 0.0 }
        };
        self.candidates.iter().skip(1).map(of).sum()
    }

    /// Returns the measurements.
    pub fn candidates(&self) -> &[CandidateTimes] {
        &self.candidates
    }
}

/// Watches whether a choice is still as quick as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    record: Option<f64>,
    slow: usize,
}

impl Drift {
    /// Samples in a window. The least of them is compared.
    pub const WINDOW_SAMPLES: usize = 16;
    /// A window is slow if its least exceeds the record by more than this factor.
    pub const SLOW_FACTOR: f64 = 1.5;
    /// Slow windows in a row after which a choice is tried again.
    pub const SLOW_WINDOWS: usize = 3;

    /// Starts with a choice's record, in microseconds; without one, the first window's least
    /// becomes the record.
    pub fn new(record: Option<f64>) -> Self {
        Self { record: record.filter(|record| record.is_finite()), slow: 0 }
    }

    /// Ends a window. Returns whether the choice is to be tried again.
    pub fn window(&mut self, times: &[Option<f64>]) -> bool {
        let least = times.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return false;
        }
        let record = *self.record.get_or_insert(least);
        self.record = Some(record.min(least));
        let slow = compared(record, least, 0.0, Self::SLOW_FACTOR) == Verdict::Worse;
        self.slow = if slow { self.slow + 1 } else { 0 };
        self.slow >= Self::SLOW_WINDOWS
    }

    /// Returns the calls per sample, so that reading the clock costs less than a hundredth.
    pub fn every(&self) -> u32 {
        match self.record {
            Some(record) if record < 1.0 => 1024,
            Some(record) if record < 20.0 => 128,
            Some(_) => 16,
            None => 128,
        }
    }

    /// Returns the least time of all windows.
    pub fn record(&self) -> Option<f64> {
        self.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates(all: &[&[f64]]) -> Vec<CandidateTimes> {
        let pad = |batches: &&[f64]| batches.iter().copied().cycle().take(24).collect();
        all.iter().map(|batches| CandidateTimes { batches: pad(batches), out: false }).collect()
    }

    #[test]
    fn only_a_clearly_better_algorithm_wins() {
        assert_eq!(verdict(&candidates(&[&[1.0, 9.0], &[0.97]])).winner, 0);
        assert_eq!(verdict(&candidates(&[&[1.0, 9.0], &[0.90, 50.0]])).winner, 1);
        let few = CandidateTimes { batches: vec![0.1; BATCHES_MIN - 1], out: false };
        assert_eq!(verdict(&[candidates(&[&[1.0]]).remove(0), few]).winner, 0);
        assert_eq!(verdict(&[]).winner, 0);
    }

    #[test]
    fn halves_keep_the_usual_and_the_best() {
        let mut all = candidates(&[&[9.0], &[3.0], &[1.0], &[2.0], &[4.0]]);
        halve(&mut all);
        assert_eq!(all.iter().map(|one| one.out).collect::<Vec<_>>(), [false, true, false, false, true]);
        halve(&mut all);
        halve(&mut all);
        assert_eq!(all.iter().map(|one| one.out).collect::<Vec<_>>(), [false, true, false, true, true]);
        assert_eq!(verdict(&all).winner, 2);
    }

    proptest! {
        // A machine that disturbs half of all batches by up to a hundred times: a candidate that is
        // 1.3 times slower loses nearly always.
        #[test]
        fn noise_that_only_slows_does_not_decide(noise in prop::collection::vec((any::<bool>(), 1.0_f64..100.0, 0.0_f64..0.02), 48)) {
            let one = |true_time: f64, noise: &[(bool, f64, f64)]| CandidateTimes {
                batches: noise.iter().map(|(hit, by, jitter)| true_time * (1.0 + jitter) * if *hit { *by } else { 1.0 }).collect(),
                out: false,
            };
            let undisturbed = |noise: &[(bool, f64, f64)]| noise.iter().any(|(hit, by, _)| !hit || *by < 1.02);
            prop_assume!(undisturbed(&noise[..24]) && undisturbed(&noise[24..]));
            prop_assert_eq!(verdict(&[one(1.3, &noise[..24]), one(1.0, &noise[24..])]).winner, 1);
            prop_assert_eq!(verdict(&[one(1.0, &noise[..24]), one(1.3, &noise[24..])]).winner, 0);
        }
    }

    const LIMITS: TrialLimits = TrialLimits { stages: [4, 6, 14], spend: 1e9 };

    /// Runs a trial on simulated times; returns the verdict and the number of calls.
    fn run(trial: &mut CandidateTrial, mut time: impl FnMut(usize) -> Option<f64>) -> (Selection, usize) {
        let mut calls = 0;
        loop {
            let times: Vec<Option<f64>> = trial.turns().into_iter().map(&mut time).collect();
            calls += times.len();
            if let Some(verdict) = trial.round(&times) {
                return (verdict, calls);
            }
        }
    }

    #[test]
    fn a_trial_finds_the_quickest_and_says_when_it_is_over() {
        let truth = [10.0, 9.0, 12.0, 7.0, 19.0];
        let mut trial = CandidateTrial::new(truth.len(), LIMITS);
        let (verdict, calls) = run(&mut trial, |at| Some(truth[at]));
        assert_eq!((verdict.winner, verdict.why.as_str()), (3, "quicker by 30 %"));
        assert_eq!(calls, 5 * 4 + 3 * 6 + 2 * 14);
        assert_eq!(trial.candidates()[3].batches.len(), 24);
    }

    #[test]
    fn an_inconclusive_trial_ends_with_the_usual_algorithm() {
        let mut trial = CandidateTrial::new(3, LIMITS);
        let (verdict, _) = run(&mut trial, |_| None);
        assert_eq!((verdict.winner, verdict.ratio), (0, 1.0));
    }

    #[test]
    fn hopeless_candidates_are_removed_early_and_expensive_ones_end_the_trial() {
        let limits = TrialLimits { stages: [6, 8, 10], ..LIMITS };
        let mut trial = CandidateTrial::new(3, limits);
        let (verdict, calls) = run(&mut trial, |at| Some([1.0, 50.0, 0.8][at]));
        assert_eq!((verdict.winner, calls), (2, 3 * 5 + 2 * 19));
        let mut trial = CandidateTrial::new(3, limits);
        let (verdict, calls) = run(&mut trial, |at| Some([1.0, 50.0, 3.0][at]));
        assert_eq!((verdict.winner, calls), (0, 15), "{}", verdict.why);

        let mut trial = CandidateTrial::new(3, TrialLimits { spend: 100.0, ..LIMITS });
        let (verdict, calls) = run(&mut trial, |at| Some([100.0, 190.0, 50.0][at]));
        assert_eq!((verdict.winner, calls), (0, 6));
        // At most one round more than may be spent.
        assert!(trial.cost() <= 200.0 && verdict.why.contains("180 us"), "{}", verdict.why);
    }

    #[test]
    fn no_rhythm_falls_on_one_candidate_always() {
        let mut trial = CandidateTrial::new(3, LIMITS);
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..3 {
            firsts.insert(trial.turns()[0]);
            trial.round(&[Some(1.0); 3]);
        }
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn a_trial_is_right_in_spite_of_noise() {
        // Calls of a program on a machine that disturbs every third by up to a hundred times, in
        // random order: 2000 programs.
        let truth = [1.3, 1.0, 2.0, 1.6];
        let mut state = 7_u64;
        let mut below = move |bound: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % bound) as f64
        };
        let mut wrong = 0;
        for _ in 0..2000 {
            let mut trial = CandidateTrial::new(truth.len(), TrialLimits { stages: [6, 8, 10], ..LIMITS });
            let (verdict, calls) = run(&mut trial, |at| {
                let disturbed = if below(3) == 0.0 { 1.0 + below(10_000) / 100.0 } else { 1.0 };
                Some(truth[at] * (1.0 + below(100) / 5000.0) * disturbed)
            });
            wrong += usize::from(verdict.winner != 1);
            assert!(calls <= 4 * 24);
        }
        assert!(wrong <= 20, "{wrong} of 2000 are wrong");
    }

    #[test]
    fn an_algorithm_that_stays_slower_is_measured_again() {
        let mut drift = Drift::new(Some(10.0));
        let slow = [Some(16.0); Drift::WINDOW_SAMPLES];
        for _ in 1..Drift::SLOW_WINDOWS {
            assert!(!drift.window(&slow));
        }
        assert!(drift.window(&slow));
        // One quick sample in between restarts the count.
        let mut drift = Drift::new(Some(10.0));
        let mut disturbed = [Some(500.0); Drift::WINDOW_SAMPLES];
        disturbed[7] = Some(11.0);
        for _ in 0..100 {
            assert!(
                !drift.window(&slow)
                    && !drift.window(&disturbed)
                    && !drift.window(&[None; Drift::WINDOW_SAMPLES])
            );
        }
        assert_eq!(drift.record(), Some(10.0));
    }

    #[test]
    fn the_record_is_the_least_that_was_seen() {
        let mut drift = Drift::new(None);
        assert!(!drift.window(&[Some(30.0), None]) && !drift.window(&[Some(0.5)]));
        assert_eq!((drift.record(), drift.every()), (Some(0.5), 1024));
        assert_eq!((Drift::new(Some(5.0)).every(), Drift::new(Some(1e6)).every()), (128, 16));
        assert_eq!(Drift::new(Some(f64::INFINITY)).record(), None);
    }

    proptest! {
        // For any measurements, ranks with the same data reach the same verdict, and end.
        #[test]
        fn trials_end_and_are_the_same_at_all_ranks(
            candidates in 1..12_usize,
            times in prop::collection::vec(prop::option::of(0.0_f64..1e9), 1..60),
            spend in 0.0_f64..1e9,
        ) {
            let limits = TrialLimits { spend, ..LIMITS };
            let end = || {
                let mut heard = times.iter().copied().cycle();
                let mut trial = CandidateTrial::new(candidates, limits);
                let (verdict, calls) = run(&mut trial, |_| heard.next().flatten());
                (verdict.winner, calls, trial)
            };
            let (one, other) = (end(), end());
            prop_assert!(one.1 <= candidates * 24 && one.0 < candidates);
            prop_assert_eq!(one, other);
        }
    }
}
