//! Figures as lines of JSON.

use super::Done;
use anyhow::Result;
use serde::Serialize;
use trimtab_sim::figures::{Judged, Pair, Plotted, Summary};

const SCHEMA: &str = "trimtab.figures/1";

/// A line.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Record<'a> {
    Figure {
        title: &'a str,
        of: &'a str,
        x: &'a str,
        y: &'a str,
        notes: &'a [&'a str],
    },
    /// The numbers of a cell's runs, in the order of their seeds.
    Cell {
        cell: &'a str,
        seed: u64,
        values: &'a [f64],
    },
    Point(&'a Plotted),
    Value(&'a Pair),
    Order(&'a Judged),
    Fault {
        what: &'a str,
    },
    Summary(Summary),
}

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    figure: &'a str,
    #[serde(flatten)]
    record: Record<'a>,
}

/// All lines of one figure.
pub(super) fn figure(done: &Done) -> Result<String> {
    let Done { figure, runs, report } = done;
    let mut out = String::new();
    let mut line = |record: Record<'_>| -> Result<()> {
        let line = Line { schema: SCHEMA, figure: figure.name, record };
        out.push_str(&serde_json::to_string(&line)?);
        out.push('\n');
        Ok(())
    };
    line(Record::Figure {
        title: figure.title,
        of: figure.of,
        x: figure.x,
        y: figure.y,
        notes: figure.notes,
    })?;
    for (cell, values) in figure.cells.iter().zip(runs) {
        line(Record::Cell { cell: &cell.name, seed: cell.scenario.seed, values })?;
    }
    for point in &report.points {
        line(Record::Point(point))?;
    }
    for pair in &report.values {
        line(Record::Value(pair))?;
    }
    for claim in &report.claims {
        line(Record::Order(claim))?;
    }
    for what in &report.faults {
        line(Record::Fault { what })?;
    }
    line(Record::Summary(Summary::of([report])))?;
    Ok(out)
}

/// All lines of all figures, and how good the simulator is over all.
pub(super) fn all(done: &[Done]) -> Result<String> {
    let mut out = done.iter().map(figure).collect::<Result<String>>()?;
    let record = Record::Summary(Summary::of(done.iter().map(|done| &done.report)));
    out.push_str(&serde_json::to_string(&Line { schema: SCHEMA, figure: "all", record })?);
    out.push('\n');
    Ok(out)
}
