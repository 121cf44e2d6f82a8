//! Numbers with bounds: shares of a CPU, sizes of arrays of doubles, pairs of counts.

/// Parses a share of one CPU in per cent, with or without the sign: 0.01 to 50.
/// Returns a fraction.
///
/// # Errors
/// The text is not such a share.
pub fn cpu_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.01..=50.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a share of one CPU from 0.01% to 50% is needed, such as 0.5%".to_owned()),
    }
}

/// Parses a size in bytes of an array of doubles, up to 1 GiB.
///
/// # Errors
/// It is not a multiple of 8, or out of bounds.
pub fn bytes_of_doubles(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<usize>().map_err(|error| error.to_string())?;
    if bytes > 0 && bytes <= 1 << 30 && bytes.is_multiple_of(8) {
        Ok(bytes)
    } else {
        Err("not a multiple of 8 up to 2^30: allreduce adds doubles".to_owned())
    }
}

/// Parses two counts from 1, as in `4x2`.
pub fn product(text: &str) -> Option<(u32, u32)> {
    let count = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|&count: &u32| plain && count > 0)
    };
    let (first, second) = text.split_once('x')?;
    Some((count(first)?, count(second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_doubles() {
        assert_eq!((bytes_of_doubles("8"), bytes_of_doubles("1048576")), (Ok(8), Ok(1 << 20)));
        for bad in ["", "0", "12", "-8", "9999999999999"] {
            assert!(bytes_of_doubles(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn products_are_two_counts() {
        assert_eq!(product("13x4"), Some((13, 4)));
        for bad in ["", "4", "x", "4x", "x4", "0x1", "1x0", "+1x2", "-1x2", "1x2x3", "4294967296x1", " 1x1"] {
            assert_eq!(product(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn shares_are_of_one_cpu() {
        assert_eq!((cpu_share("0.5%"), cpu_share("2"), cpu_share("50 %")), (Ok(0.005), Ok(0.02), Ok(0.5)));
        for bad in ["", "%", "0", "-1%", "51%", "nan", "inf%", "1s"] {
            assert!(cpu_share(bad).is_err(), "{bad:?}");
        }
    }
}
