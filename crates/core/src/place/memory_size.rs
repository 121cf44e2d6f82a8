//! Amount of memory that a user requests, as text: `64G`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Amount of memory in bytes, at least 1. It is written with a unit, a power of 1024: `512M`,
/// `64G`, `1.5TiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemorySize(pub u64);

/// Units, largest first, with their exponents of 2.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Most digits behind the point that are read.
const FRACTION_DIGITS: usize = 6;

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let fault = || {
            format!("\"{text}\" is not an amount of memory (expected a number with a unit: 512M, 64G, 2T)")
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty()
            || number.ends_with('.')
            || fraction.len() > FRACTION_DIGITS
            || fraction.contains('.')
        {
            return Err(fault());
        }
        if unit.is_empty() {
            return Err(format!("\"{text}\" lacks a unit: {text}G, or {text}M"));
        }
        let upper = unit.to_ascii_uppercase();
        let known = UNITS.into_iter().find(|(letter, _)| upper.starts_with(*letter));
        let (_, exponent) = known.filter(|_| matches!(&upper[1..], "" | "B" | "IB")).ok_or_else(fault)?;
        // Both parts are short runs of digits, so only the whole part can be too large.
        let too_large = || format!("\"{text}\" is more memory than any machine has");
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| fault())? };
        let bytes = whole.checked_mul(1 << exponent).ok_or_else(too_large)? + (fraction << exponent) / scale;
        match u64::try_from(bytes) {
            Ok(0) => Err(format!("\"{text}\" is no memory; leave the option out")),
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err(too_large()),
        }
    }
}

impl fmt::Display for MemorySize {
    /// Writes the amount in the largest unit of which it has at least one, with one digit behind
    /// the point if it is not whole; the digit is rounded down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((letter, exponent)) = UNITS.into_iter().find(|&(_, exponent)| self.0 >> exponent > 0) else {
            return write!(f, "{} B", self.0);
        };
        let whole = self.0 >> exponent;
        let rest = self.0 & ((1 << exponent) - 1);
        match (u128::from(rest) * 10) >> exponent {
            0 => write!(f, "{whole} {letter}iB"),
            tenth => write!(f, "{whole}.{tenth} {letter}iB"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_read_with_their_unit() {
        for (text, bytes, shown) in [
            ("64G", 64 << 30, "64 GiB"),
            ("64gb", 64 << 30, "64 GiB"),
            ("1.5TiB", 3 << 39, "1.5 TiB"),
            ("512M", 512 << 20, "512 MiB"),
            ("2048k", 2 << 20, "2 MiB"),
            ("0.5K", 512, "512 B"),
        ] {
            let size: MemorySize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for (text, words) in [
            ("64", "lacks a unit: 64G"),
            ("", "is not an amount"),
            ("G", "is not an amount"),
            ("1.G", "is not an amount"),
            ("1..2G", "is not an amount"),
            ("64X", "is not an amount"),
            ("64Gx", "is not an amount"),
            ("-1G", "is not an amount"),
            ("0G", "is no memory"),
            ("99999999T", "more memory than any machine"),
            ("99999999999999999999999999999999999999999T", "more memory than any machine"),
        ] {
            let error = text.parse::<MemorySize>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.]{0,8}[kmgtib]{0,3}|.{0,8}") {
            if let Ok(size) = text.parse::<MemorySize>() {
                prop_assert!(size.0 > 0);
                // The text that is shown is at most a tenth of its unit smaller.
                let shown: String = size.to_string().split(' ').collect();
                if !shown.ends_with('B') || shown.ends_with("iB") {
                    let again: MemorySize = shown.parse().unwrap();
                    prop_assert!(again.0 <= size.0 && size.0 - again.0 <= size.0 / 10, "{size:?} {again:?}");
                }
            }
        }
    }
}
