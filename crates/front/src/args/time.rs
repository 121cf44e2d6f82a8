//! Times, as typed: `100ms`, `1.5s`, `10m`, `2h`. One grammar for all options, and one error.

use std::time::Duration;
use trimtab_core::time::Span;

/// Longest time to wait; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(pub Option<Duration>);

/// Units with their nanoseconds; a number alone is in seconds.
const UNITS: [(&str, u64); 7] = [
    ("", 1_000_000_000),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Shortest interval: a sample costs about a microsecond a thread, and the kernel's own ticks are
/// no finer.
const INTERVAL_MIN: Span = Span::from_ms(1);
/// Shortest time between two screens: people do not see faster changes.
const PICTURE_MIN: Span = Span::from_ms(20);
/// Longest of both: beyond this nothing is balanced, and no screen is watched.
const INTERVAL_MAX: Span = Span::from_ms(3_600_000);

/// Parses a number and a unit. Exact: a fraction is counted digit by digit, and parts below a
/// nanosecond are dropped.
fn span(text: &str) -> Result<Span, String> {
    let bad =
        || format!("\"{text}\" is not a time such as 100ms, 1.5s, 10m or 2h (units: us, ms, s, m, h, d)");
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(end);
    let &(_, unit) = UNITS.iter().find(|(word, _)| *word == unit).ok_or_else(bad)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.contains('.') {
        return Err(bad());
    }
    let long = || format!("{text} is too long for a time");
    let whole: u64 = whole.parse().map_err(|_| long())?;
    let mut span = whole.checked_mul(unit).ok_or_else(long)?;
    let mut worth = unit;
    for digit in part.bytes() {
        worth /= 10;
        span = span.checked_add(u64::from(digit - b'0') * worth).ok_or_else(long)?;
    }
    Ok(Span(span))
}

/// Parses a duration.
///
/// # Errors
/// The text is not a time, or the time is zero.
pub fn lasting(text: &str) -> Result<Span, String> {
    match span(text)? {
        Span::ZERO => Err(format!("{text} is zero: a time above zero is needed")),
        span => Ok(span),
    }
}

/// Parses the time between two samples of a policy.
///
/// # Errors
/// The text is not a time, or it is too short or too long.
pub fn interval(text: &str) -> Result<Span, String> {
    between(text, INTERVAL_MIN, "1ms")
}

/// Parses the time between two screens for people.
///
/// # Errors
/// As [`interval`].
pub fn picture(text: &str) -> Result<Span, String> {
    between(text, PICTURE_MIN, "20ms")
}

fn between(text: &str, least: Span, shown: &str) -> Result<Span, String> {
    let span = span(text)?;
    if (least..=INTERVAL_MAX).contains(&span) {
        Ok(span)
    } else {
        Err(format!("{text} is not between {shown} and 1h"))
    }
}

/// Parses the longest time to wait; `forever` means no limit.
///
/// # Errors
/// The text is not a time.
pub fn wait(text: &str) -> Result<Wait, String> {
    if text == "forever" { Ok(Wait(None)) } else { Ok(Wait(Some(span(text)?.into()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let known = [
            ("500us", Span::from_us(500)),
            ("100ms", Span::from_ms(100)),
            ("0.1ms", Span::from_us(100)),
            ("30", Span::from_ms(30_000)),
            ("1.5s", Span::from_ms(1_500)),
            ("2.5", Span::from_ms(2_500)),
            ("10m", Span::from_ms(600_000)),
            ("0.5h", Span::from_ms(1_800_000)),
            ("2h", Span::from_ms(7_200_000)),
            ("1d", Span::from_ms(86_400_000)),
            ("1.0000000001s", Span::from_ms(1_000)),
            ("0", Span::ZERO),
        ];
        for (text, time) in known {
            assert_eq!(span(text), Ok(time), "{text}");
        }
        let bad = [
            "", "ms", ".", ".5s", "1.s", "1..2", "1.2.3", "-1s", "+1s", " 1s", "1 s", "1S", "3y", "nan",
            "1e9", "٣s",
        ];
        for text in bad {
            let error = span(text).unwrap_err();
            assert!(
                error.contains("is not a time such as") && error.contains("units: us"),
                "{text:?}: {error}"
            );
        }
        for text in ["99999999999999999999s", "99999999999999999d", "9999999999h", "18446744073.9s"] {
            assert!(span(text).unwrap_err().contains("too long"), "{text:?}");
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(lasting("500us"), Ok(Span::from_us(500)));
        assert_eq!(interval("1ms"), Ok(Span::from_ms(1)));
        assert_eq!(picture("1h"), Ok(Span::from_ms(3_600_000)));
        for bad in ["0", "0.0s", "0.1us0"] {
            assert!(lasting(bad).is_err(), "{bad:?}");
        }
        for bad in ["0", "10us", "2h", "61m"] {
            assert!(interval(bad).unwrap_err().contains("between 1ms and 1h"), "{bad:?}");
        }
        assert!(picture("19ms").unwrap_err().contains("between 20ms and 1h"));
        assert_eq!(wait("forever"), Ok(Wait(None)));
        assert_eq!(wait("90m"), Ok(Wait(Some(Duration::from_secs(5_400)))));
        assert_eq!(wait("0"), Ok(Wait(Some(Duration::ZERO))));
    }
}
