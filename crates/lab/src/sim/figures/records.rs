//! Figures as JSON lines.

use super::FinishedFigure;
use anyhow::Result;
use serde::Serialize;
use trimtab_sim::figures::{Judged, Pair, Plotted, Summary};

const SCHEMA: &str = "trimtab.figures/1";

/// Content of a line.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum FigureRecord<'a> {
    Figure {
        title: &'a str,
        of: &'a str,
        x: &'a str,
        y: &'a str,
        notes: &'a [&'a str],
    },
    /// Results of a cell's runs, in the order of their seeds.
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
struct FigureLine<'a> {
    schema: &'static str,
    figure: &'a str,
    #[serde(flatten)]
    record: FigureRecord<'a>,
}

/// Formats all lines of one figure.
pub(super) fn figure(done: &FinishedFigure) -> Result<String> {
    let FinishedFigure { figure, runs, report } = done;
    let mut out = String::new();
    let mut line = |record: FigureRecord<'_>| -> Result<()> {
        let line = FigureLine { schema: SCHEMA, figure: figure.name, record };
        out.push_str(&serde_json::to_string(&line)?);
        out.push('\n');
        Ok(())
    };
    line(FigureRecord::Figure {
        title: figure.title,
        of: figure.of,
        x: figure.x,
        y: figure.y,
        notes: figure.notes,
    })?;
    for (cell, values) in figure.cells.iter().zip(runs) {
        line(FigureRecord::Cell { cell: &cell.name, seed: cell.scenario.seed, values })?;
    }
    for point in &report.points {
        line(FigureRecord::Point(point))?;
    }
    for pair in &report.values {
        line(FigureRecord::Value(pair))?;
    }
    for claim in &report.claims {
        line(FigureRecord::Order(claim))?;
    }
    for what in &report.faults {
        line(FigureRecord::Fault { what })?;
    }
    line(FigureRecord::Summary(Summary::of([report])))?;
    Ok(out)
}

/// Formats all lines of all figures, and the accuracy of the simulator over all.
pub(super) fn all(done: &[FinishedFigure]) -> Result<String> {
    let mut out = done.iter().map(figure).collect::<Result<String>>()?;
    let record = FigureRecord::Summary(Summary::of(done.iter().map(|done| &done.report)));
    out.push_str(&serde_json::to_string(&FigureLine { schema: SCHEMA, figure: "all", record })?);
    out.push('\n');
    Ok(out)
}
