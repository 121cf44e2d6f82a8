//! A figure as a picture: a self-contained SVG of curves; published values are open diamonds.
//!
//! Unit: pixels at scale 1. A panel holds up to [`MOST`] curves over the same places, all ratios or
//! all per cent or all of another unit. Places that differ in more than a number are categories: no
//! line joins them, and points of equal height are drawn side by side. Earlier curves are broader,
//! so that one is seen below another of the same heights. Properties: a ratio's axis is logarithmic
//! around 1, others begin at zero; curves differ in dashes as well as in colour; equal input gives
//! equal bytes.

use trimtab_front::chart::axis::Axis;
use trimtab_front::chart::{Canvas, LINE, MARGIN, Plot, SAMPLE, WIDTH, is_joined, plain, through};
use trimtab_sim::figures::{Figure, Plotted, Report};

/// Maximum number of curves in a panel.
pub(super) const MOST: usize = 8;

/// For the numbers at the left of a panel.
const AXIS: f64 = 52.0;
const HEIGHT: f64 = 240.0;
/// Ratios beyond this, and below its inverse, are at the ends of the axis.
const RATIO_MAX: f64 = 16.0;
/// Distance of the points of two curves at a category.
const BESIDE: f64 = 6.0;
/// The same in a panel with curves.
const BESIDE_CURVES: f64 = 1.5;
/// Radius of a point without a curve.
const POINT: f64 = 3.4;

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
    let mut out = Canvas::new(STYLE);
    let note = format!("simulated; open diamonds: published ({})", figure.of);
    let mut top = out.title(figure.title, &note);
    for panel in panels(report) {
        for is_percent in [false, true] {
            let of = |series: &&Series<'_>| series.points.iter().all(|point| point.is_percent) == is_percent;
            let series: Vec<&Series<'_>> = panel.series.iter().filter(of).collect();
            if !series.is_empty() {
                top = draw(&mut out, &panel.places, &series, (figure, is_percent), top);
            }
        }
    }
    out.finish(top)
}

/// The label of the heights of a figure: values first, then numbers in per cent.
fn label(figure: &Figure, is_percent: bool) -> &str {
    match figure.y.split_once("; ") {
        Some((_, label)) if is_percent => label,
        Some((label, _)) => label,
        None => figure.y,
    }
}

/// Returns the axis of these curves: around 1 if the label names a ratio.
fn axis(label: &str, series: &[&Series<'_>]) -> Axis {
    let all = || series.iter().flat_map(|series| &series.points);
    let heights =
        || all().flat_map(|point| [Some(point.y), point.published]).flatten().filter(|y| y.is_finite());
    if label.contains(" over ") {
        Axis::ratio(heights(), RATIO_MAX)
    } else {
        Axis::linear(heights().fold(0.0, f64::max))
    }
}

/// Draws a panel and returns the height below it.
fn draw(
    out: &mut Canvas,
    places: &[&str],
    series: &[&Series<'_>],
    (figure, is_percent): (&Figure, bool),
    top: f64,
) -> f64 {
    let label = label(figure, is_percent);
    let below = out.lines("panel", MARGIN, top + 18.0, label);
    let are_joined: Vec<bool> = places.windows(2).map(|two| is_joined(two[0], two[1])).collect();
    let has_lines = are_joined.contains(&true);
    let names: Vec<&str> = series.iter().map(|series| series.name).collect();
    let below = out.legend(below, &names, |out, number, x, y| {
        if has_lines {
            stroke(out, number, &format!("M{x:.1} {y:.1}h{SAMPLE}"));
        }
        let colour = COLOURS[number % MOST];
        out.markup(&format!(
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"{colour}\"/>\n",
            x + SAMPLE / 2.0,
            radius(number, has_lines)
        ));
    });
    let plot = Plot {
        left: MARGIN + AXIS,
        right: WIDTH - MARGIN,
        upper: below,
        floor: below + HEIGHT,
        axis: axis(label, series),
    };
    out.scale(&plot);
    let step = (plot.right - plot.left) / places.len() as f64;
    let x = |at: usize| plot.left + step * (at as f64 + 0.5);
    let labels: Vec<(f64, String)> =
        places.iter().enumerate().map(|(at, place)| (x(at), (*place).to_owned())).collect();
    let below = out.places(plot.floor, &labels);
    out.text("below", (plot.left + plot.right) / 2.0, below + LINE, figure.x);
    let room = match (has_lines, are_joined.contains(&false)) {
        (true, false) => 0.0,
        // The steps of neighbouring curves stay at their places.
        (true, true) => BESIDE_CURVES,
        (false, _) => (0.8 * step / series.len() as f64).min(BESIDE),
    };
    for (number, series) in series.iter().enumerate() {
        let beside = room * (number as f64 - (names.len() - 1) as f64 / 2.0);
        let place = |at: usize, y: f64| (x(at) + beside, plot.y(y));
        for (at, two) in series.points.windows(2).enumerate() {
            if are_joined[at] && two[0].y.is_finite() && two[1].y.is_finite() {
                stroke(out, number, &through([place(at, two[0].y), place(at + 1, two[1].y)]));
            }
        }
        for (at, point) in series.points.iter().enumerate().filter(|(_, point)| point.y.is_finite()) {
            points(out, &plot, (number, has_lines), point, place(at, point.y).0);
        }
    }
    below + 2.0 * LINE + MARGIN
}

/// Width of the curve with this number.
fn breadth(number: usize) -> f64 {
    3.8 - 0.7 * (number % 4) as f64
}

/// Radius of the points of the curve with this number.
fn radius(number: usize, has_lines: bool) -> f64 {
    if has_lines { breadth(number) + 1.0 } else { POINT }
}

/// Draws a piece of the curve with this number.
fn stroke(out: &mut Canvas, number: usize, data: &str) {
    let (colour, dash) = (COLOURS[number % MOST], DASHES[number % MOST]);
    out.markup(&format!(
        "<path d=\"{data}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{:.1}\" stroke-dasharray=\"{dash}\"/>\n",
        breadth(number)
    ));
}

/// Draws a simulated point, and the published one beside it.
fn points(out: &mut Canvas, plot: &Plot, (number, has_lines): (usize, bool), point: &Plotted, x: f64) {
    let colour = COLOURS[number % MOST];
    let tip = format!("{} {}: {:.3}", point.series, point.x, point.y);
    if plot.axis.is_beyond(point.y) {
        out.clipped("beyond", plot, x, point.y, &tip);
    } else {
        out.markup(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"{:.1}\" fill=\"{colour}\"><title>{}</title></circle>\n",
            plot.y(point.y),
            radius(number, has_lines),
            plain(&tip)
        ));
    }
    let Some(published) = point.published else { return };
    let tip = format!("published: {published}");
    if plot.axis.is_beyond(published) {
        out.clipped("beyond", plot, x, published, &tip);
        return;
    }
    let y = plot.y(published);
    out.markup(&format!(
        "<path d=\"M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z\" fill=\"none\" stroke=\"{colour}\" \
         stroke-width=\"1.4\"><title>{tip}</title></path>\n",
        x - 6.0,
        y - 6.0,
        x + 6.0,
        y + 6.0
    ));
}

const STYLE: &str = "<style>
.beyond { fill: #ffffff }
</style>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_pictures::{is_kept, kept};

    #[test]
    fn curves_over_other_places_or_too_many_get_a_panel_of_their_own() {
        let point = |series: &str, x: &str| Plotted {
            series: series.to_owned(),
            x: x.to_owned(),
            y: 1.0,
            published: None,
            is_percent: false,
        };
        let mut points: Vec<Plotted> = (0..10).map(|at| point(&format!("s{at}"), "1")).collect();
        points.push(point("other", "2"));
        let report = Report { name: "x", points, values: Vec::new(), claims: Vec::new(), faults: Vec::new() };
        let sizes: Vec<usize> = panels(&report).iter().map(|panel| panel.series.len()).collect();
        assert_eq!(sizes, [8, 2, 1]);
    }

    /// Returns a kept record, which is compressed if it is long.
    fn kept_lines(name: &str) -> String {
        use std::io::Read;
        let plain = kept(name);
        std::fs::read_to_string(&plain).unwrap_or_else(|_| {
            let packed = std::fs::File::open(kept(&format!("{name}.gz"))).unwrap();
            let mut text = String::new();
            flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
            text
        })
    }

    #[test]
    fn kept_pictures_are_drawn_from_the_kept_runs() {
        for name in trimtab_sim::figures::NAMES {
            let figure = trimtab_sim::figures::find(name).unwrap();
            let lines = kept_lines(&format!("simulator/{name}/lines.jsonl"));
            let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let cells: Vec<_> = lines.filter(|line| line["record"] == "cell").collect();
            let runs: Vec<Vec<f64>> = figure
                .cells
                .iter()
                .map(|cell| {
                    let kept = cells.iter().find(|kept| kept["cell"] == cell.name).unwrap();
                    // A run that did not end is null.
                    let values = kept["values"].as_array().unwrap().iter();
                    values.map(|value| value.as_f64().unwrap_or(f64::INFINITY)).collect()
                })
                .collect();
            let report = figure.report(&runs);
            is_kept(&format!("simulator/{name}/picture.svg"), &picture(&figure, &report));
        }
    }
}
