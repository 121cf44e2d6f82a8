//! Words of charts: the sizes of their letters, their wrapping, and a check of a finished picture.
//!
//! Problem: a browser computes the width of a text, a program cannot. Idea: bounds by kinds of
//! letters, from the widest of the usual sans-serif fonts (DejaVu Sans; Arial, Helvetica and
//! Liberation Sans are narrower). A layout by these bounds has room in every browser.

use std::fmt::Write as _;

/// Size of all text but titles, in pixels at scale 1.
pub const SIZE: f64 = 13.0;
/// Width of a phone's screen, in CSS pixels.
pub const PHONE_WIDTH: f64 = 420.0;
/// Smallest size of a text that a phone shows, in CSS pixels.
pub const PHONE_TEXT_MIN: f64 = 9.0;

/// Where a text begins, relative to its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A class of text.
#[derive(Debug)]
struct Class {
    name: &'static str,
    size: f64,
    is_bold: bool,
    anchor: Anchor,
    colour: &'static str,
}

const CLASSES: [Class; 7] = [
    Class { name: "title", size: 17.0, is_bold: true, anchor: Anchor::Start, colour: "#2b2f36" },
    Class { name: "panel", size: SIZE, is_bold: true, anchor: Anchor::Start, colour: "#2b2f36" },
    Class { name: "note", size: SIZE, is_bold: false, anchor: Anchor::Start, colour: "#4a505a" },
    Class { name: "tick", size: SIZE, is_bold: false, anchor: Anchor::End, colour: "#4a505a" },
    Class { name: "below", size: SIZE, is_bold: false, anchor: Anchor::Middle, colour: "#4a505a" },
    Class { name: "label", size: SIZE, is_bold: false, anchor: Anchor::Middle, colour: "#2b2f36" },
    Class { name: "value", size: SIZE, is_bold: false, anchor: Anchor::Middle, colour: "#2b2f36" },
];

fn class(name: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.name == name)
}

/// Returns the style sheet of all classes of text, and of pages, grids and axes.
pub(super) fn style() -> String {
    let mut style = String::from("<style>\ntext { font-family: sans-serif }\n.page { fill: #ffffff }\n");
    for Class { name, size, is_bold, anchor, colour } in &CLASSES {
        let weight = if *is_bold { "; font-weight: bold" } else { "" };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => "; text-anchor: middle",
            Anchor::End => "; text-anchor: end",
        };
        let _ = writeln!(style, ".{name} {{ font-size: {size}px; fill: {colour}{weight}{anchor} }}");
    }
    style.push_str(".grid { stroke: #e3e5e8; fill: none }\n.one { stroke: #8b929c; stroke-dasharray: 4 3; fill: none }\n");
    style.push_str(
        ".axis { stroke: #6d6d6d; fill: none }\n.clipped { stroke: #1c1f24; stroke-width: 0.8 }\n</style>\n",
    );
    style
}

/// Returns a letter's width, as a part of the font's size.
fn letter(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | ',' | '.' | ':' | ';' | '|' | '/' | '-' => 0.36,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '!' | 'I' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        'A'..='Z' | '&' | '+' | '=' | '<' | '>' | '~' | '#' => 0.8,
        _ => 0.64,
    }
}

/// Returns an upper bound of the width of words of a class, in pixels at scale 1.
pub fn width(of: &str, words: &str) -> f64 {
    let (size, is_bold) = class(of).map_or((SIZE, false), |class| (class.size, class.is_bold));
    words.chars().map(letter).sum::<f64>() * size * if is_bold { 1.12 } else { 1.0 }
}

/// Breaks words into lines of at most this width; a word that is longer has a line of its own.
pub fn wrapped(of: &str, words: &str, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(of, line) + width(of, " ") + width(of, word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Shortens words to a width; shortened ones end in two dots.
pub fn cut(of: &str, words: &str, most: f64) -> String {
    if width(of, words) <= most {
        return words.to_owned();
    }
    let mut cut = words.to_owned();
    while !cut.is_empty() && width(of, &cut) + width(of, "..") > most {
        cut.pop();
    }
    cut.trim_end().to_owned() + ".."
}

/// Box of a text.
#[derive(Debug)]
struct TextBox {
    words: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl TextBox {
    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// Returns the faults of a finished picture that can be seen without a browser: a text that a phone
/// would show too small, one that overlaps another, and one that leaves the page.
pub fn faults(picture: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let size = |name: &str| attribute(picture, name).and_then(|text| text.parse::<f64>().ok());
    let (Some(wide), Some(high)) = (size("width"), size("height")) else {
        return vec!["the picture states no size".to_owned()];
    };
    let mut boxes: Vec<TextBox> = Vec::new();
    for text in picture.split("<text ").skip(1) {
        let Some((size, text)) = text_box(text) else {
            faults.push(format!("a text without a known class or position: {}", &text[..text.len().min(80)]));
            continue;
        };
        if size * (PHONE_WIDTH / wide).min(1.0) < PHONE_TEXT_MIN {
            faults.push(format!("{:?} is too small for a phone", text.words));
        }
        if text.left < 0.0 || text.right > wide || text.top < 0.0 || text.bottom > high {
            faults.push(format!("{:?} leaves the page", text.words));
        }
        if let Some(other) = boxes.iter().find(|other| other.meets(&text)) {
            faults.push(format!("{:?} overlaps {:?}", text.words, other.words));
        }
        boxes.push(text);
    }
    faults
}

/// Reads the size and the box of a text, whose markup begins after its tag's name.
fn text_box(markup: &str) -> Option<(f64, TextBox)> {
    let class = class(attribute(markup, "class")?)?;
    let words = markup.split_once('>')?.1.split_once("</text>")?.0;
    let words = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let number = |name: &str| attribute(markup, name)?.parse::<f64>().ok();
    let long = width(class.name, &words);
    // Along the text from its position, and across it from its base line.
    let (from, to) = match class.anchor {
        Anchor::Start => (0.0, long),
        Anchor::Middle => (-long / 2.0, long / 2.0),
        Anchor::End => (-long, 0.0),
    };
    let (above, below) = (0.76 * class.size, 0.2 * class.size);
    if let Some(place) = attribute(markup, "transform") {
        let place = place.strip_prefix("translate(")?.strip_suffix(") rotate(-90)")?;
        let (x, y) = place.split_once(' ')?;
        let (x, y): (f64, f64) = (x.parse().ok()?, y.parse().ok()?);
        let (left, right, top, bottom) = (x - above, x + below, y - to, y - from);
        return Some((class.size, TextBox { words, left, right, top, bottom }));
    }
    let (x, y) = (number("x")?, number("y")?);
    let (left, right, top, bottom) = (x + from, x + to, y - above, y + below);
    Some((class.size, TextBox { words, left, right, top, bottom }))
}

/// Returns the value of the first attribute of this name.
fn attribute<'a>(markup: &'a str, name: &str) -> Option<&'a str> {
    markup.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::super::{Canvas, MARGIN, WIDTH};
    use super::*;

    fn drawn(draw: impl FnOnce(&mut Canvas)) -> Vec<String> {
        let mut canvas = Canvas::new("");
        draw(&mut canvas);
        faults(&canvas.finish(200.0))
    }

    #[test]
    fn faults_are_found() {
        assert!(drawn(|canvas| canvas.text("note", MARGIN, 50.0, "alone")).is_empty());
        let over = drawn(|canvas| {
            canvas.text("panel", MARGIN, 50.0, "a title of a panel");
            canvas.text("panel", MARGIN + 60.0, 50.0, "and the next one");
        });
        assert!(over.len() == 1 && over[0].contains("overlaps"), "{over:?}");
        let off = drawn(|canvas| canvas.text("note", WIDTH - 20.0, 50.0, "cut at the right"));
        assert!(off.len() == 1 && off[0].contains("leaves"), "{off:?}");
        let tall = drawn(|canvas| canvas.upright("tick", 100.0, 190.0, &"upright ".repeat(9)));
        assert!(tall.len() == 1 && tall[0].contains("leaves"), "{tall:?}");
        assert!(drawn(|canvas| canvas.text("unknown", 5.0, 50.0, "x"))[0].contains("class"));
        let mut canvas = Canvas::new("");
        canvas.text("note", MARGIN, 50.0, "small");
        let wide = canvas.finish(200.0).replace("width=\"600\"", "width=\"1200\"");
        assert!(faults(&wide)[0].contains("too small"), "{:?}", faults(&wide));
    }

    #[test]
    fn text_of_a_chart_is_large_enough_on_a_phone() {
        assert!(CLASSES.iter().all(|class| class.size * PHONE_WIDTH / WIDTH >= PHONE_TEXT_MIN));
    }

    #[test]
    fn words_are_wrapped_and_cut_to_a_width() {
        let words = "one two three four five six seven eight nine ten";
        let lines = wrapped("note", words, 120.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| width("note", line) <= 120.0), "{lines:?}");
        assert_eq!(lines.join(" "), words);
        assert!(width("note", &cut("note", words, 90.0)) <= 90.0);
        assert_eq!(cut("note", "one", 90.0), "one");
    }
}
