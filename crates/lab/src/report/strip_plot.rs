//! Strip plot: rows with a dot for each run, their median, and its confidence interval.
//!
//! Properties: the scale begins at zero and ends on a round number. A value beyond a bound is drawn
//! at the end of the scale, and its number is printed. Without rows, no picture is made.

use super::sheet::plain;
use std::fmt::Write as _;
use trimtab_core::stats;
use trimtab_front::chart::nice;

const PLOT_WIDTH_PX: f64 = 860.0;
const MARGIN_LEFT_PX: f64 = 240.0;
const MARGIN_RIGHT_PX: f64 = 70.0;
const ROW_HEIGHT_PX: f64 = 20.0;
const MARGIN_TOP_PX: f64 = 8.0;

/// A strip plot.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Strip {
    /// Title of the scale, with its unit.
    pub of: String,
    /// Position of a vertical line, such as 1.
    pub mark: Option<f64>,
    /// Values beyond this are drawn at the end.
    pub most: Option<f64>,
    pub rows: Vec<StripRow>,
}

/// A row of the plot.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct StripRow {
    pub name: String,
    pub values: Vec<f64>,
    /// Ends of the confidence bar.
    pub bar: Option<(f64, f64)>,
    /// The median.
    pub middle: Option<f64>,
    /// Whether this row is highlighted.
    pub chosen: bool,
}

impl StripRow {
    /// Makes a row of values and their median.
    pub(super) fn of(name: &str, values: Vec<f64>) -> Self {
        Self { name: name.to_owned(), middle: stats::median(&values), values, ..Self::default() }
    }
}

/// Formats the plot as SVG; empty without rows.
pub(super) fn svg(strip: &Strip, title: &str) -> String {
    let all = || {
        strip
            .rows
            .iter()
            .flat_map(|row| row.values.iter().copied().chain(row.middle).chain(row.bar.map(|bar| bar.1)))
    };
    let largest = all().chain(strip.mark).filter(|value| value.is_finite()).fold(0.0, f64::max);
    if strip.rows.is_empty() || largest <= 0.0 {
        return String::new();
    }
    let reach = nice(strip.most.map_or(largest, |most| largest.min(most)));
    let height = MARGIN_TOP_PX + ROW_HEIGHT_PX * strip.rows.len() as f64 + 34.0;
    let at = |value: f64| {
        MARGIN_LEFT_PX + (PLOT_WIDTH_PX - MARGIN_LEFT_PX - MARGIN_RIGHT_PX) * (value / reach).clamp(0.0, 1.0)
    };
    let base = MARGIN_TOP_PX + ROW_HEIGHT_PX * strip.rows.len() as f64;
    let mut out = format!(
        "<svg class=\"strip\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {PLOT_WIDTH_PX} {height}\">\n",
        plain(title)
    );
    for quarter in 0..=4 {
        let value = reach * f64::from(quarter) / 4.0;
        let x = at(value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{MARGIN_TOP_PX}\" x2=\"{x:.1}\" y2=\"{base}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            base + 14.0,
            figure(value)
        );
    }
    if let Some(mark) = strip.mark {
        let x = at(mark);
        let _ = writeln!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" y1=\"{MARGIN_TOP_PX}\" x2=\"{x:.1}\" y2=\"{base}\"/>"
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (MARGIN_LEFT_PX + PLOT_WIDTH_PX - MARGIN_RIGHT_PX) / 2.0,
        base + 29.0,
        plain(&strip.of)
    );
    for (number, one) in strip.rows.iter().enumerate() {
        row(&mut out, one, MARGIN_TOP_PX + ROW_HEIGHT_PX * (number as f64 + 0.5), &at);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws a row with its centre at height `y`; `at` maps values to positions.
fn row(out: &mut String, row: &StripRow, y: f64, at: &dyn Fn(f64) -> f64) {
    let class = if row.chosen { "row chosen" } else { "row" };
    let short: String = row.name.chars().take(36).collect();
    let _ = writeln!(
        out,
        "<g class=\"{class}\"><title>{}</title><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        plain(&row.name),
        MARGIN_LEFT_PX - 10.0,
        y + 4.0,
        plain(&short)
    );
    if let Some((low, high)) = row.bar {
        let _ = writeln!(
            out,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"8\" rx=\"2\"/>",
            at(low),
            y - 4.0,
            (at(high) - at(low)).max(1.0)
        );
    }
    for value in row.values.iter().filter(|value| value.is_finite()) {
        let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>", at(*value));
    }
    if let Some(middle) = row.middle.filter(|middle| middle.is_finite()) {
        let x = at(middle);
        let _ = write!(
            out,
            "<line class=\"middle\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
            y - 7.0,
            y + 7.0
        );
        let _ = write!(
            out,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            PLOT_WIDTH_PX - MARGIN_RIGHT_PX + 8.0,
            y + 4.0,
            figure(middle)
        );
    }
    out.push_str("</g>\n");
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

    #[test]
    fn nothing_is_drawn_outside_and_nothing_of_nothing() {
        assert_eq!(svg(&Strip::default(), "x"), "");
        assert_eq!(
            svg(&Strip { rows: vec![StripRow::of("a", vec![0.0, f64::NAN])], ..Strip::default() }, "x"),
            ""
        );
        let rows = vec![
            StripRow::of("a", vec![1.0, 2.0, 300.0]),
            StripRow { bar: Some((0.5, 9.0)), ..StripRow::of("b", vec![]) },
        ];
        let text = svg(&Strip { rows, most: Some(4.0), mark: Some(1.0), of: "times".to_owned() }, "x");
        let numbers =
            text.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
        let places: Vec<f64> = numbers.collect();
        assert_eq!(places.len(), 3);
        assert!(
            places.iter().all(|place| (MARGIN_LEFT_PX..=PLOT_WIDTH_PX - MARGIN_RIGHT_PX).contains(place)),
            "{places:?}"
        );
        // A quarter of the scale, half of it, and its end.
        let wide = PLOT_WIDTH_PX - MARGIN_LEFT_PX - MARGIN_RIGHT_PX;
        assert!(
            (places[1] - places[0] - wide / 4.0).abs() < 0.2
                && (places[2] - (PLOT_WIDTH_PX - MARGIN_RIGHT_PX)).abs() < 0.2
        );
        assert!(text.contains(">2.00</text>"), "the median is written");
    }
}
