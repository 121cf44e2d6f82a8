//! Parser of values that are words of a fixed list, with completions and suggestions.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

/// Jaro similarity from which a word counts as a misspelling of another one; the value that clap
/// uses for options.
const SIMILARITY_MIN: f64 = 0.7;

/// Parser of a type whose values are (mostly) words.
///
/// The words are offered by completions, and one of them is suggested for a misspelling. Other
/// values are left to the type's own parser.
#[derive(Clone, Debug)]
pub struct Words<T> {
    words: Vec<&'static str>,
    synonyms: &'static [(&'static str, &'static str)],
    of: PhantomData<T>,
}

impl<T> Words<T> {
    /// Parser that knows these words.
    pub fn of(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self { words: words.into_iter().collect(), synonyms: &[], of: PhantomData }
    }

    /// The same parser, which also accepts words of other tools: pairs of a foreign word and the
    /// word that it stands for. Completions do not offer them.
    #[must_use]
    pub fn and(self, synonyms: &'static [(&'static str, &'static str)]) -> Self {
        Self { synonyms, ..self }
    }

    /// The word that is most similar to `text`; `None` if none is similar enough.
    fn similar(&self, text: &str) -> Option<&'static str> {
        let near = self.words.iter().map(|word| (strsim::jaro(word, text), *word));
        near.filter(|(near, _)| *near > SIMILARITY_MIN)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, word)| word)
    }
}

impl<T> TypedValueParser for Words<T>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let typed = value.to_str().unwrap_or_default();
        let meant = self.synonyms.iter().find(|(foreign, _)| *foreign == typed);
        let value = meant.map_or(value, |(_, own)| OsStr::new(own));
        str::parse::<T>.parse_ref(command, arg, value).map_err(|error| match self.similar(typed) {
            Some(similar) => misspelt(command, arg, typed, &self.words, similar),
            None => error,
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}

/// The error for a misspelt word, in the form that clap gives it.
fn misspelt(command: &Command, arg: Option<&Arg>, typed: &str, words: &[&str], similar: &str) -> Error {
    let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
    if let Some(arg) = arg {
        error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
    }
    error.insert(ContextKind::InvalidValue, ContextValue::String(typed.to_owned()));
    let valid = words.iter().map(|word| (*word).to_owned()).collect();
    error.insert(ContextKind::ValidValue, ContextValue::Strings(valid));
    error.insert(ContextKind::SuggestedValue, ContextValue::String(similar.to_owned()));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u8, Error> {
        let words = Words::<u8>::of(["10", "20"]).and(&[("ten", "10")]);
        // A built command has filled in how many values the argument takes.
        let mut command = Command::new("x").arg(Arg::new("number").long("number"));
        command.build();
        words.parse_ref(&command, command.get_arguments().next(), OsStr::new(text))
    }

    #[test]
    fn words_synonyms_and_other_values_are_parsed() {
        assert_eq!(parse("10").unwrap(), 10);
        assert_eq!(parse("ten").unwrap(), 10);
        assert_eq!(parse("7").unwrap(), 7);
    }

    #[test]
    fn a_misspelling_is_answered_with_the_word_that_was_meant() {
        let error = parse("20x").unwrap_err().to_string();
        assert!(error.contains("'20x'") && error.contains("possible values: 10, 20"), "{error}");
        assert!(error.contains("a similar value exists: '20'"), "{error}");
        let error = parse("scatter").unwrap_err().to_string();
        assert!(!error.contains("similar"), "{error}");
    }
}
