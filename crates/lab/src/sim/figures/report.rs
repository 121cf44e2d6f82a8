//! Figures as text: tables of points, published and simulated values, and orders.

use super::FinishedFigure;
use super::chart::{Panel, panels};
use std::fmt::Write as _;
use trimtab_front::table::{Align, Table};
use trimtab_front::units;
use trimtab_sim::figures::Summary;
use trimtab_sim::published::{Basis, Used};

/// Formats a number with about three significant digits.
pub(super) fn number(value: f64) -> String {
    if value.is_finite() { units::number(value, 2) } else { "-".to_owned() }
}

fn percent(value: f64) -> String {
    if value.is_finite() { format!("{:+.1} %", 100.0 * value) } else { "-".to_owned() }
}

/// Formats one figure.
pub(super) fn figure(done: &FinishedFigure) -> String {
    let FinishedFigure { figure, report, .. } = done;
    let mut out = format!("{}: {}\n({}; {})\n", figure.name, figure.title, figure.of, figure.y);
    for panel in panels(report) {
        let _ = write!(out, "\n{}", points(&panel, figure.x));
    }
    if !report.values.is_empty() {
        let mut table = Table::new(&[
            ("published and simulated", Align::Left),
            ("published", Align::Right),
            ("simulated", Align::Right),
            ("error", Align::Right),
            ("", Align::Left),
        ]);
        for pair in &report.values {
            let used = match (pair.published.used, pair.published.basis) {
                (Used::Calibrated, _) => "calibrated",
                (Used::HeldOut, Basis::Stated) => "held out",
                (Used::HeldOut, Basis::Derived) => "held out, derived",
                (Used::HeldOut, Basis::Worded) => "held out, in words",
            };
            table.row([
                pair.published.what.to_owned(),
                number(pair.published.value),
                number(pair.simulated),
                percent(pair.error),
                used.to_owned(),
            ]);
        }
        let _ = write!(out, "\n{table}");
    }
    let wrong = || report.claims.iter().filter(|claim| !claim.right_order);
    if !report.claims.is_empty() {
        let right = report.claims.len() - wrong().count();
        let chosen = report.claims.iter().filter(|claim| claim.used == Used::Calibrated).count();
        let by =
            if chosen > 0 { format!("; by {chosen} of them a reading was chosen") } else { String::new() };
        let _ = writeln!(out, "\n{right} of {} published orders right{by}", report.claims.len());
    }
    for claim in wrong() {
        let _ = writeln!(out, "  wrong: {} ({} and {})", claim.what, number(claim.left), number(claim.right));
    }
    for fault in &report.faults {
        let _ = writeln!(out, "fault: {fault}");
    }
    for note in figure.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out.push('\n');
    out
}

/// Formats a panel: a row for each place, a column for each series.
fn points(panel: &Panel<'_>, x: &str) -> Table {
    let mut columns = vec![(x, Align::Left)];
    columns.extend(panel.series.iter().map(|series| (series.name, Align::Right)));
    let mut table = Table::new(&columns);
    for (at, place) in panel.places.iter().enumerate() {
        let cells = panel.series.iter().map(|series| number(series.points[at].y));
        table.row(std::iter::once((*place).to_owned()).chain(cells));
    }
    table
}

/// Formats the accuracy of the simulator, for each figure and in total.
pub(super) fn summary(done: &[FinishedFigure]) -> String {
    let mut table = Table::new(&[
        ("figure", Align::Left),
        ("held out", Align::Right),
        ("median error", Align::Right),
        ("stated", Align::Right),
        ("median error", Align::Right),
        ("calibrated", Align::Right),
        ("median error", Align::Right),
        ("orders", Align::Right),
        ("right", Align::Right),
    ]);
    let error = |error: Option<f64>| units::or_dash(error, |error| units::percent_apart(error, 1));
    let mut row = |name: &str, summary: Summary| {
        let right = 100.0 * summary.right as f64 / summary.orders.max(1) as f64;
        table.row([
            name.to_owned(),
            summary.held_out.to_string(),
            error(summary.median_error),
            summary.stated.to_string(),
            error(summary.median_error_stated),
            summary.calibrated.to_string(),
            error(summary.median_error_calibrated),
            summary.orders.to_string(),
            if summary.orders == 0 { "-".to_owned() } else { format!("{right:.1} %") },
        ]);
    };
    for done in done {
        row(done.figure.name, Summary::of([&done.report]));
    }
    if done.len() > 1 {
        row("all", Summary::of(done.iter().map(|done| &done.report)));
    }
    table.to_string()
}
