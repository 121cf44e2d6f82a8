//! The measurement as a picture: each index's changes over those of time, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel an index, one mark a case; an index that sees what time does
//! has its marks in the upper right and lower left quarters, a perfect one on the diagonal. A
//! change from a to b stands at (b - a) / (b + a): twice and half are as far from the middle, and
//! whatever happens has a place. Properties: no script, no font, no link from outside; experiments
//! differ in shape as well as in colour; both axes have the same scale; equal input gives equal
//! bytes.

use super::UncoreFindings;
use super::matrix::{ALL, word};
use super::records::UncoreStart;
use trimtab_core::penalty::Index;
use trimtab_front::chart::{Canvas, MARGIN};

/// A panel's square, and what is around it.
const SIDE: f64 = 220.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 46.0;
const LEFT: f64 = 56.0;
/// Panels side by side.
const ACROSS: usize = 3;
/// Half of a mark.
const MARK: f64 = 4.0;
const HEAD: f64 = 92.0;
/// Marks on the axes: relative changes, and their names.
const TICKS: [(f64, &str); 5] = [(-0.9, "/10"), (-0.5, "/2"), (0.0, "0 %"), (1.0, "x2"), (9.0, "x10")];

/// The whole picture.
pub(super) fn picture(start: &UncoreStart, found: &UncoreFindings<'_>) -> String {
    let rows = Index::ALL.len().div_ceil(ACROSS);
    let width = 2.0 * MARGIN + ACROSS as f64 * (LEFT + SIDE);
    let height = HEAD + rows as f64 * (ABOVE + SIDE + BELOW) + MARGIN;
    let mut out = Canvas::new(width, height, STYLE);
    let note = format!("{}, Linux {}", start.head.summary, start.head.kernel);
    out.title("What an index says of time: changes between two ways", &note);
    legend(&mut out, found);
    for (at, index) in Index::ALL.into_iter().enumerate() {
        let (column, row) = (at % ACROSS, at / ACROSS);
        let left = MARGIN + LEFT + column as f64 * (LEFT + SIDE);
        panel(&mut out, found, index, left, HEAD + row as f64 * (ABOVE + SIDE + BELOW) + ABOVE);
    }
    out.finish()
}

fn legend(out: &mut Canvas, found: &UncoreFindings<'_>) {
    let mut x = MARGIN + MARK;
    for (experiment, _) in &found.worth {
        let Some(experiment) = *experiment else { continue };
        mark(out, experiment, x, MARGIN + 46.0, experiment);
        out.text("note", x + 10.0, MARGIN + 50.0, experiment);
        x += 34.0 + 6.6 * experiment.len() as f64;
    }
}

fn panel(out: &mut Canvas, found: &UncoreFindings<'_>, index: Index, left: f64, top: f64) {
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
    out.text("panel", left, top - 10.0, &title);
    let (middle_x, middle_y) = (left + SIDE / 2.0, top + SIDE / 2.0);
    let (right, bottom) = (left + SIDE, top + SIDE);
    out.markup(&format!(
        "<rect class=\"frame\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{SIDE}\" height=\"{SIDE}\"/>\n"
    ));
    out.path("grid", &format!("M{left:.1} {middle_y:.1}H{right:.1}M{middle_x:.1} {top:.1}V{bottom:.1}"));
    out.path("diagonal", &format!("M{left:.1} {bottom:.1}L{right:.1} {top:.1}"));
    for (relative, words) in TICKS {
        let at = SIDE / 2.0 * place(relative);
        out.text("tick", left - 6.0, middle_y - at + 4.0, words);
        out.text("below", middle_x + at, bottom + 16.0, words);
    }
    out.text("below", middle_x, bottom + 32.0, "change of time");
    if points.is_empty() {
        out.text("below", middle_x, middle_y - 6.0, "not counted");
    }
    for (experiment, time, change, name) in points {
        let tip = format!("{name}: time {:+.1} %, {} {:+.1} %", 100.0 * time, index.word(), 100.0 * change);
        let (x, y) = (SIDE / 2.0 * place(time), SIDE / 2.0 * place(change));
        mark(out, experiment, middle_x + x, middle_y - y, &tip);
    }
}

/// Where a relative change stands: from -1 (to nothing) by 0 to 1 (from nothing).
fn place(relative: f64) -> f64 {
    relative / (2.0 + relative)
}

/// A mark: shape and colour by experiment.
fn mark(out: &mut Canvas, experiment: &str, x: f64, y: f64, tip: &str) {
    let number = ALL.iter().position(|one| word(*one) == experiment).unwrap_or(0);
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

/// Colours tell apart with any of the common colour blindnesses; shapes do without colour.
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
