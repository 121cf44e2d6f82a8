//! Samples of kernels: the repetitions of a run, and all samples of a cell.
//!
//! Unit: seconds of a whole kernel. Clean and noisy are defined as for single operations
//! ([`super::super::samples`]).

use super::super::contest;
use super::super::samples::{self, Batch};
use super::matrix::KernelsCell;
use serde::{Deserialize, Serialize};
use trimtab_core::stats::{self, Estimate};

/// A line of a program's output.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Repetition {
    /// Time of the slowest rank.
    pub(super) seconds: f64,
    /// Time in calls of the library, mean over the ranks.
    pub(super) comm_seconds: f64,
    /// CPU time of all ranks.
    pub(super) cpu_seconds: f64,
    pub(super) mops: f64,
    /// Share of the machine that other processes used; null if it cannot be read.
    pub(super) foreign: Option<f64>,
}

/// Reads the output of a program, if it is of this cell.
///
/// # Errors
/// The fault of the output.
pub(super) fn read(text: &str, cell: KernelsCell) -> Result<Vec<Repetition>, String> {
    let words = [
        ("ranks", cell.ranks.into()),
        ("kernel", cell.kernel.word().into()),
        ("class", cell.class.word().into()),
        ("mode", cell.mode.word().into()),
    ];
    let is_time = |one: &Repetition| one.seconds > 0.0 && one.comm_seconds >= 0.0 && one.cpu_seconds >= 0.0;
    samples::read_lines(text, &words, is_time)
}

impl contest::ContestSamples for KernelsSamples {
    fn times(&self) -> Vec<f64> {
        self.shown()
    }
}

/// All runs of a cell by one contestant.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct KernelsSamples {
    /// Times in microseconds, as for an operation.
    times: samples::TeamSamples,
    /// Communication shares of the runs.
    shares: Vec<f64>,
}

/// Converts microseconds to seconds.
fn seconds(us: f64) -> f64 {
    us / 1e6
}

impl KernelsSamples {
    pub(super) fn add(&mut self, repetitions: &[Repetition]) {
        let batch = |one: &Repetition| Batch {
            us: one.seconds * 1e6,
            cpu_us: one.cpu_seconds * 1e6,
            foreign: one.foreign,
        };
        self.times.add(&repetitions.iter().map(batch).collect::<Vec<_>>());
        let shares: Vec<f64> = repetitions.iter().map(|one| one.comm_seconds / one.seconds).collect();
        self.shares.extend(stats::median(&shares));
    }

    /// Returns the medians of the clean runs or, if there are none, of the noisy ones.
    pub(super) fn shown(&self) -> Vec<f64> {
        self.times.us.shown().iter().copied().map(seconds).collect()
    }

    pub(super) fn clean(&self) -> Vec<f64> {
        self.times.us.clean.iter().copied().map(seconds).collect()
    }

    pub(super) fn noisy(&self) -> Vec<f64> {
        self.times.us.noisy.iter().copied().map(seconds).collect()
    }

    pub(super) fn estimate(&self, seed: u64) -> Option<Estimate> {
        stats::estimate(&self.shown(), seed)
    }

    pub(super) fn median(&self) -> Option<f64> {
        self.times.median().map(seconds)
    }

    pub(super) fn least(&self) -> Option<f64> {
        self.times.least().map(seconds)
    }

    /// Returns the CPU seconds of all ranks.
    pub(super) fn cpu(&self) -> Option<f64> {
        self.times.cpu().map(seconds)
    }

    /// Returns the share of the time that ranks spend in the library.
    pub(super) fn share(&self) -> Option<f64> {
        stats::median(&self.shares)
    }

    pub(super) fn is_noisy(&self) -> bool {
        self.times.is_noisy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Class, Mode, NasKernel};

    const CELL: KernelsCell =
        KernelsCell { kernel: NasKernel::Is, class: Class::W, ranks: 2, mode: Mode::Stream };

    fn line(seconds: f64, ranks: u32) -> String {
        format!(
            r#"{{"peer":"x","kind":"thread","ranks":{ranks},"kernel":"is","class":"W","mode":"stream","seconds":{seconds},"comm_seconds":0.5,"cpu_seconds":3,"mops":7,"foreign":0.01}}"#
        )
    }

    #[test]
    fn a_run_is_the_median_of_its_repetitions() {
        let said = format!("{}\n{}\n{}\n", line(4.0, 2), line(1.0, 2), line(2.0, 2));
        let mut samples = KernelsSamples::default();
        samples.add(&read(&said, CELL).unwrap());
        assert_eq!((samples.median(), samples.least(), samples.cpu()), (Some(2.0), Some(1.0), Some(3.0)));
        assert_eq!((samples.share(), samples.clean().len(), samples.is_noisy()), (Some(0.25), 1, false));
    }

    #[test]
    fn reports_have_to_be_of_the_cell() {
        for (bad, why) in [
            (String::new(), "is empty"),
            ("x".to_owned(), "not JSON"),
            (line(1.0, 3), "another run"),
            (line(0.0, 2), "no time"),
            (line(1.0, 2).replace("comm_", ""), "not JSON"),
            (line(1.0, 2).replace("mops", "flops"), "lacks"),
        ] {
            let said = read(&bad, CELL).unwrap_err();
            assert!(said.contains(why) || why == "not JSON" && said.contains("lacks"), "{said}");
        }
    }
}
