//! Reader of TOML files, key by key; its errors name the line and the allowed values.
//!
//! Unit: one key. Problem: keys and values that people write into scenario and machine files are
//! misspelt, missing, negative, not a number or a billion. They must be refused before anything
//! runs, with the name of the file, the line, the key, the value and the allowed range. Idea: the
//! reader gets each key by name and limits, so it has all names that are allowed; any other key is
//! unknown. Nothing here panics.

mod times;
mod values;

pub use times::{parse as parse_time, write as write_time};
pub(crate) use values::called;
pub use values::{CountLimits, TimeLimits};

use std::cell::RefCell;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Error in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1; 0 if there are no lines.
    pub line: usize,
    /// Key with its sections, such as `memory.local_ns`; empty if the text is not TOML.
    pub key: String,
    /// Value as written, shortened; `None` if there is none.
    pub value: Option<String>,
    /// Problem and allowed values.
    pub problem: String,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}", self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.problem)
    }
}

/// Longest text of a file, bytes: far beyond any that people write.
pub const MOST_TEXT: usize = 4 << 20;
/// Number of characters of a value that an error shows.
const VALUE_CHARS_SHOWN: usize = 60;

/// Name and text of a file.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Name in errors.
    pub file: &'a str,
    /// Content.
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// Reads the text as TOML.
    ///
    /// # Errors
    /// [`FileError`] if it is not TOML, or is longer than [`MOST_TEXT`].
    pub fn table(self) -> Result<Spanned<DeTable<'a>>, FileError> {
        if self.text.len() > MOST_TEXT {
            let problem =
                format!("the file has {} bytes, more than the {MOST_TEXT} allowed", self.text.len());
            return Err(self.error(0, String::new(), None, problem));
        }
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, String::new(), None, error.message().to_owned())
        })
    }

    /// Returns the text of a range, as errors show it.
    pub(crate) fn value(self, at: std::ops::Range<usize>) -> Option<String> {
        self.text.get(at).map(shown)
    }

    pub(crate) fn error(self, at: usize, key: String, value: Option<String>, problem: String) -> FileError {
        let before = self.text.get(..at).unwrap_or(self.text);
        FileError { file: self.file.to_owned(), line: before.matches('\n').count() + 1, key, value, problem }
    }
}

/// Table of a file.
#[derive(Debug)]
pub struct Section<'a> {
    text: Text<'a>,
    path: String,
    at: usize,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

/// Limits and unit of a number.
#[derive(Clone, Copy, Debug)]
pub struct NumberLimits {
    /// Lowest allowed value.
    pub low: f64,
    /// Highest allowed value.
    pub high: f64,
    /// Unit, such as "nanoseconds".
    pub unit: &'static str,
}

impl NumberLimits {
    /// Returns limits from `low` to `high`, in `unit`.
    pub const fn new(low: f64, high: f64, unit: &'static str) -> Self {
        Self { low, high, unit }
    }

    fn words(&self) -> String {
        format!("{} from {} to {} are allowed", self.unit, self.low, self.high)
    }
}

impl<'a> Section<'a> {
    /// Returns the section of the whole file.
    pub fn top(text: Text<'a>, table: &'a DeTable<'a>) -> Self {
        Self { text, path: String::new(), at: 0, table, asked: RefCell::default() }
    }

    /// Returns the key's full name.
    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the line at which the section begins.
    pub fn line(&self) -> usize {
        self.text.error(self.at, String::new(), None, String::new()).line
    }

    /// Returns an error at a key, present or not.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> FileError {
        let found = self.table.get(key);
        let at = found.map_or(self.at, |value| value.span().start);
        let value = found.and_then(|value| self.text.value(value.span()));
        self.text.error(at, self.name(key), value, problem.into())
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.borrow_mut().push(key);
        self.table.get(key)
    }

    /// Reads a word or sentence.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn words(&self, key: &'static str) -> Result<Option<&'a str>, FileError> {
        self.get(key).map(|value| self.word(key, value)).transpose()
    }

    fn word(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Result<&'a str, FileError> {
        value.get_ref().as_str().ok_or_else(|| self.error(key, "text in quotes is allowed"))
    }

    /// Reads a number.
    ///
    /// # Errors
    /// If the value is not a number, or is outside its limits.
    pub fn number(&self, key: &'static str, limits: NumberLimits) -> Result<Option<f64>, FileError> {
        self.get(key).map(|value| self.within(key, value, limits)).transpose()
    }

    /// Reads a required number.
    ///
    /// # Errors
    /// If the value is missing, not a number, or outside its limits.
    pub fn needed(&self, key: &'static str, limits: NumberLimits) -> Result<f64, FileError> {
        self.number(key, limits)?.ok_or_else(|| self.error(key, format!("is missing: {}", limits.words())))
    }

    /// Reads numbers, one or a list.
    ///
    /// # Errors
    /// If one of them is not a number, or is outside its limits.
    pub fn numbers(&self, key: &'static str, limits: NumberLimits) -> Result<Option<Vec<f64>>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.get_ref().as_array() {
            None => Ok(Some(vec![self.within(key, value, limits)?])),
            Some(list) => {
                list.iter().map(|item| self.within(key, item, limits)).collect::<Result<_, _>>().map(Some)
            }
        }
    }

    /// Reads a list of lists of numbers.
    ///
    /// # Errors
    /// If it is anything else, or one of the numbers is outside its limits.
    pub fn rows(&self, key: &'static str, limits: NumberLimits) -> Result<Option<Vec<Vec<f64>>>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let rows = value.get_ref().as_array();
        let rows = rows.ok_or_else(|| self.error(key, "a list of rows is allowed: [[10, 20], [20, 10]]"))?;
        let row = |row: &'a Spanned<DeValue<'a>>| -> Result<Vec<f64>, FileError> {
            let items = row.get_ref().as_array();
            let items =
                items.ok_or_else(|| self.error(key, "a list of rows is allowed: [[10, 20], [20, 10]]"))?;
            items.iter().map(|item| self.within(key, item, limits)).collect()
        };
        rows.iter().map(row).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a size in bytes: a number, or text such as `"512K"`, `"4M"`, `"1G"`.
    ///
    /// # Errors
    /// If it is not a size, or is above `most`.
    pub fn bytes(&self, key: &'static str, most: u64) -> Result<Option<u64>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let allowed =
            || self.error(key, format!("bytes up to {most} are allowed, such as 4096, \"512K\", \"4M\""));
        let bytes = match value.get_ref() {
            DeValue::String(text) => parse_bytes(text),
            DeValue::Integer(number) => integer(number).and_then(|number| u64::try_from(number).ok()),
            _ => None,
        };
        bytes.filter(|&bytes| bytes <= most).map(Some).ok_or_else(allowed)
    }

    /// Reads a table inside this one.
    ///
    /// # Errors
    /// If the value is not a table.
    pub fn section(&self, key: &'static str) -> Result<Option<Section<'a>>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let table = value.get_ref().as_table();
        let table =
            table.ok_or_else(|| self.error(key, format!("a section is allowed: [{}]", self.name(key))))?;
        Ok(Some(Section {
            text: self.text,
            path: self.name(key),
            at: value.span().start,
            table,
            asked: RefCell::default(),
        }))
    }

    /// Reads a required table.
    ///
    /// # Errors
    /// If it is missing or not a table.
    pub fn needed_section(&self, key: &'static str) -> Result<Section<'a>, FileError> {
        self.section(key)?
            .ok_or_else(|| self.error(key, format!("the section [{}] is missing", self.name(key))))
    }

    /// Reads all texts below, with their full names, also in nested tables.
    ///
    /// # Errors
    /// If a value is neither text nor table, or tables are nested more than [`TEXT_DEPTH_MAX`]
    /// deep.
    pub fn texts(&self) -> Result<Vec<(String, &'a str)>, FileError> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), self.table, 0)];
        while let Some((path, table, depth)) = open.pop() {
            for (key, value) in table.iter() {
                let name = if path.is_empty() {
                    key.get_ref().to_string()
                } else {
                    format!("{path}.{}", key.get_ref())
                };
                let problem = |problem: &str| {
                    let shown = shown(self.text.text.get(value.span()).unwrap_or(""));
                    self.text.error(value.span().start, self.name(&name), Some(shown), problem.to_owned())
                };
                match value.get_ref() {
                    DeValue::String(text) => found.push((name, text.as_ref())),
                    DeValue::Table(table) if depth < TEXT_DEPTH_MAX => open.push((name, table, depth + 1)),
                    _ => return Err(problem("text in quotes is allowed")),
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Refuses keys that were never asked for.
    ///
    /// # Errors
    /// At the first of them, with the known keys.
    pub fn finish(self) -> Result<(), FileError> {
        let mut asked = self.asked.borrow().clone();
        let unknown = self.table.keys().find(|key| !asked.contains(&key.get_ref().as_ref()));
        let Some(unknown) = unknown else { return Ok(()) };
        asked.sort_unstable();
        asked.dedup();
        let mut error = self.error(unknown.get_ref(), "");
        error.line = self.text.error(unknown.span().start, String::new(), None, String::new()).line;
        error.problem = format!("is unknown here; known are {}", asked.join(", "));
        error.key = shown(&error.key);
        Err(error)
    }

    fn within(
        &self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        limits: NumberLimits,
    ) -> Result<f64, FileError> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => integer(number).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        // A value that is not a number is outside all limits.
        number.filter(|number| (limits.low..=limits.high).contains(number)).ok_or_else(|| {
            let written = shown(self.text.text.get(value.span()).unwrap_or(""));
            self.text.error(value.span().start, self.name(key), Some(written), limits.words())
        })
    }
}

/// Returns a key as it is written, from its parts.
pub(crate) fn dotted(path: &[String]) -> String {
    path.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

/// Returns a part of a key as it is written: in quotes if it has characters that a bare key may not
/// have.
pub(crate) fn quoted(part: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !part.is_empty() && part.chars().all(bare) {
        return part.to_owned();
    }
    let mut out = String::from("\"");
    for c in part.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Highest depth of nested tables of texts.
pub const TEXT_DEPTH_MAX: usize = 4;

fn integer(number: &toml::de::DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Parses a size such as `512K`, `4M`, `1.5G`, `4096`.
fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1u64 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        Some((at, 'T')) => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = digits.parse().ok().filter(|_| plain)?;
    let bytes = number * factor as f64;
    (bytes.fract() == 0.0 && bytes < 2f64.powi(63)).then_some(bytes as u64)
}

/// Returns the text on one line of limited length.
pub(crate) fn shown(text: &str) -> String {
    let line: String =
        text.chars().take(VALUE_CHARS_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(VALUE_CHARS_SHOWN).is_some() { format!("{line}...") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("512K"), Some(512 << 10));
        assert_eq!(parse_bytes("1.5M"), Some(3 << 19));
        for bad in ["", "K", "-1", "4 M", "1e9", "0.3", "12Q", "\u{e9}", "99999999999T"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_name_file_line_key_value_and_the_allowed_values() {
        let text = Text { file: "x.toml", text: "a = 1\n[b]\nc = -3\nd = 'w'\n" };
        let table = text.table().unwrap();
        let top = Section::top(text, table.get_ref());
        assert_eq!(top.needed("a", NumberLimits::new(0.0, 2.0, "things")), Ok(1.0));
        let b = top.needed_section("b").unwrap();
        let error = b.needed("c", NumberLimits::new(0.0, 10.0, "nanoseconds")).unwrap_err();
        assert_eq!(error.to_string(), "x.toml:3: b.c = -3: nanoseconds from 0 to 10 are allowed");
        let missing = b.needed("e", NumberLimits::new(0.0, 10.0, "nanoseconds")).unwrap_err();
        assert_eq!(missing.to_string(), "x.toml:2: b.e: is missing: nanoseconds from 0 to 10 are allowed");
        let unknown = b.finish().unwrap_err();
        assert_eq!(unknown.to_string(), "x.toml:4: b.d = 'w': is unknown here; known are c, e");
    }
}
