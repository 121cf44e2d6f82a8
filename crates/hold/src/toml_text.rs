//! Texts of configuration files in TOML: faults with their positions, and patterns of names.
//!
//! The site's rules, the rules for guests and the configuration for containers are read by it.

use glob::Pattern;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use thiserror::Error;

/// A fault in a text, in one line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct TomlFault {
    /// Its line, from 1.
    pub line: usize,
    /// Its column, from 1.
    pub column: usize,
    /// The fault.
    pub problem: String,
}

impl TomlFault {
    /// Makes the fault at a byte of a text.
    pub fn at(text: &str, byte: usize, problem: &str) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
        Self { line, column, problem: problem.replace('\n', " ") }
    }
}

/// Reads the text of a configuration.
///
/// # Errors
/// The first fault.
///
/// # Examples
/// ```
/// use trimtab_hold::toml_text::parse;
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Size {
///     cores: u32,
/// }
/// assert_eq!(parse::<Size>("cores = 4")?.cores, 4);
/// let fault = parse::<Size>("\ncores = 'x'").unwrap_err();
/// assert_eq!((fault.line, fault.column), (2, 9));
/// # Ok::<(), trimtab_hold::toml_text::TomlFault>(())
/// ```
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TomlFault> {
    toml::from_str(text)
        .map_err(|error| TomlFault::at(text, error.span().map_or(0, |span| span.start), error.message()))
}

/// Pattern of names with `*`, `?` and `[...]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern(Pattern);

impl NamePattern {
    /// Returns whether a name fits.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Pattern::new(&text)
            .map(Self)
            .map_err(|error| format!("\"{text}\" is not a valid pattern: {}", error.msg))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_count_characters() {
        let at = |byte| TomlFault::at("ä = 1\nöö = 2", byte, "a\nb").to_string();
        assert_eq!(at(0), "line 1, column 1: a b");
        assert_eq!(at(2), "line 1, column 2: a b");
        assert_eq!(at(7), "line 2, column 1: a b");
        // Inside of a character, and after the end: the end.
        assert_eq!((at(1), at(99)), (at(15), at(15)));
        assert_eq!(at(15), "line 2, column 7: a b");
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let pattern = |text: &str| NamePattern::try_from(text.to_owned());
        let found = pattern("db-[0-9]*").unwrap();
        assert!(found.matches("db-10") && !found.matches("db-x"));
        assert_eq!(found.to_string(), "db-[0-9]*");
        let said = pattern("db-[").unwrap_err();
        assert!(said.starts_with("\"db-[\" is not a valid pattern: "), "{said}");
        assert!(!NamePattern::default().matches("db") && NamePattern::default().matches(""));
    }

    proptest! {
        #[test]
        fn a_position_is_found_again(lines in prop::collection::vec("[a-zä]{0,5}", 1..6), at in 0_usize..40) {
            let text = lines.join("\n");
            let Some(byte) = text.char_indices().map(|(byte, _)| byte).nth(at) else { return Ok(()) };
            let fault = TomlFault::at(&text, byte, "x");
            let before = text.split('\n').take(fault.line - 1).map(|line| line.chars().count() + 1);
            prop_assert_eq!(before.sum::<usize>() + fault.column - 1, at);
        }
    }
}
