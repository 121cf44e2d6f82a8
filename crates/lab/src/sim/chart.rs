//! Sweeps as line charts: a self-contained SVG.
//!
//! Unit: pixels at scale 1. One panel a file, with a line for each combination of the keys after
//! the first and a legend; the first key is the horizontal scale, by its value where all are
//! numbers or times, else one place beside the other. Properties: no script, no font, no link from
//! outside; the vertical scale begins at zero; lines differ in marks and dashes as well as in
//! colour; equal input gives equal bytes.

use super::scenario::is_stdout;
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::Path;
use trimtab_agent::output::{Claim, OutputKind};
use trimtab_core::words::plural;
use trimtab_front::chart::{Canvas, MARGIN, Plot};
use trimtab_front::print;
use trimtab_sim::outcome::Value;
use trimtab_sim::reader::parse_time;
use trimtab_sim::scenario::file::{File, Series};

/// For the numbers at the left of a panel.
const AXIS: f64 = 64.0;
/// Of the lines' area.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;
/// A panel's title above, its scale below.
const ABOVE: f64 = 34.0;
const BELOW: f64 = 52.0;
/// Between the lines of a legend.
const ENTRY: f64 = 18.0;
const LEGEND: f64 = 220.0;
/// More lines than colours and marks cannot be told apart.
const MOST: usize = 14;
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

/// A picture that is to be written at the end.
pub(super) struct Picture {
    /// `None` for standard output.
    claim: Option<Claim>,
}

impl Picture {
    /// Opens the file; what is there stays until the picture is drawn.
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
    let tall = |lines: &Vec<Series>| HEIGHT.max(lines.len() as f64 * ENTRY) + ABOVE + BELOW;
    let width = MARGIN + AXIS + WIDTH + MARGIN + LEGEND;
    let height = 2.0 * MARGIN + lines.iter().map(tall).sum::<f64>();
    let mut out = Canvas::new(width, height, STYLE);
    let mut top = MARGIN;
    for (file, lines) in files.iter().zip(lines) {
        panel(&mut out, file, lines, value, top);
        top += tall(lines);
    }
    out.finish()
}

fn panel(out: &mut Canvas, file: &File, lines: &[Series], value: Value, top: f64) {
    let Some(axis) = file.axes().first() else { return };
    out.text("panel", MARGIN, top + 16.0, &format!("{}: {}", file.name(), value.about()));
    let most = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max);
    let plot = Plot::new(MARGIN + AXIS, MARGIN + AXIS + WIDTH, top + ABOVE, HEIGHT, most);
    let Plot { left, right, upper, floor, .. } = plot;
    out.scale(&plot, 8.0);
    let places = places(&axis.values);
    for (place, label) in places.iter().zip(axis.shown()) {
        out.text("shape", left + place * WIDTH, floor + 18.0, &label);
    }
    out.text("shape", left + WIDTH / 2.0, floor + 38.0, &axis.key);
    out.path("axis", &format!("M{left:.1} {upper:.1}V{floor:.1}H{right:.1}"));
    for (at, line) in lines.iter().enumerate() {
        let (colour, dashed) = (COLOURS[at % COLOURS.len()], at >= COLOURS.len());
        let dash = if dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let point = |&(place, value): &(usize, f64)| {
            let x = left + places.get(place).copied().unwrap_or_default() * WIDTH;
            (x, plot.y(value))
        };
        let line_of = |data: &str| format!("<path class=\"line\" stroke=\"{colour}\"{dash} d=\"{data}\"/>\n");
        if !line.points.is_empty() {
            let all: Vec<String> =
                line.points.iter().map(point).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            out.markup(&line_of(&format!("M{}", all.join("L"))));
        }
        for one in &line.points {
            let (x, y) = point(one);
            out.markup(&format!("<g><title>{:.4}</title>", one.1));
            mark(out, at, x, y, colour);
            out.markup("</g>\n");
        }
        let (x, y) = (left + WIDTH + MARGIN, upper + 6.0 + at as f64 * ENTRY);
        out.markup(&line_of(&format!("M{:.1} {y:.1}H{:.1}", x - 12.0, x + 12.0)));
        mark(out, at, x, y, colour);
        out.markup("\n");
        let name = if line.name.is_empty() { value.word() } else { &line.name };
        out.text("note", x + 18.0, y + 4.0, name);
    }
}

/// A mark of the line at this place.
fn mark(out: &mut Canvas, at: usize, x: f64, y: f64, colour: &str) {
    out.markup(&match at % 4 {
        0 => format!("<circle fill=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => format!("<path fill=\"{colour}\" d=\"M{x:.1} {:.1}l5 9h-10z\"/>", y - 5.0),
        2 => format!("<path fill=\"{colour}\" d=\"M{:.1} {:.1}h8v8h-8z\"/>", x - 4.0, y - 4.0),
        _ => format!("<path fill=\"{colour}\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"/>", y - 5.0),
    });
}

/// Where the values of the first key stand, as parts of the width.
fn places(labels: &[String]) -> Vec<f64> {
    let number = |label: &String| {
        let plain = label.parse().ok().filter(|number: &f64| number.is_finite());
        plain.or_else(|| parse_time(label).map(trimtab_core::time::Span::seconds))
    };
    let numbers: Vec<f64> = labels.iter().filter_map(number).collect();
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

/// The colours of the lines are those of Okabe and Ito, which tell apart with any of the common
/// colour blindnesses.
const STYLE: &str = "<style>
text { font-family: sans-serif; font-size: 12px; fill: #2b2f36 }
.page { fill: #ffffff }
.panel { font-weight: bold }
.note { fill: #4a505a }
.tick { text-anchor: end; fill: #4a505a }
.shape { text-anchor: middle }
.grid { stroke: #e3e5e8; fill: none }
.axis { stroke: #6d6d6d; fill: none }
.line { fill: none; stroke-width: 2 }
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
    }
}
