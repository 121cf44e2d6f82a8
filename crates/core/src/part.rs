//! Marks of the parts of an installation: the name and version in each of trimtab's files.
//!
//! Problem: an installation consists of programs and a preload library, and a user may mix those of
//! two releases. A library has no command line that can be asked for its version, and a program of
//! another release may misunderstand the question. Idea: each file contains a mark, a short text
//! among its constants. A reader searches for it without running the file.
//!
//! # Example
//!
//! ```
//! use trimtab_core::part::{Part, find};
//!
//! let file = [b"\x7fELF...".as_slice(), b"trimtab-part:trimtab-lab=0.1.0;", b"..."].concat();
//! let part = Part { name: "trimtab-lab", version: "0.1.0" };
//! assert_eq!(find(&file), Some(part));
//! assert_eq!(find(b"trimtab-part:"), None);
//! ```

/// Start of a mark. Programs that search for marks contain this text alone, too.
const START: &[u8] = b"trimtab-part:";

/// Longest name and longest version that are read, in bytes.
const WORD_MAX: usize = 64;

/// Length of the longest mark, in bytes: a reader of a part of a file keeps as many bytes of it for
/// the next part.
pub const MARK_MAX: usize = START.len() + 2 * (WORD_MAX + 1);

/// Name and version in a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// Name of the part, such as `trimtab-lab`.
    pub name: &'a str,
    /// Version of the release to which it belongs.
    pub version: &'a str,
}

/// Returns the text of a mark with the version of the crate that contains it. The crate must use
/// the text, for example by `std::hint::black_box`, so that it stays in the file.
#[macro_export]
macro_rules! part_mark {
    ($name:literal) => {
        concat!("trimtab-part:", $name, "=", env!("CARGO_PKG_VERSION"), ";")
    };
}

/// Returns the first complete mark in the bytes of a file.
pub fn find(bytes: &[u8]) -> Option<Part<'_>> {
    let mut rest = bytes;
    loop {
        let at = rest.iter().position(|&byte| byte == START[0])?;
        rest = &rest[at..];
        if let Some(part) = rest.strip_prefix(START).and_then(read) {
            return Some(part);
        }
        rest = &rest[1..];
    }
}

/// Reads `NAME=VERSION;` at the start of `bytes`.
fn read(bytes: &[u8]) -> Option<Part<'_>> {
    let word = |bytes| {
        let word: &[u8] = bytes;
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'+');
        let fits = !word.is_empty() && word.len() <= WORD_MAX && word.iter().all(allowed);
        std::str::from_utf8(word).ok().filter(|_| fits)
    };
    let until = |bytes: &[u8], end: u8| bytes.iter().take(WORD_MAX + 1).position(|&byte| byte == end);
    let equals = until(bytes, b'=')?;
    let (name, behind) = (word(&bytes[..equals])?, &bytes[equals + 1..]);
    let version = word(&behind[..until(behind, b';')?])?;
    Some(Part { name, version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mark_is_found_behind_others_that_are_incomplete() {
        let text = part_mark!("shim");
        let file =
            [b"trimtab-part:\0trimtab-part:a b=1;trimtab-part:=;".as_slice(), text.as_bytes()].concat();
        assert_eq!(find(&file), Some(Part { name: "shim", version: env!("CARGO_PKG_VERSION") }));
        assert_eq!(find(&file[..file.len() - 1]), None, "without its end");
    }

    proptest! {
        #[test]
        fn any_file_is_read_without_harm(
            before in prop::collection::vec(any::<u8>(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let file = [before.as_slice(), START, after.as_slice()].concat();
            if let Some(part) = find(&file) {
                prop_assert!(!part.name.is_empty() && part.version.len() <= WORD_MAX);
            }
        }
    }
}
