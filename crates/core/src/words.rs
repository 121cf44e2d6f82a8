//! Words around numbers.

use std::fmt::Display;

/// `1 core`, `2 cores`: a number with its noun, which takes an s.
pub fn plural<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn one_is_one() {
        assert_eq!((plural(0u32, "move"), plural(1usize, "move")), ("0 moves".into(), "1 move".into()));
        assert_eq!(plural(u64::MAX, "look"), "18446744073709551615 looks");
    }
}
