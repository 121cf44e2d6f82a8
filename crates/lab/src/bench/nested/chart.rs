//! The measurement as a bar chart: a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel a figure; in it a pair of bars a shape, unbound and bound,
//! with the interval as a whisker and the verdict as the bound bar's fill: it stands out only where
//! there is a difference. The median stands above a bar, all its numbers in a tooltip. One wild
//! interval must not press all bars flat: a scale reaches little beyond the highest bar, and a
//! whisker that reaches further has no end. Properties: no script, no font, no link from outside; a
//! scale begins at zero; bars differ in pattern as well as in colour; equal input gives equal
//! bytes.

use super::records::NestedStart;
use super::{Measured, report};
use std::fmt::Write as _;
use trimtab_core::stats::{Better, Estimate, Interval, Verdict};
use trimtab_front::chart::{Canvas, MARGIN, Plot};

const BAR: f64 = 36.0;
/// Between two shapes.
const GAP: f64 = 26.0;
/// Of the bars' area.
const HEIGHT: f64 = 180.0;
/// For the numbers at the left of a panel.
const AXIS: f64 = 64.0;
/// A panel's title above, its shapes below.
const ABOVE: f64 = 34.0;
const BELOW: f64 = 44.0;
const WIDTH_MIN: f64 = 600.0;

/// The whole picture.
pub(super) fn picture(start: &NestedStart, measured: &[Measured]) -> String {
    let panels = panels(measured);
    let most = panels.iter().map(|panel| panel.len()).max().unwrap_or(0);
    let width = (AXIS + most as f64 * (2.0 * BAR + GAP) + GAP + 2.0 * MARGIN).max(WIDTH_MIN);
    let top = MARGIN + 74.0;
    let height = top + panels.len() as f64 * (ABOVE + HEIGHT + BELOW) + MARGIN;
    let mut out = Canvas::new(width, height, STYLE);
    let note = format!("{}, Linux {}", start.head.summary, start.head.kernel);
    out.title("Nested OpenMP teams, unbound and bound", &note);
    legend(&mut out, MARGIN + 46.0, start);
    for (at, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, top + at as f64 * (ABOVE + HEIGHT + BELOW), width);
    }
    out.finish()
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

fn legend(out: &mut Canvas, y: f64, start: &NestedStart) {
    let entries = [
        ("unbound", "unbound"),
        ("better", "bound, better"),
        ("worse", "bound, worse"),
        ("same", "bound, no difference shown"),
    ];
    let mut x = MARGIN;
    for (style, words) in entries {
        out.rect(style, x, y - 10.0, 12.0, 12.0);
        out.text("note", x + 17.0, y, words);
        x += 32.0 + 7.3 * words.len() as f64;
    }
    let note = format!("medians of up to {} rounds, whiskers: 95 % bootstrap intervals", start.rounds);
    out.text("note", MARGIN, y + 16.0, &note);
}

fn draw(out: &mut Canvas, panel: &[&Measured], top: f64, width: f64) {
    let first = panel[0];
    let direction = match first.figure.better {
        Better::More => "more is better",
        Better::Less => "less is better",
    };
    let title =
        format!("{}: {}, {}, {direction}", first.case.program.file(), first.figure.name, first.figure.unit);
    out.text("panel", MARGIN, top + 16.0, &title);
    let plot = Plot::new(MARGIN + AXIS, width - MARGIN, top + ABOVE, HEIGHT, reach(panel));
    out.scale(&plot, 8.0);
    for (at, item) in panel.iter().enumerate() {
        let x = MARGIN + AXIS + GAP + at as f64 * (2.0 * BAR + GAP);
        let bound = match item.comparison.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference | Verdict::Unknown => "same",
        };
        let words = report::verdict(item.comparison.verdict, item.figure.better);
        let tip = format!("{} unbound", item.case.shape);
        bar(out, &plot, "unbound", item.comparison.baseline, x, &tip);
        let tip = format!("{} bound: {words}", item.case.shape);
        bar(out, &plot, bound, item.comparison.candidate, x + BAR, &tip);
        out.text("shape", x + BAR, plot.floor + 18.0, &item.case.shape.to_string());
    }
    out.path("axis", &format!("M{:.1} {:.1}H{:.1}", plot.left, plot.floor, plot.right));
    out.path("axis", &format!("M{:.1} {:.1}V{:.1}", plot.left, plot.upper, plot.floor));
}

/// How far the bars and whiskers of a panel reach.
fn reach(panel: &[&Measured]) -> f64 {
    let estimates =
        || panel.iter().flat_map(|item| [item.comparison.baseline, item.comparison.candidate]).flatten();
    let bars = estimates().map(|estimate| estimate.median).fold(0.0, f64::max);
    let whiskers = estimates().filter_map(|estimate| estimate.interval).map(|interval| interval.high);
    whiskers.fold(bars, f64::max).min(1.5 * bars)
}

fn bar(out: &mut Canvas, plot: &Plot, style: &str, estimate: Option<Estimate>, x: f64, tip: &str) {
    let Some(Estimate { median, interval }) = estimate else {
        out.text("shape", x + BAR / 2.0, plot.floor - 4.0, "-");
        return;
    };
    let spread =
        interval.map_or_else(String::new, |Interval { low, high }| format!(" [{low:.4}, {high:.4}]"));
    out.markup(&format!("<g><title>{tip}: {median:.4}{spread}</title>"));
    // Overheads below zero are noise; a bar cannot be shorter than nothing.
    let mut above = plot.y(median);
    out.rect(style, x, above, BAR, plot.floor - above);
    if let Some(Interval { low, high }) = interval {
        let (middle, lower, upper) = (x + BAR / 2.0, plot.y(low), plot.y(high));
        let (left, right) = (middle - 5.0, middle + 5.0);
        let mut path = format!("M{left:.1} {lower:.1}H{right:.1}M{middle:.1} {lower:.1}V{upper:.1}");
        if high <= plot.top {
            let _ = write!(path, "M{left:.1} {upper:.1}H{right:.1}");
        }
        out.path("whisker", &path);
        above = above.min(upper);
    }
    out.text("value", x + BAR / 2.0, above - 4.0, &report::number(median));
    out.markup("</g>\n");
}

/// Colours tell apart with any of the common colour blindnesses; patterns do without colour.
const STYLE: &str = r##"<style>
text { font-family: sans-serif; font-size: 12px; fill: #2b2f36 }
.page { fill: #ffffff }
.title { font-size: 16px; font-weight: bold }
.panel { font-weight: bold }
.note { fill: #4a505a }
.tick { text-anchor: end; fill: #4a505a }
.shape { text-anchor: middle }
.value { text-anchor: middle; font-size: 10px }
.grid { stroke: #e3e5e8; fill: none }
.axis { stroke: #6d6d6d; fill: none }
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
