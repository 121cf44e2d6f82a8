//! Helpers for words in messages: plurals and suggestions for mistyped words.

use std::fmt::Display;

/// Formats a number with its noun, which takes an s: `1 core`, `2 cores`.
pub fn plural<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns the largest number of edits between a mistyped word and a known one, by its length: none
/// for words of two letters, one for three or four, two for longer ones. Chosen: `scater` finds
/// `scatter`, and `foo` finds nothing.
fn edits_max(word: &str) -> usize {
    match word.chars().count() {
        0..=2 => 0,
        3..=4 => 1,
        _ => 2,
    }
}

/// Returns the known word that is probably meant by a mistyped one: the nearest by letters left
/// out, inserted, changed or swapped with their neighbours; the first of several. Case does not
/// matter.
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let near = known.into_iter().map(|known| (edits(&word, &known.to_lowercase()), known));
    let (edits, found) = near.min_by_key(|(edits, _)| *edits)?;
    (1..=edits_max(&word)).contains(&edits).then_some(found)
}

/// Returns ` (did you mean scatter?)`, or an empty text.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    meant(word, known).map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"))
}

/// Returns the number of letters that must be left out, inserted, changed or swapped with their
/// neighbours to turn one word into the other (optimal string alignment).
fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, meant, plural};

    #[test]
    fn a_mistyped_word_is_known_by_its_nearest() {
        let known = ["compact", "scatter", "subcompact", "subscatter"];
        for (word, found) in [
            ("scater", Some("scatter")),
            ("Scattter", Some("scatter")),
            ("sactter", Some("scatter")),
            ("subscater", Some("subscatter")),
            ("compcat", Some("compact")),
            ("scatter", None),
            ("foo", None),
            ("", None),
            ("spread", None),
            ("12", None),
        ] {
            assert_eq!(meant(word, known), found, "{word}");
        }
        assert_eq!(did_you_mean("scater", known), " (did you mean scatter?)");
        assert_eq!(did_you_mean("x", known), "");
    }

    #[test]
    fn one_is_one() {
        assert_eq!((plural(0u32, "move"), plural(1usize, "move")), ("0 moves".into(), "1 move".into()));
        assert_eq!(plural(u64::MAX, "look"), "18446744073709551615 looks");
    }
}
