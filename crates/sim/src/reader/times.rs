//! Times in the form that people write: `"10 ms"`, `"1.5s"`.
//!
//! Exact: a fraction is counted digit by digit, and a written time is read again as the same
//! nanoseconds.

use trimtab_core::time::Span;

/// Units and their nanoseconds, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a time; `None` if the text is not a time, or the time is longer than the clock lasts or
/// finer than a nanosecond.
pub fn parse(text: &str) -> Option<Span> {
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(end);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let &(_, unit) = UNITS.iter().find(|(word, _)| *word == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if part.contains('.') {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let fraction = part.parse::<u128>().ok()?.checked_mul(u128::from(unit))?;
    let exact = fraction.is_multiple_of(scale);
    let fraction = u64::try_from(fraction / scale).ok().filter(|_| exact)?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(fraction).map(Span)
}

/// Writes a time in the longest unit that needs no fraction.
pub fn write(span: Span) -> String {
    let units = UNITS.iter().skip_while(|(word, _)| *word != "s");
    let fits = units.clone().find(|(_, unit)| span.0.is_multiple_of(*unit) && span.0 > 0);
    fits.map_or_else(|| "0 s".to_owned(), |(word, unit)| format!("{} {word}", span.0 / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        let known = [
            ("10 ms", 10_000_000),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001 s", 1),
            ("2 m", 120_000_000_000),
            ("0.1h", 360_000_000_000),
            ("7 ns", 7),
            ("0 s", 0),
        ];
        for (text, span) in known {
            assert_eq!(parse(text), Some(Span(span)), "{text}");
        }
        let bad = [
            "",
            "10",
            "ms",
            "-1 ms",
            "1e3 s",
            "1.s",
            ".5s",
            "1..2 s",
            "0.5 ns",
            "nan s",
            "1  ms",
            "1 ms ",
            "99999999999 h",
            "1 year",
            "\u{663} s",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn written_text_is_read_back() {
        for span in [0, 1, 999, 1_000, 1_500_000, 60_000_000_000, u64::MAX, 1_000_000_007] {
            assert_eq!(parse(&write(Span(span))), Some(Span(span)), "{}", write(Span(span)));
        }
        assert_eq!(write(Span::from_ms(1_500)), "1500 ms");
    }
}
