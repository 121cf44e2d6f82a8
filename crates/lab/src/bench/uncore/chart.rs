//! The measurement as a picture: each index's changes over those of time, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel an index, one mark a case; an index that changes in the
//! direction of the time has its marks in the upper right and lower left quarters, a perfect one on
//! the diagonal. A change is a ratio, on axes that are logarithmic around 1: twice and half are as
//! far from the middle. Properties: experiments differ in shape as well as in colour; both axes of
//! all panels have the same scale; equal input gives equal bytes.

use super::UncoreFindings;
use super::matrix::{ALL, word};
use super::records::UncoreStart;
use trimtab_core::penalty::Index;
use trimtab_front::chart::axis::Axis;
use trimtab_front::chart::text::{cut, width};
use trimtab_front::chart::{Canvas, LINE, MARGIN, Plot, SAMPLE, WIDTH};

/// Panels side by side, and the distance between them.
const ACROSS: usize = 2;
const GAP: f64 = 16.0;
/// For the numbers at the left of a panel.
const LEFT: f64 = 56.0;
/// Half of a mark.
const MARK: f64 = 4.0;
/// Ratios beyond this, and below its inverse, are at the ends of the axes.
const RATIO_MAX: f64 = 16.0;

/// The whole picture.
pub(super) fn picture(start: &UncoreStart, found: &UncoreFindings<'_>) -> String {
    let mut out = Canvas::new(STYLE);
    let note = format!("{}, Linux {}", start.head.summary, start.head.kernel);
    let below = out.title("What an index says of time: changes between two ways", &note);
    let experiments: Vec<&str> = found.worth.iter().filter_map(|(experiment, _)| *experiment).collect();
    let mut top = out.legend(below + 6.0, &experiments, |out, at, x, y| {
        mark(out, experiments[at], x + SAMPLE / 2.0, y, experiments[at]);
    }) + 10.0;
    let axis = axis(found);
    let wide = (WIDTH - 2.0 * MARGIN - (ACROSS - 1) as f64 * GAP) / ACROSS as f64;
    for row in Index::ALL.chunks(ACROSS) {
        for (column, index) in row.iter().enumerate() {
            panel(&mut out, found, *index, axis, (MARGIN + column as f64 * (wide + GAP), wide, top));
        }
        top += 2.0 * LINE + (wide - LEFT) + 3.0 * LINE + 10.0;
    }
    out.finish(top)
}

/// The axis of all changes.
fn axis(found: &UncoreFindings<'_>) -> Axis {
    let changes = found.cases.iter().flat_map(|(_, contrast)| {
        let indices = Index::ALL.into_iter().map(|index| contrast.index(index));
        indices.chain([contrast.time()]).flatten().filter_map(|change| change.relative)
    });
    Axis::ratio(changes.map(|relative| 1.0 + relative), RATIO_MAX)
}

/// Draws the panel of an index, at this left end, of this width, from this height.
fn panel(
    out: &mut Canvas,
    found: &UncoreFindings<'_>,
    index: Index,
    axis: Axis,
    (left, wide, top): (f64, f64, f64),
) {
    let points: Vec<(&str, f64, f64, &str)> = found
        .cases
        .iter()
        .filter_map(|(case, contrast)| {
            let time = contrast.time()?.relative?;
            let change = contrast.index(index)?.relative?;
            Some((case.experiment.as_str(), time, change, case.case.as_str()))
        })
        .collect();
    let all =
        found.worth.iter().find(|(of, _)| of.is_none()).map(|(_, all)| all.as_slice()).unwrap_or_default();
    let worth = all.iter().find(|(of, _)| *of == index).map(|(_, worth)| *worth).unwrap_or_default();
    let r = worth.changes.pearson.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
    let title = format!("{}: r {r}, signs {}/{}", index.word(), worth.signs.agree, worth.signs.of);
    out.text("panel", left, top, &cut("panel", &title, wide));
    out.text("note", left, top + LINE, &format!("{}, second over first", index.word()));
    let upper = top + 2.0 * LINE - 6.0;
    let plot = Plot { left: left + LEFT, right: left + wide, upper, floor: upper + wide - LEFT, axis };
    out.scale(&plot);
    let side = plot.right - plot.left;
    let x = |ratio: f64| plot.left + side * axis.share(ratio);
    out.path("one", &format!("M{0:.1} {upper:.1}V{1:.1}", x(1.0), plot.floor));
    out.path("diagonal", &format!("M{:.1} {:.1}L{:.1} {upper:.1}", plot.left, plot.floor, plot.right));
    for (ratio, label) in axis.ticks() {
        let most = WIDTH - 2.0 - width("below", &label) / 2.0;
        out.text("below", x(ratio).min(most), plot.floor + LINE, &label);
    }
    out.text("below", (plot.left + plot.right) / 2.0, plot.floor + 2.0 * LINE, "time, second over first");
    if points.is_empty() {
        out.text("below", (plot.left + plot.right) / 2.0, (upper + plot.floor) / 2.0 - 10.0, "not counted");
    }
    for (experiment, time, change, name) in points {
        let tip = format!("{name}: time {:+.1} %, {} {:+.1} %", 100.0 * time, index.word(), 100.0 * change);
        let (time, change) = (1.0 + time, 1.0 + change);
        if axis.is_beyond(change) || axis.is_beyond(time) {
            out.clipped(&format!("m{}", number(experiment)), &plot, x(time), change, &tip);
        } else {
            mark(out, experiment, x(time), plot.y(change), &tip);
        }
    }
}

/// The place of an experiment among all.
fn number(experiment: &str) -> usize {
    ALL.iter().position(|one| word(*one) == experiment).unwrap_or(0)
}

/// A mark: shape and colour by experiment.
fn mark(out: &mut Canvas, experiment: &str, x: f64, y: f64, tip: &str) {
    let number = number(experiment);
    let (l, r, t, b) = (x - MARK, x + MARK, y - MARK, y + MARK);
    let path = match number {
        0 => format!("M{l:.1} {t:.1}H{r:.1}V{b:.1}H{l:.1}Z"),
        1 => format!("M{x:.1} {t:.1}L{r:.1} {y:.1}L{x:.1} {b:.1}L{l:.1} {y:.1}Z"),
        2 => format!("M{x:.1} {t:.1}L{r:.1} {b:.1}H{l:.1}Z"),
        3 => format!("M{x:.1} {b:.1}L{r:.1} {t:.1}H{l:.1}Z"),
        4 => format!("M{l:.1} {t:.1}L{r:.1} {b:.1}M{r:.1} {t:.1}L{l:.1} {b:.1}"),
        5 => format!("M{x:.1} {t:.1}V{b:.1}M{l:.1} {y:.1}H{r:.1}"),
        _ => format!("M{l:.1} {t:.1}H{r:.1}M{x:.1} {t:.1}V{b:.1}"),
    };
    out.path_with_tip(&format!("m{number}"), &path, tip);
}

/// The colours are distinguishable with any common colour blindness; shapes do without colour.
const STYLE: &str = r##"<style>
.diagonal { stroke: #b9bec6; stroke-dasharray: 4 3; fill: none }
.m0, .m1, .m2, .m3, .m4, .m5, .m6 { fill-opacity: 0.6; stroke-width: 1.4 }
.m0 { fill: #1b62a5; stroke: #1b62a5 }
.m1 { fill: #c4511f; stroke: #c4511f }
.m2 { fill: #3f8f5b; stroke: #3f8f5b }
.m3 { fill: #8a6bbd; stroke: #8a6bbd }
.m4 { fill: none; stroke: #a0791a }
.m5 { fill: none; stroke: #1c1f24 }
.m6 { fill: none; stroke: #b0306a }
</style>
"##;
