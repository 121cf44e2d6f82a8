//! Report of `bench nested`: tables of published and measured results.

use super::super::harness::Head;
use super::records::{NestedEnd, NestedStart};
use super::{Measured, published};
use crate::args::bench::NestedProgram;
use trimtab_core::stats::{Better, Estimate, Interval, Verdict};
use trimtab_front::table::{Align, Table};
use trimtab_front::units;

/// Most decimals of a number.
const DECIMALS_MAX: usize = 3;

/// Formats the whole report.
pub(super) fn page(start: &NestedStart, measured: &[Measured], end: &NestedEnd) -> String {
    let (NestedStart { rounds, seed, .. }, Head { machine, summary, kernel, .. }) = (start, &start.head);
    let mut text = format!("{machine}: {summary}; Linux {kernel}\n");
    text.push_str(&format!(
        "{rounds} rounds, unbound and bound alternate; medians with 95 % bootstrap intervals, seed {seed}\n"
    ));
    if start.quick {
        text.push_str("--quick: small problems, which caches may hold; not for conclusions about memory\n");
    }
    for (name, value) in &start.environment {
        text.push_str(&format!("{name}={value} is set for both variants\n"));
    }
    for program in NestedProgram::ALL {
        let of_program: Vec<&Measured> =
            measured.iter().filter(|measured| measured.case.program == program).collect();
        if of_program.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{}\n\n{}\nMeasured:\n\n", title(program), publication(program)));
        text.push_str(&here(&of_program));
    }
    if measured.is_empty() {
        text.push_str("\nnothing was measured\n");
    } else {
        text.push_str(&format!(
            "\nPublished: {}.\n{}\n{}\n",
            published::SOURCE,
            published::MACHINES,
            published::LOSSES
        ));
    }
    let NestedEnd { complete, runs, disturbed, .. } = end;
    if *disturbed > 0 {
        text.push_str(&format!(
            "Other programs wanted CPUs at the start of {disturbed} of {runs} runs: intervals are wider than on an idle machine\n"
        ));
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}

fn title(program: NestedProgram) -> &'static str {
    match program {
        NestedProgram::Stream => "Nested STREAM triad, GB/s: more is better. Bound: Y,scatter,Z,subscatter",
        NestedProgram::Syncbench => {
            "Nested synchronisation, microseconds of overhead: less is better. Bound: Y,scatter,Z,subcompact"
        }
        NestedProgram::Solver => {
            "Nested solver (for SHEMAT-Suite), seconds: less is better. Bound: Y,scatter,Z,subscatter"
        }
        NestedProgram::BtMz => "NAS BT-MZ, seconds: less is better. Bound: Y,scatter,Z,subscatter",
        NestedProgram::LuMz => "NAS LU-MZ, seconds: less is better. Bound: Y,scatter,Z,subscatter",
        NestedProgram::SpMz => "NAS SP-MZ, seconds: less is better. Bound: Y,scatter,Z,subscatter",
    }
}

/// Formats the published results of a program.
fn publication(program: NestedProgram) -> String {
    match program {
        NestedProgram::Stream => format!("Published, unbound / bound:\n\n{}", stream()),
        NestedProgram::Syncbench => format!("Published, unbound / bound:\n\n{}", sync()),
        NestedProgram::Solver => format!("Published: {}\n", published::SOLVER),
        NestedProgram::BtMz | NestedProgram::LuMz | NestedProgram::SpMz => {
            "Published: no results on binding for this program.\n".to_owned()
        }
    }
}

fn stream() -> Table {
    let shapes: Vec<String> = published::STREAM_SHAPES.iter().map(ToString::to_string).collect();
    let shapes = shapes.iter().map(|shape| (shape.as_str(), Align::Right));
    let columns: Vec<_> = std::iter::once(("MACHINE", Align::Left)).chain(shapes).collect();
    let mut table = Table::new(&columns);
    for published::PublishedStream { machine, unbound_bound } in published::STREAM {
        let pair = |at: usize| {
            unbound_bound
                .get(at)
                .map_or_else(String::new, |(unbound, bound)| format!("{unbound:.1} / {bound:.1}"))
        };
        let cells = (0..published::STREAM_SHAPES.len()).map(pair);
        table.row(std::iter::once(machine.to_owned()).chain(cells));
    }
    table
}

fn sync() -> Table {
    let constructs = published::CONSTRUCTS.map(str::to_uppercase);
    let columns = constructs.iter().map(|name| (name.as_str(), Align::Right));
    let columns: Vec<_> =
        [("MACHINE", Align::Left), ("SHAPE", Align::Left)].into_iter().chain(columns).collect();
    let mut table = Table::new(&columns);
    for published::PublishedSync { machine, shape, unbound, bound } in published::SYNC {
        let pairs = unbound.iter().zip(bound).map(|(unbound, bound)| format!("{unbound:.2} / {bound:.2}"));
        table.row([machine.to_owned(), shape.to_string()].into_iter().chain(pairs));
    }
    table
}

/// Formats the measured results.
fn here(measured: &[&Measured]) -> String {
    let mut table = Table::new(&[
        ("SHAPE", Align::Left),
        ("FIGURE", Align::Left),
        ("UNBOUND", Align::Right),
        ("BOUND", Align::Right),
        ("GAIN", Align::Right),
        ("BOUND IS", Align::Left),
    ]);
    for Measured { case, figure, comparison, .. } in measured {
        table.row([
            case.shape.to_string(),
            figure.name.clone(),
            estimate(comparison.baseline),
            estimate(comparison.candidate),
            gain(comparison.gain),
            verdict(comparison.verdict, figure.better).to_owned(),
        ]);
    }
    table.to_string()
}

fn estimate(estimate: Option<Estimate>) -> String {
    let Some(Estimate { median, interval }) = estimate else { return "-".to_owned() };
    let decimals = units::decimals(median, DECIMALS_MAX);
    match interval {
        Some(Interval { low, high }) => format!("{median:.decimals$} [{low:.decimals$}, {high:.decimals$}]"),
        None => format!("{median:.decimals$}"),
    }
}

fn gain(gain: Option<Estimate>) -> String {
    let Some(Estimate { median, interval }) = gain else { return "-".to_owned() };
    match interval {
        Some(Interval { low, high }) => format!("{median:.2}x [{low:.2}, {high:.2}]"),
        None => format!("{median:.2}x"),
    }
}

/// Formats a number with about three significant digits.
pub(super) fn number(value: f64) -> String {
    units::number(value, DECIMALS_MAX)
}

/// Returns the verdict in words of the figure: a bandwidth is higher, a time is shorter.
pub(in crate::bench) fn verdict(verdict: Verdict, better: Better) -> &'static str {
    match (verdict, better) {
        (Verdict::Better, Better::More) => "better (higher)",
        (Verdict::Better, Better::Less) => "better (shorter)",
        (Verdict::Worse, Better::More) => "WORSE (lower)",
        (Verdict::Worse, Better::Less) => "WORSE (longer)",
        (Verdict::NoDifference, _) => "no difference",
        (Verdict::Unknown, _) => "not known",
    }
}
