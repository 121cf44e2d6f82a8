//! Sweeps as line charts: a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel a file, with a line for each combination of the keys after
//! the first and a legend; the first key is the horizontal scale, by its value where all are
//! numbers or times (logarithmic where these differ much), else one place beside the other. Places
//! that are words are not joined by lines: there are no values between them, and marks of equal
//! height are drawn side by side. Earlier lines are broader, so that one is seen below another of
//! the same values. Properties: a ratio's axis is logarithmic around 1, another begins at zero;
//! lines differ in marks and dashes as well as in colour; equal input gives equal bytes.

use super::is_stdout;
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::Path;
use trimtab_agent::output::{Claim, OutputKind};
use trimtab_core::words::plural;
use trimtab_front::chart::axis::{Axis, log2};
use trimtab_front::chart::{Canvas, LINE, MARGIN, Plot, SAMPLE, WIDTH, is_joined, through};
use trimtab_front::print;
use trimtab_sim::outcome::Value;
use trimtab_sim::reader::parse_time;
use trimtab_sim::scenario::file::{File, Series};

/// For the numbers at the left of a panel.
const AXIS: f64 = 56.0;
/// Of the lines' area.
const HEIGHT: f64 = 240.0;
/// Positive numbers that differ by more than this have a logarithmic scale.
const LINEAR_MAX: f64 = 12.0;
/// Ratios beyond this, and below its inverse, are at the ends of the axis.
const RATIO_MAX: f64 = 64.0;
/// Distance of the marks of two lines at a place that is a word.
const BESIDE: f64 = 8.0;
/// If there are more lines than colours and marks, lines cannot be distinguished.
const MOST: usize = 14;
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

/// A picture that is to be written at the end.
pub(super) struct Picture {
    /// `None` for standard output.
    claim: Option<Claim>,
}

impl Picture {
    /// Opens the file; an existing file stays until the picture is drawn.
    ///
    /// # Errors
    /// Nothing can be written there, or there is no sweep to be drawn.
    pub(super) fn open(path: &Path, files: &[File]) -> Result<Self> {
        let name = format!("--svg {}", path.display());
        if let Some(file) = files.iter().find(|file| file.axes().is_empty()) {
            bail!("{name}: {} is a single run, without a [sweep] to be drawn", file.name());
        }
        for file in files {
            let lines = trimtab_sim::scenario::file::series(file, &vec![None; file.len()]).len();
            if lines > MOST {
                bail!(
                    "{name}: {} would make {}, and up to {MOST} are allowed",
                    file.name(),
                    plural(lines, "line")
                );
            }
        }
        if is_stdout(path) {
            return Ok(Self { claim: None });
        }
        Ok(Self { claim: Some(Claim::open(&name, path, OutputKind::Picture, 0o666)?) })
    }

    /// Writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(mut self, picture: &str) -> Result<()> {
        let Some(claim) = &mut self.claim else { return Ok(print(picture)?) };
        let written = claim.cut(0).and_then(|()| claim.file().write_all(picture.as_bytes()));
        written.with_context(|| format!("cannot write {}", claim.path().display()))
    }
}

/// The whole picture: a panel a file.
pub(super) fn picture(files: &[File], lines: &[Vec<Series>], value: Value) -> String {
    let mut out = Canvas::new(STYLE);
    let mut top = MARGIN;
    for (file, lines) in files.iter().zip(lines) {
        top = panel(&mut out, file, lines, value, top);
    }
    out.finish(top)
}

/// Draws a panel and returns the height below it.
fn panel(out: &mut Canvas, file: &File, lines: &[Series], value: Value, top: f64) -> f64 {
    let Some(axis) = file.axes().first() else { return top };
    // The path is the user's own; the picture may go elsewhere.
    let name =
        Path::new(file.name()).file_name().map_or_else(|| file.name().into(), |name| name.to_string_lossy());
    let below = out.lines("title", MARGIN, top + 14.0, &name);
    let below = out.lines("note", MARGIN, below, value.about());
    let names: Vec<&str> =
        lines.iter().map(|line| if line.name.is_empty() { value.word() } else { &line.name }).collect();
    let shown = axis.shown();
    let are_joined: Vec<bool> = shown.windows(2).map(|two| is_joined(&two[0], &two[1])).collect();
    let has_lines = are_joined.contains(&true);
    let below = out.legend(below + 6.0, &names, |out, at, x, y| {
        if has_lines {
            out.markup(&stroke(at, &format!("M{x:.1} {y:.1}h{SAMPLE}")));
        }
        mark(out, at, x + SAMPLE / 2.0, y);
    });
    let plot = Plot {
        left: MARGIN + AXIS,
        right: WIDTH - MARGIN,
        upper: below,
        floor: below + HEIGHT,
        axis: vertical(lines, value),
    };
    out.scale(&plot);
    let wide = plot.right - plot.left;
    let places = places(&axis.values);
    let x = |place: usize| plot.left + places.get(place).copied().unwrap_or_default() * wide;
    let labels: Vec<(f64, String)> =
        shown.iter().enumerate().map(|(at, label)| (x(at), label.clone())).collect();
    let below = out.places(plot.floor, &labels);
    out.text("below", plot.left + wide / 2.0, below + LINE, &axis.key);
    for (at, line) in lines.iter().enumerate() {
        // Marks of lines are drawn at their value; those of categories beside each other.
        let room = (wide / places.len() as f64 / lines.len() as f64 * 0.8).min(BESIDE);
        let beside = if has_lines { 0.0 } else { room * (at as f64 - (lines.len() - 1) as f64 / 2.0) };
        let point = |(place, value): (usize, f64)| (x(place) + beside, plot.y(value));
        for two in line.points.windows(2) {
            if two[1].0 == two[0].0 + 1 && are_joined.get(two[0].0) == Some(&true) {
                out.markup(&stroke(at, &through([point(two[0]), point(two[1])])));
            }
        }
        for one in &line.points {
            let (x, y) = point(*one);
            if plot.axis.is_beyond(one.1) {
                out.clipped("beyond", &plot, x, one.1, &format!("{:.4}", one.1));
                continue;
            }
            out.markup(&format!("<g><title>{:.4}</title>", one.1));
            mark(out, at, x, y);
            out.markup("</g>\n");
        }
    }
    below + 2.0 * LINE + MARGIN
}

/// The vertical axis of these lines.
fn vertical(lines: &[Series], value: Value) -> Axis {
    let all = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    if value == Value::Ratio {
        Axis::ratio(all(), RATIO_MAX)
    } else {
        Axis::linear(all().fold(0.0, f64::max))
    }
}

/// Markup of a line in the colour and dash of the series at this place.
fn stroke(at: usize, data: &str) -> String {
    let dash = if at >= COLOURS.len() { " stroke-dasharray=\"5 3\"" } else { "" };
    let colour = COLOURS[at % COLOURS.len()];
    format!("<path class=\"line\" stroke=\"{colour}\" stroke-width=\"{}\"{dash} d=\"{data}\"/>\n", 5 - at % 4)
}

/// A mark of the line at this place.
fn mark(out: &mut Canvas, at: usize, x: f64, y: f64) {
    let colour = COLOURS[at % COLOURS.len()];
    out.markup(&match at % 4 {
        0 => format!("<circle fill=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>"),
        1 => format!("<path fill=\"{colour}\" d=\"M{x:.1} {:.1}l6 10h-12z\"/>", y - 6.0),
        2 => format!("<path fill=\"{colour}\" d=\"M{:.1} {:.1}h7v7h-7z\"/>", x - 3.5, y - 3.5),
        _ => format!("<path fill=\"{colour}\" d=\"M{x:.1} {:.1}l4 4l-4 4l-4 -4z\"/>", y - 4.0),
    });
}

/// Positions of the values of the first key, as parts of the width.
fn places(labels: &[String]) -> Vec<f64> {
    let number = |label: &String| {
        let plain = label.parse().ok().filter(|number: &f64| number.is_finite());
        plain.or_else(|| parse_time(label).map(trimtab_core::time::Span::seconds))
    };
    let numbers: Vec<f64> = labels.iter().filter_map(number).collect();
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let numbers: Vec<f64> = if least > 0.0 && most > LINEAR_MAX * least {
        numbers.into_iter().map(log2).collect()
    } else {
        numbers
    };
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // The outermost places leave room for their labels.
    let inside = |part: f64| 0.05 + 0.9 * part;
    if numbers.len() == labels.len() && high > low {
        return numbers.iter().map(|number| inside((number - low) / (high - low))).collect();
    }
    let last = labels.len().saturating_sub(1).max(1) as f64;
    (0..labels.len()).map(|place| inside(place as f64 / last)).collect()
}

/// The colours of the lines are those of Okabe and Ito, which are distinguishable with any common
/// colour blindness.
const STYLE: &str = "<style>
.line { fill: none }
.beyond { fill: #ffffff }
</style>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_have_their_scale_and_words_have_places() {
        let places = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            places(&labels).iter().map(|place| (place * 1000.0).round() as u32).collect::<Vec<_>>()
        };
        assert_eq!(places(&["0", "2", "8"]), [50, 275, 950]);
        assert_eq!(places(&["1 ms", "2 ms", "5 ms"]), [50, 275, 950]);
        assert_eq!(places(&["none", "speed", "3"]), [50, 500, 950]);
        assert_eq!(places(&["7"]), [50]);
        assert_eq!(places(&["1", "4", "16"]), [50, 500, 950], "far numbers: logarithmic");
    }
}
