//! Template of a command: words in which placeholders stand for a job's value and number.
//!
//! Values are bytes, since they often are file names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Words between a command and its values.
const SEPARATOR: &str = ":::";

/// A part of a word.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    /// `{}`.
    Value,
    /// `{.}`.
    WithoutEnding,
    /// `{/}`.
    Name,
    /// `{/.}`.
    Stem,
    /// `{#}`.
    Number,
}

/// The placeholders, as they are written.
const PLACEHOLDERS: [(&[u8], Part); 5] = [
    (b"{}", Part::Value),
    (b"{.}", Part::WithoutEnding),
    (b"{/}", Part::Name),
    (b"{/.}", Part::Stem),
    (b"{#}", Part::Number),
];

/// A command with placeholders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template {
    words: Vec<Vec<Part>>,
}

impl Template {
    /// Parses the words of a command; the value is appended if no placeholder occurs.
    pub(super) fn parse(words: &[OsString]) -> Self {
        let mut words: Vec<Vec<Part>> = words.iter().map(|word| parts(word.as_bytes())).collect();
        if words.iter().flatten().all(|part| matches!(part, Part::Text(_))) {
            words.push(vec![Part::Value]);
        }
        Self { words }
    }

    /// Returns the command of a job.
    pub(super) fn fill(&self, number: usize, value: &OsStr) -> Vec<OsString> {
        let value = value.as_bytes();
        let fill = |word: &Vec<Part>| {
            let mut filled = Vec::new();
            for part in word {
                match part {
                    Part::Text(text) => filled.extend_from_slice(text),
                    Part::Value => filled.extend_from_slice(value),
                    Part::WithoutEnding => filled.extend_from_slice(without_ending(value)),
                    Part::Name => filled.extend_from_slice(name(value)),
                    Part::Stem => filled.extend_from_slice(without_ending(name(value))),
                    Part::Number => filled.extend_from_slice(number.to_string().as_bytes()),
                }
            }
            OsString::from_vec(filled)
        };
        self.words.iter().map(fill).collect()
    }
}

/// Divides the words behind the options into the command and the values; `None` without a
/// separator.
pub(super) fn divided(words: &[OsString]) -> (&[OsString], Option<&[OsString]>) {
    match words.iter().position(|word| word == SEPARATOR) {
        Some(at) => (&words[..at], Some(&words[at + 1..])),
        None => (words, None),
    }
}

/// Divides a text into values. Empty lines are no values; a value that ends with a zero byte may be
/// empty only if others follow.
pub(super) fn values(text: &[u8], null: bool) -> Vec<OsString> {
    let end = if null { 0 } else { b'\n' };
    let of = |value: &[u8]| OsString::from_vec(value.to_vec());
    text.split(|&byte| byte == end).filter(|value| !value.is_empty()).map(of).collect()
}

/// Returns the parts of a word.
fn parts(mut word: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    while let Some((&byte, rest)) = word.split_first() {
        match PLACEHOLDERS.iter().find(|(written, _)| word.starts_with(written)) {
            Some((written, part)) => {
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(part.clone());
                word = &word[written.len()..];
            }
            None => {
                text.push(byte);
                word = rest;
            }
        }
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    parts
}

/// Returns the part after the last slash; the whole value if nothing follows it.
fn name(value: &[u8]) -> &[u8] {
    match value.iter().rposition(|&byte| byte == b'/') {
        Some(at) if at + 1 < value.len() => &value[at + 1..],
        _ => value,
    }
}

/// Returns the value without its last ending: a dot and at least one byte, in the last part of a
/// path, and not at its beginning.
fn without_ending(value: &[u8]) -> &[u8] {
    let begin = value.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match value[begin..].iter().rposition(|&byte| byte == b'.') {
        Some(dot) if dot > 0 && begin + dot + 1 < value.len() => &value[..begin + dot],
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn filled(template: &str, value: &str) -> String {
        let filled = Template::parse(&words(template)).fill(7, OsStr::new(value));
        filled.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn placeholders_stand_for_the_value_its_parts_and_the_number() {
        for (template, value, expected) in [
            ("run", "a b", "run a b"),
            ("run {} {}", "a", "run a a"),
            ("-o{.}.out {/} {/.} {#}", "d/x.y.gz", "-od/x.y.out x.y.gz x.y 7"),
            ("{.}", "a.b/c", "a.b/c"),
            ("{.}", ".profile", ".profile"),
            ("{.}", "d/.profile", "d/.profile"),
            ("{.}", "a.", "a."),
            ("{/}", "d/", "d/"),
            ("{{}}", "v", "{v}"),
            ("{ } {x} {", "v", "{ } {x} { v"),
            ("x{}", "{}", "x{}"),
        ] {
            assert_eq!(filled(template, value), expected, "{template} with {value}");
        }
    }

    #[test]
    fn values_follow_three_colons_or_are_lines() {
        let line = words("cmd {} ::: 1 2");
        let (command, given) = divided(&line);
        assert_eq!((command.len(), given.unwrap().len()), (2, 2));
        assert_eq!(divided(&line[..2]).1, None);
        assert_eq!(values(b"a\n\nb c\n", false), ["a", "b c"]);
        assert_eq!(values(b"a\nb\0c\0", true), ["a\nb", "c"]);
    }

    proptest! {
        /// Without a placeholder in the template, the command is the template and the value.
        #[test]
        fn plain_words_stay(words in prop::collection::vec("[a-z/.#]{0,6}", 1..5), value in ".*") {
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            let filled = Template::parse(&words).fill(1, OsStr::new(&value));
            prop_assert_eq!(&filled[..words.len()], &words[..]);
            prop_assert_eq!(&filled[words.len()..], [OsString::from(value)]);
        }

        /// A value comes back whole, whatever bytes it has.
        #[test]
        fn values_are_bytes(value in prop::collection::vec(any::<u8>(), 0..20)) {
            let value = OsString::from_vec(value);
            prop_assert_eq!(Template::parse(&["{}".into()]).fill(1, &value), [value]);
        }

        /// The part after the slash and the part before it are the value again.
        #[test]
        fn a_path_is_divided_at_its_last_slash(folder in "[a-z/]{1,5}", file in "[a-z.]{1,5}") {
            let value = format!("{folder}/{file}");
            prop_assert_eq!(name(value.as_bytes()), file.as_bytes());
            prop_assert!(value.as_bytes().starts_with(without_ending(value.as_bytes())));
        }
    }
}
