//! The values that trimtab itself put into an environment, as a run hands them to runs inside it.
//!
//! A run must not take what an enclosing one set for the user's own wish. A variable,
//! [`SET_BY_US`], lists the values that were set: `2:9c1d03e2a5b6f704,03b1e6a4d5c8f921`, a version
//! and for each value a number in hexadecimal digits, FNV-1a of `NAME=VALUE` in 64 bits. Numbers
//! and not the text itself, because tools that read environments by lines, or look for a variable's
//! name, would find each twice; and a list of places, which is long on a large machine, would take
//! its room twice.
//!
//! Before version 2 the text was `NAME=VALUE` in lines, which is read still.

use std::collections::BTreeSet;
use std::fmt;
use trimtab_core::hash::fnv1a;

/// The variable.
pub const SET_BY_US: &str = "TRIMTAB_SET";

/// How the text begins.
const VERSION: &str = "2:";

/// Values of variables, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnValues(BTreeSet<u64>);

impl OwnValues {
    /// Reads the text; parts of it that make no sense are passed over.
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

    /// Notes a value.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.insert(number(name, value));
    }

    /// Whether this value was noted.
    pub fn contain(&self, name: &str, value: &str) -> bool {
        self.0.contains(&number(name, value))
    }

    /// Whether there are none.
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
    fn what_an_older_version_wrote_is_read() {
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
