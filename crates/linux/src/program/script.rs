//! The line `#!interpreter argument` at the head of a script.

use super::resolve;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Interpreter of a script, as its first line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command<'a> {
    /// By its path.
    File(&'a OsStr),
    /// By a name that `env` looks for.
    Word(&'a OsStr),
}

impl Command<'_> {
    /// Returns the interpreter, if it exists and can be executed.
    pub(super) fn find(&self, search_path: Option<&OsStr>) -> Option<PathBuf> {
        match self {
            Self::File(path) => resolve(path, None).ok(),
            Self::Word(word) => resolve(word, search_path).ok(),
        }
    }
}

/// Returns the interpreter of a script, from the beginning of the file. The kernel takes everything
/// behind the interpreter as *one* argument; `env` searches for that whole argument unless `-S`
/// makes it split the argument.
pub(super) fn interpreter(head: &[u8]) -> Option<Command<'_>> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (file, argument) = (OsStr::from_bytes(&line[..end]), line[end..].trim_ascii());
    if file.is_empty() || file.as_bytes().contains(&0) {
        return None;
    }
    if Path::new(file).file_name() != Some(OsStr::new("env")) || argument.is_empty() {
        return Some(Command::File(file));
    }
    let word = match split_string(argument) {
        Some(words) => command_of(words)?,
        None => argument,
    };
    (!word.contains(&0)).then(|| Command::Word(OsStr::from_bytes(word)))
}

/// Returns the words that follow `-S` or `--split-string=`, possibly with other one-letter flags
/// before the S.
fn split_string(argument: &[u8]) -> Option<&[u8]> {
    if let Some(words) = argument.strip_prefix(b"--split-string=") {
        return Some(words);
    }
    let flags = argument.strip_prefix(b"-")?;
    let at = flags.iter().position(|&flag| flag == b'S')?;
    flags[..at].iter().all(|flag| b"iv0".contains(flag)).then(|| &flags[at + 1..])
}

/// Returns the command among the words given to `env`, behind its options and variables.
fn command_of(words: &[u8]) -> Option<&[u8]> {
    let mut words = crate::text::words(words);
    loop {
        match words.next()? {
            b"--" => return words.next(),
            b"-u" | b"--unset" | b"-C" | b"--chdir" => drop(words.next()),
            word if word.starts_with(b"-") || word.contains(&b'=') => {}
            word => return Some(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn interpreters_are_found_as_the_kernel_and_env_find_them() {
        let file = |name| Some(Command::File(OsStr::new(name)));
        let word = |name| Some(Command::Word(OsStr::new(name)));
        for (head, expected) in [
            ("#!/bin/sh\necho", file("/bin/sh")),
            ("#! \t/bin/sh -e\n", file("/bin/sh")),
            ("#!/bin/sh", file("/bin/sh")),
            ("#!sh\r\n", file("sh")),
            ("#!\n/bin/sh", None),
            ("#!", None),
            ("/bin/sh", None),
            ("#!/bin/s\0h\n", None),
            ("#!/usr/bin/env\n", file("/usr/bin/env")),
            ("#!/usr/bin/env python3\n", word("python3")),
            ("#!/usr/bin/env python3 -u\n", word("python3 -u")),
            ("#!/usr/bin/env -S python3 -u\n", word("python3")),
            ("#!/usr/bin/env -iS A=b -u C -- julia -t 4\n", word("julia")),
            ("#!/usr/bin/env --split-string=-i node --x\n", word("node")),
            ("#!/usr/bin/env -S A=b\n", None),
        ] {
            assert_eq!(interpreter(head.as_bytes()), expected, "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn any_head_is_read_without_harm(mut head in prop::collection::vec(any::<u8>(), 0..64), env in any::<bool>()) {
            let start: &[u8] = if env { b"#!/usr/bin/env -S" } else { b"#!" };
            head.splice(0..0, start.iter().copied());
            let _ = interpreter(&head).and_then(|command| command.find(Some(OsStr::new("/none"))));
        }
    }
}
