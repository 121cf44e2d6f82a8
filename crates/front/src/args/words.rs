//! Parser of values that are words of a fixed list, with completions and suggestions.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;
use trimtab_core::words::meant;

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
    /// Whether the type also has values that are not in the list, such as numbers.
    open: bool,
    synonyms: &'static [(&'static str, &'static str)],
    of: PhantomData<T>,
}

impl<T> Words<T> {
    /// Parser of these words.
    pub fn of(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self { words: words.into_iter().collect(), open: false, synonyms: &[], of: PhantomData }
    }

    /// Parser of these words, for a type that has other values too. The error for a misspelling is
    /// the type's own, which names all forms of its values.
    pub fn among(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self { open: true, ..Self::of(words) }
    }

    /// The same parser, which also accepts words of other tools: pairs of a foreign word and the
    /// own word of the same meaning. Completions do not offer them.
    #[must_use]
    pub fn and(self, synonyms: &'static [(&'static str, &'static str)]) -> Self {
        Self { synonyms, ..self }
    }

    /// The value that `text` was probably meant to be; `None` if no word is similar enough. A value
    /// with a colon keeps the part behind it: `binds:0` means `bind:0`.
    fn similar(&self, text: &str) -> Option<String> {
        let Some((head, rest)) = text.split_once(':') else {
            return self.word_like(text, self.words.iter().copied()).map(str::to_owned);
        };
        let heads = self.words.iter().map(|word| word.split(':').next().unwrap_or(word));
        self.word_like(head, heads).map(|word| format!("{word}:{rest}"))
    }

    /// The one of `words` that `text` was probably meant to be. Case does not matter, and a word of
    /// another tool is accepted for the own word.
    fn word_like(
        &self,
        text: &str,
        words: impl Iterator<Item = &'static str> + Clone,
    ) -> Option<&'static str> {
        let text = text.to_lowercase();
        let foreign = self.synonyms.iter().find(|(foreign, _)| *foreign == text).map(|(_, own)| *own);
        let same = || words.clone().find(|word| *word == text);
        let mistyped = || meant(&text, words.clone());
        let near = || {
            let near = words.clone().map(|word| (strsim::jaro(word, &text), word));
            near.filter(|(near, _)| *near > SIMILARITY_MIN)
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, word)| word)
        };
        foreign.or_else(same).or_else(mistyped).or_else(near)
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
            // The word is right and the part behind its colon is wrong: the type's own error says
            // how.
            Some(similar) if similar == typed => error,
            // The type's own error has the suggestion already.
            Some(_) if error.to_string().contains("did you mean") => error,
            Some(similar) if self.open => suggested(error, &similar),
            Some(similar) => misspelt(command, arg, typed, &self.words, &similar),
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
    suggested(error, similar)
}

/// The error, with the word that was probably meant.
fn suggested(mut error: Error, similar: &str) -> Error {
    error.insert(ContextKind::SuggestedValue, ContextValue::String(similar.to_owned()));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u8, Error> {
        parse_by(&Words::<u8>::of(["10", "20"]).and(&[("ten", "10")]), text)
    }

    fn parse_by<T>(words: &Words<T>, text: &str) -> Result<T, Error>
    where
        Words<T>: TypedValueParser<Value = T>,
    {
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
        let error = parse("TEN").unwrap_err().to_string();
        assert!(error.contains("a similar value exists: '10'"), "{error}");
    }

    #[test]
    fn swapped_letters_and_words_before_a_colon_are_recognised() {
        let words = Words::<u8>::of(["slurm", "bind", "all"]);
        for (typed, similar) in [("slrum", "slurm"), ("binds:0", "bind:0"), ("All", "all")] {
            let error = parse_by(&words, typed).unwrap_err().to_string();
            assert!(error.contains(&format!("a similar value exists: '{similar}'")), "{error}");
        }
        // The word is right, and its argument is wrong.
        let error = parse_by(&words, "bind:x").unwrap_err().to_string();
        assert!(error.contains("invalid digit") && !error.contains("similar"), "{error}");
    }

    #[test]
    fn a_type_with_other_values_keeps_its_own_error() {
        let error = parse_by(&Words::<u8>::among(["node"]), "nod").unwrap_err().to_string();
        assert!(error.contains("invalid digit") && error.contains("'node'"), "{error}");
        assert!(!error.contains("possible values"), "{error}");
    }
}
