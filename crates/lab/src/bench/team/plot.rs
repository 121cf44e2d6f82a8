//! Panels of lines: time over size or ranks, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. Both scales are logarithmic to base 2, so that a line twice as steep is
//! a time that grows twice as fast. One colour for each contestant. Properties: no script, no font,
//! no external link; equal input gives equal bytes.

use super::super::harness::Head;
use trimtab_front::chart::{Canvas, MARGIN, through};

const SIDE: f64 = 200.0;
const LEFT: f64 = 58.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 30.0;
const HEAD: f64 = 64.0;
const LINE: f64 = 16.0;

/// A line of a panel.
#[derive(Debug)]
pub(in super::super) struct PlotLine {
    pub(in super::super) class: String,
    /// Position (a logarithm, see [`doublings`]) and value of each point.
    pub(in super::super) points: Vec<(f64, f64)>,
    /// Tooltip of each point.
    pub(in super::super) tips: Vec<String>,
}

/// Lines over one scale.
#[derive(Debug)]
pub(in super::super) struct Panel {
    pub(in super::super) title: String,
    pub(in super::super) lines: Vec<PlotLine>,
    /// Positions and labels of the ticks on the lower scale.
    pub(in super::super) below: Vec<(f64, String)>,
}

/// Draws the whole chart: rows of panels, and a legend of classes and names.
pub(in super::super) fn picture(
    title: &str,
    head: &Head,
    whos: &[(String, String)],
    rows: Vec<Vec<Panel>>,
) -> String {
    let under = HEAD + LINE * whos.len().div_ceil(4) as f64;
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = 2.0 * MARGIN + columns.max(3) as f64 * (LEFT + SIDE);
    let height = under + rows.len() as f64 * (ABOVE + SIDE + BELOW) + MARGIN;
    let mut out = Canvas::new(width, height, STYLE);
    out.title(title, &format!("{}, Linux {}", head.summary, head.kernel));
    for (at, (class, name)) in whos.iter().enumerate() {
        let (x, y) = (MARGIN + 190.0 * (at % 4) as f64, HEAD + LINE * (at / 4) as f64);
        out.path(class, &format!("M{x:.1} {:.1}h18", y - 4.0));
        out.text("note", x + 24.0, y, name);
    }
    for (row, panels) in rows.iter().enumerate() {
        for (column, one) in panels.iter().enumerate() {
            let left = MARGIN + LEFT + column as f64 * (LEFT + SIDE);
            panel(&mut out, one, left, under + ABOVE + row as f64 * (ABOVE + SIDE + BELOW));
        }
    }
    out.finish()
}

/// Returns the logarithm to base 2, interpolated linearly between powers of two: for positions in a
/// chart, without the mathematical library.
pub(in super::super) fn doublings(number: f64) -> f64 {
    let (mut number, mut whole) = (number.max(1e-6), 0.0);
    while number >= 2.0 {
        (number, whole) = (number / 2.0, whole + 1.0);
    }
    while number < 1.0 {
        (number, whole) = (number * 2.0, whole - 1.0);
    }
    whole + number - 1.0
}

fn panel(out: &mut Canvas, panel: &Panel, left: f64, top: f64) {
    out.text("panel", left, top - 8.0, &panel.title);
    out.markup(&format!(
        "<rect class=\"frame\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{SIDE}\" height=\"{SIDE}\"/>\n"
    ));
    let all = || panel.lines.iter().flat_map(|line| &line.points);
    let least = all().map(|(_, value)| doublings(*value)).reduce(f64::min);
    let (Some(least), Some(most)) = (least, all().map(|(_, value)| doublings(*value)).reduce(f64::max))
    else {
        out.text("below", left + SIDE / 2.0, top + SIDE / 2.0, "not measured");
        return;
    };
    let (low, high) = (least.floor(), most.ceil().max(least.floor() + 1.0));
    let first = all().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    let last = all().map(|(at, _)| *at).fold(f64::NEG_INFINITY, f64::max);
    let x = |at: f64| {
        let share = if last > first { (at - first) / (last - first) } else { 0.5 };
        left + 10.0 + (SIDE - 20.0) * share
    };
    let y = |value: f64| top + SIDE * (1.0 - (doublings(value) - low) / (high - low));
    let step = ((high - low) / 5.0).ceil();
    let mut tick = low;
    while tick <= high {
        let value = if tick < 0.0 { 1.0 / power(-tick) } else { power(tick) };
        let (at, words) = (y(value), if value < 1.0 { format!("{value:.3}") } else { format!("{value:.0}") });
        out.path("grid", &format!("M{left:.1} {at:.1}h{SIDE}"));
        out.text("tick", left - 5.0, at + 4.0, &words);
        tick += step;
    }
    for (at, words) in &panel.below {
        out.text("below", x(*at), top + SIDE + 14.0, words);
    }
    for PlotLine { class, points, tips } in &panel.lines {
        if points.len() > 1 {
            out.path(class, &through(points.iter().map(|(at, value)| (x(*at), y(*value)))));
        }
        for ((at, value), tip) in points.iter().zip(tips) {
            out.path_with_tip(class, &format!("M{:.1} {:.1}h6", x(*at) - 3.0, y(*value)), tip);
        }
    }
}

fn power(of: f64) -> f64 {
    (0..of as u32).fold(1.0, |all, _| all * 2.0)
}

/// The colours are distinguishable with any of the common colour blindnesses; peers' lines also
/// have different dashes.
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
