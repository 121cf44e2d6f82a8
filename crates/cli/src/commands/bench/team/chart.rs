//! The measurement as a picture: time over size, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. A row of panels for each count of ranks, a panel for each operation; both scales double, so that a line twice as
//! steep is a time that grows twice as fast. Streams only: one line for each who is measured, teams thick. Properties: no script, no font, no
//! link from outside; equal input gives equal bytes.

use super::Found;
use super::cases::{Cell, Who};
use super::lines::Start;
use crate::args::{Mode, Operation};
use crate::commands::svg::{plain, text};
use std::fmt::Write as _;

const MARGIN: f64 = 24.0;
const SIDE: f64 = 200.0;
const LEFT: f64 = 58.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 30.0;
const HEAD: f64 = 64.0;
const LINE: f64 = 16.0;

/// The whole picture.
pub(super) fn picture(start: &Start, found: Found<'_>) -> String {
    let mut counts: Vec<u32> = found.cells.iter().map(|cell| cell.ranks).collect();
    counts.dedup();
    let ops: Vec<Operation> =
        Operation::ALL.into_iter().filter(|op| found.cells.iter().any(|cell| cell.op == *op)).collect();
    let legend = LINE * found.whos.len().div_ceil(4) as f64;
    let head = HEAD + legend;
    let width = 2.0 * MARGIN + ops.len().max(3) as f64 * (LEFT + SIDE);
    let height = head + counts.len() as f64 * (ABOVE + SIDE + BELOW) + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n{STYLE}<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n"
    );
    text(&mut out, "title", MARGIN, MARGIN + 10.0, "Teams beside others: microseconds a call, over bytes");
    let under = format!("{}, Linux {}", start.head.summary, start.head.kernel);
    text(&mut out, "note", MARGIN, MARGIN + 28.0, &under);
    for (at, who) in found.whos.iter().enumerate() {
        let (x, y) = (MARGIN + 190.0 * (at % 4) as f64, HEAD + LINE * (at / 4) as f64);
        let _ = writeln!(out, "<path class=\"{}\" d=\"M{x:.1} {:.1}h18\"/>", class(at, who), y - 4.0);
        text(&mut out, "note", x + 24.0, y, &who.to_string());
    }
    for (row, &ranks) in counts.iter().enumerate() {
        for (column, &op) in ops.iter().enumerate() {
            let left = MARGIN + LEFT + column as f64 * (LEFT + SIDE);
            let top = head + ABOVE + row as f64 * (ABOVE + SIDE + BELOW);
            panel(&mut out, found, (ranks, op), left, top);
        }
    }
    out.push_str("</svg>\n");
    out
}

fn class(at: usize, who: &Who) -> String {
    let weight = if matches!(who, Who::Team(_)) { "team" } else { "peer" };
    format!("{weight} c{}", at % 10)
}

/// The logarithm to base 2, straight between powers of two: for places in a picture, without the mathematical library.
fn doublings(number: f64) -> f64 {
    let (mut number, mut whole) = (number.max(1e-6), 0.0);
    while number >= 2.0 {
        (number, whole) = (number / 2.0, whole + 1.0);
    }
    while number < 1.0 {
        (number, whole) = (number * 2.0, whole - 1.0);
    }
    whole + number - 1.0
}

fn panel(out: &mut String, found: Found<'_>, (ranks, op): (u32, Operation), left: f64, top: f64) {
    let word = if ranks == 1 { "rank" } else { "ranks" };
    text(out, "panel", left, top - 8.0, &format!("{ranks} {word}, {}", op.word()));
    let _ = writeln!(
        out,
        "<rect class=\"frame\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{SIDE}\" height=\"{SIDE}\"/>"
    );
    let wanted = |cell: &&Cell| cell.ranks == ranks && cell.op == op && cell.mode == Mode::Stream;
    let cells: Vec<Cell> = found.cells.iter().filter(wanted).copied().collect();
    // The logarithm of the size, and the time.
    type Points = Vec<(f64, f64)>;
    let mut lines: Vec<(usize, &Who, Points)> = Vec::new();
    for (at, who) in found.whos.iter().enumerate() {
        let point = |cell: &Cell| Some((doublings(cell.bytes as f64), found.of(*cell, who)?.median()?));
        lines.push((at, who, cells.iter().filter_map(point).collect()));
    }
    let all = || lines.iter().flat_map(|(_, _, points)| points);
    let least = all().map(|(_, us)| doublings(*us)).reduce(f64::min);
    let (Some(least), Some(most)) = (least, all().map(|(_, us)| doublings(*us)).reduce(f64::max)) else {
        text(out, "below", left + SIDE / 2.0, top + SIDE / 2.0, "not measured");
        return;
    };
    let (low, high) = (least.floor(), most.ceil().max(least.floor() + 1.0));
    let first = all().map(|(bytes, _)| *bytes).fold(f64::INFINITY, f64::min);
    let last = all().map(|(bytes, _)| *bytes).fold(f64::NEG_INFINITY, f64::max);
    let x = |bytes: f64| {
        let share = if last > first { (bytes - first) / (last - first) } else { 0.5 };
        left + 10.0 + (SIDE - 20.0) * share
    };
    let y = |us: f64| top + SIDE * (1.0 - (doublings(us) - low) / (high - low));
    let step = ((high - low) / 5.0).ceil();
    let mut tick = low;
    while tick <= high {
        let us = if tick < 0.0 { 1.0 / power(-tick) } else { power(tick) };
        let (at, words) = (y(us), if us < 1.0 { format!("{us:.3}") } else { format!("{us:.0}") });
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{left:.1} {at:.1}h{SIDE}\"/>");
        text(out, "tick", left - 5.0, at + 4.0, &words);
        tick += step;
    }
    for cell in cells.iter().filter(|cell| cell.bytes > 0) {
        text(out, "below", x(doublings(cell.bytes as f64)), top + SIDE + 14.0, &cell.bytes.to_string());
    }
    for (at, who, points) in &lines {
        let mut path = String::new();
        for (bytes, us) in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(*bytes), y(*us));
        }
        let class = class(*at, who);
        if points.len() > 1 {
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
        }
        for (bytes, us) in points {
            let (x, y) = (x(*bytes), y(*us));
            let tip = plain(&format!("{who}: {us:.3} us"));
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{:.1} {y:.1}h6\"><title>{tip}</title></path>",
                x - 3.0
            );
        }
    }
}

fn power(of: f64) -> f64 {
    (0..of as u32).fold(1.0, |all, _| all * 2.0)
}

/// Colours tell apart with any of the common colour blindnesses; peers' lines are broken in different ways too.
const STYLE: &str = r##"<style>
text { font-family: sans-serif; font-size: 12px; fill: #2b2f36 }
.page { fill: #ffffff }
.title { font-size: 16px; font-weight: bold }
.panel { font-weight: bold }
.note { fill: #4a505a }
.tick { text-anchor: end; fill: #4a505a; font-size: 10px }
.below { text-anchor: middle; fill: #4a505a; font-size: 10px }
.frame { fill: none; stroke: #6d6d6d }
.grid { stroke: #e3e5e8; fill: none }
.team { fill: none; stroke-width: 3 }
.peer { fill: none; stroke-width: 1.4 }
.c0 { stroke: #1b62a5 }
.c1 { stroke: #c4511f }
.c2 { stroke: #3f8f5b }
.c3 { stroke: #8a6bbd; stroke-dasharray: 6 2 }
.c4 { stroke: #a0791a; stroke-dasharray: 2 2 }
.c5 { stroke: #1c1f24 }
.c6 { stroke: #b0306a; stroke-dasharray: 6 2 2 2 }
.c7 { stroke: #5aa9d6; stroke-dasharray: 4 4 }
.c8 { stroke: #7a7a7a }
.c9 { stroke: #7a7a7a; stroke-dasharray: 6 2 }
</style>
"##;

#[cfg(test)]
mod tests {
    use super::doublings;

    #[test]
    fn doublings_are_even() {
        assert_eq!([0.25, 0.5, 1.0, 1.5, 8.0].map(doublings), [-2.0, -1.0, 0.0, 0.5, 3.0]);
        assert!(doublings(0.0).is_finite());
    }
}
