//! Ideal ratio of a run: its time over the best possible time, and goals for that ratio.
//!
//! Unit: the ratio of a run's time to the *ideal*, the shortest possible time: all cores work until
//! all threads are done, unless one thread alone has more to do. Problem: run times of different
//! thread counts cannot be compared, and other programs on the machine make every time longer.
//! Idea: the ideal is computed from the CPU time that the work of this same run took, so the clock
//! frequency cancels. A run in which other programs used more than [`NOISE_MAX`] of the machine is
//! *noisy*, and no statement is based on it.
//!
//! Terms: a *rival* is a competing thread that belongs to the scenario. In the ideal, a rival that
//! computes all the time ([`Rivals::Hogs`]) gets the same share of the cores as a thread; a program
//! that leaves it less has a ratio below 1. A rival that computes a share of the time on one core
//! ([`Rivals::Duty`]) keeps that share, and the threads have all the rest.
//!
//! Properties: a ratio needs all its numbers; if one is missing it is `None`. A run with unknown
//! noise is not clean. Goals are judged on clean runs only, and on at least [`SAMPLES_MIN`] of
//! them.

use crate::stats::{self, Better, Comparison, Estimate, SAMPLES_MIN};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Share of the machine's time that others may use, or a hypervisor take, in a clean run.
pub const NOISE_MAX: f64 = 0.05;

/// Factor over Linux alone up to which a result counts as no worse.
const NO_WORSE: f64 = 1.01;

/// Competitors of the threads.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rivals {
    /// There is no rival.
    #[default]
    None,
    /// This number of rivals compute all the time.
    Hogs(u32),
    /// One rival computes this share of the time, on one core.
    Duty(f64),
}

/// Measurements of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredRun {
    /// Number of cores that the run had.
    pub cores: usize,
    /// Rivals of the run.
    pub rivals: Rivals,
    /// Seconds from the common start to the last thread's end.
    pub seconds: f64,
    /// CPU time of each thread's work in seconds, without its waiting.
    pub compute: Vec<f64>,
    /// Number of CPUs of the machine.
    pub machine_cpus: usize,
    /// CPU time that others used during the run, in seconds; `None` if it cannot be read.
    pub foreign: Option<f64>,
    /// CPU time that a hypervisor took during the run, in seconds.
    pub steal: Option<f64>,
}

impl MeasuredRun {
    /// Returns the best possible time of the threads together, in seconds.
    pub fn ideal(&self) -> Option<f64> {
        let threads = self.compute.len();
        let longest = self.compute.iter().copied().fold(0.0, f64::max);
        let all: f64 = self.compute.iter().sum();
        let cores = self.cores as f64;
        let fair = match self.rivals {
            Rivals::None => all / cores,
            Rivals::Hogs(hogs) => all / threads as f64 * (threads as f64 + f64::from(hogs)) / cores,
            Rivals::Duty(share) => all / (cores - share),
        };
        let known = threads > 0 && fair.is_finite() && fair > 0.0;
        // The ideal is at least the longest thread's work: one thread is on one core at a time.
        known.then(|| fair.max(longest))
    }

    /// Returns the run's time over the ideal.
    pub fn ratio(&self) -> Option<f64> {
        let ratio = self.seconds / self.ideal()?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Returns the share of the machine's time that others used or took.
    pub fn noise(&self) -> Option<f64> {
        // Clock ticks can make the difference of two equal times slightly negative.
        let taken = self.foreign?.max(0.0) + self.steal?.max(0.0);
        let noise = taken / (self.seconds * self.machine_cpus as f64);
        noise.is_finite().then_some(noise)
    }

    /// Returns whether the run had little enough noise to support conclusions.
    pub fn is_clean(&self) -> bool {
        self.noise().is_some_and(|noise| noise <= NOISE_MAX)
    }
}

/// Goal of one variant of running a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Median ratio of at most this value.
    AtMost(f64),
    /// Median at most one per cent above that of Linux alone.
    NoWorse,
    /// Largest over smallest ratio not above that of Linux alone.
    AsSteady,
    /// At most half of the median of the runs that spin.
    HalfOfSpinning,
}

/// A judged goal.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// Goal.
    pub goal: Goal,
    /// Measured value; `None` without enough clean runs.
    pub value: Option<f64>,
    /// Bound that the value must not exceed.
    pub bound: Option<f64>,
    /// Whether the value is within the bound; `None` if unknown.
    pub met: Option<bool>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.goal {
            Goal::AtMost(bound) => write!(f, "<= {bound:.2} ")?,
            Goal::NoWorse => f.write_str("no worse ")?,
            Goal::AsSteady => f.write_str("steady ")?,
            Goal::HalfOfSpinning => f.write_str("half of spin ")?,
        }
        match (self.met, self.value, self.bound) {
            (Some(true), ..) => f.write_str("met"),
            (Some(false), Some(value), Some(bound)) => write!(f, "MISSED by {:.2}", value - bound),
            _ => f.write_str("not judged"),
        }
    }
}

/// Ratios of one variant of running one case.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ratios {
    /// Ratios of clean runs, in the order of the runs.
    pub clean: Vec<f64>,
    /// Ratios of noisy runs.
    pub noisy: Vec<f64>,
}

impl Ratios {
    /// Adds a run; a run without a ratio is not counted.
    pub fn add(&mut self, run: &MeasuredRun) {
        let Some(ratio) = run.ratio() else { return };
        if run.is_clean() { self.clean.push(ratio) } else { self.noisy.push(ratio) }
    }

    /// Returns the ratios to show: those of clean runs, or those of noisy runs if there are no
    /// clean ones.
    pub fn shown(&self) -> &[f64] {
        if self.clean.is_empty() { &self.noisy } else { &self.clean }
    }

    /// Returns the median of the shown ratios.
    pub fn estimate(&self, seed: u64) -> Option<Estimate> {
        stats::estimate(self.shown(), seed)
    }

    /// Returns the largest over the smallest shown ratio.
    pub fn spread(&self) -> Option<f64> {
        spread(self.shown())
    }

    /// Compares with Linux alone; `None` unless both have runs of the same kind.
    pub fn against(&self, kernel: &Self, seed: u64) -> Option<Comparison> {
        let (own, other) = match (self.clean.is_empty(), kernel.clean.is_empty()) {
            (false, false) => (&self.clean, &kernel.clean),
            (true, true) => (&self.noisy, &kernel.noisy),
            _ => return None,
        };
        (!own.is_empty() && !other.is_empty()).then(|| stats::compare(other, own, Better::Less, seed))
    }

    /// Judges a goal, on clean runs alone.
    pub fn judge(&self, goal: Goal, kernel: Option<&Self>, spinning: Option<&Self>) -> Judged {
        let enough = |ratios: &Self| (ratios.clean.len() >= SAMPLES_MIN).then(|| ratios.clean.clone());
        let median = |ratios: &Self| stats::median(&enough(ratios)?);
        let spread = |ratios: &Self| spread(&enough(ratios)?);
        let (value, bound) = match goal {
            Goal::AtMost(bound) => (median(self), Some(bound)),
            Goal::NoWorse => (median(self), kernel.and_then(median).map(|kernel| kernel * NO_WORSE)),
            Goal::AsSteady => (spread(self), kernel.and_then(spread)),
            Goal::HalfOfSpinning => (median(self), spinning.and_then(median).map(|spinning| spinning / 2.0)),
        };
        Judged { goal, value, bound, met: value.zip(bound).map(|(value, bound)| value <= bound) }
    }
}

fn spread(ratios: &[f64]) -> Option<f64> {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    (ratios.len() > 1 && least > 0.0).then(|| most / least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(threads: usize, cores: usize, rivals: Rivals, seconds: f64) -> MeasuredRun {
        let (foreign, steal) = (Some(0.0), Some(0.0));
        MeasuredRun { cores, rivals, seconds, compute: vec![1.0; threads], machine_cpus: 2, foreign, steal }
    }

    #[test]
    fn the_ideal_shares_cores_evenly() {
        for (threads, cores, rivals, ideal) in [
            (3, 2, Rivals::None, 1.5),
            (7, 2, Rivals::None, 3.5),
            (2, 2, Rivals::Hogs(1), 1.5),
            (2, 2, Rivals::Duty(0.5), 2.0 / 1.5),
            (2, 8, Rivals::Hogs(1), 1.0), // there are enough cores
        ] {
            let run = run(threads, cores, rivals, 3.0);
            assert_eq!((run.ideal(), run.ratio()), (Some(ideal), Some(3.0 / ideal)), "{run:?}");
        }
        let uneven = MeasuredRun { compute: vec![1.0, 5.0], ..run(2, 2, Rivals::None, 5.0) };
        assert_eq!(uneven.ratio(), Some(1.0), "nobody could have been quicker than the longest thread");
    }

    #[test]
    fn missing_values_give_no_ratio_and_no_clean_run() {
        let good = run(3, 2, Rivals::None, 1.5);
        assert!(good.is_clean());
        for bad in [
            MeasuredRun { compute: vec![], ..good.clone() },
            MeasuredRun { compute: vec![f64::NAN; 3], ..good.clone() },
            MeasuredRun { seconds: 0.0, ..good.clone() },
            MeasuredRun { cores: 0, ..good.clone() },
        ] {
            assert_eq!(bad.ratio(), None, "{bad:?}");
        }
        for noisy in [
            MeasuredRun { foreign: None, ..good.clone() },
            MeasuredRun { steal: None, ..good.clone() },
            MeasuredRun { foreign: Some(0.16), ..good.clone() },
            MeasuredRun { foreign: Some(0.1), steal: Some(0.06), ..good.clone() },
            MeasuredRun { machine_cpus: 0, ..good.clone() },
        ] {
            assert!(!noisy.is_clean(), "{noisy:?}");
        }
        // A negative remainder from clock ticks does not hide the steal time.
        assert!(!MeasuredRun { foreign: Some(-1.0), steal: Some(0.3), ..good.clone() }.is_clean());
        assert!(MeasuredRun { foreign: Some(-0.02), ..good }.is_clean());
    }

    fn clean(ratios: &[f64]) -> Ratios {
        Ratios { clean: ratios.to_vec(), noisy: vec![9.0; 9] }
    }

    #[test]
    fn goals_are_judged_on_clean_runs() {
        let own = clean(&[1.0, 1.01, 1.01, 1.02, 1.05]);
        let kernel = clean(&[1.0, 1.0, 1.0, 1.0, 1.02]);
        let spinning = clean(&[3.0; 5]);
        let judge = |goal| own.judge(goal, Some(&kernel), Some(&spinning));
        assert_eq!(judge(Goal::AtMost(1.02)).to_string(), "<= 1.02 met");
        assert_eq!(judge(Goal::AtMost(0.92)).to_string(), "<= 0.92 MISSED by 0.09");
        assert_eq!(judge(Goal::NoWorse).met, Some(true));
        assert_eq!(judge(Goal::AsSteady).to_string(), "steady MISSED by 0.03");
        assert_eq!(judge(Goal::HalfOfSpinning).met, Some(true));
        let few = clean(&[1.0; SAMPLES_MIN - 1]);
        assert_eq!(few.judge(Goal::AtMost(2.0), None, None).to_string(), "<= 2.00 not judged");
        assert_eq!(own.judge(Goal::NoWorse, Some(&few), None).met, None);
        assert_eq!(own.judge(Goal::NoWorse, None, None).met, None);
        let noisy = Ratios { clean: vec![], noisy: vec![1.0; 9] };
        assert_eq!(noisy.judge(Goal::AtMost(2.0), None, None).met, None);
    }

    #[test]
    fn noisy_runs_are_shown_only_where_there_are_no_clean_ones() {
        let mut ratios = Ratios::default();
        assert_eq!((ratios.estimate(1), ratios.spread()), (None, None));
        ratios.add(&MeasuredRun { foreign: Some(9.0), ..run(2, 2, Rivals::None, 4.0) });
        assert_eq!(ratios.shown(), [4.0]);
        ratios.add(&run(2, 2, Rivals::None, 1.0));
        ratios.add(&run(2, 2, Rivals::None, 1.5));
        assert_eq!((ratios.shown(), ratios.spread()), (&[1.0, 1.5][..], Some(1.5)));
        let noisy = Ratios { clean: vec![], noisy: vec![1.0] };
        assert_eq!(ratios.against(&noisy, 1), None, "clean and noisy are not compared");
    }

    proptest! {
        #[test]
        fn no_schedule_beats_the_ideal_without_rivals(compute in proptest::collection::vec(0.01..10.0_f64, 1..20), cores in 1usize..9) {
            // List scheduling of whole threads is one schedule; no schedule beats the ideal.
            let mut ends = vec![0.0_f64; cores];
            for time in &compute {
                let next = ends.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
                *next += time;
            }
            let seconds = ends.into_iter().fold(0.0, f64::max);
            let run = MeasuredRun { compute, seconds, ..run(1, cores, Rivals::None, 0.0) };
            prop_assert!(run.ratio().unwrap() >= 1.0 - 1e-9, "{run:?}");
            prop_assert!(run.ratio().unwrap() <= 2.0, "Graham's bound: {run:?}");
        }
    }
}
