//! The measurement as a bar chart: a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel a figure; in it a pair of bars a shape, unbound and bound,
//! with the interval as a whisker and the verdict as the bound bar's fill: it is visible only where
//! there is a difference. Bars are horizontal, so that any number of shapes has room, each with its
//! number beside it; all its numbers are in a tooltip. One very wide interval must not make all
//! bars short: a scale ends little beyond the longest bar, and a longer whisker ends in an arrow.
//! Properties: a scale begins at zero; bars differ in pattern as well as in colour; equal input
//! gives equal bytes.

use super::records::NestedStart;
use super::{Measured, report};
use std::fmt::Write as _;
use trimtab_core::stats::{Better, Estimate, Interval, Verdict};
use trimtab_front::chart::axis::Axis;
use trimtab_front::chart::text::width;
use trimtab_front::chart::{Canvas, LINE, MARGIN, WIDTH};

/// Height of a bar, and the distance between two shapes.
const BAR: f64 = 17.0;
const GAP: f64 = 10.0;
/// For the shapes at the left, and for the numbers at the right.
const SHAPES: f64 = 90.0;
const NUMBERS: f64 = 76.0;
/// Ends of the bars' area.
const LEFT: f64 = MARGIN + SHAPES;
const RIGHT: f64 = WIDTH - MARGIN - NUMBERS;

/// The whole picture.
pub(super) fn picture(start: &NestedStart, measured: &[Measured]) -> String {
    let mut out = Canvas::new(STYLE);
    let note = format!("{}, Linux {}", start.head.summary, start.head.kernel);
    let below = out.title("Nested OpenMP teams, unbound and bound", &note);
    let note = format!("medians of up to {} rounds, whiskers: 95 % bootstrap intervals", start.rounds);
    let below = out.lines("note", MARGIN, below, &note);
    let mut top = legend(&mut out, below + 6.0) + 10.0;
    for panel in panels(measured) {
        top = draw(&mut out, &panel, top);
    }
    out.finish(top)
}

/// Results of the same figure of the same program, in the order of their first.
fn panels(measured: &[Measured]) -> Vec<Vec<&Measured>> {
    let mut panels: Vec<Vec<&Measured>> = Vec::new();
    let same = |one: &Measured, other: &Measured| {
        (one.case.program, &one.figure.name) == (other.case.program, &other.figure.name)
    };
    for item in measured {
        match panels.iter_mut().find(|panel| same(panel[0], item)) {
            Some(panel) => panel.push(item),
            None => panels.push(vec![item]),
        }
    }
    panels
}

fn legend(out: &mut Canvas, y: f64) -> f64 {
    const STYLES: [&str; 4] = ["unbound", "better", "worse", "same"];
    let names = ["unbound", "bound, better", "bound, worse", "bound, no difference shown"];
    out.legend(y, &names, |out, at, x, y| out.rect(STYLES[at], x + 7.0, y - 6.0, 12.0, 12.0))
}

/// Draws a panel and returns the height below it.
fn draw(out: &mut Canvas, panel: &[&Measured], top: f64) -> f64 {
    let first = panel[0];
    let direction = match first.figure.better {
        Better::More => "more is better",
        Better::Less => "less is better",
    };
    let title = format!("{}: {}", first.case.program.file(), first.figure.name);
    let upper = out.lines("panel", MARGIN, top + 14.0, &title) - 8.0;
    let axis = Axis::linear(reach(panel));
    let floor = upper + panel.len() as f64 * (2.0 * BAR + GAP) + GAP;
    let x = |value: f64| LEFT + (RIGHT - LEFT) * axis.share(value);
    let mut ticks = Vec::new();
    for (value, label) in axis.ticks() {
        out.path("grid", &format!("M{:.1} {upper:.1}V{floor:.1}", x(value)));
        ticks.push((x(value), label));
    }
    for (at, item) in panel.iter().enumerate() {
        let y = upper + GAP + at as f64 * (2.0 * BAR + GAP);
        let bound = match item.comparison.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference | Verdict::Unknown => "same",
        };
        let words = report::verdict(item.comparison.verdict, item.figure.better);
        let tip = format!("{} unbound", item.case.shape);
        bar(out, &axis, "unbound", item.comparison.baseline, y, &tip);
        let tip = format!("{} bound: {words}", item.case.shape);
        bar(out, &axis, bound, item.comparison.candidate, y + BAR, &tip);
        out.text("tick", LEFT - 8.0, y + BAR + 4.5, &item.case.shape.to_string());
    }
    out.path("axis", &format!("M{LEFT:.1} {upper:.1}V{floor:.1}H{RIGHT:.1}"));
    let below = out.places(floor, &ticks) + LINE - 4.0;
    let label = format!("{}, {direction}", first.figure.unit);
    let middle = ((LEFT + RIGHT) / 2.0).max(MARGIN + width("below", &label) / 2.0);
    out.text("below", middle, below, &label);
    out.text("tick", LEFT - 8.0, below, "shape");
    below + LINE + MARGIN
}

/// How far the bars and whiskers of a panel reach.
fn reach(panel: &[&Measured]) -> f64 {
    let estimates =
        || panel.iter().flat_map(|item| [item.comparison.baseline, item.comparison.candidate]).flatten();
    let bars = estimates().map(|estimate| estimate.median).fold(0.0, f64::max);
    let whiskers = estimates().filter_map(|estimate| estimate.interval).map(|interval| interval.high);
    whiskers.fold(bars, f64::max).min(1.5 * bars)
}

fn bar(out: &mut Canvas, axis: &Axis, style: &str, estimate: Option<Estimate>, y: f64, tip: &str) {
    let base = y + BAR / 2.0 + 4.5;
    let Some(Estimate { median, interval }) = estimate else {
        out.text("note", LEFT + 4.0, base, "-");
        return;
    };
    let spread =
        interval.map_or_else(String::new, |Interval { low, high }| format!(" [{low:.4}, {high:.4}]"));
    out.markup(&format!("<g><title>{tip}: {median:.4}{spread}</title>"));
    let x = |value: f64| LEFT + (RIGHT - LEFT) * axis.share(value);
    // Overheads below zero are noise; a bar cannot be shorter than nothing.
    out.rect(style, LEFT, y, x(median) - LEFT, BAR);
    if let Some(Interval { low, high }) = interval {
        let (middle, left, right) = (y + BAR / 2.0, x(low), x(high));
        let (upper, lower) = (middle - 4.0, middle + 4.0);
        let mut path = format!("M{left:.1} {upper:.1}V{lower:.1}M{left:.1} {middle:.1}H{right:.1}");
        let _ = if axis.is_above(high) {
            write!(path, "m-7 -5l7 5l-7 5")
        } else {
            write!(path, "M{right:.1} {upper:.1}V{lower:.1}")
        };
        out.path("whisker", &path);
    }
    out.text("note", RIGHT + 10.0, base, &report::number(median));
    out.markup("</g>\n");
}

/// The colours are distinguishable with any common colour blindness; patterns do without colour.
const STYLE: &str = r##"<style>
.whisker { stroke: #1c1f24; stroke-width: 1.5; fill: none }
.unbound { fill: #c3c8cf; stroke: #8a919b }
.better { fill: #1b62a5; stroke: #0d3d6b }
.worse { fill: url(#p-worse); stroke: #9c4220 }
.same { fill: url(#p-same); stroke: #2f6fa8 }
</style>
<defs>
<pattern id="p-worse" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="#f2b59c"/><path d="M-1 1l2 -2M0 5l5 -5M4 6l2 -2" stroke="#c4511f"/></pattern>
<pattern id="p-same" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#e8f1fa"/><path d="M0 3h6" stroke="#6aa0d0"/></pattern>
</defs>
"##;

#[cfg(test)]
mod tests {
    use super::super::matrix::NestedCase;
    use super::*;
    use crate::args::bench::{NestedProgram, Shape};
    use crate::bench::harness::Head;
    use crate::kept_pictures::{is_kept, kept};
    use serde_json::Value;
    use std::collections::BTreeMap;
    use trimtab_core::stats::compare;

    /// Contents of a record's `result` lines.
    fn measured(lines: &[Value], seed: u64) -> Vec<Measured> {
        let numbers = |value: &Value| value.as_array().unwrap().iter().filter_map(Value::as_f64).collect();
        let one = |line: &Value| {
            let program = NestedProgram::ALL.into_iter().find(|one| line["program"] == one.file()).unwrap();
            let count = |name: &str| u32::try_from(line[name].as_u64().unwrap()).unwrap();
            let case = NestedCase { program, shape: Shape { outer: count("outer"), inner: count("inner") } };
            let figure = program.figures().into_iter().find(|one| line["figure"] == one.name).unwrap();
            let (unbound, bound): (Vec<f64>, Vec<f64>) = (numbers(&line["unbound"]), numbers(&line["bound"]));
            let comparison = compare(&unbound, &bound, figure.better, seed);
            Measured { case, figure, unbound, bound, comparison }
        };
        lines.iter().filter(|line| line["record"] == "result").map(one).collect()
    }

    fn drawn() -> String {
        let text = crate::bench::read_text(&kept("nested/results/nested-gcc-20261122.jsonl.gz")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let head: Head = serde_json::from_value(lines[0].clone()).unwrap();
        let seed = lines[0]["seed"].as_u64().unwrap();
        let start = NestedStart {
            head,
            cores: 2,
            rounds: u32::try_from(lines[0]["rounds"].as_u64().unwrap()).unwrap(),
            quick: true,
            seed,
            programs: String::new(),
            environment: BTreeMap::new(),
        };
        picture(&start, &measured(&lines, seed))
    }

    #[test]
    fn the_kept_picture_is_drawn_from_the_kept_record() {
        is_kept("nested/results/nested-gcc-20261122.svg", &drawn());
    }

    #[test]
    fn a_whisker_beyond_the_scale_ends_in_an_arrow() {
        let estimate = |high: f64| Estimate { median: 1.0, interval: Some(Interval { low: 0.5, high }) };
        let whisker = |high: f64| {
            let mut out = Canvas::new("");
            bar(&mut out, &Axis::linear(2.0), "same", Some(estimate(high)), 50.0, "tip");
            out.finish(200.0)
        };
        assert!(whisker(9.13).contains("m-7 -5l7 5l-7 5") && !whisker(1.5).contains("m-7 -5"));
    }
}
