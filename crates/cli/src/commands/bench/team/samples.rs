//! What runs come to: a run's batches, a sample of each run, and all samples of a cell.
//!
//! Unit: microseconds a call. A run's batches share its placement, so that the run is one sample: the median of its clean batches. A run that has
//! fewer than half of them clean is noisy itself. The least of all batches is told beside the median, since what others do only
//! ever makes a batch longer.

use crate::args::{Mode, Operation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trimtab_core::ideal_ratio::{NOISE_MAX, Ratios};
use trimtab_core::stats::{self, Estimate};

use super::cases::Cell;

/// A line of a program.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) us: f64,
    pub(super) cpu_us: f64,
    /// The part of the machine that others used; null where that cannot be read.
    pub(super) foreign: Option<f64>,
}

impl Batch {
    fn is_clean(&self) -> bool {
        self.foreign.is_some_and(|share| share <= NOISE_MAX)
    }
}

/// What a program printed, if it is what was asked for.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(text: &str, cell: Cell) -> Result<Vec<Batch>, String> {
    let mut batches = Vec::new();
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("its report is not JSON: {error}"))?;
        let bytes = if cell.op == Operation::Barrier { 0 } else { cell.bytes };
        let mode = if cell.op == Operation::Barrier { Mode::Stream } else { cell.mode };
        if value["ranks"] != cell.ranks
            || value["op"] != cell.op.word()
            || value["bytes"] != bytes
            || value["mode"] != mode.word()
        {
            return Err(format!("it measured something else: {line}"));
        }
        let batch: Batch =
            serde_json::from_value(value).map_err(|error| format!("its report lacks something: {error}"))?;
        if !(batch.us > 0.0 && batch.cpu_us >= 0.0) {
            return Err(format!("it measured no time: {line}"));
        }
        batches.push(batch);
    }
    if batches.is_empty() { Err("it measured nothing".to_owned()) } else { Ok(batches) }
}

/// All runs of a cell by one who is measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Samples {
    /// The medians of runs, clean and noisy ones.
    pub(super) us: Ratios,
    /// CPU time of all ranks, of the runs that are shown.
    clean_cpu: Vec<f64>,
    noisy_cpu: Vec<f64>,
    /// The least clean batch, or the least of all where none is.
    clean_least: Option<f64>,
    noisy_least: Option<f64>,
}

impl Samples {
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

    /// CPU time a call.
    pub(super) fn cpu(&self) -> Option<f64> {
        stats::median(if self.us.clean.is_empty() { &self.noisy_cpu } else { &self.clean_cpu })
    }

    pub(super) fn least(&self) -> Option<f64> {
        self.clean_least.or(self.noisy_least)
    }

    /// Whether all that is shown is of noisy runs.
    pub(super) fn is_noisy(&self) -> bool {
        self.us.clean.is_empty() && !self.us.noisy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { ranks: 2, op: Operation::Allreduce, bytes: 8, mode: Mode::Stream };

    fn batch(us: f64, foreign: f64) -> Batch {
        Batch { us, cpu_us: 2.0 * us, foreign: Some(foreign) }
    }

    #[test]
    fn noisy_batches_count_only_where_there_are_no_others() {
        let mut samples = Samples::default();
        samples.add(&[batch(9.0, 0.3), batch(0.5, 0.4), batch(4.0, 0.0)]);
        assert!(samples.is_noisy());
        assert_eq!((samples.median(), samples.least()), (Some(4.0), Some(4.0)));
        samples.add(&[batch(9.0, 0.3), batch(2.0, 0.0), batch(3.0, 0.01), batch(1.0, 0.05)]);
        assert!(!samples.is_noisy());
        assert_eq!((samples.median(), samples.cpu(), samples.least()), (Some(2.0), Some(4.0), Some(1.0)));
        let blind = Batch { foreign: None, ..batch(1.0, 0.0) };
        let mut samples = Samples::default();
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
            (String::new(), "nothing"),
            ("x".to_owned(), "not JSON"),
            (line(1.0, 16), "something else"),
            (line(0.0, 8), "no time"),
            (line(1.0, 8).replace("cpu_us", "cpu"), "lacks"),
        ] {
            let said = read(&bad, CELL).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
