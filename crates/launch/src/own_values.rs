//! Record of the values that trimtab itself set in an environment, passed from a run to the runs
//! inside it.
//!
//! A run must not mistake a value set by an enclosing run for the user's choice. The variable
//! [`SET_BY_US`] lists the values that were set: `2:9c1d03e2a5b6f704,03b1e6a4d5c8f921`. It contains
//! a version and, for each value, the 64-bit FNV-1a hash of `NAME=VALUE` in hexadecimal digits.
//! Hashes are used instead of the text for two reasons: tools that read environments by lines, or
//! search for a variable's name, would find each variable twice; and a list of places, which is
//! long on a large machine, would occupy its space twice.
//!
//! Before version 2 the text consisted of `NAME=VALUE` lines, which are still read.

use std::collections::BTreeSet;
use std::fmt;
use trimtab_core::hash::fnv1a;

/// Variable that lists the hashes.
pub const SET_BY_US: &str = "TRIMTAB_SET";

/// Prefix of the text in version 2.
const VERSION: &str = "2:";

/// Set of values of variables, by hash.
///
/// # Examples
/// ```
/// use trimtab_launch::OwnValues;
///
/// let mut own = OwnValues::default();
/// assert!(own.is_empty());
/// own.add("OMP_NUM_THREADS", "4");
///
/// // The text of the variable `SET_BY_US`, as an inner run reads it.
/// let read = OwnValues::read(&own.to_string());
/// assert!(read.contain("OMP_NUM_THREADS", "4"));
/// assert!(!read.contain("OMP_NUM_THREADS", "8")); // Changed since: the user's.
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnValues(BTreeSet<u64>);

impl OwnValues {
    /// Reads the text; invalid parts are ignored. [`OwnValues`] has an example.
    pub fn read(text: &str) -> Self {
        match text.strip_prefix(VERSION) {
            Some(numbers) => {
                Self(numbers.split(',').filter_map(|number| u64::from_str_radix(number, 16).ok()).collect())
            }
            None => Self(
                text.split('\n').filter(|line| line.contains('=')).map(|line| fnv1a(line.bytes())).collect(),
            ),
        }
    }

    /// Records a value. [`OwnValues`] has an example.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.insert(number(name, value));
    }

    /// Returns whether this value was recorded. [`OwnValues`] has an example.
    pub fn contain(&self, name: &str, value: &str) -> bool {
        // Most runs are inside no other, and need no hash.
        !self.0.is_empty() && self.0.contains(&number(name, value))
    }

    /// Returns whether no value is recorded. [`OwnValues`] has an example.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for OwnValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        for (at, number) in self.0.iter().enumerate() {
            write!(f, "{}{number:016x}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

fn number(name: &str, value: &str) -> u64 {
    fnv1a(format!("{name}={value}").bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_known_again_and_others_are_not() {
        let mut own = OwnValues::default();
        assert!(own.is_empty());
        for (name, value) in [("OMP_PLACES", "{0},{1}"), ("A", ""), ("B", "two\nlines and more = %")] {
            own.add(name, value);
        }
        let text = own.to_string();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains("OMP"), "{text}");
        let read = OwnValues::read(&text);
        assert_eq!(read, own);
        assert!(read.contain("OMP_PLACES", "{0},{1}") && read.contain("A", ""));
        assert!(!read.contain("OMP_PLACES", "{0}") && !read.contain("C", ""));
    }

    #[test]
    fn values_of_an_older_version_are_read() {
        let own = OwnValues::read("OMP_PLACES={0},{1}\nLD_PRELOAD=/a b.so\n");
        assert!(own.contain("OMP_PLACES", "{0},{1}") && own.contain("LD_PRELOAD", "/a b.so"));
        assert!(!own.contain("LD_PRELOAD", ""));
    }

    #[test]
    fn text_without_sense_says_nothing() {
        for text in ["", "2:", "2:x,,", "3:00", "\u{fffd}1", "2"] {
            assert!(OwnValues::read(text).is_empty(), "{text:?}");
        }
    }
}
