//! What charts have in common: text and scales.
//!
//! Properties: a scale ends on a round number; text is plain whatever it comes from.

use std::fmt::Write as _;

/// Words that mean nothing to who reads the picture's markup.
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

/// The beginning of a picture: its size, its style, and a page to draw on.
pub fn begin(width: f64, height: f64, style: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n{style}<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n"
    )
}

/// A line of text, of this class.
pub fn text(out: &mut String, style: &str, x: f64, y: f64, words: &str) {
    let plain = plain(words);
    let _ = writeln!(out, "<text class=\"{style}\" x=\"{x:.1}\" y=\"{y:.1}\">{plain}</text>");
}

/// The largest power of ten up to a number; 1 for one that has none. By hand, since a logarithm is the only thing that this
/// program would load the mathematical library for, at every start.
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

/// The next of 1, 2, 4, 5, 10 times a power of ten, so that quarters of it read well.
pub fn nice(reach: f64) -> f64 {
    if reach <= 0.0 || !reach.is_finite() {
        return 1.0;
    }
    let power = power_of_ten(reach);
    let steps = [1.0, 2.0, 4.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= reach).unwrap_or(10.0);
    step * power
}

/// A scale's number, without zeros that say nothing.
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
