//! Charts as self-contained SVG: a canvas of one width, axes, words with known sizes, and a check.
//!
//! Problem: a chart is seen on a wide screen, in a page, and on a phone, which draws it at 420
//! pixels. Idea: every chart is [`WIDTH`] pixels wide and as long as its content; no text is
//! smaller than [`text::SIZE`], so that a phone shows it with more than nine pixels. Properties: no
//! script, no font, no link to other files; text is escaped, whatever its source; equal calls give
//! equal bytes. [`text::faults`] finds overlapping or cut texts in a finished picture, without a
//! browser.

pub mod axis;
pub mod text;

use axis::Axis;
use std::fmt::Write as _;
use text::width;

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

/// Width of every chart, in pixels at scale 1.
pub const WIDTH: f64 = 600.0;
/// Distance between a picture's edge and its content, in pixels.
pub const MARGIN: f64 = 16.0;
/// Distance between the base lines of two lines of text.
pub const LINE: f64 = 18.0;
/// Width of the sample before the name in a legend.
pub const SAMPLE: f64 = 26.0;
/// Distance between two entries of a legend.
const ENTRY_GAP: f64 = 18.0;

/// Picture being drawn, from top to bottom. Unit: pixels at scale 1.
#[derive(Debug)]
pub struct Canvas {
    style: String,
    body: String,
}

impl Canvas {
    /// Makes an empty picture. `style` is a style sheet of the chart's own classes, and definitions
    /// if any; the classes of texts, grids and axes are there.
    pub fn new(style: &str) -> Self {
        Self { style: format!("{}{style}", text::style()), body: String::new() }
    }

    /// Writes a title, and a note below it, at the top. Returns the height below both.
    pub fn title(&mut self, title: &str, note: &str) -> f64 {
        let below = self.lines("title", MARGIN, MARGIN + 14.0, title);
        self.lines("note", MARGIN, below, note)
    }

    /// Writes a line of text, of this class.
    pub fn text(&mut self, class: &str, x: f64, y: f64, words: &str) {
        let _ =
            writeln!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", plain(words));
    }

    /// Writes words from `x` to the right margin, in as many lines as they need; `y` is the base of
    /// the first. Returns the base of the line after the last.
    pub fn lines(&mut self, class: &str, x: f64, y: f64, words: &str) -> f64 {
        let mut base = y;
        for line in text::wrapped(class, words, WIDTH - MARGIN - x) {
            self.text(class, x, base, &line);
            base += LINE + if class == "title" { 4.0 } else { 0.0 };
        }
        base
    }

    /// Writes a text that ends at (x, y) and is read from below.
    pub fn upright(&mut self, class: &str, x: f64, y: f64, words: &str) {
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{}</text>",
            plain(words)
        );
    }

    /// Draws a legend in columns: `sample` draws the sample of an entry, whose left end and middle
    /// it gets. Returns the height below.
    pub fn legend(
        &mut self,
        y: f64,
        names: &[&str],
        mut sample: impl FnMut(&mut Self, usize, f64, f64),
    ) -> f64 {
        let room = WIDTH - 2.0 * MARGIN;
        let longest = names.iter().map(|name| width("note", name)).fold(0.0, f64::max);
        let entry = SAMPLE + 6.0 + longest + ENTRY_GAP;
        let columns = (((room + ENTRY_GAP) / entry) as usize).max(1);
        for (at, name) in names.iter().enumerate() {
            let (x, base) = (MARGIN + (at % columns) as f64 * entry, y + (at / columns) as f64 * LINE);
            sample(self, at, x, base - 4.5);
            self.text("note", x + SAMPLE + 6.0, base, &text::cut("note", name, room - SAMPLE - 6.0));
        }
        y + names.len().div_ceil(columns) as f64 * LINE
    }

    /// Draws a path, of this class: `data` is SVG path data.
    pub fn path(&mut self, class: &str, data: &str) {
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// Draws a path with a text that is shown while the pointer is over it.
    pub fn path_with_tip(&mut self, class: &str, data: &str, tip: &str) {
        let _ =
            writeln!(self.body, "<path class=\"{class}\" d=\"{data}\"><title>{}</title></path>", plain(tip));
    }

    /// Draws a rectangle, of this class.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Adds a chart's own markup.
    pub fn markup(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Draws lines across a plot, each with its number at the left, and its frame; a ratio's 1 is
    /// emphasised.
    pub fn scale(&mut self, plot: &Plot) {
        for (value, label) in plot.axis.ticks() {
            let y = plot.y(value);
            let class = if plot.axis.is_ratio() && value == 1.0 { "one" } else { "grid" };
            self.path(class, &format!("M{:.1} {y:.1}H{:.1}", plot.left, plot.right));
            self.text("tick", plot.left - 6.0, y + 4.5, &label);
        }
        let Plot { left, right, upper, floor, .. } = *plot;
        self.path("axis", &format!("M{left:.1} {upper:.1}V{floor:.1}H{right:.1}"));
    }

    /// Marks a value that the scale does not reach: an arrow at the end where it lies, with a tip.
    pub fn clipped(&mut self, class: &str, plot: &Plot, x: f64, value: f64, tip: &str) {
        let y = plot.y(value);
        let data = if plot.axis.is_beyond(value) && !plot.axis.is_above(value) {
            format!("M{x:.1} {y:.1}l5 -9h-10z")
        } else {
            format!("M{x:.1} {y:.1}l5 9h-10z")
        };
        self.path_with_tip(&format!("{class} clipped"), &data, tip);
    }

    /// Writes labels below a plot: side by side if they have room, else upright; those without room
    /// are left out, but not the last. Returns the height below.
    pub fn places(&mut self, floor: f64, places: &[(f64, String)]) -> f64 {
        const ROOM: f64 = 3.0;
        let half = |label: &str| width("below", label) / 2.0 + ROOM;
        // The outermost labels may be wider than the remaining part of the page.
        let inside = |x: f64, label: &str| x.clamp(half(label), WIDTH - half(label));
        let flat = places.windows(2).all(|two| {
            let [(x, label), (next, after)] = two else { return true };
            inside(*x, label) + half(label) <= inside(*next, after) - half(after)
        });
        if flat {
            for (x, label) in places {
                self.text("below", inside(*x, label), floor + LINE, label);
            }
            return floor + LINE + 6.0;
        }
        let mut free_until = f64::INFINITY;
        for (x, label) in places.iter().rev().filter(|(x, _)| x.is_finite()) {
            if x + text::SIZE / 2.0 <= free_until {
                self.upright("tick", x + 4.5, floor + 7.0, label);
                free_until = x - text::SIZE / 2.0 - 1.0;
            }
        }
        floor + 12.0 + places.iter().map(|(_, label)| width("tick", label)).fold(0.0, f64::max)
    }

    /// Returns the picture, which ends `height` pixels below its top.
    pub fn finish(self, height: f64) -> String {
        let Self { style, body } = self;
        // Opened by itself, or embedded, it shrinks to a narrow screen.
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH:.0} {height:.0}\" style=\"max-width:100%;height:auto\">\n{style}\
             <rect class=\"page\" width=\"{WIDTH:.0}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
        )
    }
}

/// Area of a plot, with a vertical axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Left and right ends of the plot.
    pub left: f64,
    pub right: f64,
    /// Upper and lower ends of the plot.
    pub upper: f64,
    pub floor: f64,
    pub axis: Axis,
}

impl Plot {
    /// Returns the height of a value; a value beyond the axis is at its end.
    pub fn y(&self, value: f64) -> f64 {
        self.floor - (self.floor - self.upper) * self.axis.share(value)
    }
}

/// Returns whether a line may join the places of two labels: both are the same words but for one
/// number. Places that differ in words are categories, and nothing lies between them.
pub fn is_joined(label: &str, next: &str) -> bool {
    let (Some((before, unit)), Some((before_next, unit_next))) =
        (without_number(label), without_number(next))
    else {
        return false;
    };
    // `0-7` is a number of CPUs; `4x2` and `16/4` are two numbers.
    let is_one = before == "0-" || !before.contains(|letter: char| letter.is_ascii_digit());
    before == before_next && is_one && is_unit(unit, unit_next)
}

/// Splits a label at its last number, which it leaves out.
fn without_number(label: &str) -> Option<(&str, &str)> {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let end = label.rfind(is_number)? + 1;
    let begin = label[..end].rfind(|letter| !is_number(letter)).map_or(0, |at| at + 1);
    Some((&label[..begin], label[end..].trim()))
}

/// Returns whether two units measure the same.
fn is_unit(unit: &str, other: &str) -> bool {
    const KINDS: [&[&str]; 2] = [&["", "k", "K", "M", "G"], &["ns", "us", "ms", "s"]];
    unit == other || KINDS.iter().any(|kind| kind.contains(&unit) && kind.contains(&other))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped() {
        assert_eq!(plain("a<b & c>d"), "a&lt;b &amp; c&gt;d");
    }

    #[test]
    fn a_value_beyond_the_axis_has_a_mark_at_its_end() {
        let plot = Plot { left: 0.0, right: 100.0, upper: 10.0, floor: 110.0, axis: Axis::ratio([1.5], 4.0) };
        let mut canvas = Canvas::new("");
        for (value, end) in [(9.13, "M50.0 10.0l5 9"), (0.0, "M50.0 110.0l5 -9")] {
            assert!(plot.axis.is_beyond(value));
            canvas.clipped("dot", &plot, 50.0, value, &value.to_string());
            assert!(canvas.body.contains(end) && canvas.body.contains(&format!("<title>{value}")));
        }
        assert!(!plot.axis.is_beyond(1.5));
    }

    #[test]
    fn numbers_are_joined_and_categories_are_not() {
        for (one, next) in
            [("4", "8"), ("ep 2", "ep 4"), ("512K", "1M"), ("500 us", "1 ms"), ("0-3", "0-7"), ("0.5", "1")]
        {
            assert!(is_joined(one, next), "{one} {next}");
        }
        for (one, next) in
            [("cg", "ep"), ("ep 8", "ft 2"), ("1x4", "4x1"), ("8/2", "16/4"), ("4", "none"), ("hog", "make")]
        {
            assert!(!is_joined(one, next), "{one} {next}");
        }
    }

    #[test]
    fn labels_below_a_plot_overlap_nothing_and_are_upright_where_they_are_long() {
        let places = |count: usize, word: &str| -> Vec<(f64, String)> {
            (0..count).map(|at| (60.0 + 520.0 * at as f64 / count as f64, format!("{word}{at}"))).collect()
        };
        for (places, upright) in [(places(5, "n"), 0), (places(28, "micro "), 28), (places(200, "x"), 0)] {
            let mut canvas = Canvas::new("");
            let below = canvas.places(100.0, &places);
            let picture = canvas.finish(below + MARGIN);
            assert_eq!(text::faults(&picture), Vec::<String>::new());
            let turned = picture.matches("rotate").count();
            assert!(upright == turned || places.len() == 200 && turned > 20, "{turned}");
        }
    }

    #[test]
    fn long_titles_and_legends_take_lines_and_overlap_nothing() {
        let mut canvas = Canvas::new("");
        let long =
            "time of every program with more threads than cores, over that of one thread a core ".repeat(2);
        let below = canvas.title(&long, &long);
        let names =
            ["libgomp", "a name as long as those of programs", "third", "fourth entry", "the fifth one"];
        let end = canvas
            .legend(below, &names, |canvas, _, x, y| canvas.path("grid", &format!("M{x} {y}h{SAMPLE}")));
        let picture = canvas.finish(end + MARGIN);
        assert_eq!(text::faults(&picture), Vec::<String>::new(), "{picture}");
        assert!(picture.matches("<text class=\"title\"").count() > 1);
    }
}
