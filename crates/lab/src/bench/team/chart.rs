//! The measurement as a picture: time over size, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. A group of panels for each count of ranks, a panel for each operation;
//! both scales double, so that a line twice as steep is a time that grows twice as fast. Only cells
//! of mode stream; one line for each team and peer, the teams' lines thick. Properties: no script,
//! no font, no link from outside; equal input gives equal bytes.

use super::TeamFindings;
use super::contest::Contestant;
use super::matrix::TeamCell;
use super::plot::{self, Mark, Panel, PanelGroup, PlotLine, PlotPoint};
use super::records::TeamStart;
use crate::args::{Mode, Operation};
use trimtab_front::chart::axis::{Axis, log2};
use trimtab_front::units::size_on_axis;

/// The whole picture.
pub(super) fn picture(start: &TeamStart, found: TeamFindings<'_>) -> String {
    let mut counts: Vec<u32> = found.cells.iter().map(|cell| cell.ranks).collect();
    counts.dedup();
    let ops: Vec<Operation> =
        Operation::ALL.into_iter().filter(|op| found.cells.iter().any(|cell| cell.op == *op)).collect();
    let contestants: Vec<(String, String)> = found
        .contestants
        .iter()
        .enumerate()
        .map(|(at, contestant)| (class(at, contestant), contestant.to_string()))
        .collect();
    let group = |&ranks: &u32| {
        let panels: Vec<Panel> = ops.iter().map(|&op| panel(found, ranks, op)).collect();
        let word = if ranks == 1 { "rank" } else { "ranks" };
        PanelGroup {
            title: format!("{ranks} {word}"),
            of: "microseconds a call",
            over: "bytes",
            axis: Axis::powers(PanelGroup::values(&panels)),
            panels,
        }
    };
    let groups: Vec<PanelGroup> = counts.iter().map(group).collect();
    plot::picture("Teams beside others: microseconds a call, over bytes", &start.head, &contestants, &groups)
}

/// Returns the CSS classes of a line: the weight by team or peer, colour and shape by its place.
pub(super) fn class(at: usize, contestant: &Contestant) -> String {
    let weight = if matches!(contestant, Contestant::Team(_)) { "team" } else { "peer" };
    format!("{weight} {}", Mark::class(at))
}

fn panel(found: TeamFindings<'_>, ranks: u32, op: Operation) -> Panel {
    let wanted = |cell: &&TeamCell| cell.ranks == ranks && cell.op == op && cell.mode == Mode::Stream;
    let cells: Vec<TeamCell> = found.cells.iter().filter(wanted).copied().collect();
    let mut lines = Vec::new();
    for (at, contestant) in found.contestants.iter().enumerate() {
        let point = |cell: &TeamCell| {
            let us = found.of(*cell, contestant)?.median()?;
            Some(PlotPoint {
                at: log2(cell.bytes as f64),
                value: us,
                at_least: false,
                tip: format!("{contestant}: {us:.3} us"),
            })
        };
        lines.push(PlotLine {
            class: class(at, contestant),
            points: cells.iter().filter_map(point).collect(),
        });
    }
    let below = cells.iter().filter(|cell| cell.bytes > 0);
    let below = below.map(|cell| (log2(cell.bytes as f64), size_on_axis(cell.bytes))).collect();
    Panel { title: op.word().to_owned(), lines, below }
}
