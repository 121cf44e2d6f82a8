//! `trimtab sim figures`: published tables and figures, simulated, beside the published values.
//!
//! `runs` runs the cells on all cores, `report` shows them as tables, `records` as JSON, `chart` as
//! SVG, `kept` writes all of it into folders, `scenarios` prints the scenarios of cells.

mod chart;
mod kept;
mod records;
mod report;
mod runs;
mod scenarios;

use crate::args::FiguresArgs;
use anyhow::Result;
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::print;
use trimtab_front::table::{Align, Table};
use trimtab_sim::figures::{self, Figure, LIVE, NAMES, Report};

/// A figure with the results of its cells.
pub(super) struct FinishedFigure {
    figure: Figure,
    /// Results by cell, one for each run.
    runs: Vec<Vec<f64>>,
    report: Report,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] if there is no such figure, or a file cannot be written.
pub(super) fn run(args: &FiguresArgs) -> Result<u8, Exit> {
    show(args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn show(args: &FiguresArgs) -> Result<u8> {
    let named = || args.names.iter().map(String::as_str);
    let names: Vec<&str> = match &args.names[..] {
        [] if args.list => [NAMES, LIVE].concat(),
        [] => NAMES.to_vec(),
        _ => named().flat_map(|name| if name == "live" { LIVE.to_vec() } else { vec![name] }).collect(),
    };
    let figures = names.into_iter().map(figures::find).collect::<Result<Vec<_>, _>>()?;
    if args.list {
        print(&list(&figures))?;
        return Ok(exit::DONE);
    }
    if let Some(wanted) = &args.scenario {
        scenarios::show(&figures, wanted, args.out.as_deref())?;
        return Ok(exit::DONE);
    }
    let interrupt = Interrupt::listen()?;
    let Some(done) = runs::all(figures, args.jobs, &interrupt) else {
        return Ok(interrupt.came().map_or(exit::FAILED, |signal| 128_u8.saturating_add(signal as u8)));
    };
    if let Some(folder) = &args.out {
        kept::keep(folder, &done)?;
    }
    if args.json {
        print(&records::all(&done)?)?;
        return Ok(exit::DONE);
    }
    for done in &done {
        print(&report::figure(done))?;
    }
    print(&report::summary(&done))?;
    Ok(exit::DONE)
}

fn list(figures: &[Figure]) -> String {
    let mut table = Table::new(&[("figure", Align::Left), ("runs", Align::Right), ("source", Align::Left)]);
    for figure in figures {
        table.row([figure.name.to_owned(), figure.runs().count().to_string(), figure.of.to_owned()]);
    }
    table.to_string()
}
