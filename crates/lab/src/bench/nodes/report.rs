//! Report of `bench nodes`: a table of memory, and one of programs that begin on the wrong node.

use super::super::harness::{Head, SeriesEnd};
use super::NodesMeasured;
use super::matrix::NodesKind;
use super::records::NodesStart;
use std::fmt::Write as _;
use trimtab_core::stats::{Better, Estimate, Verdict};
use trimtab_front::study::estimate;
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &NodesStart, measured: &[NodesMeasured<'_>], ended: SeriesEnd) -> String {
    let (NodesStart { repeats, seed, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let mut text =
        format!("{summary}; Linux {kernel}\n{repeats} rounds in random order, seed {seed}; medians\n");
    if let Some(mode) = &start.numa_balancing {
        let _ = writeln!(text, "kernel.numa_balancing is {mode}");
    }
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: little memory, short windows; not for conclusions\n");
    }
    let (placed, memory): (Vec<_>, Vec<_>) =
        measured.iter().partition(|one| one.case.kind == NodesKind::Placed);
    if measured.is_empty() {
        text.push_str("\nnothing was measured\n");
    }
    if !memory.is_empty() {
        let mut table = Table::new(&[("MEMORY", Align::Left), ("VALUE", Align::Right), ("", Align::Left)]);
        for one in memory {
            table.row([one.case.to_string(), shown(one.estimate), one.case.kind.unit().to_owned()]);
        }
        let _ = write!(text, "\n{table}");
    }
    if !placed.is_empty() {
        let columns = [
            ("BEGINS", Align::Left),
            ("VARIANT", Align::Left),
            ("M ACCESSES/S", Align::Right),
            ("GAIN", Align::Right),
            ("AGAINST LINUX", Align::Left),
        ];
        let mut table = Table::new(&columns);
        for one in placed {
            table.row([
                one.case.point.clone(),
                one.way.word().to_owned(),
                shown(one.estimate),
                one.against_linux.and_then(|found| found.gain).map_or("-".to_owned(), estimate),
                one.against_linux.map_or("", |found| words(found.verdict)).to_owned(),
            ]);
        }
        let _ = write!(text, "\n{table}");
        text.push_str(
            "\nfar: one program, whose memory is on another node than its threads; crossed: two programs, each on the node of the \
             other one's memory\n",
        );
    }
    let SeriesEnd { complete, runs, failed } = ended;
    let _ = writeln!(text, "\n{runs} runs");
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}

fn shown(found: Option<Estimate>) -> String {
    found.map_or("-".to_owned(), estimate)
}

/// Returns the verdict in the words of a rate.
fn words(verdict: Verdict) -> &'static str {
    super::super::nested::verdict(verdict, Better::More)
}
