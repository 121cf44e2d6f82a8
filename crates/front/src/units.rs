//! Numbers with units as text: shares, sizes, times. Each form has one function, which all commands
//! use.

use trimtab_core::time::Span;

/// Formats a value; a dash if there is none.
pub fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// Formats a share in tables and beside names, where space is short: `12.5%`.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$}%", 100.0 * share)
}

/// Formats a share in sentences: `12.5 %`.
pub fn percent_apart(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * share)
}

/// Formats a share of any size, with more digits if it is small.
pub fn percent_of_any_size(share: f64) -> String {
    match 100.0 * share {
        tiny if tiny > 0.0 && tiny < 0.1 => "below 0.1%".to_owned(),
        small if small < 10.0 => format!("{small:.1}%"),
        share => format!("{share:.0}%"),
    }
}

/// Formats an amount of memory, rounded: `512 MiB`, `1.5 GiB`.
pub fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Formats a size exactly, in the largest unit of which it is a multiple: `64 KiB`, `65537 B`.
pub fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Formats a size exactly, for the axis of a chart: `1M`, `64k`, `8`.
pub fn size_on_axis(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// Formats a time of any length, below a second with one decimal: `2.5 us`, `1.0 ms`, `12.34 s`.
pub fn time(span: Span) -> String {
    match span.seconds() {
        short if short < 1e-3 => format!("{:.1} us", 1e6 * short),
        short if short < 1.0 => format!("{:.1} ms", 1e3 * short),
        long => format!("{long:.2} s"),
    }
}

/// Formats a time below some seconds, rounded: `250 us`, `20 ms`.
pub fn short_time(seconds: f64) -> String {
    if seconds < 0.001 { format!("{:.0} us", seconds * 1e6) } else { format!("{:.0} ms", seconds * 1e3) }
}

/// Formats the length of a run: `250 ms`, `12.3 s`.
pub fn run_time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", 1e3 * seconds) } else { format!("{seconds:.1} s") }
}

/// Formats the length of a series of runs: `45.0 s`, `12 min`.
pub fn series_time(span: Span) -> String {
    let seconds = span.seconds();
    if seconds < 120.0 { format!("{seconds:.1} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// Returns the decimals with which a number has three significant digits, `most` at most.
pub fn decimals(value: f64, most: usize) -> usize {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        1.0..10.0 => 2,
        _ => 3,
    };
    decimals.min(most)
}

/// Formats a number with about three significant digits, and at most `most` decimals.
pub fn number(value: f64, most: usize) -> String {
    format!("{value:.decimals$}", decimals = decimals(value, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_decimals_that_are_asked_for_and_small_ones_more() {
        assert_eq!((percent(0.125, 1), percent_apart(0.5, 0)), ("12.5%".to_owned(), "50 %".to_owned()));
        assert_eq!(or_dash(None, |share| percent(share, 0)), "-");
        let any = [0.0, 0.0005, 0.013, 0.5].map(percent_of_any_size);
        assert_eq!(any, ["0.0%", "below 0.1%", "1.3%", "50%"]);
    }

    #[test]
    fn sizes_and_times_are_in_the_largest_unit_that_fits() {
        assert_eq!([3 << 20, 3 << 29].map(memory), ["3 MiB", "1.5 GiB"]);
        assert_eq!([8, 3 << 10, 1 << 20].map(size), ["8 B", "3 KiB", "1 MiB"]);
        assert_eq!([0, 8, 3 << 10, 1 << 20].map(size_on_axis), ["0", "8", "3k", "1M"]);
        let spans = [2_500, 1_000_000, 12_340_000_000].map(|ns| time(Span(ns)));
        assert_eq!(spans, ["2.5 us", "1.0 ms", "12.34 s"]);
        assert_eq!([0.00025, 0.02].map(short_time), ["250 us", "20 ms"]);
        assert_eq!([0.25, 12.34].map(run_time), ["250 ms", "12.3 s"]);
        assert_eq!([45, 720].map(|s| series_time(Span::from_ms(1_000 * s))), ["45.0 s", "12 min"]);
    }

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!(
            [0.1234, 1.234, 12.34, 123.4].map(|value| number(value, 3)),
            ["0.123", "1.23", "12.3", "123"]
        );
        assert_eq!([0.1234, -12.34, 99.99].map(|value| number(value, 2)), ["0.12", "-12.3", "100.0"]);
    }
}
