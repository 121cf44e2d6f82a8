//! A figure as a picture: a self-contained SVG of curves, what was published as open diamonds.
//!
//! Unit: pixels at scale 1. A panel holds up to [`MOST`] curves over the same places. Properties:
//! no script, no font, no link from outside; scales begin at zero; curves differ in dashes as well
//! as in colour; equal input gives equal bytes.

use trimtab_front::chart::{Canvas, MARGIN, Plot, plain, through};
use trimtab_sim::figures::{Figure, Plotted, Report};

/// So many curves in a panel.
pub(super) const MOST: usize = 8;

const AXIS: f64 = 48.0;
const STEP: f64 = 44.0;
const HEIGHT: f64 = 240.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 74.0;
const LEGEND: f64 = 230.0;
/// A letter of the title, at most on average.
const LETTER: f64 = 8.6;

const COLOURS: [&str; MOST] =
    ["#1b62a5", "#c4511f", "#2a7f4f", "#7b4fa3", "#8a6d00", "#b0306a", "#3f8fa8", "#555b66"];
const DASHES: [&str; MOST] = ["", "6 3", "2 3", "8 3 2 3", "", "6 3", "2 3", "8 3 2 3"];

/// Curves over the same places.
pub(super) struct Panel<'a> {
    pub(super) places: Vec<&'a str>,
    pub(super) series: Vec<Series<'a>>,
}

/// One of them.
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<&'a Plotted>,
}

/// The points of a figure: curves in the order of their first points, those over the same places
/// together.
pub(super) fn panels(report: &Report) -> Vec<Panel<'_>> {
    let mut series: Vec<Series<'_>> = Vec::new();
    for point in &report.points {
        match series.iter_mut().find(|series| series.name == point.series) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: &point.series, points: vec![point] }),
        }
    }
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for series in series {
        let places: Vec<&str> = series.points.iter().map(|point| point.x.as_str()).collect();
        match panels.last_mut().filter(|panel| panel.places == places && panel.series.len() < MOST) {
            Some(panel) => panel.series.push(series),
            None => panels.push(Panel { places, series: vec![series] }),
        }
    }
    panels
}

/// The whole picture.
pub(super) fn picture(figure: &Figure, report: &Report) -> String {
    let panels = panels(report);
    let most = panels.iter().map(|panel| panel.places.len()).max().unwrap_or(0);
    let curves = 2.0 * MARGIN + AXIS + (most as f64 * STEP).max(420.0) + LEGEND;
    let width = curves.max(2.0 * MARGIN + LETTER * figure.title.len() as f64);
    let top = MARGIN + 42.0;
    let height = top + panels.len() as f64 * (ABOVE + HEIGHT + BELOW) + MARGIN;
    let mut out = Canvas::new(width, height, STYLE);
    out.text("title", MARGIN, MARGIN + 8.0, figure.title);
    let note = format!("simulated; open diamonds: published ({})", figure.of);
    out.text("note", MARGIN, MARGIN + 26.0, &note);
    for (at, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, figure, top + at as f64 * (ABOVE + HEIGHT + BELOW), width - LEGEND - MARGIN);
    }
    out.finish()
}

fn draw(out: &mut Canvas, panel: &Panel<'_>, figure: &Figure, top: f64, right: f64) {
    let all = || panel.series.iter().flat_map(|series| &series.points);
    let heights =
        all().flat_map(|point| [Some(point.y), point.published]).flatten().filter(|y| y.is_finite());
    let plot = Plot::new(MARGIN + AXIS, right, top + ABOVE, HEIGHT, heights.fold(0.0, f64::max));
    let Plot { left, upper, floor, .. } = plot;
    let y = |value: f64| plot.y(value);
    let x =
        |at: usize| left + STEP * (at as f64 + 0.5) * ((right - left) / (STEP * panel.places.len() as f64));
    out.text("panel", MARGIN, top + 14.0, &format!("{} over {}", figure.y, figure.x));
    out.scale(&plot, 6.0);
    for (at, place) in panel.places.iter().enumerate() {
        let (x, y) = (x(at), floor + 14.0);
        out.markup(&format!(
            "<text class=\"place\" transform=\"translate({x:.1} {y:.1}) rotate(-40)\">{}</text>\n",
            plain(place)
        ));
    }
    for (number, series) in panel.series.iter().enumerate() {
        let (colour, dash) = (COLOURS[number % MOST], DASHES[number % MOST]);
        let finite = series.points.iter().enumerate().filter(|(_, point)| point.y.is_finite());
        let path = through(finite.clone().map(|(at, point)| (x(at), y(point.y))));
        out.markup(&format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-dasharray=\"{dash}\"/>\n"
        ));
        for (at, point) in finite {
            out.markup(&format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\" fill=\"{colour}\"><title>{} {}: {:.3}</title></circle>\n",
                x(at),
                y(point.y),
                plain(series.name),
                plain(&point.x),
                point.y));
            if let Some(published) = point.published {
                let (x, y) = (x(at), y(published));
                out.markup(&format!("<path d=\"M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z\" fill=\"none\" stroke=\"{colour}\" \
                     stroke-width=\"1.4\"><title>published: {published}</title></path>\n",
                    x - 6.0,
                    y - 6.0,
                    x + 6.0,
                    y + 6.0));
            }
        }
        let line = upper + 16.0 * number as f64;
        out.markup(&format!("<path d=\"M{:.1} {line:.1}h26\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\n",
            right + 12.0));
        out.text("note", right + 44.0, line + 4.0, series.name);
    }
    out.path("axis", &format!("M{left:.1} {upper:.1}V{floor:.1}H{right:.1}"));
}

const STYLE: &str = "<style>
text { font-family: sans-serif; font-size: 12px; fill: #2b2f36 }
.page { fill: #ffffff }
.title { font-size: 16px; font-weight: bold }
.panel { font-weight: bold }
.note { fill: #4a505a }
.tick { text-anchor: end; fill: #4a505a }
.place { text-anchor: end; font-size: 11px }
.grid { stroke: #e3e5e8; fill: none }
.axis { stroke: #6d6d6d; fill: none }
</style>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_over_other_places_or_too_many_get_a_panel_of_their_own() {
        let point = |series: &str, x: &str| Plotted {
            series: series.to_owned(),
            x: x.to_owned(),
            y: 1.0,
            published: None,
        };
        let mut points: Vec<Plotted> = (0..10).map(|at| point(&format!("s{at}"), "1")).collect();
        points.push(point("other", "2"));
        let report = Report { name: "x", points, values: Vec::new(), claims: Vec::new(), faults: Vec::new() };
        let sizes: Vec<usize> = panels(&report).iter().map(|panel| panel.series.len()).collect();
        assert_eq!(sizes, [8, 2, 1]);
    }
}
