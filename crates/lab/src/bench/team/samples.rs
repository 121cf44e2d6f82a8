//! Samples: the batches of a run, one sample of each run, and all samples of a cell.
//!
//! Unit: microseconds per call. The batches of a run share its placement, so a run is one sample:
//! the median of its clean batches. A run with fewer than half of its batches clean is noisy. The
//! shortest of all batches is reported beside the median, because other load can only make a batch
//! longer.

use super::contest;
use super::matrix::TeamCell;
use crate::args::{Mode, Operation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trimtab_core::ideal_ratio::{NOISE_MAX, Ratios};
use trimtab_core::stats::{self, Estimate};

/// A line of a program's output.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) us: f64,
    pub(super) cpu_us: f64,
    /// Share of the machine that other processes used; null if it cannot be read.
    pub(super) foreign: Option<f64>,
}

impl Batch {
    fn is_clean(&self) -> bool {
        self.foreign.is_some_and(|share| share <= NOISE_MAX)
    }
}

/// Reads the output of a program, if it is of this cell.
///
/// # Errors
/// The fault of the output.
pub(super) fn read(text: &str, cell: TeamCell) -> Result<Vec<Batch>, String> {
    let barrier = cell.op == Operation::Barrier;
    let (bytes, mode) = if barrier { (0, Mode::Stream) } else { (cell.bytes, cell.mode) };
    let words = [
        ("ranks", cell.ranks.into()),
        ("op", cell.op.word().into()),
        ("bytes", bytes.into()),
        ("mode", mode.word().into()),
    ];
    read_lines(text, &words, |batch: &Batch| batch.us > 0.0 && batch.cpu_us >= 0.0)
}

/// Reads the lines that a program printed, if they are of the cell: each has these words and
/// numbers, and a time.
///
/// # Errors
/// The fault of the output.
pub(super) fn read_lines<T: DeserializeOwned>(
    text: &str,
    cell: &[(&str, Value)],
    is_time: impl Fn(&T) -> bool,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("its report is not JSON: {error}"))?;
        if cell.iter().any(|(name, wanted)| value[*name] != *wanted) {
            return Err(format!("its report is of another run: {line}"));
        }
        let one =
            serde_json::from_value(value).map_err(|error| format!("its report lacks a value: {error}"))?;
        if !is_time(&one) {
            return Err(format!("its report has no time: {line}"));
        }
        all.push(one);
    }
    if all.is_empty() { Err("its report is empty".to_owned()) } else { Ok(all) }
}

impl contest::ContestSamples for TeamSamples {
    fn times(&self) -> Vec<f64> {
        self.us.shown().to_vec()
    }
}

/// All runs of a cell by one contestant.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TeamSamples {
    /// Medians of clean and of noisy runs.
    pub(super) us: Ratios,
    /// CPU time of all ranks, by run.
    clean_cpu: Vec<f64>,
    noisy_cpu: Vec<f64>,
    /// Shortest clean batch, and shortest batch of all.
    clean_least: Option<f64>,
    noisy_least: Option<f64>,
}

impl TeamSamples {
    pub(super) fn add(&mut self, batches: &[Batch]) {
        let clean: Vec<&Batch> = batches.iter().filter(|batch| batch.is_clean()).collect();
        let quiet = clean.len() * 2 >= batches.len() && !clean.is_empty();
        let shown: Vec<&Batch> = if quiet { clean.clone() } else { batches.iter().collect() };
        let of = |what: fn(&Batch) -> f64| {
            stats::median(&shown.iter().map(|batch| what(batch)).collect::<Vec<_>>())
        };
        let (Some(us), Some(cpu)) = (of(|batch| batch.us), of(|batch| batch.cpu_us)) else { return };
        let (times, cpus) = if quiet {
            (&mut self.us.clean, &mut self.clean_cpu)
        } else {
            (&mut self.us.noisy, &mut self.noisy_cpu)
        };
        times.push(us);
        cpus.push(cpu);
        let less = |least: Option<f64>, us: f64| Some(least.map_or(us, |least| least.min(us)));
        for batch in clean {
            self.clean_least = less(self.clean_least, batch.us);
        }
        for batch in batches {
            self.noisy_least = less(self.noisy_least, batch.us);
        }
    }

    pub(super) fn estimate(&self, seed: u64) -> Option<Estimate> {
        self.us.estimate(seed)
    }

    pub(super) fn median(&self) -> Option<f64> {
        stats::median(self.us.shown())
    }

    /// Returns the CPU time per call.
    pub(super) fn cpu(&self) -> Option<f64> {
        stats::median(if self.us.clean.is_empty() { &self.noisy_cpu } else { &self.clean_cpu })
    }

    pub(super) fn least(&self) -> Option<f64> {
        self.clean_least.or(self.noisy_least)
    }

    /// Returns whether all values shown are from noisy runs.
    pub(super) fn is_noisy(&self) -> bool {
        self.us.clean.is_empty() && !self.us.noisy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: TeamCell = TeamCell { ranks: 2, op: Operation::Allreduce, bytes: 8, mode: Mode::Stream };

    fn batch(us: f64, foreign: f64) -> Batch {
        Batch { us, cpu_us: 2.0 * us, foreign: Some(foreign) }
    }

    #[test]
    fn noisy_batches_count_only_where_there_are_no_others() {
        let mut samples = TeamSamples::default();
        samples.add(&[batch(9.0, 0.3), batch(0.5, 0.4), batch(4.0, 0.0)]);
        assert!(samples.is_noisy());
        assert_eq!((samples.median(), samples.least()), (Some(4.0), Some(4.0)));
        samples.add(&[batch(9.0, 0.3), batch(2.0, 0.0), batch(3.0, 0.01), batch(1.0, 0.05)]);
        assert!(!samples.is_noisy());
        assert_eq!((samples.median(), samples.cpu(), samples.least()), (Some(2.0), Some(4.0), Some(1.0)));
        let blind = Batch { foreign: None, ..batch(1.0, 0.0) };
        let mut samples = TeamSamples::default();
        samples.add(&[blind]);
        assert!(samples.is_noisy(), "what is not known is not clean");
        samples.add(&[]);
        assert_eq!(samples.us.noisy.len(), 1);
    }

    #[test]
    fn reports_have_to_be_of_the_cell() {
        let line = |us: f64, bytes: usize| {
            format!(
                r#"{{"peer":"x","kind":"thread","ranks":2,"op":"allreduce","bytes":{bytes},"mode":"stream","us":{us},"cpu_us":1,"foreign":null}}"#
            )
        };
        let two = format!("{}\n{}\n", line(1.0, 8), line(2.0, 8));
        assert_eq!(read(&two, CELL).unwrap().len(), 2);
        for (bad, why) in [
            (String::new(), "is empty"),
            ("x".to_owned(), "not JSON"),
            (line(1.0, 16), "another run"),
            (line(0.0, 8), "no time"),
            (line(1.0, 8).replace("cpu_us", "cpu"), "lacks"),
        ] {
            let said = read(&bad, CELL).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
