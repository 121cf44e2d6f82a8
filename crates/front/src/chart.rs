//! Charts as self-contained SVG: a canvas, the area of a plot with its scale, and escaped text.
//!
//! Properties: a scale begins at zero and ends on a round number; text is escaped, whatever its
//! source; equal calls give equal bytes.

use std::fmt::Write as _;

/// Escapes words for the picture's markup.
pub fn plain(words: &str) -> String {
    let mut plain = String::new();
    for letter in words.chars() {
        match letter {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            ' '..='~' => plain.push(letter),
            _ => plain.push('?'), // machine names come from firmware
        }
    }
    plain
}

/// Distance between a picture's edge and its content, in pixels.
pub const MARGIN: f64 = 24.0;
/// Number of parts into which lines across a plot divide its scale.
const SCALE_PARTS: u8 = 4;

/// Picture being drawn. Unit: pixels at scale 1. It contains no script, no font and no link to
/// other files; equal calls give equal bytes.
#[derive(Debug)]
pub struct Canvas(String);

impl Canvas {
    /// Makes an empty page of this size. `style` is a style sheet, and definitions if any.
    pub fn new(width: f64, height: f64, style: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n{style}<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n"
        ))
    }

    /// Writes a title, and a note below it, at the top.
    pub fn title(&mut self, title: &str, note: &str) {
        self.text("title", MARGIN, MARGIN + 10.0, title);
        self.text("note", MARGIN, MARGIN + 28.0, note);
    }

    /// Writes a line of text, of this class.
    pub fn text(&mut self, class: &str, x: f64, y: f64, words: &str) {
        let _ = writeln!(self.0, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", plain(words));
    }

    /// Draws a path, of this class: `data` is SVG path data.
    pub fn path(&mut self, class: &str, data: &str) {
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// Draws a path with a text that is shown while the pointer is over it.
    pub fn path_with_tip(&mut self, class: &str, data: &str, tip: &str) {
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{data}\"><title>{}</title></path>", plain(tip));
    }

    /// Draws a rectangle, of this class.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Adds a chart's own markup.
    pub fn markup(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Draws lines across a plot, each with its number at the left: a scale from zero.
    pub fn scale(&mut self, plot: &Plot, gap: f64) {
        for tick in 0..=SCALE_PARTS {
            let value = plot.top * f64::from(tick) / f64::from(SCALE_PARTS);
            let y = plot.y(value);
            self.path("grid", &format!("M{:.1} {y:.1}H{:.1}", plot.left, plot.right));
            self.text("tick", plot.left - gap, y + 4.0, &short(value));
        }
    }

    /// Returns the picture.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// Area of a plot, with a vertical scale from zero to a round number.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// Left and right ends of the plot.
    pub left: f64,
    pub right: f64,
    /// Upper end of the plot, and the height of zero.
    pub upper: f64,
    pub floor: f64,
    /// Value at the upper end.
    pub top: f64,
}

impl Plot {
    /// Makes an area whose scale has room for values up to `reach`.
    pub fn new(left: f64, right: f64, upper: f64, height: f64, reach: f64) -> Self {
        Self { left, right, upper, floor: upper + height, top: nice(reach) }
    }

    /// Returns the height of a value; a value beyond the scale is at its end.
    pub fn y(&self, value: f64) -> f64 {
        self.floor - (self.floor - self.upper) * (value / self.top).clamp(0.0, 1.0)
    }
}

/// Returns the data of a path through points.
pub fn through(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut data = String::new();
    for (x, y) in points {
        let letter = if data.is_empty() { 'M' } else { 'L' };
        let _ = write!(data, "{letter}{x:.1} {y:.1}");
    }
    data
}

/// Returns the largest power of ten up to a number; 1 for a number without one. Computed by hand,
/// since this program would load the mathematical library only for a logarithm, at every start.
fn power_of_ten(number: f64) -> f64 {
    if !(number.is_finite() && number > 0.0) {
        return 1.0;
    }
    let mut power = 1.0;
    while power * 10.0 <= number {
        power *= 10.0;
    }
    while power > number {
        power /= 10.0;
    }
    power
}

/// Rounds up to 1, 2, 4, 5 or 10 times a power of ten, so that quarters of it read well.
pub fn nice(reach: f64) -> f64 {
    if reach <= 0.0 || !reach.is_finite() {
        return 1.0;
    }
    let power = power_of_ten(reach);
    let steps = [1.0, 2.0, 4.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= reach).unwrap_or(10.0);
    step * power
}

/// Formats a scale's number, without trailing zeros.
pub fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_round_numbers() {
        for (reach, scale) in
            [(0.0, 1.0), (0.9, 1.0), (1.1, 2.0), (4.3, 5.0), (7.0, 10.0), (43.0, 50.0), (2655.0, 4000.0)]
        {
            assert!((nice(reach) - scale).abs() < 1e-9, "{reach}: {}", nice(reach));
        }
        assert_eq!(plain("a<b & c>d"), "a&lt;b &amp; c&gt;d");
        assert_eq!(
            (short(0.25), short(10.0), short(0.0)),
            ("0.25".to_owned(), "10".to_owned(), "0".to_owned())
        );
    }
}
