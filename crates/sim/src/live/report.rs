//! Measured beside simulated: gaps, and orders.
//!
//! A *gap* is the simulated time over the measured one, less 1. An *order* is judged where the runs of two ways of one cell do not
//! overlap: which of them is faster.

use super::{Cell, LiveError, Set, Way};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Scenario, wait, way.
    pub cell: &'static str,
    /// Time over the ideal's as measured: median, least, most, and of how many runs.
    pub measured: f64,
    /// See `measured`.
    pub low: f64,
    /// See `measured`.
    pub high: f64,
    /// See `measured`.
    pub runs: u32,
    /// As simulated, median.
    pub simulated: f64,
    /// Simulated over measured, less 1.
    pub gap: f64,
}

/// Cells together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gap {
    /// Which.
    pub of: String,
    /// How many.
    pub cells: usize,
    /// The median of their gaps, sign and all.
    pub median: f64,
    /// The median of their gaps without sign.
    pub absolute: f64,
    /// How many are off by more than a tenth.
    pub off: usize,
}

/// A set, run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The set.
    pub set: &'static str,
    /// What was measured, where.
    pub title: &'static str,
    /// The cells.
    pub rows: Vec<Row>,
    /// All of them, then by way.
    pub gaps: Vec<Gap>,
    /// Pairs of ways whose runs do not overlap.
    pub orders: usize,
    /// How many of them the model has.
    pub right: usize,
}

impl Set {
    /// The set's report, from each cell's number (see [`Set::simulated`]), in the order of its cells.
    ///
    /// # Errors
    /// See [`Set::cells`].
    pub fn report(&self, simulated: &[f64]) -> Result<Report, LiveError> {
        let cells = self.cells()?;
        let both: Vec<(&Cell, f64)> = cells.iter().zip(simulated.iter().copied()).collect();
        let row = |&(cell, simulated): &(&Cell, f64)| Row {
            cell: cell.name,
            measured: cell.measured,
            low: cell.low,
            high: cell.high,
            runs: cell.runs,
            simulated,
            gap: simulated / cell.measured - 1.0,
        };
        let rows: Vec<Row> = both.iter().map(row).collect();
        let mut ways: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for ((cell, _), row) in both.iter().zip(&rows) {
            ways.entry(cell.way.to_string()).or_default().push(row.gap);
        }
        let all = rows.iter().map(|row| row.gap).collect();
        let gaps = std::iter::once(("all".to_owned(), all)).chain(ways);
        let gaps = gaps.map(|(of, gaps)| Gap::new(of, gaps)).collect();
        let (mut orders, mut right) = (0, 0);
        for (slow, of_slow) in &both {
            for (fast, of_fast) in both.iter().filter(|(fast, _)| fast.subject() == slow.subject()) {
                if slow.low > fast.high {
                    orders += 1;
                    right += usize::from(of_slow > of_fast);
                }
            }
        }
        Ok(Report { set: self.name, title: self.title, rows, gaps, orders, right })
    }
}

impl Gap {
    fn new(of: String, gaps: Vec<f64>) -> Self {
        let absolute: Vec<f64> = gaps.iter().map(|gap| gap.abs()).collect();
        let off = absolute.iter().filter(|&&gap| gap > 0.1).count();
        Self { of, cells: gaps.len(), median: median(gaps), absolute: median(absolute), off }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("kernel"),
            Self::Pinned => f.write_str("pinned"),
            Self::Balance(kind) => kind.fmt(f),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n", self.set, self.title)?;
        writeln!(f, "{:34} {:>8} {:>13} {:>9} {:>6}", "CELL", "MEASURED", "RANGE", "SIMULATED", "GAP")?;
        for row in &self.rows {
            let range = format!("{:.2}-{:.2}", row.low, row.high);
            let gap = 100.0 * row.gap;
            let Row { cell, measured, simulated, .. } = row;
            writeln!(f, "{cell:34} {measured:8.2} {range:>13} {simulated:9.2} {gap:+5.0} %")?;
        }
        writeln!(
            f,
            "\n{:10} {:>5} {:>10} {:>16} {:>15}",
            "GAPS", "CELLS", "MEDIAN", "MEDIAN ABSOLUTE", "MORE THAN 10 %"
        )?;
        for gap in &self.gaps {
            let (median, absolute) = (100.0 * gap.median, 100.0 * gap.absolute);
            let Gap { of, cells, off, .. } = gap;
            writeln!(f, "{of:10} {cells:5} {median:+8.1} % {absolute:14.1} % {off:15}")?;
        }
        writeln!(f, "\n{} of {} orders of two ways whose runs do not overlap", self.right, self.orders)
    }
}
