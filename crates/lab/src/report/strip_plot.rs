//! Strip plot: rows with a dot for each run, their median, and its confidence interval.
//!
//! Problem: one page for a wide screen and for a phone. Idea: a row is a name, a plot and a number
//! in a grid, which puts the name above the plot where the page is narrow. The plot is SVG whose
//! positions are percentages, so that it takes any width while its text and dots keep their size.
//!
//! Properties: an axis is linear from zero, or logarithmic around 1 for ratios. A value beyond the
//! axis is an arrow at its end, with its number. Rows of one subject have a heading. Colour has one
//! meaning, which the legend names. Without rows, no picture is made.

use super::markup::plain;
use std::fmt::Write as _;
use trimtab_core::stats;
use trimtab_front::chart::axis::Axis;
use trimtab_front::units::percent;

/// More rows than a screen shows.
const ROWS_SEEN: usize = 15;

/// A strip plot.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Strip {
    /// Title of the scale, with its unit.
    pub of: String,
    /// Position of a vertical line on a linear axis.
    pub mark: Option<f64>,
    /// For ratios, drawn around 1: those farther than this, or than its inverse, are at the ends.
    pub ratio_most: Option<f64>,
    /// Meaning of the colours, which rows name by their place here.
    pub colours: Vec<String>,
    pub rows: Vec<StripRow>,
}

/// A row of the plot.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct StripRow {
    /// Subject, shown above the first of neighbouring rows with the same.
    pub group: String,
    pub name: String,
    pub values: Vec<f64>,
    /// Ends of the confidence bar.
    pub bar: Option<(f64, f64)>,
    /// The median.
    pub middle: Option<f64>,
    /// Whether this row is highlighted.
    pub chosen: bool,
    /// Place of its colour's meaning.
    pub colour: usize,
}

impl StripRow {
    /// Makes a row of values and their median.
    pub(super) fn of(name: &str, values: Vec<f64>) -> Self {
        Self { name: name.to_owned(), middle: stats::median(&values), values, ..Self::default() }
    }
}

/// Formats the plot as markup; empty without rows.
pub(super) fn markup(strip: &Strip, title: &str) -> String {
    let Some(axis) = axis(strip) else { return String::new() };
    let mut out = format!("<figure class=\"strip\" aria-label=\"{}\">\n", plain(title));
    if !strip.colours.is_empty() {
        out.push_str("<p class=\"legend\">");
        for (at, words) in strip.colours.iter().enumerate() {
            let _ = write!(out, "<span class=\"k{at}\"><i></i>{}</span>", plain(words));
        }
        out.push_str("</p>\n");
    }
    let grid = grid(&axis, strip.mark);
    // A long plot has its scale at both ends.
    if strip.rows.len() > ROWS_SEEN {
        ticks(&mut out, &axis);
    }
    let mut group = "";
    for one in &strip.rows {
        if one.group != group {
            group = &one.group;
            let _ = writeln!(out, "<h3>{}</h3>", plain(group));
        }
        row(&mut out, one, &axis, &grid);
    }
    ticks(&mut out, &axis);
    let logarithmic = if axis.is_ratio() { ", logarithmic" } else { "" };
    let _ = writeln!(
        out,
        "<div class=\"line\"><span class=\"name\"></span><span class=\"unit\">{}{logarithmic}</span></div>\n</figure>",
        plain(&strip.of)
    );
    out
}

/// Writes the numbers of a scale.
fn ticks(out: &mut String, axis: &Axis) {
    out.push_str(
        "<div class=\"line\"><span class=\"name\"></span><svg class=\"ticks\" aria-hidden=\"true\">",
    );
    for (value, label) in axis.ticks() {
        let _ = write!(out, "<text x=\"{}\" y=\"12\">{label}</text>", position(axis.share(value)));
    }
    out.push_str("</svg><span></span></div>\n");
}

/// Returns the axis on which all values have a place; `None` without any.
fn axis(strip: &Strip) -> Option<Axis> {
    let all = || {
        strip.rows.iter().flat_map(|row| {
            row.values
                .iter()
                .copied()
                .chain(row.middle)
                .chain(row.bar.into_iter().flat_map(|(low, high)| [low, high]))
        })
    };
    let largest = all().chain(strip.mark).filter(|value| value.is_finite()).fold(0.0, f64::max);
    if strip.rows.is_empty() || largest <= 0.0 {
        return None;
    }
    Some(match strip.ratio_most {
        Some(most) => Axis::ratio(all(), most),
        None => Axis::linear(largest),
    })
}

/// Returns the lines across each row: those of the scale, and the mark.
fn grid(axis: &Axis, mark: Option<f64>) -> String {
    let line = |class: &str, value: f64| {
        let x = position(axis.share(value));
        format!("<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"100%\"/>")
    };
    let class = |value: f64| if axis.is_ratio() && value == 1.0 { "mark" } else { "grid" };
    let ticks = axis.ticks().into_iter().map(|(value, _)| line(class(value), value));
    ticks.chain(mark.map(|mark| line("mark", mark))).collect()
}

/// Returns a position along the axis, which is a share of its length.
fn position(share: f64) -> String {
    percent(share, 2)
}

/// Draws a row.
fn row(out: &mut String, row: &StripRow, axis: &Axis, grid: &str) {
    let class = if row.chosen { "line chosen" } else { "line" };
    let _ = write!(
        out,
        "<div class=\"{class} k{}\"><span class=\"name\">{}</span><svg class=\"plot\" aria-hidden=\"true\">{grid}",
        row.colour,
        plain(&row.name)
    );
    if let Some((low, high)) = row.bar {
        let (low, high) = (axis.share(low), axis.share(high));
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{}\" y=\"7\" width=\"{}\" height=\"8\" rx=\"2\"/>",
            position(low),
            position((high - low).max(0.002))
        );
    }
    for value in row.values.iter().copied().filter(|value| value.is_finite()) {
        let x = position(axis.share(value));
        if axis.is_beyond(value) {
            let arrow = if axis.is_above(value) { "M0 0l-8 -5v10z" } else { "M0 0l8 -5v10z" };
            let _ = write!(
                out,
                "<svg class=\"beyond\" x=\"{x}\" y=\"11\"><path d=\"{arrow}\"><title>{}: beyond the scale</title></path></svg>",
                figure(value)
            );
        } else {
            let _ =
                write!(out, "<circle cx=\"{x}\" cy=\"11\" r=\"3\"><title>{}</title></circle>", figure(value));
        }
    }
    let mut value = String::new();
    if let Some(middle) = row.middle.filter(|middle| middle.is_finite()) {
        let x = position(axis.share(middle));
        let _ = write!(out, "<line class=\"middle\" x1=\"{x}\" x2=\"{x}\" y1=\"4\" y2=\"18\"/>");
        value = figure(middle);
    }
    let _ = writeln!(out, "</svg><span class=\"value\">{value}</span></div>");
}

/// Formats a number with three significant digits.
fn figure(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value.abs() >= 100.0 => format!("{value:.0}"),
        _ if value.abs() >= 10.0 => format!("{value:.1}"),
        _ if value.abs() >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str, attribute: &str) -> Vec<f64> {
        let before = format!("{attribute}=\"");
        let numbers = text.split(&before).skip(1);
        numbers.map(|rest| rest.split('%').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(markup(&Strip::default(), "x"), "");
        let rows = vec![StripRow::of("a", vec![0.0, f64::NAN])];
        assert_eq!(markup(&Strip { rows, ..Strip::default() }, "x"), "");
    }

    #[test]
    fn ratios_stand_around_one_and_a_clipped_one_carries_a_mark_and_its_number() {
        let rows = vec![
            StripRow::of("a", vec![0.5, 2.0, 300.0]),
            StripRow { bar: Some((0.25, 9.0)), ..StripRow::default() },
        ];
        let text =
            markup(&Strip { rows, ratio_most: Some(16.0), of: "times".to_owned(), ..Strip::default() }, "x");
        let dots = places(&text, "cx");
        assert_eq!(dots.len(), 2);
        assert!((dots[0] + dots[1] - 100.0).abs() < 0.02, "half and twice are as far from 1: {dots:?}");
        assert_eq!(text.matches("class=\"beyond\" x=\"100.00%\"").count(), 1);
        assert!(text.contains("<title>300: beyond the scale</title>"), "{text}");
        assert!(text.contains("class=\"mark\" x1=\"50.00%\""), "the line at 1");
        assert!(text.contains("times, logarithmic") && text.contains(">2.00</span>"), "{text}");
    }

    #[test]
    fn other_values_stand_on_a_scale_from_zero() {
        let rows = vec![StripRow::of("a", vec![1.0, 2.0, 4.0])];
        let text = markup(&Strip { rows, mark: Some(3.0), ..Strip::default() }, "x");
        assert_eq!(places(&text, "cx"), [25.0, 50.0, 100.0]);
        assert!(text.contains("class=\"mark\" x1=\"75.00%\"") && !text.contains("beyond"), "{text}");
    }

    #[test]
    fn rows_of_one_subject_have_one_heading_and_a_colour_has_a_name() {
        let row = |group: &str, colour| StripRow {
            group: group.to_owned(),
            colour,
            ..StripRow::of("way", vec![1.0])
        };
        let rows = vec![row("cg", 0), row("cg", 1), row("ep", 0)];
        let colours = vec!["keep".to_owned(), "spin".to_owned()];
        let text = markup(&Strip { rows, colours, ..Strip::default() }, "x");
        assert_eq!(text.matches("<h3>").count(), 2, "{text}");
        assert!(text.contains("<span class=\"k1\"><i></i>spin</span>"), "{text}");
        for tag in ["div", "span", "svg", "p", "figure"] {
            let opened =
                text.matches(&format!("<{tag} ")).count() + text.matches(&format!("<{tag}>")).count();
            assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{tag}: {text}");
        }
        assert_eq!(text.matches("class=\"line k1\"").count(), 1, "{text}");
    }
}
